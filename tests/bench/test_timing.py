"""The order in which contenders are timed, with a clock that tells who was."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

pytest.importorskip("torch", reason="works are timed on PyTorch's streams")
from tilewise.bench.timing import in_turn

NAMES = ("vendor", "first", "second", "third")
ROUNDS = 12


def order_of(shuffled: bool) -> list[list[str]]:
    """Return who was timed after whom in each round."""
    rounds: list[list[str]] = [[] for _ in range(ROUNDS)]

    def clock(work: Callable[[], object], times: int) -> float:
        return 1.0

    in_turn(
        {name: [lambda: None] for name in NAMES}, ROUNDS, 0.5,
        lambda name, index: rounds[index].append(name),
        in_graph=False, clock=clock, shuffled=shuffled,
    )  # fmt: skip
    return rounds


@pytest.mark.parametrize(("seconds", "calls"), [(0.5, 5), (3.0, 16)])
def test_what_takes_long_is_called_seldom(seconds: float, calls: int) -> None:
    """Of what takes a second: two to estimate, one to warm up, and one beside the one timed."""
    called = []

    def clock(work: Callable[[], object], times: int) -> float:
        for _ in range(times):
            work()
        return 1.0

    in_turn({"one": [lambda: called.append(1)]}, 1, seconds, in_graph=False, clock=clock)
    assert len(called) == calls


def test_all_rounds_have_the_order_given() -> None:
    assert order_of(shuffled=False) == [list(NAMES)] * ROUNDS


def test_shuffled_rounds_let_another_one_follow_the_vendor() -> None:
    found = order_of(shuffled=True)
    assert all(sorted(each) == sorted(NAMES) for each in found)
    after = {b for each in found for a, b in pairwise(each) if a == "vendor"}
    assert after == set(NAMES) - {"vendor"}
    assert found == order_of(shuffled=True)
