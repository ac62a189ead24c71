"""How long the Hopper kernel's tiles should take: a model of waves, phases and bytes.

Pure arithmetic, as ``tilings.py``; fitted to measurements by benchmarks/fit_costs.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewise.gemm.families.hopper.tilings import (
    BLOCK_K,
    Problem,
    Tiling,
    candidates,
    clusters_at_once,
    cover,
)

ROW_ENDS = 128  # columns, that take as long as what is before and behind a row's aligned words
CROWDED = 0.8  # of the multiprocessors: with more at work, the next kernel finds no room beside
SLIM = 96  # columns of a tile, up to which reading a taller one of A takes longer


def choose(problem: Problem, multiprocessors: int) -> tuple[Tiling, float]:
    """The tiling that should be fastest, and the seconds that it should take."""
    times = {
        tiling: seconds(tiling, problem, multiprocessors)
        for tiling in candidates(problem, multiprocessors)
    }
    best = min(times, key=times.__getitem__)
    return best, times[best]


@dataclass(frozen=True)
class Costs:
    """What the model is made of: seconds, and rates a second. Fitted to measurements on an H200."""

    start: float = 4.0e-07  # of a launch behind another, and
    crowded: float = 4.0e-07  # of one that repacks, behind blocks that leave no multiprocessor free
    flops: float = 1170e12  # of the GPU, if power were all that counts, and
    energy: float = 37.8e12  # bytes from L2, likewise: they share what power there is
    flops_one: float = 5.48e12  # of one multiprocessor
    l2: float = 15.3e12  # bytes from L2 to all multiprocessors
    unaligned: float = 2.15  # as many bytes, where rows do not begin with sectors
    phase: float = 1.25e-06  # of one copy; as many are in flight as there are stages
    multicast: float = 8.87e10  # bytes that one gets from its cluster's copies
    cluster: float = 1.3e-08  # of a phase, in which blocks of a cluster wait for each other
    tile: float = 2.08e-07  # of a tile's end, and
    store: float = 2.27e10  # elements of D that a multiprocessor stores,
    across: float = 1.59  # as long where D's columns are contiguous
    narrow: float = 1.5  # and where bulk copies of D are 16 columns wide;
    rows: float = 1.41e10  # without bulk copies, elements of rows,
    alone: float = 4.7e9  # and of columns
    shift: float = 9.7e10  # bytes that a multiprocessor shifts in shared memory,
    shift_wait: float = 1.25e-6  # of a phase's shifts, of which as many overlap as there are stages
    tall: float = 1.15  # as long to read, where tall tiles of A meet slim ones of B
    dram: float = 4.55e12
    dram_one: float = 3.89e10  # of what one multiprocessor asks for
    twice: float = 0.5  # as long again, where two clusters read the same, and again for four
    split: float = 7.92e-07  # of adding up in a cluster, and
    add: float = 6.29e9  # elements that a multiprocessor adds
    sum: float = 1.7e-06  # of the second kernel,
    batch: float = 9.45e-07  # of 16 parts in it, and
    partial: float = 2.53e12  # bytes of partial sums


COSTS = Costs()


def seconds(tiling: Tiling, problem: Problem, multiprocessors: int, costs: Costs = COSTS) -> float:
    """How long a product should take, by a model of waves, phases and bytes."""
    view = problem.turned if tiling.turned else problem
    m, n, k, batch = view.m, view.n, view.k, view.batch
    at = cover(tiling, m, n, k, batch, multiprocessors)
    size = tiling.tiles * tiling.split
    active = min(at.units * size, multiprocessors)
    elements = tiling.block_m * tiling.block_n

    # A phase multiplies, brings its bytes, and waits for a copy, all at once.
    width = max(tiling.block_n, 32 + tiling.block_n / 2)  # below 64, A is what wgmma waits for
    work = 2 * tiling.block_m * width * BLOCK_K
    a_bytes, b_bytes = 2 * BLOCK_K * tiling.a_rows(view), 2 * BLOCK_K * tiling.block_n
    # What is shifted is read by whole 128 bytes.
    bytes_in = a_bytes / tiling.cluster_n
    bytes_in *= 1 if view.a_aligned or view.a_shifted else costs.unaligned
    of_b = b_bytes / tiling.cluster_m
    bytes_in += of_b * (1 if view.b_aligned or view.b_shifted else costs.unaligned)
    multicast = max(b_bytes * (tiling.cluster_m > 1), a_bytes * (tiling.cluster_n > 1))
    multiply = max(work / costs.flops_one, active * (work / costs.flops + bytes_in / costs.energy))
    phase = _together(
        multiply,
        bytes_in * active / costs.l2,
        multicast / costs.multicast,
        costs.phase / (tiling.raw_stages(view) - 1 if tiling.shifted else tiling.stages),
        (a_bytes * view.a_shifted + b_bytes * view.b_shifted) / costs.shift
        + (costs.shift_wait / tiling.stages if tiling.shifted else 0.0),
    )
    if tiling.tiles > 1:
        phase += costs.cluster
    if view.d_copied:
        end = elements / costs.store * (1 if view.d_by_rows else costs.across)
        if tiling.out_columns == 16:
            end *= costs.narrow
    else:
        # The ends of rows take as long as some columns more.
        ends = tiling.block_m * ROW_ENDS if view.d_by_rows else 0
        end = (elements + ends) / (costs.rows if view.d_by_rows else costs.alone)
    end += costs.tile

    units, steps = at.units, at.phases
    if tiling.split > 1:
        units = clusters_at_once(tiling.split, multiprocessors)
        steps = -(-at.phases // tiling.split)
    time = costs.phase + (costs.shift_wait if tiling.shifted else 0.0)
    time += -(-at.whole // units) * (steps * phase + end)
    adding = 0.0  # after all has been read
    if tiling.split > 1:
        adding = costs.split + (tiling.split - 1) * elements / costs.add
    if at.rest:
        time += -(-at.phases // at.parts) * phase
        adding = costs.sum + -(-at.parts // 16) * costs.batch
        adding += 2 * 4 * elements * tiling.tiles * at.rest * at.parts / costs.partial

    # Few blocks at work do not get all of the memory's rate.
    last = at.whole % units
    tiles = (at.whole - last, last, at.rest)
    blocks = (units * size, last * size, at.rest * at.parts * size)
    a_again = costs.twice * _doublings(at.n_tiles // tiling.cluster_n)
    b_again = costs.twice * _doublings(at.m_tiles // tiling.cluster_m)
    moved = m * k * (1 + a_again) + k * n * (1 + b_again) + m * n
    moved *= 2.0 * batch / at.tiles
    reading = sum(
        moved * count / min(costs.dram, costs.dram_one * busy)
        for count, busy in zip(tiles, blocks, strict=True)
        if count
    )
    start = costs.start
    if problem.repacked and active > CROWDED * multiprocessors:
        start += costs.crowded
    if view.a_by_k and tiling.consumers > 1 and tiling.split == 1 and tiling.block_n <= SLIM:
        reading *= costs.tall
    return start + _together(time, costs.phase + reading) + adding


def _doublings(readers: int) -> float:
    """How often clusters that read the same at a time are twice as many; more than four don't."""
    return math.log2(min(readers, 4))


def _together(*times: float) -> float:
    """Of what happens at once: the longest, and a little more where others are near it."""
    longest = max(times)
    total: float = sum((time / longest) ** 6 for time in times) ** (1 / 6)
    return longest * total
