"""Which cases of a test run without ``--thorough``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

Values = tuple[tuple[int, ...], ...]


def chosen(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that a quick run takes, in their order.

    What is marked ``thorough`` is left out. Of a test with ``sampled(every)``, one case in so many
    runs. Of a test with the product of several ``parametrize``, so many cases run that each value
    of each of them occurs; of other tests, all cases.
    """
    tests: dict[str, list[pytest.Item]] = {}
    places = {}
    for place, item in enumerate(items):
        places[item] = place
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    found = [item for cases in tests.values() for item in _of_a_test(cases)]
    return sorted(found, key=places.__getitem__)


def _of_a_test(cases: list[pytest.Item]) -> list[pytest.Item]:
    sampled = cases[0].get_closest_marker("sampled")
    if sampled is not None:
        cases = cases[:: sampled.args[0]]
    cases = [item for item in cases if "thorough" not in item.keywords]
    return cases if sampled is not None or len(cases) < 3 else _covering(cases)


def _covering(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Some of the cases, in which each value of each ``parametrize`` occurs.

    One after another, the case with the most values that none of those before has; of several the
    one whose values occur the least so far, so that the others are spread.
    """
    values = {item: _values(item) for item in cases}
    axes = list(zip(*values.values(), strict=True))
    if sum(len(set(axis)) > 1 for axis in axes) < 2:
        return cases
    uses = [Counter[tuple[int, ...]]() for _ in axes]
    left = {(at, value) for at, axis in enumerate(axes) for value in axis}
    found = []

    def worth(item: pytest.Item) -> tuple[int, int]:
        new = sum((at, value) in left for at, value in enumerate(values[item]))
        return new, -sum(uses[at][value] for at, value in enumerate(values[item]))

    while left:
        best = max(cases, key=worth)
        found.append(best)
        for at, value in enumerate(values[best]):
            uses[at][value] += 1
            left.discard((at, value))
    return found


def _values(item: pytest.Item) -> Values:
    """The values of a case, one of each ``parametrize``: which objects they are."""
    params = item.callspec.params if isinstance(item, pytest.Function) else {}
    names = [mark.args[0] for mark in item.iter_markers("parametrize")]
    return tuple(
        tuple(id(params[name.strip()]) for name in (x.split(",") if isinstance(x, str) else x))
        for x in names
    )
