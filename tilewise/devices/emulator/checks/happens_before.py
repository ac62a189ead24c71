"""Find which threads of a batch of blocks are ordered after which (happens-before), exactly.

Each thread has a vector clock (C. Fidge, 1988; F. Mattern, 1989), a row of
:attr:`HappensBefore.known`. For every thread of its cluster the row says up to which of that
thread's releases this thread is ordered after it. Barriers of the block, of a warp and of the
cluster join the rows of the threads that meet. An arrival at an mbarrier leaves the thread's row
there, and a thread that waits for the phase takes the row over
(:mod:`~tilewise.devices.emulator.checks.mbarrier_order`).

Engines that run beside the threads have clocks of their own: the bulk stores of each block, the
matrix unit of each warpgroup (``wgmma``), and the bulk loads that complete at each mbarrier. An
engine's accesses are ordered after what the issuing thread did. Other threads learn that these
accesses have ended at the mbarrier that they complete, or by ``wait_group``. All stores of a block
share a clock: a thread that waited for one counts as having waited for the earlier ones too.

A row has a second part. It says up to which release of each thread there was a proxy fence (PTX
ISA 8.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.log import warp_names
from tilewise.devices.emulator.checks.mbarrier_order import CLOCKS, MbarrierOrder
from tilewise.devices.emulator.ptx.syntax import Immediate
from tilewise.devices.emulator.threads.lanes import WARPGROUP, Index, Lanes

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Clocks = npt.NDArray[np.int32]
STORES, MATRICES = "stores", "matrices"
_CLOCKS = 1 << 24


def consecutive(lanes: Index) -> Index | slice:
    """Return lanes that follow one another as a slice, by which NumPy copies no rows; or as given.

    The rows of all lanes of a batch may take 30 MB.
    """
    if not len(lanes):
        return lanes
    first = int(lanes[0])
    if int(lanes[-1]) - first + 1 == len(lanes) and (lanes[1:] > lanes[:-1]).all():
        return slice(first, first + len(lanes))
    return lanes


def agents(cluster_size: int, threads: int) -> int:
    """Return the number of clocks of a cluster, of its threads and of the engines of its blocks."""
    return cluster_size * (threads + _engines(threads))


def _engines(threads: int) -> int:
    """Return the number of engines of a block: its stores, its matrix units, its mbarriers."""
    return 1 + -(-threads // WARPGROUP) + CLOCKS


def batch_limit(cluster_size: int, threads: int) -> int:
    """Return the most clusters of a batch, so that its clocks stay within some 64 MB."""
    return max(1, _CLOCKS // (2 * cluster_size * threads * agents(cluster_size, threads)))


class HappensBefore:
    """The clocks of one batch of blocks."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.mbarriers = MbarrierOrder(self)
        self._depth = 1 + max(
            (
                int(operand.value)
                for i in machine.program.instructions
                if "wait_group" in i.modifiers
                for operand in i.operands
                if isinstance(operand, Immediate)
            ),
            default=0,
        )

    def start(self) -> None:
        """Begin a new batch."""
        geometry = self.machine.geometry
        self.agents = agents(geometry.cluster_size, geometry.threads)
        self._threads = geometry.cluster_size * geometry.threads
        self.own: Index = np.arange(geometry.count, dtype=np.intp) % self._threads
        self.width = self.agents + self._threads
        self.known: Clocks = np.zeros((geometry.count, self.width), np.int32)
        self.known[np.arange(geometry.count), self.own] = 1
        self.engines = _engines(geometry.threads)
        # The clocks of each block's engines: stores, matrix units, mbarriers.
        self.clock: Clocks = np.zeros((geometry.block_count, self.engines), np.int32)
        self._engine: dict[str, Index] = {
            STORES: self.agent_of(geometry.block_of, 0),
            MATRICES: self.agent_of(geometry.block_of, 1 + geometry.thread_of // WARPGROUP),
        }
        # By a barrier's number, what the arriving threads of each block left there.
        self._arrived: dict[int, Clocks] = {}
        # The clock of each lane's stores, and of its latest groups, the last one first.
        self._issued: Clocks = np.zeros(geometry.count, np.int32)
        self._groups = {
            engine: np.zeros((geometry.count, self._depth), np.int32)
            for engine in (STORES, MATRICES)
        }
        self.mbarriers.start()

    def agent_of(self, rows: Any, number: Any) -> Any:
        """Return the agents, as the clusters number them, of engines of blocks in ``rows``."""
        rank = rows % self.machine.geometry.cluster_size
        return self._threads + rank * self.engines + number

    def _joined(self, lanes: Index, group: Index) -> tuple[Index, Clocks]:
        """Return the numbers of the groups, and the joint knowledge of the lanes of each."""
        order = np.argsort(group, kind="stable")
        sorted_group = group[order]
        starts = np.flatnonzero(np.r_[True, sorted_group[1:] != sorted_group[:-1]])
        together = np.maximum.reduceat(self.known[consecutive(lanes[order])], starts, axis=0)
        return sorted_group[starts], together

    def _tick(self, lanes: Index) -> None:
        self.known[lanes, self.own[lanes]] += 1

    def release(self, lanes: Index, group: Index, into: Clocks) -> None:
        """Leave the lanes' knowledge in rows of ``into``; later accesses have a later clock."""
        if not len(lanes):
            return
        numbers, together = self._joined(lanes, group)
        into[numbers] = np.maximum(into[numbers], together)
        self._tick(lanes)

    def acquire(self, lanes: Index, found: Clocks) -> None:
        """Add to the lanes' knowledge what others left, a row for each lane."""
        rows = consecutive(lanes)
        if isinstance(rows, slice):
            known = self.known[rows]
            np.maximum(known, found, out=known)
        else:
            self.known[rows] = np.maximum(self.known[rows], found)

    def meet(self, lanes: Index, group: Index) -> None:
        """Join the knowledge of the lanes of each group, which wait for one another."""
        if not len(lanes):
            return
        numbers, together = self._joined(lanes, group)
        # Each lane's knowledge is a part of its group's.
        self.known[consecutive(lanes)] = together[np.searchsorted(numbers, group)]
        self._tick(lanes)

    def memory_fence(self, lanes: Lanes) -> None:
        """Ignore a fence that is not between proxies, since it orders nothing by itself."""

    def warp_barrier(self, lanes: Lanes, masks: npt.NDArray[np.uint64]) -> None:
        """Join the knowledge of lanes that name each other in their masks, and waited."""
        self.meet(lanes.numbers, warp_names(lanes.pick(self.machine.geometry.warp_of), masks))

    def block_barrier(self, blocks: npt.NDArray[np.bool_] | None, lanes: Lanes) -> None:
        """Join the knowledge of the lanes, all of their blocks, which waited for each other."""
        self.meet(lanes.numbers, lanes.pick(self.machine.geometry.block_of))

    def arrived(self, lanes: Lanes, number: int) -> None:
        """Record that lanes arrived at a barrier at which not all of their blocks wait."""
        if number not in self._arrived:
            shape = (self.machine.geometry.block_count, self.width)
            self._arrived[number] = np.zeros(shape, np.int32)
        block = lanes.pick(self.machine.geometry.block_of)
        self.release(lanes.numbers, block, self._arrived[number])

    def opened(self, lanes: Lanes, number: int) -> None:
        """Record that a barrier opened for lanes that waited there."""
        block = lanes.pick(self.machine.geometry.block_of)
        self.acquire(lanes.numbers, self._arrived[number][block])
        self._arrived[number][block] = 0

    def unused(self, lanes: Lanes, number: int) -> None:
        """Record that a barrier opened by the arrival of lanes, without any lanes that waited."""
        self._arrived[number][lanes.pick(self.machine.geometry.block_of)] = 0

    def fence(self, lanes: Lanes) -> None:
        """Record a proxy fence between the lanes and everything that they are ordered after."""
        known, numbers = self.known, lanes.numbers
        known[numbers, self.agents :] = known[numbers, : self._threads]
        self._tick(numbers)

    def commit(self, engine: str, lanes: Lanes) -> None:
        """Record that the lanes commit their groups (``commit_group``)."""
        numbers, groups = lanes.numbers, self._groups[engine]
        groups[numbers, 1:] = groups[numbers, :-1]
        if engine == STORES:
            groups[numbers, 0] = self._issued[numbers]
        else:
            geometry = self.machine.geometry
            unit = 1 + geometry.thread_of[numbers] // WARPGROUP
            groups[numbers, 0] = self.clock[geometry.block_of[numbers], unit]

    def wait(self, engine: str, lanes: Lanes, allowed: int) -> None:
        """Record the end of all but the last ``allowed`` groups of the lanes (``wait_group``)."""
        numbers = lanes.numbers
        agent = self._engine[engine][numbers]
        done = self._groups[engine][numbers, allowed]
        self.known[numbers, agent] = np.maximum(self.known[numbers, agent], done)

    def _who(self, agent: int) -> str:
        if agent < self._threads:
            return "another thread"
        number = (agent - self._threads) % self.engines
        return "a wgmma" if 0 < number < self.engines - CLOCKS else "a bulk copy"
