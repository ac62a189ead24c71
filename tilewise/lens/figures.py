"""The size, the colours, the names beside lines, and the writing of all figures.

Figures are 6.5 inches wide, so that they can be read on a telephone: on a screen of 390 pixels,
letters of 12 points are 10 pixels high. Their background is white, on a dark page too.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.provenance import write_whole

FORMATS = (".png", ".svg", ".pdf")
WIDTH, DPI = 6.5, 200  # inches, and pixels per inch
SMALL, LARGE = 12, 13.5  # points
LINE = 1.2 * SMALL / 72  # inches of a line of names
SHIFT = 0.18  # inches between axes and the names beside them
INK, GREY, GRID = "#222222", "#666666", "#dddddd"
# M. Okabe, K. Ito, "Color Universal Design": colour-blind readers can tell these colours apart.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, BLACK = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#000000",
)  # fmt: skip
# The colours of rungs of float32 and float64, of rungs of 16 bits, of tilewise.matmul, and of the
# vendor's product.
REAL, HALF, OURS, VENDOR = BLUE, GREEN, VERMILION, BLACK


@dataclass(frozen=True)
class Name:
    """The name of a point, written to the right of the axes.

    Attributes
    ----------
    x, y : float
        The place of the point, in data coordinates.
    words, colour : str
    is_bold : bool
    """

    x: float
    y: float
    words: str
    colour: str = INK
    is_bold: bool = False


def check(path: Path) -> None:
    """Raise the errors that drawing would raise, before the data are computed.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the file's name does not end in one of :data:`FORMATS`.
    """
    require()
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"can't draw {path}: its name must end in {', '.join(FORMATS)}")


def require() -> None:
    """Raise the error that drawing would raise if matplotlib is missing.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("a plot needs matplotlib, which is not installed: pip install matplotlib")


def new(height: float, width: float = WIDTH) -> Any:
    """Return a white figure of matplotlib; its height and width are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(made)
    return made


def panel(figure: Any, left: float, bottom: float, width: float, height: float) -> Any:
    """Return axes at a place in inches, with a grid behind the plot."""
    across, up = figure.get_size_inches()
    axes = figure.add_axes((left / across, bottom / up, width / across, height / up))
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def widest(figure: Any, words: Sequence[str]) -> float:
    """Return the width in inches of the longest of ``words``, as :func:`name_all` writes them."""
    found = 0.0
    for each in words:
        text = figure.text(0, 0, each, fontsize=SMALL)
        found = max(found, text.get_window_extent().width / figure.dpi)
        text.remove()
    return found


def save(made: Any, path: Path, dpi: int = DPI) -> None:
    """Write a figure of matplotlib to ``path``, completely or not at all.

    The file contains no date and no random number, so the same figure gives the same file.

    Raises
    ------
    OSError
        If the file can't be written.
    """
    from matplotlib import rc_context

    image = io.BytesIO()
    without = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    with rc_context({"svg.hashsalt": "tilewise"}):
        made.savefig(image, format=path.suffix.lower()[1:], dpi=dpi, metadata=without)
    write_whole(path, image.getvalue())


def name_all(axes: Any, names: Sequence[Name], shift: float = SHIFT, top: float = 0.0) -> None:
    """Write names to the right of the axes, each near its point's height, with a line to it.

    Parameters
    ----------
    axes
        The axes, with their limits and scales.
    names : sequence of Name
        The names. Those that would overlap are moved apart; they stay within the axes' height if
        there is room.
    shift : float
        The inches between the axes and the names.
    top : float
        The inches above the axes that names may use.
    """
    dpi = axes.figure.dpi
    places = [axes.transData.transform((name.x, name.y)) for name in names]
    low, high = axes.bbox.y0 + LINE * dpi / 2, axes.bbox.y1 + (top - LINE / 2) * dpi
    room = (high - low) / max(len(names) - 1, 1)
    heights = spread([y for _, y in places], min(LINE * dpi, room), low, high)
    for name, (x, y), height in zip(names, places, heights, strict=True):
        axes.annotate(
            name.words,
            (name.x, name.y),
            ((axes.bbox.x1 + shift * dpi - x) * 72 / dpi, (height - y) * 72 / dpi),
            textcoords="offset points", va="center", fontsize=SMALL, color=name.colour,
            weight="bold" if name.is_bold else "normal", annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "relpos": (0, 0.5), "color": name.colour, "linewidth": 0.8,
                "alpha": 0.7, "shrinkA": 2, "shrinkB": 3,
            },
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return ``heights`` moved apart to at least ``gap`` in their order, as near as possible.

    They stay between ``low`` and ``high`` if there is room for all.
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    # Groups that would overlap are joined, and centred on the middle of their members.
    groups: list[list[float]] = []
    for i in order:
        groups.append([heights[i]])
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap):
            upper = groups.pop()
            groups[-1] += upper
    found = [_bottom(group, gap) + j * gap for group in groups for j in range(len(group))]
    for j in range(len(found) - 1, -1, -1):
        found[j] = min(found[j], high - (len(found) - 1 - j) * gap)
    for j in range(len(found)):
        found[j] = max(found[j], low + j * gap)
    moved = dict(zip(order, found, strict=True))
    return [moved[i] for i in range(len(heights))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - (len(group) - 1) * gap / 2


def _top(group: Sequence[float], gap: float) -> float:
    return _bottom(group, gap) + (len(group) - 1) * gap


def si(value: float, unit: str) -> str:
    """Return a value with three digits, the prefix that fits, and the unit."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()
