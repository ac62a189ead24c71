"""The cases that run without ``--thorough``."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from quick import covering
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
