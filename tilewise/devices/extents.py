"""Find the bytes of a row-contiguous NumPy array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def extent(host: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the addresses of the first byte of a row-contiguous array and of its end.

    Returns
    -------
    begin, end : int
        Addresses of the first element's first byte and of the byte after the last element. The
        bytes between the rows of a pitched view are within.

    Raises
    ------
    TypeError
        If the elements are Python objects.
    ValueError
        If the array is not row-contiguous: the last axis without gaps, the strides of the others
        non-negative multiples of the element; or if its byte order is not the machine's.
    """
    if host.dtype.hasobject:
        raise TypeError(f"an array of dtype {host.dtype} holds Python objects, not numbers")
    if not host.dtype.isnative:
        raise ValueError(f"an array of dtype {host.dtype} is not in this machine's byte order")
    begin = int(host.__array_interface__["data"][0])
    if host.size == 0:
        return begin, begin
    size = host.itemsize
    if not is_row_contiguous(host.shape, host.strides, size):
        raise ValueError(
            f"an array of shape {host.shape} with strides {host.strides} bytes is not "
            f"row-contiguous: the last axis must step by the element's {size} bytes, the others "
            "by non-negative multiples of it; pass numpy.ascontiguousarray(x)"
        )
    last = sum((n - 1) * stride for n, stride in zip(host.shape, host.strides, strict=True))
    return begin, begin + last + size


def is_row_contiguous(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    """Return whether the last axis steps by ``size``, and others by multiples of at least 0.

    An axis of one element or none may have any stride.
    """
    steps = [(n, stride) for n, stride in zip(shape, strides, strict=True)]
    if steps and steps[-1][0] > 1 and steps[-1][1] != size:
        return False
    return all(n <= 1 or (stride >= 0 and stride % size == 0) for n, stride in steps)


def span(host: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of :func:`extent`, as a view of ``host``, writeable if ``host`` is.

    Raises
    ------
    TypeError, ValueError
        As :func:`extent`.
    """
    begin, end = extent(host)
    if begin == end:
        return np.empty(0, np.uint8)
    plain = np.asarray(host)
    first = plain[(slice(0, 1),) * plain.ndim].reshape(1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(first, (end - begin,), (1,))
