"""The arguments of a kernel of Numba's: their types for Numba, and the values for its code."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewise.numba.packages import numba
from tilewise.python_kernels.hosts import host_view
from tilewise.shown import element

_FLOATS: dict[str, Any] = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_PARTS = {"complex64": np.float32, "complex128": np.float64}


def host(value: Any) -> Any:
    """Return an argument as Numba takes it: CPU tensors become arrays of the same memory."""
    if isinstance(value, tuple):
        parts = [host(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    view = host_view(value)
    return value if view is None else view


def flattened(
    names: Sequence[str], types: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[str, Any]]:
    """Give the name and the value of each parameter of the machine code, in order.

    An array becomes its memory information and parent, which are null, its size in elements, an
    element's size in bytes, the address, and the extents and the strides in bytes.

    Parameters
    ----------
    names, types, values : sequence
        The name of each argument, Numba's type of it, and the argument.

    Raises
    ------
    TypeError
        If an argument is of a type that Numba passes to no kernel.
    """
    known = numba("numba.cuda.types")
    for name, kind, value in zip(names, types, values, strict=True):
        yield from _one(known, name, kind, value)


def _one(types: Any, name: str, kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, types.Array):
        shape = tuple(int(extent) for extent in value.shape)
        strides = _strides(value)
        item = int(np.dtype(value.dtype).itemsize)
        given = (0, 0, int(np.prod(shape, dtype=np.int64)), item, value, *shape, *strides)
        yield from ((name, part) for part in given)
    elif isinstance(kind, types.Record):
        yield name, np.asarray(value).reshape(1)
    elif isinstance(kind, types.BaseTuple):
        for number, (each, part) in enumerate(zip(kind, value, strict=True)):
            yield from _one(types, element(name, (number,)), each, part)
    elif isinstance(kind, types.EnumMember):
        yield from _one(types, name, kind.dtype, value.value)
    elif isinstance(kind, types.CPointer):
        yield name, int(value)
    elif str(kind) in _PARTS:
        yield name, _PARTS[str(kind)](value.real)
        yield name, _PARTS[str(kind)](value.imag)
    elif str(kind) == "float16":
        yield name, int(np.float16(value).view(np.uint16))
    elif str(kind) in _FLOATS:
        yield name, _FLOATS[str(kind)](value)
    elif isinstance(kind, types.Boolean):
        yield name, int(bool(value))
    elif isinstance(kind, types.NPDatetime | types.NPTimedelta):
        yield name, int(value.view(np.int64))
    elif isinstance(kind, types.Integer):
        yield (
            name,
            int.from_bytes(
                struct.pack("<q", int(value))[: kind.bitwidth // 8], "little", signed=kind.signed
            )
            if kind.signed
            else int(value),
        )
    else:
        raise TypeError(f"argument {name}: Numba passes no {kind} to a kernel")


def _strides(value: Any) -> tuple[int, ...]:
    """Return the strides of an array, in bytes; those of one that does not say are C-contiguous."""
    interface = (
        getattr(value, "__cuda_array_interface__", None)
        if not isinstance(value, np.ndarray)
        else None
    )
    strides = value.strides if interface is None else interface.get("strides")
    if strides is None:
        item, sizes = int(np.dtype(value.dtype).itemsize), (*value.shape[1:], 1)
        return tuple(item * int(np.prod(sizes[i:])) for i in range(len(value.shape)))
    return tuple(int(step) for step in strides)
