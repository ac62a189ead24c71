"""Sets of sectors as intervals: counted as if every sector was listed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.devices.emulator.sampling import intervals
from tilewise.devices.emulator.sampling.intervals import Collected, Integers, Union, joined

SETS = st.lists(st.integers(0, 60), max_size=12)
MOVES = st.lists(
    st.builds(
        lambda first, step, count: np.arange(first, first + step * count, step or 1),
        st.integers(-20, 20),
        st.integers(0, 9),
        st.integers(1, 6),
    ).filter(len),
    max_size=3,
)


def sums(some: set[int], moves: list[Integers]) -> set[int]:
    for each in moves:
        some = {x + int(y) for x in some for y in each}
    return some


@given(st.lists(st.tuples(SETS, MOVES), max_size=4), st.sampled_from([1, 5, 1 << 20]))
def test_a_union_of_sums(parts: list[tuple[list[int], list[Integers]]], pending: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "PENDING", pending)
        union, listed = Union(), set[int]()
        for some, moves in parts:
            union.add(np.unique(np.array(some, np.int64)), moves)
            listed |= sums(set(some), moves)
        assert union.count() == len(listed)
        assert union.count() == len(listed)  # and it may be asked again


@given(st.lists(SETS, max_size=6), st.sampled_from([1, 7, 1 << 20]), st.booleans())
def test_what_is_collected(parts: list[list[int]], pending: int, has_table: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "PENDING", pending)
        collected = Collected(61 if has_table else 1 << 40)
        for some in parts:
            collected.add(np.array(some, np.int64))
        expected = sorted({x for some in parts for x in some})
        assert collected.sorted().tolist() == expected
        assert collected.sorted().tolist() == expected


def test_intervals_are_joined() -> None:
    begins, ends = joined(np.array([5, 0, 2, 9]), np.array([7, 3, 5, 10]))
    assert begins.tolist() == [0, 9]
    assert ends.tolist() == [7, 10]


def test_a_matrix_by_its_blocks() -> None:
    """Every block of 32 rows of 4 sectors, of 3,125 times 3,125: without a list of its sectors."""
    pitch, blocks = 12_500, 3_125
    union = Union()
    block = (pitch * np.arange(32)[:, None] + np.arange(4)).reshape(-1)
    union.add(block, [4 * np.arange(blocks), 32 * pitch * np.arange(blocks)])
    assert union.count() == 32 * blocks * pitch
