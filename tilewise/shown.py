"""Results for people: a line for a prompt, a text for ``print``, tables for a notebook.

A result says what it is made of, lines and tables; the rest is done here, for all of them.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

WIDTH = 80
PLACES = {"gpu": "GPU", "emulator": "emulator"}
"""The devices' names, as they are said."""


@dataclass(frozen=True)
class Table:
    """Rows of cells, as text.

    Attributes
    ----------
    rows : sequence of sequence of str
        A row may be shorter than others.
    head : sequence of str
        The columns' names; empty where they need none.
    left : int
        So many columns, from the first, are words and lie left; the others are numbers, and
        lie right.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    left: int = 1

    def text(self) -> str:
        """The table in columns; the last one, where it is words, is wrapped."""
        rows = [list(self.head)] * bool(self.head) + [list(row) for row in self.rows]
        count = max(map(len, rows), default=0)
        rows = [row + [""] * (count - len(row)) for row in rows]
        widths = [max(len(row[i]) for row in rows) for i in range(count)]
        room = WIDTH - sum(widths[:-1]) - 2 * (count - 1)
        lines = []
        for row in rows:
            cells = [
                cell.ljust(width) if i < self.left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            if count == self.left and len(row[-1]) > room >= 20:
                first, *more = textwrap.wrap(row[-1], room, break_on_hyphens=False)
                cells[-1] = first
                indent = " " * (WIDTH - room)
                lines += ["  ".join(cells), *(indent + each for each in more)]
            else:
                lines.append("  ".join(cells))
        return "\n".join(line.rstrip() for line in lines)

    def html(self) -> str:
        """The table as HTML, escaped."""

        def line(cells: Sequence[str], kind: str) -> str:
            return "".join(
                f'<{kind} style="text-align: {"left" if i < self.left else "right"}">'
                f"{html.escape(cell)}</{kind}>"
                for i, cell in enumerate(cells)
            )

        head = f"<thead><tr>{line(self.head, 'th')}</tr></thead>" if self.head else ""
        body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in self.rows)
        return f"<table>{head}<tbody>{body}</tbody></table>"


Part = str | Table


class Shown:
    """A result that shows itself: ``repr`` in a line, ``print`` in full, Jupyter as HTML."""

    def _summary(self) -> str:
        """What it is, in a few words."""
        raise NotImplementedError

    def _parts(self) -> Sequence[Part]:
        """All of it: by default the fields of a dataclass, one a row."""
        return [self._summary(), named(self)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary()}>"

    def __str__(self) -> str:
        return "\n".join(
            part.text() if isinstance(part, Table) else folded(part) for part in self._parts()
        )

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        parts = (
            part.html() if isinstance(part, Table)
            else f'<div style="white-space: pre-wrap">{html.escape(part)}</div>'
            for part in self._parts()
        )  # fmt: skip
        return f"<div>{''.join(parts)}</div>"


class Record(Shown):
    """A result that is a dataclass, of plain data alone."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by their names, for JSON."""
        fields_of: Any = self
        return {field.name: getattr(self, field.name) for field in fields(fields_of)}


def named(x: Any) -> Table:
    """The fields of a dataclass that are numbers, words or yes and no, one a row."""
    rows = [(field.name, getattr(x, field.name)) for field in fields(x)]
    return by_name({name.replace("_", " "): value for name, value in rows})


def by_name(values: Mapping[str, Any]) -> Table:
    """Values by their names, one a row; what is no number and no word is left out."""
    return Table(
        [(name, value(x)) for name, x in values.items() if isinstance(x, int | float | str)],
        left=2,
    )


def folded(text: str) -> str:
    """Lines of at most 80 characters; those that begin with a space stay as they are."""
    return "\n".join(
        line if line.startswith(" ")
        else textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )  # fmt: skip


def value(x: int | float | str | None) -> str:
    """A cell: a count with separators, a float in three digits, a word as it is."""
    if x is None:
        return ""
    if isinstance(x, bool):
        return "yes" if x else "no"
    return x if isinstance(x, str) else number(x)


def number(value: float) -> str:
    """A count with thousands separators; anything else with at least three digits."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Three digits and the unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def extents(sizes: Sequence[int]) -> str:
    """``32 x 32`` for (32, 32, 1)."""
    used = sizes if sizes[2] != 1 else sizes[:2]
    return " x ".join(f"{size:,}" for size in used)


def named_type(value: Any) -> str:
    """What a value is, for a message: None, a list, an int, a numpy.ndarray."""
    if value is None:
        return "None"
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def plural(count: int, thing: str) -> str:
    """``1 block``, ``2 blocks``."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def grid_line(grid: Sequence[int], block: Sequence[int]) -> str:
    """A launch's extents, and how many blocks and threads these are."""
    return (
        f"grid {extents(grid)} = {plural(math.prod(grid), 'block')} of "
        f"{extents(block)} = {plural(math.prod(block), 'thread')}"
    )


def product_line(
    m: int, n: int, k: int, alpha: float = 1.0, beta: float = 0.0, result: str = "C"
) -> str:
    """``C = 2·A·B + C, m = 3, n = 4, k = 5``."""
    formula = "A·B" if alpha == 1 else f"{alpha:g}·A·B"
    if beta != 0:
        formula += " + C" if beta == 1 else f" + {beta:g}·C"
    return f"{result} = {formula}, m = {m:,}, n = {n:,}, k = {k:,}"
