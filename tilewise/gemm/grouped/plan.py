"""How a grouped product is answered: by which kernel, with which tiles."""

from __future__ import annotations

from functools import lru_cache

from tilewise.gemm.chip import Chip
from tilewise.gemm.grouped import general, hopper, model
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.steps import PREPARED, Plan

EMULATED = 4  # multiprocessors that a device without rates is planned for


@lru_cache(maxsize=PREPARED)
def plan_grouped(product: Grouped, chip: Chip | None, multiprocessors: int = EMULATED) -> Plan:
    """Return how a device computes a grouped product.

    Parameters
    ----------
    product : Grouped
        With its rows, or its k, in groups.
    chip : Chip or None
        The GPU's rates; None for a device that has none.
    multiprocessors : int
        Of a device that has no rates.
    """
    p = product
    if not (p.m and p.n and p.groups):
        return Plan((), 0, "nothing", "the result has no elements")
    if chip is None or not chip.is_hopper:
        why = "this is no Hopper GPU"
        return general.plan(p, chip.multiprocessors if chip else multiprocessors).because(why)
    found = model.ranked(p, chip)
    if not found:
        why = f"the Hopper kernel can't take it: {hopper.objection(p)}"
        return general.plan(p, chip.multiprocessors).because(why)
    best = found[0]
    plan = hopper.plan(p, best.tiles, chip.multiprocessors)
    return plan.because(f"of its tiles these should be the fastest, {best.seconds * 1e6:.1f} µs")
