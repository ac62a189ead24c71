"""The cover of a product by a tiling: its clusters, their tiles, and the stream-K tail."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tilewise.gemm.families.hopper.tiling import BLOCK_K, Tiling

LEAST_STEPS = 4  # the fewest k-steps that are worth giving to a block
MOST_TILES = 2**31 - 512  # the kernel counts clusters of tiles by int


class Cover(NamedTuple):
    """The cover of a product by tiles, which are counted in clusters' tiles, all batches together.

    Attributes
    ----------
    m_tiles, n_tiles : int
        The number of blocks' tiles along M and N, multiples of the cluster's extents.
    tiles : int
        The number of all tiles.
    data_parallel_tiles, tail_tiles : int
        The number of tiles that one cluster each computes, and of those of the stream-K tail.
    splits : int
        The number of clusters that divide each tile of the tail along k; 1 without a tail.
    clusters : int
        The number of clusters in the launch, which take the tiles in turn.
    k_steps : int
        The number of k-steps of BLOCK_K.
    """

    m_tiles: int
    n_tiles: int
    tiles: int
    data_parallel_tiles: int
    tail_tiles: int
    splits: int
    clusters: int
    k_steps: int


def cover(tiling: Tiling, m: int, n: int, k: int, batch: int, multiprocessors: int) -> Cover:
    """Return how a tiling covers a batch of m x n x k, after any swap of A and B."""
    rows = -(-m // (tiling.block_m * tiling.cluster_m))
    columns = -(-n // (tiling.block_n * tiling.cluster_n))
    tiles, k_steps = rows * columns * batch, -(-k // BLOCK_K)
    tail_tiles, splits, clusters = 0, 1, tiles
    if tiling.split == 1:
        most = max(1, clusters_at_once(tiling.tiles, multiprocessors))
        left = tiles % most
        if tiling.stream_k and left:
            splits = min(most // left, max(1, k_steps // LEAST_STEPS))
        if splits > 1:
            tail_tiles = left
        clusters = min(most, max(tiles - tail_tiles, tail_tiles * splits))
    return Cover(
        rows * tiling.cluster_m, columns * tiling.cluster_n, tiles, tiles - tail_tiles, tail_tiles,
        splits, clusters, k_steps,
    )  # fmt: skip


@cache
def clusters_at_once(blocks: int, multiprocessors: int) -> int:
    """Return how many clusters of so many blocks run at a time.

    All blocks of a cluster are in one GPC of 14 to 18 multiprocessors, so clusters of more than two
    blocks leave some multiprocessors unused. An H200 takes 30 clusters of four blocks and 15 of
    eight (cuOccupancyMaxActiveClusters), but the last cluster of eight often waits for another to
    end.
    """
    if blocks <= 2:
        return multiprocessors // blocks
    fitting = multiprocessors * 10 // 11 // blocks
    return fitting - 1 if blocks > 4 and fitting > 1 else fitting


def fits(tiling: Tiling, multiprocessors: int) -> bool:
    """Return whether a GPU has the multiprocessors for one cluster of a tiling."""
    return clusters_at_once(tiling.tiles * tiling.split, multiprocessors) > 0


def is_filled(tiling: Tiling, m: int, n: int) -> bool:
    """Return whether D reaches a tile's last 64 rows, and over more than half of a cluster."""
    return (
        m > tiling.block_m - 64
        and (tiling.cluster_m == 1 or m > tiling.block_m * tiling.cluster_m // 2)
        and (tiling.cluster_n == 1 or n > tiling.block_n * tiling.cluster_n // 2)
    )
