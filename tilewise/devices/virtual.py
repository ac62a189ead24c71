"""Allocate arrays of zeros that take memory only for the pages that are touched."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

SMALL = 1 << 22
"""Bytes; smaller arrays are allocated as any other."""
# Python names it from 3.13 on. Without it, the system refuses more than it has.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def zeros(
    shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, is_written: bool = True
) -> npt.NDArray[Any]:
    """Return an array of zeros, which may be larger than the machine's memory.

    Pages that are only read share one page of zeros (mmap(2), ``MAP_NORESERVE``).

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    is_written : bool
        Whether some of it will be written, and perhaps here and there: then its pages are small.
        Else they are as large as can be, which takes fewer tables.

    Raises
    ------
    MemoryError
        If there are not so many addresses, or the system gives none beyond its memory.
    """
    kind = np.dtype(dtype)
    extents = (shape,) if isinstance(shape, int) else shape
    size = kind.itemsize * math.prod(extents)
    if size < SMALL or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(extents, kind)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        pages = mmap.mmap(-1, size, flags=flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(
            f"an array of shape {extents} takes {size / 2**40:,.1f} TiB of addresses, more than "
            f"this system gives ({error})"
        ) from None
    advice = "MADV_NOHUGEPAGE" if is_written else "MADV_HUGEPAGE"
    if hasattr(mmap, advice):
        with suppress(OSError):  # a system may have no such pages
            pages.madvise(getattr(mmap, advice))
    return np.frombuffer(pages, kind, math.prod(extents)).reshape(extents)
