"""The figure: speed over size, of tilewise, its rival and the ladder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.bench.climb import label, row_of
from tilewise.bench.suites import SQUARES
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.figures import (
    GREY,
    HALF,
    INK,
    LARGE,
    LINE,
    OURS,
    REAL,
    SMALL,
    VENDOR,
    WIDTH,
    Name,
    check,
    name_all,
    new,
    panel,
    save,
)

__all__ = ["check", "draw"]

_LEFT, _RIGHT = 0.75, 2.05  # inches beside the axes: for their numbers, and for names
_TOP, _BETWEEN, _BOTTOM = 0.75, 1.25, 0.6  # inches above, between and below the panels
_HEIGHT = 2.6  # inches, of the panel of tilewise and its rival
_DTYPES = ("float32", "bfloat16")  # those in which a rung is drawn, the first that it takes


def draw(record: Mapping[str, Any], path: Path, climb: Mapping[str, Any] | None = None) -> None:
    """Draw the squares of a record to ``path``, completely or not at all.

    The upper panel has tilewise, the rival and the ceiling of the unit that computes; the lower
    one, if there is a record of the climb, the whole ladder on a logarithmic scale.

    Parameters
    ----------
    record : mapping
        The record of :func:`tilewise.bench.record.run`, with the suite ``square``.
    path : Path
    climb : mapping, optional
        The record of :func:`tilewise.bench.rungs.run`: each rung in float32, or in bfloat16.

    Raises
    ------
    ImportError, ValueError
        As :func:`check`; or if the record has no squares.
    OSError
        If the file can't be written.
    """
    check(path)
    save(figure(record, climb), path)


def figure(record: Mapping[str, Any], climb: Mapping[str, Any] | None = None) -> Any:
    """Return the figure of :func:`draw`, of matplotlib."""
    rows = {row["n"]: row for row in record["rows"] if row["suite"] == "square" and "ratio" in row}
    sizes = [n for n in SQUARES if n in rows]
    if not sizes:
        raise ValueError("there are no squares to draw in the record: measure the suite square")
    lines = {name: [(n, rows[n]["tflops"][name]) for n in sizes] for name in ("ours", "torch")}
    below = _rungs(climb) if climb is not None else {}
    ladder = (len(below) + 2) * LINE  # a name a line, and those of tilewise and its rival
    height = _TOP + _HEIGHT + _BOTTOM + (_BETWEEN + ladder if below else 0)
    made = new(height)
    bottom = height - _TOP - _HEIGHT
    across = WIDTH - _LEFT - _RIGHT
    first = panel(made, _LEFT, bottom, across, _HEIGHT)
    _speeds(first, record, lines)
    if below:
        _ladder(panel(made, _LEFT, _BOTTOM, across, ladder), record, lines, below)
    return made


def _speeds(axes: Any, record: Mapping[str, Any], lines: Mapping[str, Any]) -> None:
    """Draw tilewise and its rival to scale, below the ceiling."""
    names = _draw_lines(axes, lines)
    _sizes(axes, sorted({n for line in lines.values() for n, _ in line}))
    ceiling = record["ceilings"]["tflops"]
    speeds = [speed for line in lines.values() for _, speed in line]
    axes.set_ylim(0, 1.08 * max([*speeds, ceiling or 0.0]))
    if ceiling is not None:
        axes.axhline(ceiling, color=GREY, linestyle=":", linewidth=1.8)
        unit = "FP32 units" if record["dtype"] == "float32" else "tensor cores"
        axes.annotate(
            f"{unit} alone, {ceiling:,.0f}", (0.02, ceiling), (0, -4), va="top",
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", fontsize=SMALL,
            color=GREY,
        )  # fmt: skip
    title = f"C = A·B in {record['dtype']}, {_machine(record)}"
    axes.set_title(f"{title}\nTFLOP/s", fontsize=LARGE, loc="left", x=-0.12, color=INK)
    name_all(axes, names)


def _draw_lines(axes: Any, lines: Mapping[str, Any]) -> list[Name]:
    found = []
    for name, words, colour, style in (
        ("ours", "tilewise", OURS, {"linestyle": "-", "marker": "o", "zorder": 4}),
        ("torch", "torch", VENDOR, {"linestyle": "--", "zorder": 5}),
    ):
        axes.plot(*zip(*lines[name], strict=True), color=colour, linewidth=2.2, markersize=5,
                  **style)  # fmt: skip
        x, speed = lines[name][-1]
        found.append(Name(x, speed, f"{words}, {speed:.0f}", colour, is_bold=True))
    return found


def _sizes(axes: Any, sizes: list[int]) -> None:
    """Draw the axis of sizes: each has a tick, and as many as fit have a number."""
    axes.set_xscale("log", base=2)
    last = len(sizes) - 1
    axes.set_xticks(
        sizes, [f"{n:,}" if (last - place) % 2 == 0 else "" for place, n in enumerate(sizes)]
    )
    axes.minorticks_off()
    axes.set_xlabel("m = n = k", fontsize=SMALL, color=INK)


def _ladder(
    axes: Any, record: Mapping[str, Any], lines: Mapping[str, Any], below: Mapping[str, Any]
) -> None:
    """Draw every rung, and above them tilewise and its rival again."""
    names = []
    for kernel, (dtype, line) in below.items():
        colour = HALF if dtype == "bfloat16" else REAL
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.3, marker="o", markersize=3)
        x, speed = line[-1]
        names.append(Name(x, speed, label(kernel), colour))
    names += _draw_lines(axes, lines)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    points = [line for _, line in below.values()] + list(lines.values())
    _sizes(axes, sorted({n for line in points for n, _ in line}))
    title = "And the ladder, logarithmic:\nblue in float32, green in bfloat16"
    axes.set_title(title, fontsize=LARGE, loc="left", x=-0.12, color=INK)
    name_all(axes, names)


def _rungs(climb: Mapping[str, Any]) -> dict[str, tuple[str, list[tuple[int, float]]]]:
    """Return each rung's dtype, and its sizes and speeds; rungs without any are left out."""
    found = {}
    for rung in RUNGS:
        dtype = next((each for each in _DTYPES if each in rung.dtypes), None)
        rows = [row_of(climb, rung.name, n, dtype) for n in climb["sizes"]] if dtype else []
        line = [(row["n"], row["tflops"]) for row in rows if row is not None]
        if dtype and line:
            found[rung.name] = (dtype, line)
    return found


def _machine(record: Mapping[str, Any]) -> str:
    return str(record["machine"]["gpu"]).split(",")[0]
