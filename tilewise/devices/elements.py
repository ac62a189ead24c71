"""The values that a parameter takes, by the type that the source declares."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilewise.compiler.type_names import components_of

INTEGERS = {
    "bool": (0, 1),
    **{
        f"{sign}{name}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if not sign
        else (0, (1 << bits) - 1)
        for name, bits in (("short", 16), ("int", 32), ("long", 64), ("long long", 64))
        for sign in ("", "unsigned ")
    },
}  # fmt: skip
"""The least and the largest value of integer types; a ``char`` may have either sign."""

SIGNED = frozenset(name for name, (low, _) in INTEGERS.items() if low < 0)
"""The integer types that are not addresses; ``unsigned long`` may be one, as ``uintptr_t``."""

_ELEMENTS: dict[str, tuple[str, ...]] = {
    "bool": ("bool", "int8", "uint8"),
    "signed char": ("int8", "uint8", "bool"),
    # Bare CUDA C++ has no type for halves, which are passed as their bits.
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
"""The dtypes that a pointer's elements may have, the intended one first. Types that are missing
take any dtype: ``void``, ``char`` and ``unsigned char`` are bytes of anything, and so may ``int4``
be.
"""

_BYTES = {"char": "int8", "signed char": "int8", "unsigned char": "uint8"}

_KNOWN = frozenset(
    (
        "bool", "bfloat16", "complex64", "complex128",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        *(f"float{bits}" for bits in (16, 32, 64, 96, 128)),
    )
)  # fmt: skip
"""The dtypes whose meaning to a kernel is known here, unlike that of records."""


def bounds(declared: str, bits: int) -> tuple[int, int]:
    """Return the least and the largest number that an integer parameter takes.

    Parameters
    ----------
    declared : str
        The declared type, as in ``"unsigned int"``; for an unknown type, either sign fits.
    bits : int
        The bits of the parameter.
    """
    return INTEGERS.get(declared, (-(1 << (bits - 1)), (1 << bits) - 1))


def is_known(declared: str) -> bool:
    """Return whether a parameter is known to be an integer, or what it points to is known."""
    return declared in INTEGERS or declared[:-1] in _ELEMENTS


@lru_cache(maxsize=1024)
def refused(declared: str, dtype: Any) -> str:
    """Return the dtype that a pointer's array must have if ``dtype`` can't be right; else ``""``.

    Parameters
    ----------
    declared : str
        The declared type, as in ``"float*"``.
    dtype : dtype or None
        A dtype of NumPy's, or another library's whose ``str`` ends in the same name; or None.
    """
    taken = _ELEMENTS.get(declared[:-1]) if declared.endswith("*") else None
    name = str(dtype).rpartition(".")[2]
    return "" if taken is None or name not in _KNOWN or name in taken else taken[0]


def meant(declared: str) -> tuple[str, int]:
    """Return the dtype of an array for a pointer, and the number of its items in an element.

    Parameters
    ----------
    declared : str
        The declared type, as in ``"float4*"``.

    Returns
    -------
    (str, int)
        For example ``("float32", 4)``; the dtype is empty if the type does not determine it, as for
        ``void*``.
    """
    of = declared[:-1] if declared.endswith("*") else ""
    return (_BYTES.get(of) or _ELEMENTS.get(of, ("",))[0]), components_of(of)


def lanes(declared: str) -> tuple[str, int]:
    """Return what :func:`meant` does for a vector by value, as ``"float4"``; else ``("", 1)``."""
    return (
        meant(f"{declared}*") if declared in _ELEMENTS and components_of(declared) > 1 else ("", 1)
    )
