"""Loads and stores of one instruction in each state space (PTX ISA 5.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where, beside_multiple
from tilewise.devices.emulator.access.global_access import GlobalAccess, Part
from tilewise.devices.emulator.access.shared_access import SharedAccess
from tilewise.devices.emulator.checks import log, unwritten
from tilewise.devices.emulator.counting.transactions import Wavefronts
from tilewise.devices.emulator.memory.patterns import SharedPattern
from tilewise.devices.emulator.memory.storage import (
    LOCAL_WINDOW,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Storage,
    elements,
)
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Data = npt.NDArray[Any]
"""The data of a load or store: shape (lanes,) for elements, (lanes, count) for vectors."""
Lacks = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Origins = npt.NDArray[np.int32]


class Space(Protocol):
    """The state space in which one instruction loads or stores."""

    def load(self, lanes: Lanes) -> Data: ...

    def store(self, lanes: Lanes, values: Data) -> None: ...

    def unwrite(self, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools: ...


class Global:
    """Global, constant and parameter memory."""

    def __init__(
        self, machine: Machine, op: Op, where: Where, dtype: np.dtype[Any], count: int,
        counts: bool = True,
    ) -> None:  # fmt: skip
        self.op, self.where, self.dtype, self.count = op, where, dtype, count
        self.counts = counts
        self.access = GlobalAccess(machine, op, dtype, count)
        is_global = op.space.startswith("global")
        self.races = machine.global_races if is_global else None

    def load(self, lanes: Lanes) -> Data:
        return self.load_at(self.where(lanes), lanes)

    def load_at(self, address: Any, lanes: Lanes) -> Data:
        if self.races is not None:
            self.races.note(self.op, address, lanes, self.access.width, writes=False)
        parts = self.access.reach(address, lanes, False, self.counts)
        if len(parts) == 1 and parts[0].chosen is None:
            part = parts[0]
            return part.view(part.allocation.data, self.dtype, self.count)[part.gather]
        shape = (lanes.count,) if self.count == 1 else (lanes.count, self.count)
        values = np.zeros(shape, self.dtype)
        for part in parts:
            view = part.view(part.allocation.data, self.dtype, self.count)
            values[part.chosen] = view[part.gather]
        return values

    def store(self, lanes: Lanes, values: Data) -> None:
        self.store_at(self.where(lanes), lanes, values)

    def store_at(self, address: Any, lanes: Lanes, values: Data) -> None:
        parts = self.access.reach(address, lanes, True, self.counts)
        if self.races is not None:
            same = self._same(parts, lanes, values)
            self.races.note(self.op, address, lanes, self.access.width, True, same)
        for part in parts:
            part.allocation.is_written = True
            view = part.view(part.allocation.data, self.dtype, self.count)
            if part.chosen is not None and values.ndim:
                view[part.gather] = values[part.chosen]
            elif not isinstance(part.gather, int) or not values.ndim:
                view[part.gather] = values
            else:
                # All lanes write one place, and the last one wins.
                view[part.gather] = values[-1]
        if self.races is not None:
            self._check_agreement(parts, lanes, values)

    def unwrite(self, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools:
        return np.ones(lanes.count, np.bool_)

    def _same(self, parts: list[Part], lanes: Lanes, values: Data) -> npt.NDArray[np.bool_] | None:
        """Return which lanes write the value that is there already; None if none does."""
        if len(parts) != 1 or parts[0].chosen is not None:
            return None
        view = parts[0].view(parts[0].allocation.data, self.dtype, self.count)
        equal = _bits(view[parts[0].gather]) == _bits(np.asarray(values))
        shape = (lanes.count,) if self.count == 1 else (lanes.count, self.count)
        each = np.broadcast_to(equal, shape).reshape(lanes.count, -1)
        same: npt.NDArray[np.bool_] = np.asarray(each.all(axis=1))
        return same if same.any() else None

    def _check_agreement(self, parts: list[Part], lanes: Lanes, values: Data) -> None:
        """Check that lanes which write one place by one instruction write the same value."""
        same = self._same(parts, lanes, values)
        lost = np.flatnonzero(~same) if same is not None else np.empty(0, np.intp)
        if len(lost):
            part = parts[0]
            at = int(np.broadcast_to(part.gather, lanes.count)[lost[0]])
            owner = part.allocation
            address = owner.base + part.start + at * self.access.width
            place = self.op.machine.global_place(owner, address)
            self.op.fault(
                "race",
                f"writes {place} in global memory, and another thread writes a different value "
                "there at once",
                int(lanes.numbers[lost[0]]),
                place,
                len(lost) - 1,
            )


def _bits(values: Data) -> Data:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


class Shared:
    """Shared memory, with its checks."""

    def __init__(
        self, machine: Machine, op: Op, where: Where, dtype: np.dtype[Any], count: int,
        counted: tuple[int, int] | None, is_cluster: bool = False,
        rule: Wavefronts | None = None,
    ) -> None:  # fmt: skip
        self.machine, self.op, self.where = machine, op, where
        self.dtype, self.count = dtype, count
        meant = machine.roots.of(op.index, where.address) if machine.is_checking else frozenset()
        self.access = SharedAccess(machine, op, dtype, count, counted, is_cluster, meant, rule)
        machine.forgetters.append(self.access.forget)

    def reach(self, lanes: Lanes) -> SharedPattern:
        return self.access.reach(self.where.source(), lambda: self.where(lanes), lanes)

    def load(self, lanes: Lanes) -> Data:
        return self._load(self.reach(lanes), lanes)

    def load_at(self, address: Any, lanes: Lanes) -> Data:
        return self._load(self.access.reach(address, lambda: address, lanes), lanes)

    def _load(self, pattern: SharedPattern, lanes: Lanes) -> Data:
        if self.machine.is_checking:
            self.access.check_written(pattern)
            self.machine.races.note(pattern, log.READ, self.op)
        found = elements(self.machine.shared.data, self.dtype, self.count)[pattern.gather]
        if pattern.chosen is None:
            return found
        values = np.zeros((lanes.count, *found.shape[1:]), self.dtype)
        values[pattern.chosen] = found
        return values

    def store(self, lanes: Lanes, values: Data) -> None:
        self._store(self.reach(lanes), values)

    def store_at(self, address: Any, lanes: Lanes, values: Data) -> None:
        self._store(self.access.reach(address, lambda: address, lanes), values)

    def on_the_way(self, address: Any, lanes: Lanes) -> SharedPattern | None:
        """Begin and count a copy to these addresses, which nothing may use until it has arrived."""
        pattern = self.access.reach(address, lambda: address, lanes)
        if not self.machine.is_checking:
            return None
        self.machine.races.note(pattern, log.ISSUE, self.op)
        return pattern

    def arrive_at(self, address: Any, lanes: Lanes, values: Data) -> None:
        """Store what was copied to these addresses."""
        pattern = self.access.reach(address, lambda: address, lanes, counts=False)
        self._store(pattern, values, log.ARRIVAL)

    def _store(self, pattern: SharedPattern, values: Data, kind: str = log.WRITE) -> None:
        if pattern.chosen is not None and values.ndim:
            values = values[pattern.chosen]
        view = elements(self.machine.shared.data, self.dtype, self.count)
        if not self.machine.is_checking:
            view[pattern.gather] = values
            return
        same = ~self._differs(pattern, view, values)
        view[pattern.gather] = values
        self.access.mark_written(pattern)
        self.machine.races.note(pattern, kind, self.op, same if same.any() else None)
        if pattern.has_duplicates:
            self._check_agreement(pattern, view, values)

    def unwrite(self, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools:
        return self.unwrite_at(self.where(lanes), lanes, lacks, origin)

    def unwrite_at(self, address: Any, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools:
        pattern = self.access.reach(address, lambda: address, lanes, counts=False)
        if pattern.chosen is not None:
            lacks, origin = lacks[pattern.chosen], origin[pattern.chosen]
        _unwrite(self.machine.shared, pattern.gather, lacks, origin)
        # What was known to be written may no longer be.
        self.machine.generation += 1
        return np.zeros(lanes.count, np.bool_)

    def _differs(self, pattern: SharedPattern, view: Data, values: Data) -> npt.NDArray[np.bool_]:
        """Return for each lane whether its place holds another value than its own."""
        bits = np.dtype(f"u{self.dtype.itemsize}")
        stands = view[pattern.gather].view(bits)
        meant = np.ascontiguousarray(np.broadcast_to(values, stands.shape)).view(bits)
        unlike = (stands != meant).reshape(len(stands), self.count)
        differs: npt.NDArray[np.bool_] = unlike.any(axis=1)
        return differs

    def _check_agreement(self, pattern: SharedPattern, view: Data, values: Data) -> None:
        """Check that lanes which write one place by one instruction write the same value."""
        lost = np.flatnonzero(self._differs(pattern, view, values))
        if len(lost):
            at = int(lost[0])
            place = self.machine.shared_place(
                int(pattern.address[at]), self.dtype.itemsize, self.op.width
            )
            self.op.fault(
                "race",
                f"writes {place} in shared memory, and another thread writes a different value "
                "there at once",
                int(pattern.lanes.numbers[at]),
                place,
                len(lost) - 1,
            )


class Rows:
    """Memory with a row for each lane: local memory, and the parameters of device functions."""

    def __init__(
        self, machine: Machine, op: Op, where: Callable[[Lanes], Any],
        storage: Callable[[], Storage], dtype: np.dtype[Any], count: int,
    ) -> None:  # fmt: skip
        self.machine, self.op, self.where, self.storage = machine, op, where, storage
        self.dtype, self.count, self.width = dtype, count, dtype.itemsize * count

    def load(self, lanes: Lanes) -> Data:
        return self.load_at(self.where(lanes), lanes)

    def load_at(self, address: Any, lanes: Lanes) -> Data:
        storage, gather = self.storage(), self._gather(address, lanes)
        self.op.requests += lanes.warps
        if storage.written is not None:
            cells = elements(storage.written, np.dtype("u1"), self.width)[gather]
            is_written = cells.reshape(-1, self.width).view(np.bool_)
            starts = gather * self.width
            empty = unwritten.faulty(
                is_written, self.dtype.itemsize, self.op.copied, storage.written, starts
            )
            if len(empty):
                self.machine.undefined.found(
                    self.op, lanes.numbers[empty],
                    *storage.lacking(starts[empty], is_written[empty]),
                    lambda _: ("reads a local variable that it never wrote", None),
                )  # fmt: skip
        return elements(storage.data, self.dtype, self.count)[gather]

    def store(self, lanes: Lanes, values: Data) -> None:
        self.store_at(self.where(lanes), lanes, values)

    def store_at(self, address: Any, lanes: Lanes, values: Data) -> None:
        storage, gather = self.storage(), self._gather(address, lanes)
        self.op.requests += lanes.warps
        elements(storage.data, self.dtype, self.count)[gather] = values
        if storage.written is not None:
            elements(storage.written, np.dtype("u1"), self.width)[gather] = 1

    def unwrite(self, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools:
        return self.unwrite_at(self.where(lanes), lanes, lacks, origin)

    def unwrite_at(self, address: Any, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools:
        _unwrite(self.storage(), self._gather(address, lanes), lacks, origin)
        return np.zeros(lanes.count, np.bool_)

    def _gather(self, address: Any, lanes: Lanes) -> npt.NDArray[np.intp]:
        storage = self.storage()
        offset = np.asarray(address)
        wrong = (offset < 0) | (offset + self.width > storage.size) | (offset % self.width != 0)
        if wrong.any():
            which = np.flatnonzero(np.broadcast_to(wrong, lanes.count))
            at = int(np.broadcast_to(offset, lanes.count)[which[0]])
            message = f"reaches byte {at:,} of its {plural(storage.size, 'byte')} of local memory"
            if at % self.width:
                message += f" with {self.width} bytes: {beside_multiple(at, self.width)}"
            self.op.fault(
                "misaligned" if at % self.width else "out of bounds",
                message,
                int(lanes.numbers[which[0]]),
                None,
                len(which) - 1,
            )
            offset = np.where(wrong, 0, offset)
        rows: npt.NDArray[np.intp] = (lanes.numbers * storage.pitch + offset) // self.width
        return rows


class Generic:
    """Generic addresses, each of which names its lane's own space (PTX ISA 6.4.1.1)."""

    def __init__(
        self, machine: Machine, op: Op, where: Where, dtype: np.dtype[Any], count: int
    ) -> None:
        self.where = where
        self.global_ = Global(machine, op, where, dtype, count)
        self.shared = Shared(
            machine, op, where, dtype, count, (dtype.itemsize * count, 0), is_cluster=True
        )
        self.local = Rows(machine, op, where, lambda: machine.local, dtype, count)
        self.dtype, self.count = dtype, count

    def split(self, address: Any, lanes: Lanes) -> list[tuple[Any, Any, Lanes, Any]]:
        """Return (space, address in it, lanes, indices of the lanes) for each space reached."""
        if isinstance(address, int):
            for space, window in ((self.shared, SHARED_WINDOW), (self.local, LOCAL_WINDOW)):
                if window <= address < window + WINDOW_BYTES:
                    return [(space, address - window, lanes, None)]
            return [(self.global_, address, lanes, None)]
        page = address // WINDOW_BYTES
        split: list[tuple[Any, Any, Lanes, Any]] = []
        rest = np.ones(lanes.count, np.bool_)
        for space, start in ((self.shared, SHARED_WINDOW), (self.local, LOCAL_WINDOW)):
            inside = page == start // WINDOW_BYTES
            if inside.all():
                return [(space, address - start, lanes, None)]
            if inside.any():
                split.append((space, address[inside] - start, lanes.where(inside), inside))
                rest &= ~inside
        if rest.all():
            return [(self.global_, address, lanes, None)]
        if rest.any():
            split.append((self.global_, address[rest], lanes.where(rest), rest))
        return split

    def load(self, lanes: Lanes) -> Data:
        return self.load_at(self.where(lanes), lanes)

    def load_at(self, address: Any, lanes: Lanes) -> Data:
        split = self.split(address, lanes)
        if split[0][3] is None:
            space, place, _, _ = split[0]
            found: Data = space.load_at(place, lanes)
            return found
        values = np.zeros((lanes.count,) + ((self.count,) if self.count > 1 else ()), self.dtype)
        for space, place, some, which in split:
            values[which] = space.load_at(place, some)
        return values

    def store(self, lanes: Lanes, values: Data) -> None:
        self.store_at(self.where(lanes), lanes, values)

    def store_at(self, address: Any, lanes: Lanes, values: Data) -> None:
        for space, place, some, which in self.split(address, lanes):
            mine = values if which is None or not values.ndim else values[which]
            space.store_at(place, some, mine)

    def unwrite(self, lanes: Lanes, lacks: Lacks, origin: Origins) -> Bools:
        is_seen = np.zeros(lanes.count, np.bool_)
        for space, address, some, which in self.split(self.where(lanes), lanes):
            at: Any = slice(None) if which is None else which
            if isinstance(space, Global):
                is_seen[at] = True
            else:
                space.unwrite_at(address, some, lacks[at], origin[at])
        return is_seen


def _unwrite(storage: Storage, gather: Index, lacks: Lacks, origin: Origins) -> None:
    lane, byte = np.nonzero(lacks)
    storage.unwrite(gather[lane] * lacks.shape[1] + byte, lacks[lane, byte], origin[lane])
