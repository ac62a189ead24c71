"""The roofline as a figure: speed over operations a byte, below the roofs of a GPU.

The bytes are those of the memory that limits most of the kernels: DRAM, L2 or shared memory. Its
roof is the slope, and kernels that move different numbers of its bytes stand apart.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewise.lens.figures import (
    BLACK,
    BLUE,
    GREEN,
    INK,
    LARGE,
    LINE,
    ORANGE,
    PURPLE,
    SHIFT,
    SMALL,
    VERMILION,
    WIDTH,
    Name,
    check,
    name_all,
    new,
    panel,
    save,
    si,
    widest,
)
from tilewise.lens.roofline import WAVEFRONT_BYTES, Ceilings

__all__ = ["Point", "check", "draw", "figure", "intensities"]

MEMORIES = ("DRAM", "L2", "shared memory")
_LEFT, _BOTTOM = 0.95, 1.35  # inches beside the axes
_NARROWEST, _LOWEST = 2.7, 3.6  # inches of the axes
_DECADE = 10.0
_MARKS = {
    "DRAM": (GREEN, "^"), "L2": (PURPLE, "D"), "shared memory": (BLUE, "o"),
    "issue": (VERMILION, "s"), "arithmetic": (BLACK, "P"), "tensor cores": (ORANGE, "v"),
}  # fmt: skip
_UNKNOWN = (BLACK, "o")


@dataclass(frozen=True)
class Point:
    """A kernel in the figure.

    Attributes
    ----------
    name : str
    intensities : mapping of str to float
        The operations a byte for each of :data:`MEMORIES`; infinite if none of its bytes are moved.
    flops : float
        The operations a second.
    dtype : str
        The dtype whose roof it is under; for 16 bits, that of the tensor cores.
    binding : str
        The ceiling that sets the least time; empty if it is not to be shown.
    best : float or None
        The operations a second in the least time, if ``flops`` are others.
    """

    name: str
    intensities: Mapping[str, float]
    flops: float
    dtype: str = "float32"
    binding: str = ""
    best: float | None = None
    mark: tuple[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mark", _MARKS.get(self.binding, _UNKNOWN))

    @property
    def is_drawable(self) -> bool:
        """Whether it has a place on logarithmic axes."""
        return 0 < self.flops < math.inf and all(each > 0 for each in self.intensities.values())

    @property
    def words(self) -> str:
        """The name, and the share of what is possible, or the speed."""
        if self.best:
            return f"{self.name}, {self.flops / self.best:.0%}"
        return f"{self.name}, {si(self.flops, 'FLOP/s')}"


def intensities(work: Mapping[str, Any]) -> dict[str, float]:
    """Return the operations a byte for each memory; infinite if none of its bytes are moved.

    Parameters
    ----------
    work : mapping
        The work, as :meth:`tilewise.lens.roofline.Work.to_dict` returns it.
    """
    moved = (work["dram_bytes"], work["l2_bytes"], WAVEFRONT_BYTES * work["shared_wavefronts"])
    return {
        memory: work["flops"] / amount if amount else math.inf
        for memory, amount in zip(MEMORIES, moved, strict=True)
    }


def draw(points: Sequence[Point], ceilings: Ceilings, title: str, note: str, path: Path) -> None:
    """Draw kernels below the roofs of a GPU to ``path``, completely or not at all.

    Parameters
    ----------
    points : sequence of Point
        The kernels; those without operations are left out.
    ceilings : Ceilings
    title, note : str
        The product, and the meaning of the points.
    path : Path

    Raises
    ------
    ImportError, ValueError
        As in :func:`check`; or if there is no point to draw.
    OSError
        If the file can't be written.
    """
    check(path)
    save(figure(points, ceilings, title, note), path)


def figure(points: Sequence[Point], ceilings: Ceilings, title: str, note: str) -> Any:
    """Return the figure of :func:`draw`, of matplotlib."""
    points = [point for point in points if point.is_drawable]
    memory = memory_of(points, ceilings)
    if not any(point.intensities[memory] < math.inf for point in points):
        raise ValueError("no kernel does an operation on a byte of DRAM: there is nothing to draw")
    made = new(1.0)
    right = SHIFT + widest(made, [point.words for point in points]) + 0.1
    width = max(WIDTH, _LEFT + _NARROWEST + right)
    titles, notes = textwrap.wrap(title, 54), textwrap.wrap(note, 62)
    high = max(_LOWEST, LINE * (len(points) + 1))
    height = 0.2 + 0.24 * len(titles + notes) + high + _BOTTOM
    made.set_size_inches(width, height)
    axes = panel(made, _LEFT, _BOTTOM, width - _LEFT - right, high)
    axes.set_xscale("log")
    axes.set_yscale("log")
    rate = _rates(ceilings)[memory]
    assert rate is not None
    roofs = _roofs_of(points, ceilings)
    low, edge = _x_limits(points, memory, rate, [roof for _, roof in roofs])
    apart = [point for point in points if math.isinf(point.intensities[memory])]
    axes.set_xlim(low, edge * (4 * _DECADE if apart else 1.0))
    speeds = [roof for _, roof in roofs] + [point.flops for point in points]
    axes.set_ylim(min(speeds) / 3, max(speeds) * 4)
    axes.yaxis.set_major_formatter(lambda value, _: si(value, ""))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _ticks(axes, edge)
    axes.set_xlabel(f"FLOPs a byte of {memory}", fontsize=LARGE, color=INK)
    axes.set_ylabel("FLOP/s", fontsize=LARGE, color=INK)
    _slope(axes, memory, rate, roofs)
    _roofs(axes, rate, roofs)
    if apart:
        axes.axvspan(edge, axes.get_xlim()[1], color="#eeeeee", zorder=0)
        axes.annotate(
            f"no {memory}", (edge, 0.02), (8, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", rotation=90, va="bottom", fontsize=SMALL, color=INK,
        )  # fmt: skip
    _points(axes, points, memory, edge)
    for place, line in enumerate(titles + notes):
        made.text(
            0.1 / width, 1 - (0.1 + 0.24 * place) / height, line, va="top",
            fontsize=LARGE if place < len(titles) else SMALL, color=INK,
        )  # fmt: skip
    _key(made, points)
    return made


def memory_of(points: Sequence[Point], ceilings: Ceilings) -> str:
    """Return the memory that limits most of the points; DRAM if none does."""
    known = [memory for memory, rate in _rates(ceilings).items() if rate is not None]
    found = Counter(point.binding for point in points if point.binding in known)
    return max(known, key=lambda memory: found[memory])  # the first one of equals


def _rates(ceilings: Ceilings) -> dict[str, float | None]:
    return dict(zip(MEMORIES, (ceilings.dram, ceilings.l2, ceilings.shared), strict=True))


def _roofs_of(points: Sequence[Point], ceilings: Ceilings) -> list[tuple[str, float]]:
    """Return the roofs of the points, each in words and as operations a second, lowest first.

    If a GPU's tensor cores are not known, its float32 arithmetic takes their place.
    """
    found: dict[str, float] = {}
    for dtype in sorted({point.dtype for point in points}):
        unit, rate = ceilings.roof(dtype)
        if rate is not None:
            found[f"{unit} in {dtype}"] = rate
    found = found or {"arithmetic in float32": ceilings.float32}
    return sorted(found.items(), key=lambda roof: roof[1])


def _x_limits(
    points: Sequence[Point], memory: str, rate: float, roofs: Sequence[float]
) -> tuple[float, float]:
    """Return limits of x that show the slope and all points that have a place on the axis."""
    places = [each for point in points if (each := point.intensities[memory]) < math.inf]
    ridges = [roof / rate for roof in roofs]
    return min([ridges[0] / 30, *(x / 4 for x in places)]), 3 * max(ridges + places)


def _ticks(axes: Any, edge: float) -> None:
    """Remove the ticks where the axis has no numbers any more."""
    low, high = axes.get_xlim()
    if high > edge:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(edge)) + 1)
        axes.set_xticks([_DECADE**power for power in powers])
        axes.set_xticks([], minor=True)
        axes.set_xlim(low, high)


def _slope(axes: Any, memory: str, rate: float, roofs: Sequence[tuple[str, float]]) -> None:
    """Draw the memory's roof, up to the highest of the others."""
    (low, _), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    peak = roofs[-1][1]
    axes.plot([low, peak / rate], [low * rate, peak], color=INK, linewidth=2)
    # Its name goes halfway up the part of it that shows below the lowest roof.
    start = max(low, bottom / rate)
    at = math.sqrt(start * roofs[0][1] / rate)
    axes.annotate(
        f"{memory},\n{si(rate, 'B/s')}", (at, at * rate), (-6, 5), textcoords="offset points",
        rotation=_angle(axes), rotation_mode="anchor", ha="center", va="bottom", fontsize=SMALL,
        color=INK, linespacing=1.0,
    )  # fmt: skip


def _roofs(axes: Any, rate: float, roofs: Sequence[tuple[str, float]]) -> None:
    """Draw the roofs of the units, each from where the memory feeds it fast enough."""
    high = axes.get_xlim()[1]
    for words, roof in roofs:
        start, lines = roof / rate, words.replace(" in ", "\nin ", 1)
        axes.plot([start, high], [roof, roof], color=INK, linewidth=2)
        axes.annotate(
            f"{lines},\n{si(roof, 'FLOP/s')}", (start, roof), (-6, -2),
            textcoords="offset points", ha="right", va="bottom", fontsize=SMALL, color=INK,
            linespacing=1.0,
        )  # fmt: skip


def _angle(axes: Any) -> float:
    """Return the angle, on paper, of a line along which both axes grow alike."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    box = axes.get_window_extent()
    across, up = box.width / math.log(right / left), box.height / math.log(top / bottom)
    return math.degrees(math.atan2(up, across))


def _points(axes: Any, points: Sequence[Point], memory: str, edge: float) -> None:
    """Draw a mark for each kernel, a bar up to what its binding ceiling allows, and its name."""
    names = []
    for point in points:
        colour, marker = point.mark
        x = point.intensities[memory]
        x = math.sqrt(edge * axes.get_xlim()[1]) if math.isinf(x) else x
        if point.best:
            axes.plot([x], [point.best], "_", color=colour, markersize=12, markeredgewidth=2.2,
                      zorder=3)  # fmt: skip
        axes.plot([x], [point.flops], marker, color=colour, markersize=8, markeredgecolor="white",
                  markeredgewidth=0.8, zorder=4)  # fmt: skip
        names.append(Name(x, point.flops, point.words, INK))
    name_all(axes, names)


def _key(made: Any, points: Sequence[Point]) -> None:
    """Draw the key of the colours and marks: the ceilings that bind."""
    from matplotlib.lines import Line2D

    found = {point.binding: point.mark for point in points if point.binding}
    if not found:
        return
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=8, label=binding)
        for binding, (colour, marker) in found.items()
    ]
    made.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=3, fontsize=SMALL,
        frameon=False, title="Bound by", title_fontsize=SMALL, alignment="left",
        handletextpad=0.2, columnspacing=1.0,
    )  # fmt: skip
