"""Choose the ways of one layout with the least loss, from the seconds of products by each way.

The loss of a slowdown is x + TAIL x^2, of its logarithm x, which is capped at MOST.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TAIL, MOST = 3.0, 1.0
DROPPED = 1e-5  # a way is spare if the mean loss grows by at most this without it

Array = npt.NDArray[Any]


class Products:
    """The loss of a choice of ways, over the products of one layout.

    Parameters
    ----------
    model, times : array, (products, ways)
        Seconds of each of the records' products by each way, by the model, and as measured.
    weight : array
        The weight of each of the records' products.
    drawn : array, (products, ways)
        Seconds of random products by each way, by the model.
    share : float
        The weight of all random products, where all of the records' have 1.
    """

    def __init__(
        self, model: Array, times: Array, weight: Array, drawn: Array, share: float
    ) -> None:
        self.model, self.weight, self.share = model, weight / weight.sum(), share
        self.times = np.log(times / times.min(1, keepdims=True))
        self.of_times, self.drawn = (
            _loss(np.log(x / x.min(1, keepdims=True))) for x in (times, drawn)
        )

    def loss(self, ways: Sequence[int]) -> float:
        """Return the loss."""
        recorded = float(self.of_times[self._chosen(ways)] @ self.weight)
        return recorded + self.share * float(self.drawn[:, ways].min(1).mean())

    def slowdown(self, ways: Sequence[int]) -> float:
        """Return the mean logarithm of the records' products' slowdown."""
        return float(self.times[self._chosen(ways)] @ self.weight)

    def _chosen(self, ways: Sequence[int]) -> tuple[Array, Array]:
        model = self.model[:, ways]
        return np.arange(len(model)), np.array(ways)[model.argmin(1)]


def choose(found: Products, start: Sequence[int], count: int) -> list[int]:
    """Return the places of the ways that should be chosen from, some of which are taken already."""
    taken, others = list(start), set(range(found.drawn.shape[1])) - {*start}
    while len(taken) < count and others:
        best = min(sorted(others), key=lambda x: found.loss([*taken, x]))
        taken.append(best)
        others.remove(best)
    return taken


def widen(times: Array, start: Sequence[int], count: int) -> list[int]:
    """Return the places of the present ways, and of ``count`` more by which products are faster.

    Parameters
    ----------
    times : array, (products, ways)
        The logarithms of the expected seconds.
    start : sequence of int
        The places of the present ways.
    count : int
    """
    taken, best = list(start), times.min(1)
    now = times[:, taken].min(1)
    for _ in range(min(count, times.shape[1] - len(taken))):
        then = np.minimum(now[:, np.newaxis], times)
        loss = _loss(then - best[:, np.newaxis]).mean(0)
        loss[taken] = math.inf
        taken.append(int(loss.argmin()))
        now = np.minimum(now, times[:, taken[-1]])
    return taken


def without_spare(every: Sequence[Array], taken: Sequence[int], always: int) -> list[int]:
    """Return the places of ways without those that could be left out at nearly no loss.

    Parameters
    ----------
    every : sequence of array, (products, ways)
        The logarithms of the expected seconds of samples of products, which count alike.
    taken : sequence of int
    always : int
        The place of a way that stays.
    """
    left = list(taken)
    while len(left) > 1:
        cost = np.zeros(len(left))
        for times in every:
            mine, rows = times[:, left], np.arange(len(times))
            order = np.argpartition(mine, 1, axis=1)[:, :2]
            two = np.take_along_axis(mine, order, 1)
            first = order[rows, two.argmin(1)]
            lost = _loss(np.sort(two, 1) - times.min(1, keepdims=True))
            cost += np.bincount(first, lost[:, 1] - lost[:, 0], len(left)) / len(times)
        cost[left.index(always)] = math.inf
        if cost.min() > DROPPED:
            break
        left.pop(int(cost.argmin()))
    return left


def _loss(lost: Array) -> Array:
    """Return the loss of logarithms of slowdowns, of which large ones count more."""
    found = np.minimum(lost, MOST)
    result: Array = found + TAIL * found**2
    return result
