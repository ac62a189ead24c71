"""How long the grouped Hopper kernel should take with each choice of tiles, and the best of them.

The host knows the number of groups and the extent of all of them together, and not the extent of
each: what is modelled is groups of about the mean extent.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper.costs import costs_on
from tilewise.gemm.families.hopper.tiling import BLOCK_K
from tilewise.gemm.grouped import hopper
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.grouped.tiles import Tiles
from tilewise.gemm.steps import KERNELS
from tilewise.places import ITEM_SIZES

SIZES = (
    (64, 128), (64, 256), (128, 128), (128, 192), (128, 256), (256, 128),
)  # fmt: skip
"""Rows and columns of tiles."""
PING_PONG = ((64, 128), (64, 256), (128, 128), (128, 160))
CLUSTERS = ((128, 256, 2, 1), (128, 256, 1, 2), (256, 128, 1, 2), (256, 128, 2, 1))
FEW = ((64, 16), (64, 32), (64, 64), (128, 16), (128, 32), (128, 64), (128, 96), (256, 64))
"""Those of D's transpose for groups of few rows."""
FIRST, TILE, STAGING = 3.0, 0.45, 30.0
"""Microseconds of a launch and of a tile besides its k-steps; elements of D that threads store in a
nanosecond."""


class Estimate(NamedTuple):
    """A choice of tiles, and the seconds that a product should take with it."""

    tiles: Tiles
    seconds: float


@cache
def candidates() -> tuple[Tiles, ...]:
    """Return the choices of tiles that are compared."""
    plain = [Tiles(m, n) for m, n in SIZES]
    plain += [Tiles(m, n, ping_pong=True) for m, n in PING_PONG]
    plain += [Tiles(*x) for x in CLUSTERS]
    swapped = [Tiles(m, n, swapped=True) for m, n in (*FEW, *SIZES)]
    swapped += [Tiles(m, n, ping_pong=True, swapped=True) for m, n in PING_PONG]
    swapped += [Tiles(*x, swapped=True) for x in CLUSTERS]
    return (*plain, *swapped)


@lru_cache(maxsize=KERNELS)
def ranked(product: Grouped, chip: Chip) -> tuple[Estimate, ...]:
    """Return the choices of tiles that fit a product, the one that should be fastest first."""
    found = []
    for tiles in candidates():
        seen = product.transposed if tiles.swapped else product
        if chip.multiprocessors < tiles.cluster or hopper.objection(seen):
            continue
        is_fitting = not tiles.objection(hopper.matrices(seen)[1].is_k_major)
        if is_fitting and hopper.tile_count(seen, tiles) <= hopper.LARGEST:
            found.append(Estimate(tiles, seconds(seen, tiles, chip)))
    return tuple(sorted(found, key=lambda x: x.seconds))


def seconds(p: Grouped, tiles: Tiles, chip: Chip) -> float:
    """Return the time that a product should take, as the kernel sees it.

    Parameters
    ----------
    p : Grouped
        With A and B swapped, if ``tiles`` swaps them.
    tiles : Tiles
    chip : Chip
    """
    costs = costs_on(chip)
    active = max(1, min(p.groups, p.total))
    mean = p.total / active
    rows, columns = tiles.block_m * tiles.cluster_m, tiles.block_n * tiles.cluster_n
    if p.of == "k":
        of_groups: float = active
        filled = 1.0
        across = -(-p.m // rows) * -(-p.n // columns)
        k_steps: float = mean / BLOCK_K + 0.5
    else:
        extent = rows if p.of == "m" else columns
        of_groups = active * covered(mean, extent) / extent
        across = -(-p.n // columns) if p.of == "m" else -(-p.m // rows)
        k_steps = -(-p.k // BLOCK_K)
        filled = 1.0
        if p.of == "m" and tiles.sharers > 1:  # a consumer without rows does not multiply
            filled = covered(mean, tiles.block_m // tiles.sharers) / covered(mean, extent)
    units = chip.multiprocessors // tiles.cluster
    waves = of_groups * across / units
    waves = max(1.0, waves + 0.3 if waves > 1 else waves)
    flops = 2 * tiles.block_m * tiles.block_n * BLOCK_K * filled
    multiply = flops / (1e6 * costs.tensor) * (1 + costs.throttle)
    copied = 2 * BLOCK_K * (tiles.block_m / tiles.cluster_n + tiles.block_n / tiles.cluster_m)
    copy = copied / (1e3 * costs.port) * costs.shared_port * costs.k_major[-1]
    step = max(multiply, copy, costs.k_step) + (costs.cluster if tiles.cluster > 1 else 0)
    store = tiles.block_m * tiles.block_n / (1e3 * STAGING)
    tile = k_steps * step + (0 if tiles.ping_pong else TILE + store)
    computing = waves * tile
    if tiles.ping_pong:  # the last tile's store overlaps nothing
        computing = max(computing, waves * (TILE + store)) + TILE + store
    memory = bytes_moved(p) / (1e6 * costs.dram)
    return 1e-6 * (FIRST + math.cbrt(computing**3 + memory**3))


def covered(mean: float, step: int) -> float:
    """Return what tiles of an extent cover of groups whose mean extent is given."""
    return float(step) if mean <= step else mean + step / 2


def bytes_moved(p: Grouped) -> float:
    """Return the bytes of A, B and D, of groups that are not empty."""
    active = min(p.groups, p.total)
    of_a, of_b, of_d = (min(x, active) for x in p.batches)
    return (
        ITEM_SIZES[p.dtype] * (p.m * p.k * of_a + p.k * p.n * of_b)
        + ITEM_SIZES[p.out_dtype] * p.m * p.n * of_d
    )
