"""The emulator's counters beside the hardware's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console
from tilewise.lens.metrics import AS_PTX, EXACT
from tilewise.shown import number, plural

if TYPE_CHECKING:
    from tilewise.lens.compare import Row


def hardware(rows: Sequence[Row], kernel: str = "") -> None:
    """Print a row for each counter, then Nsight Compute's names of those that differ.

    Parameters
    ----------
    rows : sequence of Row
        The rows of :func:`tilewise.lens.compare.compare`. Rows with 0 on both sides are left out.
    kernel : str
        The name of the kernel, if it is to be printed.
    """
    out = console()
    if kernel:
        out.print(Text(f"{kernel}, counted by the emulator and by the hardware:", style="bold"))
    shown = [row for row in rows if row.emulator or row.hardware]
    if not shown:
        out.print("Neither the emulator nor the hardware counted anything.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("counter", no_wrap=True)
    for heading in ("emulator", "hardware"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in shown:
        counts = number(row.emulator), number(row.hardware)
        table.add_row(row.name.replace("_", " "), *counts, _verdict(row))
    out.print(table)
    if len(shown) < len(rows):
        out.print(f"{plural(len(rows) - len(shown), 'counter')} more: 0 on both sides")
    different = [row for row in shown if not row.equal]
    if different:
        out.print()
        out.print("What differs, by Nsight Compute's names:")
        for row in different:
            out.print(f"  {row.name.replace('_', ' ')}")
            out.print("".join(f"    {metric}\n" for metric in row.metric.split(" + ")), end="")
    if any(row.name in AS_PTX for row in different):
        out.print(
            "The emulator counts instructions as the PTX has them, and the hardware as ptxas made "
            "them: there the two may differ."
        )


def _verdict(row: Row) -> Text:
    if row.equal:
        return Text("equal", style="green")
    is_exact = row.name in EXACT
    return Text("differs", style="bold red" if is_exact else "yellow")
