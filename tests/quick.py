"""Choose the cases of each test that run without ``--thorough``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import pytest

Values = Sequence[Hashable]

IN_A_BROWSER = 10


def chosen(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that a quick run takes, in their order.

    Tests and cases that are marked ``thorough`` are left out. Of the other cases of a test with
    ``sampled(every)``, the first of each ``every`` runs. A test with a product of several
    ``parametrize`` runs so many cases that each value of each ``parametrize`` occurs; other tests
    run all cases. Of a file's tests that need a browser, which takes a second for each page, one in
    :data:`IN_A_BROWSER` runs.
    """
    tests: dict[str, list[pytest.Item]] = {}
    places = {}
    for place, item in enumerate(items):
        places[item] = place
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    found = [item for cases in tests.values() for item in _of_a_test(cases)]
    pages: Counter[str] = Counter()
    taken = []
    for item in sorted(found, key=places.__getitem__):
        if "browser" in getattr(item, "fixturenames", ()):
            file = item.nodeid.partition("::")[0]
            pages[file] += 1
            if pages[file] % IN_A_BROWSER != 1:
                continue
        taken.append(item)
    return taken


def _of_a_test(cases: list[pytest.Item]) -> list[pytest.Item]:
    sampled = cases[0].get_closest_marker("sampled")
    cases = [item for item in cases if "thorough" not in item.keywords]
    if sampled is not None:
        return cases[:: sampled.args[0]]
    return [cases[at] for at in covering([_values(item) for item in cases])]


def covering(cases: Sequence[Values]) -> list[int]:
    """Return which cases of a product are enough for each value of each factor to occur.

    They are taken one after another: the case with the most values that no case before it has, and
    of several such, the one whose values have occurred least, so that pairs of values are spread.

    Parameters
    ----------
    cases : sequence of sequence
        The values of each case, one of each factor.

    Returns
    -------
    list of int
        The places of the cases; of all if at most one factor has several values.
    """
    factors = list(zip(*cases, strict=True))
    if sum(len(set(factor)) > 1 for factor in factors) < 2:
        return list(range(len(cases)))
    uses = [Counter[Hashable]() for _ in factors]
    missing = {(at, value) for at, factor in enumerate(factors) for value in factor}
    found: list[int] = []

    def worth(case: int) -> tuple[int, int]:
        new = sum((at, value) in missing for at, value in enumerate(cases[case]))
        return new, -sum(uses[at][value] for at, value in enumerate(cases[case]))

    while missing:
        found.append(max(range(len(cases)), key=worth))
        for at, value in enumerate(cases[found[-1]]):
            uses[at][value] += 1
            missing.discard((at, value))
    return found


def _values(item: pytest.Item) -> Values:
    """Return a case's values of each ``parametrize`` and fixture, as the identities of objects."""
    case = getattr(item, "callspec", None)
    if case is None:  # the only one of its test
        return ()
    places = {name: id(value) for name, value in case.params.items()}
    factors = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        factors.append(tuple(places.pop(name.strip()) for name in names))
    return (*factors, *places.values())
