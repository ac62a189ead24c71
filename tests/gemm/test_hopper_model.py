"""The Hopper kernel's model, over tables of tilings: it agrees with what is told of one tiling."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as combinations
from itertools import starmap
from typing import Any

import numpy as np
import pytest
from hopper_reference import candidates
from hypothesis import given
from hypothesis import strategies as st
from reference import examples
from test_tilings import chip, large, multiprocessors, problems

import tilewise as tw
from tilewise.epilogue import trace
from tilewise.gemm.chip import H200
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper import model
from tilewise.gemm.families.hopper.costs import costs_on
from tilewise.gemm.families.hopper.cover import MOST_TILES, cover, fits
from tilewise.gemm.families.hopper.table import Array, Table, cover_table, depth_of
from tilewise.gemm.families.hopper.tiling import Problem, Tiling
from tilewise.gemm.families.hopper.tilings import Kind, tilings
from tilewise.gemm.families.hopper.variants import SUM_SOURCE, Variant, kernels_of
from tilewise.gemm.product import Operand, Product

KINDS = list(starmap(Kind, combinations((False, True), repeat=6)))
EVERY = list(dict.fromkeys(each for kind in KINDS for each in tilings(kind)))


@examples(200, quick=3)
@given(m=large, n=large, k=large, batch=st.integers(1, 64), count=multiprocessors)
def test_a_table_is_covered_as_each_of_its_tilings(
    m: int, n: int, k: int, batch: int, count: int
) -> None:
    found = [tiling for tiling in EVERY if fits(tiling, count)]
    table = Table(found, [0] * len(found), count)
    extents = np.repeat([[float(m)], [float(n)]], len(found), axis=1)
    depth = depth_of(table, [k])
    at = cover_table(table, extents, np.full(len(found), float(batch)), depth)
    for row, tiling in enumerate(found):
        one = cover(tiling, m, n, k, batch, count)
        if one.tiles > MOST_TILES:  # no such tiling may be chosen
            continue
        got = {name: value[row] for name, value in at._asdict().items()}
        assert (got["rows"] * tiling.cluster_m, got["columns"] * tiling.cluster_n) == (
            one.m_tiles,
            one.n_tiles,
        )
        assert (got["tiles"], got["splits"]) == (one.tiles, one.splits)
        assert got["has_tail"] == (one.tail_tiles > 0)
        assert got["last"] * got["has_tail"] == one.tail_tiles
        assert depth.k_steps[row] == one.k_steps


@pytest.mark.parametrize("kind", [x for x in KINDS if not (x.a_unaligned or x.b_unaligned)])
def test_the_file_has_only_tilings_that_take_aligned_products(kind: Kind) -> None:
    large = 1 << 20
    problem = Problem(large, large, large, 1, kind.a_k_major, kind.b_k_major)
    found = tilings(kind)
    assert found
    assert [each.objection(problem) for each in found] == [""] * len(found)


@given(problem=problems())
def test_as_many_rows_of_a_are_loaded(problem: Problem) -> None:
    found = [tiling for tiling in EVERY if tiling.a_unaligned == problem.a_unaligned]
    table = Table(found, [0] * len(found), H200.multiprocessors)
    most_rows = model._most_rows(problem)
    rows = [tiling.a_rows(problem) for tiling in found]
    assert list(model._a_rows(table, np.full(len(found), float(most_rows)))) == rows


def test_sums_at_once_are_as_many_as_hopper_sum_reads() -> None:
    at_once = Table(EVERY, [0] * len(EVERY), H200.multiprocessors).splits_at_once
    for tiling, count in zip(EVERY, at_once, strict=True):
        variant = Variant("float16", "float16", True, True, 64, False, True, True)
        _, summing = kernels_of(variant, tiling, is_divided=True)
        assert count == 16 // summing.defines["ROW_BLOCKS"]
    assert "AT_ONCE = 16 / SUMS;" in SUM_SOURCE.read_text(encoding="utf-8")


@examples(300, quick=8)
@given(problem=problems(), count=multiprocessors)
def test_ranks_what_is_worth_comparing(problem: Problem, count: int) -> None:
    ranked = model.ranked([problem], [0.0], chip(count))
    found = [tiling for tiling, _, _ in ranked]
    assert len(set(found)) == len(found)
    assert set(found) == set(candidates(problem, count))
    times = [seconds for _, _, seconds in ranked]
    assert times == sorted(times)
    # One tiling by itself takes as long as in a table.
    for tiling, index, seconds in ranked:
        assert index == 0
        assert seconds == pytest.approx(model.seconds_of(tiling, problem, chip(count)), rel=1e-12)
    assert model.best([problem], [0.0], chip(count)) == ranked[0]


@given(first=problems(), second=problems(), around=st.floats(0, 1e-4))
def test_the_best_of_several_readings(first: Problem, second: Problem, around: float) -> None:
    alone = [model.best([problem], [0.0], H200) for problem in (first, second)]
    tiling, index, seconds = model.best([first, second], [around, 0.0], H200) or (None, 0, 0.0)
    assert alone[index] is not None
    times = [found[2] for found in alone if found is not None]
    assert len(times) == 2
    assert seconds == pytest.approx(min(times[0] + around, times[1]), rel=1e-12)
    assert isinstance(tiling, Tiling)


def test_nothing_of_no_reading() -> None:
    assert model.best([], [], H200) is None
    assert model.ranked([], [], H200) == []


def test_a_wide_d_and_a_c_that_is_read_take_longer() -> None:
    """By TMA or not, where memory is what takes long and where the epilogue is."""
    for problem, tiling in (
        (Problem(16384, 16384, 64), Tiling(128, 256)),
        (Problem(128, 256, 64), Tiling(128, 256)),
    ):
        for d_row_major, d_by_tma in ((True, True), (False, True), (True, False)):
            plain = problem._replace(d_row_major=d_row_major, d_by_tma=d_by_tma)
            time = model.seconds_of(tiling, plain, H200)
            assert time < model.seconds_of(tiling, plain._replace(d_item=4), H200)
            assert time < model.seconds_of(tiling, plain._replace(reads_c=True), H200)


def test_a_slower_chip_takes_longer() -> None:
    problem = Problem(3000, 3000, 3000)
    tiling = Tiling(128, 256)
    time = model.seconds_of(tiling, problem, H200)
    slow_clock = replace(H200, clock=H200.clock / 2)
    assert time < model.seconds_of(tiling, problem, slow_clock) < 2 * time
    assert model.seconds_of(tiling, problem, replace(H200, multiprocessors=66)) > 1.5 * time
    flat = Problem(16384, 16384, 64)
    slow_memory = replace(H200, memory=H200.memory / 4)
    assert model.seconds_of(tiling, flat, slow_memory) > 1.5 * model.seconds_of(tiling, flat, H200)


@given(problem=problems(), fused=st.floats(1, 100), moved=st.floats(0, 16))
def test_a_function_takes_time(problem: Problem, fused: float, moved: float) -> None:
    """Of its instructions and its bytes; and where there is none, none of its costs counts."""
    found = [tiling for tiling in EVERY if not tiling.objection(problem)]
    table = Table(found, [0] * len(found), H200.multiprocessors)
    costs = costs_on(H200)

    def times(fused: float = 0.0, moved: float = 0.0) -> Array:
        view = problem._replace(fused=fused, moved=moved)
        return model.seconds(table, [view], costs, only_worth=False)

    dear = replace(costs, issue=costs.issue / 100, operand=1e3)
    plain = times()
    assert (model.seconds(table, [problem], dear, only_worth=False) == plain).all()
    assert (times(fused=fused) > plain).all()
    assert (times(fused=2 * fused) > times(fused=fused)).all()
    assert (times(fused=fused, moved=moved) >= times(fused=fused)).all()


def test_ping_pong_hides_a_function_behind_the_mainloop() -> None:
    """All but that of the last tile, as long as it takes less time."""
    whole, in_turn = (Tiling(128, 192, 2, 1, ping_pong=x) for x in (False, True))

    def added(tiling: Tiling, k: int, fused: float) -> float:
        problem = Problem(128 * 66 * 8, 192 * 2, k)  # eight waves
        more = model.seconds_of(tiling, problem._replace(fused=fused))
        return more - model.seconds_of(tiling, problem)

    tile = 128 * 192 * 30 / (costs_on(H200).issue * 1e9)
    assert added(whole, 4096, 30) > 7 * tile
    assert added(in_turn, 4096, 30) < 3 * tile
    assert added(in_turn, 64, 300) > 30 * tile  # ten times as long, and nothing to hide it behind


def test_a_function_is_counted() -> None:
    """By its instructions and its operands; the same work whichever way round D is."""
    d = Operand(64, 1)

    def problem(function: Any, **inputs: Strided) -> Problem:
        epilogue = Epilogue(trace(function, tuple(inputs)), tuple(inputs.values()))
        return hopper.problem(
            Product(64, 64, 64, 1, "bfloat16", "bfloat16", 1.0, 0.0, d, d, None, d, epilogue)
        )

    row, whole = Strided("bfloat16", 0, 1), Strided("float32", 64, 1)
    biased = problem(lambda acc, x: acc + x, x=row)
    assert biased.moved == 0
    assert biased.fused < problem(lambda acc, x: acc + x, x=whole).fused
    assert problem(lambda acc, x: acc + x, x=whole).moved == 4
    assert problem(lambda acc, x: tw.gelu(acc + x), x=row).fused > biased.fused + 10
    assert (biased.swapped.fused, biased.swapped.moved) == (biased.fused, biased.moved)
