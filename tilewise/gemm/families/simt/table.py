"""The time that float32 and float64 products should take, for many ways at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.gemm import splitk
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.simt import k_steps
from tilewise.gemm.families.simt.costs import COSTS, FACTORS, Costs
from tilewise.gemm.families.simt.matrices import NONE, PACKED, TRANSPOSED, Access
from tilewise.gemm.families.simt.tiles import AnyTiles
from tilewise.places import ITEM_SIZES

MOST_PARTS = 256  # the most parts of k
L2_BYTES = 21.0  # bytes that the L2 cache delivers to a multiprocessor in a clock
LOGARITHM = 9.5  # to base 10, of the operations from which on the power limit is felt

Floats = npt.NDArray[np.float64]


class Way(NamedTuple):
    """A way to compute a product.

    Attributes
    ----------
    tiles : Tiles or TensorTiles
    a, b : Access
        How the kernel reads A and B.
    copy_a, copy_b : int
        How A and B are copied first: not at all, packed or transposed.
    """

    tiles: AnyTiles
    a: Access
    b: Access
    copy_a: int = NONE
    copy_b: int = NONE


def _numbers_of_parts() -> Floats:
    """Return the numbers of parts that k may be divided into, ascending."""
    found, step = [1], 1
    while found[-1] < MOST_PARTS:
        found.append(found[-1] + step)
        if found[-1] >= 8 * step:
            step *= 2
    return np.array(found, float)


PARTS = _numbers_of_parts()
LANES = np.array([splitk.most_lanes(int(count)) for count in PARTS], float)


class Table:
    """Ways to compute a product as columns of numbers, one row for each way.

    Parameters
    ----------
    dtype : str
    chip : Chip
    ways : sequence of Way
    costs : Costs, optional
        The costs of the model, by default those of the dtype.
    factors : mapping of str to float, optional
        The factors by which the k-steps of tiles take longer than measured; by default those of the
        dtype.

    Attributes
    ----------
    copied : array of int
        How each way copies A and B first.
    peak : float
        The multiply-adds a second that the fastest tiles reach on the whole GPU.
    """

    def __init__(
        self,
        dtype: str,
        chip: Chip,
        ways: Sequence[Way],
        costs: Costs | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.dtype, self.chip = dtype, chip
        self.costs = costs = costs or COSTS[dtype]
        self._item = ITEM_SIZES[dtype]

        def column(name: str) -> Floats:
            return np.array([getattr(way.tiles, name) for way in ways], float)

        self._block_m, self._block_n = column("block_m"), column("block_n")
        self._residents = column("residents")[:, np.newaxis]
        self._k_of_parts = column("block_k")[:, np.newaxis] * PARTS
        self._set_k_steps(ways, FACTORS[dtype] if factors is None else factors)
        # Each generation of blocks has a prologue, and an epilogue in which the stores of the first
        # block overlap nothing. The stores of an undivided product may be unaligned; those of the
        # parts' sums are not.
        stores = (self._block_m * self._block_n)[:, np.newaxis] * self._item
        stores = stores * chip.multiprocessors / (costs.memory * chip.memory)
        stages_rows = np.array([[way.tiles.stages_rows(dtype)] for way in ways])
        unaligned = np.where(stages_rows, costs.store_staged, costs.store_unaligned)
        undivided = np.where(PARTS == 1, unaligned, costs.store)
        self._around = {}
        for is_unaligned, each in ((False, costs.store), (True, undivided)):
            store = stores * each
            of_block = costs.another + costs.store_hidden * store
            self._around[is_unaligned] = costs.prologue + store - of_block, of_block
        self.copied = np.array([way[3:] for way in ways])
        copy_a, copy_b = self.copied.T
        self._copy_launches = (
            costs.pack * ((copy_a == PACKED) | (copy_b == PACKED))
            + costs.transpose * ((copy_a == TRANSPOSED) * 1.0 + (copy_b == TRANSPOSED))
        )[:, np.newaxis]
        self._copies_a, self._copies_b = (
            ((x != NONE) * 2.0 / (costs.copy * chip.memory))[:, np.newaxis]
            for x in (copy_a, copy_b)
        )
        self._has_copies = bool(self.copied.any())

    def _set_k_steps(self, ways: Sequence[Way], factors: Mapping[str, float]) -> None:
        """Look up the seconds of each way's k-steps, in an array that :meth:`seconds` indexes.

        A row has the seconds for 0, 1, ... blocks of a multiprocessor, up to all that it holds at
        once, and then those for as many blocks that are left over after whole waves.
        """
        slower_clock = H200.clock / self.chip.clock
        most = int(self._residents.max())
        every_step, every_slowdown, every_sector = [], [], []
        rates = {
            x: [_rate(self.dtype, x, each) for each in (self.chip, H200)]
            for x in {way.tiles.by_tensor_cores for way in ways}
        }
        for tiles, a, b, *_ in ways:
            name = str(tiles)
            factor = factors.get(name, 1.0)
            measured = k_steps.seconds(self.dtype, name, a, b)[: tiles.residents]
            of_power = k_steps.slowdown(self.dtype, name, a, b) - 1.0
            work = tiles.block_m * tiles.block_n * tiles.block_k
            own, of_h200 = (work / rate for rate in rates[tiles.by_tensor_cores])
            if own > of_h200:
                measured = _by_slower_arithmetic(self.dtype, tiles, measured, factor, own, of_h200)
                factor, of_power = 1.0, 0.0
            # The measured k-steps read from the L2 cache. The 4-norm is about the longer time.
            waiting = (self.costs.latency / max(1, tiles.stages - 1)) ** 4
            found = [(slower_clock * factor * each) ** 4 for each in measured]
            found = [0.0, *((each + waiting) ** 0.25 for each in found)]
            # If two blocks are resident, they began together and end together, so two of the blocks
            # that are left over may follow them on one multiprocessor; with more residents they are
            # spread by then.
            behind = [0.0, found[2], found[2]] if tiles.residents == 2 else found
            rest = [[0.0] * (most + 1 - len(x)) for x in (found, behind)]
            every_step.append([*found, *rest[0], *behind, *rest[1]])
            every_slowdown.append([of_power])
            of_a, of_b = (_sector_cost(self.costs, tiles.bulk, x) for x in (a, b))
            of_both = tiles.block_m * of_a + tiles.block_n * of_b
            every_sector.append([tiles.block_k * self._item * of_both])
        steps, sectors = np.array(every_step), np.array(every_sector)
        self._steps, self._slowdown = steps.ravel(), np.array(every_slowdown)
        self._first = (np.arange(len(ways), dtype=float) * steps.shape[1])[:, np.newaxis]
        self._behind = float(most + 1)
        self._sectors, self._splits_sectors = sectors * slower_clock, bool(sectors.any())
        full = np.array([steps[row, way.tiles.residents] for row, way in enumerate(ways)])
        self._full = full[:, np.newaxis]
        of_step = np.array(
            [x.block_m * x.block_n * x.block_k * x.residents for x, *_ in ways], float
        )
        self.peak = float((of_step / full).max()) * self.chip.multiprocessors

    def seconds(
        self,
        m: int,
        n: int,
        k: int,
        batch: int,
        *,
        counts: int = 1,
        shares: tuple[bool, bool] = (False, False),
        is_unaligned: bool = False,
        operations: float = 0.0,
    ) -> Floats:
        """Return the seconds that a product should take, by way and by number of parts.

        Parameters
        ----------
        m, n, k, batch : int
        counts : int, optional
            The number of :data:`PARTS` to take, from the first one on.
        shares : (bool, bool), optional
            Whether all products of the batch share one A, and whether they share one B.
        is_unaligned : bool, optional
            Whether D's rows are not 16-byte aligned.
        operations : float, optional
            The number of operations by which the power limit sets the clock, if this product is a
            piece of a larger one.
        """
        costs, item, memory_rate = self.costs, self._item, self.chip.memory
        parts = PARTS[:counts]
        blocks = np.ceil(m / self._block_m) * np.ceil(n / self._block_n) * batch
        waiting = np.ceil(blocks[:, np.newaxis] * parts / self.chip.multiprocessors)
        generations = np.ceil(waiting / self._residents)
        before = generations - 1.0
        index = waiting - before * self._residents
        index += (before > 0.0) * self._behind
        index += self._first
        step = self._steps.take(index.astype(np.intp))
        step += before * self._full
        tenfold = math.log10(operations or 2.0 * batch * m * n * k + 1.0) - LOGARITHM
        if tenfold > 0:
            step *= 1.0 + self._slowdown * min(1.0, costs.power * tenfold)
        if self._splits_sectors:
            # Copies overlap the arithmetic: the 4-norm is about the longer of the two.
            copying = self._sectors * waiting
            copying *= copying
            step *= step
            step *= step
            step += copying * copying
            np.sqrt(np.sqrt(step, step), step)
        of_generation, of_block = self._around[is_unaligned]
        computing = np.ceil(k / self._k_of_parts[:, :counts])
        computing += costs.extra_steps
        computing *= step
        computing += of_generation[:, :counts] * generations
        computing += of_block[:, :counts] * waiting
        of_a, of_b = (
            extent * k * item * (1 if is_one else batch)
            for extent, is_one in ((m, shares[0]), (n, shares[1]))
        )
        memory = (of_a + of_b + batch * m * n * item) / (costs.memory * memory_rate)
        computing *= computing
        computing += memory * memory
        seconds: Floats = np.sqrt(computing)
        seconds += costs.start
        if counts > 1:
            seconds += splitk.every(m, n, batch, self.dtype, parts, LANES[:counts], memory_rate)
        if self._has_copies:
            seconds += self._copy_launches + (self._copies_a * of_a + self._copies_b * of_b)
        return seconds


def _rate(dtype: str, by_tensor_cores: bool, chip: Chip) -> float:
    """Return the most multiply-adds that a multiprocessor can do in a clock."""
    return chip.multiply_adds(dtype, by_tensor_cores) / chip.clock


def _by_slower_arithmetic(
    dtype: str,
    tiles: AnyTiles,
    measured: Sequence[float],
    factor: float,
    own: float,
    of_h200: float,
) -> tuple[float, ...]:
    """Return the seconds of k-steps on a GPU with fewer multiply-adds a clock than an H200.

    Parameters
    ----------
    dtype : str
    tiles : Tiles or TensorTiles
    measured : sequence of float
        The seconds with 1, 2, ... blocks on an H200; the result is at an H200's clock too.
    factor : float
        The factor by which they take longer than measured.
    own, of_h200 : float
        The clocks that a block's multiply-adds take on the GPU, and on an H200.

    Notes
    -----
    What a k-step has besides its arithmetic stays. The two are added up as cubes, so that the
    larger is most of the sum; and a multiprocessor gets its tiles no faster than the L2 cache
    delivers them. An H200 has half of its multiply-adds in a clock by the float64 kernels for
    compute capability 8.0. What it took so (``benchmarks/results/float64_sm80_h200.json``) is
    foretold within 3%.
    """
    nbytes = (tiles.block_m + tiles.block_n) * tiles.block_k * ITEM_SIZES[dtype]
    delivered = nbytes / L2_BYTES
    found = []
    for blocks, each in enumerate(measured, 1):
        besides = max(0.0, (factor * each * H200.clock) ** 3 - (blocks * of_h200) ** 3)
        clocks = max((besides + (blocks * own) ** 3) ** (1 / 3), blocks * delivered)
        found.append(clocks / H200.clock)
    return tuple(found)


def _sector_cost(costs: Costs, bulk: bool, x: Access) -> float:
    """Return the least seconds a byte of rows that begin within a sector; 0 for other rows."""
    if not x.splits_sectors or x.is_unaligned:
        return 0.0
    return costs.sector_bulk if bulk else costs.sector_async
