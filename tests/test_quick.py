"""The cases that run without ``--thorough``."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick import chosen, covering
from reference import is_thorough, some


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=60, unique=True))
def test_each_value_of_each_factor_occurs(cases: list[tuple[int, int, int]]) -> None:
    """And none of the cases twice, nor any that brings no value of its own."""
    found = covering(cases)
    taken = [cases[at] for at in found]
    assert len(set(found)) == len(found)
    several = sum(len(set(factor)) > 1 for factor in zip(*cases, strict=True))
    if several < 2:
        assert taken == cases
        return
    seen: set[tuple[int, int]] = set()
    for case in taken:
        assert not seen.issuperset(enumerate(case))
        seen.update(enumerate(case))
    assert seen == {pair for case in cases for pair in enumerate(case)}


def test_a_product_takes_as_many_cases_as_its_longest_factor() -> None:
    """Its values meet others in turn."""
    cases = list(product(range(12), range(4), range(3)))
    taken = [cases[at] for at in covering(cases)]
    assert len(taken) == 12
    assert len({(y, z) for _, y, z in taken}) == 12
    assert len({(x % 4, y) for x, y, _ in taken}) >= 4
    assert covering([]) == []


def test_some_of_the_values() -> None:
    values = list(range(10))
    assert some(values, 3) == (values if is_thorough() else [0, 4, 9])
    assert some(values, 1) == (values if is_thorough() else [0])
    assert some(values, 20) == values


class Case:
    """A case of a test, of which every third is marked thorough."""

    def __init__(self, at: int) -> None:
        self.nodeid, self.keywords = f"test.py::test[{at}]", {"thorough"} if at % 3 == 0 else set()

    def get_closest_marker(self, name: str) -> Any:
        return pytest.mark.sampled(3).mark if name == "sampled" else None


def test_one_of_so_many_cases_that_are_not_thorough() -> None:
    """At least one is left, wherever the thorough ones stand."""
    cases: list[Any] = [Case(at) for at in range(12)]
    assert [cases.index(each) for each in chosen(cases)] == [1, 5, 10]
    assert chosen(cases[:2]) == cases[1:2]
