"""Headers that are not found and are left out, and what they may have decided.

A kernel may compile without a header that its file includes, and that header could still have
changed what is compiled: so every header that was left out is reported. A ``#warning`` stands in
place of each such include, so that NVRTC's log shows which of them it reached, and which stand in a
branch of an ``#if`` that is not compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilewise.compiler.includes import Gathered

Places = Mapping[tuple[str, int], str]
"""The reason why each include is not read, by its file and its line."""

_NUMBER = "1105"
"""The number that NVRTC gives to the warning of a ``#warning``."""
OPTION = f"--diag-warn={_NUMBER}"
_SILENT = re.compile(r"--?(?:w|disable-warnings)")
# The replacement of an include that is not read.
_REFUSED = re.compile(r"#\s*error (.+):\s*[\"<]")
_MARKED = re.compile(
    rf"^(\S.*?)\((\d+)\): warning #{_NUMBER}-D: .*\n(?:[ \t].*\n)*\n?", re.MULTILINE
)
_REMARK = re.compile(r"^Remark: The warnings can be suppressed .*\n\n?", re.MULTILINE)
_NAME = re.compile(r"include(?:_next)?\s*(<[^>\n]*>|\"[^\"\n]*\")")
_HAS = re.compile(
    r"^[ \t]*#[ \t]*(?:el)?if\b.*?__has_include[ \t]*\([ \t]*(<[^>\n]*>|\"[^\"\n]*\")", re.MULTILINE
)
_ERROR = re.compile(
    r"(?:catastrophic )?error: #error directive:\s*(.+):[ \t]*(<[^>\n]*>|\"[^\"\n]*\").*\n"
    r"(?:[ \t].*\n)*\n?"
)


def refused(gathered: Gathered) -> dict[tuple[str, int], str]:
    """Return the reason why each include is not read, by its file and its line."""
    found = {}
    for name, raw in gathered.texts.items():
        now = gathered.headers.get(name, gathered.source)
        lines = zip(raw.split("\n"), now.split("\n"), strict=False)
        for line, (old, new) in enumerate(lines, 1):
            if old != new and (match := _REFUSED.search(new)) is not None:
                found[name, line] = match[1]
    return found


def options(given: Sequence[str]) -> list[str]:
    """Return NVRTC's options with the warnings on that show which includes it reached."""
    return [*(option for option in given if not _SILENT.fullmatch(option)), OPTION]


def reached(log: str) -> set[tuple[str, int]]:
    """Return the file and the line of each left-out include that NVRTC reached."""
    return {(match[1], int(match[2])) for match in _MARKED.finditer(log)}


def without_marks(log: str) -> str:
    """Return NVRTC's log without the warnings that mark left-out includes."""
    return _REMARK.sub("", _MARKED.sub("", log))


def told(places: Places, log: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a remark on each left-out include that NVRTC reached: the header, and the reason."""
    order = list(texts)
    found = (place for place in places.keys() & reached(log) if place[0] in texts)
    for file, line in sorted(found, key=lambda place: (order.index(place[0]), place[1])):
        yield f"{file}:{line}: {_name(texts, file, line)} is left out: {places[file, line]}"


def _name(texts: Mapping[str, str], file: str, line: int) -> str:
    """Return the header that is included at a line."""
    match = _NAME.search(texts[file].split("\n")[line - 1])
    return match[1] if match else "this include"


def questions(gathered: Gathered, file: str, folder: Path | None) -> tuple[str, ...]:
    """Return a remark on each ``__has_include`` whose header is not found.

    The compiler that the source was written for may find it. The headers in the source's folder are
    searched as well as the source itself.
    """
    found = []
    for name, text in gathered.texts.items():
        is_own = name == file or (folder is not None and Path(name).is_relative_to(folder))
        for match in _HAS.finditer(text) if is_own else ():
            reason = gathered.missing.get(match[1][1:-1])
            if reason is not None:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: __has_include({match[1]}) is answered no: {reason}")
    return tuple(dict.fromkeys(found))


def as_includes(log: str) -> str:
    """Return NVRTC's log with "<name> is not read" for the ``#error`` of a left-out include."""
    return _ERROR.sub(lambda match: f"error: {match[2]} is not read: {match[1]}\n", log)
