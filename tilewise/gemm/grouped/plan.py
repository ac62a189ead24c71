"""Plan a grouped product: choose its kernel and its tiles."""

from __future__ import annotations

from functools import lru_cache

from tilewise.gemm.chip import Chip
from tilewise.gemm.grouped import general, hopper, mma, model
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.steps import PREPARED, Plan

EMULATED = 4  # multiprocessors that are assumed for a device without rates


@lru_cache(maxsize=PREPARED)
def plan_grouped(product: Grouped, chip: Chip | None, multiprocessors: int = EMULATED) -> Plan:
    """Return the plan by which a device computes a grouped product.

    Parameters
    ----------
    product : Grouped
        The product, with its rows, its columns, or its k in groups.
    chip : Chip or None
        The GPU's rates; None for a device that has none.
    multiprocessors : int
        The number of multiprocessors of a device that has no rates.
    """
    p = product
    if not (p.m and p.n and p.groups):
        return Plan((), 0, "nothing", "the result has no elements")
    if chip is None:
        why = "the device is no GPU of compute capability 8.0 or above, or an emulator"
        return general.plan(p, multiprocessors).because(why)
    best = model.best(p, chip) if chip.is_hopper else None
    if best is not None and not hopper.objection(p.transposed if best.tiles.swapped else p):
        plan = hopper.plan(p, best.tiles, chip.multiprocessors)
        why = f"of its tiles these should be the fastest, {best.seconds * 1e6:.1f} µs"
        return plan.because(why)
    why = "this is no Hopper GPU" if not chip.is_hopper else hopper.objection(p)
    if words := mma.objection(p):
        return general.plan(p, chip.multiprocessors).because(f"{why}; {words}")
    tiles, overlap = mma.best(p, chip), chip.capability >= 90
    return mma.plan(p, tiles, chip.multiprocessors, overlap).because(why)
