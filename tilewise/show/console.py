"""What all of them are printed with: numbers, tables, progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from tilewise.devices.emulator import Emulator

if TYPE_CHECKING:
    from tilewise.devices import Device
    from tilewise.launch import Dim3


PLACES = {"gpu": "GPU", "emulator": "emulator"}


def console() -> Console:
    """Standard output, without the colouring of numbers that rich does by itself."""
    return Console(highlight=False, soft_wrap=False)


def number(value: float) -> str:
    """A count with thousands separators; anything else with three digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Three digits and the unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def extents(sizes: Dim3) -> str:
    """``32 x 32`` for (32, 32, 1)."""
    used = sizes if sizes[2] != 1 else sizes[:2]
    return " x ".join(f"{size:,}" for size in used)


def gflops(m: int, n: int, k: int, seconds: float) -> str:
    """10^9 operations a second, where a multiply-add is two, with at least three digits."""
    rate = 2.0 * m * n * k / seconds / 1e9
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def error(message: str, as_hint: str = "") -> None:
    """``message`` on standard error, unwrapped so that it can be copied."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    out.print(Text.assemble(("tilewise: ", "bold red"), message))
    if as_hint:
        out.print(Text(as_hint, style="dim"))


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, only where that is a terminal; call what is given at each step.

    Parameters
    ----------
    total : int or None
        Steps; None where they are not known.
    what : str
        Shown before the first step.
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
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of things done, where standard error is a terminal: call it with how many are done,
    and how many there are."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def block_progress(device: Device, what: str) -> Iterator[None]:
    """A bar of the blocks that the emulator has run, where standard error is a terminal."""
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


def named_rows(rows: Sequence[tuple[str, Text | str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def plural(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")
