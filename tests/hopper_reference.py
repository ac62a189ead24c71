"""Which tilings of the Hopper kernel may be chosen, one at a time.

:mod:`tilewise.gemm.families.hopper.model` decides the same of a whole table at once.
"""

from __future__ import annotations

from tilewise.gemm.families.hopper.cover import (
    LEAST_STEPS,
    MOST_TILES,
    clusters_at_once,
    cover,
    fits,
    is_filled,
)
from tilewise.gemm.families.hopper.tiling import Problem, Tiling
from tilewise.gemm.families.hopper.tilings import Kind, tilings


def is_worth_it(tiling: Tiling, view: Problem, multiprocessors: int) -> bool:
    """Return whether a tiling may be chosen, for a problem that it has swapped, if it swaps.

    Not where another one of the same speed has less to compute: tiles whose last 64 rows all lie
    past D's edge, clusters of which half or more does, divisions along k that leave too little to
    each block, or where there is nothing to divide, and warpgroups that take tiles in turn where
    each cluster has only one. Nor where there are more tiles than the kernel counts.
    """
    if tiling.objection(view) or not fits(tiling, multiprocessors):
        return False
    if not is_filled(tiling, view.m, view.n):
        return False
    at = cover(tiling, view.m, view.n, view.k, view.batch, multiprocessors)
    if at.tiles > MOST_TILES:
        return False
    if tiling.ping_pong and at.tiles <= clusters_at_once(tiling.tiles, multiprocessors):
        return False
    if tiling.split > 1:
        enough = at.k_steps >= tiling.split * LEAST_STEPS
        return enough and at.tiles <= clusters_at_once(tiling.split, multiprocessors)
    return not tiling.stream_k or at.splits > 1


def candidates(problem: Problem, multiprocessors: int) -> list[Tiling]:
    """Return the tilings that are worth comparing, of a problem whose A and B are not swapped."""
    return [
        tiling
        for swapped in (False, True)
        for view in (problem.swapped if swapped else problem,)
        for tiling in tilings(
            Kind(
                view.a_k_major,
                view.b_k_major,
                view.d_row_major,
                view.a_unaligned,
                view.b_unaligned,
                swapped,
            )
        )
        if is_worth_it(tiling, view, multiprocessors)
    ]
