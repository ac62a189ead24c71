"""What steps cost, and where kernels are compared."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from player import of_rung, recorded, steps_of
from reference import examples

from tilewise.kernel import Kernel
from tilewise.lens.costs import COSTS, Costs, costs, fair, is_folded, phase_ends, together


def totals(trace: dict[str, Any]) -> dict[str, int]:
    found = costs(trace, 0)
    return {name: sum(getattr(found, name)) for name in ("work", *COSTS)}


def test_costs_of_a_tiled_product() -> None:
    """n / TILE phases, in each of which TILE x TILE threads load two elements each."""
    for size, tile in ((8, 4), (12, 4), (16, 8)):
        phases, threads = size // tile, tile * tile
        warps = -(-threads // 32)
        found = totals(recorded("tiled", size, tile))
        assert found["work"] == threads * size
        assert found["loads"] == 2 * threads * phases
        assert found["requests"] == 2 * warps * phases
        # Rows of a tile are sectors, or half of one.
        assert found["sectors"] == 2 * tile * phases * max(1, 4 * tile // 32)
        assert found["barriers"] == 2 * warps * phases


def test_costs_are_those_of_the_steps() -> None:
    trace = recorded("tiled_conflicts", 16, 8)
    found = costs(trace, 0)
    for i, step in enumerate(steps_of(trace)):
        shared, loads = step.get("space") == "shared", step["kind"] == "load"
        assert found.wavefronts[i] == (step["requests"] + step["conflicts"] if shared else 0)
        reads = step.get("space") == "global" and loads
        assert found.sectors[i] == (step["sectors"] if reads else 0)
    assert sum(found.wavefronts) > totals(recorded("tiled", 16, 8))["wavefronts"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "loads"),
    # Of a block, m x n x k by tensor cores, and of float16 each element of A and B once.
    [("tensor_core", 2 * 96 * 32), ("ldmatrix", None), ("multistage", 2 * 192 * 64),
     ("specialized", (128 + 256) * 384)],
)  # fmt: skip
def test_work_of_tensor_cores(name: str, loads: int | None) -> None:
    trace = of_rung(name)
    problem = trace["problem"]
    blocks = np.prod(trace["grid"])
    found = totals(trace)
    assert found["work"] * blocks == problem["m"] * problem["n"] * problem["k"]
    if loads is not None:
        assert found["loads"] == loads


ADDS = """
extern "C" __global__ void adds(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] + 1; }
"""
COPIES = """
extern "C" __global__ void copies(const int2* a, int2* b) { b[threadIdx.x] = a[threadIdx.x]; }
"""


def test_work_of_kernels_that_multiply_nothing() -> None:
    for source, name, dtype, unit, work in (
        (ADDS, "adds", np.float32, "operations", 40),
        (COPIES, "copies", np.int32, "elements stored", 80),
    ):
        a = np.arange(80, dtype=dtype)
        found = costs(Kernel(source, name).watch(1, 40, (a, a.copy())).trace.to_dict(), 0)
        assert (found.unit, sum(found.work)) == (unit, work)


def test_where_phases_end() -> None:
    steps = steps_of(recorded("tiled", 12, 4))
    ends = phase_ends(steps)
    assert len(ends) == 3
    assert all(steps[i]["kind"] == "barrier" for i in ends)
    work = costs(recorded("tiled", 12, 4), 0).work
    assert [sum(work[: i + 1]) for i in ends] == [64, 128, 192]
    naive = steps_of(recorded("naive", 4, None))
    assert phase_ends(naive) == [len(naive) - 1]


def test_compared_at_the_ends_of_phases() -> None:
    """By the same share of the work; and before the next phase's tile is loaded."""
    tiled, naive = recorded("tiled", 12, 4), recorded("naive", 12, 4)
    one, other = costs(tiled, 0), costs(naive, 0)
    found = fair(one, other, phase_ends(steps_of(tiled)), phase_ends(steps_of(naive)))
    assert [round(3 * each["share"], 6) for each in found] == [1, 2, 3]
    for i, each in enumerate(found, 1):
        here, there = each["steps"]
        assert one.at("loads", here) == i * 2 * 16
        # A multiply-add of the naive kernel loads both of its factors.
        assert other.at("loads", there) == i * 2 * 16 * 4
    assert found[-1]["steps"] == [len(one.work) - 1, len(other.work) - 1]


kinds = st.lists(st.tuples(st.sampled_from(["other", "branch", "load", "compute"]),
                           st.integers(0, 9)), min_size=1, max_size=30)  # fmt: skip


@examples(60)
@given(kinds, kinds)
def test_side_by_side(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> None:
    """Each step that is shown has a tick, none goes back, and the shares keep together."""
    steps = [[{"kind": kind} for kind, _ in each] for each in (one, other)]
    work = [[done if kind == "compute" else 0 for kind, done in each] for each in (one, other)]
    ticks = together(work[0], work[1], steps[0], steps[1])
    assert ticks[-1] == [len(one) - 1, len(other) - 1]
    for before, after in pairwise(ticks):
        assert before != after
        assert all(x <= y for x, y in zip(before, after, strict=True))
    for side in (0, 1):
        shown = [i for i, step in enumerate(steps[side]) if not is_folded(step)]
        visited = list(dict.fromkeys(tick[side] for tick in ticks))
        assert visited == sorted({*shown, len(steps[side]) - 1})
    share = [
        [sum(each[:i]) / (sum(each) or 1) for i in range(len(each) + 1)] for each in work
    ]  # fmt: skip
    for tick, after in pairwise(ticks):
        moved = [side for side in (0, 1) if after[side] != tick[side]]
        if len(moved) == 2:
            # Both go on where they have done the same.
            assert share[0][after[0]] == share[1][after[1]]
            continue
        # The one that goes on is not ahead of what the other comes to next.
        (side,) = moved
        later = [t[1 - side] for t in ticks if t[1 - side] > tick[1 - side]]
        if later:
            assert share[side][after[side]] <= share[1 - side][later[0]]


def test_an_unfair_step_is_not_taken() -> None:
    """A phase's own tile counts, the next one's does not."""
    one = Costs("multiply-adds", [0, 4, 0, 4], [8, 0, 8, 0], *([[0] * 4] * 4))
    other = Costs("multiply-adds", [2, 2, 2, 2], [2] * 4, *([[0] * 4] * 4))
    found = fair(one, other, [1, 3], [3])
    assert [(each["share"], each["steps"]) for each in found] == [(0.5, [1, 1]), (1.0, [3, 3])]
