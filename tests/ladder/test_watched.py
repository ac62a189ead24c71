"""The sizes at which a rung is watched: what it is about happens there."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from tilewise.kernel import Kernel
from tilewise.ladder import lessons
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import RUNGS, Rung, rung
from tilewise.ladder.watched import Sizes, sizes

WARP = 32
TILED = [each for each in RUNGS if each.tiles]
# Of tiled_branchless the lesson's blocks are all whole, and it is watched at the edge.
COMPARED = [
    each for each in TILED
    if lessons.known()["rungs"][each.name]["against"] and each.name != "tiled_branchless"
]  # fmt: skip


@cache
def counted(name: str, at: Sizes) -> Any:
    """A rung's counters, at sizes that may be another's, with its own tile."""
    a, b, _ = random_problem(at.m, at.n, at.k, rung(name).dtypes[0], 0)
    tile = at.tile if at.tile in rung(name).tiles else sizes(rung(name)).tile
    found = run(name, a, b, tile=tile, device="emulator")
    assert found.check.correct
    assert found.report is not None
    return found.report.counters


def value(counters: Any, counter: str) -> int:
    # All bulk copies are of global memory.
    named = counter.removeprefix("global ") if "bulk" in counter else counter
    found: int = getattr(counters, named.replace(" ", "_"))
    return found


@pytest.mark.parametrize("each", TILED, ids=lambda each: each.name)
def test_whole_warps_run(each: Rung) -> None:
    at = sizes(each)
    _, block = each.geometry(at.m, at.n, at.tile)
    assert math.prod(block) % WARP == 0


@pytest.mark.sampled(16)
@pytest.mark.parametrize("each", COMPARED, ids=lambda each: each.name)
def test_the_counter_that_a_rung_is_about_does_what_its_lesson_says(each: Rung) -> None:
    """It falls, rises or stays as at 512 x 512 x 512, beside the rung that is named there."""
    row = lessons.known()["rungs"][each.name]
    at, counter = sizes(each), row["counter"]
    before, after = (value(counted(name, at), counter) for name in (row["against"], each.name))
    there = [
        lessons.known()["rungs"][name]["counters"][counter] for name in (row["against"], each.name)
    ]
    assert np.sign(after - before) == np.sign(there[1] - there[0]), (before, after)


def test_a_load_of_the_naive_kernel_fetches_a_sector_for_each_lane() -> None:
    at = sizes(rung("naive"))
    assert at == sizes(rung("coalesced"))
    loads = {
        name: (found.global_load_requests, found.global_load_sectors)
        for name in ("naive", "coalesced") for found in (counted(name, at),)
    }  # fmt: skip
    assert loads["naive"][0] == loads["coalesced"][0]
    # A's 32 rows, and one element of B for all; then one of A, and 32 columns of B in 4 sectors.
    assert loads["naive"][1] / loads["naive"][0] == (32 + 1) / 2
    assert loads["coalesced"][1] / loads["coalesced"][0] == (1 + 4) / 2


def test_tiled_kernels_have_three_phases_and_use_all_that_they_fetch() -> None:
    at = sizes(rung("tiled"))
    assert at.k == 3 * (at.tile or 0)
    found = counted("tiled", at)
    assert 32 * found.global_load_sectors == 4 * (at.m // 8 * at.n // 8) * 3 * 2 * 64
    assert found.shared_load_bank_conflicts == found.shared_store_bank_conflicts == 0
    worse = counted("tiled_conflicts", sizes(rung("tiled_conflicts")))
    assert sizes(rung("tiled_conflicts")) == at
    assert worse.shared_load_bank_conflicts > 0
    assert worse.shared_store_bank_conflicts > 0


def test_the_branchless_kernel_is_watched_where_the_other_diverges() -> None:
    at = sizes(rung("tiled_branchless"))
    tiled, branchless = (counted(name, at) for name in ("tiled", "tiled_branchless"))
    assert tiled.divergent_branches > branchless.divergent_branches


def test_sizes_that_are_given_are_taken() -> None:
    assert sizes(rung("tiled"), 5, 6, 7, 4) == Sizes(5, 6, 7, 4)
    assert sizes(rung("tiled"), tile=16) == Sizes(32, 32, 48, 16)
    assert sizes(rung("single_thread"), n=9) == Sizes(4, 9, 4, None)
    assert sizes(rung("tuned"), dtype="float64").tile == 64
    own = Kernel("source", "own", {"TILE": 4})
    assert sizes(own) == Sizes(8, 8, 12, 4)
    assert sizes(Kernel("source", "own")).tile == 8
    with pytest.raises(ValueError, match="single_thread has no tiles"):
        sizes(rung("single_thread"), tile=4)
    with pytest.raises(ValueError, match="it must be 32, 64 or 128 for warp_tile"):
        sizes(rung("warp_tile"), tile=16)
