"""What a product of matrices in the host's memory is made of: copies and launches, as steps.

A plan holds no addresses and no arrays. Its regions lie in one allocation of the GPU's memory; the
cells that a region names say which steps wait for one another: a step that writes a cell waits for
all that read or wrote it before, and a step that reads one waits for the last that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewise.gemm.blocking import Span
from tilewise.host.matrices import MatrixLayout

GRAIN = 256
"""Regions begin at multiples of so many bytes."""


class Region(NamedTuple):
    """Where a piece of a matrix, or of each matrix of a batch, lies on the GPU.

    Attributes
    ----------
    cells : tuple of int
        What of the allocation it takes, for the order of the steps.
    offset : int
        Bytes from the allocation's beginning to the piece's first element.
    pitch : int
        Bytes from one line to the next.
    stride : int
        Bytes from one matrix of the batch to the next; 0 where there is one for all.
    """

    cells: tuple[int, ...]
    offset: int
    pitch: int
    stride: int = 0


class CopyIn(NamedTuple):
    """The step that copies a piece of A, B or C from the host to the GPU."""

    matrix: str
    batch: Span
    rows: Span
    columns: Span
    to: Region


class Compute(NamedTuple):
    """The step that multiplies two pieces on the GPU.

    Attributes
    ----------
    batch, m, n, k : int
    a, b : Region
    d : Region
        The result, or the sums of a product whose k is divided.
    is_first : bool
        Whether this is the first product of its piece of D; the others add to the sums.
    result : Region or None
        Where the sums are rounded to, behind the last product, where D's dtype is not theirs.
    """

    batch: int
    m: int
    n: int
    k: int
    a: Region
    b: Region
    d: Region
    is_first: bool = True
    result: Region | None = None


class CopyOut(NamedTuple):
    """The step that copies a finished piece of D from the GPU to the host."""

    batch: Span
    rows: Span
    columns: Span
    source: Region


Step = CopyIn | Compute | CopyOut


@dataclass(frozen=True)
class HostProblem:
    """A product whose matrices lie in the host's memory.

    Attributes
    ----------
    m, n, k, batch : int
    a, b, d : MatrixLayout
        C, too, lies on the GPU as D does.
    a_is_one, b_is_one : bool
        Whether one A, or one B, is for the whole batch.
    shared : str
        ``"same"`` where A and B are one matrix, ``"transposed"`` where B is A transposed, in the
        same memory; else empty.
    reads_c : bool
    sums : int
        Bytes of an element of the sums.
    is_pinned : bool
        Whether the GPU copies all of them by itself.
    """

    m: int
    n: int
    k: int
    batch: int
    a: MatrixLayout
    b: MatrixLayout
    d: MatrixLayout
    a_is_one: bool = False
    b_is_one: bool = False
    shared: str = ""
    reads_c: bool = False
    sums: int = 4
    is_pinned: bool = False

    @property
    def bytes_in(self) -> int:
        """Bytes that have to reach the GPU once at least."""
        of_a = self.m * self.k * self.a.item * (1 if self.a_is_one else self.batch)
        of_b = self.k * self.n * self.b.item * (1 if self.b_is_one else self.batch)
        return of_a + (0 if self.shared else of_b) + (self.bytes_out if self.reads_c else 0)

    @property
    def bytes_out(self) -> int:
        """Bytes of D."""
        return self.batch * self.m * self.n * self.d.item


@dataclass(frozen=True)
class HostPlan:
    """How a product of matrices in the host's memory is computed on a GPU.

    Attributes
    ----------
    memory : int
        Bytes of the GPU's memory that its regions take together.
    bytes_in, bytes_out : int
        What it copies to the GPU and back.
    words : str
        For people.
    sums_apart : bool
        Whether sums of products whose k is divided lie beside D, in a dtype of their own, and are
        rounded at the end.
    """

    memory: int
    bytes_in: int
    bytes_out: int
    words: str
    make: Callable[[], Iterator[Step]] = field(repr=False, compare=False)
    sums_apart: bool = False

    def steps(self) -> Iterator[Step]:
        """Yield what is done, one after the other."""
        return self.make()


def rounded(size: int) -> int:
    """Return the bytes of a region, so that the next begins at a multiple of :data:`GRAIN`."""
    return -(-size // GRAIN) * GRAIN


ONE = Span(0, 1)
