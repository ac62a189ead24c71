"""Say where contenders are measured, for how long, and how much is left when the time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch

from tilewise.bench.record import find_gpu
from tilewise.bench.suites import COLUMNS, MOST_SETS, ROWS, TOKENS, WEIGHTS, Shape, sets_to_rotate
from tilewise.bench.summary import geometric_mean
from tilewise.bench.timing import (
    GRAPH_LAUNCHES,
    SHORT_SECONDS,
    Timings,
    Work,
    in_turn,
    wall_seconds,
)
from tilewise.devices.gpu import Gpu
from tilewise.gemm import beside
from tilewise.gemm.plan import chip_of, plan_on
from tilewise.gemm.product import Product

Item = TypeVar("Item")
PATIENCE = 60.0  # seconds to wait for kernels that are compiled beside
TINY = ((1, 16, 24), (5, 24, 16))
"""The m, n and k of products that take seconds on a CPU."""


@dataclass(frozen=True)
class Stand:
    """The place of a measurement, and its method.

    Attributes
    ----------
    device : str
        PyTorch's: ``"cuda"``, or ``"cpu"`` to try a benchmark out, whose times say nothing.
    gpu : Gpu or None
        None on a CPU.
    rounds : int
    seconds : float
        As :func:`tilewise.bench.timing.in_turn` has them.
    """

    device: str
    gpu: Gpu | None
    rounds: int
    seconds: float

    def time(
        self, contenders: Mapping[str, Sequence[Work]], *, in_graph: bool | None = None
    ) -> Timings:
        """Time contenders in turn, with the parameters of :func:`tilewise.bench.timing.in_turn`.

        What the calls before have begun to compile beside them is waited for: it would take the
        host's time from all contenders.
        """
        beside.wait(PATIENCE)
        if self.gpu is None:
            timer = partial(in_turn, in_graph=False, clock=wall_seconds)
            return timer(contenders, self.rounds, self.seconds)
        return in_turn(contenders, self.rounds, self.seconds, in_graph=in_graph)

    def sets(self, nbytes: int) -> int:
        """Return the number of sets of operands, ``nbytes`` each, that are used in turn."""
        return 2 if self.gpu is None else sets_to_rotate(nbytes, self.gpu.l2_bytes)

    def way(self, product: Product) -> str:
        """Return in words how tilewise computes a product."""
        return plan_on(product, chip_of(self.gpu) if self.gpu else None).chosen

    def generator(self, seed: int = 0) -> Any:
        """Return a source of random numbers in the place of the operands."""
        return torch.Generator(self.device).manual_seed(seed)

    @property
    def place(self) -> str:
        """The argument ``device`` of :func:`tilewise.matmul` with which our kernels answer."""
        return "emulator" if self.gpu is None else "auto"

    @property
    def method(self) -> dict[str, Any]:
        """The method of measurement, for a record."""
        return {
            "device": self.device, "rounds": self.rounds, "seconds_a_round": self.seconds,
            "warm_up_seconds": self.seconds / 2, "data": "random normal",
            "graph_below_seconds": SHORT_SECONDS, "graph_launches": GRAPH_LAUNCHES,
            "l2_bytes": None if self.gpu is None else self.gpu.l2_bytes,
            "most_operand_sets": MOST_SETS,
        }  # fmt: skip


@contextmanager
def stand(rounds: int, seconds: float, *, on_cpu: bool = False) -> Iterator[Stand]:
    """Yield a stand on the GPU, on a stream of its own; or on the CPU, to try a benchmark.

    Raises
    ------
    DeviceUnavailableError
        If there is no GPU, or PyTorch can't use it.
    """
    with ExitStack() as stack:
        if on_cpu:
            yield Stand("cpu", None, rounds, seconds)
            return
        gpu = find_gpu()
        stack.enter_context(torch.cuda.device(gpu.context.ordinal))
        stack.enter_context(torch.cuda.stream(torch.cuda.Stream()))
        yield Stand("cuda", gpu, rounds, seconds)


class Budget:
    """A time limit of a benchmark: work begun within it is finished, and none is begun after it.

    Parameters
    ----------
    seconds : float
    clock : callable, optional

    Attributes
    ----------
    left : int
        The number of pieces of work that were not begun.
    """

    def __init__(
        self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._end, self.left = clock, clock() + seconds, 0

    def take(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yield items one by one until the time is up."""
        for at, item in enumerate(items):
            if self._clock() >= self._end:
                self.left += len(items) - at
                return
            yield item


def shapes(
    weights: Sequence[tuple[int, int]] = WEIGHTS, tokens: Sequence[int] = TOKENS
) -> list[Shape]:
    """Return the products of X by linear layers: (n, k) of the weights, m of the tokens."""
    return [Shape(m, n, k, ROWS, COLUMNS) for n, k in weights for m in tokens]


def medians(timed: Timings) -> dict[str, float]:
    """Return the seconds of each contender, in the median of the rounds."""
    return {name: median(rounds) for name, rounds in timed.seconds.items()}


def summary(
    ratios: Mapping[str, float], *, goal: float | None, worst_goal: float | None = None,
    is_cost: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the geometric mean and the worst of ratios, beside what they should be.

    Parameters
    ----------
    ratios : mapping of str to float
        The ratios by the name of what was measured; at least one.
    goal, worst_goal : float, optional
        The goals of the mean and of the worst.
    is_cost : bool
        Whether less is better, as of a time by another; or more, as of a speed.

    Returns
    -------
    dict
        ``count``, ``mean``, ``worst``, ``worst_at``, ``goal``, ``worst_goal``, ``is_met``.
    """
    worst = (max if is_cost else min)(ratios, key=ratios.__getitem__)
    mean = geometric_mean(ratios.values())

    def meets(value: float, limit: float | None) -> bool:
        return limit is None or (value <= limit if is_cost else value >= limit)

    return {
        "count": len(ratios), "mean": mean, "worst": ratios[worst], "worst_at": worst,
        "goal": goal, "worst_goal": worst_goal, "is_cost": is_cost,
        "is_met": meets(mean, goal) and meets(ratios[worst], worst_goal),
    }  # fmt: skip


def told(found: Mapping[str, Any]) -> str:
    """Return a summary, as ``"geometric mean 1.012 (at most 1.02), worst 1.050 at ..."``."""
    words = "at most" if found["is_cost"] else "at least"

    def value(key: str, goal: str) -> str:
        limit = "" if found[goal] is None else f" ({words} {found[goal]:g})"
        return f"{found[key]:.3f}{limit}"

    met = "" if found["goal"] is None else "; met" if found["is_met"] else "; MISSED"
    if found["count"] == 1:
        return f"{value('mean', 'goal')} at {found['worst_at']}{met}"
    worst = f"worst {value('worst', 'worst_goal')} at {found['worst_at']}"
    return f"geometric mean {value('mean', 'goal')}, {worst}, of {found['count']}{met}"
