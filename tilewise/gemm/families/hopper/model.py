"""How long the Hopper kernel should take: a model of waves, k-steps and bytes, for many tilings.

The model is one NumPy expression over arrays of tilings, for what the planner asks of each new
shape may take some hundred microseconds. ``benchmarks/fit_hopper.py`` fits :class:`Costs` to
measured times of random products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.hopper.tilings import (
    BLOCK_K,
    LEAST_STEPS,
    MOST_TILES,
    Problem,
    Tiling,
    clusters_at_once,
    fits,
    tilings,
)

Array = npt.NDArray[np.float64]

GROUP_M = 16  # of hopper_tile.cuh: rows of clusters whose tiles are computed together
ROW_ENDS = 128  # columns that take as long as the words at a row's ends that are not aligned
LINE = 2 * BLOCK_K  # bytes of a line of a tile, which is what a bulk copy asks for at a time
SPLITS_AT_ONCE = 16  # partial sums that hopper_sum reads before it waits for them


@dataclass(frozen=True)
class Costs:
    """The constants of the model, of an H200. Times are in microseconds.

    Attributes
    ----------
    launch, cluster_launch : float
        Of a launch behind another, and how much more it takes each time that a cluster's blocks are
        doubled.
    fill, latency : float
        From a pipeline's first copy to its first k-step, and of a copy between others.
    tile : float
        Of a tile's end, besides its stores.
    tensor : float
        TFLOP/s of one multiprocessor.
    power, energy : float
        The power limit: TFLOP/s of the GPU if power went to arithmetic alone, and TB/s from L2 if
        it went to copies alone.
    l2 : float
        TB/s from L2 to all multiprocessors.
    port, shared_port : float
        GB/s from L2 to one multiprocessor, and how many times longer a copy takes where both
        multiprocessors of a TPC copy.
    k_major, mn_major : (float, float, float, float)
        How many times longer the copy of a tile takes whose lines begin at multiples of 16, 32, 64
        and 128 bytes.
    multicast : float
        GB/s that a multiprocessor gets from its cluster's copies.
    k_step : float
        The least time of a k-step.
    cluster : float
        What the blocks of a cluster wait for each other in a k-step.
    few_stages : float
        How many times longer a k-step takes with tiles that leave room for three stages.
    store : float
        Elements of D that a multiprocessor stores by bulk copies in a nanosecond.
    store_widths : (float, float, float)
        How many times longer by copies of 16, 32 and 64 columns.
    store_columns : float
        How many times longer where D's columns are contiguous.
    rows, columns : float
        Elements in a nanosecond that threads store, of rows and of columns.
    dram : float
        TB/s that are read from memory.
    write : (float, float, float, float)
        TB/s that are written to memory by copies of 16, 32 and 64 columns, and where D's columns
        are contiguous.
    l2_lines : float
        How far a tile whose lines are not 128-byte aligned takes longer from L2 too: the exponent
        of ``k_major`` or ``mn_major``.
    overlap : float
        How far arithmetic and memory overlap: 1 for not at all, more for more.
    l2_bytes : float
        MB of A and B that L2 keeps from one wave to the next.
    sum_launch, sum_splits, sum_bytes : float
        Of the launch that adds up stream-K's partial sums, of each 16 of a tile, and TB/s.
    split, split_add : float
        Of adding up in a cluster, and elements in a nanosecond.
    shift, shift_wait, shift_latency : float
        GB/s that a multiprocessor shifts in shared memory, the latency of a k-step's shifts, and
        that of the copies of threads.
    last_wave : float
        How much faster the last of several waves is where all clusters but few are idle.
    """

    launch: float = 0.0417
    cluster_launch: float = 0.0349
    fill: float = 1.29
    latency: float = 0.505
    tile: float = 0.106
    tensor: float = 6.06
    power: float = 1390.0
    energy: float = 69.7
    l2: float = 15.0
    port: float = 188.0
    shared_port: float = 1.41
    k_major: tuple[float, ...] = (2.24, 1.47, 1.49, 1.23)
    mn_major: tuple[float, ...] = (2.32, 1.59, 1.46, 1.19)
    multicast: float = 104.0
    k_step: float = 0.0969
    cluster: float = 0.0156
    few_stages: float = 1.06
    store: float = 49.3
    store_widths: tuple[float, ...] = (1.84, 1.55, 1.39)
    store_columns: float = 1.18
    rows: float = 14.1
    columns: float = 4.7
    dram: float = 4.93
    write: tuple[float, ...] = (1.87, 2.61, 3.15, 2.18)
    l2_lines: float = 0.765
    overlap: float = 1.68
    l2_bytes: float = 75.7
    sum_launch: float = 1.45
    sum_splits: float = 0.375
    sum_bytes: float = 4.5
    split: float = 0.506
    split_add: float = 9.23
    shift: float = 97.0
    shift_wait: float = 1.25
    shift_latency: float = 0.305
    last_wave: float = 0.248

    def on(self, chip: Chip) -> Costs:
        """Return the costs on another chip, whose rates go by its clock, its memory and its L2."""
        clock, memory = chip.clock / H200.clock, chip.memory / H200.memory
        whole = clock * chip.multiprocessors / H200.multiprocessors
        return replace(
            self,
            tensor=self.tensor * clock, port=self.port * clock, multicast=self.multicast * clock,
            store=self.store * clock, rows=self.rows * clock, columns=self.columns * clock,
            split_add=self.split_add * clock, shift=self.shift * clock,
            power=self.power * whole, energy=self.energy * whole, l2=self.l2 * whole,
            dram=self.dram * memory, write=tuple(x * memory for x in self.write),
            sum_bytes=self.sum_bytes * memory, l2_bytes=self.l2_bytes * chip.l2 / H200.l2,
        )  # fmt: skip


COSTS = Costs()


@cache
def costs_on(chip: Chip) -> Costs:
    """Return :data:`COSTS` on a chip."""
    return COSTS.on(chip)


class Table:
    """Tilings as columns of numbers, one row a tiling.

    Parameters
    ----------
    found : sequence of Tiling
    views : sequence of int
        Of each tiling, the problem that it is for: a place in a sequence of problems.
    multiprocessors : int
    """

    def __init__(self, found: Sequence[Tiling], views: Sequence[int], multiprocessors: int) -> None:
        self.tilings, self.multiprocessors = tuple(found), multiprocessors
        self.view = np.array(views, np.int64)

        def column(name: str) -> Array:
            return np.array([getattr(each, name) for each in self.tilings], np.float64)

        self.block_m, self.block_n = column("block_m"), column("block_n")
        self.cluster_m, self.cluster_n = column("cluster_m"), column("cluster_n")
        self.split, self.stages = column("split"), column("stages")
        self.is_stream_k, self.is_split = column("shared") > 0, self.split > 1
        self.is_ping_pong = column("ping_pong") > 0
        self.m, self.n = self.block_m * self.cluster_m, self.block_n * self.cluster_n
        self.blocks = self.cluster_m * self.cluster_n * self.split  # of a cluster
        self.doublings = np.log2(self.blocks)
        self.units = np.array(
            [max(1, clusters_at_once(int(x), multiprocessors)) for x in self.blocks], np.float64
        )
        self.elements = self.block_m * self.block_n
        # Below 64 columns, wgmma waits for A.
        self.flops = 2 * BLOCK_K * self.block_m * np.maximum(self.block_n, 32 + self.block_n / 2)
        self.is_clustered = self.cluster_m * self.cluster_n > 1
        self.least_m = np.where(self.block_m > 64, self.block_m - 64, 0)
        self.least_m = np.maximum(self.least_m, self.block_m * (self.cluster_m > 1))
        self.least_n = self.block_n * (self.cluster_n > 1)
        widths = np.log2(column("out_columns") / 16).astype(np.int64)
        self.out_width = widths
        self.shifted_lines = np.array(
            [x.block_m * x.a_shifted + x.block_n * x.b_shifted for x in self.tilings], np.float64
        )
        plain = Problem(
            1, 1, 1, a_k_major=False, b_k_major=False
        )  # whose raw tiles are the largest
        self.raw_stages = np.array([x.raw_stages(plain) for x in self.tilings], np.float64)
        self.is_shifted = self.shifted_lines > 0
        self.has_shifts = bool(self.is_shifted.any())
        self.b_bytes = LINE * self.block_n / self.cluster_m
        self.b_shared = self.block_n * (self.cluster_m > 1)


Kind = tuple[bool, bool, bool, bool, bool]
"""What decides which tilings there are: ``a_k_major``, ``b_k_major``, ``a_shifted``, ``b_shifted``,
and whether A and B are swapped."""


@cache
def _table(kinds: tuple[Kind, ...], multiprocessors: int) -> Table:
    """Every tiling that the planner chooses from, for problems of these kinds."""
    found: list[Tiling] = []
    views: list[int] = []
    for index, (a_k_major, b_k_major, a_shifted, b_shifted, swapped) in enumerate(kinds):
        problem = Problem(1 << 20, 1 << 20, 1 << 20, a_k_major=a_k_major, b_k_major=b_k_major,
                          a_shifted=a_shifted, b_shifted=b_shifted)  # fmt: skip
        for each in tilings(a_shifted, b_shifted, swapped):
            if not each.objection(problem) and fits(each, multiprocessors):
                found.append(each)
                views.append(index)
    return Table(found, views, multiprocessors)


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
        # Whether A is K-major matters to the tilings only where its tiles are shifted.
        (x.a_k_major or not x.a_shifted, x.b_k_major, x.a_shifted, x.b_shifted, index % 2 == 1)
        for index, x in enumerate(views)
    )
    table = _table(kinds, chip.multiprocessors)
    costs = costs_on(chip)
    extra = np.repeat(np.array(around, np.float64), 2)[table.view] if any(around) else 0.0
    times = seconds(table, views, costs)
    return table, times + extra


def seconds_of(tiling: Tiling, problem: Problem, chip: Chip = H200) -> float:
    """Return how long a product should take by one tiling, worth comparing or not."""
    view = problem.swapped if tiling.swapped else problem
    table = Table([tiling], [0], chip.multiprocessors)
    return float(seconds(table, [view], costs_on(chip), False)[0])


class Sizes(NamedTuple):
    """The sizes of each tiling's problem, an array each."""

    m: Array
    n: Array
    k: Array
    batch: Array


class Covers(NamedTuple):
    """How each tiling covers its problem, as :func:`tilings.cover` has it; an array each.

    Attributes
    ----------
    rows, columns : array
        Of clusters of tiles.
    tiles, whole, rest : array
        Clusters of tiles of all batches together: all, those that are computed by one cluster each,
        and those that stream-K divides.
    parts : array
        Into which each of the rest is divided.
    is_divided : array of bool
        Whether there is a rest.
    units : array
        Clusters that compute them in turn.
    steps : array
        K-steps.
    active : array
        Multiprocessors at work.
    """

    rows: Array
    columns: Array
    tiles: Array
    whole: Array
    rest: Array
    parts: Array
    is_divided: npt.NDArray[np.bool_]
    units: Array
    steps: Array
    active: Array


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
    exact = at.whole / table.units
    waves = np.ceil(exact)
    waves -= costs.last_wave * (waves - exact) * (waves > 1)
    mainloop = np.ceil(at.steps / table.split) * step
    # Of two warpgroups that take tiles in turn, one ends its tile in the other's mainloop.
    in_turn = np.maximum(mainloop, (mainloop + end) / 2)
    tile = np.where(table.is_ping_pong, in_turn, mainloop + end)
    computing = costs.fill + waves * tile + table.is_ping_pong * end
    if table.has_shifts:
        computing += costs.shift_wait * table.is_shifted
    computing += at.is_divided * np.ceil(at.steps / at.parts) * step
    reading = costs.fill + _memory(table, at, sizes, views, costs)
    time = costs.launch + costs.cluster_launch * table.doublings + _both(computing, reading, costs)
    time += at.is_divided * _sum(table, at, costs)
    time += table.is_split * (
        costs.split + (table.split - 1) * table.elements / (costs.split_add * 1e3)
    )
    if only_worth:
        time = np.where(_is_worth_it(table, at, sizes), time, math.inf)
    return time * 1e-6


def covers(table: Table, sizes: Sizes) -> Covers:
    """Return how each tiling of a table covers its problem."""
    steps = np.ceil(sizes.k / BLOCK_K)
    rows, columns = np.ceil(sizes.m / table.m), np.ceil(sizes.n / table.n)
    tiles = rows * columns * sizes.batch
    rest = np.fmod(tiles, table.units)
    parts = np.floor(table.units / np.maximum(rest, 1))
    parts = np.minimum(parts, np.maximum(1, np.floor(steps / LEAST_STEPS)))
    is_divided = table.is_stream_k & (rest > 0) & (parts > 1)
    rest, parts = rest * is_divided, np.where(is_divided, parts, 1)
    whole = tiles - rest
    units = np.minimum(table.units, np.maximum(whole, rest * parts))
    active = np.minimum(units * table.blocks, table.multiprocessors)
    return Covers(rows, columns, tiles, whole, rest, parts, is_divided, units, steps, active)


def _is_worth_it(table: Table, at: Covers, sizes: Sizes) -> npt.NDArray[np.bool_]:
    """Return which tilings may be chosen.

    Not where another one of the same speed has less to compute: tiles whose last 64 rows all lie
    past D's edge, clusters that reach past it, divisions along k that leave too little to each
    block, or where there is nothing to divide, and warpgroups that take tiles in turn where each
    cluster has only one. Nor where there are more tiles than the kernel counts.
    """
    found = (sizes.m > table.least_m) & (sizes.n > table.least_n) & (at.tiles <= MOST_TILES)
    found &= at.is_divided | ~table.is_stream_k
    found &= (at.tiles > table.units) | ~table.is_ping_pong
    found &= ~table.is_split | ((at.tiles <= table.units) & (at.steps >= LEAST_STEPS * table.split))
    return found


_CLASS = {16: 0, 32: 1, 64: 2, 128: 3}


def _copied(view: Problem, p: Costs) -> tuple[float, float, float]:
    """Return the rows of A that a tile copies at most, and how much longer A's and B's take."""
    most_rows = max(8, 1 << (view.m - 1).bit_length()) if view.a_k_major else 1 << 30
    of_a, of_b = (
        p.k_major if k_major else p.mn_major for k_major in (view.a_k_major, view.b_k_major)
    )
    slow_a = 1.0 if view.a_shifted else of_a[_CLASS[view.a_alignment]]
    slow_b = 1.0 if view.b_shifted else of_b[_CLASS[view.b_alignment]]
    return most_rows, slow_a, slow_b


def _k_step(table: Table, at: Covers, views: Sequence[Problem], p: Costs) -> Array:
    """Return a k-step's microseconds: it multiplies and copies at once."""
    copied = np.array([_copied(view, p) for view in views])
    most_rows, slow_a, slow_b = copied.T[:, table.view]
    active, a_rows = at.active, np.minimum(table.block_m, most_rows)
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
    if table.has_shifts:
        waiting = p.shift_latency / np.maximum(table.raw_stages - 1, 1)
        terms[-1] = np.where(table.is_shifted, waiting, terms[-1])
        shifting = table.shifted_lines * (LINE / (p.shift * 1e3)) + p.shift_wait / table.stages
        terms.append(shifting * table.is_shifted)
    step = _slowest(terms, p.k_step) + p.cluster * table.is_clustered
    step *= np.where(table.stages <= 3, p.few_stages, 1)
    return step


def _store(table: Table, views: Sequence[Problem], p: Costs) -> Array:
    """Return the microseconds of storing a tile, by bulk copies or by the threads themselves.

    The ends of rows that are not aligned take as long as some columns more.
    """
    by_copies, by_rows = np.array([(x.d_copied, x.d_row_major) for x in views]).T[:, table.view]
    widths = np.array(p.store_widths)[table.out_width]
    copying = table.elements * widths * np.where(by_rows, 1, p.store_columns) / (p.store * 1e3)
    ends = table.block_m * ROW_ENDS * by_rows
    alone = (table.elements + ends) / (1e3 * np.where(by_rows, p.rows, p.columns))
    result: Array = np.where(by_copies, copying, alone)
    return result


def _sum(table: Table, at: Covers, p: Costs) -> Array:
    """Return the microseconds of the launch that adds up stream-K's partial sums."""
    partial = 8 * table.elements * table.blocks * at.rest * at.parts
    launched = p.sum_launch + np.ceil(at.parts / SPLITS_AT_ONCE) * p.sum_splits
    result: Array = launched + partial / (p.sum_bytes * 1e6)
    return result


def _memory(table: Table, at: Covers, sizes: Sizes, views: Sequence[Problem], p: Costs) -> Array:
    """Return the microseconds of memory: what the L2 cache does not keep, each wave reads again."""
    m, n, k, batch = sizes
    inputs, stored = 2 * k * batch * (m + n), 2 * batch * m * n
    at_once = np.minimum(table.units, at.tiles)
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
