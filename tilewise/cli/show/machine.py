"""Print the diagnosis of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console

if TYPE_CHECKING:
    from tilewise.cli.doctor import Diagnosis


def diagnosis(found: Diagnosis) -> None:
    """Print a line an item, then the verdict."""
    out = console()
    marks = {
        "ok": Text("ok", style="green"),
        "absent": Text("absent", style="yellow"),
        "missing": Text("MISSING", style="bold red"),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in found.items:
        table.add_row(marks[item.state], Text(item.name, style="bold"), item.detail)
    out.print(table)
    out.print()
    if found.ok:
        out.print("tilewise works here.")
    else:
        names = ", ".join(item.name for item in found.items if item.state == "missing")
        out.print(Text(f"tilewise does not work here before this is mended: {names}."))
