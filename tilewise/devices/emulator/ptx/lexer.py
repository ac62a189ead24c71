"""Cut PTX text into statements, and statements into operands and literals (PTX ISA 4)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilewise.devices.emulator.ptx.syntax import Immediate

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[;{}]|[^;{}"\n]+|\n')
_MARK = re.compile(r"[,()\[\]{}]")
_LABEL = re.compile(r"^\s*([A-Za-z_$%][\w$]*)\s*:")
NUMBER = re.compile(r"^[+-]?(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?"
                     r"|0[bB][01]+U?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+U?)$")  # fmt: skip


def parse_number(text: str) -> Immediate:
    """A PTX literal (PTX ISA 4.5)."""
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
    """The parts of ``text`` between commas that are in no bracket."""
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
    """Pieces of ``text``: ("loc" | "file" | "label" | "open" | "close" | "statement", text)."""
    pending, depth = "", 0
    for piece in _PIECE.findall(_COMMENT.sub("", text.replace("\0", ""))):
        if piece == "\n" or piece.isspace():
            head = pending.lstrip()
            if head.startswith((".loc", ".file")) and piece == "\n":
                yield ("loc" if head.startswith(".loc") else "file"), head
                pending = ""
            elif (
                head.startswith((".version", ".target", ".address_size", ".pragma"))
                and piece == "\n"
            ):
                pending = ""
            else:
                pending += " "
            continue
        if piece == "{" and depth == 0:
            stripped = pending.strip()
            if not stripped:
                yield "open", ""
                pending = ""
                continue
            if re.search(r"\.(entry|func)\b", stripped):
                yield "open", stripped
                pending = ""
                continue
        if piece == "{":
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
        pending += piece
        while depth == 0 and (label := _LABEL.match(pending)):
            yield "label", label.group(1)
            pending = pending[label.end() :]
