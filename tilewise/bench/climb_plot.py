"""The climb as one figure: how much each rung gets out of the unit that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tilewise.bench.climb import (
    MULTIPLY_ADDS,
    OURS,
    VENDOR,
    Point,
    climbed,
    label,
    main_size,
    row_of,
)
from tilewise.lens import figures
from tilewise.lens.figures import HALF, INK, LARGE, REAL, SMALL, check, new, panel, save, si
from tilewise.precision import HALVES

__all__ = ["check", "draw"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 1.75, 0.15, 0.75, 0.75  # inches beside the axes
_ROW = 0.27  # inches
_GAP = 1.3  # rows between those of one unit and of the next, for the words on it
_MOST = 128  # percent: to the right of 100 is room for numbers
_RATIO = {"color": figures.VENDOR, "linestyle": "--", "linewidth": 1.6}


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw the rungs of a record, from the lowest to the fastest product, whole or not at all.

    A bar is a rung's share of what the unit that computes it can do at most: the FP32 or FP64
    units, or the tensor cores. A dashed line is the share of the vendor's product of the same dtype
    and size, of the same unit.

    Parameters
    ----------
    record : mapping
        The record of :func:`tilewise.bench.rungs.run`.
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
    """Return the figure of :func:`draw`, of matplotlib."""
    points = climbed(record)
    if not points:
        raise ValueError("there is nothing to draw in the record: no kernel was timed")
    groups = [list(group) for _, group in _units(points)]
    rows = len(points) + _GAP * len(groups)
    made = new(_TOP + _ROW * rows + _BOTTOM)
    across = figures.WIDTH - _LEFT - _RIGHT
    axes = panel(made, _LEFT, _BOTTOM, across, _ROW * rows)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, _MOST)
    axes.set_ylim(0, rows)
    axes.set_xticks(range(0, 101, 20), [f"{share} %" for share in range(0, 101, 20)])
    axes.set_xlabel("of what the unit in use can do", fontsize=LARGE, color=INK)
    n = main_size(record)
    bottom, ticks = 0.0, []
    for group in groups:
        for place, point in enumerate(group):
            _bar(axes, point, bottom + place + 0.5, n)
            ticks.append((bottom + place + 0.5, label(point.kernel)))
        _vendor(axes, record, group, bottom)
        bottom += len(group) + _GAP
        _head(axes, record, group[0], bottom - _GAP / 2)
    axes.set_yticks(*zip(*ticks, strict=True))
    axes.tick_params(axis="y", length=0)
    machine = str(record["machine"]["gpu"]).partition(",")[0]
    title = f"C = A·B, m = n = k = {n:,}, {machine}"
    corner = {"x": 0.1 / figures.WIDTH, "ha": "left", "va": "top"}
    made.suptitle(title, y=1 - 0.1 / made.get_size_inches()[1], fontsize=LARGE, color=INK, **corner)
    made.text(
        y=1 - 0.4 / made.get_size_inches()[1], fontsize=SMALL, color=INK, **corner,
        s="Bars: each rung. Dashed: the vendor's product, same dtype and size.",
    )  # fmt: skip
    return made


def _units(points: Sequence[Point]) -> Iterator[tuple[Any, Iterator[Point]]]:
    """Yield runs of neighbouring points that one unit computes in one dtype."""
    return groupby(points, lambda point: (point.dtype, point.row["unit"]))


def unit_name(dtype: str, unit: str) -> str:
    """Return a unit's name: ``"FP32 units"``, or ``"tensor cores"``."""
    if unit != MULTIPLY_ADDS:
        return unit
    return {"float32": "FP32 units", "float64": "FP64 units"}.get(dtype, unit)


def _bar(axes: Any, point: Point, height: float, n: int) -> None:
    """Draw a rung's share and its speed; without a ceiling, its speed alone.

    Its size is written if it differs from ``n``.
    """
    colour = HALF if point.dtype in HALVES else REAL
    if point.kernel == OURS:
        colour = figures.OURS
    share = point.row["share"] or 0.0
    axes.barh(height, 100 * share, height=0.66, color=colour, zorder=2)
    told = si(1e12 * point.row["tflops"], "FLOP/s")
    told += "" if point.n == n else f", at {point.n:,}"
    inside = share > 0.4  # there is room in the bar
    axes.annotate(
        told, (100 * share, height), (-5 if inside else 5, 0), textcoords="offset points",
        ha="right" if inside else "left", va="center_baseline", fontsize=SMALL,
        color="white" if inside else INK, weight="bold" if inside else "normal", zorder=4,
        bbox=None if inside else {"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def _vendor(axes: Any, record: Mapping[str, Any], group: Sequence[Point], bottom: float) -> None:
    """Draw the vendor's product beside the rungs timed at the size that most were timed at."""
    n = main_size(record)
    places = [place for place, point in enumerate(group) if point.n == n]
    dtype, unit = group[0].dtype, group[0].row["unit"]
    vendor, ceiling = row_of(record, VENDOR, n, dtype), record["arithmetic"][dtype].get(unit)
    if places and vendor is not None and ceiling:
        share = 100 * 1e12 * vendor["tflops"] / ceiling
        axes.plot([share] * 2, [bottom + places[0], bottom + places[-1] + 1], zorder=3, **_RATIO)


def _head(axes: Any, record: Mapping[str, Any], point: Point, height: float) -> None:
    """Write above the bars of a unit which speed 100 % stands for."""
    ceiling = record["arithmetic"][point.dtype].get(point.row["unit"])
    unit = unit_name(point.dtype, point.row["unit"])
    told = f"{point.dtype}, by {unit}"
    if ceiling:
        told += f": 100 % is {si(ceiling, 'FLOP/s')}"
        axes.axvline(100, color=figures.GREY, linewidth=1, zorder=1)
    axes.text(
        1, height, told, fontsize=SMALL, weight="bold", color=INK, va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, zorder=4,
    )  # fmt: skip
