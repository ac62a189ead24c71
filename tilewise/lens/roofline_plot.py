"""The roofline as a figure: speed over operations a byte of DRAM, below the roofs of a GPU."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.lens.roofline import Ceilings
from tilewise.provenance import write_whole

FORMATS = (".png", ".svg", ".pdf")
WIDTH, HEIGHT, DPI = 12.8, 7.2, 150  # 1920 x 1080
_SMALL, _LARGE = 13, 16  # points
_AXES = (0.085, 0.11, 0.895, 0.785)  # left, bottom, width, height, in shares of the figure
_POINTS_UP_TO = 0.5  # of the width: to the right of them stand their names
_INK, _GRID = "#222222", "#dddddd"
# M. Okabe, K. Ito, "Color Universal Design", without the yellow, which is too light for a slide.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class Point:
    """One kernel in the figure.

    Attributes
    ----------
    name : str
    intensity : float
        Operations a byte of DRAM.
    flops : float
        Operations a second.
    dtype : str
        Whose roof it is under: of 16 bits, that of the tensor cores.
    binding : str
        The ceiling that sets the least time; empty where it is not to be said.
    best : float or None
        Operations a second in the least time, where ``flops`` are others.
    """

    name: str
    intensity: float
    flops: float
    dtype: str = "float32"
    binding: str = ""
    best: float | None = None

    @property
    def is_drawable(self) -> bool:
        """Whether it has a place on logarithmic axes."""
        return all(0 < each < math.inf for each in (self.intensity, self.flops))

    @property
    def words(self) -> str:
        """Its name, its speed, and what binds it."""
        told = f"{self.name}, {si(self.flops, 'FLOP/s')}"
        if self.best:
            return f"{told} ({self.flops / self.best:.0%}, {self.binding})"
        return f"{told} ({self.binding})" if self.binding else told


def check(path: Path) -> None:
    """Raise what :func:`draw` would, before what it draws is reckoned.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the file's name does not end in one of :data:`FORMATS`.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("a plot needs matplotlib, which is not installed: pip install matplotlib")
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"can't draw {path}: its name must end in {', '.join(FORMATS)}")


def draw(points: Sequence[Point], ceilings: Ceilings, title: str, note: str, path: Path) -> None:
    """Draw kernels below the roofs of a GPU to ``path``, whole or not at all.

    Parameters
    ----------
    points : sequence of Point
        Those that do no operation, or touch no byte of DRAM, are left out.
    ceilings : Ceilings
    title, note : str
        What was multiplied, and what the points stand for.
    path : Path

    Raises
    ------
    ImportError, ValueError
        As :func:`check`; or if there is no point to draw.
    OSError
        If the file can't be written.
    """
    check(path)
    save(figure(points, ceilings, title, note), path)


def save(made: Any, path: Path, dpi: int = DPI) -> None:
    """Write a figure of matplotlib to ``path``, whole or not at all.

    No date is in it, and no random number: the same figure gives the same file.

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


def figure(points: Sequence[Point], ceilings: Ceilings, title: str, note: str) -> Any:
    """The figure of :func:`draw`, of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [point for point in points if point.is_drawable]
    if not points:
        raise ValueError("no kernel does an operation on a byte of DRAM: there is nothing to draw")
    made = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI)
    FigureCanvasAgg(made)
    axes = made.add_axes(_AXES)
    axes.set_xscale("log")
    axes.set_yscale("log")
    roofs = _roofs_of(points, ceilings)
    axes.set_xlim(*_x_limits(points, ceilings, [rate for _, rate in roofs]))
    speeds = [rate for _, rate in roofs] + [point.flops for point in points]
    axes.set_ylim(min(speeds) / 4, max(speeds) * 3)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=_SMALL)
    axes.yaxis.set_major_formatter(lambda value, _: si(value, ""))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("FLOPs a byte of DRAM", fontsize=_LARGE)
    axes.set_ylabel("FLOP/s", fontsize=_LARGE)
    _roofs(axes, ceilings, roofs)
    _points(axes, points, max(rate for _, rate in roofs))
    made.suptitle(title, x=_AXES[0], y=0.985, ha="left", va="top", fontsize=_LARGE + 2)
    axes.set_title(note, loc="left", fontsize=_SMALL, color=_INK)
    return made


def _roofs_of(points: Sequence[Point], ceilings: Ceilings) -> list[tuple[str, float]]:
    """The roofs that points are under, each in words and as operations a second, the lowest first.

    Where a GPU's tensor cores are not known, its arithmetic in float32 is there.
    """
    found: dict[str, float] = {}
    for dtype in sorted({point.dtype for point in points}):
        unit, rate = ceilings.roof(dtype)
        if rate is not None:
            found[f"{unit} in {dtype}"] = rate
    found = found or {"arithmetic in float32": ceilings.float32}
    return sorted(found.items(), key=lambda roof: roof[1])


def _x_limits(
    points: Sequence[Point], ceilings: Ceilings, roofs: Sequence[float]
) -> tuple[float, float]:
    """So wide that the slopes show, and the names have room to the right of the points."""
    ridges = [rate / ceilings.dram for rate in roofs]
    low = min([ridges[0] / 20, *(point.intensity / 4 for point in points)])
    high = max(ridges + [point.intensity for point in points])
    return low, low * (high / low) ** (1 / _POINTS_UP_TO)


def _roofs(axes: Any, ceilings: Ceilings, roofs: Sequence[tuple[str, float]]) -> None:
    low, high = axes.get_xlim()
    bottom, _ = axes.get_ylim()
    _, peak = roofs[-1]
    for name, rate, style, below in (
        ("DRAM", ceilings.dram, "-", True),
        ("L2", ceilings.l2, "--", False),
    ):
        if rate is None:
            continue
        axes.plot([low, peak / rate], [low * rate, peak], style, color=_INK, linewidth=2.2)
        # Its name goes halfway up what is seen of it below the lowest roof.
        start = max(low, bottom / rate)
        at = math.sqrt(start * roofs[0][1] / rate)
        axes.annotate(
            f"{name}, {si(rate, 'B/s')}", (at, at * rate), (5, -5) if below else (-5, 5),
            textcoords="offset points", rotation=_slope(axes), rotation_mode="anchor",
            ha="center", va="top" if below else "bottom", fontsize=_SMALL, color=_INK,
        )  # fmt: skip
    for words, rate in roofs:
        start = rate / (ceilings.l2 or ceilings.dram)
        axes.plot([start, high], [rate, rate], color=_INK, linewidth=2.2)
        # Above the highest nothing is; below a lower one, left of the points, is little room.
        is_top = rate == peak
        between = " " if is_top else "\n"
        at, offset = (high, (-8, 5)) if is_top else (rate / ceilings.dram, (8, -5))
        axes.annotate(
            f"{words},{between}{si(rate, 'FLOP/s')}", (at, rate), offset,
            textcoords="offset points",
            ha="right" if is_top else "left", va="bottom" if is_top else "top", fontsize=_SMALL,
            color=_INK,
        )  # fmt: skip


def _slope(axes: Any) -> float:
    """The angle, on paper, of a line along which both axes grow alike."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    across = _AXES[2] * WIDTH / math.log(right / left)
    up = _AXES[3] * HEIGHT / math.log(top / bottom)
    return math.degrees(math.atan2(up, across))


def _points(axes: Any, points: Sequence[Point], peak: float) -> None:
    places = [axes.transData.transform((point.intensity, point.flops)) for point in points]
    pixel = 72 / DPI  # in points
    _, roof = axes.transData.transform((1, peak))
    # As far apart as there is room for, but no further than a line and a half.
    gap = min(1.5 * _SMALL / pixel, (roof - axes.bbox.y0) / (len(points) + 1))
    heights = spread([y for _, y in places], gap, axes.bbox.y0 + gap, roof - gap)
    right = max(x for x, _ in places)
    for index, (point, (x, y), height) in enumerate(zip(points, places, heights, strict=True)):
        colour = _COLOURS[index % len(_COLOURS)]
        if point.best:
            axes.plot(
                [point.intensity], [point.best], "_", color=colour, markersize=22,
                markeredgewidth=2.5, zorder=3,
            )  # fmt: skip
        axes.plot(
            [point.intensity], [point.flops], _MARKERS[index % len(_MARKERS)], color=colour,
            markersize=_size(index, len(points)), markeredgecolor="white", zorder=4,
        )  # fmt: skip
        axes.annotate(
            point.words,
            (point.intensity, point.flops),
            (36 + (right - x) * pixel, (height - y) * pixel),
            textcoords="offset points",
            va="center",
            fontsize=_SMALL,
            color=_INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
            arrowprops={
                "arrowstyle": "-", "relpos": (0, 0.5), "color": colour, "linewidth": 1.2,
                "shrinkA": 2, "shrinkB": 6,
            },
            zorder=5,
        )  # fmt: skip


def _size(index: int, points: int) -> float:
    """Later ones smaller: where two points meet, both show."""
    return 15 - 6 * index / max(points - 1, 1)


def spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """``heights`` moved apart to at least ``gap`` in their order, near to where they were.

    They stay between ``low`` and ``high`` where there is room for all.
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    # Groups that would meet are joined, and stand around the middle of their members.
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
    """Three digits, the prefix that fits, and the unit."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()
