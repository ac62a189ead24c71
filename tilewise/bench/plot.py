"""The figure: speed over size, of tilewise, its rival and the ladder."""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from tilewise.bench.climb import label, row_of
from tilewise.bench.suites import SQUARES
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.roofline_plot import check
from tilewise.provenance import write_whole

__all__ = ["check", "draw"]

_OURS, _RIVAL, _CEILING = "#d1495b", "#30638e", "#555555"
_LADDER = (
    "#8c8c8c", "#b08968", "#7f9c5b", "#2a9d8f", "#b9a3e3", "#e09f3e", "#3d2c8d", "#0b6e4f",
    "#c1666b", "#4281a4", "#d4b483", "#48a9a6", "#7a306c",
)  # fmt: skip
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
        Of :func:`tilewise.bench.rungs.run`, with float32.

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
        right.set_title("The same, logarithmic, and the ladder in fp32", fontsize=14)
    right.set_yscale("log")
    image = io.BytesIO()
    # No date in it: the same record gives the same file.
    without = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    figure.savefig(image, format=path.suffix.lower()[1:], dpi=110, metadata=without)
    write_whole(path, image.getvalue())


def _rungs(axes: Any, climb: Mapping[str, Any]) -> None:
    # Later ones thinner: where two rungs are as fast, both show.
    for rung, colour in zip(RUNGS, cycle(_LADDER), strict=False):
        found = [row_of(climb, rung.name, n, "float32") for n in climb["sizes"] if n in SQUARES]
        points = [(row["n"], row["tflops"]) for row in found if row is not None]
        if points:
            axes.plot(
                *zip(*points, strict=True), color=colour, marker=".", markersize=9,
                linewidth=max(3.6 - 0.35 * rung.number, 1), label=label(rung.name),
            )  # fmt: skip
    axes.legend(fontsize=12, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.08))


def _machine(record: Mapping[str, Any]) -> str:
    return str(record["machine"]["gpu"]).split(",")[0]
