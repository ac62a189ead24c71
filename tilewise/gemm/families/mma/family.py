"""The mma family: 16-bit products by ``mma.sync``, on all GPUs since Ampere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from tilewise.devices.limits import RESERVED_SHARED
from tilewise.gemm import pack, splitk
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.mma import kernel, model
from tilewise.gemm.families.mma.kernel import PACKED, REALIGNED, Matrix, Way
from tilewise.gemm.family import NO_RATES, Family, Offer
from tilewise.gemm.product import ACCUMULATORS, Product
from tilewise.kernel import Kernel
from tilewise.precision import HALVES


class Mma(Family):
    """The family."""

    name = "mma"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernel can't take a product; empty if it can."""
        if chip is None:
            return NO_RATES
        if chip.is_hopper and not hopper.objection(product):
            return "the Hopper kernel takes it"
        if product.parts and chip.is_hopper and kernel.depth(product):
            return "it does not sum in the Hopper kernel's order"
        return kernel.objection(product)

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest, or None if there is an objection."""
        if chip is None or self.objection(product, chip):
            return None
        found = model.priced(product, chip)
        return self._offer(product, chip, *found.way(found.best()))

    def offers(self, product: Product, chip: Chip | None) -> Iterator[Offer]:
        """Yield every offer worth measuring, the one that should be fastest first."""
        if chip is None or self.objection(product, chip):
            return
        found = model.priced(product, chip)
        seen = set()
        for at in found.ranked():
            way, seconds, rank = found.way(at)
            parts = kernel.parts_of(product, way)
            if (key := way._replace(parts=parts)) not in seen:
                seen.add(key)
                yield self._offer(product, chip, way, seconds, rank)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can ask for, those of the copies included."""
        if chip is None or dtype not in HALVES:
            return
        realigned = [Matrix(is_k_major, 0, 1).realigned for is_k_major in (True, False)]
        reads = [*kernel.wide_reads(), *realigned]
        outs = dict.fromkeys((dtype, ACCUMULATORS[dtype]))
        for out, tiles in itertools.product(outs, model.table_of(chip).tiles):
            for a, b, unaligned in itertools.product(reads, reads, (False, True)):
                fits = kernel.shared_of(tiles, a, b) + RESERVED_SHARED <= chip.shared
                fits = fits and kernel.suits(tiles, a, b)
                if fits and not kernel.spills(a, b, chip.capability):
                    yield kernel.kernel_of(dtype, out, tiles, a, b, chip.is_hopper, unaligned)
        yield from splitk.kernels(dtype, chip.is_hopper)
        yield pack.kernel(chip.is_hopper)

    def _offer(self, product: Product, chip: Chip, way: Way, seconds: float, rank: float) -> Offer:
        parts = kernel.parts_of(product, way)
        way = way._replace(parts=parts)
        names = "BA" if kernel.is_swapped(product) else "AB"
        packed, realigned = (
            sorted(x for x, read in zip(names, (way.a, way.b), strict=True) if read == how)
            for how in (PACKED, REALIGNED)
        )
        choice = {
            "tiles": str(way.tiles), "parts": parts, "packed": packed, "realigned": realigned
        }  # fmt: skip
        words = f"{way.tiles}, {parts} parts" if parts > 1 else str(way.tiles)
        if realigned:
            words += f", {' and '.join(realigned)} realigned"
        if packed:
            words = f"{' and '.join(packed)} repacked; then {words}"
        make = partial(kernel.plan, product, way, chip.is_hopper, seconds)
        return Offer(self.name, seconds, make, choice, words, rank / seconds, parts > 1)
