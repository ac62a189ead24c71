"""Launch mergeSort of 0_Introduction: sorted tiles, ranks of every 128th element, and merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, same
from projects.cuda_samples.shapes import sample, sorted_pairs

Drawn = tuple[Sequence[Any], Callable[[], str]]
LIMIT, STRIDE = 1024, 128  # SHARED_SIZE_LIMIT and SAMPLE_STRIDE
N, RUN = 3 * LIMIT, LIMIT
FILE = "0_Introduction/mergeSort/mergeSort.cu"
BITONIC = "0_Introduction/mergeSort/bitonic.cu"


def keys_and_places(rng: np.random.Generator, n: int, most: int = 1000) -> tuple[Array, Array]:
    """Draw keys, of which many are equal, and their places."""
    return rng.integers(0, most, n, dtype=np.uint32), np.arange(n, dtype=np.uint32)


def tiles(*more: int, up: bool, length: int = LIMIT) -> Callable[[np.random.Generator], Drawn]:
    """Make (keys out, values out, keys, values, length, ...) for a sort of each run."""

    def draw(rng: np.random.Generator) -> Drawn:
        keys, values = keys_and_places(rng, 2 * LIMIT)
        found, places = np.zeros_like(keys), np.zeros_like(values)
        wanted = np.sort(keys.reshape(-1, length), axis=1)[:, :: 1 if up else -1].ravel()
        return (found, places, keys, values, length, *more), lambda: sorted_pairs(
            found, places, wanted, keys, length
        )

    return draw


def runs(rng: np.random.Generator, n: int = 2 * RUN) -> tuple[Array, Array, Array]:
    """Draw keys that are sorted in runs, their places, and the keys sorted in pairs of runs."""
    keys, values = keys_and_places(rng, n)
    keys = np.sort(keys.reshape(-1, RUN), axis=1).ravel()
    return keys, values, np.sort(keys.reshape(-1, 2 * RUN), axis=1).ravel()


def sample_ranks(keys: Array) -> tuple[Array, Array]:
    """Return the ranks of each pair of runs' samples in its first run, and in its second."""
    ranks: tuple[list[int], list[int]] = ([], [])
    for pair in keys.reshape(-1, 2, RUN):
        at = np.arange(0, RUN, STRIDE)
        ranks[0].extend((*at, *np.searchsorted(pair[0], pair[1][at], "right")))
        ranks[1].extend((*np.searchsorted(pair[1], pair[0][at], "left"), *at))
    return np.array(ranks[0], np.uint32), np.array(ranks[1], np.uint32)


def limits(keys: Array) -> tuple[Array, Array]:
    """Return both ranks, those of a pair of runs sorted: where the pieces of the merge begin."""
    first, second = sample_ranks(keys)
    count = 2 * RUN // STRIDE
    return (
        np.sort(first.reshape(-1, count), axis=1).ravel(),
        np.sort(second.reshape(-1, count), axis=1).ravel(),
    )


def draw_ranks(rng: np.random.Generator) -> Drawn:
    """Make (ranks in A, ranks in B, keys, the run, N, threads)."""
    keys, _, _ = runs(rng, 4 * RUN)
    first, second = (np.zeros(len(keys) // STRIDE, np.uint32) for _ in range(2))
    wanted = sample_ranks(keys)
    args = (first, second, keys, RUN, len(keys), len(keys) // (2 * STRIDE))
    return args, lambda: same(first, wanted[0], "ranks A") or same(second, wanted[1], "ranks B")


def draw_limits(rng: np.random.Generator) -> Drawn:
    """Make (limits, ranks, the run, N, threads)."""
    keys, _, _ = runs(rng, 4 * RUN)
    found = np.zeros(len(keys) // STRIDE, np.uint32)
    args = (found, sample_ranks(keys)[0], RUN, len(keys), len(keys) // (2 * STRIDE))
    return args, lambda: same(found, limits(keys)[0])


def draw_merge(rng: np.random.Generator) -> Drawn:
    """Make (keys out, values out, keys, values, limits A, limits B, the run, N)."""
    keys, values, wanted = runs(rng)
    found, places = np.zeros_like(keys), np.zeros_like(values)
    args = (found, places, keys, values, *limits(keys), RUN, len(keys))
    return args, lambda: sorted_pairs(found, places, wanted, keys, 2 * RUN)


MERGE_SORT = (
    sample(FILE, "mergeSortSharedKernel<1U>", 2, LIMIT // 2, tiles(up=True)),
    sample(FILE, "mergeSortSharedKernel<0U>", 2, LIMIT // 2, tiles(up=False, length=256)),
    sample(FILE, "generateSampleRanksKernel<1U>", 1, 256, draw_ranks),
    sample(FILE, "mergeRanksAndIndicesKernel", 1, 256, draw_limits),
    sample(FILE, "mergeElementaryIntervalsKernel<1U>", 2 * RUN // STRIDE, STRIDE, draw_merge),
    sample(BITONIC, "bitonicSortSharedKernel", 2, LIMIT // 2, tiles(1, up=True)),
    sample(BITONIC, "bitonicMergeElementaryIntervalsKernel<1U>", 2 * RUN // STRIDE, STRIDE,
           draw_merge),
)  # fmt: skip
