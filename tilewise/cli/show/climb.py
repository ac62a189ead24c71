"""The ladder's speed, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from tilewise.bench.climb import label, main_size, names, row_of
from tilewise.cli.show.console import console, giga, verdict
from tilewise.cli.told import error

_SIZES_A_TABLE = 7


def climb(record: Mapping[str, Any]) -> None:
    """Print GFLOP/s over size; then one size in full, odd sizes, and what was not run.

    Parameters
    ----------
    record : mapping
        The output of ``tilewise climb --json -``.
    """
    out = console()
    out.print(Text.assemble(("climb", "bold"), f": C = A·B, on {record['machine']['gpu']}"))
    out.print(f"ceilings from {record['ceilings']['source'].partition(';')[0]}", markup=False)
    n = main_size(record)
    for dtype in record["dtypes"]:
        out.print()
        out.print(f"{dtype}, GFLOP/s at m = n = k =", style="bold")
        for start in range(0, len(record["sizes"]), _SIZES_A_TABLE):
            out.print(_speeds(record, dtype, record["sizes"][start : start + _SIZES_A_TABLE]))
            out.print()
        rates = record["arithmetic"][dtype].items()
        told = [f"{rate * 1e-12:,.1f} TFLOP/s by {unit}" for unit, rate in rates if rate]
        most = " and ".join(told) or "a rate that is not known"
        out.print(f"{dtype} at {n:,}; the most is {most}", style="bold")
        out.print(_in_full(record, dtype, n))
        if any(row["dtype"] == dtype for row in record["edges"]):
            out.print()
            out.print(f"{dtype} at an odd size", style="bold")
            out.print(_edges(record, dtype))
    out.print()
    out.print("ratio: the vendor's time by this one's. share: of the most.")
    if any(len(rates) > 1 for rates in record["arithmetic"].values()):
        out.print("matmul and the vendor's product may take either unit: share is of the faster.")
    out.print("error: the norm of C - C64 by that of C64; then, that by the vendor's.")
    if any((row.get("share") or 0) > 1 for row in record["rows"]):
        out.print("More than 100 %: by tensor cores, whose most is not known here.")
    if record["edges"]:
        out.print("cost: of an operation at n, by that at the next multiple of the tile.")
    _skipped(record)
    for row in (*record["rows"], *record["edges"]):
        if not row.get("correct", True):
            why = row.get("failure", "a wrong result")
            error(f"{row['kernel']} at {row['n']:,} in {row['dtype']}: {why}")


def _speeds(record: Mapping[str, Any], dtype: str, sizes: list[int]) -> Table:
    table = _table("", *(f"{n:,}" for n in sizes))
    for kernel in names(record):
        cells: list[Text | str] = []
        for n in sizes:
            row = row_of(record, kernel, n, dtype)
            cells.append("" if row is None else giga(1e12 * row["tflops"]))
            if row is not None and not row["correct"]:
                cells[-1] = verdict(False)
        table.add_row(label(kernel), *cells)
    return table


def _in_full(record: Mapping[str, Any], dtype: str, n: int) -> Table:
    table = _table(
        "", "\nms", "\nTFLOP/s", "\nratio", "\nshare", "\nregisters", "\nerror", "by the\nvendor's"
    )
    taken = {row["kernel"]: row for row in record["kernels"] if row["dtype"] == dtype}
    for kernel in names(record):
        row = row_of(record, kernel, n, dtype)
        if row is None:
            continue
        ratio, error_ratio = row["ratio"], row["error_ratio"]
        table.add_row(
            label(kernel),
            f"{row['seconds'] * 1e3:,.4g}",
            f"{row['tflops']:.3g}",
            "" if ratio is None else f"{ratio:.3f}",
            "" if row["share"] is None else f"{row['share']:.1%}",
            str(taken[kernel]["registers"]) if kernel in taken else "",
            f"{row['error']:.2g}",
            "" if error_ratio is None else f"{error_ratio:.2f}",
        )
    return table


def _edges(record: Mapping[str, Any], dtype: str) -> Table:
    table = _table("", "n", "multiple", "µs at n", "µs at it", "cost")
    for row in record["edges"]:
        if row["dtype"] == dtype and "cost" in row:
            at_odd, at_multiple = (row["seconds"][name] * 1e6 for name in ("odd", "multiple"))
            cells = f"{at_odd:,.1f}", f"{at_multiple:,.1f}", f"{row['cost']:.3f}"
            table.add_row(label(row["kernel"]), f"{row['n']:,}", f"{row['multiple']:,}", *cells)
    return table


def _skipped(record: Mapping[str, Any]) -> None:
    """Print why rungs have no figure, each reason once for a rung and dtype, at the first size."""
    told: set[tuple[str, str]] = set()
    out = console()
    for row in record["rows"]:
        if "skipped" in row and (row["kernel"], row["dtype"]) not in told:
            told.add((row["kernel"], row["dtype"]))
            if len(told) == 1:
                out.print()
            name = f"{row['kernel']} is not run from {row['n']:,} on in {row['dtype']}"
            out.print(f"{name}: {row['skipped']}", markup=False)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
