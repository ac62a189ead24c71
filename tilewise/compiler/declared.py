"""Read the type of a parameter out of its declaration, where it is one of CUDA C++'s own types.

Types that the compiler itself gives (:mod:`tilewise.compiler.signatures`) are more reliable, but
are known only of sources that are compiled here.
"""

from __future__ import annotations

import re

_SIZES = {
    "bool": (1,), "char": (1,), "signed char": (1,), "unsigned char": (1,), "short": (2,),
    "unsigned short": (2,), "int": (4,), "unsigned int": (4,), "long long": (8,),
    "unsigned long long": (8,),
    # A long has 4 bytes on Windows.
    "long": (4, 8), "unsigned long": (4, 8),
    "float": (4,), "double": (8,), "__half": (2,), "__nv_bfloat16": (2,), "__half2": (4,),
    "__nv_bfloat162": (4,), "float2": (8,), "float3": (12,), "float4": (16,), "double2": (16,),
}  # fmt: skip
_SAME = {
    "half": "__half", "half2": "__half2", "nv_bfloat16": "__nv_bfloat16",
    "nv_bfloat162": "__nv_bfloat162", "uint": "unsigned int", "ushort": "unsigned short",
    "uchar": "unsigned char", "int8_t": "signed char", "uint8_t": "unsigned char",
    "int16_t": "short", "uint16_t": "unsigned short", "int32_t": "int",
    "uint32_t": "unsigned int", "int64_t": "long long", "uint64_t": "unsigned long long",
    "size_t": "unsigned long",
}  # fmt: skip
_INTEGERS = frozenset(("unsigned", "signed", "long", "short", "int", "char"))
_QUALIFIERS = frozenset(
    ("const", "volatile", "__restrict__", "__restrict", "restrict", "__grid_constant__", "struct")
)


def type_of(part: str) -> str:
    """Return the type of a parameter that is written as ``"const float* __restrict__ x"``.

    Returns
    -------
    str
        Such as ``"float*"``; ``"*"`` for a pointer to a type that is not known here, and ``""`` for
        any other type that is not known.
    """
    text = part.partition("=")[0]
    if "(" in text or "&" in text:
        return ""
    head, *extents = text.split("[")
    stars = head.count("*") + len(extents)
    if "<" in head:
        return "*" * bool(stars)
    front, star, _ = head.partition("*")
    words = re.findall(r"[A-Za-z_][\w:]*", front)
    words = [word.removeprefix("std::") for word in words if word not in _QUALIFIERS]
    if not star and len(words) > 1 and words[-1] not in _INTEGERS:
        words.pop()  # the parameter's name
    base = _integer(words) if words and _INTEGERS.issuperset(words) else " ".join(words)
    base = _SAME.get(base, base)
    if base not in (*_SIZES, "void"):
        return "*" * bool(stars)
    return base + "*" * stars if base != "void" or stars else ""


def fits(type_: str, size: int, ptx_type: str) -> bool:
    """Return whether a parameter of PTX may be of a type that :func:`type_of` returned.

    Parameters
    ----------
    type_ : str
    size : int
        The parameter's, in bytes.
    ptx_type : str
        As ``"u64"``; ``"b8"`` of a structure.
    """
    if not type_:
        return True
    if type_.endswith("*"):
        return size == 8 and not ptx_type.startswith("f")
    is_float = type_ in ("float", "double")
    return size in _SIZES[type_] and (ptx_type.startswith(("b", "f")) or not is_float) and (
        is_float or not ptx_type.startswith("f") or type_ in ("__half", "__nv_bfloat16")
    )  # fmt: skip


def _integer(words: list[str]) -> str:
    """The usual name of ``long unsigned int`` and the like."""
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return "signed char" if "signed" in words else f"{sign}char"
    if "short" in words:
        return f"{sign}short"
    return sign + ("long " * words.count("long")).strip() if "long" in words else f"{sign}int"
