"""Print what kernels do to memory: one by one, two side by side, or line by line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console, labels, named_rows, short, verdict_rows, within
from tilewise.cli.usage import with_options
from tilewise.launch import in_groups
from tilewise.shown import duration, extents, number, plural

if TYPE_CHECKING:
    from tilewise.counted import Counters
    from tilewise.lens.profile import Figure, Profile

_ALONE, _BESIDE = 40, 15  # places of a count, alone and where two stand side by side
_COLUMNS = ("global\nreq.", "global\nsectors", "shared\nreq.", "bank\nconfl.", "FLOPs")


def profile(found: Profile) -> None:
    """Print one kernel: what was run, and all figures."""
    out = console()
    out.print(_title(found, found.kernel))
    out.print(_how(found))
    _verdict(found)
    table = _table(("",))
    for group, figures in groupby(found.figures(), key=lambda figure: figure.group):
        _head(table, group)
        for figure in figures:
            table.add_row(figure.name, _value(figure, _ALONE))
    out.print(table)
    _notes(found, found.kernel)


def compared(one: Profile, other: Profile) -> None:
    """Print two kernels side by side, and the ratio of their figures."""
    out = console()
    names = labels([(found.kernel, found.file) for found in (one, other)])
    for found, name in zip((one, other), names, strict=True):
        out.print(_title(found, name))
        out.print(_how(found))
        _verdict(found)
    first, second = ({(f.group, f.name): f for f in found.figures()} for found in (one, other))
    keys = [*first, *(key for key in second if key not in first)]
    table = _table((*names, "ratio"))
    for group in dict.fromkeys(group for group, _ in keys):
        _head(table, group)
        for key in (key for key in keys if key[0] == group):
            a, b = first.get(key), second.get(key)
            table.add_row(key[1], _value(a, _BESIDE), _value(b, _BESIDE), _ratio(a, b))
    out.print(table)
    for found, name in zip((one, other), names, strict=True):
        _notes(found, name)


def lines(found: Profile) -> None:
    """Print the kernel's source, with the counts of each line."""
    out = console()
    out.print(_title(found, found.kernel))
    out.print(_how(found))
    _verdict(found)
    rows = found.report.lines
    if not rows:
        out.print("No line of the kernel's own file was counted.")
        return
    out.print(f"{Path(found.file).name}, what each line did:", style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", expand=True)
    table.add_column("", justify="right", width=len(str(max(rows))), no_wrap=True)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right", width=7, no_wrap=True)
    table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    source = found.source.split("\n")
    for line in range(min(rows), max(rows) + 1):
        text = source[line - 1] if line <= len(source) else ""
        cells = [""] * len(_COLUMNS) if line not in rows else _cells(rows[line])
        table.add_row(str(line), *cells, Text(text.rstrip().expandtabs(4)))
    out.print(table)
    _notes(found, found.kernel)


def _cells(c: Counters) -> list[str]:
    counts = (
        c.global_requests,
        c.global_sectors,
        c.shared_requests,
        c.shared_bank_conflicts,
        c.flops,
    )
    return [short(count) if count else "" for count in counts]


def _title(found: Profile, name: str) -> Text:
    problem = found.problem
    title = Text(name, style="bold")
    if problem is not None:
        sizes = ", ".join(f"{size} = {problem[size]:,}" for size in "mnk")
        tile = "" if problem["tile"] is None else f", tile {problem['tile']}"
        title.append(f": {sizes}, {problem['dtype']}{tile}", style="not bold")
    return title


def _how(found: Profile) -> str:
    """Return which blocks were run, in words."""
    launch, alike = found.report.launch, found.report.alike
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    grid = (
        f"grid {extents(launch.grid)} = {plural(found.blocks, 'block')} of "
        f"{extents(launch.block)} = {plural(threads, 'thread')}, {found.arch}"
    )
    took = duration(found.report.seconds)
    unchecked = ""
    if found.check is None and found.problem is not None:
        why = "not all of it was computed" if alike else "the matrices are zeros"
        unchecked = f"\nC is not checked: {why}"
    if not alike or found.blocks_run == found.blocks:
        return f"{grid}\nevery block was run, in {took}{unchecked}"
    shown = sorted(alike, key=lambda each: -each.count)[:4]
    kinds = ", ".join(
        f"({', '.join(map(str, each.block[:2] if each.block[2] == 0 else each.block))}) "
        f"for {each.count:,}"
        for each in shown
    )
    more = "" if len(alike) <= 4 else f", and {len(alike) - 4} more"
    return (
        f"{grid}\nrun: {plural(len(alike), 'block')}, the rest multiplied, in {took}: {kinds}{more}"
        f"{unchecked}"
    )


def _verdict(found: Profile) -> None:
    out = console()
    if found.verdict is not None:
        out.print(named_rows(verdict_rows(found.verdict)))
    for finding in in_groups(found.report.findings):
        out.print(Text.assemble(("found: ", "bold red"), finding))


def _notes(found: Profile, name: str) -> None:
    """Print remarks on the counts, and what the kernel printed."""
    out = console()
    notes = list(found.report.notes)
    if found.report.counted_as != "machine code":
        notes.insert(0, f"counted as {found.report.counted_as}")
    if notes:
        out.print()
    for note in notes:
        out.print(f"note: {name}: {with_options(note)}", markup=False)
    if found.report.output:
        out.print()
        some = "" if found.blocks_run == found.blocks else ", in the blocks that were run"
        out.print(Text(f"{name} printed{some}:", style="bold"))
        out.print(found.report.output.rstrip("\n"), markup=False)


def _table(headings: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold",
                  show_header=any(headings))  # fmt: skip
    table.add_column("", no_wrap=True)
    for heading in headings:
        width = 6 if heading == "ratio" else 15
        table.add_column(heading, justify="right", min_width=width, overflow="fold")
    return table


def _head(table: Table, group: str) -> None:
    if table.row_count or not table.show_header:
        table.add_row("")
    table.add_row(Text(group, style="bold"))


def _value(figure: Figure | None, places: int) -> str:
    if figure is None or figure.value is None:
        return ""
    if isinstance(figure.value, str):
        return figure.value
    unit = " %" if figure.unit == "%" else ""
    value = figure.value
    return (within(places, value) if isinstance(value, int) else number(value)) + unit


def _ratio(one: Figure | None, other: Figure | None) -> str:
    a, b = (None if figure is None else figure.value for figure in (one, other))
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None or a == b or not b:
        return ""
    return number(a / b)
