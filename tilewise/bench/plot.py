"""The figure: speed over size, of tilewise, its rival and the ladder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.bench.climb import label, row_of
from tilewise.bench.suites import SQUARES
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.roofline_plot import check, save

__all__ = ["check", "draw"]

_OURS, _RIVAL, _CEILING = "#d1495b", "#30638e", "#555555"
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def draw(record: Mapping[str, Any], path: Path, climb: Mapping[str, Any] | None = None) -> None:
    """Draw the squares of a record to ``path``, whole or not at all.

    Left, tilewise, the rival and the tensor cores' ceiling; right, the same on a logarithmic scale,
    with the rungs of the ladder below them where there is a record of the climb.

    Parameters
    ----------
    record : mapping
        Of :func:`tilewise.bench.record.run`, with the suite ``square``.
    path : Path
    climb : mapping, optional
        Of :func:`tilewise.bench.rungs.run`: each rung of float32, and of bfloat16, where it has it.

    Raises
    ------
    ImportError, ValueError
        As :func:`check`; or if the record has no squares.
    OSError
        If the file can't be written.
    """
    check(path)
    rows = {row["n"]: row for row in record["rows"] if row["suite"] == "square" and "ratio" in row}
    sizes = [n for n in SQUARES if n in rows]
    if not sizes:
        raise ValueError("there are no squares to draw in the record: measure the suite square")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    half = _NAMES[record["dtype"]]
    ceiling = record["ceilings"]["tflops"]
    for axes in (left, right):
        if ceiling is not None:
            axes.axhline(ceiling, color=_CEILING, linestyle="--", linewidth=1.5)
        for name, words, style in (
            ("ours", f"tilewise.matmul, {half}", {"color": _OURS, "marker": "o", "zorder": 4}),
            ("torch", f"torch.matmul, {half}", {"color": _RIVAL, "marker": "s", "zorder": 3}),
        ):
            speeds = [rows[n]["tflops"][name] for n in sizes]
            axes.plot(sizes, speeds, linewidth=2.5, markersize=7, label=words, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(SQUARES, [str(n) for n in SQUARES])
        axes.tick_params(labelsize=12)
        axes.set_xlabel("m = n = k", fontsize=14)
        axes.grid(color="#dddddd")
        axes.set_axisbelow(True)
    left.set_ylabel("TFLOP/s", fontsize=14)
    left.set_ylim(bottom=0)
    left.set_title(_machine(record), fontsize=14)
    if ceiling is not None:
        limit = "arithmetic" if record["dtype"] == "float32" else "tensor cores"
        left.annotate(
            f"{limit} alone, {ceiling:.0f}", (SQUARES[0], ceiling), (0, -6),
            textcoords="offset points", va="top", fontsize=13, color=_CEILING,
        )  # fmt: skip
    left.legend(fontsize=13, loc="center left")
    right.set_title("The same, logarithmic", fontsize=14)
    if climb is not None:
        _rungs(right, climb)
        right.set_title("The same, logarithmic, and the ladder", fontsize=14)
    right.set_yscale("log")
    save(figure, path, dpi=110)


def _rungs(axes: Any, climb: Mapping[str, Any]) -> None:
    """A line a rung, in float32 or in bfloat16, from dark to light."""
    from matplotlib import colormaps

    for place, rung in enumerate(RUNGS):
        dtype = "float32" if "float32" in rung.dtypes else "bfloat16"
        found = [row_of(climb, rung.name, n, dtype) for n in climb["sizes"] if n in SQUARES]
        points = [(row["n"], row["tflops"]) for row in found if row is not None]
        if points:
            # Later ones thinner: where two rungs are as fast, both show.
            share = place / max(len(RUNGS) - 1, 1)
            axes.plot(
                *zip(*points, strict=True), color=colormaps["viridis"](0.95 * share),
                marker="osD^vP"[place % 6], markersize=4, linewidth=3 - 2 * share,
                label=f"{label(rung.name)}, {_NAMES[dtype]}",
            )  # fmt: skip
    axes.legend(fontsize=8.5, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 0.06))


def _machine(record: Mapping[str, Any]) -> str:
    return str(record["machine"]["gpu"]).split(",")[0]
