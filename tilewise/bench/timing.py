"""Time contenders in turn, by events of one stream."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Below this, a launch's cost on the host could show; a CUDA graph of launches has no gaps.
SHORT_SECONDS = 100e-6
GRAPH_LAUNCHES = 64
_ESTIMATES = 3

Work = Callable[[], object]
"""A function that enqueues work on the current stream, and does not wait."""
Clock = Callable[[Work, int], float]
"""A function that does work ``times`` over, and returns the mean seconds of one."""


@dataclass(frozen=True)
class Timings:
    """The measurements of :func:`in_turn`.

    Attributes
    ----------
    seconds : dict
        The mean time of one launch in each round, by contender.
    launches : dict
        The launches a round, by contender.
    in_graph : bool
        Whether launches were replayed in CUDA graphs.
    """

    seconds: dict[str, list[float]]
    launches: dict[str, int]
    in_graph: bool


def _repeat(work: Work, times: int) -> None:
    for _ in range(times):
        work()


def seconds_of(work: Work, times: int = 1) -> float:
    """Return the mean seconds of one of ``times`` calls on the current stream; wait for them."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    _repeat(work, times)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / times


def wall_seconds(work: Work, times: int = 1) -> float:
    """Return the mean seconds of one of ``times`` calls that wait for their work, as on a CPU."""
    start = time.perf_counter()
    _repeat(work, times)
    return (time.perf_counter() - start) / times


def in_turn(
    contenders: Mapping[str, Sequence[Work]],
    rounds: int,
    seconds: float,
    after: Callable[[str, int], None] = lambda name, index: None,
    *,
    in_graph: bool | None = None,
    clock: Clock = seconds_of,
    shuffled: bool = False,
) -> Timings:
    """Time each contender, all of them once a round.

    Parameters
    ----------
    contenders : mapping
        A name, and the same work on one set of operands after another. Each was run before.
    rounds : int
        At least 1.
    seconds : float
        How long a contender is timed in a round, at least; half of that warms up before, and all
        of it before the first round.
    after : callable
        Called with a contender's name and the round's index once its work is done.
    in_graph : bool, optional
        Whether launches are replayed in CUDA graphs, those of all contenders. By default they are
        where one launch of any contender takes less than 100 µs.
    clock : callable, optional
        The clock; by default events on the current stream.
    shuffled : bool, optional
        Whether each round has an order of its own, the same in every run: what heats the GPU most
        then comes before another one each time. By default all rounds have the order given.

    Notes
    -----
    The sets are used in turn, whole passes over them.
    """
    works = {name: _each(calls) for name, calls in contenders.items()}
    at_once = {name: len(calls) for name, calls in contenders.items()}
    once = {name: _estimated(work, clock, seconds) for name, work in works.items()}
    if in_graph is None:
        in_graph = any(once[name] / at_once[name] < SHORT_SECONDS for name in works)
    if in_graph:
        for name, work in works.items():
            passes = math.ceil(GRAPH_LAUNCHES / at_once[name])
            works[name] = captured(work, passes)
            at_once[name] *= passes
            once[name] = min(clock(works[name], 1) for _ in range(2))
    times = {name: max(1, math.ceil(seconds / each)) for name, each in once.items()}
    for name, work in works.items():  # until the power limit rules: the first is a burst
        _repeat(work, times[name])
    found: dict[str, list[float]] = {name: [] for name in works}
    for index in range(rounds):
        order = list(works)
        if shuffled:
            random.Random(index).shuffle(order)
        for name in order:
            work = works[name]
            _repeat(work, math.ceil(times[name] / 2))
            found[name].append(clock(work, times[name]) / at_once[name])
            after(name, index)
    launches = {name: times[name] * at_once[name] for name in works}
    return Timings(found, launches, in_graph)


def _estimated(work: Work, clock: Clock, enough: float) -> float:
    """Return the estimated seconds of one call; two calls estimate one that takes ``enough``."""
    found = min(clock(work, 1) for _ in range(2))
    return found if found >= enough else min(clock(work, _ESTIMATES) for _ in range(2))


def _each(calls: Sequence[Work]) -> Work:
    """Return a function that makes all the calls, one after another."""

    def work() -> None:
        for call in calls:
            call()

    return work


def captured(work: Work, passes: int = 1) -> Work:
    """Capture work, run before, ``passes`` times in a CUDA graph; return its replay."""
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _repeat(work, passes)
    graph.replay()
    replay: Work = graph.replay
    return replay
