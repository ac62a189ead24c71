"""The general kernel for grouped products: any dtype and strides, on any device, slowly."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product as combinations

from tilewise.gemm import fused
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.general import BLOCK, COSTS, MARGIN, THREADS, seconds
from tilewise.gemm.family import FamilyOf, Offer
from tilewise.gemm.grouped.hopper_family import GroupedHopper
from tilewise.gemm.grouped.mma import GroupedMma
from tilewise.gemm.grouped.product import OFFSET_TYPES, OFFSETS, A, B, D, Grouped
from tilewise.gemm.layouts import TYPES, batched_matrix, layout
from tilewise.gemm.product import ACCUMULATORS
from tilewise.gemm.steps import Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "grouped_general.cu"
BLOCKS_A_MULTIPROCESSOR = 4
WORDS = f"the general grouped kernel, tiles of {BLOCK} x {BLOCK}"
EMULATED = 4  # multiprocessors that a device without rates is planned for
FASTER = (GroupedHopper(), GroupedMma())


class GroupedGeneral(FamilyOf[Grouped]):
    """The family of the general kernel, for products that no other kernel takes."""

    name = "grouped_general"

    def objection(self, product: Grouped, chip: Chip | None) -> str:
        """Return that a faster kernel takes the product; empty if none does."""
        takes = chip is not None and not all(x.objection(product, chip) for x in FASTER)
        return "a faster kernel takes it" if takes else ""

    def best(self, product: Grouped, chip: Chip | None) -> Offer | None:
        """Return the one way there is; None where a faster kernel takes the product."""
        if self.objection(product, chip):
            return None
        count = EMULATED if chip is None else chip.multiprocessors
        time = seconds(product.of_mean(), chip or H200, COSTS[product.dtype])
        make = partial(plan, product, count)
        return Offer(self.name, time, make, words=WORDS, margin=MARGIN)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield its kernels."""
        outs = dict.fromkeys((dtype, ACCUMULATORS[dtype]))
        for of, out, offset in combinations("mk", outs, OFFSET_TYPES):
            yield _kernel(of, dtype, out, offset)


def plan(product: Grouped, multiprocessors: int) -> Plan:
    """Return the plan of a product whose rows, or whose k, are in groups.

    Parameters
    ----------
    product : Grouped
    multiprocessors : int
        The number of the device's multiprocessors.
    """
    p = product
    along = min(p.groups, p.m) + p.m // BLOCK if p.of == "m" else -(-p.m // BLOCK) * p.groups
    tiles = along * -(-p.n // BLOCK)
    given = layout(SOURCE, "GroupedProduct", OFFSET=OFFSET_TYPES[p.offset_dtype]).pack({
        "m": p.m, "n": p.n, "k": p.k, "groups": p.groups,
        "a": batched_matrix(p.a, Place(A)), "b": batched_matrix(p.b, Place(B)),
        "d": batched_matrix(p.d, Place(D)), "offsets": Place(OFFSETS),
    })  # fmt: skip
    grid = (max(1, min(tiles, BLOCKS_A_MULTIPROCESSOR * multiprocessors)), 1, 1)
    launch = Launch(grid, (THREADS, 1, 1), (given,))
    kernel = _kernel(p.of, p.dtype, p.out_dtype, p.offset_dtype)
    return Plan((fused.step(kernel, launch, p),), 0, WORDS, "")


@cache
def _kernel(of: str, dtype: str, out_dtype: str, offset_dtype: str) -> Kernel:
    return Kernel(SOURCE, "grouped_general", {
        "INPUT": TYPES[dtype], "OUTPUT": TYPES[out_dtype],
        "ACCUMULATE": TYPES[ACCUMULATORS[dtype]], "OFFSET": OFFSET_TYPES[offset_dtype],
        "K_IN_GROUPS": int(of == "k"),
    })  # fmt: skip
