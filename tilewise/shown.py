"""How results show themselves: a line at a prompt, a text for ``print``, tables in a notebook.

A result returns its lines and tables; this module does the rest for all results.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

WIDTH = 80
_LONG = 10**30  # more digits tell a reader nothing
PLACES = {"gpu": "GPU", "emulator": "emulator"}
"""The names of the devices in texts."""


@dataclass(frozen=True)
class Table:
    """Rows of cells, as text.

    Attributes
    ----------
    rows : sequence of sequence of str
        The rows; a row may be shorter than others.
    head : sequence of str
        The names of the columns; empty for none.
    left : int
        The number of leading columns with words, which are aligned left; the others are numbers,
        and are aligned right.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    left: int = 1

    def text(self) -> str:
        """Return the table as text; the last column is wrapped if it has words."""
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
        """Return the table as escaped HTML."""

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
        """Return what the result is in a few words."""
        raise NotImplementedError

    def _parts(self) -> Sequence[Part]:
        """Return the whole result: by default the fields of a dataclass, one in each row."""
        return [self._summary(), named(self)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary()}>"

    def __str__(self) -> str:
        return "\n".join(
            part.text() if isinstance(part, Table) else folded(part) for part in self._parts()
        )

    def _repr_html_(self) -> str:
        """Return the result as HTML for Jupyter."""
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
    """Return a table of a dataclass's fields that are numbers, words or booleans."""
    rows = [(field.name, getattr(x, field.name)) for field in fields(x)]
    return by_name({name.replace("_", " "): value for name, value in rows})


def by_name(values: Mapping[str, Any]) -> Table:
    """Return a table of values by their names, without those that are neither numbers nor words."""
    return Table(
        [(name, value(x)) for name, x in values.items() if isinstance(x, int | float | str)],
        left=2,
    )


def folded(text: str) -> str:
    """Wrap lines to 80 characters; those that begin with a space stay as they are."""
    return "\n".join(
        line if line.startswith(" ")
        else textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )  # fmt: skip


def value(x: int | float | str | None) -> str:
    """Return a cell: a count with separators, a float with three digits, or a word."""
    if x is None:
        return ""
    if isinstance(x, bool):
        return "yes" if x else "no"
    return x if isinstance(x, str) else number(x)


def number(value: float) -> str:
    """Return a number as text: a count with separators, or a float with at least three digits."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a time with three digits and the unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def expected_time(seconds: float) -> str:
    """Return the time that a model expects, with enough digits to compare it with others."""
    if round(seconds, 7) < 1e-2:
        return f"{seconds / 1e-6:,.1f} µs"
    if round(seconds, 6) < 1:
        return f"{seconds / 1e-3:,.3f} ms"
    return f"{seconds:,.3f} s"


def extents(sizes: Sequence[int]) -> str:
    """Return extents as text: ``32 x 32`` for (32, 32, 1)."""
    used = sizes if sizes[2] != 1 else sizes[:2]
    return " x ".join(f"{size:,}" for size in used)


def named_type(value: Any) -> str:
    """Return what a value is, for a message: None, a list, an int, a numpy.ndarray."""
    if value is None:
        return "None"
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def plural(count: int, thing: str) -> str:
    """Return a count with its noun: ``1 block``, ``2 blocks``."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def shortened(value: object) -> str:
    """Return a number for a message; for an integer of many digits, its size in bits."""
    if isinstance(value, int) and abs(value) >= _LONG:
        return f"an integer of {value.bit_length():,} bits"
    return str(value)


def element(
    array: str, index: Iterable[object], component: str = "", *, in_python: bool = False
) -> str:
    """Return an element of an array as a kernel's language spells it.

    In CUDA C++ that is ``x[3]``, ``tile[1][0]`` or ``f[3][0].x``, in Python ``tile[1, 0]``. An
    index may be a text, such as ``"0 to 3"``.
    """
    each = [str(one) for one in index]
    spelled = f"[{(', ' if in_python else '][').join(each)}]" if each else ""
    return f"{array}{spelled}.{component}" if component else array + spelled


def index_of(number: Any, extents: Sequence[int]) -> tuple[Any, ...]:
    """Return an element's index in each dimension, in row-major order.

    If the number is outside the array, only the first index is out of bounds.

    Parameters
    ----------
    number : int or ndarray of int
    extents : sequence of int
    """
    index: list[Any] = []
    for extent in reversed(extents[1:]):
        number, inner = divmod(number, extent)
        index.append(inner)
    return (number, *reversed(index))


def grid_line(grid: Sequence[int], block: Sequence[int]) -> str:
    """Return a launch's extents, and the number of blocks and threads, as text."""
    return (
        f"grid {extents(grid)} = {plural(math.prod(grid), 'block')} of "
        f"{extents(block)} = {plural(math.prod(block), 'thread')}"
    )


def product_line(
    m: int, n: int, k: int, alpha: float = 1.0, beta: float = 0.0, result: str = "C"
) -> str:
    """Return a product's formula as text: ``C = 2·A·B + C, m = 3, n = 4, k = 5``."""
    formula = "A·B" if alpha == 1 else f"{alpha:g}·A·B"
    if beta != 0:
        formula += " + C" if beta == 1 else f" + {beta:g}·C"
    return f"{result} = {formula}, m = {m:,}, n = {n:,}, k = {k:,}"
