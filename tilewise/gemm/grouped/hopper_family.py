"""The family of the grouped Hopper kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache, partial

from tilewise.gemm.chip import Chip
from tilewise.gemm.family import NO_RATES, FamilyOf, Offer
from tilewise.gemm.grouped import hopper, model
from tilewise.gemm.grouped.product import OFFSET_TYPES, Grouped
from tilewise.gemm.grouped.tiles import FEW_GROUPS, MOST_GROUPS
from tilewise.gemm.product import ACCUMULATORS
from tilewise.kernel import Kernel
from tilewise.precision import HALVES


class GroupedHopper(FamilyOf[Grouped]):
    """The family of the grouped Hopper kernel."""

    name = "grouped_hopper"

    def objection(self, product: Grouped, chip: Chip | None) -> str:
        """Return why the kernel can't take a product; empty if it can."""
        if chip is None:
            return NO_RATES
        return _objection(product, chip) if chip.is_hopper else "this is no Hopper GPU"

    def best(self, product: Grouped, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest; None where there is an objection."""
        return next(iter(self.offers(product, chip)), None)

    def offers(self, product: Grouped, chip: Chip | None) -> Iterator[Offer]:
        """Yield every offer worth measuring, the one that should be fastest first."""
        if chip is None or self.objection(product, chip):
            return
        for tiles, seconds in model.interpolated(product, chip):
            make = partial(hopper.plan, product, tiles, chip.multiprocessors)
            yield Offer(self.name, seconds, make, tiles.choice, hopper.named(tiles))

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can ask for."""
        if chip is None or not chip.is_hopper or dtype not in HALVES:
            return
        outs = dict.fromkeys((dtype, ACCUMULATORS[dtype]))
        both, tables = (False, True), (FEW_GROUPS, MOST_GROUPS)
        seen = set()
        for out, offset, most, tiles in itertools.product(
            outs, OFFSET_TYPES, tables, model.candidates()
        ):
            for of, a_k_major, b_k_major, by_rows, (is_aligned, by_tma) in itertools.product(
                ("n" if tiles.swapped else "m", "k"), both, both, both,
                ((False, False), (True, False), (True, True)),
            ):  # fmt: skip
                is_taken = {
                    "m": a_k_major and by_rows,
                    "n": b_k_major and not by_rows,
                    "k": not (a_k_major or b_k_major),
                }[of]
                if not is_taken or (of == "n" and by_tma) or tiles.objection(of, b_k_major):
                    continue
                kernel = hopper.kernel_of(
                    of, dtype, out, offset, tiles, most, a_k_major, b_k_major, by_rows,
                    is_aligned, by_tma,
                )  # fmt: skip
                # Tiles of a product and those of its transpose may be one kernel.
                if (key := frozenset(kernel.defines.items())) not in seen:
                    seen.add(key)
                    yield kernel


@lru_cache(maxsize=16)  # each family asks it on the way to a plan
def _objection(product: Grouped, chip: Chip) -> str:
    best = model.best(product, chip)
    if best is None:
        return hopper.objection(product) or "none of the grouped Hopper kernel's tiles fit"
    return hopper.objection(product.transposed if best.tiles.swapped else product)
