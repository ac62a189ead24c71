"""A plan for products that fit the GPU: it computes with the strips of A and B as they arrive.

Strips of A's rows and of B's columns arrive in turn. Each new strip is multiplied, in one launch,
by everything that is there of the other matrix, and the finished part of D goes back while the next
strips arrive. After a share f of the copies a share f^2 of the product can be computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from tilewise.gemm.blocking import Span
from tilewise.host.matrices import MatrixLayout
from tilewise.host.plan import (
    ONE,
    Compute,
    CopyIn,
    CopyOut,
    HostPlan,
    HostProblem,
    Region,
    Step,
    rounded,
)

STRIP_GRAIN = 128


class _Whole(NamedTuple):
    """A whole matrix on the GPU, from which regions are cut."""

    layout: MatrixLayout
    offset: int
    pitch: int

    def region(self, cells: Sequence[int], row: int, column: int) -> Region:
        ahead = self.layout.ahead(row, column, self.pitch)
        return Region(tuple(cells), self.offset + ahead, self.pitch)


def cut(size: int, parts: int, grain: int) -> list[Span]:
    """Cut ``size`` into at most ``parts`` parts, all of one size except the last.

    Parameters
    ----------
    size, parts : int
    grain : int
        The number of which all parts but the last are multiples. It is at least 16 bytes of
        elements, so that no strip's padding reaches into its neighbour.
    """
    each = max(1, -(-size // (parts * grain))) * grain
    return [Span(start, min(start + each, size)) for start in range(0, size, each)]


def cut_by(size: int, shares: Sequence[int], grain: int) -> list[Span]:
    """Cut ``size`` into parts in the ratio of ``shares``, all but the last multiples of a grain."""
    ends = [min(size, -(-size * x // (sum(shares) * grain)) * grain) for x in accumulate(shares)]
    return [Span(x, y) for x, y in pairwise([0, *ends[:-1], size]) if x < y]


def memory(p: HostProblem) -> int:
    """Return the bytes that A, B and D take on the GPU."""
    of_b = 0 if p.shared else rounded(p.b.size(p.k, p.n))
    return rounded(p.a.size(p.m, p.k)) + of_b + rounded(p.d.size(p.m, p.n))


def plan(p: HostProblem, strips_m: int, strips_n: int, grain: int = STRIP_GRAIN) -> HostPlan:
    """Return the plan with at most ``strips_m`` strips of A and ``strips_n`` strips of B.

    Parameters
    ----------
    p : HostProblem
        The problem, with a batch of one matrix.
    strips_m, strips_n : int
        The number of strips. If A and B are the same matrix, B is one strip, which is there when
        all of A is; if B is A transposed, its strips are A's.
    grain : int, optional
        The number of which the rows and columns of all strips but the last are multiples.
    """
    rows = cut(p.m, strips_m, grain)
    columns = rows if p.shared == "transposed" else cut(p.n, 1 if p.shared else strips_n, grain)
    return plan_of(p, rows, columns)


def plan_of(p: HostProblem, rows: Sequence[Span], columns: Sequence[Span]) -> HostPlan:
    """Return the plan with these strips of A's rows and of B's columns, as for :func:`plan`."""
    steps = cache(lambda: tuple(_steps(p, rows, columns)))
    words = f"resident on the GPU, A in {len(rows)} and B in {len(columns)} strips"
    return HostPlan(
        memory(p), p.bytes_in, p.bytes_out, words, lambda: iter(steps())
    )  # fmt: skip


def _steps(p: HostProblem, rows: Sequence[Span], columns: Sequence[Span]) -> Iterator[Step]:
    a = _Whole(p.a, 0, p.a.pitch(p.m, p.k))
    behind = rounded(p.a.size(p.m, p.k))
    if p.shared:
        b = _Whole(p.b, 0, a.pitch)
    else:
        b = _Whole(p.b, behind, p.b.pitch(p.k, p.n))
        behind += rounded(p.b.size(p.k, p.n))
    d = _Whole(p.d, behind, p.d.pitch(p.m, p.n))
    depth = Span(0, p.k)
    strips, every = range(len(rows)), range(len(rows), len(rows) + len(columns))
    if p.shared:  # B's strips are A's
        every = strips
    next_cell = len(rows) + len(columns)

    def product(i: range, j: range) -> Iterator[Step]:
        """Yield the steps that multiply neighbouring strips of A by neighbouring strips of B."""
        nonlocal next_cell
        if not i or not j:
            return
        down = Span(rows[i[0]].start, rows[i[-1]].stop)
        across = Span(columns[j[0]].start, columns[j[-1]].stop)
        of_b = [every[x] for x in j] if p.shared != "same" else list(strips)
        result = d.region((next_cell,), down.start, across.start)
        next_cell += 1
        if p.reads_c:
            yield CopyIn("C", ONE, down, across, result)
        of_a = a.region([strips[x] for x in i], down.start, 0)
        yield Compute(
            1, down.size, across.size, p.k, of_a, b.region(of_b, 0, across.start), result
        )  # fmt: skip
        yield CopyOut(ONE, down, across, result)

    def first(i: int) -> CopyIn:
        return CopyIn("A", ONE, rows[i], depth, a.region((strips[i],), rows[i].start, 0))

    if p.shared == "same":
        for i in strips:
            yield first(i)
        for i in strips:
            yield from product(range(i, i + 1), range(1))
        return
    at_a = at_b = 0
    while at_a < len(rows) or at_b < len(columns):
        if p.shared:
            yield first(at_a)
            at_a = at_b = at_a + 1
            yield from product(range(at_a - 1, at_a), range(at_b))
            yield from product(range(at_a - 1), range(at_b - 1, at_b))
        elif at_b == len(columns) or (at_a < len(rows) and at_a * len(columns) <= at_b * len(rows)):
            yield first(at_a)
            at_a += 1
            yield from product(range(at_a - 1, at_a), range(at_b))
        else:
            span = columns[at_b]
            yield CopyIn("B", ONE, depth, span, b.region((every[at_b],), 0, span.start))
            at_b += 1
            yield from product(range(at_a), range(at_b - 1, at_b))
