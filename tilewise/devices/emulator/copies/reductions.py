"""The reductions of bulk copies on elements in global memory (PTX ISA, "cp.reduce.async.bulk").

Each element is read, changed and written at once; the order of the copies is open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.halves import round_bf16, to_f32
from tilewise.devices.emulator.memory.storage import Bytes

Values = npt.NDArray[Any]
Combine = Callable[[Values, Values], Values]

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_INTEGERS = ("uint32", "int32", "uint64", "int64")
# The element types of tensor maps that an H200 takes for each operation; it traps for others.
_TAKEN = {
    "add": ("uint32", "int32", "uint64", "float16", "bfloat16", "float32", "float64"),
    "min": (*_INTEGERS, "float16", "bfloat16"),
    "max": (*_INTEGERS, "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    **dict.fromkeys(("and", "or", "xor"), ("uint32", "int32", "uint64")),
}


def _increment(old: Values, limit: Values) -> Values:
    return np.asarray(np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)))


def _decrement(old: Values, limit: Values) -> Values:
    return np.asarray(np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)))


_FUNCTIONS: dict[str, Combine] = {
    "add": np.add, "min": np.fmin, "max": np.fmax, "inc": _increment, "dec": _decrement,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def takes(operation: str, dtype: str) -> bool:
    """Return whether an operation takes elements of a type."""
    return dtype in _TAKEN[operation]


def reduced(operation: str, dtype: str, old: Bytes, new: Bytes) -> Bytes:
    """Return the bytes of elements after an operation with others; both have one shape."""
    combine = _FUNCTIONS[operation]
    if dtype == "bfloat16":
        bits = np.dtype(np.uint16)
        found = round_bf16(combine(*(to_f32(_as(x, bits)) for x in (old, new))))
    else:
        kind = np.dtype(dtype)
        found = combine(_as(old, kind), _as(new, kind)).astype(kind)
    return np.ascontiguousarray(found).view(np.uint8)


def _as(x: Bytes, dtype: np.dtype[Any]) -> Values:
    return np.ascontiguousarray(x).view(dtype)
