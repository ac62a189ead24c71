"""The tables of a trace: the matrix elements that lanes hold, and patterns of 16-byte pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.ptx.syntax import Instruction

Numbers = npt.NDArray[Any]
_DOES = ("load", "store", "a", "b", "c", "d", "trans")
NOTHING = -1
"""The entry of a pattern for a piece without an origin."""


class Tables:
    """The layouts and patterns of a trace, each kept once.

    Attributes
    ----------
    layouts : list of dict
    patterns : list of list
    """

    def __init__(self) -> None:
        self.layouts: list[dict[str, Any]] = []
        self.patterns: list[list[int | None]] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[bytes, int] = {}

    def layout(self, instruction: Instruction, held: Sequence[Held]) -> int:
        """Return the number of an instruction's layout."""
        found = {"what": called(instruction), "matrices": [plain(each) for each in held]}
        number = self._numbers.setdefault(str(found), len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(found)
        return number

    def pattern(self, places: Numbers) -> tuple[int, int]:
        """Return the number of a pattern, and the place that its numbers count from.

        Parameters
        ----------
        places : ndarray of integers, shape (n,)
            The places, ``NOTHING`` where there is none.
        """
        there = places[places != NOTHING]
        first = int(there.min()) if len(there) else 0
        apart = np.where(places == NOTHING, NOTHING, places - first).astype(np.int64)
        number = self._known.setdefault(apart.tobytes(), len(self.patterns))
        if number == len(self.patterns):
            self.patterns.append([None if x == NOTHING else int(x) for x in apart])
        return number, first


def called(instruction: Instruction) -> str:
    """Return an instruction with its operation and shape, as in ``mma.m16n8k16``."""
    words = [
        word for word in instruction.modifiers
        if word in _DOES or (word[:1] in "mx" and word[1:2].isdigit())
    ]  # fmt: skip
    return ".".join((instruction.opcode, *words))


def plain(held: Held) -> dict[str, Any]:
    """Return what lanes hold as data: an element's place is its lane's plus its own."""
    lanes = np.stack((held.row[:, 0], held.column[:, 0]), axis=1)
    elements = np.stack((held.row[0] - held.row[0, 0], held.column[0] - held.column[0, 0]), axis=1)
    whole = lanes[:, None] + elements[None]
    assert (whole == np.stack((held.row, held.column), axis=2)).all()
    return {
        "name": held.name, "type": held.type, "rows": held.rows, "columns": held.columns,
        "packed": held.packed, "depth": held.depth, "lanes": lanes.tolist(),
        "elements": elements.tolist(),
    }  # fmt: skip
