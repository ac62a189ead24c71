"""The family for float32 and float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel as simt
from tilewise.gemm.families.simt import plan
from tilewise.gemm.family import Offer
from tilewise.gemm.product import REAL, Product
from tilewise.kernel import Kernel


class Simt:
    """The family."""

    name = "simt"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernels can't take a product; empty if they can."""
        if chip is None:
            return "this is no GPU of compute capability 8.0 or above"
        if product.dtype not in REAL:
            return f"the inputs are {product.dtype}"
        return "" if plan.best(product, chip) else simt.objection(product)

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest."""
        if chip is None or product.dtype not in REAL:
            return None
        way = plan.best(product, chip)
        if way is None:
            return None
        return Offer(self.name, way.seconds, way.plan, words=way.name)

    def offers(self, product: Product, chip: Chip | None) -> Iterable[Offer]:
        """Return every offer worth measuring."""
        found = self.best(product, chip)
        return [] if found is None else [found]

    def offer(self, product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        """Return the offer with these choices."""
        return None

    def kernels(self, chip: Chip, dtype: str) -> Iterable[Kernel]:
        """Return every kernel that :meth:`best` can ask for."""
        raise NotImplementedError
