"""Give each instruction of PTX the line that it is in, if the PTX names no source line.

The machine code made from it then has the same lines, so that both can be compared line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewise.compiler.ptx.text import Split, statements

ENDS_BLOCK = frozenset(("bra", "brx", "ret", "exit", "trap"))
"""The instructions that end a basic block here; a label begins one."""

_ASSEMBLY = re.compile(r"// begin inline asm\n.*?// end inline asm\n", re.DOTALL)
_LOC_LINE = re.compile(r"^\s*\.loc\s[^\n]*\n", re.MULTILINE)
_LOC = re.compile(r"\.loc\s")
_JUMP = re.compile(r"(?:@\s*!?\s*[\w$%]+\s+)?(?:" + "|".join(sorted(ENDS_BLOCK)) + r")\b")
_TABLE = re.compile(r"\.(?:branchtargets|calltargets|callprototype)\b")


@dataclass(frozen=True)
class Numbered:
    """PTX in which each instruction has the line that it is in.

    Attributes
    ----------
    ptx : str
        The PTX, in which each instruction of a function without lines has its own line.
    by_block : str
        The PTX in which each instruction has the line of the first instruction of its basic block,
        because ptxas joins instructions of several lines.
    file : int
        The number of the ``.file`` of those lines; 0 if every function had lines.
    """

    ptx: str
    by_block: str
    file: int


def as_they_were_written(text: str) -> str:
    """Return PTX in which all instructions of an inline assembly have the line of the assembly.

    LLVM takes the lines within the assembly's own text for lines of the source: an instruction in
    its third line is two lines too far.
    """

    def first_alone(found: re.Match[str]) -> str:
        first = _LOC_LINE.search(found[0])
        if first is None:
            return found[0]
        rest = found[0][first.end() :]
        return found[0][: first.end()] + _LOC_LINE.sub(lambda loc: "\n" * loc[0].count("\n"), rest)

    return _ASSEMBLY.sub(first_alone, text)


def with_own_lines(module: Split, given: str, file: str) -> Numbered:
    """Return the text with a ``.loc`` before each instruction of functions that have none.

    Each ``.loc`` is in its instruction's own line, so that a message of ptxas names the line of the
    original text.

    Parameters
    ----------
    module : Split
    given : str
        The text that ``module`` was parsed from.
    file : str
        The name of the PTX.
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
    """Return a file's name as a string of PTX, which has ASCII alone."""
    plain = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return "".join(c if c < "\x80" else escaped(c) for c in plain)


def escaped(character: str) -> str:
    """Return a character beyond ASCII as the octal numbers of its bytes."""
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="replace"))
