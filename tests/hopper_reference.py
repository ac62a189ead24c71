"""Decide for one tiling of the Hopper kernel at a time whether it may be chosen.

:mod:`tilewise.gemm.families.hopper.model` decides the same for a whole table at once.
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
    """Return whether a tiling may be chosen for a problem, swapped already if the tiling swaps.

    A tiling is refused if another one of the same speed computes less: if the last 64 rows of its
    tiles all lie beyond D's edge, or half or more of its clusters' tiles do; if it divides k and
    leaves too few k-steps to each block, or has nothing to divide; if its warpgroups take tiles in
    turn and each cluster has only one. It is refused too if there are more tiles than the kernel
    counts.
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
