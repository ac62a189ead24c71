"""Which file an instruction's line is in: the kernel's own or a header, as a reader names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tilewise.devices.emulator.ptx.syntax import Instruction

_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)")


def _byte(escape: re.Match[bytes]) -> bytes:
    """What an escape in a string of the PTX means: bytes beyond ASCII are octal numbers."""
    return bytes([int(escape[1], 8)]) if len(escape[1]) == 3 else escape[1]


class Sources:
    """The files of one module.

    Parameters
    ----------
    files : mapping of int to str
        The PTX's names, which are absolute, by number.
    own : str
        The kernel's own file, as given to the compiler.

    Attributes
    ----------
    own : str
    """

    def __init__(self, files: Mapping[int, str], own: str) -> None:
        self.own = own
        place = Path(own)
        folder = place.absolute().parent
        self._names: dict[int, str] = {}
        for number, quoted in files.items():
            name = Path(_ESCAPE.sub(_byte, quoted.encode()).decode(errors="replace"))
            if name.is_relative_to(folder):
                name = place.parent / name.relative_to(folder)
            self._names[number] = own if name == place else str(name)

    def name(self, instruction: Instruction) -> str:
        """The file of an instruction's line; a header below the kernel's folder from there."""
        return self._names.get(instruction.file, self.own)

    def own_line(self, instruction: Instruction) -> int | None:
        """The line of the kernel's own file: an instruction's, or where its function was inlined.

        None for an instruction of a header's function that was not inlined.
        """
        for number, line in ((instruction.file, instruction.line), *instruction.sites):
            if self._names.get(number, self.own) == self.own:
                return line
        return None
