"""Read what PTX declares: variables with their initial values, and headers of functions."""

from __future__ import annotations

import math
import re

from tilewise.compiler.ptx.text import Body, shortened
from tilewise.devices.emulator.ptx.lexer import NUMBER, parse_number, split_commas
from tilewise.devices.emulator.ptx.syntax import Function, Variable
from tilewise.devices.emulator.ptx.types import TYPE_BYTES
from tilewise.errors import UnsupportedInstructionError

_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\b(?:::\w+)?"
    r"(?P<attributes>(?:\s*\.(?:align|attribute)\s*(?:\d+|\([^()]*(?:\([^()]*\))?[^()]*\)))*?)"
    r"(?:\s*\.v(?P<vector>[248]))?\s*\.(?P<type>(?!align\b|attribute\b|ptr\b)\w+)\b"
    r"(?:\s*\.ptr(?:\s*\.\w+)*(?:\s+\d+)?)?(?:\s*\.align\s+\d+)?"
    r"\s+(?P<rest>.+)$",
    re.S,
)
_NUMBER = r"(?:0[xX][0-9a-fA-F]{1,12}|\d{1,12})U?"
_NAME = re.compile(rf"\s*([\w$%]+)\s*((?:\[\s*(?:{_NUMBER})?\s*\]\s*)*)$")
_EXTENT = re.compile(r"\[\s*(\w*?)U?\s*\]")
_ALIGN = re.compile(r"\.align\s+(\d{1,9})\b")
_BOUNDS = re.compile(r"\.(?:maxntid|reqntid)\s+(\d{1,9}(?:\s*,\s*\d{1,9})*)\b")
_CLUSTER = re.compile(
    r"\.reqnctapercluster\s+(\d{1,9})\b(?:\s*,\s*(\d{1,9})\b)?(?:\s*,\s*(\d{1,9})\b)?"
)
_ADDRESS = re.compile(
    r"^(?:(0[xX][0-9a-fA-F]+)\s*\()?\s*(generic\s*\()?\s*([\w$]+)\s*\)?\s*"
    r"([+-]\s*\d+)?\s*\)?\s*([+-]\s*\d+)?\s*\)?$"
)
LONGEST = 4096
"""The most characters of a declaration, without its initial values, or of an operand: no
name is longer.
"""
MOST_BYTES = 1 << 40
"""The most bytes of one variable."""
_DEEPEST = 16  # brackets inside one another, of initial values

Initial = int | float | tuple[int, str, int, bool]


def header(body: Body) -> Function:
    """Return a function without its instructions.

    Raises
    ------
    UnsupportedInstructionError
        If a parameter can't be read.
    """
    function = Function(body.name)
    if cluster := _CLUSTER.search(body.header):
        x, y, z = (int(extent or 1) for extent in cluster.groups())
        function.cluster = x, y, z
    if bounds := _BOUNDS.search(body.header):
        function.most_threads = math.prod(map(int, bounds[1].split(",")))
    for text, declared in (
        (body.results, function.results),
        (body.parameters, function.parameters),
    ):
        for part in split_commas(text):
            # A function may take values in registers (PTX ISA 5.1.6.2), which are its own then.
            found = variable(re.sub(r"^\s*\.reg\b", ".param", part))
            declared.append(found)
            function.variables[found.name] = found
    return function


def variable(text: str) -> Variable:
    """Return the variable that a statement declares.

    Raises
    ------
    UnsupportedInstructionError
        If it can't be read, or is of an unknown type.
    """
    match = None if len(text.partition("=")[0]) > LONGEST else _VARIABLE.search(text)
    if match is None:
        raise _unread(text)
    space, kind = match["space"], match["type"]
    if kind not in TYPE_BYTES:
        raise UnsupportedInstructionError(f"the emulator does not know the PTX type .{kind}")
    rest, _, initial = match["rest"].partition("=")
    named = _NAME.match(rest)
    if named is None:
        raise _unread(text)
    count = int(match["vector"] or 1)
    for extent in _EXTENT.findall(named[2]):
        count *= int(extent or "0", 0)
    element = TYPE_BYTES[kind]
    if count * element > MOST_BYTES:
        raise UnsupportedInstructionError(
            f"{shortened(named[1])} of the PTX has {count * element:,} bytes; no GPU has so many"
        )
    aligned = _ALIGN.search(match["attributes"])
    align = int(aligned[1]) if aligned else element * int(match["vector"] or 1)
    values = _initial(initial.strip()) if initial.strip() else ()
    if not count and values:
        count = len(values)
    is_extern = ".extern" in text[: match.start()]
    return Variable(named[1], space, kind, align, count * element, is_extern, values)


def name_of(text: str) -> str:
    """Return the name that a declaration gives, as far as it can be found; else empty."""
    head = text[: LONGEST + 1].partition("=")[0].partition("[")[0].split()
    return head[-1] if head and len(head[-1]) <= LONGEST else ""


def _unread(text: str) -> UnsupportedInstructionError:
    return UnsupportedInstructionError(
        f"the emulator can't read the PTX declaration {shortened(text)!r}"
    )


def _initial(text: str, depth: int = 0) -> tuple[Initial, ...]:
    if depth > _DEEPEST:
        raise UnsupportedInstructionError("the emulator can't read initial values so deeply nested")
    parts = split_commas(text.strip()[1:-1]) if text.startswith("{") else [text]
    values: list[Initial] = []
    for part in parts:
        if part.startswith("{"):
            values.extend(_initial(part, depth + 1))
        elif NUMBER.match(part):
            values.append(parse_number(part).value)
        else:
            match = _ADDRESS.match(part) if len(part) <= LONGEST else None
            if match is None:
                raise UnsupportedInstructionError(
                    f"the emulator can't read {shortened(part)!r} in PTX"
                )
            mask, generic, symbol, inner, outer = match.groups()
            offset = int((inner or outer or "0").replace(" ", ""))
            values.append((int(mask, 16) if mask else -1, symbol, offset, generic is not None))
    return tuple(values)
