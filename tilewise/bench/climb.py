"""Hold the settings of ``tilewise climb``, and read the record that it leaves.

A record is plain data for JSON: ``date``, ``command``, ``machine``, ``versions``, ``correct`` (of
all), ``sizes``, ``dtypes``, ``method``, ``ceilings``, ``arithmetic`` (by dtype and unit, operations
a second at most), ``kernels`` (what each rung takes of a multiprocessor, a dtype each), ``rows`` (a
kernel, size and dtype each: its figures, or why it has none) and ``edges`` (what an odd size
costs). :func:`tilewise.bench.rungs.run` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tilewise.ladder.rungs import RUNGS, Rung, rung, rungs_of
from tilewise.precision import DTYPES, HALVES

OURS, VENDOR = "matmul", "vendor"  # the kernels that are no rungs
SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
EDGE_SIZES = range(2000, 5001)  # the sizes whose odd neighbour is measured too
EDGE_FROM = 8  # the first rung that is: those below it have one element a thread
MAIN_SIZE = 4096  # the size that is reported if it was measured and only one is reported
EVERY_RUNG = ("float32", "bfloat16")  # the types that have all rungs between them, each once
MULTIPLY_ADDS, TENSOR_CORES = UNITS = ("multiply-adds", "tensor cores")
"""The units of a multiprocessor that products are computed by."""

Step = Callable[[str], None]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """The settings of a climb: what is timed, and for how long.

    Attributes
    ----------
    sizes : tuple of int
        Edges of square matrices; kept ascending, each once.
    kernels : tuple of str
        Rungs by name, and ``"matmul"``; empty for all. The vendor's product is timed always.
    dtypes : tuple of str
        Of :data:`tilewise.precision.DTYPES`; each rung is timed in those that it takes. Empty for
        those of :data:`EVERY_RUNG` that one of the kernels takes.
    rounds : int
        At least 1; five or more for a figure to report.
    seconds : float
        How long each is timed in a round; half of that warms up before.

    Raises
    ------
    ValueError
        If one of them is not as it must be.
    """

    sizes: tuple[int, ...] = SIZES
    kernels: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    rounds: int = 5
    seconds: float = 0.05

    def __post_init__(self) -> None:
        if not self.sizes:
            raise ValueError("no size is given; 128,256 for example")
        for size in self.sizes:
            if size < 1:
                raise ValueError(f"a size is {size}; it must be at least 1")
        for name in self.kernels:
            if name != OURS:
                rung(name)
        for dtype in self.dtypes:
            if dtype not in DTYPES:
                raise ValueError(f"dtype is {dtype!r}; it takes {', '.join(DTYPES)}")
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it takes at least one")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}; it takes a time above 0")
        object.__setattr__(self, "sizes", tuple(sorted(set(self.sizes))))
        dtypes = self.dtypes or tuple(each for each in EVERY_RUNG if self._has_any(each))
        object.__setattr__(self, "dtypes", tuple(dict.fromkeys(dtypes)))
        for dtype in self.dtypes:
            if not self._has_any(dtype):
                raise ValueError(f"none of {', '.join(self.kernels)} takes {dtype}")

    def rungs(self, dtype: str) -> tuple[Rung, ...]:
        """Return the rungs that take a dtype."""
        every = rungs_of(dtype)
        return tuple(each for each in every if not self.kernels or each.name in self.kernels)

    @property
    def has_ours(self) -> bool:
        return not self.kernels or OURS in self.kernels

    def _has_any(self, dtype: str) -> bool:
        return self.has_ours or bool(self.rungs(dtype))

    def edge_sizes(self, dtype: str) -> tuple[int, ...]:
        """Return the sizes whose odd neighbour is measured too."""
        has_any = self.has_ours or any(each.number >= EDGE_FROM for each in self.rungs(dtype))
        return tuple(size for size in self.sizes if has_any and size in EDGE_SIZES)

    @property
    def steps(self) -> int:
        """The number of times that :func:`run` calls its ``step``."""
        return sum(
            (len(self.rungs(dtype)) + self.has_ours + 2) * len(self.sizes)
            + len(self.edge_sizes(dtype))
            for dtype in self.dtypes
        )


def source_of(rung: Rung) -> str:
    """Return a digest of a rung's file, which tells whether the rung was edited since."""
    return sha256(rung.path.read_bytes()).hexdigest()[:16]


def unit_of(kernel: str, dtype: str, arithmetic: Mapping[str, float | None]) -> str:
    """Return the unit that computes a kernel's products.

    matmul and the vendor's product choose between those that a dtype has, so theirs is the fastest.

    Parameters
    ----------
    kernel : str
        A rung's name, ``"matmul"`` or ``"vendor"``.
    dtype : str
    arithmetic : mapping
        Operations a second that the GPU can do in ``dtype``, by unit; None if it is not known.

    Returns
    -------
    str
        One of :data:`UNITS`.
    """
    own = TENSOR_CORES if dtype in HALVES else MULTIPLY_ADDS
    if kernel not in (OURS, VENDOR):
        return own
    return max((unit for unit in UNITS if arithmetic.get(unit)),
               key=lambda unit: arithmetic[unit] or 0.0, default=own)  # fmt: skip


def row_of(record: Mapping[str, Any], kernel: str, n: int, dtype: str) -> Row | None:
    """Return a kernel's figures at a size, or None if it has none."""
    for row in record["rows"]:
        if (row["kernel"], row["n"], row["dtype"]) == (kernel, n, dtype) and "tflops" in row:
            found: Row = row
            return found
    return None


def names(record: Mapping[str, Any]) -> list[str]:
    """Return the kernels of a record, the rungs first and the vendor's last."""
    order = [*(each.name for each in RUNGS), OURS, VENDOR]
    return sorted({row["kernel"] for row in record["rows"]}, key=order.index)


def main_size(record: Mapping[str, Any]) -> int:
    """Return the size to report if only one is reported: 4096, or the largest."""
    sizes: list[int] = record["sizes"]
    return MAIN_SIZE if MAIN_SIZE in sizes else sizes[-1]


def label(kernel: str) -> str:
    """Return a kernel's name in a table: a rung has its number before it."""
    for each in RUNGS:
        if each.name == kernel:
            return f"{each.number} {each.name}"
    return kernel


@dataclass(frozen=True)
class Point:
    """A kernel on the climb from one thread to the fastest product.

    Attributes
    ----------
    kernel, dtype : str
    n : int
        The size of its figures: :func:`main_size`, or the largest at which it was timed.
    row : mapping
        Its figures at that size.
    vendor : mapping or None
        The figures of the vendor's product of the same dtype and size.
    """

    kernel: str
    dtype: str
    n: int
    row: Row
    vendor: Row | None


def climbed(record: Mapping[str, Any]) -> list[Point]:
    """Return every rung once, the lowest first, and then matmul of 16 bits if it was measured.

    A rung of float32 and float64 is given in float32 if that was measured, one of 16 bits in
    bfloat16. Other dtypes, and rungs that have no figure, are left out.
    """
    reals, halves = (
        sorted(each for each in record["dtypes"] if (each in HALVES) == of_halves)
        for of_halves in (False, True)
    )
    asked = [(each.name, dtype) for each in RUNGS for dtype in (*reals, *halves)
             if dtype in each.dtypes]  # fmt: skip
    asked += [(OURS, dtype) for dtype in (*halves, *reals)]
    found: dict[str, Point] = {}
    n = main_size(record)
    for kernel, dtype in asked:
        timed = [size for size in record["sizes"] if row_of(record, kernel, size, dtype)]
        if kernel in found or not timed:
            continue
        at = n if n in timed else timed[-1]
        row = row_of(record, kernel, at, dtype)
        assert row is not None
        found[kernel] = Point(kernel, dtype, at, row, row_of(record, VENDOR, at, dtype))
    return list(found.values())
