"""The ways to tile products of one layout, and what the model and measured times say of them.

A way is a tiling with A and B swapped or not. The records are those of ``benchmarks/choices.py``.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.bench.suites import Random
from tilewise.explanation import of_shape
from tilewise.gemm.chip import H200
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.costs import COSTS
from tilewise.gemm.families.hopper.cover import fits
from tilewise.gemm.families.hopper.model import seconds
from tilewise.gemm.families.hopper.table import Table
from tilewise.gemm.families.hopper.tiling import Problem, Tiling

MODELS = 0.4  # of the NN and NT products have weights as models have them
FEW = 0.5  # of those have few rows, as requests that are answered together have
# Rows and columns of language models' weights: of half of the products with few rows.
WIDTHS = (
    1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    18944, 20480, 28672, 57344,
)  # fmt: skip
FEW_ROWS = 16, 256
# FEWEST: a record's product is used if at least so many of its tilings were timed.
# TIMES: a tiling is used if it was timed on at least so many products.
FEWEST, TIMES = 2, 4
ALWAYS = Tiling(64, 64)  # it can compute every aligned product
# NEAR: only times within this factor of their product's fastest count for a way's bias.
# DOUBTED: so many times without a bias are added to them, so that few times give a small bias.
NEAR, DOUBTED = 1.4, 6
WEIGHT = 4.0  # what products with language models' weights count beside others of the records

Array = npt.NDArray[Any]
Row = Mapping[str, Any]


class Ways:
    """The ways to compute the products of one layout.

    Parameters
    ----------
    layout : str
    tilings : iterable of Tiling
        Those that the kernel has no objection to are taken.
    """

    def __init__(self, layout: str, tilings: Iterable[Tiling]) -> None:
        self.layout = layout
        large = hopper.problem(of_shape(1 << 20, 1 << 20, 1 << 20, "bfloat16", layout))
        self.tilings = [
            each
            for each in tilings
            if not each.objection(large.swapped if each.swapped else large)
            and fits(each, H200.multiprocessors)
        ]
        self.places = {each: place for place, each in enumerate(self.tilings)}
        views = [int(each.swapped) for each in self.tilings]
        self._table = Table(self.tilings, views, H200.multiprocessors)

    def expected(self, problem: Problem) -> Array:
        """Return the seconds that each should take."""
        return seconds(self._table, [problem, problem.swapped], COSTS)

    def problem(self, row: Row) -> Problem:
        """Return the problem of a record's product."""
        return hopper.problem(of_shape(row["m"], row["n"], row["k"], "bfloat16", self.layout))

    def timed(self, row: Row) -> dict[int, float]:
        """Return the measured seconds of a record's product, by the places of the ways.

        Ways that the model excludes are left out.
        """
        model = self.expected(self.problem(row))
        return {
            self.places[way]: 1e-6 * time
            for way, time in recorded_times(row["ways"])
            if way in self.places and model[self.places[way]] < math.inf
        }

    def measured(self, row: Row, caution: Array) -> tuple[Array, Array, float]:
        """Return the seconds of a record's product by the model and as measured, and its weight."""
        model, found = self.expected(self.problem(row)), self.timed(row)
        places, times = (np.array(x) for x in zip(*found.items(), strict=True))
        # The others have the model's times, corrected by how far it is off for this product.
        seen = model * (np.median(times / model[places]) * caution)
        seen[places] = times
        return model, seen, WEIGHT if row["n"] in WIDTHS and row["k"] in WIDTHS else 1.0


def recorded_times(ways: Sequence[Any]) -> Iterator[tuple[Tiling, float]]:
    """Yield each tiling that was timed of a record's product, and the microseconds that it took."""
    for way in ways:
        if isinstance(way, list):  # the short form that is kept in the repository
            *sizes, stream_k, swapped, ping_pong, time = way
            flags = {"stream_k": stream_k, "swapped": swapped, "ping_pong": ping_pong}
            yield Tiling(*sizes, **{name: bool(flag) for name, flag in flags.items()}), time
        elif way["family"] == "hopper":
            yield Tiling(**way["choice"]), way["us"]


def tilings_timed(rows: Iterable[Row]) -> list[Tiling]:
    """Return the tilings that were timed on enough products, swapped and not, and ALWAYS."""
    of_rows = [{sizes_of(way) for way, _ in recorded_times(row["ways"])} for row in rows]
    count = Counter(sizes for each in of_rows for sizes in each)
    enough = {sizes for sizes, times in count.items() if times >= TIMES} | {sizes_of(ALWAYS)}
    return [
        Tiling(*sizes[:6], is_swapped, ping_pong=sizes[6])
        for sizes in sorted(enough)
        for is_swapped in (False, True)
    ]


def sizes_of(way: Tiling) -> tuple[int, int, int, int, int, bool, bool]:
    """Return a tiling's parameters, without whether A and B are swapped."""
    return (
        way.block_m, way.block_n, way.cluster_m, way.cluster_n, way.split, way.stream_k,
        way.ping_pong,
    )  # fmt: skip


def products(layout: str, count: int, seed: int) -> list[Problem]:
    """Return random products."""
    drawn = random.Random(f"{layout} {seed}")

    def between(low: int, high: int) -> float:
        return math.exp(drawn.uniform(math.log(low), math.log(high)))

    found = []
    for _ in range(count):
        if layout in ("NN", "NT") and drawn.random() < MODELS:
            is_few = drawn.random() < FEW
            m = round(between(*(FEW_ROWS if is_few else (1, 8192))))
            if is_few and drawn.random() < 0.5:
                n, k = (drawn.choice(WIDTHS) for _ in range(2))
            else:
                n, k = (round(between(1024, 32768) / 512) * 512 for _ in range(2))
        else:
            m, n, k = (max(8, round(between(64, 12288) / 8) * 8) for _ in range(3))
        found.append(hopper.problem(of_shape(m, n, k, "bfloat16", layout)))
    return found


def uniform(layout: str, count: int, seed: int) -> list[Problem]:
    """Return the random products of :class:`tilewise.bench.suites.Random`, all of one layout."""
    shapes = Random(count, seed, 8).shapes()
    return [hopper.problem(of_shape(x.m, x.n, x.k, "bfloat16", layout)) for x in shapes]


def thin(layout: str, count: int, seed: int) -> list[Problem]:
    """Return the products of :func:`uniform`, with a 64th of the rows or of the columns in turn."""
    found = []
    for index, x in enumerate(Random(count, seed, 8).shapes()):
        few = max(8, (x.m, x.n)[index % 2] // 512 * 8)
        m, n = (few, x.n) if index % 2 == 0 else (x.m, few)
        found.append(hopper.problem(of_shape(m, n, x.k, "bfloat16", layout)))
    return found


def biases(ways: Ways, rows: Iterable[Row]) -> Array:
    """Return how far the model is off for each way: the mean logarithm of measured by expected.

    It is counted from the mean of the product's ways, and drawn towards 0 where few were timed.
    """
    total, count = np.zeros((2, len(ways.tilings)))
    for row in rows:
        found = ways.timed(row)
        model = ways.expected(ways.problem(row))
        places, times = (np.array(x) for x in zip(*found.items(), strict=True))
        near = times < NEAR * times.min()
        off = np.log(times / model[places])
        total[places[near]] += off[near] - off[near].mean()
        count[places[near]] += 1
    result: Array = total / (count + DOUBTED)
    return result
