"""The arguments of a kernel of Triton's: their types for Triton, and the values for its code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tilewise.compiler import Parameter
from tilewise.errors import LaunchError
from tilewise.python_kernels.hosts import host_view
from tilewise.shown import element
from tilewise.tensor_map import ITEM_SIZES, MappedArray, tensor_map

_FLOATS: dict[str, Any] = {
    "fp16": np.float16,
    "fp32": np.float32,
    "f32": np.float32,
    "fp64": np.float64,
}


class HostArray:
    """A NumPy array with what Triton asks of a tensor; all else is the array's.

    Triton compiles for how an array is aligned, which it finds out by its address.
    """

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host = host
        self.dtype = host.dtype

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.host.__array_interface__["data"][0])

    def stride(self, axis: int | None = None) -> Any:
        """Return the elements from one to the next along each axis, or along one."""
        steps = tuple(step // self.host.itemsize for step in self.host.strides)
        return steps if axis is None else steps[axis]

    def numel(self) -> int:
        """Return the number of elements."""
        return self.host.size

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.host.itemsize

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)


def wrapped(value: Any) -> Any:
    """Return an argument as Triton takes it: only NumPy arrays and numbers are converted."""
    if isinstance(value, np.ndarray):
        return HostArray(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        parts = [wrapped(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


Flat = Iterator[tuple[str, Any, str]]


def flattened(kind: Any, value: Any, name: str, maps: Iterator[Mapping[str, Any]] | None) -> Flat:
    """Give the Triton type, the value and the name of each parameter that an argument becomes.

    A ``constexpr`` becomes no parameter, and a tuple one for each element.

    Parameters
    ----------
    kind : str or tuple
        Triton's type of the argument.
    value : object
    name : str
    maps : iterator of mapping, or None
        Triton's description of the tensor map of each tensor descriptor; None if its code uses
        none.
    """
    if isinstance(kind, tuple):
        for number, (each, part) in enumerate(zip(kind, value, strict=True)):
            yield from flattened(each, part, element(name, (number,)), maps)
    elif kind.startswith("tensordesc"):
        yield from _descriptor(value, name, maps)
    elif kind != "constexpr":
        yield kind, value.host if isinstance(value, HostArray) else value, name


def _descriptor(value: Any, name: str, maps: Iterator[Mapping[str, Any]] | None) -> Flat:
    """Return the parameters of a tensor descriptor that was made on the host."""
    shape = [("i32", int(extent), f"{name}.shape") for extent in value.shape]
    strides = [("i64", int(step), f"{name}.strides") for step in value.strides]
    if maps is not None:
        yield "tensordesc", _map(value, next(maps)), name
    else:
        base = value.base
        yield "*", base.host if isinstance(base, HostArray) else base, name
        yield from (("i64", extent, label) for _, extent, label in shape)
        yield from strides
        yield "i1", value.padding == "nan", f"{name}.padding"
        yield "i1", value.round_f32_to_tf32, f"{name}.round_f32_to_tf32"
    yield from shape
    yield from strides


def _map(value: Any, meta: Mapping[str, Any]) -> MappedArray:
    """Return the tensor map of a tensor descriptor.

    Raises
    ------
    LaunchError
        If it is of a kind that tilewise has no tensor maps of.
    """
    for what in ("fp4_padded", "is_im2col"):
        if meta.get(what):
            raise LaunchError(f"tilewise has no tensor maps for a descriptor that is {what}")
    base = value.base
    host = host_view(base.host if isinstance(base, HostArray) else base)
    dtype = canonical(base.dtype)
    if host is not None:
        steps = [int(step) * host.itemsize for step in value.strides]
        first = host[(slice(0, 1),) * host.ndim].reshape(1)
        base = np.lib.stride_tricks.as_strided(first, [int(n) for n in value.shape], steps)
    return tensor_map(
        base,
        meta["block_size"],
        swizzle=("none", "32B", "64B", "128B")[meta["swizzle"]],
        dtype="tfloat32" if value.round_f32_to_tf32 else dtype if dtype in ITEM_SIZES else None,
        fill="nan" if value.padding == "nan" else "zeros",
    )


def canonical(dtype: Any) -> str:
    """Return the name of a dtype, of NumPy or of PyTorch."""
    return str(dtype).rpartition(".")[2]


def number(kind: str, value: Any, parameter: Parameter) -> Any:
    """Return a number in the form of the parameter: LLVM declares floats as bits of their size."""
    if kind == "bf16":
        bits = int(np.float32(value).view(np.uint32))
        # To the nearest, of two the even one; a NaN stays one.
        return bits >> 16 | 0x40 if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if kind in _FLOATS:
        found = _FLOATS[kind](value)
        if parameter.type.startswith("f"):
            return found
        return int.from_bytes(found.tobytes(), "little")
    return int(value)
