"""Find the source that PTX was compiled from, and see whether it has changed since."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from tilewise.compiler import names
from tilewise.compiler.compiled import Parameter
from tilewise.compiler.declared import fits, type_of
from tilewise.compiler.mangled import demangle
from tilewise.compiler.ptx.parameters import parameters
from tilewise.compiler.ptx.text import Split
from tilewise.compiler.source_files import MOST_BYTES
from tilewise.shown import plural
from tilewise.targets import SUFFIXES

_LOC = re.compile(
    r"\.loc\s+(\d{1,9})\s+(\d{1,9})\s+\d+(?:\s*,[^\n;]*?\binlined_at\s+(\d{1,9})\s+\d+\s+\d+)?"
)
_AT_ONCE = 1.0  # seconds: a source that is newer than the PTX by more may have been edited


@dataclass(frozen=True)
class Origin:
    """The source whose lines a kernel's PTX names.

    Attributes
    ----------
    name : str
        The file's name.
    text : str
        Empty where the file can't be read, or is certainly not what was compiled.
    doubt : str
        Why the file may not be what was compiled; empty where there is no sign of that.
    """

    name: str
    text: str
    doubt: str = ""

    def declared(self, kernel: str, given: Sequence[Parameter]) -> tuple[Parameter, ...]:
        """Return a kernel's parameters with the types that the source declares them with."""
        written = [] if self.doubt else _written(self.text, kernel)
        lists = [parts for parts in written if len(parts) == len(given)]
        types = {tuple(map(type_of, parts)) for parts in lists}
        if len(types) != 1:
            return tuple(given)
        return tuple(
            replace(parameter, declared=type_ or parameter.declared)
            for parameter, type_ in zip(given, types.pop(), strict=True)
        )


def origin(
    module: Split, symbol: str, path: Path | None, source: tuple[str, str] | None
) -> Origin | None:
    """Find the source of a kernel; return None if its PTX names none.

    Parameters
    ----------
    module : Split
    symbol : str
        The symbol of the kernel.
    path : Path or None
        The file of the PTX; a source is read only if it lies in that folder or below.
    source : (str, str) or None
        The name and the text of the source, if the caller gives it.
    """
    body = module.functions[symbol]
    locs = _locs(module.text, body.start, body.end)
    number = next((outer for _, line, outer in locs if line and outer in module.files), None)
    if source is None and number is None:
        return None
    doubt = ""
    if source is not None:
        name, text = source
    else:
        assert number is not None
        name = _unescaped(module.files[number])
        text, doubt = _read(name, path, module.stamps.get(number))
        if doubt and not text:
            return Origin(name, "", _said(name, doubt))
    last = max((line for of, line, _ in locs if of == number), default=0)
    is_cuda = name.endswith(SUFFIXES) and text
    if is_cuda and (why := _unlike(text, last, demangle(symbol), body.parameters)):
        # A source that the caller gave is shown all the same.
        return Origin(name, text if source else "", _said(name, why))
    return Origin(name, text, _said(name, doubt) if doubt else "")


# This is called at each launch of a kernel.
@lru_cache(maxsize=16)
def _locs(text: str, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return the file and the line of each ``.loc``, and the file that it was inlined in."""
    return [
        (int(number), int(line), int(outer or number))
        for number, line, outer in _LOC.findall(text, start, end)
    ]


def _said(name: str, why: str) -> str:
    return (
        f"{name} may not be what the PTX was compiled from ({why}): line numbers of counts are "
        "those of the source at that time, and types and names of parameters are not taken from it"
    )


@lru_cache(maxsize=16)
def _unlike(text: str, last: int, kernel: str, header: str) -> str:
    """Return why a source is certainly not the kernel's, by lines and parameters; else empty."""
    if last > (lines := len(text.splitlines())):
        return f"the PTX names line {last}, and the file has {lines} now"
    given = [Parameter(*each) for each in parameters(header)]
    written = _written(text, kernel)
    if written and not any(_agree(parts, given) for parts in written):
        return f"its {kernel} takes other parameters"
    return ""


def _agree(parts: Sequence[str], given: Sequence[Parameter]) -> bool:
    if any(part.isidentifier() and not type_of(part) for part in parts):
        return True  # it may be a macro, which can expand to any parameters
    return len(parts) == len(given) and all(
        fits(type_of(part), parameter.size, parameter.type)
        for part, parameter in zip(parts, given, strict=True)
    )


def _written(text: str, kernel: str) -> list[list[str]]:
    """Return the parameters of each kernel of that name in a source."""
    found = [parts for is_kernel, parts in names.lists(text, kernel) if is_kernel]
    return [[] if parts == ["void"] else parts for parts in found]


def _unescaped(quoted: str) -> str:
    def byte(escape: re.Match[bytes]) -> bytes:
        return bytes([int(escape[1], 8)]) if len(escape[1]) == 3 else escape[1]

    plain = re.sub(rb"\\([0-3][0-7]{2}|.)", byte, quoted.encode())
    return plain.decode(errors="replace")


def _read(name: str, path: Path | None, stamp: tuple[int, int] | None) -> tuple[str, str]:
    """Return a source's text, in the folder of the PTX or below, and why it may have changed.

    The text is empty if it can't or may not be read, or has certainly changed.
    """
    if path is None or "\0" in name:
        return "", ""
    folder = path.absolute().parent.resolve()
    try:
        place = (folder / name).resolve()
        if not place.is_relative_to(folder) or not place.is_file():
            return "", ""
        found = place.stat()
        if found.st_size > MOST_BYTES:
            return "", ""
        text = place.read_text(encoding="utf-8")
        made = path.stat().st_mtime if stamp is None else stamp[0]
    except (OSError, ValueError):
        return "", ""
    if stamp is not None and stamp[1] not in (0, found.st_size):
        return "", f"it had {plural(stamp[1], 'byte')}, and has {found.st_size:,} now"
    return text, "it was changed later" if made and found.st_mtime > made + _AT_ONCE else ""
