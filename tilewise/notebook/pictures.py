"""Pictures for a lesson: bars, sectors that a warp fetches, banks of shared memory, a roofline."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.devices.emulator.counting.transactions import BANKS, SECTOR
from tilewise.devices.occupancy import WARP
from tilewise.lens import roofline_plot
from tilewise.lens.figures import (
    BLUE,
    GREEN,
    INK,
    LARGE,
    SMALL,
    VERMILION,
    WIDTH,
    check,
    new,
    panel,
    require,
    save,
    widest,
)
from tilewise.lens.profile import Profile
from tilewise.lens.roofline import bound, find, roof_of
from tilewise.shown import number

ELEMENT = 4  # bytes of an element in the pictures: float32
_EMPTY, _FETCHED = "#eceff1", "#a9d3ea"
_SCREEN = 110  # pixels an inch: as wide as a notebook's cell has room for
_MOST_CELLS = 96  # rows and columns that can be told apart


@dataclass(frozen=True)
class Picture:
    """A figure of matplotlib that shows itself in a notebook.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
    says : str
        A description of the figure in words, for readers who can't see it.
    """

    figure: Any
    says: str

    def _repr_png_(self) -> bytes:
        """Return the figure as PNG, for Jupyter."""
        image = io.BytesIO()
        self.figure.savefig(image, format="png", dpi=_SCREEN)
        return image.getvalue()

    def __repr__(self) -> str:
        return f"<picture: {self.says}>"

    def save(self, path: str | Path) -> Path:
        """Write it, whole or not at all.

        Raises
        ------
        ValueError
            If the name ends in another than ``.png``, ``.svg`` or ``.pdf``.
        OSError
            If it can't be written.
        """
        check(Path(path))
        save(self.figure, Path(path))
        return Path(path)


def bars(values: Mapping[str, float], title: str, *, log: bool = False) -> Picture:
    """Draw a bar for each value, with its number beside it.

    Parameters
    ----------
    values : mapping of str to float
        The values, at least 0; with ``log`` a value of 0 has no bar.
    title : str
    log : bool
        Whether the axis is logarithmic.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there is no value, or one is negative or not a number.
    """
    require()
    if not values:
        raise ValueError("there is nothing to draw; give a mapping of names to numbers")
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value}; a bar takes a number of at least 0")
    made = new(1.0)
    left, right = widest(made, list(values)) + 0.25, 0.15
    high = 0.34 * len(values)
    made.set_size_inches(WIDTH, high + 0.75)
    axes = panel(made, left, 0.2, max(WIDTH - left - right, 1.5), high)
    axes.grid(visible=False)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    most = max(values.values()) or 1.0
    least = min((x for x in values.values() if x > 0), default=1.0) / 2
    room = 0.72  # the longest bar's share of the width; its number follows it
    for place, value in enumerate(values.values()):
        if log:
            share = math.log(value / least) / math.log(2 * most / least) if value > 0 else 0.0
        else:
            share = value / most
        axes.barh(place, room * share, height=0.7, color=BLUE, zorder=2)
        axes.annotate(
            number(value), (room * share, place), (5, 0), textcoords="offset points",
            va="center_baseline", fontsize=SMALL, color=INK,
        )  # fmt: skip
    axes.set_xlim(0, 1)
    scale = ", logarithmic" if log else ""
    _title(made, title + scale)
    told = ", ".join(f"{name} {number(value)}" for name, value in values.items())
    return Picture(made, f"{title}{scale}: {told}")


def sectors(shape: tuple[int, int], at: Sequence[tuple[int, int]], title: str = "") -> Picture:
    """Draw which elements of a matrix a warp's access fetches, and which of them it uses.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of a matrix of float32, row after row, that begins at a sector.
    at : sequence of (int, int)
        The row and the column that each lane asks for.
    title : str

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If an element is outside the matrix, or the matrix is too large to be seen.
    """
    require()
    rows, columns = shape
    if not (1 <= rows <= _MOST_CELLS and 1 <= columns <= _MOST_CELLS):
        raise ValueError(f"shape is {rows} x {columns}; it takes up to {_MOST_CELLS} of each")
    for row, column in at:
        if not (0 <= row < rows and 0 <= column < columns):
            raise ValueError(f"({row}, {column}) is outside the {rows} x {columns} matrix")
    each = SECTOR // ELEMENT
    used = {row * columns + column for row, column in at}
    fetched = {place // each for place in used}
    fill = [
        [
            BLUE if (i := row * columns + column) in used
            else _FETCHED if i // each in fetched
            else _EMPTY
            for column in range(columns)
        ]
        for row in range(rows)
    ]  # fmt: skip
    share = len(used) * ELEMENT / (len(fetched) * SECTOR) if fetched else 0.0
    told = f"{len(fetched)} sectors of {SECTOR} bytes fetched, {share:.1%} used"
    return _cells(fill, None, [title] * bool(title) + [told], 4.2 * rows / max(rows, columns))


def banks(words: Sequence[int], title: str = "") -> Picture:
    """Draw in which bank of shared memory each lane of a warp reads, and in which turn.

    Parameters
    ----------
    words : sequence of int
        The place of the 4-byte word that each lane reads, in words; up to 32.
    title : str

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there are none, or more lanes than a warp has, or a place is negative.
    """
    require()
    turns = turns_of(words)
    count = max(map(len, turns), default=0)
    fill = [[_EMPTY] * BANKS for _ in range(count)]
    text = [[""] * BANKS for _ in range(count)]
    for bank, found in enumerate(turns):
        for turn, lanes in enumerate(found):
            fill[turn][bank] = GREEN if turn == 0 else VERMILION
            text[turn][bank] = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}+"
    conflicts = count - 1
    told = f"{count} turn{'s' * (count > 1)}, {conflicts} bank conflict{'s' * (conflicts != 1)}"
    heads = [title] * bool(title) + [
        f"{told}; across: banks 0 to 31; down: turns; in a cell: lanes"
    ]
    return _cells(fill, text if count <= 8 else None, heads, min(0.25 * count, 5.0))


def turns_of(words: Sequence[int]) -> list[list[list[int]]]:
    """Return for each bank the lanes served in each turn; those that read one word share a turn.

    Raises
    ------
    ValueError
        As in :func:`banks`.
    """
    if not 1 <= len(words) <= WARP:
        raise ValueError(f"there are {len(words)} lanes; a warp has 1 to {WARP}")
    found: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
    for lane, word in enumerate(words):
        if word < 0:
            raise ValueError(f"lane {lane} reads word {word}; the first is 0")
        found[word % BANKS].setdefault(word, []).append(lane)
    return [list(each.values()) for each in found]


def roofline(
    found: Mapping[str, Profile],
    gpu: str = "H200",
    seconds: Mapping[str, float] | None = None,
) -> Picture:
    """Draw the least time of kernels on a GPU, as speed over operations a byte.

    Parameters
    ----------
    found : mapping of str to Profile
        The profiles by name.
    gpu : str
        The GPU of the ceilings, as in ``"T4"``; no GPU is needed.
    seconds : mapping of str to float, optional
        The measured seconds by the same names. Without them a kernel is drawn at the ceiling that
        binds it.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there is no such GPU, or nothing to draw.
    """
    require()
    ceilings, times = find(gpu), seconds or {}
    points = []
    for name, profile in found.items():
        work = profile.work.to_dict()
        roof = bound(profile.work, ceilings)
        took = times.get(name)
        points.append(
            roofline_plot.Point(
                name, roofline_plot.intensities(work),
                work["flops"] / took if took else roof.best_flops, roof_of(work), roof.binding,
                roof.best_flops if took else None,
            )
        )  # fmt: skip
    note = (
        "Marks: as measured. Bars: the most that the binding ceiling allows. Percent: its share."
        if times
        else "The most that each kernel's work allows, and the ceiling that binds it."
    )
    figure = roofline_plot.figure(points, ceilings, f"Under the ceilings of {ceilings.name}", note)
    told = ", ".join(f"{point.name} bound by {point.binding}" for point in points)
    return Picture(figure, f"roofline on {ceilings.name}: {told}")


def _cells(
    fill: Sequence[Sequence[str]],
    text: Sequence[Sequence[str]] | None,
    heads: Sequence[str],
    height: float,
) -> Picture:
    """Return a grid of coloured cells below lines of words."""
    from matplotlib.colors import to_rgb

    top = 0.25 * len(heads) + 0.15
    made = new(height + top + 0.15)
    axes = panel(made, 0.15, 0.1, WIDTH - 0.3, height)
    axes.grid(visible=False)
    axes.imshow([[to_rgb(colour) for colour in row] for row in fill], aspect="auto")
    rows, columns = len(fill), len(fill[0])
    axes.set_xticks([x - 0.5 for x in range(columns)], minor=True)
    axes.set_yticks([y - 0.5 for y in range(rows)], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    for y, row in enumerate(text or ()):
        for x, word in enumerate(row):
            if word:
                size = 9 if len(word) < 3 else 7
                axes.text(x, y, word, ha="center", va="center", fontsize=size, color="white")
    _title(made, *heads)
    return Picture(made, "; ".join(heads))


def _title(made: Any, *lines: str) -> None:
    height = made.get_size_inches()[1]
    for place, line in enumerate(lines):
        made.text(
            0.15 / WIDTH, 1 - (0.1 + 0.25 * place) / height, line, va="top", color=INK,
            fontsize=LARGE if place == 0 and len(lines) < 2 else SMALL,
        )  # fmt: skip
