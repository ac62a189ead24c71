"""The family for float32 and float64, whose kernels work with and without tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewise.gemm import pack, splitk, transpose
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import cuts, kernel, offers
from tilewise.gemm.families.simt.matrices import TRAITS
from tilewise.gemm.families.simt.ways import every_way
from tilewise.gemm.family import NO_RATES, Family, Offer
from tilewise.gemm.product import REAL, Product
from tilewise.kernel import Kernel


class Simt(Family):
    """The family of the kernels for float32 and float64."""

    name = offers.NAME

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernels can't compute a product; empty if they can."""
        if chip is None:
            return NO_RATES
        return kernel.objection(product)

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest, in one piece or in several."""
        if product.parts:
            return None if chip is None else offers.in_order(product, chip)
        whole = None if chip is None else offers.in_one(product, chip)
        if chip is None or whole is None:
            return None
        return cuts.in_pieces(product, chip, whole) or whole

    def offers(self, product: Product, chip: Chip | None) -> Iterator[Offer]:
        """Yield every offer worth measuring, the one that should be fastest first."""
        if chip is None or self.objection(product, chip):
            return
        first = self.best(product, chip)
        if product.parts:
            yield from [] if first is None else [first]
            return
        if first is not None and "pieces" in first.choice:
            yield first
        yield from offers.all_in_one(product, chip)

    def offer(self, product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        """Return the offer with these choices; None if the product can't be computed with them."""
        if "pieces" in choice:
            found = self.best(product, chip)
            return found if found is not None and found.choice == choice else None
        return super().offer(product, chip, choice)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can choose, and those of the copies."""
        if chip is None or dtype not in REAL:
            return
        overlap = chip.is_hopper
        found: dict[Kernel, None] = {}
        for traits_a in TRAITS:
            for traits_b in TRAITS:
                for way in every_way(dtype, chip, traits_a, traits_b):
                    found[kernel.kernel_of(dtype, way, overlap)] = None
        yield from found
        yield from (pack.kernel(overlap), transpose.kernel(dtype, overlap))
        yield from splitk.kernels(dtype, overlap)
