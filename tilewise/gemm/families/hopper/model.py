"""How long the Hopper kernel should take: a model of waves, k-steps and bytes, for many tilings.

The model is one NumPy expression over arrays of tilings, for what the planner asks of each new
shape may take some hundred microseconds. ``benchmarks/fit_hopper.py`` fits its constants to
measured times of random products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

import numpy as np

from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.hopper.costs import Costs, costs_on
from tilewise.gemm.families.hopper.table import (
    LINE,
    Array,
    Covers,
    Sizes,
    Table,
    covers,
    is_worth_it,
    table_of,
)
from tilewise.gemm.families.hopper.tiling import Problem, Tiling

GROUP_M = 16  # of hopper_tile.cuh: rows of clusters whose tiles are computed together
ROW_ENDS = 128  # a row's unaligned ends cost as much as this many columns


def best(
    problems: Sequence[Problem], around: Sequence[float], chip: Chip
) -> tuple[Tiling, int, float] | None:
    """Return the tiling that should be fastest.

    Parameters
    ----------
    problems : sequence of Problem
        The ways to read a product.
    around : sequence of float
        Seconds that each way takes besides, for copies.
    chip : Chip

    Returns
    -------
    (Tiling, int, float) or None
        The tiling, which of the problems it is for, and the seconds that it should take with what
        comes around it. None where no tiling fits.
    """
    found = _timed(problems, around, chip)
    if found is None:
        return None
    table, times = found
    row = int(times.argmin())
    if not times[row] < math.inf:
        return None
    return table.tilings[row], int(table.view[row]) // 2, float(times[row])


def ranked(
    problems: Sequence[Problem], around: Sequence[float], chip: Chip
) -> list[tuple[Tiling, int, float]]:
    """Return what :func:`best` chooses from, the fastest first, each tiling once."""
    found = _timed(problems, around, chip)
    if found is None:
        return []
    table, times = found
    rows, seen = [], set()
    for row in np.argsort(times, kind="stable"):
        tiling = table.tilings[row]
        if times[row] < math.inf and tiling not in seen:
            seen.add(tiling)
            rows.append((tiling, int(table.view[row]) // 2, float(times[row])))
    return rows


def _timed(
    problems: Sequence[Problem], around: Sequence[float], chip: Chip
) -> tuple[Table, Array] | None:
    if not problems:
        return None
    views = [view for problem in problems for view in (problem, problem.swapped)]
    kinds = tuple(
        # Whether A is K-major matters to the tilings only where it is not 16-byte aligned.
        (x.a_k_major or not x.a_unaligned, x.b_k_major, x.a_unaligned, x.b_unaligned, is_swapped)
        for x, is_swapped in zip(views, cycle((False, True)), strict=False)
    )
    table = table_of(kinds, chip.multiprocessors)
    costs = costs_on(chip)
    extra = np.repeat(np.array(around, np.float64), 2)[table.view] if any(around) else 0.0
    times = seconds(table, views, costs)
    return table, times + extra


def seconds_of(tiling: Tiling, problem: Problem, chip: Chip = H200) -> float:
    """Return how long a product should take by one tiling, worth comparing or not."""
    view = problem.swapped if tiling.swapped else problem
    table = Table([tiling], [0], chip.multiprocessors)
    return float(seconds(table, [view], costs_on(chip), False)[0])


def seconds(table: Table, views: Sequence[Problem], costs: Costs, only_worth: bool = True) -> Array:
    """Return how long each tiling should take; infinity where it is not worth comparing.

    Parameters
    ----------
    table : Table
    views : sequence of Problem
        As the kernel computes them: swapped already.
    costs : Costs
    only_worth : bool
        Whether tilings that are not worth comparing are left out.
    """
    sizes = Sizes(*np.array([(x.m, x.n, x.k, x.batch) for x in views], np.float64).T[:, table.view])
    at = covers(table, sizes)
    step = _k_step(table, at, views, costs)
    end = costs.tile + _store(table, views, costs)
    exact = at.data_parallel_tiles / table.clusters
    waves = np.ceil(exact)
    waves -= costs.last_wave * (waves - exact) * (waves > 1)
    mainloop = np.ceil(at.k_steps / table.split) * step
    # Ping-pong: one warpgroup's epilogue overlaps the other's mainloop, if that takes as long.
    in_turn = np.maximum(mainloop, (mainloop + end) / 2)
    tile = np.where(table.is_ping_pong, in_turn, mainloop + end)
    computing = costs.fill + waves * tile + table.is_ping_pong * end
    if table.has_unaligned:
        computing += costs.realign_wait * table.is_unaligned
    computing += at.has_tail * np.ceil(at.k_steps / at.splits) * step
    reading = costs.fill + _memory(table, at, sizes, views, costs)
    time = costs.launch + costs.cluster_launch * table.doublings + _both(computing, reading, costs)
    time += at.has_tail * _sum(table, at, costs)
    time += table.is_split * (
        costs.split + (table.split - 1) * table.elements / (costs.split_add * 1e3)
    )
    if only_worth:
        time = np.where(is_worth_it(table, at, sizes), time, math.inf)
    return time * 1e-6


_CLASS = {16: 0, 32: 1, 64: 2, 128: 3}


def _loaded(view: Problem, p: Costs) -> tuple[float, float, float]:
    """Return the rows of A that are worth loading, and how much longer A's and B's loads take."""
    most_rows = 1 << (view.m - 1).bit_length() if view.a_k_major else 1 << 30
    of_a, of_b = (
        p.k_major if k_major else p.mn_major for k_major in (view.a_k_major, view.b_k_major)
    )
    slow_a = 1.0 if view.a_unaligned else of_a[_CLASS[view.a_alignment]]
    slow_b = 1.0 if view.b_unaligned else of_b[_CLASS[view.b_alignment]]
    return most_rows, slow_a, slow_b


def _a_rows(table: Table, most_rows: Array) -> Array:
    """Return the rows of A that a tile loads, as :meth:`Tiling.a_rows` has it."""
    result: Array = np.minimum(table.block_m, np.maximum(table.least_rows, most_rows))
    return result


def _k_step(table: Table, at: Covers, views: Sequence[Problem], p: Costs) -> Array:
    """Return a k-step's microseconds: it multiplies and copies at once."""
    loaded = np.array([_loaded(view, p) for view in views])
    most_rows, slow_a, slow_b = loaded.T[:, table.view]
    active, a_rows = at.active, _a_rows(table, most_rows)
    of_a, of_b = LINE * a_rows / table.cluster_n, table.b_bytes
    read = of_a + of_b
    multiply = np.maximum(
        table.flops / (p.tensor * 1e6),
        active * (table.flops / (p.power * 1e6) + read / (p.energy * 1e6)),
    )
    sharing = np.maximum((active - table.multiprocessors / 2) / 8, table.is_clustered)
    sharing = np.maximum(np.minimum(sharing, 1), 0)
    port = (1 + (p.shared_port - 1) * sharing) / (p.port * 1e3)
    terms = [
        multiply,
        (of_a * slow_a**p.l2_lines + of_b * slow_b**p.l2_lines) * active / (p.l2 * 1e6),
        (of_a * slow_a + of_b * slow_b) * port,
        np.maximum(table.b_shared, a_rows * (table.cluster_n > 1)) * (LINE / (p.multicast * 1e3)),
        p.latency / table.stages,
    ]
    if table.has_unaligned:
        waiting = p.realign_latency / np.maximum(table.raw_stages - 1, 1)
        terms[-1] = np.where(table.is_unaligned, waiting, terms[-1])
        realigning = table.unaligned_lines * (LINE / (p.realign * 1e3))
        realigning += p.realign_wait / table.stages
        terms.append(realigning * table.is_unaligned)
    step = _slowest(terms, p.k_step) + p.cluster * table.is_clustered
    step *= np.where(table.stages <= 3, p.few_stages, 1)
    return step


def _store(table: Table, views: Sequence[Problem], p: Costs) -> Array:
    """Return the microseconds of storing a tile, by TMA or by the threads themselves.

    The ends of rows that are not aligned take as long as some columns more.
    """
    by_tma, by_rows = np.array([(x.d_by_tma, x.d_row_major) for x in views]).T[:, table.view]
    widths = np.array(p.store_widths)[table.out_width]
    copying = table.elements * widths * np.where(by_rows, 1, p.store_columns) / (p.store * 1e3)
    ends = table.block_m * ROW_ENDS * by_rows
    alone = (table.elements + ends) / (1e3 * np.where(by_rows, p.rows, p.columns))
    result: Array = np.where(by_tma, copying, alone)
    return result


def _sum(table: Table, at: Covers, p: Costs) -> Array:
    """Return the microseconds of the launch that adds up stream-K's partial sums."""
    partial = 8 * table.elements * table.blocks * at.tail_tiles * at.splits
    launched = p.sum_launch + np.ceil(at.splits / table.splits_at_once) * p.sum_splits
    result: Array = launched + partial / (p.sum_bytes * 1e6)
    return result


def _memory(table: Table, at: Covers, sizes: Sizes, views: Sequence[Problem], p: Costs) -> Array:
    """Return the microseconds of memory: what the L2 cache does not keep, each wave reads again."""
    m, n, k, batch = sizes
    inputs, stored = 2 * k * batch * (m + n), 2 * batch * m * n
    at_once = np.minimum(table.clusters, at.tiles)
    down = np.minimum(at.rows, GROUP_M)
    across = np.minimum(at.columns, np.maximum(1, at_once / down))
    of_wave = 2 * k * (np.minimum(down * table.m, m) + np.minimum(across * table.n, n))
    again = np.maximum(inputs, of_wave * np.maximum(1, at.tiles / at_once))
    kept = 1 / (1 + (2e-6 * k * (m + n) / p.l2_bytes) ** 4)
    read = again + (inputs - again) * kept
    by_rows = np.array([x.d_row_major for x in views])[table.view]
    write = np.where(by_rows, np.array(p.write)[table.out_width], p.write[-1])
    result: Array = read / (p.dram * 1e6) + stored / (write * 1e6)
    return result


def _both(computing: Array, reading: Array, p: Costs) -> Array:
    """Return how long both take: between their sum, as if nothing overlapped, and the longer."""
    result: Array = (computing**p.overlap + reading**p.overlap) ** (1 / p.overlap)
    return result


def _slowest(terms: Sequence[Array], least: float) -> Array:
    """Return about the largest of the terms, and a little more where others are near it."""
    every = np.empty((len(terms) + 1, len(terms[0])))
    for row, term in zip(every, terms, strict=False):
        row[:] = term
    every[-1] = least
    longest: Array = every.max(0)
    every /= longest
    every *= every
    cubes = every * every
    cubes *= every
    longest *= cubes.sum(0) ** (1 / 6)
    return longest
