"""The parameters and variables of a kernel, as its PTX declares them (PTX ISA 5.1 and 11.1)."""

from __future__ import annotations

import re

from tilewise.compiler.compiled import Variable
from tilewise.compiler.mangled import demangle
from tilewise.compiler.ptx.text import Split, shortened
from tilewise.errors import CompileError

_PARAMETER = re.compile(
    r"\s*\.param\b(?P<attributes>(?:\s*\.\w+(?:\s+\d{1,9}\b)?)+?)\s*"
    r"(?<![\w.])(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<extents>(?:\[\s*\d{0,9}\s*\]\s*)*)$"
)
# Those of a size, and not of another module.
_VARIABLE = re.compile(
    r"(?:\.(?:visible|weak|common)\s+)*\.(?P<space>global|const)\b(?P<attributes>[^=\[{]*?)"
    r"(?<![\w.])(?P<name>[\w$]+)\s*(?P<extents>(?:\[\s*\d{1,9}\s*\]\s*)*)$"
)
_LONGEST = 4096  # characters of a declaration
_SPACES = {"const": "constant", "global": "device"}
_WORD = re.compile(r"\.(\w+)(?:\s+(\d+))?")
_TYPE = re.compile(r"\b([busf]|bf)(\d{1,3})\b")


def parameters(text: str) -> list[tuple[str, str, int, int, str]]:
    """Return the name, type, size and alignment (bytes) of each parameter, and its declaration.

    Parameters
    ----------
    text : str
        The text in the parentheses of the kernel's header.

    Returns
    -------
    list of (str, str, int, int, str)
        The last string is ``"*"`` for a pointer, as ``.ptr`` says, and else empty.

    Raises
    ------
    CompileError
        If one can't be read.
    """
    return [_parameter(each) for each in text.split(",")] if text.strip() else []


def variables(module: Split) -> tuple[Variable, ...]:
    """Return the module's constant and global variables; of strings there are none.

    One that can't be read, as a texture, is left out.
    """
    found = []
    for text in module.declarations:
        head = text[: _LONGEST + 1].partition("=")[0].strip()
        match = _VARIABLE.match(head) if len(head) <= _LONGEST else None
        types = [] if match is None else _TYPE.findall(match["attributes"])
        if match is None or not types or match["name"].startswith(("$", "__unnamed_")):
            continue
        vector = re.search(r"\.v([248])\b", match["attributes"])
        size = int(types[-1][1]) // 8 * int(vector[1] if vector else 1)
        for extent in re.findall(r"\d+", match["extents"]):
            size *= int(extent)
        name = match["name"]
        space = _SPACES[match["space"]]
        found.append(Variable(demangle(name), name, space, size))
    return tuple(found)


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
