"""The names and the sizes of CUDA C++'s own types."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

SIZES = {
    "bool": (1,), "char": (1,), "signed char": (1,), "unsigned char": (1,), "short": (2,),
    "unsigned short": (2,), "int": (4,), "unsigned int": (4,),
    # A long has 4 bytes on Windows.
    "long": (4, 8), "unsigned long": (4, 8), "long long": (8,), "unsigned long long": (8,),
    "float": (4,), "double": (8,), "__half": (2,), "__nv_bfloat16": (2,), "__half2": (4,),
    "__nv_bfloat162": (4,), "float2": (8,), "float3": (12,), "float4": (16,), "double2": (16,),
    "int2": (8,), "int4": (16,), "size_t": (8,),
}  # fmt: skip
"""Bytes of each type, by its usual name: all that are possible."""
TOLD = (
    "void", "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int",
    "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "float", "double",
    "__half", "__nv_bfloat16", "__half2", "__nv_bfloat162", "float2", "float3", "float4", "double2",
)  # fmt: skip
"""The types of parameters and variables that are told apart."""
_SAME = {
    "half": "__half", "half2": "__half2", "nv_bfloat16": "__nv_bfloat16",
    "nv_bfloat162": "__nv_bfloat162", "uint": "unsigned int", "ushort": "unsigned short",
    "uchar": "unsigned char", "int8_t": "signed char", "uint8_t": "unsigned char",
    "int16_t": "short", "uint16_t": "unsigned short", "int32_t": "int",
    "uint32_t": "unsigned int", "int64_t": "long long", "uint64_t": "unsigned long long",
    "size_t": "unsigned long",
}  # fmt: skip
_INTEGERS = frozenset(("unsigned", "signed", "long", "short", "int", "char"))
_POINTER_BYTES = 8


def usual(words: Sequence[str]) -> str:
    """Return the usual name of a type: ``"unsigned long"`` of ``("long", "unsigned", "int")``.

    A type that is not one of CUDA C++'s own keeps its words.
    """
    name = _integer(words) if is_integer(words) else " ".join(words)
    return _SAME.get(name, name)


def is_integer(words: Sequence[str]) -> bool:
    """Return whether a type is spelled with the words of C++'s integers alone."""
    return bool(words) and _INTEGERS.issuperset(words)


def size_of(text: str) -> int | None:
    """Return the bytes of a type that is written as ``"const unsigned"`` or ``"float*"``.

    None of a type that is not known here.
    """
    if text.rstrip().endswith("*"):
        return _POINTER_BYTES
    words = [word.removeprefix("std::") for word in re.findall(r"[\w:]+", text)]
    words = [word for word in words if word not in ("const", "volatile")]
    sizes = SIZES.get(" ".join(words)) or SIZES.get(usual(words))
    return None if sizes is None else sizes[0 if sys.platform == "win32" else -1]


def _integer(words: Sequence[str]) -> str:
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return "signed char" if "signed" in words else f"{sign}char"
    if "short" in words:
        return f"{sign}short"
    return sign + ("long " * words.count("long")).strip() if "long" in words else f"{sign}int"
