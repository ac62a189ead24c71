"""The general family: one kernel that computes any product on any device, slowly."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import NamedTuple

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.family import Family, Offer
from tilewise.gemm.layouts import TYPES, batched_matrix, layout
from tilewise.gemm.product import ACCUMULATORS, A, B, C, D, Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Packed, Place

SOURCE = SOURCES / "gemm" / "general.cu"
BLOCK, BLOCK_K, THREADS = 64, 16, 256  # as in general.cu
WORDS = f"the general kernel, tiles of {BLOCK} x {BLOCK}"
MARGIN = 1.2  # the model is rough, and the kernel is seldom the fastest


class Costs(NamedTuple):
    """The parts of the kernel's time, in seconds on an H200.

    Attributes
    ----------
    start : float
        The time of a launch, whatever it computes.
    step : float
        The time of a k-step, however few tiles a multiprocessor has.
    step_of_tile : float
        The time of a k-step for each tile of a multiprocessor.
    tile : float
        The time of the rest of a tile, most of which is the stores of D.
    """

    start: float
    step: float
    step_of_tile: float
    tile: float


COSTS = {
    "float64": Costs(1.0e-6, 1.42e-6, 1.53e-6, 1.35e-6),
    "float32": Costs(1.0e-6, 1.15e-6, 1.21e-6, 1.35e-6),
    "float16": Costs(1.0e-6, 2.15e-6, 0.94e-6, 0.86e-6),
    "bfloat16": Costs(1.0e-6, 2.15e-6, 0.94e-6, 0.86e-6),
}
"""The costs by dtype, which ``benchmarks/fit_general.py`` compares with measured times and fits."""


class General(Family):
    """The family of the general kernel."""

    name = "general"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return an empty objection, since the kernel takes every product."""
        return ""

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the only offer; None if the product asks for another family's order of sums."""
        if product.parts and chip is not None:
            return None
        return Offer(
            self.name,
            seconds(product, chip or H200, COSTS[product.dtype]),
            partial(_plan, product),
            words=WORDS,
            margin=MARGIN,
        )

    def kernels(self, chip: Chip | None, dtype: str) -> Iterable[Kernel]:
        """Return the kernels, one for each dtype of D."""
        return [_kernel(dtype, out) for out in dict.fromkeys((dtype, ACCUMULATORS[dtype]))]


def seconds(product: Product, chip: Chip, costs: Costs) -> float:
    """Return the seconds that a product should take.

    Parameters
    ----------
    product : Product
    chip : Chip
    costs : Costs
        The costs of the product's dtype.
    """
    tiles = -(-product.m // BLOCK) * -(-product.n // BLOCK) * product.batch
    of_each = tiles / chip.multiprocessors
    step = max(costs.step, costs.step_of_tile * of_each)
    computing = -(-product.k // BLOCK_K) * step + costs.tile * max(1.0, of_each)
    sums = ACCUMULATORS[product.dtype]
    arithmetic = of_each * BLOCK * BLOCK * product.k / chip.multiply_adds(sums)
    return costs.start + max(computing * H200.clock / chip.clock, arithmetic)


def _plan(product: Product) -> Plan:
    tiles = -(-product.m // BLOCK) * -(-product.n // BLOCK)
    grid = (min(tiles, MAX_GRID[0]), 1, min(product.batch, MAX_GRID[2]))
    launch = Launch(grid, (THREADS, 1, 1), (_packed(product),))
    step = fused.step(_kernel(product.dtype, product.out_dtype), launch, product)
    return Plan((step,), 0, WORDS, "")


@cache
def _kernel(dtype: str, out_dtype: str) -> Kernel:
    defines = {
        "INPUT": TYPES[dtype],
        "OUTPUT": TYPES[out_dtype],
        "ACCUMULATE": TYPES[ACCUMULATORS[dtype]],
    }
    return Kernel(SOURCE, "gemm_general", defines)


def _packed(product: Product) -> Packed:
    """Return the bytes of the kernel's argument."""
    return layout(SOURCE, "Product").pack({
        "m": product.m, "n": product.n, "k": product.k, "batch": product.batch,
        "alpha": product.alpha, "beta": product.beta,
        "a": batched_matrix(product.a, Place(A)), "b": batched_matrix(product.b, Place(B)),
        "c": batched_matrix(product.c, Place(C)), "d": batched_matrix(product.d, Place(D)),
    })  # fmt: skip
