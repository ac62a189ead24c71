"""Count the sectors and wavefronts of ``cp.async`` as Nsight Compute does on an H200.

What a copy costs depends on both of its ends: on where its lanes read in global memory and on where
they write in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.counting.transactions import SECTOR, distinct, sectors
from tilewise.devices.emulator.threads.lanes import WARP, Lanes

LINE = 128
_PIECE = 16  # bytes a lane of a copy past the L1 cache
Addresses = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cost:
    """What one execution of a copy adds to the counters, by its read and by its write."""

    sectors: int
    bytes: int
    wavefronts: int
    conflicts: int


def cost(
    to: Addresses, source: Addresses, sizes: npt.NDArray[Any], width: int, lanes: Lanes,
    bypasses: bool,
) -> Cost:  # fmt: skip
    """Return what a copy of ``width`` bytes a lane adds to the counters.

    Parameters
    ----------
    to, source : ndarray of int64, shape (lanes.count,)
        Byte addresses in the block's shared memory and in global memory.
    sizes : ndarray of integers, shape (lanes.count,)
        Bytes that each lane reads; zeros stand for the rest of its ``width``.
    width : int
        4, 8 or 16.
    lanes : Lanes
    bypasses : bool
        Whether the copy goes past the L1 cache (``.cg``).
    """
    reads = sizes > 0
    full = sizes >= width
    origin = source[reads]
    readers = lanes if reads.all() else lanes.where(reads)
    if bypasses:
        count = _bypassing_sectors(to[reads], origin, readers)
        waves, conflicts = _bypassing_wavefronts(to, source, full, lanes), 0
    else:
        count = sectors(origin, readers)
        waves, conflicts = _cached_wavefronts(to, source, width, lanes)
    whole = distinct(source[full], lanes.where(full)) * width if full.any() else 0
    return Cost(count, whole + int(sizes[~full].sum()), waves, conflicts)


def _bypassing_sectors(to: Addresses, source: Addresses, lanes: Lanes) -> int:
    """Return the sectors of copies past L1: a line read counts once for each sector it goes to."""
    line, place = _numbered(source // LINE), _numbered(to // SECTOR)
    return distinct(line * (len(place) + 1) + place, lanes)


def _bypassing_wavefronts(
    to: Addresses, source: Addresses, full: npt.NDArray[np.bool_], lanes: Lanes
) -> int:
    """Return the wavefronts of copies past L1: one for each line written and each permutation.

    The permutation is the set of bits in which the number of a 16-byte piece within its 128 bytes
    differs between source and destination. Lanes that read less than all of their bytes have
    wavefronts of their own.
    """
    way = (source // _PIECE ^ to // _PIECE) % (LINE // _PIECE)
    return distinct((_numbered(to // LINE) * LINE + way) * 2 + full, lanes)


def _numbered(values: Addresses) -> Addresses:
    """Return small numbers that are equal where the values are equal."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(values.shape)


def _cached_wavefronts(
    to: Addresses, source: Addresses, width: int, lanes: Lanes
) -> tuple[int, int]:
    """Return the wavefronts of copies through L1, and how many of them are bank conflicts.

    A copy of 4 bytes a lane is served at once, one of 8 bytes by half warps, one of 16 bytes by
    quarter warps. Lanes that write the same banks take turns. Among the lanes of one turn, those
    that read the same banks of the cache's lines take turns too, even if they read the same bytes.
    A conflict is a wavefront beyond a part's first.
    """
    places = LINE // width  # in a row of all banks; also the lanes that are served at once
    slots = lanes.geometry.warp_count * WARP
    ends = np.full((2, slots), -1, np.int64)
    ends[:, lanes.pick(lanes.geometry.slot_of)] = (
        to // width % places, source // width % places,
    )  # fmt: skip
    writes, reads = ends.reshape(2, -1, places)
    is_there = (writes >= 0).any(axis=1)
    writes, reads = writes[is_there], reads[is_there]
    same = writes[:, :, None] == writes[:, None, :]
    turn = np.tril(same, -1).sum(axis=2)
    part = np.broadcast_to(np.arange(len(writes))[:, None], writes.shape)
    active = writes >= 0
    of_turn = (part * places + turn)[active]
    keys, counts = np.unique(of_turn * places + reads[active], return_counts=True)
    longest = np.zeros(len(writes) * places, np.int64)
    np.maximum.at(longest, keys // places, counts)
    waves = int(longest.sum())
    return waves, waves - len(writes)
