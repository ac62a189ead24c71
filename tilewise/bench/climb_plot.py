"""The figure of ``tilewise climb``: GFLOP/s over size, a line a rung and one for the vendor."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.bench.climb import OURS, VENDOR, label, names, row_of
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.roofline_plot import check
from tilewise.provenance import write_whole

__all__ = ["check", "draw"]

_WIDTH, _HEIGHT, _DPI = 12.8, 7.2, 150  # inches of one dtype: 1920 x 1080
_INK, _GRID = "#222222", "#dddddd"
_VENDOR, _OURS, _CEILING = "#000000", "#d1495b", "#555555"


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw a record to ``path``, whole or not at all; a panel a dtype.

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
    from matplotlib import rc_context

    made = figure(record)
    image = io.BytesIO()
    # No date in it, and no number drawn by lot: the same record gives the same file.
    without = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    with rc_context({"svg.hashsalt": "tilewise"}):
        made.savefig(image, format=path.suffix.lower()[1:], dpi=_DPI, metadata=without)
    write_whole(path, image.getvalue())


def figure(record: Mapping[str, Any]) -> Any:
    """The figure of :func:`draw`, of matplotlib: a row a dtype, to scale and logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    dtypes = record["dtypes"]
    made = Figure(figsize=(_WIDTH, _HEIGHT * len(dtypes)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(made)
    machine = str(record["machine"]["gpu"]).partition(",")[0]
    for place, (dtype, row) in enumerate(zip(dtypes, made.subfigures(len(dtypes), 1, squeeze=False)
                                             [:, 0], strict=True)):  # fmt: skip
        left, right = row.subplots(1, 2)
        row.suptitle(f"C = A·B in {dtype}, {machine}", fontsize=17, color=_INK)
        for axes in (left, right):
            _lines(axes, record, dtype)
        _to_scale(left, record["ceilings"].get(dtype))
        _logarithmic(right)
        handles, labels = left.get_legend_handles_labels()
        if not handles and not place:
            raise ValueError("there is nothing to draw in the record: no kernel was timed")
        # The last rung on top, as on a ladder and as in the figure.
        row.legend(handles[::-1], labels[::-1], fontsize=12, loc="outside lower center", ncols=5)
    return made


def _lines(axes: Any, record: Mapping[str, Any], dtype: str) -> None:
    """A line a kernel, and the ceiling."""
    if ceiling := record["ceilings"].get(dtype):
        axes.axhline(ceiling * 1e-9, color=_CEILING, linestyle=":", linewidth=2)
    for kernel in names(record):
        found = [row_of(record, kernel, n, dtype) for n in record["sizes"]]
        points = [(row["n"], 1e3 * row["tflops"]) for row in found if row is not None]
        if points:
            axes.plot(*zip(*points, strict=True), label=label(kernel), **_style(kernel))
    axes.set_xscale("log", base=2)
    axes.set_xticks(record["sizes"], [str(n) for n in record["sizes"]])
    axes.minorticks_off()
    axes.tick_params(labelsize=12)
    axes.set_xlabel("m = n = k", fontsize=14)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)


def _to_scale(axes: Any, flops: float | None) -> None:
    ceiling = (flops or 0.0) * 1e-9
    # The vendor's may be above it: float64 has tensor cores.
    highest = max([ceiling, *(max(line.get_ydata()) for line in axes.get_lines())])
    axes.set_ylim(0, 1.08 * highest)
    axes.set_ylabel("GFLOP/s", fontsize=14)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if not ceiling:  # of tensor cores it is known of some GPUs
        return
    axes.annotate(
        f"arithmetic, {ceiling:,.0f}", (0.02, ceiling), (0, 4), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", fontsize=12, color=_CEILING,
    )  # fmt: skip
    shares = axes.secondary_yaxis(
        "right", functions=(lambda y: 100 * y / ceiling, lambda share: share * ceiling / 100)
    )
    shares.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    shares.tick_params(labelsize=12)


def _logarithmic(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_title("the same, logarithmic", fontsize=13, color=_INK)


def _style(kernel: str) -> dict[str, Any]:
    """Rungs from dark to light, the vendor's line and ours over them."""
    from matplotlib import colormaps

    if kernel == VENDOR:
        return {"color": _VENDOR, "linestyle": "--", "linewidth": 3, "zorder": 5}
    if kernel == OURS:
        return {"color": _OURS, "marker": "o", "linewidth": 2.5, "markersize": 7, "zorder": 4}
    place = [each.name for each in RUNGS].index(kernel)
    colour = colormaps["viridis"](0.92 * place / max(len(RUNGS) - 1, 1))
    # Later ones thinner: where two rungs are as fast, both show.
    width = 4 - 2.2 * place / max(len(RUNGS) - 1, 1)
    marker = "osD^vP"[place % 6]
    return {"color": colour, "marker": marker, "linewidth": width, "markersize": 6}
