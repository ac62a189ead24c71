"""Sectors and wavefronts of ``cp.async``, as Nsight Compute counts them on an H200.

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
    """What one execution of a copy adds to the counters: of its read and of its write."""

    sectors: int
    bytes: int
    wavefronts: int
    conflicts: int


def cost(
    to: Addresses, source: Addresses, sizes: npt.NDArray[Any], width: int, lanes: Lanes,
    bypasses: bool,
) -> Cost:  # fmt: skip
    """Return what a copy of ``width`` bytes a lane costs.

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
    """Sectors of copies past L1: each line that is read counts once a sector that it goes to."""
    line, place = _numbered(source // LINE), _numbered(to // SECTOR)
    return distinct(line * (len(place) + 1) + place, lanes)


def _bypassing_wavefronts(
    to: Addresses, source: Addresses, full: npt.NDArray[np.bool_], lanes: Lanes
) -> int:
    """Wavefronts of copies past L1: one for each line written and way in which pieces change place.

    The way is which bits of a 16-byte piece's number in its 128 bytes differ between both ends.
    Lanes that read less than all of their bytes have wavefronts of their own.
    """
    way = (source // _PIECE ^ to // _PIECE) % (LINE // _PIECE)
    return distinct((_numbered(to // LINE) * LINE + way) * 2 + full, lanes)


def _numbered(values: Addresses) -> Addresses:
    """Small numbers that are equal where the values are."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(values.shape)


def _cached_wavefronts(
    to: Addresses, source: Addresses, width: int, lanes: Lanes
) -> tuple[int, int]:
    """Wavefronts through L1, and how many of them are bank conflicts.

    A copy of 4 bytes a lane is served at once, of 8 by half warps, of 16 by quarter warps. Lanes
    that write the same banks take turns, and of those of one turn, lanes that read the same banks
    of the cache's lines, even the same bytes. A conflict is a wavefront beyond a part's first.
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
