"""Many tilings as columns of numbers, and the cover of each one's problem."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.gemm.families.hopper.cover import LEAST_STEPS, MOST_TILES, clusters_at_once, fits
from tilewise.gemm.families.hopper.tiling import BLOCK_K, Problem, Tiling
from tilewise.gemm.families.hopper.tilings import Kind, tilings

Array = npt.NDArray[np.float64]
SUMS_AT_ONCE = 16  # the partial sums that a thread of hopper_sum has in flight
LINE = 2 * BLOCK_K  # bytes of a line of a tile, which TMA requests from the L2 cache at a time


class Table:
    """Tilings as columns of numbers, one row for each tiling.

    Parameters
    ----------
    found : sequence of Tiling
    views : sequence of int
        The index of each tiling's problem in a sequence of problems.
    multiprocessors : int
    is_fixed : bool, optional
        Whether all tilings divide k alike, so that none is left out because another division is
        faster.
    """

    def __init__(
        self,
        found: Sequence[Tiling],
        views: Sequence[int],
        multiprocessors: int,
        is_fixed: bool = False,
    ) -> None:
        self.is_fixed = is_fixed
        self.tilings, self.multiprocessors = tuple(found), multiprocessors
        # Arrays, because NumPy's functions take longer with a Python number.
        self.processors, self.ones = np.array(float(multiprocessors)), np.array(1.0)
        self.view = np.array(views, np.int64)
        numbers = [
            (
                x.block_m, x.block_n, x.cluster_m, x.cluster_n, x.split, x.stream_k, x.ping_pong,
                *_of_tile(x.block_m, x.block_n, x.a_unaligned, x.b_unaligned, x.ping_pong),
            )
            for x in self.tilings
        ]  # fmt: skip
        columns = np.fromiter(chain.from_iterable(numbers), np.float64).reshape(-1, 12).T
        (
            self.block_m, self.block_n, self.cluster_m, self.cluster_n, self.split, stream_k,
            ping_pong, out_columns, self.stages, row_blocks, self.raw_stages, self.unaligned_lines,
        ) = columns.copy()  # fmt: skip
        self.is_stream_k, self.is_split = stream_k > 0, self.split > 1
        self.is_ping_pong = ping_pong > 0
        self.m, self.n = self.block_m * self.cluster_m, self.block_n * self.cluster_n
        self.extents = np.array([self.m, self.n])
        self.least_rows = 8 * self.cluster_n  # the least rows of A that a cluster loads
        self.blocks = self.cluster_m * self.cluster_n * self.split  # the blocks of a cluster
        self.doublings = np.log2(self.blocks)
        self.most_splits = np.where(self.is_stream_k, np.inf, 1.0)
        self.least_steps = np.where(self.is_split, LEAST_STEPS * self.split, 0.0)
        every_size = self.blocks.tolist()
        at_once = {x: max(1, clusters_at_once(int(x), multiprocessors)) for x in set(every_size)}
        self.clusters = np.array([at_once[x] for x in every_size], np.float64)
        self.elements = self.block_m * self.block_n
        # With fewer than 64 columns, wgmma waits for A.
        self.flops = 2 * BLOCK_K * self.block_m * np.maximum(self.block_n, 32 + self.block_n / 2)
        self.splits_at_once = SUMS_AT_ONCE // row_blocks
        self.is_clustered = self.cluster_m * self.cluster_n > 1
        self.least_extents = np.array([
            np.where(self.cluster_m > 1, self.m / 2, self.block_m - 64),
            self.n / 2 * (self.cluster_n > 1),
        ])  # fmt: skip
        # Split-K is not worth comparing if there are several waves, ping-pong if there is only one.
        of_one_wave = self.is_split & (not is_fixed)
        self.most_tiles = np.where(of_one_wave, self.clusters, float(MOST_TILES))
        self.too_few_tiles = np.where(self.is_ping_pong, self.clusters, 0.0)
        self.is_narrow = self.block_n % 64 > 0  # whether TMA boxes of B are narrow if B is MN-major
        self.out_width = np.log2(out_columns / 16).astype(np.int64)
        self.is_unaligned = self.unaligned_lines > 0
        self.a_line = LINE / self.cluster_n  # bytes of a row of A that a block loads
        self.b_bytes = LINE * self.block_n / self.cluster_m
        self.b_shared = self.block_n * (self.cluster_m > 1)


_LARGEST = Problem(1, 1, 1, a_k_major=False, b_k_major=False)  # with the largest raw tiles


@cache
def _of_tile(
    block_m: int, block_n: int, a_unaligned: bool, b_unaligned: bool, ping_pong: bool
) -> tuple[int, ...]:
    """Return the numbers of a tiling that follow from its tile, which many tilings share.

    They are the columns of a store, the stages, the 64-row blocks of a warpgroup, the stages of the
    raw ring, and the unaligned lines.
    """
    x = Tiling(block_m, block_n, 1, 1, 1, False, False, a_unaligned, b_unaligned, ping_pong)
    lines = block_m * a_unaligned + block_n * b_unaligned
    return (*x.rings, x.row_blocks, x.raw_stages(_LARGEST), lines)


@cache
def table_of(kinds: tuple[Kind, ...], multiprocessors: int, parts: int = 0) -> Table:
    """Return every tiling that the planner chooses from, for problems of these kinds.

    Parameters
    ----------
    kinds : tuple of Kind
    multiprocessors : int
    parts : int, optional
        The number of parts that all tilings divide k into; 0 for any.
    """
    found: list[Tiling] = []
    views: list[int] = []
    for index, kind in enumerate(kinds):
        problem = Problem(
            1 << 20, 1 << 20, 1 << 20, a_k_major=kind.a_k_major, b_k_major=kind.b_k_major,
            a_unaligned=kind.a_unaligned, b_unaligned=kind.b_unaligned, pairs=kind.pairs,
            interleaved=kind.interleaved,
        )  # fmt: skip
        offered = divided(tilings(kind), parts) if parts else tilings(kind)
        # All tilings of the file can compute every aligned product with one matrix B.
        if parts or kind.pairs or kind.a_unaligned or kind.b_unaligned:
            offered = [each for each in offered if not each.objection(problem)]
        offered = [each for each in offered if fits(each, multiprocessors)]
        found += offered
        views += [index] * len(offered)
    return Table(found, views, multiprocessors, parts > 0)


def divided(found: Sequence[Tiling], parts: int) -> list[Tiling]:
    """Return tilings with the same tiles, all of which divide k into ``parts`` parts."""
    if parts == 1:
        return [each for each in found if each.split == 1 and not each.stream_k]
    alike = (
        each._replace(cluster_m=1, cluster_n=1, split=parts, stream_k=False, ping_pong=False)
        for each in found
    )
    return list(dict.fromkeys(alike))


class Depth(NamedTuple):
    """The part of a price that depends on k alone; an array each, with a number a tiling.

    Attributes
    ----------
    k_steps : array
        The number of k-steps of BLOCK_K.
    whole_steps : array
        The number of k-steps of a block that computes a tile by itself.
    most_splits : array
        The most clusters that k has enough steps for, and that may divide a tile of the last wave.
    most_tiles : array
        The most tiles for which the tiling is worth comparing; -1 excludes the tiling, because it
        divides k into parts that are too small.
    """

    k_steps: Array
    whole_steps: Array
    most_splits: Array
    most_tiles: Array


def depth_of(table: Table, every_k: Sequence[int]) -> Depth:
    """Return what follows from k, of each of the problems that a table's tilings are for."""
    steps = [-(-k // BLOCK_K) for k in every_k]
    most = [max(1, each // LEAST_STEPS) for each in steps]
    k_steps, most_splits = np.array([steps, most], np.float64)[:, table.view]
    whole_steps, most_splits = (
        np.ceil(k_steps / table.split), np.minimum(most_splits, table.most_splits),
    )  # fmt: skip
    most_tiles = table.most_tiles
    if not table.is_fixed:
        most_tiles = np.where(k_steps < table.least_steps, -1.0, most_tiles)
    return Depth(k_steps, whole_steps, most_splits, most_tiles)


class TableCover(NamedTuple):
    """The cover of each tiling's problem in a table; an array each.

    These are the numbers of :class:`cover.Cover` that a price needs, for all tilings at once and in
    float64. For a launch, :func:`cover.cover` computes those of one tiling in integers.

    Attributes
    ----------
    rows, columns : array
        The number of clusters' tiles along M and N.
    tiles : array
        The number of clusters' tiles of all batches together.
    share : array
        The tiles divided by the clusters that run at once.
    waves, last : array
        The number of waves, and the tiles of the last one, which may be fewer.
    are_several : array of bool
        Whether there is more than one wave.
    splits : array
        The number of clusters that divide each of the last wave's tiles; 1 without a stream-K tail.
    has_tail : array of bool
        Whether the last wave's tiles are the stream-K tail.
    """

    rows: Array
    columns: Array
    tiles: Array
    share: Array
    waves: Array
    last: Array
    are_several: npt.NDArray[np.bool_]
    splits: Array
    has_tail: npt.NDArray[np.bool_]


def cover_table(table: Table, extents: Array, batch: Array, depth: Depth) -> TableCover:
    """Return the cover of each tiling's problem, exact for at most MOST_TILES tiles.

    Parameters
    ----------
    table : Table
    extents : array, (2, tilings)
        The rows and the columns of each tiling's problem.
    batch : array
    depth : Depth
    """
    tiled = np.ceil(extents / table.extents)
    rows, columns = tiled[0], tiled[1]
    tiles = rows * columns
    tiles *= batch
    share = tiles / table.clusters
    waves = np.ceil(share)
    # Beyond MOST_TILES the difference is rounded, and may be 0.
    last = tiles + table.clusters
    last -= waves * table.clusters
    last = np.maximum(last, table.ones)
    splits = np.minimum(np.floor(table.clusters / last), depth.most_splits)
    return TableCover(
        rows, columns, tiles, share, waves, last, waves > table.ones, splits, splits > table.ones
    )  # fmt: skip


def is_excluded(
    table: Table, extents: Array, depth: Depth, at: TableCover
) -> npt.NDArray[np.bool_]:
    """Return which tilings may not be chosen.

    They are the tilings that compute more than another one of the same speed: tiles whose last 64
    rows all lie past D's edge, clusters of which half or more does, divisions along k that leave
    too little to each block, or that have nothing to divide, and ping-pong warpgroups of clusters
    that have only one tile each. Tilings with more tiles than the kernel can count are excluded
    too.
    """
    is_small = extents <= table.least_extents
    found: npt.NDArray[np.bool_] = is_small[0] | is_small[1]
    found |= at.tiles <= table.too_few_tiles
    found |= at.tiles > depth.most_tiles
    found |= at.has_tail < table.is_stream_k
    return found
