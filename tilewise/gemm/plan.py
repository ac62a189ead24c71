"""Plan a product: choose the fastest of the offers of all kernel families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.devices.limits import compute_capability
from tilewise.gemm import kept
from tilewise.gemm.chip import OLDEST, Chip, chip_by
from tilewise.gemm.families.general import General
from tilewise.gemm.families.hopper.family import Hopper
from tilewise.gemm.families.mma.family import Mma
from tilewise.gemm.families.pair_sums import PairSums
from tilewise.gemm.families.simt.family import Simt
from tilewise.gemm.families.thin.family import ThinHalf, ThinReal
from tilewise.gemm.family import Family, FamilyOf, Offer
from tilewise.gemm.grouped.general import GroupedGeneral
from tilewise.gemm.grouped.hopper_family import GroupedHopper
from tilewise.gemm.grouped.mma import GroupedMma
from tilewise.gemm.grouped.product import AnyProduct, Grouped
from tilewise.gemm.product import Product
from tilewise.gemm.steps import PREPARED, Plan
from tilewise.kernel import Kernel
from tilewise.shown import expected_time

LONGER = 4.0
"""How many times faster a piece of a product has to be with a division of k than without one."""
HOPPER = Hopper()
FAMILIES: list[Family] = [HOPPER, ThinHalf(), ThinReal(), Mma(), Simt(), General()]
"""The families whose offers are compared. The last one takes every product."""
OF_PAIRS: list[Family] = [HOPPER, PairSums(FAMILIES)]
"""The families whose offers are compared for products of pairs."""
OF_GROUPS: list[FamilyOf[Grouped]] = [GroupedHopper(), GroupedMma(), GroupedGeneral()]
"""The families whose offers are compared for grouped products."""


def families_of(product: AnyProduct) -> list[FamilyOf[Any]]:
    """Return the families whose offers for a product are compared; the last takes all such."""
    if isinstance(product, Grouped):
        return OF_GROUPS
    return FAMILIES if product.pairing is None else OF_PAIRS


def plan_product(product: Product, device: Device) -> Plan:
    """Return the plan by which ``device`` computes the product.

    Parameters
    ----------
    product : Product
    device : Device
        The device in whose memory the arrays lie.
    """
    return plan_on(product, chip_of(device))


def chip_of(device: Device) -> Chip | None:
    """Return the rates of a GPU; None for the emulator and for GPUs before capability 8.0."""
    return _chip_of(device) if isinstance(device, Gpu) else None


@cache
def _chip_of(gpu: Gpu) -> Chip | None:
    capability = compute_capability(gpu.arch)
    if capability < OLDEST:
        return None
    name = gpu.context.device.name
    clock = 1e3 * gpu.context.attribute("CLOCK_RATE")
    bus = gpu.context.attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    transfers = 2e3 * gpu.context.attribute("MEMORY_CLOCK_RATE")
    return chip_by(name, gpu.multiprocessors, capability, clock, bus * transfers, gpu.l2_bytes)


@lru_cache(maxsize=PREPARED)
def plan_on(product: AnyProduct, chip: Chip | None) -> Plan:
    """Return the plan by which a GPU, or with None any other device, computes the product.

    An offer that was measured to be the fastest and kept on disk takes precedence.

    Parameters
    ----------
    product : Product or Grouped
    chip : Chip or None
    """
    if product.is_empty:
        return Plan((), 0, "nothing", "the result has no elements")
    offer = kept_offer(product, chip)
    if offer is not None:
        return offer.make().because("it was the fastest of those that were measured")
    offer = best(product, chip)
    plan = offer.make()
    if plan.why:
        return plan
    why = f"it should be the fastest, {expected_time(offer.seconds)}"
    if offer.family == families_of(product)[-1].name:
        words = objections(product, chip)
        why = f"no other family takes it: {words}" if words else f"{why}: the others take longer"
    return plan.because(why)


@lru_cache(maxsize=PREPARED)
def plan_of_piece(product: Product, chip: Chip | None, room: int) -> Plan:
    """Return the plan for a piece of a product whose other pieces are computed at the same time.

    k is not divided unless the piece takes :data:`LONGER` times as long without a division. Other
    pieces fill the multiprocessors that one piece leaves idle, and without a division the bits are
    those of the whole product.

    Parameters
    ----------
    product : Product
    chip : Chip or None
    room : int
        The bytes that the workspace may take.
    """
    # The general kernel is always among the offers, and needs no workspace.
    found = offers_of_piece(product, chip)
    return next(plan for x in found if (plan := x.make()).workspace <= room)


def offers_of_piece(product: Product, chip: Chip | None) -> list[Offer]:
    """Return the offers for a piece of a product, the preferred one first.

    The offer that was measured to be the fastest and kept comes first, unless it divides k.
    """
    found = offers(product, chip)
    if product.parts:
        return found
    whole = [x for x in found if not x.divides_k and x.seconds <= LONGER * found[0].seconds]
    measured = kept_offer(product, chip)
    if measured is not None and not measured.divides_k:
        whole.insert(0, measured)
    return [*whole, *found]


def best(product: AnyProduct, chip: Chip | None) -> Offer:
    """Return the offer that should be fastest.

    Raises
    ------
    ValueError
        If no family divides k into :attr:`Product.parts` parts.
    """
    families = families_of(product)
    found = [offer for family in families if (offer := family.best(product, chip)) is not None]
    if not found:
        raise ValueError(
            "no kernel gives this product's rows the same bits in any batch: "
            f"{objections(product, chip)}"
        )
    return min(found, key=attrgetter("rank"))


def offers(product: AnyProduct, chip: Chip | None) -> list[Offer]:
    """Return every offer of every family, the one that should be fastest first."""
    found = [offer for family in families_of(product) for offer in family.offers(product, chip)]
    return sorted(found, key=attrgetter("rank"))


def kept_offer(product: AnyProduct, chip: Chip | None) -> Offer | None:
    """Return the offer that was measured to be the fastest and kept; None if there is none."""
    if chip is None or isinstance(product, Grouped) or product.parts:
        return None
    entry = kept.find(product, chip)
    if entry is not None:
        for family in families_of(product):
            if family.name == entry[0]:
                return family.offer(product, chip, entry[1])
    return None


def objections(product: AnyProduct, chip: Chip | None) -> str:
    """Return why no family but the general one takes the product; empty if another one does."""
    found = [family.objection(product, chip) for family in families_of(product)[:-1]]
    return "; ".join(dict.fromkeys(found)) if all(found) else ""


def kernels_of(chip: Chip | None, products: Iterable[AnyProduct]) -> Iterator[Kernel]:
    """Yield the kernels that the plans of some products launch, each once."""
    seen = set()
    for product in products:
        for step in plan_on(product, chip).steps:
            name = f"{step.kernel!r} {step.kernel.options}"
            if name not in seen:
                seen.add(name)
                yield step.kernel
