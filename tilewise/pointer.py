"""Pointers to elements inside an array, for kernels that also access elements before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index as integer
from typing import Any

import numpy as np

from tilewise.shown import named_type


@dataclass(frozen=True)
class Pointer:
    """A pointer to an element of an array, as an argument of :meth:`tilewise.Kernel.launch`.

    :func:`pointer` makes it.

    Attributes
    ----------
    array : array
        A NumPy array, or an array on the device (``device.array``). The kernel may access all of
        it.
    offset : int
        The bytes from the array's first element to the one that is pointed to.
    """

    array: Any
    offset: int


def pointer(array: Any, index: int | Sequence[int]) -> Pointer:
    """Return an argument that points to an element inside an array.

    For a launch, a view such as ``x[5:]`` is an array of its own: elements before it are out of its
    bounds, unless the whole array is an argument too. ``pointer(x, 5)`` is ``x + 5`` in C++: the
    kernel may access all of ``x``, and findings name its elements.

    Parameters
    ----------
    array : array
        A NumPy array, or an array on the device (``device.array``).
    index : int or sequence of int
        The index of the element: one number for each axis, or just the number for an array of one
        axis. A pointer past the end has the length of the first axis, and 0 for the others.

    Raises
    ------
    TypeError
        If ``array`` is not such an array, or if an index is not an integer.
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
        raise TypeError(
            f"array is {named_type(array)}; a pointer takes NumPy's arrays and those of "
            "device.array"
        )
    given = tuple(index) if isinstance(index, Sequence) else (index,)
    if any(isinstance(each, bool) or not hasattr(each, "__index__") for each in given):
        raise TypeError(f"index is {index!r}; it takes an integer for each axis")
    at = tuple(integer(each) for each in given)
    if len(at) != len(shape):
        raise ValueError(f"index is {index!r}; the array has {len(shape)} axes")
    is_inside = all(0 <= each < extent for each, extent in zip(at, shape, strict=True))
    if not is_inside and at != (shape[0], *[0] * (len(shape) - 1)):
        raise ValueError(f"index is {index!r}; the array's shape is {tuple(shape)}")
    return Pointer(array, sum(each * step for each, step in zip(at, strides, strict=True)))
