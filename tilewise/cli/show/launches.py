"""A launch of any kernel, and what became of its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console, named_rows
from tilewise.cli.show.runs import (
    counters_line,
    counters_table,
    launch_line,
    report_rest,
    resources_line,
)
from tilewise.shown import duration
from tilewise.specs.results import HEAD

if TYPE_CHECKING:
    from tilewise.specs.run import LaunchResult

_WORDS = 3  # columns that are words, from the first


def launch_result(result: LaunchResult) -> None:
    """Print the launch, what was expected, the arrays, the counters and the findings."""
    out = console()
    report = result.report
    out.print(result.signature, style="bold", markup=False)
    took = duration(report.seconds)
    if report.device == "emulator":
        took += " of emulation, which says nothing about a GPU's time"
    rows: list[tuple[str, Text | str]] = [("launch", launch_line(report))]
    for each in result.compared:
        text = Text(each._summary())
        text.stylize("green" if each.correct else "bold red", 0, len("right"))
        rows.append(("check", text))
    if not result.compared:
        rows.append(("check", "no result is compared: --expect says what an array should be"))
    rows += [("time", took), ("resources", resources_line(report))]
    out.print(named_rows(rows))
    if result.arrays:
        out.print()
        out.print(_arrays(result))
        for array in result.arrays:
            if array.first:
                out.print(f"{array.name} begins {array.begins}", markup=False)
    if report.counters is not None:
        out.print()
        out.print(counters_table(report.counters))
        out.print(counters_line(report.counters))
    report_rest(report)


def _arrays(result: LaunchResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    rows = [each.cells() for each in result.arrays]
    used = [place for place, _ in enumerate(HEAD) if HEAD[place] or any(row[place] for row in rows)]
    for place in used:
        table.add_column(HEAD[place], justify="left" if place < _WORDS else "right")
    for row in rows:
        table.add_row(*(row[place] for place in used))
    return table
