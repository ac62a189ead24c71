"""The Hopper family: 16-bit products on the tensor cores of GPUs of compute capability 9.0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tilewise.gemm import pack, unpack
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper import model
from tilewise.gemm.families.hopper.readings import Reading, readings
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.families.hopper.variants import every_kernel
from tilewise.gemm.family import Offer
from tilewise.gemm.product import WORKSPACE, A, B, D, Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel
from tilewise.places import Place

_IN_PLACE = {x: Place(x) for x in (A, B, D)}


class Hopper:
    """The family of the Hopper kernel."""

    name = "hopper"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernel can't take a product; empty if it can."""
        if chip is None or not chip.is_hopper:
            return "this is no Hopper GPU"
        words = hopper.objection(product)
        # D may be stored to the workspace first, and copied from there to its place.
        return "" if not words or readings(product) else words

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer of the tiling that should be fastest."""
        if chip is None or not chip.is_hopper:
            return None
        found = readings(product)
        problems, around = [x.problem for x in found], [x.seconds for x in found]
        chosen = model.best(problems, around, chip, product.parts)
        if chosen is None:
            return None
        tiling, index, seconds = chosen
        return self._offer(product, found[index], tiling, seconds, chip)

    def offers(self, product: Product, chip: Chip | None) -> Iterator[Offer]:
        """Return the offers of every tiling that is worth comparing, the fastest first."""
        if chip is None or not chip.is_hopper:
            return
        found = readings(product)
        problems, around = [x.problem for x in found], [x.seconds for x in found]
        ranked = model.ranked(problems, around, chip, product.parts)
        for tiling, index, seconds in ranked:
            yield self._offer(product, found[index], tiling, seconds, chip)

    def offer(self, product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        """Return the offer of one tiling, with the reading that should be fastest."""
        if chip is None or not chip.is_hopper:
            return None
        try:
            tiling = Tiling(**choice)
        except TypeError:
            return None
        found = []
        for reading in readings(product):
            problem = reading.problem
            if not tiling.objection(problem.swapped if tiling.swapped else problem):
                seconds = reading.seconds + model.seconds_of(tiling, problem, chip)
                found.append(self._offer(product, reading, tiling, seconds, chip))
        return min(found, key=lambda offer: offer.seconds, default=None)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can choose, and those of the copies."""
        if chip is not None and chip.is_hopper and dtype in hopper.HALVES:
            yield from every_kernel(dtype, chip.multiprocessors)
            yield from (pack.kernel(overlap=True), unpack.kernel(overlap=True))

    def _offer(
        self, product: Product, reading: Reading, tiling: Tiling, seconds: float, chip: Chip
    ) -> Offer:
        return Offer(
            self.name,
            seconds,
            partial(_plan, product, reading, tiling, chip.multiprocessors),
            choice=tiling.choice,
            words=_words(reading, tiling),
            divides_k=tiling.split > 1 or tiling.stream_k,
        )


def _words(reading: Reading, tiling: Tiling) -> str:
    names = " and ".join("AB"[x] for x in reading.packings)
    words = hopper.words_of(reading.product, tiling)
    return f"{names} repacked; then {words}" if names else words


def _plan(product: Product, reading: Reading, tiling: Tiling, multiprocessors: int) -> Plan:
    """Return the plan: the copies of A and B, the kernel, and the copy of D to its place."""
    packings, unpacking = reading.packings, reading.unpacking
    places, used = dict(_IN_PLACE), 0
    at = {**packings, **({} if unpacking is None else {D: unpacking})}
    for array, packing in at.items():
        places[array] = Place(WORKSPACE, used)
        used += -(-packing.bytes // 256) * 256
    plan = hopper.plan(
        reading.product,
        multiprocessors,
        tiling,
        a_at=places[A],
        b_at=places[B],
        d_at=places[D],
        workspace=used,
    )
    if not at:
        return plan
    steps, words = list(plan.steps), plan.chosen
    if packings:
        copies = [(packing, Place(x), places[x]) for x, packing in packings.items()]
        steps.insert(0, pack.step(copies, overlap=True))
        names = " and ".join("AB"[x] for x in packings)
        first = min(packings)
        reason = f"{'AB'[first]} {hopper.unaligned(product, first)}"
        words = f"{names} repacked, as {reason}; then {words}"
    if unpacking is not None:
        steps.append(unpack.step(unpacking, places[D], Place(D), overlap=True))
        words = f"{words}; then D copied from the workspace to where it belongs"
    return replace(plan, steps=tuple(steps), chosen=words)
