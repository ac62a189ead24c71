"""The parameters of a kernel, as its PTX declares them (PTX ISA 5.1.6 and 11.1)."""

from __future__ import annotations

import re

from tilewise.compiler.ptx.text import shortened
from tilewise.errors import CompileError

_PARAMETER = re.compile(
    r"\s*\.param\b(?P<attributes>(?:\s*\.\w+(?:\s+\d{1,9}\b)?)+?)\s*"
    r"(?<![\w.])(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<extents>(?:\[\s*\d{0,9}\s*\]\s*)*)$"
)
_WORD = re.compile(r"\.(\w+)(?:\s+(\d+))?")
_TYPE = re.compile(r"([busf]|bf)(\d+)")


def parameters(text: str) -> list[tuple[str, str, int, int, str]]:
    """Name, type, size and alignment (bytes) of each parameter, and as what it is declared.

    Parameters
    ----------
    text : str
        What stands in the parentheses of the kernel's header.

    Returns
    -------
    list of (str, str, int, int, str)
        The last is ``"*"`` of a pointer, which ``.ptr`` says, and else empty.

    Raises
    ------
    CompileError
        If one can't be read.
    """
    return [_parameter(each) for each in text.split(",")] if text.strip() else []


def _parameter(text: str) -> tuple[str, str, int, int, str]:
    match = _PARAMETER.match(text)
    words = _WORD.findall(match["attributes"]) if match else []
    types = [kind for kind, _ in words if _TYPE.fullmatch(kind)]
    if match is None or len(types) != 1:
        raise CompileError(f"the PTX's parameter {shortened(text)!r} can't be read")
    kind = types[0]
    width = int(re.sub(r"\D", "", kind)) // 8
    size = width
    for extent in re.findall(r"\d+", match["extents"]):
        size *= int(extent)
    # ``.u64 .ptr .align 16 p``: what follows .ptr is about what it points at.
    names = [word for word, _ in words]
    is_pointer = "ptr" in names
    own = words[: names.index("ptr")] if is_pointer else words
    align = next((int(number) for word, number in own if word == "align" and number), width)
    # Only a structure is an array, of whatever its elements are.
    if match["extents"]:
        kind = "b8"
    return match["name"], kind, size, align, "*" if is_pointer else ""
