"""How long products of float32 and float64 should take, by tiles of a size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.gemm import splitk
from tilewise.gemm.chip import Chip
from tilewise.gemm.product import ITEM_SIZES, Product

PHASES = Path(__file__).parent / "phases.json"
LAYOUTS = ("NN", "NT", "TN", "TT")
UNALIGNED = ("aligned", "B off", "A off", "both off")  # as the record names them
ALONE = ", alone"  # behind a while of the same kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Rates:
    """What decides how fast a GPU is.

    Attributes
    ----------
    multiprocessors : int
    memory : float
        Bytes a second that a copy in DRAM reads and writes.
    clock : float
        Boost clock, Hz.
    """

    multiprocessors: int
    memory: float
    clock: float


H200_CLOCK = 1.98e9  # Hz: k-steps were measured at it


def rates(chip: Chip) -> Rates:
    """Return the rates of a GPU."""
    return Rates(chip.multiprocessors, chip.memory, chip.clock)


@dataclass(frozen=True)
class Costs:
    """The constants of the model, fitted by ``benchmarks/fit_simt.py``.

    Attributes
    ----------
    start : float
        Seconds of a launch of which nothing else is to be seen.
    prologue : float
        Seconds until a multiprocessor's first blocks have their first tiles.
    another : float
        Seconds of a block's prologue and epilogue while another one computes.
    extra_steps : float
        k-steps that a block takes beyond those of its k.
    memory : float
        Share of the GPU's memory rate at which A, B and D pass.
    store, store_unaligned : float
        Seconds of a block's stores of D, by those at the memory rate; and where D's rows are not
        16-byte aligned.
    store_hidden : float
        What of that is left while another block computes.
    power : float
        How much of the slowdown of a kernel that runs alone, of the power limit, each tenfold of
        the operations brings.
    half_bulk_k, half_bulk_mn, half_async : float
        Seconds a byte of a tile whose lines begin at odd multiples of 16 bytes: each takes one
        more sector. For bulk copies of K-major and MN-major matrices, and for others.
    pack, transpose : float
        Seconds of the launch that packs one or two matrices, and of each that transposes one.
    copy : float
        Share of the memory rate at which they are read and written.
    """

    start: float
    prologue: float
    another: float
    extra_steps: float
    memory: float
    store: float
    store_unaligned: float
    store_hidden: float
    power: float
    half_bulk_k: float
    half_bulk_mn: float
    half_async: float
    pack: float
    transpose: float
    copy: float


COSTS = {
    "float32": Costs(
        start=1.48e-6,
        prologue=0.236e-6,
        another=0.125e-6,
        extra_steps=0.234,
        memory=1.13,
        store=2.25,
        store_unaligned=4.39,
        store_hidden=0.227,
        power=0.191,
        half_bulk_k=15.3e-12,
        half_bulk_mn=3.69e-12,
        half_async=1.86e-12,
        pack=1.06e-6,
        transpose=2.89e-6,
        copy=1.1,
    ),
    "float64": Costs(
        start=1.19e-6,
        prologue=0.404e-6,
        another=0.106e-6,
        extra_steps=0.31,
        memory=1.13,
        store=1.18,
        store_unaligned=1.83,
        store_hidden=0.358,
        power=0.142,
        half_bulk_k=1.75e-12,
        half_bulk_mn=1.01e-12,
        half_async=2.67e-12,
        pack=0.695e-6,
        transpose=3.75e-6,
        copy=0.936,
    ),
}
# How much longer k-steps take among others' kernels than in the loop in which they were measured.
FACTORS: dict[str, dict[str, float]] = {
    "float32": {
        "128x16x16 by 8x4": 1.013,
        "128x32x16 by 8x4": 0.974,
        "128x64x16 by 8x8": 0.985,
        "16x128x32 by 4x8 in 2 slices": 0.981,
        "16x64x32 by 4x4 in 2 slices": 0.97,
        "192x192x8 by 12x12": 0.987,
        "32x64x32 by 4x4": 0.945,
        "64x128x16 by 8x8": 0.978,
        "64x128x16 by 8x8 bulk": 0.986,
        "64x256x16 by 8x16 bulk": 0.995,
        "96x192x8 by 12x12": 1.002,
    },
    "float64": {
        "128x128 by tensor cores": 0.989,
        "128x64 by tensor cores": 0.953,
        "16x128 by tensor cores": 0.984,
        "192x128 by tensor cores": 1.001,
        "32x128 by tensor cores, cp.async": 0.979,
        "32x32 by tensor cores": 0.99,
        "32x32 by tensor cores, cp.async": 0.955,
        "32x64 by tensor cores": 0.971,
        "32x64 by tensor cores, cp.async": 0.95,
        "64x128 by tensor cores": 0.937,
        "64x32 by tensor cores": 0.978,
        "64x64 by tensor cores": 0.954,
        "64x64 by tensor cores, cp.async": 0.995,
    },
}


class Timed:
    """What tiles of every kernel have in common: how many blocks compute D, and their names."""

    block_m: int
    block_n: int
    block_k: int
    residents: int
    bulk: bool

    def is_measured(self, dtype: str) -> bool:
        """Whether a k-step's time is known, with A's rows and B's contiguous."""
        return f"{dtype} {self}" in _measured()[kind(True, False)]

    def blocks(self, product: Product) -> int:
        """Return how many blocks compute D, where they do not divide k."""
        down, across = -(-product.m // self.block_m), -(-product.n // self.block_n)
        return down * across * product.batch


@dataclass(frozen=True)
class Lying:
    """How the kernel finds one of the matrices.

    Attributes
    ----------
    is_k_major : bool
        Whether the elements along k are contiguous.
    is_unaligned : bool
        Whether it takes longer, as copies of 16 bytes can't read it.
    is_half : bool
        Whether its lines begin at odd multiples of 16 bytes.
    """

    is_k_major: bool
    is_unaligned: bool = False
    is_half: bool = False


class Table:
    """Ways to compute a product by tiles, and how long each should take.

    A row is one way: tiles, and how they find A and B. A column is a number of parts of k.

    Parameters
    ----------
    dtype : str
    chip : Chip
    rows : sequence of (Timed, Lying, Lying)
    copied : sequence of (int, int), optional
        Of each row, how A and B are copied before: 0 not at all, 1 packed, 2 transposed.
    costs : Costs, optional
    """

    def __init__(
        self,
        dtype: str,
        chip: Chip,
        rows: Sequence[tuple[Timed, Lying, Lying]],
        copied: Sequence[tuple[int, int]] = (),
        costs: Costs | None = None,
        factors: dict[str, float] | None = None,
    ):
        self.dtype, self._item = dtype, ITEM_SIZES[dtype]
        self.costs = costs = costs or COSTS[dtype]
        factors = FACTORS[dtype] if factors is None else factors
        gpu = rates(chip)
        self._multiprocessors = gpu.multiprocessors
        self._memory = gpu.memory
        slow = H200_CLOCK / gpu.clock
        every = [tiles for tiles, *_ in rows]
        self._block_m, self._block_n, self._residents = (
            np.array([getattr(tiles, name) for tiles in every], float)
            for name in ("block_m", "block_n", "residents")
        )
        self._of_parts = np.array([[tiles.block_k] for tiles in every], float) * PARTS
        self._residents = self._residents[:, np.newaxis]
        # Seconds of a k-step of so many blocks of a multiprocessor, 0 to all, and then of what is
        # left behind whole waves of them.
        most = int(self._residents.max())
        self._width = 2 * (most + 1)
        steps = np.zeros((len(every), self._width))
        slower = np.empty((len(every), 1))
        half = np.empty((len(every), 1))
        for i, (tiles, a, b) in enumerate(rows):
            lying = kind(a.is_k_major, b.is_k_major, a.is_unaligned, b.is_unaligned)
            measured = _phase(lying, dtype, str(tiles))
            factor = slow * factors.get(str(tiles), 1.0)
            found = [0.0, *(factor * each for each in measured)]
            count = tiles.residents
            steps[i, : count + 1] = found
            # Two that began together end together, and two of what is left may follow them on one
            # multiprocessor; more of them are spread by then.
            behind = [0.0, found[2], found[2]] if count == 2 else found
            steps[i, most + 1 : most + 2 + count] = behind
            slower[i] = _slower_alone(lying, dtype, str(tiles)) - 1.0
            half[i] = tiles.block_k * self._item * sum(
                edge * _half(costs, tiles.bulk, x)
                for edge, x in ((tiles.block_m, a), (tiles.block_n, b))
            )  # fmt: skip
        self._steps, self._slower = steps.ravel(), slower
        self._first = (np.arange(len(every), dtype=float) * self._width)[:, np.newaxis]
        self._behind = most + 1
        self._full = np.array([steps[i, tiles.residents] for i, tiles in enumerate(every)])
        self._full = self._full[:, np.newaxis]
        self._half = half * slow
        # Multiply-adds a second of the fastest tiles.
        of_step = np.array([t.block_m * t.block_n * t.block_k * t.residents for t in every], float)
        self.peak = float((of_step / self._full[:, 0]).max()) * gpu.multiprocessors
        self._has_half = bool(half.any())
        # Of each generation of blocks, and of each block: prologues, and epilogues of which the
        # first one's stores hide behind nothing. Undivided, they may be unaligned; sums of parts
        # are not.
        tile = (self._block_m * self._block_n)[:, np.newaxis] * self._item
        stores = tile * gpu.multiprocessors / (costs.memory * gpu.memory)
        undivided = np.where(PARTS == 1, costs.store_unaligned, costs.store)
        self._around = {}
        for is_unaligned, each in ((False, costs.store), (True, undivided)):
            store = stores * each
            of_block = costs.another + costs.store_hidden * store
            self._around[is_unaligned] = costs.prologue + store - of_block, of_block
        self.copied = np.array(copied or [(0, 0)] * len(every))
        of_a, of_b = self.copied.T
        self._launches = (
            costs.pack * ((of_a == 1) | (of_b == 1))
            + costs.transpose * ((of_a == 2) * 1.0 + (of_b == 2))
        )[:, np.newaxis]
        self._copies_a, self._copies_b = (
            ((x > 0) * 2.0 / (costs.copy * gpu.memory))[:, np.newaxis] for x in (of_a, of_b)
        )
        self._has_copies = bool(self.copied.any())

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
        """Return the seconds that a product should take, by row and by number of parts.

        Parameters
        ----------
        m, n, k, batch : int
        counts : int, optional
            Of :data:`PARTS`, the first so many.
        shares : (bool, bool), optional
            Whether all matrices of the batch have one A, and one B.
        is_unaligned : bool, optional
            Whether D's rows are not 16-byte aligned.
        operations : float, optional
            Of the product that decides the clock, where that is not this one.
        """
        costs, item = self.costs, self._item
        parts = PARTS[:counts]
        blocks = np.ceil(m / self._block_m) * np.ceil(n / self._block_n) * batch
        waiting = np.ceil(blocks[:, np.newaxis] * parts / self._multiprocessors)
        generations = np.ceil(waiting / self._residents)
        before = np.maximum(generations - 1.0, 0.0)
        index = waiting - before * self._residents
        index += self._behind * (before > 0)
        index += self._first
        step = self._steps.take(index.astype(np.intp))
        step += before * self._full
        tenfold = math.log10(operations or 2.0 * batch * m * n * k + 1.0) - 9.5
        if tenfold > 0:
            step *= 1.0 + self._slower * min(1.0, costs.power * tenfold)
        if self._has_half:
            step += self._half * waiting
        of_generation, of_block = self._around[is_unaligned]
        computing = np.ceil(k / self._of_parts[:, :counts])
        computing += costs.extra_steps
        computing *= step
        computing += of_generation[:, :counts] * generations
        computing += of_block[:, :counts] * waiting
        of_a, of_b = (
            extent * k * item * (1 if is_one else batch)
            for extent, is_one in ((m, shares[0]), (n, shares[1]))
        )
        memory = (of_a + of_b + batch * m * n * item) / (costs.memory * self._memory)
        computing *= computing
        computing += memory * memory
        seconds: Floats = np.sqrt(computing)
        seconds += costs.start
        if counts > 1:
            seconds += splitk.every(m, n, batch, self.dtype, parts, LANES[:counts], self._memory)
        if self._has_copies:
            seconds += self._launches + (self._copies_a * of_a + self._copies_b * of_b)
        return seconds


def _half(costs: Costs, bulk: bool, x: Lying) -> float:
    if not x.is_half or x.is_unaligned:
        return 0.0
    if not bulk:
        return costs.half_async
    return costs.half_bulk_k if x.is_k_major else costs.half_bulk_mn


def _counts() -> Floats:
    """Return the numbers of parts that k may be divided into, ascending."""
    found, step = [1], 1
    while found[-1] < MOST_PARTS:
        found.append(found[-1] + step)
        if found[-1] >= 8 * step:
            step *= 2
    return np.array(found, float)


MOST_PARTS = 256  # that k is divided into
PARTS = _counts()
LANES = np.array([splitk.most_lanes(int(count)) for count in PARTS], float)


def kind(
    a_is_k_major: bool, b_is_k_major: bool, a_is_off: bool = False, b_is_off: bool = False
) -> str:
    """Name how A and B lie: a k-step takes as long as was measured so."""
    return f"{LAYOUTS[2 * (not a_is_k_major) + b_is_k_major]} {UNALIGNED[2 * a_is_off + b_is_off]}"


@cache
def _phase(lying: str, dtype: str, name: str) -> tuple[float, ...]:
    """Return the seconds of a k-step of 1, 2, ... blocks of each multiprocessor at once."""
    return tuple(1e-9 * float(each) for each in _measured()[lying][f"{dtype} {name}"].split())


def _slower_alone(lying: str, dtype: str, name: str) -> float:
    """How much longer a k-step takes at the clock that is left to the same kernel all the time."""
    aligned = f"{lying.split()[0]} {UNALIGNED[0]}"
    alone = _measured()[aligned + ALONE][f"{dtype} {name}"]
    return 1e-9 * float(alone) / _phase(aligned, dtype, name)[-1]


@cache
def _measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PHASES.read_text(encoding="utf-8"))
    return found


def part_k(k: int, parts: int, block_k: int) -> int:
    """Return what each of the parts has of k, whole k-steps."""
    return -(-k // (parts * block_k)) * block_k
