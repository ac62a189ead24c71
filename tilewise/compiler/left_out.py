"""Headers that are not found: which were left out, and what that may have decided.

A kernel may compile without a header that its file includes. That it does is no proof that the
header has nothing to say: so what was left out is told. Which includes NVRTC comes by, and which
stand in a branch that conditions leave out, it says itself: in place of each stands a ``#warning``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilewise.compiler.includes import Gathered

Places = Mapping[tuple[str, int], str]
"""Why includes are not read, by the text and the line that they stand in."""

_NUMBER = "1105"
"""NVRTC's number of the warning that ``#warning`` gives."""
OPTION = f"--diag-warn={_NUMBER}"
_SILENT = re.compile(r"--?(?:w|disable-warnings)")
_REFUSED = re.compile(r"#\s*error (.+):\s*[\"<]")  # as includes that are not read are rewritten
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
    """Why includes are not read, by the text and the line that they stand in."""
    found = {}
    for name, raw in gathered.texts.items():
        now = gathered.headers.get(name, gathered.source)
        lines = zip(raw.split("\n"), now.split("\n"), strict=False)
        for line, (old, new) in enumerate(lines, 1):
            if old != new and (match := _REFUSED.search(new)) is not None:
                found[name, line] = match[1]
    return found


def options(given: Sequence[str]) -> list[str]:
    """NVRTC's options, so that it says which includes are left out."""
    return [*(option for option in given if not _SILENT.fullmatch(option)), OPTION]


def reached(log: str) -> set[tuple[str, int]]:
    """The places of the includes that NVRTC came by."""
    return {(match[1], int(match[2])) for match in _MARKED.finditer(log)}


def without_marks(log: str) -> str:
    """A log without what it says of them."""
    return _REMARK.sub("", _MARKED.sub("", log))


def told(places: Places, log: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Say of each include that NVRTC came by that it is left out, and why."""
    order = list(texts)
    found = (place for place in places.keys() & reached(log) if place[0] in texts)
    for file, line in sorted(found, key=lambda place: (order.index(place[0]), place[1])):
        yield f"{file}:{line}: {_name(texts, file, line)} is left out: {places[file, line]}"


def _name(texts: Mapping[str, str], file: str, line: int) -> str:
    """What is included at a line."""
    match = _NAME.search(texts[file].split("\n")[line - 1])
    return match[1] if match else "this include"


def questions(gathered: Gathered, file: str, folder: Path | None) -> tuple[str, ...]:
    """Say of each ``__has_include`` of a source, and of headers beside it, that is answered no.

    What is asked for may be there for the compiler that the source was written for.
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
    """A log in which an include that is not read is named, in place of what stood for it."""
    return _ERROR.sub(lambda match: f"error: {match[2]} is not read: {match[1]}\n", log)
