"""Find the file of an instruction's line, as a reader names it, and the calls that lead there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewise.compiler.mangled import demangle
from tilewise.devices.emulator.ptx.syntax import Instruction

_OF_NVRTC = "__nv_nvrtc_builtin_header.h"  # it names the working directory as its folder
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)")


def _byte(escape: re.Match[bytes]) -> bytes:
    """Return the byte that an escape in a string of the PTX means: non-ASCII bytes are octal."""
    return bytes([int(escape[1], 8)]) if len(escape[1]) == 3 else escape[1]


@dataclass(frozen=True)
class SourceLine:
    """A line, and the calls that lead to it.

    Attributes
    ----------
    file : str
        The file, as a reader names it.
    line : int
        The line number, from 1; 0 if the compiler gave none.
    own : str
        The kernel's own file.
    function : str
        The device function that the line is in, where that was called and its name is known.
    calls : tuple of int
        Lines of the file ``home`` that call the function, the innermost first, and then what calls
        that; empty for a line of the kernel itself.
    home : str
        The kernel's own file; or, where none of the calls is there, the file of the outermost: that
        of a kernel which the own file includes.
    """

    file: str
    line: int
    own: str
    function: str = ""
    calls: tuple[int, ...] = ()
    home: str = ""

    @property
    def own_calls(self) -> tuple[int, ...]:
        """The calls that are lines of the kernel's own file."""
        return self.calls if self.home == self.own else ()

    def where(self, file: str) -> str:
        """Say the line, and its file where that is not ``file``, and the calls."""
        called = self.called()
        name = "a header of NVRTC" if _OF_NVRTC in self.file else self.file
        there = "" if self.file == file else f" of {name}"
        return f"line {self.line}{there}" + (f", {called}" if called else "")

    def called(self) -> str:
        """Say which function the line is in and which lines call that; nothing of a kernel's."""
        if not self.calls:
            return ""
        sites = [f"line {n}" if self.file == self.home else f"{self.home}:{n}" for n in self.calls]
        inside = f"in {self.function}, " if self.function else ""
        return f"{inside}called at {', from '.join(sites)}"

    def called_from(self, callers: Iterable[SourceLine], function: str = "") -> SourceLine:
        """Return the same line with the calls that its function stood in when it ran.

        Parameters
        ----------
        callers : iterable of SourceLine
            The lines of the calls that were not inlined, the innermost first.
        function : str
            The function that they called, for a line that was not inlined into it.
        """
        sites = [(self.home, line) for line in self.calls]
        for caller in callers:
            sites.append((caller.file, caller.line))
            sites += [(caller.home, line) for line in caller.calls]
        calls, home = _at_home(sites, self.own)
        return replace(self, function=self.function or function, calls=calls, home=home)


def _at_home(sites: Sequence[tuple[str, int]], own: str) -> tuple[tuple[int, ...], str]:
    """Return the lines of calls that are in the kernel's own file, and that file.

    If none is there, return those in the file of the outermost call.
    """
    home = own if not sites or any(file == own for file, _ in sites) else sites[-1][0]
    return tuple(line for file, line in sites if file == home), home


class Sources:
    """The files of one module.

    Parameters
    ----------
    files : mapping of int to str
        The PTX's names, which are absolute, by number.
    own : str
        The kernel's own file, as given to the compiler.
    strings : str
        The PTX text behind ``.debug_str``.

    Attributes
    ----------
    own : str
    """

    def __init__(self, files: Mapping[int, str], own: str, strings: str = "") -> None:
        self.own = own
        self._strings = strings
        place = Path(own)
        folder = place.absolute().parent
        self._names: dict[int, str] = {}
        for number, quoted in files.items():
            name = Path(_ESCAPE.sub(_byte, quoted.encode()).decode(errors="replace"))
            if name.is_relative_to(folder):
                name = place.parent / name.relative_to(folder)
            self._names[number] = own if name == place else str(name)

    def name(self, instruction: Instruction) -> str:
        """Return the file of a line; a header below the kernel's folder relative to it."""
        return self._names.get(instruction.file, self.own)

    def own_line(self, instruction: Instruction) -> int | None:
        """Return the line of the kernel's own file: an instruction's, or that of its inlined call.

        Return None for an instruction of a header's function that was not inlined.
        """
        for number, line in ((instruction.file, instruction.line), *instruction.sites):
            if self._names.get(number, self.own) == self.own:
                return line
        return None

    def line(self, instruction: Instruction) -> SourceLine:
        """Return an instruction's line, and the calls that were inlined there."""
        sites = [(self._names.get(number, self.own), line) for number, line in instruction.sites]
        calls, home = _at_home(sites, self.own)
        return SourceLine(
            self.name(instruction), instruction.line, self.own,
            self._function(instruction.function) if calls else "", calls, home,
        )  # fmt: skip

    def _function(self, label: str) -> str:
        """Return the C++ name that a label of the strings stands for; empty if it is not known."""
        found = re.search(rf"{re.escape(label)}:((?:\s*\.b8[\d,\s]+)+)", self._strings)
        if not label or found is None:
            return ""
        letters = bytes(map(int, re.findall(r"\b\d+", found[1])))
        return readable(letters.rstrip(b"\0").decode(errors="replace"))


def readable(symbol: str) -> str:
    """Return a function's C++ name; empty if the known rules can't read its symbol."""
    name = demangle(symbol)
    return "" if name.startswith("_Z") else name
