"""The product of ``tilewise demo``: a picture, and a matrix that mirrors and blurs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Device
from tilewise.ladder.run import RunResult, run
from tilewise.shown import Part, Shown

SIZE = 128
SHADES = " .:-=+*#%@"
# A character cell is about twice as high as wide.
CELL_ROWS, CELL_COLUMNS = 8, 4


def picture() -> npt.NDArray[np.float32]:
    """Return a picture of a moon and hills: float32, shape (128, 128), 0 dark to 1 bright."""
    row, column = np.mgrid[0:SIZE, 0:SIZE]
    shade = np.zeros((SIZE, SIZE), dtype=np.float32)
    disc = (column - 48) ** 2 + (row - 48) ** 2 < 38**2
    bite = (column - 66) ** 2 + (row - 40) ** 2 < 32**2
    shade[disc & ~bite] = 1.0
    for star_column, star_row, radius in ((78, 44, 8), (104, 20, 6), (112, 66, 6), (92, 84, 5)):
        shade[np.abs(column - star_column) + np.abs(row - star_row) < radius] = 0.9
    shade[row > 104 + 10 * np.sin(column / 14) - 0.12 * column] = 0.4
    return shade


def mirror_and_blur(width: float = 5.0) -> npt.NDArray[np.float32]:
    """Return the matrix B for which A·B is A mirrored left to right and blurred along its rows.

    Column j of B holds the weights with which the columns of A are mixed into column j of the
    product: a Gaussian around column 127 - j, with the sum 1.

    Parameters
    ----------
    width : float
        The Gaussian's standard deviation, in columns.

    Returns
    -------
    ndarray, float32, shape (128, 128)
    """
    index = np.arange(SIZE)
    distance = index[:, None] - (SIZE - 1 - index)[None, :]
    weights = np.exp(-0.5 * (distance / width) ** 2)
    return np.asarray(weights / weights.sum(axis=0), dtype=np.float32)


def as_text(shade: npt.NDArray[np.floating]) -> list[str]:
    """Return ``shade``, shape (128, 128), as 16 lines of 32 characters, dense ones for bright."""
    rows, columns = shade.shape
    cells = shade.reshape(rows // CELL_ROWS, CELL_ROWS, columns // CELL_COLUMNS, CELL_COLUMNS)
    levels = np.rint(np.clip(cells.mean(axis=(1, 3)), 0, 1) * (len(SHADES) - 1)).astype(int)
    return ["".join(SHADES[level] for level in line) for line in levels]


@dataclass(frozen=True, repr=False)
class Demonstration(Shown):
    """The picture's product by two rungs.

    Attributes
    ----------
    before, after : ndarray, float32, shape (128, 128)
        A, and the C that ``tiled`` computed.
    coalesced, tiled : RunResult
        The results of the same product without tiles and with tiles.
    """

    before: npt.NDArray[np.float32]
    after: npt.NDArray[np.float32]
    coalesced: RunResult
    tiled: RunResult

    @property
    def correct(self) -> bool:
        return self.coalesced.correct and self.tiled.correct

    def to_dict(self) -> dict[str, Any]:
        return {
            "correct": self.correct,
            "coalesced": self.coalesced.to_dict(),
            "tiled": self.tiled.to_dict(),
        }

    def _summary(self) -> str:
        return f"a picture times a matrix, {'right' if self.correct else 'WRONG'}"

    def _parts(self) -> list[Part]:
        return [*self.coalesced._parts(), "", *self.tiled._parts()]


def multiply(device: str | Device = "auto") -> Demonstration:
    """Multiply the picture by :func:`mirror_and_blur`, with ``coalesced`` and with ``tiled``.

    Raises
    ------
    DeviceUnavailableError
        If the device is not available.
    """
    a, b = picture(), mirror_and_blur()
    coalesced = run("coalesced", a, b, device=device)
    tiled = run("tiled", a, b, device=device)
    return Demonstration(a, tiled.result, coalesced, tiled)
