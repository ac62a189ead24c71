"""Find races in global memory, within a block and between blocks of one launch.

All accesses of a launch to global memory are logged, and the log is replayed when the launch has
ended (:mod:`~tilewise.devices.emulator.checks.replay`). The barriers of warps, blocks and clusters
order threads, and so do mbarriers; threads of different blocks are also ordered by flags and
tickets (:mod:`~tilewise.devices.emulator.checks.flags`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.clocks import TooManyClassesError
from tilewise.devices.emulator.checks.flags import (
    addresses,
    as_polls,
    keys,
    orders_by_flags,
    syncs,
)
from tilewise.devices.emulator.checks.log import (
    ACQUIRE,
    ATOMIC,
    CLEAR,
    FENCE,
    FLAG,
    POLL,
    READ,
    RELEASE,
    VERBS,
    WRITE,
    Access,
    Item,
    Names,
    Sync,
    beginning,
    block_names,
    granule_of,
    warp_names,
)
from tilewise.devices.emulator.checks.replay import Conflict, Replay
from tilewise.devices.emulator.threads.faults import Site
from tilewise.devices.emulator.threads.lanes import Geometry, Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.tensor_map import PIECE

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Same = npt.NDArray[np.bool_]
_WHOLE = 1 << 10
"""The number for every barrier at which a whole block waits; other numbers are 0 to 15."""


class GlobalRaces:
    """The log of a launch's accesses to global memory, and the search for races in it.

    Parameters
    ----------
    machine : Machine
    geometry : Geometry
        The geometry of the whole grid, with its blocks in the order of their numbers.
    """

    def __init__(self, machine: Machine, geometry: Geometry) -> None:
        self.machine, self._geometry = machine, geometry
        self._orders = orders_by_flags(machine.program)
        self._log: list[Item] = []
        self._same: dict[int, Same] = {}

    # What happens

    def _lanes(self, lanes: Index) -> Index:
        """Return the numbers that lanes of the batch have in the whole launch."""
        batch = self.machine.geometry
        found: Index = batch.blocks[batch.block_of[lanes]] * batch.threads + batch.thread_of[lanes]
        return found

    def note(
        self, op: Op, address: Any, lanes: Lanes, width: int, writes: bool,
        same: Same | None = None,
    ) -> None:  # fmt: skip
        """Log that lanes load or store ``width`` bytes at each address, but not atomically."""
        kind = {(False, False): READ, (False, True): POLL, (True, False): WRITE}.get(
            (writes, op.instruction.is_strong), FLAG
        )
        numbers = self._lanes(lanes.numbers)
        place = np.broadcast_to(np.asarray(address, np.int64), lanes.count)
        if same is not None:
            self._same[len(self._log)] = same
        self._log.append(Access(numbers, (place // width).astype(np.intp), kind, op, width))

    def changed(self, op: Op, address: Any, lanes: Lanes, width: int) -> None:
        """Log that lanes change places atomically, one after another."""
        numbers = self._lanes(lanes.numbers)
        place = np.broadcast_to(np.asarray(address, np.int64), lanes.count)
        self._log.append(Access(numbers, (place // width).astype(np.intp), ATOMIC, op, width))

    def copied(
        self, op: Op, lane: int, address: int, shape: tuple[int, ...], pitches: tuple[int, ...],
        kind: str,
    ) -> None:  # fmt: skip
        """Log that a bulk copy issued by a lane reads, writes or changes rows of bytes.

        Parameters
        ----------
        shape : tuple of int
            The extents, of which the last is the bytes of a row.
        pitches : tuple of int
            The bytes from one to the next along each dimension except the last.
        """
        width = int(np.gcd.reduce((address, shape[-1], *pitches, 16)))
        place = np.array([address])
        for count, pitch in zip((*shape[:-1], shape[-1] // width), (*pitches, width), strict=True):
            place = (place[:, None] + np.arange(count) * pitch).reshape(-1)
        numbers = np.repeat(self._lanes(np.array([lane])), len(place))
        self._log.append(Access(numbers, (place // width).astype(np.intp), kind, op, width))

    def loaded(self, op: Op, lanes: Index, addresses: Index, size: int) -> None:
        """Log that lanes issued bulk copies, one after another, that read ``size`` bytes each.

        All of them are in pieces of 16 bytes, at multiples of 16.
        """
        pieces = size // PIECE
        place = (addresses[:, None] // PIECE + np.arange(pieces)).reshape(-1).astype(np.intp)
        numbers = np.repeat(self._lanes(lanes), pieces)
        self._log.append(Access(numbers, place, READ, op, PIECE, is_in_turn=True))

    # What orders threads

    def _sync(self, kind: str, lanes: Index, names: Names, is_fenced: bool = False,
              clears: bool = False) -> None:  # fmt: skip
        self._log.append(Sync(kind, lanes, names, is_fenced, clears))

    def memory_fence(self, lanes: Lanes) -> None:
        """Log that lanes pass a fence."""
        if self._orders:
            self._sync(FENCE, self._lanes(lanes.numbers), np.zeros(lanes.count, np.int64))

    def released(self, lanes: Index, names: Names) -> None:
        """Log that lanes of the batch release what they know in variables."""
        self._sync(RELEASE, self._lanes(lanes), names)

    def acquired(self, lanes: Index, names: Names) -> None:
        """Log that lanes of the batch acquire what was released in variables."""
        self._sync(ACQUIRE, self._lanes(lanes), names)

    def _meet(self, lanes: Lanes, names: Names) -> None:
        numbers = self._lanes(lanes.numbers)
        self._sync(RELEASE, numbers, names)
        self._sync(ACQUIRE, numbers, names, clears=True)

    def warp_barrier(self, lanes: Lanes, masks: npt.NDArray[np.uint64]) -> None:
        """Log that lanes that name each other in their masks waited for one another."""
        numbers = self._lanes(lanes.numbers)
        each = self._geometry.warps_per_block
        thread = numbers % self._geometry.threads // 32
        warp = numbers // self._geometry.threads * each + thread
        self._meet(lanes, warp_names(warp, masks))

    def _block_names(self, lanes: Lanes, number: int) -> Names:
        return block_names(self._lanes(lanes.numbers) // self._geometry.threads, number)

    def arrived(self, lanes: Lanes, number: int) -> None:
        """Log that lanes arrived at a barrier at which not all of their blocks wait."""
        self._sync(RELEASE, self._lanes(lanes.numbers), self._block_names(lanes, number))

    def opened(self, lanes: Lanes, number: int) -> None:
        """Log that a barrier opened for lanes that waited there."""
        names = self._block_names(lanes, number)
        self._sync(ACQUIRE, self._lanes(lanes.numbers), names, clears=True)

    def unused(self, lanes: Lanes, number: int) -> None:
        """Log that a barrier opened by the arrival of lanes, without any lanes that waited."""
        names = self._block_names(lanes, number)
        self._sync(CLEAR, self._lanes(lanes.numbers), names)

    def block_barrier(self, blocks: npt.NDArray[np.bool_] | None, lanes: Lanes) -> None:
        """Log that the lanes, all of their blocks, waited for each other."""
        self._meet(lanes, self._block_names(lanes, _WHOLE))

    # What is found

    def finish(self) -> None:
        """Replay the log, when the launch has ended."""
        accesses = [item for item in self._log if isinstance(item, Access)]
        if all(item.kind in (READ, POLL) for item in accesses):
            return
        granule = granule_of(self._log)
        places = np.unique(np.concatenate([item.granules(granule)[0] for item in accesses]))
        block_of = np.zeros(self._geometry.count, np.intp)
        log, same = self._ordered(accesses)

        def report(conflict: Conflict) -> None:
            self._report(conflict, int(places[conflict.granule]) * granule)

        try:
            replay = Replay(log, same, granule, places, block_of, report)
        except TooManyClassesError as error:
            self.machine.faults.remark(f"races in global memory were not looked for: {error}")
            return
        replay.run()

    def cut(self) -> None:
        """Replay the log of a launch that is cut."""
        self._log = beginning(self._log)
        self.finish()

    def _ordered(self, accesses: list[Access]) -> tuple[list[Item], dict[int, Same]]:
        """Return the log with the order of atomics and volatile accesses.

        In a program without fences, atomics and volatile accesses order only themselves, which
        matters only at places that plain accesses use too.
        """
        strong = [x for x in accesses if x.kind in (ATOMIC, FLAG, POLL)]
        plain = [x for x in accesses if x.kind in (READ, WRITE)]
        shared = None
        if not self._orders:
            shared = np.intersect1d(addresses(strong), addresses(plain))
        swapped = keys([x for x in strong if "cas" in x.op.instruction.modifiers])
        log: list[Item] = []
        same: dict[int, Same] = {}
        for number, item in enumerate(self._log):
            if number in self._same:
                same[len(log)] = self._same[number]
            if not isinstance(item, Access):
                log.append(item)
            elif item.kind == READ and len(swapped):
                for one in item.in_turn():
                    log += as_polls(one, swapped)
            else:
                log.append(item)
                if item.kind in (ATOMIC, FLAG, POLL):
                    log += syncs(item, shared)
        return log, same

    def _report(self, conflict: Conflict, address: int) -> None:
        later, earlier = conflict.later.op, conflict.earlier.op
        place = self.machine.global_place(self.machine.memory.nearest(address), address)
        threads = self._geometry.threads
        other = int(conflict.earlier_lane)
        if other < 0:  # one of several threads, in this block or in others
            whose = "another thread"
        elif other // threads == conflict.lane // threads:
            whose = "another thread of its block"
        else:
            whose = f"a thread of block {self._geometry.block_index(other)}"
        faults = self.machine.faults
        where = earlier.where(later.file)
        after = f"after the {conflict.earlier.kind} of {whose} ({where})"
        site = Site(later.index, later.instruction.opcode, later.source, earlier.source)
        if conflict.is_same:
            if later is not earlier:
                faults.note(
                    "race", site,
                    f"writes {place} in global memory unordered {after}, and the same value: here "
                    "their order does not matter", self._geometry, conflict.lane,
                )  # fmt: skip
            return
        faults.add(
            "race", site,
            f"{VERBS[conflict.later.kind]} {place} in global memory with nothing that orders it "
            f"{after}", self._geometry, conflict.lane, place, conflict.others,
        )  # fmt: skip
