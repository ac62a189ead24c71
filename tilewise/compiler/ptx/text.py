"""Parse the text of a PTX module into its functions and declarations (PTX ISA 4 and 5).

The inside of a function is not read here, so a function that nothing calls may contain anything.
Comments become spaces, so that every place in the text stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewise.errors import CompileError

MOST_SHOWN = 60  # characters of a text that a message quotes

# Strings first, for a path in one may hold what looks like a comment. An open comment ends with
# the text, so that none is looked at twice. @@DWARF is how old compilers mark debug data.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)|@@DWARF[^\n]*|\0|\r', re.S)
_MARK = re.compile(r'"(?:[^"\\\n]|\\.)*"|[;{}]')
_BRACE = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}]')
_FILE = re.compile(
    r'\.file\s+(\d{1,9})\s+"((?:[^"\\\n]|\\.)*)"(?:\s*,\s*(\d{1,19})\s*,\s*(\d{1,19}))?'
)
_LEADING = re.compile(
    r"\s*(?:\.version\s+(?P<version>[\d.]+)|\.target\s+(?P<target>\w+(?:\s*,\s*\w+)*)"
    r"|\.address_size\s+(?P<address>\d{1,3})\b|(?P<file>\.file\b)|\.loc\s[\d\s]+)"
)
_CALLABLE = re.compile(r"\.(entry|func)\b")
_HEADER = re.compile(
    r"\.(?:entry|func)\b\s*(?:\.noreturn\s*|\.attribute\s*\((?:[^()]|\([^()]*\))*\)\s*)*"
    r"(?:\((?P<results>[^)]*)\)\s*)?(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^)]*)\))?",
)
_BLANK = re.compile(r"\s*")


@dataclass(frozen=True)
class Body:
    """A function in the text.

    Attributes
    ----------
    name : str
    is_kernel : bool
        Whether it is an ``.entry``.
    header : str
        The text before its ``{``.
    results, parameters : str
        The text in the header's parentheses.
    start, end : int
        The place of its instructions in the text: after ``{``, and at ``}``.
    """

    name: str
    is_kernel: bool
    header: str
    results: str
    parameters: str
    start: int
    end: int


@dataclass
class Split:
    """A PTX module, parsed into its parts.

    Attributes
    ----------
    text : str
        The text, of the original length, with spaces for comments.
    version : str
        The version, as in ``"8.5"``; empty if there is none.
    target : str
        The target, as in ``"sm_80"``; empty if there is none.
    address_size : int
        The bits of an address.
    functions : dict
        The functions with a body, by name.
    declarations : list of str
        The module's statements outside of functions, without their ``;``.
    files : dict
        The names that ``.file`` gives, by number.
    stamps : dict
        The time at which each file was written (seconds since 1970) and its bytes, by number, if
        ``.file`` has them.
    aliases : dict
        The function of each alias that ``.alias`` gives.
    """

    text: str
    version: str = ""
    target: str = ""
    address_size: int = 64
    functions: dict[str, Body] = field(default_factory=dict)
    declarations: list[str] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict)
    stamps: dict[int, tuple[int, int]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, in order."""
        return tuple(each.name for each in self.functions.values() if each.is_kernel)

    def line(self, place: int) -> int:
        """Return the line of a place in the text, from 1."""
        return self.text.count("\n", 0, place) + 1


def shortened(text: str) -> str:
    """Return a piece of PTX for a message: in one line, and not all of a long one."""
    line = " ".join(text[: 4 * MOST_SHOWN].split())
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]}..."


def without_comments(text: str) -> str:
    """Return the same text with a space for each character of a comment."""
    return _COMMENT.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    piece = found[0]
    if piece[0] == '"':
        return piece
    if "\n" not in piece:
        return " " * len(piece)
    return "".join("\n" if c == "\n" else " " for c in piece)


def split(text: str) -> Split:
    """Cut a module into its functions and declarations.

    Parameters
    ----------
    text : str
        PTX.

    Raises
    ------
    CompileError
        If a bracket or a statement has no end, or a function has no name.
    """
    found = Split(without_comments(text))
    text = found.text
    at = start = 0  # of the current place, and of the statement
    is_initial = False  # whether initial values were read, after which no function begins
    while (mark := _MARK.search(text, at)) is not None:
        at, sign = mark.end(), mark[0]
        if sign[0] == '"':
            continue
        if is_initial and sign == "{":
            at = _close(found, at)
            continue
        start = _directives(found, start, mark.start())
        head = text[start : mark.start()]
        is_initial = False
        if sign == "}":
            raise CompileError(f"line {found.line(mark.start())} of the PTX: a '}}' opens nowhere")
        if sign == ";":
            if head.strip():
                found.declarations.append(head.strip())
            start = at
        elif _CALLABLE.search(head):
            at = _close(found, at)
            body = _body(found, head, mark.end(), at - 1)
            found.functions[body.name] = body
            start = at
        else:
            at = _close(found, at)
            is_initial = not head.startswith(".section")
            start = start if is_initial else at
    start = _directives(found, start, len(text))
    if rest := text[start:].strip():
        raise CompileError(f"line {found.line(start)} of the PTX: {shortened(rest)!r} has no end")
    return found


def _close(found: Split, at: int) -> int:
    """Return the place after the bracket that closes one which opened before ``at``."""
    depth = 1
    for mark in _BRACE.finditer(found.text, at):
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}":
            depth -= 1
            if depth == 0:
                return mark.end()
    raise CompileError(f"line {found.line(at)} of the PTX: a '{{' is never closed")


def _directives(found: Split, start: int, end: int) -> int:
    """Read the directives that end with themselves, and return where the rest begins."""
    text = found.text
    while (match := _LEADING.match(text, start, end)) is not None:
        if match["file"]:
            named = _FILE.match(text, match.start("file"))
            if named is None:
                break
            found.files[int(named[1])] = named[2]
            if named[4]:
                found.stamps[int(named[1])] = int(named[3]), int(named[4])
            start = named.end()
            continue
        found.version = match["version"] or found.version
        if match["target"]:
            names = [each.strip() for each in match["target"].split(",")]
            found.target = next((each for each in names if each.startswith("sm_")), found.target)
        found.address_size = int(match["address"] or found.address_size)
        start = match.end()
    blank = _BLANK.match(text, start, end)
    return blank.end() if blank else start


def _body(found: Split, head: str, start: int, end: int) -> Body:
    match = _HEADER.search(head)
    if match is None:
        raise CompileError(
            f"line {found.line(start)} of the PTX: {shortened(head)!r} names no function"
        )
    is_kernel = head[match.start() :].startswith(".entry")
    return Body(
        match["name"], is_kernel, head, match["results"] or "", match["parameters"] or "",
        start, end,
    )  # fmt: skip


def statements(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each statement of a function, without labels and brackets.

    Parameters
    ----------
    text : str
        The text without comments.
    start, end : int
        The place of the function's instructions.
    """
    at = begin = start
    depth = 0  # of vectors' brackets, which are inside a statement
    while (mark := _MARK.search(text, at, end)) is not None:
        at, sign = mark.end(), mark[0]
        if sign[0] == '"':
            continue
        begin = _behind_labels(text, begin, mark.start())
        if sign == ";":
            if depth == 0:
                if begin < mark.start():
                    yield begin, mark.start()
                begin = at
        elif sign == "{":
            if depth or begin < mark.start():
                depth += 1
            else:
                begin = at
        elif depth:
            depth -= 1
        else:
            begin = at


_LABEL = re.compile(r"\s*[A-Za-z_$%][\w$]*\s*:(?!:)")


def _behind_labels(text: str, begin: int, end: int) -> int:
    while (label := _LABEL.match(text, begin, end)) is not None:
        begin = label.end()
    blank = _BLANK.match(text, begin, end)
    return blank.end() if blank else begin
