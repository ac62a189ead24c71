"""Choose how to cut a product of matrices in the host's memory for the way to a GPU and back.

A product that fits the GPU is cut into strips: from pinned memory in the way whose last step should
end first (:mod:`tilewise.host.timeline`), from other memory into so many pairs of strips. One that
does not fit is computed by the plan whose copies or kernels, whichever take longer, take the least
time together with all that can't overlap. Copies run in both directions at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from tilewise.host import at_once, divided, grouped, resident, strips
from tilewise.host.channel import BUFFER
from tilewise.host.plan import HostPlan, HostProblem
from tilewise.host.strips import Strips
from tilewise.host.timeline import seconds_of

LINK, STAGED = 50e9, 20e9
"""The bytes a second in each direction, both at once, measured over PCIe 5.0 x16: from and to
pinned memory, and with threads that copy from and to other memory.
"""

DIRECT_STRIP, STAGED_STRIP = 8 << 20, BUFFER
"""A matrix in pinned memory, or in other memory, is cut into no more strips than it has pieces of
so many bytes, the last of which may be shorter: enqueueing a strip, or waking threads, takes time.
"""
LEAST_LINE = 4096
"""The least bytes of a strip's lines, since the link copies shorter ones more slowly."""
CUTS = (
    (1, 16), (1, 8), (3, 8), (5, 6), (4, 4), (2, 2), (1, 1), (6, 5), (8, 3), (8, 1), (16, 1)
)  # fmt: skip
"""The numbers of strips of A and of B that are tried for a product from pinned memory."""
GROWING_A, GROWING_B = (2, 3, 2, 4, 3, 2), (4, 2, 6, 4)
"""The strips of A and of B, in 16ths, of another cut that is tried.

A's first strips are small, so that kernels begin soon, and its last one is small, since nothing
overlaps the copy of its part of D. B's strips are fewer and larger, which suits the kernels better.
"""
STAGED_PAIRS = 16
"""The most pairs of strips of a product from memory that is not pinned, where the threads' copies
take the longest.
"""
GROUP = 64 << 20
"""The bytes that a group of a batch's products copies to the GPU and back."""
STEP = 50e-6
"""The seconds of the host for a pair of strips, whose copies and launches it enqueues."""
_GAIN = 0.9
"""The share of the strips' time below which k is divided, as that changes the result's bits."""
_MOST_PAIRS = 1 << 20


class Seconds(Protocol):
    """The time that the GPU takes for products; equal objects give equal times."""

    def __call__(self, m: int, n: int, k: int, is_piece: bool = False) -> float:
        """Return the seconds of a product of m, n and k, or of one of many pieces of a product."""
        ...

    def __hash__(self) -> int: ...


def choose(p: HostProblem, room: int, seconds: Seconds) -> HostPlan:
    """Return the plan that should be fastest among those that fit.

    Parameters
    ----------
    p : HostProblem
    room : int
        The bytes of the GPU's memory that the plan may take.
    seconds : callable
        A function of m, n and k that returns how long the GPU takes for such a product, once its
        matrices are there.

    Raises
    ------
    ValueError
        If not even one element of each matrix fits.
    """
    if p.batch > 1:
        each = (p.bytes_in + p.bytes_out) // p.batch
        is_small = p.bytes_in + p.bytes_out <= at_once.MOST
        if is_small and grouped.memory(p, p.batch) <= room:
            return grouped.plan(p, p.batch)
        most = min(grouped.largest(p, room), max(1, GROUP // max(1, each)))
        if most and each < 2 * GROUP:
            return grouped.plan(p, most)
        single = replace(p, batch=1, a_is_one=False, b_is_one=False)
        half = resident.memory(single) <= room // 2
        return grouped.one_by_one(p, choose(single, room // 2 if half else room, seconds), room)
    if resident.memory(p) <= room:
        return _resident(p, seconds)
    found = _best_strips(p, room, seconds)
    # If the kernels take nearly as long, dividing k can't be faster.
    if found is not None and found[0] <= seconds(p.m, p.n, p.k) / _GAIN:
        return found[1].plan()
    blocks = divided.choose(p, room)
    plan, count = divided.plan(p, blocks), blocks.tiles * blocks.pieces
    of_block = seconds(blocks.block_m, blocks.block_n, blocks.block_k, is_piece=True)
    expected = max(plan.bytes_in / _rate(p), plan.bytes_out / _rate(p), count * of_block)
    if found is not None and found[0] * _GAIN <= expected:
        return found[1].plan()
    return plan


def _rate(p: HostProblem) -> float:
    return LINK if p.is_pinned else STAGED


@lru_cache(maxsize=256)
def _resident(p: HostProblem, seconds: Seconds) -> HostPlan:
    """Return the plan of a product that fits, with strips enough for copies to overlap kernels."""
    size_a, size_b = p.m * p.k * p.a.item, p.k * p.n * p.b.item
    least = DIRECT_STRIP if p.is_pinned else STAGED_STRIP
    most_a, most_b = max(1, -(-size_a // least)), max(1, -(-size_b // least))
    if not p.a.by_rows:
        most_a = min(most_a, max(1, p.m * p.a.item // LEAST_LINE))
    if p.b.by_rows:
        most_b = min(most_b, max(1, p.n * p.b.item // LEAST_LINE))
    if not p.is_pinned:
        wanted = max(1, round(math.sqrt(STAGED_PAIRS * size_a / max(1, size_b))))
        of_b = min(most_b, max(1, round(STAGED_PAIRS / wanted)))
        of_a = min(most_a, STAGED_PAIRS // of_b)
        return resident.plan(p, of_a, min(most_b, STAGED_PAIRS // of_a))
    cuts = {(min(most_a, of_a), 1 if p.shared else min(most_b, of_b)) for of_a, of_b in CUTS}
    plans = [resident.plan(p, *cut) for cut in sorted(cuts)]
    if not p.shared and most_a >= len(GROWING_A) and most_b >= len(GROWING_B):
        rows = resident.cut_by(p.m, GROWING_A, resident.STRIP_GRAIN)
        columns = resident.cut_by(p.n, GROWING_B, resident.STRIP_GRAIN)
        plans.append(resident.plan_of(p, rows, columns))
    computing = seconds(p.m, p.n, p.k)
    return min(plans, key=lambda plan: seconds_of(plan, p, computing, LINK))


def _best_strips(p: HostProblem, room: int, seconds: Seconds) -> tuple[float, Strips] | None:
    """Return the strips that should be fastest, and their seconds; None if none fit."""
    timed: dict[tuple[int, int], float] = {}
    best: tuple[float, Strips] | None = None
    for x in _candidates(p, room):
        edges = min(x.height, p.m), min(x.width, p.n)
        if edges not in timed:
            timed[edges] = max(STEP, seconds(*edges, p.k, is_piece=True))
        found = _time(x, timed[edges])
        if best is None or found < best[0]:
            best = found, x
    return best


def _candidates(p: HostProblem, room: int) -> Iterator[Strips]:
    for edge in (8192, 6144, 4096, 3072, 2048, 1024, 512, 256, 128):
        height, width = min(edge, p.m), min(edge, p.n)
        empty = Strips(p, height, width, 0, 1)
        slots = (room - strips.RESULTS * empty.result) // max(1, empty.slot)
        count_a, count_b = empty.counts
        if count_a * count_b > _MOST_PAIRS:
            continue
        slots = min(slots, count_a + count_b)
        if slots < min(strips.LEAST, count_a + count_b):
            continue
        for holds_b in (False, True):
            count = empty.counts[holds_b]
            for share in (0.5, 0.65, 0.8, 1.0):
                held = max(1, min(count, slots - 2, int(share * (slots - 2))))
                yield Strips(p, height, width, slots, held, holds_b)


def _time(x: Strips, of_pair: float) -> float:
    """Return the seconds that the copies and the kernels, which overlap, should take."""
    p = x.problem
    count_a, count_b = x.counts
    rate = _rate(p)
    of_strip, of_c = x.slot / rate, p.bytes_out / rate
    computing = count_a * count_b * of_pair
    copying = x.copies * of_strip + (of_c if p.reads_c else 0)
    # Between passes, each new strip is multiplied by the strips that stayed.
    stay = x.slots - x.held
    stalled = (x.passes - 1) * x.held * max(0.0, of_strip - stay * of_pair)
    first, last = 2 * of_strip, x.result / rate
    return max(computing + stalled, copying, of_c) + first + last
