"""Which values a parameter takes, by the type that the source declares it with."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

INTEGERS = {
    "bool": (0, 1),
    **{
        f"{sign}{name}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if not sign
        else (0, (1 << bits) - 1)
        for name, bits in (("short", 16), ("int", 32), ("long", 64), ("long long", 64))
        for sign in ("", "unsigned ")
    },
}  # fmt: skip
"""The least and the largest value. A ``char`` may be text or a number of either sign."""

SIGNED = frozenset(name for name, (low, _) in INTEGERS.items() if low < 0)
"""Integers that are no addresses; ``unsigned long`` may be one, as ``uintptr_t``."""

_ELEMENTS: dict[str, tuple[str, ...]] = {
    "bool": ("bool", "int8", "uint8"),
    "signed char": ("int8", "uint8", "bool"),
    # Bare CUDA C++ has no type for halves: they are known by their bits.
    "short": ("int16", "uint16", "float16", "bfloat16"),
    "unsigned short": ("uint16", "int16", "float16", "bfloat16"),
    "int": ("int32", "uint32"),
    "unsigned int": ("uint32", "int32"),
    "long": ("int64", "uint64"),
    "unsigned long": ("uint64", "int64"),
    "long long": ("int64", "uint64"),
    "unsigned long long": ("uint64", "int64"),
    "float": ("float32",),
    "double": ("float64",),
    "__half": ("float16", "uint16", "int16"),
    "__nv_bfloat16": ("bfloat16", "uint16", "int16"),
    "__half2": ("float16", "uint16", "int16", "uint32", "int32"),
    "__nv_bfloat162": ("bfloat16", "uint16", "int16", "uint32", "int32"),
    "float2": ("float32", "complex64"),
    "float3": ("float32",),
    "float4": ("float32", "complex64"),
    "double2": ("float64", "complex128"),
}
"""The dtypes that a pointer's elements may have, the one that is meant first. What is not in here
takes any: ``void``, ``char`` and ``unsigned char`` are bytes of whatever it is, and ``int4`` may
carry anything, too."""

_LANES = {"__half2": 2, "__nv_bfloat162": 2, "float2": 2, "float3": 3, "float4": 4, "double2": 2}
"""So many numbers one element of a vector type has."""

_BYTES = {"char": "int8", "signed char": "int8", "unsigned char": "uint8"}

_KNOWN = frozenset(
    (
        "bool", "bfloat16", "complex64", "complex128",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        *(f"float{bits}" for bits in (16, 32, 64, 96, 128)),
    )
)  # fmt: skip
"""Of other dtypes, as of records, it is not known what they are to the kernel."""


def bounds(declared: str, bits: int) -> tuple[int, int]:
    """The least and the largest number that an integer parameter takes.

    Parameters
    ----------
    declared : str
        As ``"unsigned int"``; of a type that is not known here, either sign fits.
    bits : int
        Of the parameter.
    """
    return INTEGERS.get(declared, (-(1 << (bits - 1)), (1 << bits) - 1))


def is_known(declared: str) -> bool:
    """Return whether it is known of a parameter that it is an integer, or what it points to."""
    return declared in INTEGERS or declared[:-1] in _ELEMENTS


@lru_cache(maxsize=1024)
def refused(declared: str, dtype: Any) -> str:
    """The dtype that a pointer's array must have, where ``dtype`` can't be right; else ``""``.

    Parameters
    ----------
    declared : str
        As ``"float*"``.
    dtype : dtype or None
        NumPy's, or another library's, whose ``str`` ends in the same name; or None.
    """
    taken = _ELEMENTS.get(declared[:-1]) if declared.endswith("*") else None
    name = str(dtype).rpartition(".")[2]
    return "" if taken is None or name not in _KNOWN or name in taken else taken[0]


def meant(declared: str) -> tuple[str, int]:
    """The dtype of an array that is made for a pointer, and how many of it an element has.

    Parameters
    ----------
    declared : str
        As ``"float4*"``.

    Returns
    -------
    (str, int)
        As ``("float32", 4)``; the dtype is empty where the type does not say it, as of ``void*``.
    """
    of = declared[:-1] if declared.endswith("*") else ""
    return (_BYTES.get(of) or _ELEMENTS.get(of, ("",))[0]), _LANES.get(of, 1)


def lanes(declared: str) -> tuple[str, int]:
    """As :func:`meant`, of a vector that is given by value, as ``"float4"``; else ``("", 1)``."""
    return meant(f"{declared}*") if declared in _LANES else ("", 1)
