"""Count the sectors and wavefronts of one memory instruction, as the load-store unit makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.threads.lanes import WARP, Lanes

SECTOR = 32
BANKS = 32
ROWS = 8  # of a matrix that ldmatrix loads
Wavefronts = Callable[[npt.NDArray[Any], int, Lanes], tuple[int, int]]
"""A function of some lanes' byte addresses and the bytes a lane, which returns the shared-memory
wavefronts and how many of them are bank conflicts.
"""


def _by_warp(values: npt.NDArray[np.int64], lanes: Lanes) -> npt.NDArray[np.int64]:
    """Return the lanes' ``values``, one row a warp; -1 for a lane that is not in the set."""
    geometry = lanes.geometry
    if lanes.index is None and geometry.threads % WARP == 0:
        return values.reshape(-1, WARP)
    slots = np.full(geometry.warp_count * WARP, -1, np.int64)
    slots[lanes.pick(geometry.slot_of)] = values
    rows = slots.reshape(-1, WARP)
    return rows if lanes.index is None else rows[(rows >= 0).any(axis=1)]


def _distinct(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Sort each row in place, then return where a value other than -1 stands first."""
    rows.sort(axis=1)
    first = np.empty(rows.shape, np.bool_)
    first[:, 0] = True
    np.not_equal(rows[:, 1:], rows[:, :-1], out=first[:, 1:])
    first &= rows >= 0
    return first


def sectors(addresses: npt.NDArray[Any], lanes: Lanes) -> int:
    """Return the number of 32-byte sectors that the warps touch, distinct within each warp.

    Parameters
    ----------
    addresses : ndarray of integers, shape (lanes.count,)
        Byte addresses, aligned to an access of at most 16 bytes.
    """
    rows = _by_warp(addresses.astype(np.int64) // SECTOR, lanes).copy()
    return int(np.count_nonzero(_distinct(rows)))


def distinct(addresses: npt.NDArray[Any], lanes: Lanes) -> int:
    """Return the number of addresses that the warps name, distinct within each warp.

    Parameters
    ----------
    addresses : ndarray of integers, shape (lanes.count,)
        The addresses, which are at least 0.
    """
    rows = _by_warp(addresses.astype(np.int64), lanes).copy()
    return int(np.count_nonzero(_distinct(rows)))


def atomic_sectors(addresses: npt.NDArray[Any], lanes: Lanes) -> int:
    """Sectors of atomic accesses: lanes of a warp that share an address take turns, and every
    turn touches its sectors anew (as Nsight Compute counts them on an H200).

    Parameters
    ----------
    addresses : ndarray of integers, shape (lanes.count,)
        Byte addresses.
    """
    return _in_turn(_by_warp(addresses.astype(np.int64), lanes))


def whole_warp_sectors(addresses: npt.NDArray[Any], lanes: Lanes) -> int:
    """Return the sectors of atomics if one lane executes each warp whose lanes are all active.

    In every other warp, each lane executes its own atomic.

    Parameters
    ----------
    addresses : ndarray of integers, shape (lanes.count,)
        Byte addresses.
    """
    rows = _by_warp(addresses.astype(np.int64), lanes)
    is_whole = (rows >= 0).all(axis=1)
    return int(np.count_nonzero(_distinct(rows[is_whole] // SECTOR))) + _in_turn(rows[~is_whole])


def _in_turn(rows: npt.NDArray[np.int64]) -> int:
    """Return the sectors of atomics if lanes that share an address take turns; a row is a warp."""
    rows = np.sort(rows, axis=1)
    place = np.arange(WARP)
    is_new = np.ones(rows.shape, np.bool_)
    np.not_equal(rows[:, 1:], rows[:, :-1], out=is_new[:, 1:])
    turn = place - np.maximum.accumulate(np.where(is_new, place, 0), axis=1)
    return int(np.count_nonzero(_distinct(np.where(rows < 0, -1, rows // SECTOR * WARP + turn))))


def store_wavefronts(addresses: npt.NDArray[Any], width: int, lanes: Lanes) -> tuple[int, int]:
    """Return the shared-memory wavefronts of stores, and how many of them are bank conflicts.

    A warp's access of 4 bytes a lane is served at once, one of 8 bytes by half warps, one of 16
    bytes by quarter warps. In each such part, a bank serves one four-byte word a wavefront; lanes
    that want the same word share it. A conflict is a wavefront beyond a part's first. (Nsight
    Compute counts them so on an H200.)

    Parameters
    ----------
    addresses : ndarray of integers, shape (lanes.count,)
        Byte addresses in the block's shared memory.
    width : int
        Bytes a lane: 1, 2, 4, 8 or 16.
    lanes : Lanes
    """
    words = max(1, width // 4)
    return _turns(_words(addresses, lanes), words, WARP // words)


def load_wavefronts(addresses: npt.NDArray[Any], width: int, lanes: Lanes) -> tuple[int, int]:
    """Shared-memory wavefronts of loads, and how many of them are bank conflicts.

    As of stores (:func:`store_wavefronts`), but a load of 8 or 16 bytes in which lanes want the
    same in pairs is served twice as many lanes at once: each lane and its neighbour, 0 and 1, 2
    and 3, or each and the next but one, 0 and 2, 1 and 3. (As Nsight Compute counts them on an
    H200.)
    """
    words = max(1, width // 4)
    rows = _words(addresses, lanes)
    if words == 1:
        return _turns(rows, words, WARP // words)
    paired = _are_paired(rows, 1) | _are_paired(rows, 2)
    single, double = (
        _turns(part, words, at_once)
        for part, at_once in ((rows[~paired], WARP // words), (rows[paired], 2 * WARP // words))
    )
    return single[0] + double[0], single[1] + double[1]


def matrix_wavefronts(addresses: npt.NDArray[Any], width: int, lanes: Lanes) -> tuple[int, int]:
    """Return the shared-memory wavefronts of ``ldmatrix`` and ``stmatrix``, and their conflicts.

    Each 8 x 8 matrix is served by itself: its eight rows of 16 bytes, whose addresses eight lanes
    give, fill the 32 banks once if no two of them lie in the same banks. Rows at one address
    share their words. A conflict is a wavefront beyond a matrix's first.

    Parameters
    ----------
    addresses : ndarray of integers, shape (lanes.count,)
        Byte addresses of rows in the block's shared memory.
    width : int
        Bytes of a row: 16.
    lanes : Lanes
        The lanes whose addresses are used: the first 8, 16 or all 32 of a warp.
    """
    return _turns(_words(addresses, lanes), width // 4, ROWS)


def _words(addresses: npt.NDArray[Any], lanes: Lanes) -> npt.NDArray[np.int64]:
    """Return the four-byte word at which each lane's access begins, a row a warp."""
    return _by_warp(addresses.astype(np.int64) // 4, lanes)


def _are_paired(rows: npt.NDArray[np.int64], distance: int) -> npt.NDArray[np.bool_]:
    """Return for each warp whether every lane's word equals that of the lane at a distance.

    A lane that is not there equals every other.
    """
    other = rows[:, np.arange(WARP) ^ distance]
    paired: npt.NDArray[np.bool_] = ((rows == other) | (rows < 0) | (other < 0)).all(axis=1)
    return paired


def _turns(rows: npt.NDArray[np.int64], words: int, at_once: int) -> tuple[int, int]:
    """Return wavefronts and conflicts of warps of which ``at_once`` lanes are served at once."""
    parts = rows.reshape(-1, at_once)
    spread = parts[:, :, None] + np.arange(words)
    wanted = np.where(parts[:, :, None] < 0, -1, spread).reshape(len(parts), at_once * words)
    first = _distinct(wanted)
    part, _ = np.nonzero(first)
    bank = (part * BANKS + wanted[first] % BANKS).astype(np.intp)  # 32 bits, in a browser
    load = np.bincount(bank, minlength=len(parts) * BANKS)
    waves = load.reshape(-1, BANKS).max(axis=1)
    return int(waves.sum()), int(np.maximum(waves - 1, 0).sum())
