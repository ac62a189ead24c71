"""Where contenders are measured: what needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpu import FakeGpu, without_gpu

from tilewise.bench.suites import SUITES
from tilewise.errors import DeviceUnavailableError

torch = pytest.importorskip("torch", reason="contenders are timed by PyTorch's events")

from tilewise.bench import stand as stands  # noqa: E402
from tilewise.bench.timing import in_turn, wall_seconds  # noqa: E402


def test_what_is_begun_in_time_is_finished() -> None:
    now = 0.0
    budget = stands.Budget(2.5, lambda: now)
    taken = []
    for item in budget.take("abcde"):
        taken.append(item)
        now += 1
    assert (taken, budget.left) == (["a", "b", "c"], 2)
    assert list(budget.take("xyz")) == []
    assert budget.left == 5
    assert list(stands.Budget().take(range(4))) == [0, 1, 2, 3]


def test_the_products_are_those_of_the_suite() -> None:
    assert stands.shapes() == list(SUITES["llm"])
    (one,) = stands.shapes([(24, 40)], [7])
    assert (one.size, one.layout) == ("7x24x40", "NT")


def test_a_summary_says_whether_a_goal_is_met() -> None:
    found = stands.summary({"a": 1.0, "b": 1.21}, goal=1.1, worst_goal=0.95)
    assert found["mean"] == pytest.approx(1.1)
    assert (found["count"], found["worst"], found["worst_at"]) == (2, 1.0, "a")
    assert stands.summary({"a": 1.0, "b": 1.22}, goal=1.1, worst_goal=0.95)["is_met"]
    assert not stands.summary({"a": 1.0, "b": 1.2}, goal=1.1)["is_met"]
    assert not stands.summary({"a": 0.9, "b": 9.0}, goal=1.1, worst_goal=0.95)["is_met"]
    cost = stands.summary({"a": 1.0, "b": 1.21}, goal=1.05, is_cost=True)
    assert (cost["worst"], cost["worst_at"], cost["is_met"]) == (1.21, "b", False)
    assert stands.summary({"a": 1.0, "b": 1.04}, goal=1.05, is_cost=True)["is_met"]
    words = stands.told(cost)
    assert words == "geometric mean 1.100 (at most 1.05), worst 1.210 at b, of 2; MISSED"
    assert "(" not in stands.told(stands.summary({"a": 1.0}, goal=None))


def test_contenders_take_turns_by_any_clock() -> None:
    ran: list[str] = []
    seconds = {"a": 0.5, "b": 0.25}

    def clock(work: Callable[[], object], times: int) -> float:
        for _ in range(times):
            work()
        return 2 * seconds[ran[-1][0]]  # of two sets

    works = {name: [lambda x=f"{name}{i}": ran.append(x) for i in (1, 2)] for name in seconds}
    found = in_turn(works, 3, 1.5, in_graph=False, clock=clock)
    assert found.seconds == {"a": [0.5] * 3, "b": [0.25] * 3}
    assert found.launches == {"a": 4, "b": 6}
    assert not found.in_graph
    assert ran[:6] == ["a1", "a2"] * 3
    rounds = "".join(x[0] for x in ran[-48:])
    assert rounds == ("a" * 6 + "b" * 10) * 3
    assert wall_seconds(lambda: None) < 1


def test_on_a_cpu_and_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with stands.stand(2, 0.001, on_cpu=True) as at:
        assert (at.device, at.place, at.sets(1 << 40)) == ("cpu", "emulator", 2)
        assert at.generator(3).device.type == "cpu"
        found = at.time({"a": [lambda: None]})
        assert len(found.seconds["a"]) == 2
        assert at.method["l2_bytes"] is None
    without_gpu(monkeypatch)
    monkeypatch.setattr("tilewise.bench.record.get_device", lambda name: _none())
    with pytest.raises(DeviceUnavailableError), stands.stand(2, 0.001):
        pass


def test_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the events and graphs themselves."""
    gpu: Any = FakeGpu()
    gpu.context = SimpleNamespace(ordinal=0)
    timed: list[Any] = []
    monkeypatch.setattr(stands, "find_gpu", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "device", lambda ordinal: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(stands, "in_turn", lambda *given, **named: timed.append((given, named)))
    with stands.stand(3, 0.5) as at:
        assert (at.device, at.place) == ("cuda", "auto")
        assert at.sets(1 << 20) == 2
        assert at.method["l2_bytes"] == 1 << 20
        works = {"a": [lambda: None]}
        at.time(works)
        at.time(works, in_graph=True)
    assert timed == [
        ((works, 3, 0.5), {"in_graph": None}), ((works, 3, 0.5), {"in_graph": True}),
    ]  # fmt: skip


def _none() -> None:
    raise DeviceUnavailableError("no GPU can be used: none is here")
