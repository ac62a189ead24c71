"""Hold shared and local memory: rows of bytes, and the generic addresses that lie in them.

A generic address is global unless it lies in the window of shared or of local memory (PTX ISA
5.1.6).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
LOCAL_WINDOW = 0x0001_0000_0000
SHARED_WINDOW = 0x0002_0000_0000
WINDOW_BYTES = 0x0001_0000_0000


class Storage:
    """Shared memory, a row for each block, or local memory, a row for each thread.

    Attributes
    ----------
    pitch : int
        The bytes from one row to the next.
    size : int
        The bytes of a row that may be used.
    data : ndarray of uint8, shape (rows * pitch,)
    written : ndarray of uint8, the same shape, or None
        1 for each byte that was written.
    undefined, origin : ndarray of uint8 and of int32, the same shape, or None
        The undefined bits of each byte, and the read that they come from: a byte counts as not
        written if its value comes from memory that nobody wrote. None as long as there is no such
        byte.
    """

    def __init__(self, rows: int, size: int, track: bool) -> None:
        self.rows, self.size = rows, size
        self.pitch = max(-(-size // 16) * 16, 16)
        self.data: Bytes = np.zeros(rows * self.pitch, np.uint8)
        self.written: Bytes | None = np.zeros(rows * self.pitch, np.uint8) if track else None
        self.undefined: Bytes | None = None
        self.origin: npt.NDArray[np.int32] | None = None

    def set_written(self, places: slice) -> None:
        """Mark bytes of every row as written, if written bytes are tracked."""
        if self.written is not None:
            self.written.reshape(-1, self.pitch)[:, places] = 1

    def unwrite(
        self, places: npt.NDArray[np.intp], bits: Bytes, origin: npt.NDArray[np.int32]
    ) -> None:
        """Mark bytes as not written, because bits of their values come from unwritten memory.

        Parameters
        ----------
        places : ndarray of intp
            The bytes' indices in ``data``.
        bits : ndarray of uint8, the same shape
            The bits that are undefined.
        origin : ndarray of int32, the same shape
            The read that the undefined bits come from.
        """
        if self.written is None:
            self.written = np.ones(len(self.data), np.uint8)
        if self.undefined is None or self.origin is None:
            self.undefined = np.zeros(len(self.data), np.uint8)
            self.origin = np.zeros(len(self.data), np.int32)
        self.written[places] = 0
        self.undefined[places] = bits
        self.origin[places] = origin

    def lacking(
        self, starts: npt.NDArray[np.intp], is_written: npt.NDArray[np.bool_]
    ) -> tuple[Bytes, npt.NDArray[np.int32]]:
        """Return the undefined bits of lanes that read bytes of which some were not written.

        Parameters
        ----------
        starts : ndarray of intp, shape (lanes,)
            The first bytes' indices in ``data``.
        is_written : ndarray of bool, shape (lanes, bytes)

        Returns
        -------
        bits : ndarray of uint8, shape (lanes, bytes)
            The bits that are undefined.
        origin : ndarray of int32, shape (lanes,)
            The read that they come from; 0 where nobody wrote at all.
        """
        bits = np.where(is_written, 0, 255).astype(np.uint8)
        if self.undefined is None or self.origin is None:
            return bits, np.zeros(len(starts), np.int32)
        places = starts[:, None] + np.arange(is_written.shape[1])
        origin = np.where(is_written, 0, self.origin[places])
        bits = np.where(origin > 0, self.undefined[places], bits)
        return bits, origin.max(axis=1).astype(np.int32)

    def copy_origin(self, other: Storage, rows: npt.NDArray[np.intp], size: int) -> None:
        """Copy to rows of another storage which of their bytes come from unwritten memory."""
        if self.origin is None and other.origin is None:
            return
        nothing = np.empty(0, np.uint8)
        for storage in (self, other):
            storage.unwrite(nothing.astype(np.intp), nothing, nothing.astype(np.int32))
        for name in ("written", "undefined", "origin"):
            mine, theirs = getattr(self, name), getattr(other, name)
            theirs.reshape(-1, other.pitch)[rows, :size] = mine.reshape(-1, self.pitch)[rows, :size]

    def grow(self, size: int) -> None:
        """Make every row hold at least ``size`` bytes."""
        if size <= self.size:
            return
        pitch = -(-size // 16) * 16

        def grown(old: npt.NDArray[Any]) -> npt.NDArray[Any]:
            new = np.zeros((self.rows, pitch), old.dtype)
            new[:, : self.pitch] = old.reshape(self.rows, -1)
            return new.reshape(-1)

        self.data = grown(self.data)
        if self.written is not None:
            self.written = grown(self.written)
        if self.undefined is not None and self.origin is not None:
            self.undefined, self.origin = grown(self.undefined), grown(self.origin)
        self.size, self.pitch = size, pitch


def elements(data: Bytes, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """Return ``data`` as elements, or as rows of ``count`` of them if vectors are accessed."""
    typed = data.view(dtype)
    return typed if count == 1 else typed.reshape(-1, count)
