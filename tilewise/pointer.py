"""Pointers to elements inside an array, for kernels that reach what lies before them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index as integer
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Pointer:
    """An array, and the element of it that a kernel's parameter points to.

    It is an argument of :meth:`tilewise.Kernel.launch` for a pointer. :func:`pointer` makes it.

    Attributes
    ----------
    array : array
        NumPy's, or one of the device (``device.array``). The kernel may reach all of it.
    offset : int
        Bytes from its first element.
    """

    array: Any
    offset: int


def pointer(array: Any, index: int | Sequence[int]) -> Pointer:
    """Make the argument for a pointer that points to an element inside an array.

    A view, such as ``x[5:]``, is an array of its own to a launch: what lies before it is out of its
    bounds, unless the array that it is a view of is an argument too. ``pointer(x, 5)`` is ``x + 5``
    of C++: the kernel may reach all of ``x``, and findings name its elements.

    Parameters
    ----------
    array : array
        NumPy's, or one of the device (``device.array``).
    index : int or sequence of int
        The element's, one number an axis: of an array of one axis the number itself. The end of the
        first axis is an index, too, as a pointer behind an array is one.

    Raises
    ------
    TypeError
        If it is no such array, or an index no integer.
    ValueError
        If there is no such element.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> source = '''extern "C" __global__ void differences(const float* x, float* y) {
    ...     y[threadIdx.x] = x[threadIdx.x] - x[(int)threadIdx.x - 1];
    ... }'''
    >>> x, y = np.array([1, 2, 4, 8], np.float32), np.zeros(3, np.float32)
    >>> kernel = tilewise.Kernel(source, "differences")
    >>> _ = kernel.launch(1, 3, (tilewise.pointer(x, 1), y), device="emulator")
    >>> y
    array([1., 2., 4.], dtype=float32)
    """
    shape, strides = getattr(array, "shape", None), getattr(array, "strides", None)
    is_ours = isinstance(array, np.ndarray) or hasattr(array, "to_numpy")
    if not is_ours or shape is None or strides is None:
        kind = type(array)
        raise TypeError(
            f"array is a {kind.__module__}.{kind.__qualname__}; a pointer takes NumPy's arrays and "
            "those of device.array"
        )
    given = tuple(index) if isinstance(index, Sequence) else (index,)
    if any(isinstance(each, bool) or not hasattr(each, "__index__") for each in given):
        raise TypeError(f"index is {index!r}; it takes an integer for each axis")
    at = tuple(integer(each) for each in given)
    if len(at) != len(shape):
        raise ValueError(f"index is {index!r}; the array has {len(shape)} axes")
    ends = [extent - (axis > 0) for axis, extent in enumerate(shape)]
    if not all(0 <= each <= end for each, end in zip(at, ends, strict=True)):
        raise ValueError(f"index is {index!r}; the array's shape is {tuple(shape)}")
    return Pointer(array, sum(each * step for each, step in zip(at, strides, strict=True)))
