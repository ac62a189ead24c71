"""A climb over sizes, as a figure: TFLOP/s, a line a rung and one for the vendor's product."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.bench.climb import MULTIPLY_ADDS, OURS, VENDOR, label, names, row_of
from tilewise.ladder.rungs import rungs_of
from tilewise.lens.roofline_plot import DPI, check, save

__all__ = ["check", "draw"]

_WIDTH, _HEIGHT = 12.8, 7.2  # inches of one dtype: 1920 x 1080
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
    save(figure(record), path)


def figure(record: Mapping[str, Any]) -> Any:
    """The figure of :func:`draw`, of matplotlib: a row a dtype, to scale and logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    dtypes = record["dtypes"]
    made = Figure(figsize=(_WIDTH, _HEIGHT * len(dtypes)), dpi=DPI, layout="constrained")
    FigureCanvasAgg(made)
    machine = str(record["machine"]["gpu"]).partition(",")[0]
    for place, (dtype, row) in enumerate(zip(dtypes, made.subfigures(len(dtypes), 1, squeeze=False)
                                             [:, 0], strict=True)):  # fmt: skip
        left, right = row.subplots(1, 2)
        row.suptitle(f"C = A·B in {dtype}, {machine}", fontsize=17, color=_INK)
        for axes in (left, right):
            _lines(axes, record, dtype)
        _to_scale(left, record["arithmetic"][dtype])
        _logarithmic(right)
        handles, labels = left.get_legend_handles_labels()
        if not handles and not place:
            raise ValueError("there is nothing to draw in the record: no kernel was timed")
        # The last rung on top, as on a ladder and as in the figure.
        row.legend(handles[::-1], labels[::-1], fontsize=12, loc="outside lower center", ncols=5)
    return made


def _lines(axes: Any, record: Mapping[str, Any], dtype: str) -> None:
    """A line a kernel, and the ceilings."""
    for ceiling in filter(None, record["arithmetic"][dtype].values()):
        axes.axhline(ceiling * 1e-12, color=_CEILING, linestyle=":", linewidth=2)
    for kernel in names(record):
        found = [row_of(record, kernel, n, dtype) for n in record["sizes"]]
        points = [(row["n"], row["tflops"]) for row in found if row is not None]
        if points:
            axes.plot(*zip(*points, strict=True), label=label(kernel), **_style(kernel, dtype))
    axes.set_xscale("log", base=2)
    axes.set_xticks(record["sizes"], [str(n) for n in record["sizes"]])
    axes.minorticks_off()
    axes.tick_params(labelsize=12)
    axes.set_xlabel("m = n = k", fontsize=14)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)


def _to_scale(axes: Any, arithmetic: Mapping[str, float | None]) -> None:
    ceilings = {unit: rate * 1e-12 for unit, rate in arithmetic.items() if rate}
    # The vendor's may be above one: float64 has tensor cores, whose ceiling may not be known.
    highest = max([*ceilings.values(), *(max(line.get_ydata()) for line in axes.get_lines())])
    axes.set_ylim(0, 1.08 * highest)
    axes.set_ylabel("TFLOP/s", fontsize=14)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for unit, ceiling in ceilings.items():
        axes.annotate(
            f"{unit}, {ceiling:,.1f}", (0.02, ceiling), (0, 4),
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", fontsize=12,
            color=_CEILING,
        )  # fmt: skip
    if not ceilings:  # of tensor cores it is known of some GPUs
        return
    whole = ceilings.get(MULTIPLY_ADDS) or max(ceilings.values())  # what the rungs compute by
    shares = axes.secondary_yaxis(
        "right", functions=(lambda y: 100 * y / whole, lambda share: share * whole / 100)
    )
    shares.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    shares.tick_params(labelsize=12)


def _logarithmic(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_title("the same, logarithmic", fontsize=13, color=_INK)


def _style(kernel: str, dtype: str) -> dict[str, Any]:
    """The rungs of a dtype from dark to light, the vendor's line and ours over them."""
    from matplotlib import colormaps

    if kernel == VENDOR:
        return {"color": _VENDOR, "linestyle": "--", "linewidth": 3, "zorder": 5}
    if kernel == OURS:
        return {"color": _OURS, "marker": "o", "linewidth": 2.5, "markersize": 7, "zorder": 4}
    rungs = [each.name for each in rungs_of(dtype)]
    place = rungs.index(kernel) / max(len(rungs) - 1, 1)
    # Later ones thinner: where two rungs are as fast, both show.
    return {
        "color": colormaps["viridis"](0.92 * place), "marker": "osD^vP"[rungs.index(kernel) % 6],
        "linewidth": 4 - 2.2 * place, "markersize": 6,
    }  # fmt: skip
