"""Chooses the Hopper kernels that the planner chooses from; needs no GPU.

    python benchmarks/choose_kernels.py RECORD [RECORD ...] [--count 68] [--kept 0.5]

The records are those of ``benchmarks/choices.py``: a tiling that was timed on few products can't be
judged, and is left out. To the present tilings are added, one by one, those that lower the loss
most; then those are dropped that lower it least, until there are so many as wanted.

The loss of the records' products is the time of what the model chooses from the table, and not of
the best in it: a tiling that the model would take where it is slow does harm. It is the measured
time, or the model's, corrected for the product, where that tiling was not timed. Beside them,
random products of all layouts, a part of them with weights as language models have them, are timed
by the model alone. Prints what :data:`tilewise.gemm.families.hopper.tilings.KERNELS` may become,
and the loss before and after; with --kept, also that of products that had no part in the choice.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fit_hopper import ways_of

from tilewise.explain import LAYOUTS, of_shape
from tilewise.gemm.chip import H200
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.costs import COSTS
from tilewise.gemm.families.hopper.model import seconds
from tilewise.gemm.families.hopper.table import Table
from tilewise.gemm.families.hopper.tiling import Problem, Tiling
from tilewise.gemm.families.hopper.tilings import KERNELS

Sizes = tuple[int, int, int, int, int, bool, bool]
MODELS = 0.4  # of the products have weights as models have them: n and k are multiples of 512
FEW = 0.5  # of those have few rows, as requests that are answered together have
# Rows and columns of language models' weights: of half of the products with few rows.
WIDTHS = (
    1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    18944, 20480, 28672, 57344,
)  # fmt: skip
FEW_ROWS = 16, 256
FEWEST, SUITES = 5, 2  # tilings that are timed of a record's product, and of those of the suites
TIMES = 8  # products of the records that a tiling is timed on
BEYOND = 4  # tilings that are added before as many are dropped
WEIGHTS = 4.0  # what products with language models' weights count beside others of the records
DRAWN = 1.0  # what the random products' loss counts beside that of the records' products
ALWAYS = (64, 64, 1, 1, 1, False, False)  # it can compute every aligned product
CAUTION = 1.03  # the factor on the model's time of a tiling that was not timed

Array = npt.NDArray[Any]


def timed(rows: Iterable[Mapping[str, Any]]) -> list[Sizes]:
    """Return the sizes of the present tilings, and of those that were timed on enough products."""
    of_rows = [{sizes_of(way) for way, _ in ways_of(row["ways"])} for row in rows]
    count = Counter(sizes for each in of_rows for sizes in each)
    return sorted({*KERNELS, *(sizes for sizes, times in count.items() if times >= TIMES)})


def tiling(sizes: Sizes, swapped: bool = False) -> Tiling:
    """Return the tiling of a row of the table."""
    return Tiling(*sizes[:6], swapped, ping_pong=sizes[6])


def products(count: int, seed: int) -> list[Problem]:
    """Return random products."""
    drawn = random.Random(seed)

    def size(low: int, high: int) -> int:
        return max(8, round(between(low, high) / 8) * 8)

    def between(low: int, high: int) -> float:
        return math.exp(drawn.uniform(math.log(low), math.log(high)))

    found = []
    for _ in range(count):
        if drawn.random() < MODELS:
            is_few = drawn.random() < FEW
            m = round(between(*(FEW_ROWS if is_few else (1, 8192))))
            if is_few and drawn.random() < 0.5:
                n, k = (drawn.choice(WIDTHS) for _ in range(2))
            else:
                n, k = (round(between(1024, 32768) / 512) * 512 for _ in range(2))
            layout = drawn.choice(("NN", "NT", "NT"))
        else:
            m, n, k = (size(64, 12288) for _ in range(3))
            layout = drawn.choice(LAYOUTS)
        found.append(hopper.problem(of_shape(m, n, k, "bfloat16", layout)))
    return found


def expected(tables: Sequence[Table], columns: Array, problem: Problem) -> Array:
    """Return the seconds that each tiling should take, not swapped and swapped; one row each."""
    times = []
    for view, table in zip((problem, problem.swapped), tables, strict=True):
        time = seconds(table, [view], COSTS)
        # TMA loads an MN-major B in boxes of 64 columns.
        times.append(np.where(view.b_k_major | (columns % 64 == 0), time, np.inf))
    return np.array(times)


def measured(
    rows: Iterable[Mapping[str, Any]],
    every: Sequence[Sizes],
    tables: Sequence[Table],
    columns: Array,
) -> Iterator[tuple[Array, Array, float]]:
    """Yield, of each product, each tiling's seconds by the model, and as measured, and its weight.

    Of a tiling and the swapped one they are those of the one that the model prefers.
    """
    places = {sizes: index for index, sizes in enumerate(every)}
    for row in rows:
        problem = hopper.problem(of_shape(row["m"], row["n"], row["k"], "bfloat16", row["layout"]))
        model = expected(tables, columns, problem)
        ways = [
            (int(way.swapped), places[sizes], time * 1e-6)
            for way, time in ways_of(row["ways"])
            if (sizes := sizes_of(way)) in places
        ]
        ways = [x for x in ways if model[x[0], x[1]] < np.inf]
        if len(ways) < (SUITES if len(row["ways"]) == SUITES else FEWEST):
            continue
        swapped, index, values = (np.array(x) for x in zip(*ways, strict=True))
        # The others have the model's times, corrected by how far it is off for this product.
        times = model * (np.median(values / model[swapped, index]) * CAUTION)
        times[swapped, index] = values
        better = model.argmin(0), np.arange(len(every))
        is_weight = row["n"] in WIDTHS and row["k"] in WIDTHS
        yield model[better], times[better], WEIGHTS if is_weight else 1.0


class Products:
    """What a table loses.

    Parameters
    ----------
    model, times : array
        Seconds of each product by each tiling, by the model, and as measured.
    weight : array
        What each product counts.
    drawn : array
        Those of the random products by the model.
    """

    def __init__(self, model: Array, times: Array, weight: Array, drawn: Array) -> None:
        self.model, self.weight = model, weight / weight.sum()
        self.times = np.log(times / times.min(1, keepdims=True))
        self.drawn = np.log(drawn / drawn.min(1, keepdims=True))

    def loss(self, chosen: Sequence[int]) -> float:
        """Return the loss of a table: the mean logarithm of the slowdown."""
        return self.recorded(chosen) + DRAWN * float(self.drawn[:, chosen].min(1).mean())

    def recorded(self, chosen: Sequence[int]) -> float:
        """Return that of the records' products alone."""
        place = np.array(chosen)[self.model[:, chosen].argmin(1)]
        return float(self.times[np.arange(len(place)), place] @ self.weight)


def choose(products: Products, present: Sequence[int], always: int, count: int) -> list[int]:
    """Return the places of the tilings that a table should have."""
    chosen, every = list(present), range(products.model.shape[1])
    while len(chosen) < count + BEYOND:
        others = [x for x in every if x not in chosen]
        chosen.append(min(others, key=lambda x: products.loss([*chosen, x])))
    while len(chosen) > count:
        some = [x for x in chosen if x != always]
        chosen.remove(min(some, key=lambda x: products.loss([y for y in chosen if y != x])))
    return chosen


def sizes_of(way: Tiling) -> Sizes:
    """Return a tiling's row of the table."""
    return (
        way.block_m, way.block_n, way.cluster_m, way.cluster_n, way.split, way.stream_k,
        way.ping_pong,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Choose, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=68)
    parser.add_argument("--kept", type=float, default=0.0, help="share of the records' products")
    parser.add_argument("--products", type=int, default=600)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args(arguments)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in options.records]
    rows = [row for record in records for row in record["rows"]]
    every = timed(rows)
    tables = [
        Table([tiling(sizes, swapped) for sizes in every], [0] * len(every), 132)
        for swapped in (False, True)
    ]
    columns = np.array([sizes[1] for sizes in every])
    of_model = products(options.products, options.seed)
    drawn = np.array([expected(tables, columns, x).min(0) for x in of_model])
    model, times, weight = (
        np.array(x) for x in zip(*measured(rows, every, tables, columns), strict=True)
    )
    is_kept = np.random.default_rng(options.seed).random(len(model)) < options.kept
    seen = Products(model[~is_kept], times[~is_kept], weight[~is_kept], drawn)
    present = [every.index(sizes) for sizes in KERNELS]
    chosen = choose(seen, present, every.index(ALWAYS), options.count)
    for index in sorted(chosen):
        print(f"    {every[index]},")
    print(f"{len(chosen)} of {len(every)} tilings, {H200.name}, the loss before and after:")
    shown = {f"{len(seen.model)} products": seen}
    if is_kept.any():
        kept = Products(model[is_kept], times[is_kept], weight[is_kept], drawn)
        shown[f"{is_kept.sum()} kept apart"] = kept
    for name, those in shown.items():
        print(f"{name}: {those.recorded(present):.4f}, {those.recorded(chosen):.4f}")


if __name__ == "__main__":
    main()
