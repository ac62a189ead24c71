"""Say of each instruction of PTX which line it stands in, where the PTX says of no source line.

The machine code made of it then has the same lines, so that both can be compared line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewise.compiler.ptx.text import Split, statements

ENDS_BLOCK = frozenset(("bra", "brx", "ret", "exit", "trap"))
"""Instructions behind which a basic block begins here; and one begins at each label."""

_LOC = re.compile(r"\.loc\s")
_JUMP = re.compile(r"(?:@\s*!?\s*[\w$%]+\s+)?(?:" + "|".join(sorted(ENDS_BLOCK)) + r")\b")
_TABLE = re.compile(r"\.(?:branchtargets|calltargets|callprototype)\b")


@dataclass(frozen=True)
class Numbered:
    """PTX that says of each instruction which line it stands in.

    Attributes
    ----------
    ptx : str
        Each instruction of a function that had no lines has its own one.
    by_block : str
        The same, but each has the line of the first instruction of its basic block: ptxas joins
        instructions of several lines.
    file : int
        The number of the ``.file`` that those lines are in; 0 where every function had lines.
    """

    ptx: str
    by_block: str
    file: int


def with_own_lines(module: Split, given: str, file: str) -> Numbered:
    """Return the text with a ``.loc`` before each instruction of functions that have none.

    Each stands in its instruction's own line, so that a message of ptxas names the line of the
    text as it was given.

    Parameters
    ----------
    module : Split
    given : str
        The text that ``module`` was cut out of.
    file : str
        What the PTX is called.
    """
    text, number = module.text, max(module.files, default=0) + 1
    own: list[str] = []
    by_block: list[str] = []
    done, line, counted = 0, 1, 0
    for body in sorted(module.functions.values(), key=lambda each: each.start):
        if _LOC.search(text, body.start, body.end):
            continue
        begins, first, end = True, 0, body.start
        for start, stop in statements(text, body.start, body.end):
            if text[start] == ".":
                end = stop if _TABLE.match(text, start) else end  # its label is no place
                continue
            line += text.count("\n", counted, start)
            counted = start
            if begins or ":" in text[end:start]:
                first = line
            own += (given[done:start], f".loc {number} {line} 1 ")
            by_block += (given[done:start], f".loc {number} {first} 1 ")
            begins, done, end = _JUMP.match(text, start) is not None, start, stop
    if not own:
        return Numbered(given, given, 0)
    name = _octal(file)
    rest = f'{given[done:]}\n.file {number} "{name}"\n'
    return Numbered("".join((*own, rest)), "".join((*by_block, rest)), number)


def _octal(name: str) -> str:
    """A file's name as a string of PTX, which has ASCII alone."""
    plain = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return "".join(c if c < "\x80" else escaped(c) for c in plain)


def escaped(character: str) -> str:
    """A character beyond ASCII as the octal numbers of its bytes."""
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="replace"))
