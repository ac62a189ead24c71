"""The output of all commands: numbers, tables, progress."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from tilewise.shown import number

if TYPE_CHECKING:
    from tilewise.devices import Device
    from tilewise.ladder.verdict import Verdict


FOLDED = 12  # columns of a terminal that a name takes at least
GAP = 2  # columns of a terminal between two of a table


class Output(Console):
    """Standard output, which prints a table that is too wide for the terminal row by row.

    rich would cut its columns, even within numbers.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, with tables that fit."""
        super().print(*(self._fitted(each) for each in objects), **options)

    def _fitted(self, shown: Any) -> Any:
        is_table = isinstance(shown, Table) and shown.show_header and not shown.expand
        if not is_table:
            return shown
        needed = [self._needed(column) for column in shown.columns]
        if sum(needed) <= self.width + GAP:
            self._share_out(shown, needed)
            return shown
        headers = [self._text(column.header).plain for column in shown.columns]
        headings = [header.replace("-\n", "-").replace("\n", " ").strip() for header in headers]
        told: list[Text | Padding] = []
        for row in zip(*(column.cells for column in shown.columns), strict=True):
            first, *cells = map(self._text, row)
            pairs = [
                Text.assemble(f"{heading} " if heading else "", cell)
                for heading, cell in zip(headings[1:], cells, strict=True) if cell.plain
            ]  # fmt: skip
            told.append(Text(first.plain, style="bold"))
            told.append(Padding(Text("; ").join(pairs), (0, 0, 0, 2), expand=False))
        return Group(*told)

    def _share_out(self, table: Table, needed: Sequence[int]) -> None:
        """Give each column what it needs, where not all can have what they would like.

        rich would take from all of them alike, and break words in the midst.
        """
        liked = [GAP + self._widest(column) for column in table.columns]
        if sum(liked) <= self.width + GAP:
            return
        spare = self.width + GAP - sum(needed)
        for column, least, most in zip(table.columns, needed, liked, strict=True):
            more = min(spare, max(most - least, 0))
            column.width = least + more - GAP
            spare -= more

    def _widest(self, column: Column) -> int:
        lines = [self._text(column.header).plain, *(self._text(x).plain for x in column.cells)]
        return max((cell_len(part) for line in lines for part in line.split("\n")), default=0)

    def _needed(self, column: Column) -> int:
        """Return the columns of the terminal that a table's column takes: numbers are whole."""
        is_whole = column.no_wrap or column.justify == "right"
        cells = [self._text(cell).plain for cell in column.cells]
        parts = self._text(column.header).plain.split("\n" if column.no_wrap else None)
        parts += cells if is_whole else [word for cell in cells for word in cell.split()]
        needed = max(map(cell_len, parts), default=0)
        # Folded text may continue in the next line.
        may_fold = column.overflow == "fold" and column.justify == "left"
        return GAP + (min(needed, FOLDED) if may_fold else needed)

    def _text(self, cell: Any) -> Text:
        return cell if isinstance(cell, Text) else self.render_str(str(cell))


def console() -> Output:
    """Return standard output, without the colours that rich gives numbers by itself."""
    return Output(highlight=False, soft_wrap=False)


def short(count: int) -> str:
    """Return a count in at most five places: 999, 12.3k, 6.31M."""
    if count < 10_000:
        return str(count)
    letters, value = iter("kMGTPEZYRQ"), float(count)
    while True:
        value, letter = value / 1000, next(letters)
        digits = f"{value:.3g}"
        if "e" not in digits:  # three digits before the point, at most
            return f"{value:.{2 - int(math.log10(value))}f}{letter}"


def within(places: int, count: int) -> str:
    """Return what :func:`number` does, or what :func:`short` does if that takes too many places."""
    whole = number(count)
    return whole if len(whole) <= places else short(count)


def labels(kernels: Sequence[tuple[str, str]]) -> list[str]:
    """Return labels for kernels, given by name and file; those of one name get their files."""
    found = [name for name, _ in kernels]
    for shown in (lambda file: Path(file).name, str):
        alike = {
            label for label in found
            if len({k for k, of in zip(kernels, found, strict=True) if of == label}) > 1
        }  # fmt: skip
        found = [
            f"{shown(file)}:{name}" if label in alike else label
            for (name, file), label in zip(kernels, found, strict=True)
        ]
    return found


def first_error(message: str) -> str:
    """Return the line of a compiler's message with its first error, skipping warnings.

    Without an error, it is the second line, or the only one.
    """
    lines = message.splitlines()
    telling = (line for line in lines if re.search(r"\berror *:| is left out: ", line))
    return next(telling, lines[min(1, len(lines) - 1)] if lines else "")


def gflops(m: int, n: int, k: int, seconds: float) -> str:
    """Return 10^9 operations a second, two for a multiply-add, with at least three digits."""
    return giga(2.0 * m * n * k / seconds)


def giga(rate: float) -> str:
    """Return a rate in 10^9, with at least three digits."""
    return f"{rate / 1e9:,.0f}" if rate >= 1e11 else f"{rate / 1e9:.3g}"


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Callable[[str], None]]:
    """Show a bar on standard error if that is a terminal; yield a function to call at each step.

    Parameters
    ----------
    total : int or None
        The number of steps; None if it is not known.
    what : str
        The text before the first step.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        begun = count()
        yield lambda name: bar.update(task, completed=next(begun), description=name)


@contextmanager
def parts(total: int, what: str) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show a :func:`progress` of steps with parts; yield a function to call when a step begins."""
    if not sys.stderr.isatty():
        yield lambda _: lambda done, parts: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        begun = count()

        def begin(name: str) -> Callable[[int, int], None]:
            at = next(begun)
            bar.update(task, completed=at, description=name)
            return lambda done, parts: bar.update(task, completed=at + done / max(1, parts))

        yield begin


@contextmanager
def counting(what: str, period: float = 30) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of things done, where standard error is a terminal: call it with how many are done,
    and how many there are. The time that remains follows from the last ``period`` seconds."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=period,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def block_progress(device: Device, what: str) -> Iterator[None]:
    """A bar of the blocks that the emulator has run, where standard error is a terminal."""
    from tilewise.devices.emulator import Emulator

    if not isinstance(device, Emulator):
        with progress(None, what):
            yield
        return
    with counting(what) as device.progress:
        try:
            yield
        finally:
            device.progress = None


def verdict(correct: bool) -> Text:
    return Text("right", style="green") if correct else Text("WRONG", style="bold red")


def verdict_rows(found: Verdict) -> list[tuple[str, Text | str]]:
    """Return whether a product is correct, with remarks on its C, for :func:`named_rows`."""
    line = Text.assemble(verdict(found.correct), found.details)
    return [("check", line), *found.remarks.items()]


def named_rows(rows: Sequence[tuple[str, Text | str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table
