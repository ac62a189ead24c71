"""Arguments of a kernel of Triton's: how Triton sees them, and how its code takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.compiler import Parameter

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
        """The address of the first element."""
        return int(self.host.__array_interface__["data"][0])

    def stride(self, axis: int | None = None) -> Any:
        """Elements from one to the next along each axis, or one."""
        steps = tuple(step // self.host.itemsize for step in self.host.strides)
        return steps if axis is None else steps[axis]

    def numel(self) -> int:
        """How many elements there are."""
        return self.host.size

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.host.itemsize

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)


def wrapped(value: Any) -> Any:
    """An argument as Triton takes it: NumPy arrays, and NumPy's numbers, alone are made others."""
    if isinstance(value, np.ndarray):
        return HostArray(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        parts = [wrapped(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def flattened(kind: Any, value: Any, name: str) -> Iterator[tuple[str, Any, str]]:
    """Give the Triton type, the value and the name of each parameter that an argument becomes.

    That is none of a ``constexpr``, and one of each element of a tuple.
    """
    if isinstance(kind, tuple):
        for number, (each, part) in enumerate(zip(kind, value, strict=True)):
            yield from flattened(each, part, f"{name}[{number}]")
    elif kind != "constexpr":
        yield kind, value.host if isinstance(value, HostArray) else value, name


def number(kind: str, value: Any, parameter: Parameter) -> Any:
    """A number as the parameter takes it: LLVM declares floats as bits of their size."""
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
