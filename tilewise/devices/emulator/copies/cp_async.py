"""``cp.async``: copies to shared memory that arrive later (PTX ISA 9.7.9.25).

A copy reads global memory when it is issued, and arrives only when its thread waits for its group.
A kernel that reads too early reads the old value, as it may on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Global, Shared
from tilewise.devices.emulator.counting.async_copies import LINE, Cost, cost
from tilewise.devices.emulator.memory.patterns import REMEMBERED, SharedPattern
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address, Immediate, Negated, Register
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Tally

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine


@dataclass
class _Copy:
    """The copies of one instruction that have not arrived; ``group`` is the group of each lane."""

    shared: Shared
    lanes: Lanes
    address: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    group: npt.NDArray[np.intp]
    pattern: SharedPattern | None

    def part(self, chosen: npt.NDArray[np.bool_]) -> _Copy:
        """Return the copies of some lanes."""
        lanes, pattern = self.lanes.where(chosen), self.pattern
        if pattern is not None:
            pattern = pattern.part(np.isin(pattern.lanes.numbers, lanes.numbers))
        return _Copy(
            self.shared, lanes, self.address[chosen], self.values[chosen], self.group[chosen],
            pattern,
        )  # fmt: skip


class Copies:
    """The copies of one batch that have not arrived."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self._pending: list[_Copy] = []
        self._group: npt.NDArray[np.intp] | None = None

    @property
    def group(self) -> npt.NDArray[np.intp]:
        """The number of the group that each lane is filling."""
        if self._group is None:
            self._group = np.zeros(self.machine.geometry.count, np.intp)
        return self._group

    def issue(self, shared: Shared, lanes: Lanes, address: Any, values: Any, sizes: Any) -> None:
        """Begin copies, with ``sizes`` bytes of each lane."""
        spread = np.broadcast_to(np.asarray(address, np.int64), lanes.count)
        group = self.group[lanes.numbers]
        pattern = shared.on_the_way(address, lanes)
        self._pending.append(_Copy(shared, lanes, spread, values, group, pattern))

    def on_the_way(self, blocks: npt.NDArray[np.bool_] | None) -> list[tuple[SharedPattern, Op]]:
        """Return where copies that have not arrived go to, in some blocks or for None in all."""
        found = []
        for copy in self._pending:
            pattern = copy.pattern
            if pattern is None:
                continue
            if blocks is not None:
                mine = blocks[self.machine.geometry.block_of[pattern.lanes.numbers]]
                if not mine.any():
                    continue
                pattern = pattern if mine.all() else pattern.part(mine)
            found.append((pattern, copy.shared.op))
        return found

    def commit(self, lanes: Lanes) -> None:
        """Commit the groups of the lanes: their later copies belong to the next groups."""
        self.group[lanes.numbers] += 1

    def wait(self, lanes: Lanes, allowed: int | None) -> None:
        """Complete all but the last ``allowed`` groups of the lanes; all copies for None."""
        latest = np.full(self.machine.geometry.count, -1, np.intp)
        reach = self.group[lanes.numbers]
        latest[lanes.numbers] = reach if allowed is None else reach - allowed - 1
        pending, self._pending = self._pending, []
        for copy in pending:
            arrives = copy.group <= latest[copy.lanes.numbers]
            if arrives.all():
                copy.shared.arrive_at(copy.address, copy.lanes, copy.values)
            elif not arrives.any():
                self._pending.append(copy)
            else:
                part = copy.part(arrives)
                part.shared.arrive_at(part.address, part.lanes, part.values)
                self._pending.append(copy.part(~arrives))


def _copy(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    if not words.flag("async") or words.flag("bulk"):
        raise op.unsupported()
    if words.flag("commit_group"):
        words.done()
        op.run = machine.copies.commit
        return
    if words.flag("wait_all"):
        words.done()
        op.run = lambda lanes: machine.copies.wait(lanes, None)
        return
    if words.flag("wait_group"):
        words.done()
        (number,) = op.instruction.operands
        if not isinstance(number, Immediate):
            raise op.unsupported("operands")
        allowed = int(number.value)
        op.run = lambda lanes: machine.copies.wait(lanes, allowed)
        return
    bypasses = words.one_of(("ca", "cg")) == "cg"
    is_to_shared = words.one_of(("shared", "shared::cta")) and words.flag("global")
    for hint in ("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"):
        words.flag(hint)
    words.done(bool(is_to_shared))
    _issue(machine, op, bypasses)


def _issue(machine: Machine, op: Op, bypasses: bool) -> None:
    target, source, size, *rest = op.instruction.operands
    if (
        not isinstance(target, Address)
        or not isinstance(source, Address)
        or not isinstance(size, Immediate)
        or len(rest) > 1
        or int(size.value) not in (4, 8, 16)
    ):
        raise op.unsupported("operands")
    width = int(size.value)
    dtype, count = (np.dtype("u4"), 1) if width == 4 else (np.dtype("u8"), width // 8)
    op.width, op.element, op.space = width, 4, "global_load"
    read_from = Global(machine, op, Where(machine, op, source), dtype, count, counts=False)
    where = Where(machine, op, target)
    write_to = Shared(machine, op, where, dtype, count, None)
    count_copy = _Counting(machine, op, width, bypasses).count if machine.is_counting else None
    single = Global(machine, op, Where(machine, op, source), np.dtype("u1"), 1, counts=False)
    read_size = sizes_read(machine, op)

    def run(lanes: Lanes) -> None:
        address = where(lanes)
        sizes = width if read_size is None else read_size(lanes)
        if count_copy is not None:
            count_copy(lanes, address, read_from.where(lanes), sizes)
        if read_size is None:
            values = read_from.load(lanes)
        else:
            values = _partial(read_from, single, lanes, sizes, width)
        values = np.broadcast_to(values, (lanes.count, *((count,) if count > 1 else ())))
        machine.copies.issue(write_to, lanes, address, values, sizes)

    op.run = run


class _Counting:
    """The cost of one instruction's copies, at both ends, counted when they are issued."""

    def __init__(self, machine: Machine, op: Op, width: int, bypasses: bool) -> None:
        self._machine, self._op, self._width, self._bypasses = machine, op, width, bypasses
        op.others.append(written := Tally("cp_async"))
        self._written = written
        self._known: list[tuple[Lanes, tuple[bytes, ...], Cost]] = []

    def count(self, lanes: Lanes, to: Any, source: Any, sizes: Any) -> None:
        """Count copies of ``sizes`` bytes of each lane."""
        ends = [
            np.broadcast_to(np.asarray(each, np.int64), lanes.count) for each in (to, source)
        ]  # fmt: skip
        read = np.broadcast_to(np.minimum(sizes, self._width), lanes.count).astype(np.int64)
        op, written, readers = self._op, self._written, lanes
        if not (reads := read > 0).all():
            readers = lanes.where(reads)
        if readers.count and self._machine.footprints is not None:
            self._machine.footprints.add(ends[1][reads], readers, self._width, False)
        cost = self._cost(lanes, ends, read)
        op.requests += readers.warps if readers.count else 0
        op.sectors += cost.sectors
        op.bytes += cost.bytes
        written.requests += lanes.warps
        written.wavefronts += cost.wavefronts
        written.conflicts += cost.conflicts

    def _cost(self, lanes: Lanes, ends: list[npt.NDArray[Any]], read: npt.NDArray[Any]) -> Cost:
        """Return the cost of a pattern, kept in case it comes again anywhere in memory."""
        ends = [each - each.min() // LINE * LINE for each in ends]
        key = (*(each.tobytes() for each in ends), read.tobytes())
        for of, known, found in self._known:
            if known == key and of.same(lanes):
                return found
        found = cost(ends[0], ends[1], read, self._width, lanes, self._bypasses)
        self._known = [(lanes, key, found), *self._known[: REMEMBERED - 1]]
        return found


def sizes_read(machine: Machine, op: Op) -> Callable[[Lanes], npt.NDArray[Any]] | None:
    """Return a function for the bytes that a copy reads in each lane; None without an operand."""
    _, _, size, *rest = op.instruction.operands
    if not rest:
        return None
    (operand,) = rest
    assert isinstance(size, Immediate)
    width = int(size.value)
    register = operand.register if isinstance(operand, Negated) else operand
    if isinstance(register, Register) and register.type == "pred":
        is_ignored = machine.registers.reader(op, operand, "pred", picked=True)
        return lambda lanes: np.where(np.broadcast_to(is_ignored(lanes), lanes.count), 0, width)
    read = machine.registers.reader(op, operand, "u32", picked=True)
    return lambda lanes: np.broadcast_to(read(lanes), lanes.count)


def _partial(
    source: Global, single: Global, lanes: Lanes, size: Any, width: int
) -> npt.NDArray[Any]:
    """Return only the first ``size`` bytes, and zeros for the rest; no byte beyond is read."""
    sizes = np.minimum(np.broadcast_to(size, lanes.count), width)
    address = np.broadcast_to(np.asarray(source.where(lanes), np.int64), lanes.count)
    values = np.zeros((lanes.count, width), np.uint8)
    full = sizes == width
    if full.any():
        read = source.load_at(address[full], lanes if full.all() else lanes.where(full))
        values[full] = read.reshape(len(read), -1).view(np.uint8)
    for at in range(width):
        chosen = (sizes > at) & ~full
        if chosen.any():
            values[chosen, at] = single.load_at(address[chosen] + at, lanes.where(chosen))
    typed = values.view(source.dtype)
    return typed[:, 0] if source.count == 1 else typed


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {"cp": _copy}
