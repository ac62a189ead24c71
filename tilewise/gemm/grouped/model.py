"""The time that the grouped Hopper kernel should take with each choice of tiles.

The host knows the number of groups and the extent of all of them together, but not the extent of
each, so the model assumes groups of about the mean extent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
"""The rows and columns of tiles."""
PING_PONG = ((64, 128), (64, 256), (128, 128), (128, 160))
CLUSTERS = ((128, 256), (256, 128))
"""The tiles for clusters of two along the dimension that is not in groups."""
TURNING = ((64, 256), (128, 256))
"""The tiles for clusters of two that turn where a group has no second row of tiles left."""
FEW = ((64, 16), (64, 32), (64, 64), (128, 16), (128, 32), (128, 64), (128, 96), (256, 64))
"""The tiles of D's transpose for groups of few rows."""


class Costs(NamedTuple):
    """The constants of the model, on an H200. Times are in microseconds.

    They follow from the times of ``benchmarks/grouped.py --variants``. Those of :data:`OF_K` are
    near what ``benchmarks/fit_grouped.py`` finds for some products, and choose better tiles for
    these products.

    Attributes
    ----------
    launch : float
        The time of a launch, in which the groups are read.
    tensor, port, dram, write : float
        The shares of the rates of :class:`tilewise.gemm.families.hopper.costs.Costs` at which tiles
        are multiplied, at which tiles are copied to shared memory, and at which A and B are read
        from memory; ``write`` is the share of the rate of reading at which D is written.
    write_line : float
        The width of a tile, in elements of D's contiguous dimension, at which D is written half as
        fast as with very wide tiles.
    overlap, overlap_memory, ping_pong : float
        The exponents for how far multiplication and copies overlap, computing and memory, and the
        mainloops and epilogues of ping-pong kernels: 1 for not at all, infinity for fully.
    cluster : float
        The time that the blocks of a cluster wait for each other in a k-step.
    tile : float
        The time of a tile besides its k-steps and stores.
    rows, columns : float
        The elements of D that a multiprocessor stores in a nanosecond, and the same if A and B are
        swapped.
    last_wave : float
        The additional waves for the last one, in which some multiprocessors are idle.
    """

    launch: float = 2.0
    tensor: float = 0.784
    port: float = 0.303
    dram: float = 0.893
    write: float = 0.893
    write_line: float = 0.0
    overlap: float = 8.0
    overlap_memory: float = 3.2
    ping_pong: float = math.inf
    cluster: float = 0.01
    tile: float = 0.5
    rows: float = 38.0
    columns: float = 38.0
    last_wave: float = 0.6


OF_M = Costs()
"""The costs of products in which the rows of A and D are in groups."""
OF_K = Costs(
    tensor=0.799, port=0.387, write=0.943, write_line=55.0, overlap_memory=8.0, ping_pong=1.3,
    cluster=0.056, tile=2.0, rows=140.0, columns=25.0,
)  # fmt: skip
"""The costs of products in which k is in groups: few k-steps a tile, MN-major A and B, large D."""
EVEN = 0.5
"""The weight of groups with equal means in :func:`covered`; the rest is that of skewed loads."""
DIGITS = 3
"""The number of leading binary digits of the grouped extent that decide the choice."""
# The quantiles of the normal distribution, and of the log-normal distribution with mean 1.
_NORMAL = (-1.53, -0.89, -0.49, -0.16, 0.16, 0.49, 0.89, 1.53)
_SKEWED = tuple(math.exp(x - 0.5) for x in _NORMAL)


class Estimate(NamedTuple):
    """A choice of tiles, and the seconds that a product should take with it."""

    tiles: Tiles
    seconds: float


@cache
def candidates() -> tuple[Tiles, ...]:
    """Return the choices of tiles that are compared."""
    plain = [Tiles(m, n) for m, n in SIZES]
    plain += [Tiles(m, n, ping_pong=True) for m, n in PING_PONG]
    plain += [Tiles(m, n, 1, 2) for m, n in CLUSTERS]
    plain += [Tiles(m, n, 2, 1, turning=True) for m, n in TURNING]
    plain += [Tiles(128, 256, 2, 1)]
    swapped = [Tiles(m, n, swapped=True) for m, n in (*FEW, *SIZES)]
    swapped += [Tiles(m, n, ping_pong=True, swapped=True) for m, n in PING_PONG]
    swapped += [Tiles(m, n, 2, 1, swapped=True) for m, n in CLUSTERS]
    return (*plain, *swapped)


def best(product: Grouped, chip: Chip) -> Estimate | None:
    """Return the choice of tiles that should be fastest; None if the kernel can't take the product.

    It is that of the :func:`rounded` product.
    """
    found = ranked(rounded(product), chip)
    return found[0] if found else None


def rounded(product: Grouped) -> Grouped:
    """Return the product by which tiles are chosen.

    The extent that is in groups is rounded down to three binary digits, so that a server with
    batches of any size ranks tiles only a few times: to rank them takes longer than the rest of a
    plan.
    """
    total = product.total
    return _of_total(product, max(total // (step := _step(total)) * step, min(total, 1)))


def interpolated(product: Grouped, chip: Chip) -> Iterator[Estimate]:
    """Yield the choices of tiles, ranked for the rounded product, with the product's own times.

    The first one's time is interpolated between the :func:`rounded` product and the next larger
    one, which costs the host less than the model does; the others' times are in proportion.
    """
    below = rounded(product)
    found = ranked(below, chip)
    if not found:
        return
    first, step = found[0], _step(product.total)
    share = (product.total - below.total) / step
    more = _seconds(_of_total(below, below.total + step), first.tiles, chip) - first.seconds
    longer = 1 + share * more / first.seconds if share else 1.0
    for tiles, time in found:
        yield Estimate(tiles, longer * time)


def _step(total: int) -> int:
    return 1 << max(total.bit_length() - DIGITS, 0)


def _of_total(product: Grouped, total: int) -> Grouped:
    return product._replace(k=total) if product.of == "k" else product._replace(m=total)


@lru_cache(maxsize=KERNELS)
def _seconds(product: Grouped, tiles: Tiles, chip: Chip) -> float:
    return seconds(product.transposed if tiles.swapped else product, tiles, chip)


@lru_cache(maxsize=KERNELS)
def ranked(product: Grouped, chip: Chip) -> tuple[Estimate, ...]:
    """Return the choices of tiles that fit a product, the one that should be fastest first."""
    found = []
    for tiles in candidates():
        seen = product.transposed if tiles.swapped else product
        if chip.multiprocessors < tiles.cluster or hopper.objection(seen):
            continue
        is_fitting = not tiles.objection(seen.of, hopper.matrices(seen)[1].is_k_major)
        if is_fitting and hopper.tile_count(seen, tiles) <= hopper.LARGEST:
            found.append(Estimate(tiles, seconds(seen, tiles, chip)))
    return tuple(sorted(found, key=lambda x: x.seconds))


def seconds(p: Grouped, tiles: Tiles, chip: Chip, own: Costs | None = None) -> float:
    """Return the seconds that a product should take, as the kernel sees it.

    Parameters
    ----------
    p : Grouped
        The product, with A and B swapped if ``tiles`` swaps them.
    tiles : Tiles
    chip : Chip
    own : Costs, optional
        The costs, by default :data:`OF_M` or :data:`OF_K`.
    """
    own = own or (OF_K if p.of == "k" else OF_M)
    costs = costs_on(chip)
    mean = p.mean
    rows, columns = tiles.block_m * tiles.cluster_m, tiles.block_n * tiles.cluster_n
    # Of A and of B, the shares of a tile that a block loads by itself.
    of_a, of_b = 1 / tiles.cluster_n, 1 / tiles.cluster_m
    filled = 1.0
    if p.of == "k":
        count: float = p.groups * -(-p.m // rows) * -(-p.n // columns)
        k_steps: float = covered(mean, BLOCK_K) / BLOCK_K
    else:
        extent = rows if p.of == "m" else columns
        of_groups = covered(mean, extent) / extent
        if tiles.turning:
            # Rows of tiles that have none below them: they take half a cluster, which shares A.
            single = 2 * of_groups - covered(mean, tiles.block_m) / tiles.block_m
            extent, of_groups = tiles.block_m, of_groups - single / 2
            of_a = 1 - single / of_groups / 4
            of_b = 1.5 - of_a
        count = p.groups * of_groups * (-(-p.n // columns) if p.of == "m" else -(-p.m // rows))
        k_steps = -(-p.k // BLOCK_K)
        if p.of == "m" and tiles.sharers > 1:  # a consumer warpgroup without rows does not multiply
            filled = covered(mean, tiles.block_m // tiles.sharers) / covered(mean, extent)
    waves = count / (chip.multiprocessors // tiles.cluster)
    waves = max(1.0, waves + own.last_wave) if waves > 1 else 1.0
    flops = 2 * tiles.block_m * tiles.block_n * BLOCK_K * filled
    multiply = flops / (1e6 * costs.tensor * own.tensor)
    copied = 2 * BLOCK_K * (tiles.block_m * of_a + tiles.block_n * of_b)
    copy = copied / (1e3 * costs.port * own.port)
    step = _together(own.overlap, multiply, copy, costs.k_step)
    if tiles.cluster > 1:
        step += own.cluster
    by_columns = tiles.swapped
    store = tiles.block_m * tiles.block_n / (1e3 * (own.columns if by_columns else own.rows))
    epilogue = own.tile + store
    if tiles.ping_pong:  # the last tile's epilogue overlaps nothing
        computing = waves * _together(own.ping_pong, k_steps * step, epilogue) + epilogue
    else:
        computing = waves * (k_steps * step + epilogue)
    read, written = bytes_moved(p)
    width = tiles.block_m if tiles.swapped else tiles.block_n
    memory = read / own.dram + written * (1 + own.write_line / width) / own.write
    memory /= 1e6 * costs.dram
    return 1e-6 * (own.launch + _together(own.overlap_memory, computing, memory))


def _together(power: float, *times: float) -> float:
    """Return the time of overlapping steps: the longest, and a little more if others are near."""
    longest = max(times)
    return float(longest * sum((x / longest) ** power for x in times) ** (1 / power))


@lru_cache(maxsize=KERNELS)
def covered(mean: float, step: int) -> float:
    """Return the mean extent that the tiles of a group cover, in elements.

    The sizes of groups are modelled by a Poisson distribution, as random routing makes them. Half
    of the result is for groups with equal means, and half for log-normal means with the deviation
    1.
    """
    even = _of_mean(mean, step)
    skewed = sum(_of_mean(mean * x, step) for x in _SKEWED) / len(_SKEWED)
    return EVEN * even + (1 - EVEN) * skewed


def _of_mean(mean: float, step: int) -> float:
    """Return what :func:`covered` does, for one mean: some groups are empty, some end in a part."""
    if mean > 8 * step:
        return mean + step / 2
    deviation = math.sqrt(mean)
    found = 0.0
    for z in _NORMAL:
        size = mean + z * deviation
        found += max(1, math.ceil((size - 0.5) / step)) * step
    return (1 - math.exp(-mean)) * found / len(_NORMAL)


def bytes_moved(p: Grouped) -> tuple[float, float]:
    """Return the bytes of A and B of the groups that are not empty, and the bytes of D."""
    filled = 1 - math.exp(-p.mean)
    of_a, of_b, of_d = (x * filled if x > 1 else x for x in p.batches)
    if p.of == "k":
        of_d = p.batches[2]
    return (
        ITEM_SIZES[p.dtype] * (p.m * p.k * of_a + p.k * p.n * of_b),
        ITEM_SIZES[p.out_dtype] * p.m * p.n * of_d,
    )
