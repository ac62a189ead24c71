"""The climb as one figure: each rung's speed, and its shares of what could be reached."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tilewise.bench.climb import OURS, VENDOR, Point, climbed, label, main_size, row_of
from tilewise.lens.roofline_plot import DPI, check, save, si
from tilewise.precision import HALVES

__all__ = ["check", "draw"]

_WIDTH, _HEIGHT_A_RUNG, _MARGINS = 12.8, 0.36, 1.9  # inches
_SMALL, _LARGE = 11, 13
_INK, _GRID = "#222222", "#dddddd"
_REAL, _HALF, _OURS = "#30638e", "#2a9d8f", "#d1495b"
_OF_VENDOR: dict[str, Any] = {"color": "#000000", "linestyle": "--", "linewidth": 1.8}
_OF_CEILING: dict[str, Any] = {"color": "#777777", "linestyle": ":", "linewidth": 2.4}
_RATIO: dict[str, Any] = {
    "marker": "D", "color": "white", "markeredgecolor": "#000000", "markersize": 6,
    "markeredgewidth": 1.5,
}  # fmt: skip


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw the rungs of a record, from the lowest to the fastest product, whole or not at all.

    Left is the speed of each, logarithmic, beside the vendor's product of the same dtype and the
    ceiling of the unit that it computes by; right are its shares of both.

    Parameters
    ----------
    record : mapping
        Of :func:`tilewise.bench.rungs.run`.
    path : Path

    Raises
    ------
    ImportError, ValueError
        As :func:`check`; or if nothing was timed.
    OSError
        If the file can't be written.
    """
    check(path)
    save(figure(record), path)


def figure(record: Mapping[str, Any]) -> Any:
    """The figure of :func:`draw`, of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = climbed(record)
    if not points:
        raise ValueError("there is nothing to draw in the record: no kernel was timed")
    size = (_WIDTH, _MARGINS + _HEIGHT_A_RUNG * len(points))
    made = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(made)
    speeds, shares = made.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    n = main_size(record)
    machine = str(record["machine"]["gpu"]).partition(",")[0]
    made.suptitle(f"C = A·B, m = n = k = {n:,}, {machine}", fontsize=_LARGE + 3, color=_INK)
    _speeds(speeds, record, points)
    _shares(shares, points)
    speeds.set_yticks(range(len(points)), [_name(point, n) for point in points])
    speeds.set_ylim(-0.7, len(points) - 0.3)
    for axes in (speeds, shares):
        axes.tick_params(labelsize=_SMALL)
        axes.grid(color=_GRID, axis="x")
        axes.set_axisbelow(True)
    made.legend(handles=_legend(points), fontsize=_SMALL, loc="outside lower center", ncols=3)
    return made


def _legend(points: Sequence[Point]) -> list[Any]:
    """What the colours and the marks mean, each once."""
    from matplotlib.lines import Line2D

    found: dict[str, str] = {}
    for point in points:
        what = "tilewise.matmul" if point.kernel == OURS else "a rung"
        found[f"{what} in {point.dtype}"] = _colour(point)
    marks = [
        Line2D([], [], color=colour, marker="o", linewidth=6, solid_capstyle="butt", label=words)
        for words, colour in found.items()
    ]
    return [
        *marks,
        Line2D([], [], label="the vendor's product in that dtype", **_OF_VENDOR),
        Line2D([], [], label="the ceiling of the unit that computes it", **_OF_CEILING),
    ]


def _name(point: Point, n: int) -> str:
    """A rung with its number; and the size, where it is another than the others'."""
    return label(point.kernel) + ("" if point.n == n else f" (at {point.n:,})")


def _colour(point: Point) -> str:
    if point.kernel == OURS:
        return _OURS
    return _HALF if point.dtype in HALVES else _REAL


def _runs(points: Sequence[Point]) -> Iterator[tuple[Any, int, int]]:
    """Neighbours of one dtype, unit and size, and the first and the last of their places."""
    whole = enumerate(points)
    for key, found in groupby(whole, lambda at: (at[1].dtype, at[1].row["unit"], at[1].n)):
        places = [place for place, _ in found]
        yield key, places[0], places[-1]


def _speeds(axes: Any, record: Mapping[str, Any], points: Sequence[Point]) -> None:
    """A line a rung up to its speed, beside what it is held against."""
    tflops = [point.row["tflops"] for point in points]
    lowest = 10.0 ** (math.ceil(math.log10(min(tflops))) - 1)  # a power of ten below all
    axes.set_xscale("log")
    for place, point in enumerate(points):
        axes.plot(
            [lowest, point.row["tflops"]], [place] * 2, color=_colour(point), linewidth=6,
            marker="o", markevery=[1], markersize=9, solid_capstyle="butt",
        )  # fmt: skip
        # All in one column: elsewhere the lines of the ceilings would cross them.
        axes.annotate(
            si(1e12 * point.row["tflops"], "FLOP/s"), (1, place), (6, 0),
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
            fontsize=_SMALL, color=_INK,
        )  # fmt: skip
    highest = max(tflops)
    for (dtype, unit, n), first, last in _runs(points):
        ends = [first - 0.5, last + 0.5]
        vendor, ceiling = row_of(record, VENDOR, n, dtype), record["arithmetic"][dtype].get(unit)
        if vendor is not None:
            axes.plot([vendor["tflops"]] * 2, ends, zorder=3, **_OF_VENDOR)
            highest = max(highest, vendor["tflops"])
        if ceiling:
            axes.plot([1e-12 * ceiling] * 2, ends, zorder=3, **_OF_CEILING)
            highest = max(highest, 1e-12 * ceiling)
    axes.set_xlim(lowest, 2 * highest)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("TFLOP/s, logarithmic", fontsize=_LARGE)
    top = points[-1]
    if top.vendor is not None:
        whole = top.vendor["tflops"]
        share = axes.secondary_xaxis(
            "top", functions=(lambda x: 100 * x / whole, lambda part: part * whole / 100)
        )
        powers = range(math.ceil(math.log10(100 * lowest / whole)), 3)
        share.set_xticks([10.0**power for power in powers if power % 2 == 0])
        share.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        share.set_xlabel(f"of the vendor's product in {top.dtype}", fontsize=_LARGE)
        share.tick_params(labelsize=_SMALL)


def _shares(axes: Any, points: Sequence[Point]) -> None:
    """Of the unit's ceiling a bar, of the vendor's product of the same dtype and size a mark."""
    for place, point in enumerate(points):
        share, ratio = point.row["share"], point.row["ratio"]
        if share is not None:
            axes.barh(place, 100 * share, height=0.6, color=_colour(point))
        if ratio is not None:
            axes.plot([100 * ratio], [place], linestyle="none", zorder=4, **_RATIO)
    axes.axvline(100, color=_INK, linewidth=1)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.set_xlabel("bars: of that ceiling,\ndiamonds: of the vendor's speed", fontsize=_LARGE)
