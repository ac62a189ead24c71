"""A climb over sizes, as a figure: how much each rung gets out of its unit, a line each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.bench.climb import OURS, VENDOR, label, names, row_of
from tilewise.bench.climb_plot import unit_name
from tilewise.lens import figures
from tilewise.lens.figures import (
    HALF,
    INK,
    LARGE,
    LINE,
    REAL,
    SMALL,
    WIDTH,
    Name,
    check,
    name_all,
    new,
    panel,
    save,
    si,
)
from tilewise.precision import HALVES

__all__ = ["check", "draw"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 0.75, 1.95, 0.8, 0.65  # inches beside a panel
_LEAST = 2.4  # inches that a panel is high
_FULL = 1.05  # the top of an axis, as a multiple of 100 %
_STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1)))


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw a record to ``path``, completely or not at all, with one panel a dtype.

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
    """Return the figure of :func:`draw`, of matplotlib: shares of what the unit in use can do."""
    lines = {dtype: _lines(record, dtype) for dtype in record["dtypes"]}
    lines = {dtype: found for dtype, found in lines.items() if found}
    if not lines:
        raise ValueError("there is nothing to draw in the record: no kernel was timed")
    heights = [max(_LEAST, (len(found) + 1) * LINE) for found in lines.values()]
    height = sum(heights) + len(heights) * (_TOP + _BOTTOM)
    made = new(height)
    for (dtype, found), high in zip(lines.items(), heights, strict=True):
        height -= _TOP + high
        axes = panel(made, _LEFT, height, WIDTH - _LEFT - _RIGHT, high)
        _panel(axes, record, dtype, found)
        height -= _BOTTOM
    return made


def _lines(record: Mapping[str, Any], dtype: str) -> dict[str, list[tuple[int, float]]]:
    """Return each kernel's sizes and percentages of what its unit can do."""
    found = {}
    for kernel in names(record):
        rows = [row_of(record, kernel, n, dtype) for n in record["sizes"]]
        line = [(row["n"], _share(record, dtype, row)) for row in rows if row is not None]
        if line:
            found[kernel] = line
    return found


def _share(record: Mapping[str, Any], dtype: str, row: Mapping[str, Any]) -> float:
    """Return the percentage of the unit's ceiling, or of the fastest kernel if that is unknown."""
    ceiling = record["arithmetic"][dtype].get(row["unit"])
    whole: float = ceiling or 1e12 * max(
        each["tflops"] for each in record["rows"] if each["dtype"] == dtype and "tflops" in each
    )
    return 100 * 1e12 * float(row["tflops"]) / whole


def _panel(
    axes: Any, record: Mapping[str, Any], dtype: str, lines: Mapping[str, list[tuple[int, float]]]
) -> None:
    axes.set_xscale("log", base=2)
    sizes = record["sizes"]
    last = len(sizes) - 1
    axes.set_xticks(
        sizes, [f"{n:,}" if (last - place) % 2 == 0 else "" for place, n in enumerate(sizes)]
    )
    axes.minorticks_off()
    axes.set_xlabel("m = n = k", fontsize=SMALL, color=INK)
    rungs = [kernel for kernel in lines if kernel not in (OURS, VENDOR)]
    told = []
    for kernel, line in lines.items():
        colour = {OURS: figures.OURS, VENDOR: figures.VENDOR}.get(
            kernel, HALF if dtype in HALVES else REAL
        )
        is_rung = kernel in rungs
        style = _STYLES[rungs.index(kernel) % len(_STYLES)] if is_rung else "-"
        axes.plot(
            *zip(*line, strict=True), color=colour, zorder=3 if is_rung else 4,
            linestyle="--" if kernel == VENDOR else style, linewidth=1.4 if is_rung else 2.2,
            marker="" if kernel == VENDOR else "o", markersize=3 if is_rung else 5,
        )  # fmt: skip
        told.append(Name(*line[-1], label(kernel), colour, not is_rung))
    highest = max(share for line in lines.values() for _, share in line)
    axes.set_ylim(0, _FULL * max(100.0, highest))
    axes.set_yticks(range(0, 101, 20), [f"{share} %" for share in range(0, 101, 20)])
    machine = str(record["machine"]["gpu"]).partition(",")[0]
    whole = [
        f"{unit_name(dtype, unit)} {si(rate, 'FLOP/s')}"
        for unit, rate in record["arithmetic"][dtype].items() if rate
    ]  # fmt: skip
    told_whole = f"100 %: {', '.join(whole)}" if whole else "100 %: the fastest here"
    axes.set_title(
        f"C = A·B in {dtype}, {machine}\n{told_whole}", fontsize=LARGE, loc="left",
        x=-_LEFT / (WIDTH - _LEFT - _RIGHT) + 0.03, color=INK,
    )  # fmt: skip
    name_all(axes, told)
