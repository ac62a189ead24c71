"""Cut PTX text into statements, and statements into operands and literals (PTX ISA 4)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewise.devices.emulator.ptx.syntax import Immediate

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[;{}]|[^;{}"\n]+|\n')
_MARK = re.compile(r"[,()\[\]{}]")
_LABEL = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)")
_ENDS_WITH_LINE = (".loc ", ".loc\t", ".file ", ".file\t")
NUMBER = re.compile(r"^[+-]?(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?"
                     r"|0[bB][01]+U?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+U?)$")  # fmt: skip


def parse_number(text: str) -> Immediate:
    """Return a PTX literal (PTX ISA 4.5)."""
    negative = text.startswith("-")
    body = text.lstrip("+-").rstrip("U")
    prefix = body[:2].lower()
    if prefix == "0f":
        return Immediate(int(body[2:], 16), (int(body[2:], 16), 32))
    if prefix == "0d":
        return Immediate(int(body[2:], 16), (int(body[2:], 16), 64))
    value: int | float
    if prefix == "0x":
        value = int(body, 16)
    elif prefix == "0b":
        value = int(body, 2)
    elif "." in body or "e" in body.lower():
        value = float(body)
    elif len(body) > 1 and body[0] == "0":
        value = int(body, 8)
    else:
        value = int(body)
    return Immediate(-value if negative else value)


def split_commas(text: str) -> list[str]:
    """Return the parts of ``text`` between commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for mark in _MARK.finditer(text):
        c = mark[0]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : mark.start()].strip())
            start = mark.end()
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a function: ("loc" | "label" | "open" | "close" | "statement", text).

    A ``.loc`` with an instruction behind it on its line is a part of that instruction.

    Parameters
    ----------
    text : str
        The function's text, without comments.
    """
    pending, depth = "", 0
    for piece in _PIECE.findall(text):
        if piece == "\n" or piece.isspace():
            if piece == "\n" and pending[:1] == "." and pending.startswith(_ENDS_WITH_LINE):
                if pending[1] == "l":
                    yield "loc", pending
                pending = ""
            elif pending:
                pending += " "
            continue
        if piece == "{":
            if depth == 0 and not pending.strip():
                yield "open", ""
                pending = ""
                continue
            depth += 1
        elif piece == "}":
            if depth == 0:
                yield "close", ""
                pending = ""
                continue
            depth -= 1
        elif piece == ";" and depth == 0:
            if pending.strip():
                yield "statement", pending.strip()
            pending = ""
            continue
        if pending:
            pending += piece
        else:
            pending = piece.lstrip()
        if depth == 0 and ":" in piece:
            at = 0
            while label := _LABEL.match(pending, at):
                yield "label", label[1]
                at = label.end()
            pending = pending[at:].lstrip()
