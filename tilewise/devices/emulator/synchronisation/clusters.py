"""Track clusters: several blocks access each other's shared memory (PTX ISA 9.7.9.23, 9.7.13.3).

An address in shared memory is the offset in its block's, with the block's rank above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.log import CLUSTER
from tilewise.devices.emulator.threads.lanes import OFFSET_MASK, RANK_SHIFT, Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op
from tilewise.errors import LaunchError
from tilewise.places import Dim3

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

PORTABLE_SIZE = 8


def check(cluster: Dim3, grid: Dim3) -> None:
    """Refuse a cluster that the hardware would refuse.

    Raises
    ------
    LaunchError
        If it has more than 8 blocks, or the grid is no multiple of it.
    """
    size = cluster[0] * cluster[1] * cluster[2]
    shown = "x".join(map(str, cluster))
    if size > PORTABLE_SIZE:
        raise LaunchError(
            f"a cluster of {shown} is {size} blocks; it takes at most {PORTABLE_SIZE}"
        )
    for axis, blocks, extent in zip("xyz", grid, cluster, strict=True):
        if blocks % extent:
            raise LaunchError(
                f"grid {'x'.join(map(str, grid))}: {axis} is {blocks:,}, which is no multiple of "
                f"the cluster's {extent} ({shown})"
            )


class Clusters:
    """The clusters of one batch, and their barriers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def start(self) -> None:
        """Start a new batch."""
        geometry = self.machine.geometry
        count = geometry.block_count // geometry.cluster_size
        self._waiting: list[tuple[Op, Lanes]] = []
        self._phase = np.zeros(count, np.int64)
        # The phase that each lane arrived in last; -1 for none, or after its wait.
        self._ticket: Index | None = None
        ordering = self.machine.ordering
        width = ordering.width if ordering is not None else 0
        self._left = np.zeros((count, width), np.int32)
        self._found = np.zeros((count, width), np.int32)

    def locate(self, address: Any, rows: Any) -> tuple[Any, Any]:
        """The row in the batch, and the offset in its shared memory, of addresses that blocks use.

        Parameters
        ----------
        address, rows : ndarray or int
            Rows of the blocks that use them.

        Returns
        -------
        (ndarray, ndarray) or (int, int)
            The row is -1 where the cluster has no block of that rank.
        """
        return self.row(rows, address >> RANK_SHIFT), address & OFFSET_MASK

    def row(self, rows: Any, rank: Any) -> Any:
        """Return the row of the block of a rank in another block's cluster; -1 for none."""
        size = self.machine.geometry.cluster_size
        return np.where((rank >= 0) & (rank < size), rows // size * size + rank, -1)[()]

    def arrive(self, op: Op, lanes: Lanes) -> None:
        """Let lanes arrive at the barrier of their clusters."""
        machine, geometry = self.machine, self.machine.geometry
        op.barriers += lanes.warps
        machine.progress += 1
        if self._ticket is None:
            self._ticket = np.full(geometry.count, -1, np.intp)
        numbers, cluster = lanes.numbers, lanes.pick(geometry.cluster_of)
        again = np.flatnonzero(self._ticket[numbers] >= 0)
        if len(again):
            op.fault(
                "barrier", "arrives at its cluster's barrier twice without waiting",
                int(numbers[again[0]]), None, len(again) - 1,
            )  # fmt: skip
        self._ticket[numbers] = self._phase[cluster]
        if machine.ordering is not None:
            machine.ordering.release(numbers, cluster, self._left)
        if machine.global_races is not None:
            machine.global_races.released(numbers, self._names(lanes))
        self._open()

    def wait(self, op: Op, lanes: Lanes) -> Groups:
        """Let lanes wait for the others of their clusters, since their own arrival."""
        machine, geometry = self.machine, self.machine.geometry
        if self._ticket is None:
            self._ticket = np.full(geometry.count, -1, np.intp)
        ticket = self._ticket[lanes.numbers]
        if (ticket < 0).any():
            which = np.flatnonzero(ticket < 0)
            op.fault(
                "barrier", "waits at its cluster's barrier without having arrived",
                int(lanes.numbers[which[0]]), None, len(which) - 1,
            )  # fmt: skip
        goes = self._phase[lanes.pick(geometry.cluster_of)] > ticket
        if not goes.all():
            rest = lanes if not goes.any() else lanes.where(~goes)
            machine.parked += rest.count
            self._waiting.append((op, rest))
            if not goes.any():
                return []
            lanes = lanes.where(goes)
        self._go_on(lanes)
        return [(op.index + 1, lanes)]

    def _go_on(self, lanes: Lanes) -> None:
        assert self._ticket is not None
        self._ticket[lanes.numbers] = -1
        if self.machine.ordering is not None:
            cluster = lanes.pick(self.machine.geometry.cluster_of)
            self.machine.ordering.acquire(lanes.numbers, self._found[cluster])
        if self.machine.global_races is not None:
            self.machine.global_races.acquired(lanes.numbers, self._names(lanes))

    def _names(self, lanes: Lanes) -> npt.NDArray[np.int64]:
        """Return the keys by which the lanes of a cluster meet."""
        cluster = lanes.pick(self.machine.geometry.cluster_of).astype(np.int64)
        return CLUSTER + (self.machine.generation << 32) + cluster

    def lanes_ended(self) -> None:
        """Release the lanes that wait for lanes that have ended."""
        if self._ticket is not None:
            self._open()

    def _open(self) -> None:
        """Release the clusters whose lanes have all arrived."""
        machine, geometry = self.machine, self.machine.geometry
        assert self._ticket is not None
        count = len(self._phase)
        ended = machine.barriers.ended
        arrived = self._ticket == self._phase[geometry.cluster_of]
        waits = np.bincount(geometry.cluster_of[arrived], minlength=count) > 0
        missing = ~arrived if ended is None else ~(arrived | ended)
        complete = waits & (np.bincount(geometry.cluster_of[missing], minlength=count) == 0)
        if not complete.any():
            return
        self._phase[complete] += 1
        if machine.ordering is not None:
            self._found[complete] = np.maximum(self._found[complete], self._left[complete])
            self._left[complete] = 0
        waiting, self._waiting = self._waiting, []
        for op, lanes in waiting:
            goes = complete[lanes.pick(geometry.cluster_of)]
            if not goes.all():
                self._waiting.append((op, lanes.where(~goes)))
            if goes.any():
                released = lanes if goes.all() else lanes.where(goes)
                machine.parked -= released.count
                self._go_on(released)
                machine.add_group(op.index + 1, released)

    def report_stuck(self) -> None:
        """Report lanes that wait for others which never come."""
        for op, lanes in self._waiting:
            op.fault(
                "barrier",
                "waits forever at its cluster's barrier, which some threads do not reach",
                int(lanes.numbers[0]),
                None,
                self.machine.geometry.of_one_block(lanes.numbers) - 1,
            )
