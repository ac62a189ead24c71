"""Shared and local memory: rows of bytes, and the windows of generic addresses that lie in them.

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
        Bytes from one row to the next.
    size : int
        Bytes of a row that may be used.
    data : ndarray of uint8, shape (rows * pitch,)
    written : ndarray of uint8, the same shape, or None
        1 where a byte was written.
    """

    def __init__(self, rows: int, size: int, track: bool) -> None:
        self.rows, self.size = rows, size
        self.pitch = max(-(-size // 16) * 16, 16)
        self.data: Bytes = np.zeros(rows * self.pitch, np.uint8)
        self.written: Bytes | None = np.zeros(rows * self.pitch, np.uint8) if track else None

    def grow(self, size: int) -> None:
        """Make every row hold at least ``size`` bytes."""
        if size <= self.size:
            return
        pitch = -(-size // 16) * 16

        def grown(old: Bytes) -> Bytes:
            new = np.zeros((self.rows, pitch), np.uint8)
            new[:, : self.pitch] = old.reshape(self.rows, -1)
            return new.reshape(-1)

        self.data = grown(self.data)
        if self.written is not None:
            self.written = grown(self.written)
        self.size, self.pitch = size, pitch


def elements(data: Bytes, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """``data`` as elements, or as rows of ``count`` of them, where vectors are accessed."""
    typed = data.view(dtype)
    return typed if count == 1 else typed.reshape(-1, count)
