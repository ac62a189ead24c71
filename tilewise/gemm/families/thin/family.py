"""The thin families: products of a matrix with a few rows or columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from tilewise.gemm import pack, splitk
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.thin import half, real
from tilewise.gemm.family import NO_RATES, Family, Offer
from tilewise.gemm.product import REAL, Product
from tilewise.kernel import Kernel
from tilewise.precision import HALVES


class ThinHalf(Family):
    """The family for 16-bit products."""

    name = "thin_half"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernel can't take a product; empty if it can."""
        if chip is None:
            return NO_RATES
        if product.parts:
            return "it divides k by the rows"
        view = half.view_of(product)
        if view is None:
            return "neither A nor B has few rows or columns"
        is_hopper = chip.is_hopper and not hopper.objection(product)
        if view.few_rows > half.ALIGNED_ROWS and is_hopper:
            return f"the Hopper kernel takes more than {half.ALIGNED_ROWS} rows or columns"
        return ""

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the only offer; None if there is an objection."""
        view = None if self.objection(product, chip) else half.view_of(product)
        if view is None or chip is None:
            return None
        tiling, seconds = half.fastest(product, view, chip)
        make = partial(half.plan, product, view, chip)
        return Offer(self.name, seconds, make, words=tiling.words, divides_k=True)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can choose, and the one that packs."""
        if chip is not None and dtype in HALVES:
            yield from half.every_kernel(dtype, chip.is_hopper)
            yield pack.kernel(chip.is_hopper)


class ThinReal(Family):
    """The family for products of float32 and float64."""

    name = "thin_real"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernels can't compute a product; empty if they can."""
        if chip is None:
            return NO_RATES
        if product.dtype not in REAL:
            return f"the inputs are {product.dtype}"
        if product.parts:
            return "it divides k by the rows"
        if real.view_of(product) is None:
            return f"it has more than {real.MOST} rows and columns, or none contiguous"
        return ""

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest; None if there is an objection."""
        if chip is None or product.parts or min(product.m, product.n) > real.MOST:
            return None
        view = real.view_of(product)
        if view is None:
            return None
        return self._offer(product, view, real.fastest(product, view, chip), chip)

    def offers(self, product: Product, chip: Chip | None) -> Iterator[Offer]:
        """Yield every offer worth measuring, the one that should be fastest first."""
        view = None if chip is None or product.parts else real.view_of(product)
        if chip is not None and view is not None:
            found = real.divisions(product, view, chip)
            for division in sorted(found, key=attrgetter("seconds")):
                yield self._offer(product, view, division, chip)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can choose, and those that add up the parts of k."""
        if chip is not None and dtype in REAL:
            yield from real.every_kernel(dtype, chip.is_hopper)
            yield from splitk.kernels(dtype, chip.is_hopper)

    def _offer(
        self, product: Product, view: real.View, division: real.Division, chip: Chip
    ) -> Offer:
        words = f"{division.split} warps, {division.parts} parts"
        choice = {"split": division.split, "parts": division.parts}
        make = partial(real.plan, product, view, division, chip.is_hopper)
        return Offer(self.name, division.seconds, make, choice, words, divides_k=True)
