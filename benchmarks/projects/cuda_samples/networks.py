"""Launch sortingNetworks of 2_Concepts_and_Techniques: bitonic and odd-even merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, Draw, same
from projects.cuda_samples.merge_sort import LIMIT, keys_and_places, tiles
from projects.cuda_samples.shapes import sample, sorted_pairs

Drawn = tuple[Sequence[Any], Callable[[], str]]
BITONIC = "2_Concepts_and_Techniques/sortingNetworks/bitonicSort.cu"
ODD_EVEN = "2_Concepts_and_Techniques/sortingNetworks/oddEvenMergeSort.cu"


def alternating(rng: np.random.Generator) -> Drawn:
    """Make (keys out, values out, keys, values): a block down, the next up."""
    keys, values = keys_and_places(rng, 2 * LIMIT)
    found, places = np.zeros_like(keys), np.zeros_like(values)
    up = np.sort(keys.reshape(2, LIMIT), axis=1)
    wanted = np.concatenate([up[0, ::-1], up[1]])
    return (found, places, keys, values), lambda: sorted_pairs(found, places, wanted, keys, LIMIT)


def merged_in_tiles(rng: np.random.Generator) -> Drawn:
    """Make (.., length, size, direction) of tiles that rise and fall: one up, the next down."""
    keys, values = keys_and_places(rng, 2 * LIMIT)
    halves = np.sort(keys.reshape(2, 2, LIMIT // 2), axis=2)
    halves[:, 1] = halves[:, 1, ::-1]
    keys = halves.ravel().copy()
    found, places = np.zeros_like(keys), np.zeros_like(values)
    up = np.sort(keys.reshape(2, LIMIT), axis=1)
    wanted = np.concatenate([up[0], up[1, ::-1]])
    args = (found, places, keys, values, 2 * LIMIT, LIMIT, 1)
    return args, lambda: sorted_pairs(found, places, wanted, keys, LIMIT)


def compared(keys: Array, values: Array, low: Array, high: Array, up: Array) -> None:
    """Put the pairs of places in order."""
    swaps = (keys[low] > keys[high]) == up
    for each in (keys, values):
        each[low[swaps]], each[high[swaps]] = each[high[swaps]], each[low[swaps]]


def bitonic_step(rng: np.random.Generator) -> Drawn:
    """Make (.., length, size, stride, direction): one step over the whole array."""
    keys, values = keys_and_places(rng, 2048)
    found, places = np.zeros_like(keys), np.zeros_like(values)
    pair = np.arange(1024)
    low = 2 * pair - (pair & 255)
    wanted = (keys.copy(), values.copy())
    compared(*wanted, low, low + 256, (pair & 256) == 0)
    args = (found, places, keys, values, 2048, 512, 256, 1)
    return args, lambda: same(found, wanted[0], "the keys") or same(places, wanted[1], "the values")


def odd_even_step(stride: int, size: int = 512) -> Draw:
    """Make (.., length, size, stride, direction), in place."""

    def draw(rng: np.random.Generator) -> Drawn:
        keys, values = keys_and_places(rng, 2048)
        pair = np.arange(1024)
        low = 2 * pair - (pair & (stride - 1))
        if stride < size // 2:
            low = low[(pair & (size // 2 - 1)) >= stride] - stride
        wanted = (keys.copy(), values.copy())
        compared(*wanted, low, low + stride, np.ones(len(low), np.bool_))
        args = (keys, values, keys, values, 2048, size, stride, 1)
        return (
            args,
            lambda: same(keys, wanted[0], "the keys") or same(values, wanted[1], "the values"),
        )

    return draw


NETWORKS = (
    sample(BITONIC, "bitonicSortShared", 2, 512, tiles(1, up=True)),
    sample(BITONIC, "bitonicSortShared", 2, 512, tiles(0, up=False, length=64)),
    sample(BITONIC, "bitonicSortShared1", 2, 512, alternating),
    sample(BITONIC, "bitonicMergeGlobal", 4, 256, bitonic_step),
    sample(BITONIC, "bitonicMergeShared", 2, 512, merged_in_tiles),
    sample(ODD_EVEN, "oddEvenMergeSortShared", 2, 512, tiles(1, up=True)),
    sample(ODD_EVEN, "oddEvenMergeGlobal", 4, 256, odd_even_step(256)),
    sample(ODD_EVEN, "oddEvenMergeGlobal", 4, 256, odd_even_step(64)),
)
