"""The plan of a product of matrices in the host's memory: copies and launches, as steps.

A plan holds no addresses and no arrays. Its regions lie in one allocation of the GPU's memory. The
cells that a region names decide which steps wait for one another: a step that writes a cell waits
for all steps that read or wrote it before, and a step that reads a cell waits for the last step
that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewise.gemm.blocking import Span
from tilewise.host.matrices import MatrixLayout

GRAIN = 256
"""The alignment of regions, in bytes."""


class Region(NamedTuple):
    """The place on the GPU of a piece of a matrix, or of each matrix of a batch.

    Attributes
    ----------
    cells : tuple of int
        The cells of the allocation that it takes, which decide the order of the steps.
    offset : int
        The bytes from the allocation's beginning to the piece's first element.
    pitch : int
        The bytes from one line to the next.
    stride : int
        The bytes from one matrix of the batch to the next; 0 if all share one matrix.
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
        The region of the result, or of the sums of a product whose k is divided.
    is_first : bool
        Whether this is the first product of its piece of D; the others add to the sums.
    result : Region or None
        The region that the sums are rounded to after the last product, if D's dtype is not theirs.
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
        The orientation of A, B and D on the GPU; C has that of D.
    a_is_one, b_is_one : bool
        Whether the whole batch shares one A, and whether it shares one B.
    shared : str
        ``"same"`` if A and B are one matrix, ``"transposed"`` if B is A transposed in the same
        memory; else empty.
    reads_c : bool
    sums : int
        The bytes of an element of the sums.
    is_pinned : bool
        Whether the GPU can copy all of them by itself.
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
        """The bytes that have to reach the GPU at least once."""
        of_a = self.m * self.k * self.a.item * (1 if self.a_is_one else self.batch)
        of_b = self.k * self.n * self.b.item * (1 if self.b_is_one else self.batch)
        return of_a + (0 if self.shared else of_b) + (self.bytes_out if self.reads_c else 0)

    @property
    def bytes_out(self) -> int:
        """The bytes of D."""
        return self.batch * self.m * self.n * self.d.item


@dataclass(frozen=True)
class HostPlan:
    """The steps that compute a product of matrices in the host's memory on a GPU.

    Attributes
    ----------
    memory : int
        The bytes of the GPU's memory that the plan's regions take together.
    bytes_in, bytes_out : int
        The bytes that the plan copies to the GPU and back.
    words : str
        The plan in words.
    sums_apart : bool
        Whether the sums of products whose k is divided lie beside D, in a dtype of their own, and
        are rounded at the end.
    """

    memory: int
    bytes_in: int
    bytes_out: int
    words: str
    make: Callable[[], Iterator[Step]] = field(repr=False, compare=False)
    sums_apart: bool = False

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order."""
        return self.make()


def rounded(size: int) -> int:
    """Return the bytes of a region, rounded up to a multiple of :data:`GRAIN`."""
    return -(-size // GRAIN) * GRAIN


ONE = Span(0, 1)
