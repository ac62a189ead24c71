"""The time that the Hopper kernel should take: a model of waves, k-steps and bytes.

The model is one NumPy expression over arrays of many tilings, because the planner evaluates it for
each new shape; that takes some fifty microseconds. The parts that do not depend on the sizes are
computed once for a layout (:class:`Prices`). ``benchmarks/fit_hopper.py`` fits the constants to
measured times of random products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle
from typing import Any

import numpy as np

from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.hopper.costs import Costs, costs_on
from tilewise.gemm.families.hopper.table import (
    LINE,
    Array,
    Depth,
    Table,
    TableCover,
    cover_table,
    depth_of,
    is_excluded,
    table_of,
)
from tilewise.gemm.families.hopper.tiling import Problem, Tiling
from tilewise.gemm.families.hopper.tilings import Kind

GROUP_M = 16  # as in hopper_tile.cuh: rows of clusters whose tiles are computed together
FIRST = Problem._fields.index("a_k_major")  # the first field of a problem after its sizes
KINDS = 128  # kinds of products whose prices are cached
DEPTHS, PARTS = 128, 32  # depths, and rows of A that are worth loading, whose prices are kept
ROW_ENDS = 128  # a row's unaligned ends cost as much as this many columns
# Arrays without a dimension, because NumPy's functions take longer with a Python number.
_GROUP_M, _SIXTH, _MICRO = np.array(float(GROUP_M)), np.array(1 / 6), np.array(1e-6)


def best(
    problems: Sequence[Problem], around: Sequence[float], chip: Chip, parts: int = 0
) -> tuple[Tiling, int, float] | None:
    """Return the tiling that should be fastest.

    Parameters
    ----------
    problems : sequence of Problem
        The ways to read a product.
    around : sequence of float
        The seconds that each way takes besides the kernel, for copies.
    chip : Chip
    parts : int, optional
        The parts that k is divided into; 0 for as many as are fastest.

    Returns
    -------
    (Tiling, int, float) or None
        The tiling, the index of the problem that it is for, and the seconds that it should take
        with the copies around it. None if no tiling fits.
    """
    found = _timed(problems, around, chip, parts)
    if found is None:
        return None
    table, times = found
    row = int(times.argmin())
    if not times[row] < math.inf:
        return None
    return table.tilings[row], int(table.view[row]) // 2, float(times[row])


def ranked(
    problems: Sequence[Problem], around: Sequence[float], chip: Chip, parts: int = 0
) -> list[tuple[Tiling, int, float]]:
    """Return the choices of :func:`best`, the fastest first, each tiling once."""
    found = _timed(problems, around, chip, parts)
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
    problems: Sequence[Problem], around: Sequence[float], chip: Chip, parts: int
) -> tuple[Table, Array] | None:
    if not problems:
        return None
    prices = _prices_of(tuple([problem[FIRST:] for problem in problems]), chip, parts)
    if not prices.table.tilings:
        return None
    times = prices.seconds([view for x in problems for view in (x, x.swapped)])
    if any(around):
        times += np.repeat(np.array(around, np.float64), 2)[prices.table.view]
    return prices.table, times


@lru_cache(maxsize=KINDS)
def _prices_of(kinds: tuple[tuple[Any, ...], ...], chip: Chip, parts: int) -> Prices:
    """Return the prices for kinds of problems: a kind is a problem's fields without its sizes."""
    given = [Problem(1, 1, 1, 1, *kind) for kind in kinds]
    views = [view for problem in given for view in (problem, problem.swapped)]
    of_tilings = tuple(
        Kind(
            x.a_k_major,
            x.b_k_major,
            x.d_row_major,
            x.a_unaligned,
            x.b_unaligned,
            is_swapped,
            x.pairs,
            x.interleaved,
        )
        for x, is_swapped in zip(views, cycle((False, True)), strict=False)
    )
    return Prices(table_of(of_tilings, chip.multiprocessors, parts), views, costs_on(chip))


def seconds_of(tiling: Tiling, problem: Problem, chip: Chip = H200) -> float:
    """Return the seconds that a product should take by one tiling, worth comparing or not."""
    view = problem.swapped if tiling.swapped else problem
    table = Table([tiling], [0], chip.multiprocessors)
    return float(seconds(table, [view], costs_on(chip), False)[0])


def seconds(table: Table, views: Sequence[Problem], costs: Costs, only_worth: bool = True) -> Array:
    """Return the seconds that each tiling should take; infinity if it is not worth comparing.

    Parameters
    ----------
    table : Table
    views : sequence of Problem
        The problems as the kernel computes them, swapped already.
    costs : Costs
    only_worth : bool
        Whether tilings that are not worth comparing are left out.
    """
    return Prices(table, views, costs).seconds(views, only_worth)


_CLASS = {16: 0, 32: 1, 64: 2, 128: 3}


class Prices:
    """The costs of a table's tilings that do not depend on the problems' sizes, in microseconds.

    Parameters
    ----------
    table : Table
    views : sequence of Problem
        The problems as the kernel computes them, swapped already.
    costs : Costs
    """

    def __init__(self, table: Table, views: Sequence[Problem], costs: Costs) -> None:
        p, processors = costs, table.multiprocessors
        self.table, self.costs = table, costs
        port_a, port_b, l2_a, l2_b, store = np.array([_rates(view, p) for view in views]).T[
            :, table.view
        ]
        # The costs of a launch.
        self.around = p.launch + p.cluster_launch * table.doublings
        added = (table.split - 1) * table.elements
        self.around += table.is_split * (p.split + added / (p.split_add * 1e3))
        # The costs of a k-step, and the factor by which it takes longer with few stages. The first
        # part is for each row of A that is loaded, the second for the rest. The four costs of each
        # are those of L2, of the ports, of multicasts and of the arithmetic.
        few = np.where(table.stages <= 3, p.few_stages, 1)
        multiply = few * table.flops / (p.tensor * 1e6)
        multicast_a = (table.cluster_n > 1) * (LINE / (p.multicast_a * 1e3))
        self.by_rows = few * [
            table.a_line * l2_a, table.a_line * port_a, multicast_a, np.zeros(len(few)),
        ]  # fmt: skip
        multicast_b = table.b_shared * (LINE / (p.multicast_b * 1e3))
        is_mn_major = np.array([not view.b_k_major for view in views])[table.view]
        of_b = table.b_bytes * np.where(is_mn_major & table.is_narrow, p.narrow, 1)
        self.besides = few * [of_b * l2_b, of_b * port_b, multicast_b, 0 * few]
        self.besides[3] = multiply
        self.throttle = multiply * p.throttle / processors**2
        realigning = table.unaligned_lines * (LINE / (p.realign * 1e3))
        realigning = (realigning + p.realign_wait / table.stages) * table.is_unaligned
        waiting = np.where(
            table.is_unaligned,
            p.realign_latency / np.maximum(table.raw_stages - 1, 1),
            p.latency / table.stages,
        )
        self.others = (waiting**6 + realigning**6 + p.k_step**6) * few**6
        self.cluster = p.cluster * (table.blocks > 1) * few
        # The factor by which copies take longer depends on the number of multiprocessors at work:
        # it rises from half of all multiprocessors on, and is full with eight more.
        shared = p.shared_port - 1
        self.each_shared, self.most_shared = np.array(shared / 8), np.array(p.shared_port)
        self.alone = np.array(1 - shared * processors / 16)
        self.least_shared = 1 + shared * table.is_clustered
        # The costs of a tile's end: stores by TMA and by threads, of columns and of rows.
        by_tma = table.elements * np.array(p.store_widths)[table.out_width] / (p.store * 1e3)
        ends = table.block_m * ROW_ENDS
        stores = np.array([
            table.elements / (p.columns * 1e3), (table.elements + ends) / (p.rows * 1e3),
            by_tma * p.store_columns, by_tma,
        ])  # fmt: skip
        kinds = np.array([2 * view.d_by_tma + view.d_row_major for view in views])[table.view]
        rows = np.arange(len(kinds))
        fused = np.array([view.fused for view in views])[table.view] / (p.issue * 1e3)
        self.end = stores[kinds, rows] * store + p.tile
        self.end += table.elements * fused + p.operand * (fused > 0)
        # With ping-pong, one warpgroup's epilogue overlaps the other's mainloop if that takes as
        # long.
        self.turn = np.where(table.is_ping_pong, 0.5, 1.0)
        self.once = table.is_ping_pong * self.end + p.fill + p.realign_wait * table.is_unaligned
        # The cost of memory, for each byte of D.
        of_rows = np.array(p.write)[table.out_width]
        self.write = 1e-6 / np.where(kinds % 2, of_rows, p.write[-1])
        # The costs of the stream-K tail: the stores of its float32 partial sums, and the launch
        # that adds them up.
        self.partial = p.tile + table.elements / (p.partial * 1e3)
        self.sum_bytes = 8 * table.elements * table.blocks / (p.sum_bytes * 1e6)
        self.sum_fused = table.elements * table.blocks * fused / processors
        self.is_fused = any(view.fused for view in views)
        self.last_wave = table.blocks * (p.last_wave / processors)
        self.most_last_wave = np.array(p.last_wave)
        self.sum_splits, self.sum_launch = np.array(p.sum_splits), np.array(p.sum_launch)
        self.overlap = np.array(p.overlap)
        self._depths: dict[tuple[int, ...], Depth] = {}
        self._parts: dict[tuple[int, ...], Array] = {}

    def seconds(self, views: Sequence[Problem], only_worth: bool = True) -> Array:
        """Return the seconds that each tiling should take, as the function :func:`seconds` does.

        For a new shape it is about a fifth of the call, nearly all of it NumPy's overhead for each
        operation. So what depends on k alone, or on few values, is kept.
        """
        table, costs = self.table, self.costs
        numbers = np.array([_numbers(view, costs) for view in views], np.float64).T
        numbers = numbers.take(table.view, axis=1)
        # Unpacking an array takes longer: NumPy ends its iteration by an exception.
        extents, batch, inputs = numbers[:2], numbers[2], numbers[3]
        slope, offset, stored = numbers[4], numbers[5], numbers[6]
        depth = self._depth(tuple([view.k for view in views]))
        at = cover_table(table, extents, batch, depth)
        whole_steps, tail = depth.whole_steps, at.has_tail.astype(np.float64)
        waves = at.waves - tail  # waves of whole tiles
        of_last = at.last * at.splits  # the clusters at work in the last wave
        tail_steps = np.ceil(depth.k_steps / at.splits)
        tail_steps *= tail
        busy = at.tiles - at.last * tail
        busy *= whole_steps
        busy += of_last * tail_steps
        busy *= table.blocks
        busy /= waves * whole_steps + tail_steps  # by the k-steps one after another
        step = self._k_step(np.minimum(busy, table.processors), views)
        mainloop = whole_steps * step
        computing = np.maximum(mainloop, (mainloop + self.end) * self.turn)
        computing *= waves
        computing += self.once
        computing += tail_steps * step
        computing += tail * self.partial
        reading = self._per_k(at, extents, inputs)
        reading *= slope
        reading += offset
        stored *= self.write
        reading += stored
        # The time is between the longer of computing and memory, and their sum if nothing overlaps.
        overlap = self.overlap.take(at.are_several)
        time: Array = (computing**overlap + reading**overlap) ** (table.ones / overlap)
        time += self.around
        # The next launch begins on the multiprocessors that the last wave leaves idle.
        time += np.minimum(of_last * self.last_wave, self.most_last_wave)
        added = np.ceil(at.splits / table.splits_at_once)
        added *= self.sum_splits
        added += of_last * self.sum_bytes
        added += self.sum_launch
        if self.is_fused:
            added += at.last * self.sum_fused
        added *= tail
        time += added
        if only_worth:
            np.putmask(time, is_excluded(table, extents, depth, at), math.inf)
        time *= _MICRO
        return time

    def _depth(self, every_k: tuple[int, ...]) -> Depth:
        """Return :func:`depth_of`, which is kept."""
        found = self._depths.get(every_k)
        if found is None:
            if len(self._depths) >= DEPTHS:
                self._depths.clear()
            found = self._depths[every_k] = depth_of(self.table, every_k)
        return found

    def _loads(self, views: Sequence[Problem]) -> Array:
        """Return the costs of a k-step with one multiprocessor at work, which are kept.

        Of the sizes they depend on the rows of A that are worth loading, a power of two.
        """
        most_rows = tuple([_most_rows(view) for view in views])
        found = self._parts.get(most_rows)
        if found is None:
            if len(self._parts) >= PARTS:
                self._parts.clear()
            every_row = np.array(most_rows, np.float64)[self.table.view]
            found = self.by_rows * _a_rows(self.table, every_row)
            found += self.besides
            self._parts[most_rows] = found
        return found

    def _k_step(self, active: Array, views: Sequence[Problem]) -> Array:
        """Return the microseconds of a k-step, which multiplies and loads at once.

        Parameters
        ----------
        active : array
            The number of multiprocessors at work, on average over the k-steps.
        views : sequence of Problem
        """
        parts = self._loads(views).copy()
        l2, port, multiply = parts[0], parts[1], parts[3]
        l2 *= active
        shared = active * self.each_shared
        shared += self.alone
        shared = np.maximum(shared, self.least_shared)
        port *= np.minimum(shared, self.most_shared)
        throttled = self.throttle * active
        throttled *= active
        multiply += throttled
        # The time is about that of the slowest part, and a little more if others are near it: the
        # 6-norm.
        square = parts * parts
        sixth = square * square
        sixth *= square
        summed = np.add.reduce(sixth)
        summed += self.others
        step: Array = summed**_SIXTH
        step += self.cluster
        return step

    def _per_k(self, at: TableCover, extents: Array, inputs: Array) -> Array:
        """Return the number of rows of A and B that are read from memory if L2 keeps none."""
        table = self.table
        of_wave = np.empty_like(extents)
        down, across = of_wave[0], of_wave[1]
        np.minimum(at.rows, _GROUP_M, out=down)
        np.minimum(table.clusters, at.tiles, out=across)
        across /= down
        np.maximum(across, table.ones, out=across)
        np.minimum(across, at.columns, out=across)
        of_wave *= table.extents
        np.minimum(of_wave, extents, out=of_wave)
        down += across
        down *= np.maximum(at.share, table.ones)
        found: Array = np.maximum(down, inputs)
        return found


def _rates(view: Problem, p: Costs) -> tuple[float, ...]:
    """Return the rates of a problem that depend neither on its sizes nor on the tiling.

    They are the microseconds of a byte of A and of B at a multiprocessor's port, and at the L2
    cache; and the factor by which D's stores take longer than those of 16-bit elements without C.
    """
    of_a, of_b = (
        p.k_major if k_major else p.mn_major for k_major in (view.a_k_major, view.b_k_major)
    )
    port_a = 1.0 if view.a_unaligned else of_a[_CLASS[view.a_alignment]]
    port_b = 1.0 if view.b_unaligned else of_b[_CLASS[view.b_alignment]]
    port, l2 = 1 / (p.port * 1e3), 1 / (p.l2 * 1e6)
    store = view.stored / 2 * (1 + view.reads_c)
    return port_a * port, port_b * port, port_a**p.l2_lines * l2, port_b**p.l2_lines * l2, store


def _numbers(view: Problem, p: Costs) -> tuple[float, ...]:
    """Return the numbers of a problem that follow from its sizes, whatever the tiling is.

    They are m, n and the batch; then, for the memory, the rows of A and B, the microseconds of each
    such row that a wave reads, as far as L2 does not keep it, the microseconds of everything else
    that is read, and the bytes of D.
    """
    m, n, k, batch = view.m, view.n, view.k, view.batch
    one, dram = 2 * k * (m + n), 1 / (p.dram * 1e6)
    stored = view.stored * batch * m * n
    kept = 1 / (1 + (1e-6 * one / p.l2_bytes) ** 4)  # kept by L2 from wave to wave
    read = stored * view.reads_c + view.moved * batch * m * n
    offset = dram * (one * batch * kept + read) + p.fill
    return m, n, batch, batch * (m + n), 2 * k * dram * (1 - kept), offset, stored


def _most_rows(view: Problem) -> int:
    """Return the rows of A that are worth loading."""
    return 1 << (view.m - 1).bit_length() if view.a_k_major else 1 << 30


def _a_rows(table: Table, most_rows: Array) -> Array:
    """Return the rows of A that a tile loads, as :meth:`Tiling.a_rows` does."""
    result: Array = np.minimum(table.block_m, np.maximum(table.least_rows, most_rows))
    return result
