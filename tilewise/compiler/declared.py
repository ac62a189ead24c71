"""Read the type of a parameter from its declaration, if it is a built-in type of CUDA C++.

The types that the compiler itself gives (:mod:`tilewise.compiler.signatures`) are more reliable,
but are known only for sources that are compiled here.
"""

from __future__ import annotations

import re

from tilewise.compiler.type_names import SIZES, TOLD, is_integer, usual

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
    if not star and len(words) > 1 and not is_integer(words[-1:]):
        words.pop()  # the parameter's name
    base = usual(words)
    if base not in TOLD:
        return "*" * bool(stars)
    return base + "*" * stars if base != "void" or stars else ""


def fits(type_: str, size: int, ptx_type: str) -> bool:
    """Return whether a parameter of PTX may be of a type that :func:`type_of` returned.

    Parameters
    ----------
    type_ : str
    size : int
        The bytes of the parameter.
    ptx_type : str
        The PTX type, as in ``"u64"``; ``"b8"`` for a structure.
    """
    if not type_:
        return True
    if type_.endswith("*"):
        return size == 8 and not ptx_type.startswith("f")
    is_float = type_ in ("float", "double")
    return size in SIZES[type_] and (ptx_type.startswith(("b", "f")) or not is_float) and (
        is_float or not ptx_type.startswith("f") or type_ in ("__half", "__nv_bfloat16")
    )  # fmt: skip
