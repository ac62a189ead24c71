"""The names and the sizes of CUDA C++'s own types."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

_PLAIN = {
    "bool": (1,), "char": (1,), "signed char": (1,), "unsigned char": (1,), "short": (2,),
    "unsigned short": (2,), "int": (4,), "unsigned int": (4,),
    # A long has 4 bytes on Windows.
    "long": (4, 8), "unsigned long": (4, 8), "long long": (8,), "unsigned long long": (8,),
    "float": (4,), "double": (8,), "__half": (2,), "__nv_bfloat16": (2,), "size_t": (8,),
}  # fmt: skip
# A vector type's name is its scalar's without spaces, u for unsigned, and the number of components.
_VECTORS = {
    f"{name.replace('unsigned ', 'u').replace(' ', '')}{count}": (name, count)
    for name in _PLAIN
    if name not in ("bool", "signed char", "__half", "__nv_bfloat16", "size_t")
    for count in (1, 2, 3, 4)
}
_VECTORS |= {
    "dim3": ("unsigned int", 3), "__half2": ("__half", 2), "__nv_bfloat162": ("__nv_bfloat16", 2),
}  # fmt: skip
SIZES = _PLAIN | {
    vector: tuple(count * size for size in _PLAIN[name])
    for vector, (name, count) in _VECTORS.items()
}
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
COMPONENTS = "xyzw"
"""The names of the components of vector types, in order."""
_ALIGNED = re.compile(r"(?<=(?:long|uble)4)_(?:16|32)a$")  # of double4_16a, and of vectors of longs
_POINTER_BYTES = 8


def usual(words: Sequence[str]) -> str:
    """Return the usual name of a type: ``"unsigned long"`` of ``("long", "unsigned", "int")``.

    A type that is not one of CUDA C++'s own keeps its words.
    """
    name = _integer(words) if is_integer(words) else _ALIGNED.sub("", " ".join(words))
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
    words = _words(text)
    sizes = SIZES.get(" ".join(words)) or SIZES.get(usual(words))
    return None if sizes is None else sizes[0 if sys.platform == "win32" else -1]


def components_of(text: str) -> int:
    """Return how many components a type has: 4 of ``"const float4"``, 1 of all but vectors."""
    return vector_of(text)[1]


def vector_of(text: str) -> tuple[str, int]:
    """Return the type of a vector's components, and their number: ``("float", 4)`` of ``float4``.

    Of a type that is no vector, these are the type itself and 1.
    """
    if text.rstrip().endswith("*"):
        return text, 1
    name = usual(_words(text))
    return _VECTORS.get(name, (name, 1))


def _words(text: str) -> list[str]:
    words = [word.removeprefix("std::") for word in re.findall(r"[\w:]+", text)]
    return [word for word in words if word not in ("const", "volatile")]


def _integer(words: Sequence[str]) -> str:
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return "signed char" if "signed" in words else f"{sign}char"
    if "short" in words:
        return f"{sign}short"
    return sign + ("long " * words.count("long")).strip() if "long" in words else f"{sign}int"
