"""Follow uninitialised values from the load to where they decide something.

A compiler may load a value before it knows whether the value is used: ``found ? value : -1``
becomes a load and a ``selp``. So a load of uninitialised memory is not a fault by itself. The bits
of registers that came from there are recorded, and followed through arithmetic, shuffles, and
stores to shared and local memory. It is a fault if they decide something: a branch, an address, a
vote of a warp, or a store to global memory (Stepanov and Serebryany, *MemorySanitizer: fast
detector of uninitialized memory use in C++*, CGO 2015).

As long as no register holds such bits, nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.flow import Flow, Shadow
from tilewise.devices.emulator.memory.storage import Bytes, Storage
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Bools = npt.NDArray[np.bool_]
Origins = npt.NDArray[np.int32]
Describe = Callable[[int], tuple[str, Place | None]]
"""A function from the position of a lane among the readers to what it read, and where."""

_KEPT = 4096
"""The most reads of one batch that are told apart; of further ones only the instruction is known.
"""


@dataclass(frozen=True)
class _Read:
    """A run of a load that read uninitialised memory."""

    op: Op
    lanes: Index
    describe: Describe


def _only(describe: Describe, at: int) -> Describe:
    """Return a function that describes the read of a single lane."""
    return lambda _: describe(at)


class Undefined:
    """The undefined bits in the registers of a batch, and how they propagate.

    Attributes
    ----------
    shadows : dict
        The shadows of the registers that have undefined bits, by slot. The code that runs
        instructions reads it, and calls :meth:`run` and :meth:`check` if it is not empty.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.shadows: dict[int, Shadow] = {}
        # The reads by number; a value computed from several loads comes from several reads.
        self._reads: list[tuple[_Read, ...]] = []
        self._latest: dict[int, int] = {}
        self._unions: dict[tuple[int, int], int] = {}
        self._flows: dict[int, Flow] = {}

    def start(self) -> None:
        """Begin a new batch."""
        self.shadows.clear()
        self._reads.clear()
        self._latest.clear()
        self._unions.clear()

    # Loads

    def found(
        self, op: Op, lanes: Index, lacks: Bytes, origin: Origins, describe: Describe
    ) -> None:
        """Record that lanes load uninitialised bits.

        Parameters
        ----------
        lanes : ndarray of intp
        lacks : ndarray of uint8, shape (len(lanes), bytes)
            The uninitialised bits of each byte.
        origin : ndarray of int32, shape (len(lanes),)
            The read that each lane's bits come from, as a store left it in memory; 0 if nothing
            wrote there at all.
        describe : callable
        """
        if not self._is_followed(op):
            for number in np.unique(origin[origin > 0]):
                self.report(int(number), lanes[origin == number], op, "uses it")
            fresh = np.flatnonzero(origin == 0)
            if len(fresh):
                message, place = describe(int(fresh[0]))
                lane = int(lanes[fresh[0]])
                op.fault("uninitialised", message, lane, place, len(fresh) - 1)
            return
        if op.spread is None:
            reads: Any = self._remember(_Read(op, lanes, describe))
        else:  # other lanes get the values, and their user does not say which row they are of
            reads = [
                self._remember(_Read(op, lanes[i : i + 1], _only(describe, i)))
                for i in range(len(lanes))
            ]
        known = np.where(origin > 0, origin, reads).astype(np.int32)
        for target, some, bits, origins in self._flow(op).loaded(lanes, lacks, known):
            self._set(target, some, bits, origins)

    def _is_followed(self, op: Op) -> bool:
        """Return whether only registers get the values.

        A compiler moves no volatile load, but a value that decides nothing does no harm there
        either. Recursive functions save their registers without what is kept here.
        """
        is_load = op.instruction.opcode in ("ld", "ldu", "ldmatrix")
        return is_load and not self.machine.program.recursive

    def _remember(self, read: _Read) -> int:
        if len(self._reads) >= _KEPT and read.op.index in self._latest:
            return self._latest[read.op.index]
        self._reads.append((read,))
        self._latest[read.op.index] = len(self._reads)
        return len(self._reads)

    def join(self, given: list[Origins]) -> Origins:
        """Return the reads that several operands' undefined bits come from, lane by lane."""
        joined = given[0]
        for other in given[1:]:
            both = np.flatnonzero((joined > 0) & (other > 0) & (joined != other))
            result = np.where(joined > 0, joined, other)
            pairs, which = np.unique(
                np.stack((joined[both], other[both])), axis=1, return_inverse=True
            )
            numbers = [self._union(int(one), int(two)) for one, two in pairs.T]
            result[both] = np.array(numbers, np.int32)[which.reshape(-1)]
            joined = result
        return joined

    def _union(self, one: int, other: int) -> int:
        """Return the number of the union of two sets of reads, one read of each instruction."""
        first, second = self._reads[one - 1], self._reads[other - 1]
        ops = {read.op.index for read in first}
        more = tuple(read for read in second if read.op.index not in ops)
        if not more:
            return one
        number = self._unions.get((one, other))
        if number is None:
            both = sorted((*first, *more), key=lambda read: read.op.index)
            self._reads.append(tuple(both))
            number = self._unions[one, other] = len(self._reads)
        return number

    # Instructions

    def run(self, op: Op, lanes: Lanes) -> None:
        """Run an instruction that goes on to the next, and follow undefined bits through it."""
        flow = self._flow(op)
        if flow.slots.isdisjoint(self.shadows):
            op.run(lanes)
            return
        chosen = self._on(op, flow, lanes)
        if chosen is None:
            op.run(lanes)
            return
        self._check_uses(op, flow, chosen)
        results = flow.results(self.shadows, chosen)
        for target in flow.targets:
            self._set(target.slot, chosen, None, None)
        op.run(lanes)
        for slot, shadow in results:
            self._set(slot, chosen, shadow.bits, shadow.origin)
        if op.instruction.opcode == "st":
            self._store(op, flow, chosen)

    def check(self, op: Op, lanes: Lanes) -> None:
        """Check the values of an instruction that may send lanes elsewhere or make them wait."""
        flow = self._flow(op)
        if flow.slots.isdisjoint(self.shadows):
            return
        chosen = self._on(op, flow, lanes)
        if chosen is not None:
            self._check_uses(op, flow, chosen)
            if flow.taken is None:
                for target in flow.targets:
                    self._set(target.slot, chosen, None, None)

    def shuffled(
        self, op: Op, lanes: Lanes, give: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    ) -> None:
        """Follow undefined bits through a shuffle, to the lanes that take them.

        Parameters
        ----------
        lanes : Lanes
            The lanes that met.
        give : callable
            A function that selects, from values of all lanes, those that the lanes take.
        """
        flow = self._flow(op)
        if not flow.slots.isdisjoint(self.shadows):
            for slot, shadow in list(flow.exchanged(self.shadows, lanes, give)):
                self._set(slot, lanes, shadow.bits, shadow.origin)

    def _on(self, op: Op, flow: Flow, lanes: Lanes) -> Lanes | None:
        """Return the lanes for which the instruction's guard holds, or None."""
        if flow.guard is None:
            return lanes
        shadow = self.shadows.get(flow.guard)
        if shadow is not None:
            verb = "takes a branch by it" if op.instruction.opcode == "bra" else "decides by it"
            self._report(op, lanes, shadow.pick(lanes), verb)
        holds = np.broadcast_to(flow.holds(lanes), lanes.count)
        if holds.all():
            return lanes
        return lanes.where(holds) if holds.any() else None

    def _check_uses(self, op: Op, flow: Flow, lanes: Lanes) -> None:
        for slot, verb in flow.uses:
            shadow = self.shadows.get(slot)
            if shadow is not None:
                self._report(op, lanes, shadow.pick(lanes), verb)

    def _store(self, op: Op, flow: Flow, lanes: Lanes) -> None:
        """Mark undefined bytes stored in shared and local memory; report those in global memory."""
        lacks, origin = flow.stored(self.shadows, lanes)
        is_lacking: Bools = np.logical_or.reduce(lacks, axis=1)
        which = np.flatnonzero(is_lacking)
        if len(which) == 0:
            return
        assert op.access is not None
        some = lanes.where(is_lacking)
        is_seen = op.access.unwrite(some, lacks[which], origin[which])
        seen = Shadow(is_seen.astype(np.uint64), origin[which])
        self._report(op, some, seen, "stores it in global memory")

    # Registers

    def _flow(self, op: Op) -> Flow:
        flow = self._flows.get(op.index)
        if flow is None:
            flow = self._flows[op.index] = Flow(self.machine, op)
        return flow

    def _set(
        self, slot: int, lanes: Lanes, bits: npt.NDArray[np.uint64] | None, origin: Origins | None
    ) -> None:
        """Set the undefined bits of a register of some lanes; None for no bits."""
        old = self.shadows.get(slot)
        is_clear = bits is None or not bits.any()
        if old is None and is_clear:
            return
        if is_clear and (lanes.index is None or lanes.whole):
            del self.shadows[slot]
            return
        count = self.machine.geometry.count
        new = Shadow.none(count) if old is None else old.copy()
        at: Any = slice(None) if lanes.index is None else lanes.index
        new.bits[at] = 0 if bits is None else bits
        if origin is not None:
            new.origin[at] = origin
        if new.bits.any():
            self.shadows[slot] = new
        else:
            self.shadows.pop(slot, None)

    # Reports

    def _report(self, op: Op, lanes: Lanes, shadow: Shadow, verb: str) -> None:
        """Report the loads of undefined bits that decide something for lanes."""
        which = np.flatnonzero(shadow.bits)
        numbers = lanes.numbers
        for number in np.unique(shadow.origin[which]):
            self.report(int(number), numbers[which[shadow.origin[which] == number]], op, verb)

    def check_taken(self, op: Op, lanes: Index, storage: Storage, places: Any, verb: str) -> None:
        """Report reads whose values lie in memory that an instruction uses directly.

        Parameters
        ----------
        lanes : ndarray of intp
            The lanes that use it.
        places : slice or ndarray of int
            The bytes of the storage.
        verb : str
            The verb for the report, as in ``"prints it"``.
        """
        if storage.origin is None or storage.written is None:
            return
        origin = np.where(storage.written[places] == 0, storage.origin[places], 0)
        for number in np.unique(origin[origin > 0]):
            self.report(int(number), lanes, op, verb)

    def report(self, number: int, lanes: Index, op: Op, verb: str) -> None:
        """Report a read of uninitialised bits, whose value ``lanes`` use in the instruction."""
        for read in self._reads[number - 1]:
            mine = np.flatnonzero(np.isin(read.lanes, lanes))
            # A value that one thread read may be used by another, through shared memory.
            at = int(mine[0]) if len(mine) else 0
            message, place = read.describe(at)
            if (op.file, op.line) != (read.op.file, read.op.line):
                message += f", and {verb} at {op.where(read.op.file)}"
            others = (len(mine) or len(read.lanes)) - 1
            read.op.fault("uninitialised", message, int(read.lanes[at]), place, others)
