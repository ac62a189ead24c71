"""Plans for a batch of products: small ones travel in groups, large ones one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewise.gemm.blocking import Span
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

SLOTS = 3
"""The number of groups on the GPU: one on its way there, one computed, one on its way back."""


def memory(p: HostProblem, group: int) -> int:
    """Return the bytes of the GPU's memory for groups of ``group`` products."""
    return _in_slots(p, group, SLOTS if group < p.batch else 1)


def largest(p: HostProblem, room: int) -> int:
    """Return the most products that a group may have so that it and all smaller ones fit.

    That is 0 if not even one product fits. The whole batch as one group may fit all the same, since
    it needs one slot.
    """
    low, high = 0, p.batch
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _in_slots(p, middle, SLOTS) <= room else (low, middle - 1)
    return low


def plan(p: HostProblem, group: int) -> HostPlan:
    """Return the plan with groups of ``group`` products.

    Parameters
    ----------
    p : HostProblem
    group : int
        The number of products of a group, at least 1.
    """
    count = -(-p.batch // group)
    words = f"a batch of {p.batch:,} in {count:,} groups of {group:,}"
    return HostPlan(
        memory(p, group), p.bytes_in, p.bytes_out, words, lambda: _steps(p, group)
    )  # fmt: skip


def one_by_one(p: HostProblem, single: HostPlan, room: int) -> HostPlan:
    """Return a plan for a batch that carries out the plan of one product for each of them.

    Two products overlap if the memory has room for both.
    """
    copies = 2 if 2 * rounded(single.memory) <= room else 1
    return replace(
        single,
        memory=copies * rounded(single.memory),
        bytes_in=p.batch * single.bytes_in,
        bytes_out=p.bytes_out,
        words=f"a batch of {p.batch:,}, one by one: {single.words}",
        make=lambda: _one_by_one(p.batch, single, copies),
    )


def _sizes(p: HostProblem) -> tuple[list[int], list[int]]:
    """Return the bytes of the matrices of the whole batch, and of each product of a group."""
    a, b, d = p.a.size(p.m, p.k), p.b.size(p.k, p.n), p.d.size(p.m, p.n)
    once = [x for x, is_one in ((a, p.a_is_one), (b, p.b_is_one)) if is_one]
    each = [0 if p.a_is_one else a, 0 if p.b_is_one or p.shared else b, d]
    return once, each


def _in_slots(p: HostProblem, group: int, slots: int) -> int:
    """Return the bytes of the GPU's memory for so many groups at once."""
    once, each = _sizes(p)
    return sum(map(rounded, once)) + slots * sum(rounded(group * x) for x in each)


def _steps(p: HostProblem, group: int) -> Iterator[Step]:
    once, each = _sizes(p)
    sizes = [rounded(group * x) for x in each]
    begin = sum(map(rounded, once))
    depth, rows, columns = Span(0, p.k), Span(0, p.m), Span(0, p.n)
    pitches = p.a.pitch(p.m, p.k), p.b.pitch(p.k, p.n), p.d.pitch(p.m, p.n)

    def region(kind: int, at: int) -> Region:
        """Return the region of a group's A, B or D, by ``kind``."""
        slot = at % SLOTS
        offset = begin + slot * sum(sizes) + sum(sizes[:kind])
        return Region((2 + 3 * slot + kind,), offset, pitches[kind], each[kind])

    a = Region((0,), 0, pitches[0])
    b = Region((1,), rounded(once[0]) if p.a_is_one else 0, pitches[1])
    if p.a_is_one:
        yield CopyIn("A", ONE, rows, depth, a)
    if p.b_is_one:
        yield CopyIn("B", ONE, depth, columns, b)
    for at, first in enumerate(range(0, p.batch, group)):
        batch = Span(first, min(first + group, p.batch))
        if not p.a_is_one:
            a = region(0, at)
            yield CopyIn("A", batch, rows, depth, a)
        if p.shared:
            b = a
        elif not p.b_is_one:
            b = region(1, at)
            yield CopyIn("B", batch, depth, columns, b)
        d = region(2, at)
        if p.reads_c:
            yield CopyIn("C", batch, rows, columns, d)
        yield Compute(batch.size, p.m, p.n, p.k, a, b, d)
        yield CopyOut(batch, rows, columns, d)


def _one_by_one(count: int, single: HostPlan, copies: int) -> Iterator[Step]:
    for at in range(count):

        def moved(x: Region, shift: int = at % copies) -> Region:
            cells = tuple(copies * cell + shift for cell in x.cells)
            return x._replace(cells=cells, offset=x.offset + shift * rounded(single.memory))

        batch = Span(at, at + 1)
        for step in single.steps():
            if isinstance(step, CopyIn):
                yield step._replace(batch=batch, to=moved(step.to))
            elif isinstance(step, CopyOut):
                yield step._replace(batch=batch, source=moved(step.source))
            else:
                yield step._replace(
                    a=moved(step.a), b=moved(step.b), d=moved(step.d),
                    result=None if step.result is None else moved(step.result),
                )  # fmt: skip
