"""Count a whole grid from one block of each kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewise.devices.emulator.sampling.follow import follow
from tilewise.devices.emulator.sampling.needless import needless
from tilewise.devices.emulator.sampling.regions import Region
from tilewise.devices.emulator.sampling.tracker import Tracker
from tilewise.devices.emulator.threads.lanes import Geometry
from tilewise.devices.emulator.threads.op import Op, Tally
from tilewise.errors import BarrierError
from tilewise.launch import Alike, Launch

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

MOST_KINDS = 256
MOST_BLOCKS = 1 << 28
_OF_MEMORY = ("requests", "sectors", "bytes", "wavefronts", "conflicts")
_COUNTS = ("lanes_run", "warps_run", "lanes_off", "divergent", "barriers", *_OF_MEMORY)


class UnlikeBlocksError(Exception):
    """The blocks can't be told to do the same; the message says why."""


def sample(
    machine: Machine,
    launch: Launch,
    progress: Callable[[int, int], None] | None,
    computes: bool = True,
) -> tuple[Alike, ...]:
    """Run one block of each kind; the counts of the machine's ops become the whole grid's.

    The blocks of a cluster run together: of those, one cluster of each kind.

    Parameters
    ----------
    machine : Machine
        New; it maps footprints.
    launch : Launch
    progress : callable, optional
        Called with the blocks that are counted and the blocks there are, first with 0.
    computes : bool
        Whether the blocks that run store right values in global memory.

    Raises
    ------
    UnlikeBlocksError
        If what was loaded decides what a block does, or if there are too many kinds.
    """
    blocks = math.prod(launch.grid)
    if launch.cooperative:
        raise UnlikeBlocksError("the blocks of a cooperative launch run together")
    if blocks > MOST_BLOCKS:
        raise UnlikeBlocksError(f"there are more than {MOST_BLOCKS:,} blocks")
    cluster = machine.program.kernel.cluster or (1, 1, 1)
    clusters = Geometry(launch.grid, launch.block, 0, 1, cluster).clusters
    tracker = machine.tracker = Tracker(machine, clusters, cluster)
    for index in () if computes else needless(machine.program):
        machine.ops[index].is_needless = True
    follow(tracker)
    assert machine.footprints is not None
    gx, gy, gz = clusters
    left = np.ones((gz, gy, gx), np.bool_)
    places = _places(machine.ops)
    totals = np.zeros(len(places), np.int64)
    kinds: list[Alike] = []
    counted = 0
    if progress is not None:
        progress(0, blocks)
    while counted < blocks:
        number = int(np.argmax(left))
        region = Region((number % gx, number // gx % gy, number // (gx * gy)), clusters)
        tracker.start(region)
        geometry = Geometry(launch.grid, launch.block, number, 1, cluster)
        try:
            machine.run(geometry)
        except BarrierError:
            if not tracker.varies:  # otherwise the block may wait for what another block writes
                raise
        if tracker.varies:
            raise UnlikeBlocksError(tracker.varies)
        box = region.find().take(left)
        kinds += [Alike(block, box.count) for block in geometry.places]
        counted += box.count * geometry.block_count
        if len(kinds) >= MOST_KINDS * geometry.block_count and counted < blocks:
            raise UnlikeBlocksError(f"they are of more than {MOST_KINDS} kinds")
        machine.footprints.end(box)
        totals += box.count * _taken(places)
        if progress is not None:
            progress(counted, blocks)
    for (tally, name), value in zip(places, totals.tolist(), strict=True):
        setattr(tally, name, value)
    return tuple(kinds)


def _places(ops: list[Op]) -> list[tuple[Tally, str]]:
    """Return the counters of the ops, as pairs of the object and the attribute's name."""
    return [
        *((op, name) for op in ops for name in _COUNTS),
        *((other, name) for op in ops for other in op.others for name in _OF_MEMORY),
    ]


def _taken(places: list[tuple[Tally, str]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the counts at these places, which begin anew."""
    found = np.array([getattr(tally, name) for tally, name in places], np.int64)
    for tally, name in places:
        setattr(tally, name, 0)
    return found
