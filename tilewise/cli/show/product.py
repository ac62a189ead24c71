"""Print the measurements of matmul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console, verdict
from tilewise.cli.told import error
from tilewise.shown import duration, number

if TYPE_CHECKING:
    from tilewise.tune import Tuned
    from tilewise.warm import Warmed


def bench(record: Mapping[str, Any]) -> None:
    """Print a row for each product, then each suite in two figures.

    Parameters
    ----------
    record : mapping
        The output of ``tilewise bench --json -``.
    """
    out = console()
    flops, rate = record["ceilings"]["tflops"], record["ceilings"]["gigabytes"]
    ceiling = "not known" if flops is None else f"{flops:.0f} TFLOP/s"
    out.print(f"bench: {record['dtype']}, on {record['machine']['gpu']}", style="bold")
    out.print(f"ceilings: tensor cores {ceiling}, memory {rate:,.0f} GB/s")
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("m x n x k", overflow="fold")
    table.add_column("", no_wrap=True)
    for heading in ("ours\nµs", "torch\nµs", "ours\nTFLOP/s", "\nratio", "\nshare"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in record["rows"]:
        table.add_row(row["name"], row["layout"], *_bench_cells(row))
    out.print(table)
    out.print()
    out.print(
        "ratio: torch's time by ours. share: of the speed at the nearer ceiling, c (compute) or m "
        "(memory)."
    )
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("suite")
    for heading in ("products", "mean ratio", "worst", "below 0.95"):
        table.add_column(heading, justify="right")
    table.add_column("at")
    for group in record["summaries"]:
        at = f"{group['name']} {group['layout']}"
        figures = f"{group['mean']:.3f}", f"{group['worst']:.3f}", str(group["below_95"])
        table.add_row(group["group"], number(group["products"]), *figures, at)
    out.print(table)
    for row in record["rows"]:
        if not row["correct"]:
            error(f"{row['name']} {row['layout']}: {row.get('failure', 'a wrong result')}")


def _bench_cells(row: Mapping[str, Any]) -> list[Text | str]:
    if "ratio" not in row:
        return [verdict(False)]
    microseconds = [f"{row['seconds'][name] * 1e6:,.1f}" for name in ("ours", "torch")]
    share = "" if row["share"] is None else f"{row['share']:.2f} {row['limit'][0]}"
    return [*microseconds, f"{row['tflops']['ours']:.1f}", f"{row['ratio']:.2f}", share]


def tuned(found: Tuned) -> None:
    """Print a row for each offer, fastest first, then what was kept."""
    from tilewise.explanation import title

    out = console()
    out.print(title(found.product), style="bold")
    out.print(f"on {found.chip.name}, {found.chip.multiprocessors} multiprocessors")
    base = found.chosen_seconds
    if found.rows:
        out.print()
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for heading in ("µs", "ratio"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("by", overflow="fold")
        for row in found.rows:
            mark = " (the model's choice)" if row.offer is found.chosen else ""
            cells = ["", ""]
            if row.seconds and base:
                cells = [f"{row.seconds * 1e6:,.2f}", f"{base / row.seconds:.3f}"]
            elif not row.correct:
                cells = ["WRONG", ""]
            table.add_row(*cells, f"{row.offer.words}{mark}")
        out.print(table)
        out.print()
        out.print("ratio: the model's choice's time by this one's.")
    if found.kept is not None:
        out.print(f"kept, and taken by matmul from now on: {found.kept.words}")
    if found.note:
        out.print(found.note)


def warmed(found: Warmed) -> None:
    """Print the number of kernels, the disk space, the time, and what went wrong."""
    out = console()
    out.print(found.title, style="bold")
    if found.why_arch:
        out.print(found.why_arch)
    out.print(
        f"{found.compiled:,} compiled in {duration(found.seconds)}, "
        f"{found.before:,} in the cache before"
    )
    out.print(f"{found.bytes / 2**20:.1f} MiB of kernels in {found.folder}", soft_wrap=True)
    for failure in found.failures:
        error(failure)
