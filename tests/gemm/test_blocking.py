"""The planner of products in files: all of C, within memory, and with few bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from tilewise.gemm.blocking import BlockPlan, Load, Multiply, Problem, Span, Store, choose

SIZES = st.integers(0, 40)
PROBLEMS = st.builds(
    Problem, SIZES, SIZES, SIZES, st.sampled_from([2, 4, 8]), st.sampled_from([4, 8]),
    st.sampled_from([2, 4]), st.sampled_from([0, 4]), st.sampled_from([0, 1]),
)  # fmt: skip
BLOCKS = st.integers(1, 45)
PLANS = st.builds(BlockPlan, PROBLEMS, BLOCKS, BLOCKS, BLOCKS, st.booleans())


def loaded(plan: BlockPlan) -> int:
    """Bytes that its steps load."""
    loads = [x for x in plan.steps() if isinstance(x, Load)]
    return plan.problem.item * sum(x.rows.size * x.columns.size for x in loads)


def naive(plan: BlockPlan) -> int:
    """Bytes that the same tiles read where every product loads both of its pieces."""
    steps = [x for x in plan.steps() if isinstance(x, Multiply)]
    return plan.problem.item * sum(x.depth.size * (x.rows.size + x.columns.size) for x in steps)


def every(p: Problem, memory: int) -> Iterator[BlockPlan]:
    """All plans that fit."""
    for m, n, k in product(range(1, p.m + 1), range(1, p.n + 1), range(1, p.k + 1)):
        for by_columns in (False, True):
            plan = BlockPlan(p, m, n, k, by_columns)
            if plan.memory <= memory:
                yield plan


@given(PLANS)
@examples(300)
def test_every_element_is_the_sum_of_all_of_k_and_is_stored_once(plan: BlockPlan) -> None:
    p = plan.problem
    depth, stored = np.zeros((p.m, p.n), int), np.zeros((p.m, p.n), int)
    held: dict[str, tuple[Span, Span]] = {}
    tiles = []
    for step in plan.steps():
        if isinstance(step, Load):
            held[step.matrix] = (step.rows, step.columns)
            continue
        place = np.s_[step.rows.start : step.rows.stop, step.columns.start : step.columns.stop]
        if isinstance(step, Multiply):
            assert held == {"A": (step.rows, step.depth), "B": (step.depth, step.columns)}
            assert step.is_first == (not depth[place].any() or not p.k)
            depth[place] += step.depth.size
        else:
            assert isinstance(step, Store)
            stored[place] += 1
            tiles.append(step.tile)
            assert (depth[place] == p.k).all()
    assert (depth == p.k).all()
    assert (stored == 1).all()
    assert tiles == list(range(plan.tiles))


@given(PLANS)
@examples(500)
def test_the_bytes_of_a_plan_are_those_of_its_steps(plan: BlockPlan) -> None:
    assert plan.bytes_read == loaded(plan) <= naive(plan)
    assert plan.bytes_written == plan.problem.out * plan.problem.m * plan.problem.n


@given(PLANS, st.integers(0, 20))
def test_a_plan_can_be_taken_up_at_any_tile(plan: BlockPlan, first: int) -> None:
    def of(steps: Iterator[object]) -> list[object]:
        return [x for x in steps if not isinstance(x, Load)]

    whole = of(plan.steps())
    rest = of(plan.steps(first))
    assert rest == (whole[len(whole) - len(rest) :] if rest else [])
    assert sum(isinstance(x, Store) for x in rest) == max(plan.tiles - first, 0)
    left = sum(x.rows.size * x.columns.size for x in rest if isinstance(x, Store))
    p = plan.problem
    assert plan.done_before(min(first, plan.tiles)) + left == p.m * p.n


@given(PROBLEMS, st.integers(60, 20_000))
@examples(200)
def test_what_is_chosen_fits_and_no_order_moves_less_than_the_bound(
    p: Problem, memory: int
) -> None:
    plan = choose(p, memory)
    assert plan.memory <= memory
    assert plan.bytes_moved >= p.bound(memory) >= p.compulsory
    # The largest square tiles of pieces as deep, where each product loads both of its pieces.
    square = [BlockPlan(p, edge, edge, plan.block_k) for edge in range(1, 41)]
    fitting = [naive(x) + x.bytes_written for x in square if x.memory <= memory]
    assert plan.bytes_moved <= 1.01 * min(fitting, default=plan.bytes_moved)


@pytest.mark.parametrize("size", [(12, 12, 12), (3, 16, 9), (16, 2, 16), (5, 7, 20)])
@pytest.mark.parametrize("memory", [60, 150, 400, 1200])
def test_it_is_near_the_best_of_all_plans(size: tuple[int, int, int], memory: int) -> None:
    p = Problem(*size, 4, 4, 4)
    least = min(plan.bytes_moved for plan in every(p, memory))
    assert choose(p, memory).bytes_moved <= 1.35 * least


def test_what_fits_moves_each_matrix_once() -> None:
    p = Problem(300, 200, 100, 4, 4, 4)
    plan = choose(p, 1 << 30)
    assert (plan.tiles, plan.pieces, plan.bytes_moved) == (1, 1, p.compulsory)
    # A large one does so in tiles that are written one by one.
    p = replace(p, m=20_000, n=20_000, k=20_000)
    plan = choose(p, 6 << 30)
    assert plan.bytes_moved == p.compulsory == p.bound(6 << 30)
    assert plan.tiles > 20


@pytest.mark.parametrize("gigabytes", [1, 4, 20, 60])
def test_three_matrices_of_thirty_gigabytes(gigabytes: int) -> None:
    memory = gigabytes << 30
    p = Problem(86_603, 86_603, 86_603, 4, 4, 4)
    plan = choose(p, memory)
    assert plan.memory <= memory
    assert plan.bytes_moved <= 1.4 * p.bound(memory)


def test_the_page_has_what_is_planned() -> None:
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    for gigabytes in (1, 4, 20, 60):
        p = Problem(86_603, 86_603, 86_603, 4, 4, 4)
        plan, bound = choose(p, gigabytes * 10**9), p.bound(gigabytes * 10**9)
        depth = f"{plan.pieces} pieces of {plan.block_k:,}" if plan.is_divided else "undivided"
        assert (
            f"| {gigabytes} GB | {plan.tiles} of {plan.block_m:,} x {plan.block_n:,} | {depth} | "
            f"{plan.bytes_moved / 1e9:,.0f} GB | {plan.bytes_moved / bound:.2f} |\n"
        ) in page


def test_an_inner_product_is_cut_along_k() -> None:
    plan = choose(Problem(100, 100, 10**9, 4, 4, 4), 1 << 28)
    assert plan.tiles == 1
    assert plan.pieces > 1
    assert plan.bytes_moved == plan.problem.compulsory


def test_pieces_are_shared_by_neighbours() -> None:
    """Forwards along one row of tiles, backwards along the next."""
    steps = list(BlockPlan(Problem(4, 4, 4, 4, 4, 4), 2, 2, 4).steps())
    assert "".join(x.matrix if isinstance(x, Load) else "." for x in steps) == "AB..B..A..B.."
    kinds = Counter(type(x).__name__ for x in steps)
    assert kinds == {"Load": 5, "Multiply": 4, "Store": 4}


def test_too_little_memory() -> None:
    with pytest.raises(ValueError, match="memory is 11 bytes; one element of each matrix takes"):
        choose(Problem(5, 5, 5, 4, 4, 4), 11)
