"""How long the Hopper kernel should take: a model of waves, k-steps and bytes, for many tilings.

The model is one NumPy expression over arrays of tilings, for what the planner asks of each new
shape may take some hundred microseconds. What only tilings and costs decide is computed once
(:class:`Prices`). ``benchmarks/fit_hopper.py`` fits the constants to measured times of random
products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
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
from tilewise.gemm.families.hopper.tilings import Kind

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
        Kind(x.a_k_major, x.b_k_major, x.d_row_major, x.a_unaligned, x.b_unaligned, is_swapped)
        for x, is_swapped in zip(views, cycle((False, True)), strict=False)
    )
    prices = _prices_of(kinds, chip)
    times = prices.seconds(views)
    if any(around):
        times += np.repeat(np.array(around, np.float64), 2)[prices.table.view]
    return prices.table, times


@cache
def _prices_of(kinds: tuple[Kind, ...], chip: Chip) -> Prices:
    return Prices(table_of(kinds, chip.multiprocessors), costs_on(chip))


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
    return Prices(table, costs).seconds(views, only_worth)


_CLASS = {16: 0, 32: 1, 64: 2, 128: 3}


class Prices:
    """What a table's tilings cost whatever the product is. Times are in microseconds.

    Parameters
    ----------
    table : Table
    costs : Costs
    """

    def __init__(self, table: Table, costs: Costs) -> None:
        p = costs
        self.table, self.costs = table, costs
        # Of a launch.
        self.around = p.launch + p.cluster_launch * table.doublings
        added = (table.split - 1) * table.elements
        self.around += table.is_split * (p.split + added / (p.split_add * 1e3))
        self.fill = p.fill + p.realign_wait * table.is_unaligned
        # Of a k-step.
        self.multiply = table.flops / (p.tensor * 1e6)
        self.throttle = p.throttle / table.multiprocessors**2
        self.port = 1 / (p.port * 1e3)
        self.l2 = 1 / (p.l2 * 1e6)
        self.b_multicast = table.b_shared * (LINE / (p.multicast_b * 1e3))
        self.a_multicast = (table.cluster_n > 1) * (LINE / (p.multicast_a * 1e3))
        realigning = table.unaligned_lines * (LINE / (p.realign * 1e3))
        realigning = (realigning + p.realign_wait / table.stages) * table.is_unaligned
        waiting = np.where(
            table.is_unaligned,
            p.realign_latency / np.maximum(table.raw_stages - 1, 1),
            p.latency / table.stages,
        )
        self.others = _sixth(waiting) + _sixth(realigning) + p.k_step**6
        self.few_stages = np.where(table.stages <= 3, p.few_stages, 1)
        self.cluster = p.cluster * (table.blocks > 1) * self.few_stages
        # Of a tile's stores: by TMA and by threads, of columns and of rows, by _store_kind.
        by_tma = table.elements * np.array(p.store_widths)[table.out_width] / (p.store * 1e3)
        ends = table.block_m * ROW_ENDS
        self.store = np.array([
            table.elements / (p.columns * 1e3), (table.elements + ends) / (p.rows * 1e3),
            by_tma * p.store_columns, by_tma,
        ])  # fmt: skip
        # Of memory, per byte.
        of_rows = np.array(p.write)[table.out_width]
        self.write = 1e-6 / np.array([np.full_like(of_rows, p.write[-1]), of_rows])
        self.dram, self.rows = 1 / (p.dram * 1e6), np.arange(len(table.view))
        # Of the stream-K tail: storing its partial sums, float32, and the launch that adds them up.
        self.partial = p.tile + table.elements / (p.partial * 1e3)
        self.sum_bytes = 8 * table.elements * table.blocks / (p.sum_bytes * 1e6)

    def seconds(self, views: Sequence[Problem], only_worth: bool = True) -> Array:
        """Return how long each tiling should take, as :func:`seconds` does."""
        table, p, here = self.table, self.costs, self.table.view
        of_views = np.array([_numbers(view, p) for view in views], np.float64).T[:, here]
        sizes, of_views = Sizes(*of_views[:4]), of_views[4:]
        at = covers(table, sizes)
        waves = np.ceil(at.data_parallel_tiles / table.clusters)
        of_tail = at.tail_tiles * at.splits
        whole_steps = np.ceil(at.k_steps / table.split)
        tail_steps = np.ceil(at.k_steps / at.splits) * at.has_tail
        k_steps = waves * whole_steps + tail_steps  # one after the other
        busy = at.data_parallel_tiles * whole_steps + of_tail * tail_steps
        active = np.minimum(busy * table.blocks / k_steps, table.multiprocessors)
        step = self._k_step(active, *of_views[:6])
        end = self._store(views) * of_views[6]
        end += p.tile
        mainloop = whole_steps * step
        # Ping-pong: one warpgroup's epilogue overlaps the other's mainloop, if that takes as long.
        tile = mainloop + end
        in_turn = np.maximum(mainloop, tile / 2)
        computing = waves * np.where(table.is_ping_pong, in_turn, tile)
        computing += table.is_ping_pong * end
        computing += tail_steps * step + at.has_tail * self.partial
        computing += self.fill
        reading = self._memory(at, sizes, views, *of_views[7:])
        reading += p.fill
        # Computing and memory take between their sum, as if nothing overlapped, and the longer.
        overlap = np.where(waves + at.has_tail > 1, p.overlap[1], p.overlap[0])
        time: Array = (computing**overlap + reading**overlap) ** (1 / overlap)
        time += self.around
        # The next launch begins beside this one on the multiprocessors that the last wave leaves.
        last = np.where(at.has_tail, of_tail, at.data_parallel_tiles - (waves - 1) * table.clusters)
        last *= table.blocks * (p.last_wave / table.multiprocessors)
        time += np.minimum(last, p.last_wave)
        added = p.sum_launch + np.ceil(at.splits / table.splits_at_once) * p.sum_splits
        time += at.has_tail * added + of_tail * self.sum_bytes
        if only_worth:
            time[~is_worth_it(table, at, sizes)] = math.inf
        time *= 1e-6
        return time

    def _k_step(
        self,
        active: Array,
        most_rows: Array,
        port_a: Array,
        port_b: Array,
        l2_a: Array,
        l2_b: Array,
        narrow: Array,
    ) -> Array:
        """Return a k-step's microseconds: it multiplies and loads at once.

        Parameters
        ----------
        active : array
            Multiprocessors at work, in the mean over the k-steps.
        most_rows, port_a, port_b, l2_a, l2_b, narrow : array
            As :func:`_numbers` has them.
        """
        table, p = self.table, self.costs
        a_rows = _a_rows(table, most_rows)
        of_a, of_b = a_rows * table.a_line, table.b_bytes * (1 + table.is_narrow * narrow)
        sharing = np.maximum((active - table.multiprocessors / 2) / 8, table.is_clustered)
        sharing = np.maximum(np.minimum(sharing, 1), 0)
        # About the slowest part, and a little more where others are near it: the 6-norm.
        parts = self.others + _sixth(self.multiply * (1 + self.throttle * active * active))
        parts += _sixth((of_a * l2_a + of_b * l2_b) * active * self.l2)
        port = (1 + (p.shared_port - 1) * sharing) * self.port
        parts += _sixth((of_a * port_a + of_b * port_b) * port)
        parts += _sixth(self.b_multicast + a_rows * self.a_multicast)
        step: Array = parts ** (1 / 6)
        step *= self.few_stages
        step += self.cluster
        return step

    def _store(self, views: Sequence[Problem]) -> Array:
        """Return the microseconds of storing a tile of 16-bit elements."""
        kinds = np.array([2 * view.d_by_tma + view.d_row_major for view in views])
        result: Array = self.store[kinds[self.table.view], self.rows]
        return result

    def _memory(
        self, at: Covers, sizes: Sizes, views: Sequence[Problem], inputs: Array, stored: Array,
        read: Array, kept: Array,
    ) -> Array:  # fmt: skip
        """Return the microseconds of memory: what L2 does not keep, each wave reads again.

        Parameters
        ----------
        at : Covers
        sizes : Sizes
        views : sequence of Problem
        inputs, stored, read, kept : array
            As :func:`_numbers` has them.
        """
        table, (m, n, k, _) = self.table, sizes
        at_once = np.minimum(table.clusters, at.tiles)
        down = np.minimum(at.rows, GROUP_M)
        across = np.minimum(at.columns, np.maximum(1, at_once / down))
        of_wave = 2 * k * (np.minimum(down * table.m, m) + np.minimum(across * table.n, n))
        again: Array = np.maximum(inputs, of_wave * np.maximum(1, at.tiles / at_once))
        again += (inputs - again) * kept
        again += read
        again *= self.dram
        by_rows = np.array([int(view.d_row_major) for view in views])[table.view]
        again += stored * self.write[by_rows, self.rows]
        return again


def _numbers(view: Problem, p: Costs) -> tuple[float, ...]:
    """Return what a problem decides whatever the tiling is.

    Its sizes; the rows of A that are worth loading; how many times longer A's and B's loads take
    at a multiprocessor's port, and at the L2 cache; by how much B's take longer by 32 columns; how
    many times longer D's stores take than those of 16-bit elements with no C; the bytes of A and B, those of D and those of C; and the
    share of A and B that L2 keeps from one wave to the next.
    """
    m, n, k, batch = view.m, view.n, view.k, view.batch
    most_rows = 1 << (m - 1).bit_length() if view.a_k_major else 1 << 30
    of_a, of_b = (
        p.k_major if k_major else p.mn_major for k_major in (view.a_k_major, view.b_k_major)
    )
    port_a = 1.0 if view.a_unaligned else of_a[_CLASS[view.a_alignment]]
    port_b = 1.0 if view.b_unaligned else of_b[_CLASS[view.b_alignment]]
    store = view.d_item / 2 * (1 + view.reads_c)
    one = 2 * k * (m + n)
    stored = view.d_item * batch * m * n
    return (
        m, n, k, batch, most_rows, port_a, port_b, port_a**p.l2_lines, port_b**p.l2_lines,
        0 if view.b_k_major else p.narrow - 1, store, one * batch, stored, stored * view.reads_c, 1 / (1 + (1e-6 * one / p.l2_bytes) ** 4),
    )  # fmt: skip


def _sixth(x: Array) -> Array:
    """Return the sixth power, by less than NumPy's own takes."""
    square: Array = x * x
    return square * square * square


def _a_rows(table: Table, most_rows: Array) -> Array:
    """Return the rows of A that a tile loads, as :meth:`Tiling.a_rows` has it."""
    result: Array = np.minimum(table.block_m, np.maximum(table.least_rows, most_rows))
    return result
