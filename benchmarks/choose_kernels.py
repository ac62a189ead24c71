"""Chooses the Hopper kernels that the planner chooses from; needs no GPU.

    python benchmarks/choose_kernels.py [RECORD ...] [--count 60] [--more] [--timed]

Tilings are added one by one, each the one that lowers the loss most, in the mean and at the worst.
The products are random, of all layouts, a part of them with weights as language models have them,
and those of the records (``benchmarks/choices.py``). The times are the records' where a tiling was
timed, and the model's elsewhere. Prints what
:data:`tilewise.gemm.families.hopper.tilings.KERNELS` may become, and what it loses beside all
tilings.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
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
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
MODELS = 0.4  # of the products have weights as models have them: n and k are multiples of 512
FEW = 0.5  # of those have few rows, as requests that are answered together have
# Rows and columns of language models' weights: of half of the products with few rows.
WIDTHS = (
    1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    18944, 20480, 28672,
)  # fmt: skip
FEW_ROWS = 16, 256
SHARE, WORST = 0.97, 0.5  # the loss that is exceeded by 3% of the products counts half
FEWEST = 10  # tilings of a record's product that have to be timed for it to count
CAUTION = 1.03  # the factor on the model's time of a tiling that was not timed

Array = npt.NDArray[Any]


def universe() -> list[Sizes]:
    """Return the sizes of every tiling that the kernel can take."""
    found = []
    for block_m in (64, 128, 192, 256):
        for block_n in range(16, 257, 16):
            for clusters in CLUSTERS:
                for split, stream_k in ((1, False), (1, True), (2, False), (4, False)):
                    for ping_pong in (False, True):
                        sizes = (block_m, block_n, *clusters, split, stream_k, ping_pong)
                        if not tiling(sizes).objection(Problem(1 << 20, 1 << 20, 1 << 20)):
                            found.append(sizes)
    return found


def timed(records: Sequence[Path]) -> list[Sizes]:
    """Return the sizes of every tiling that was timed."""
    rows = [row for path in records for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    return sorted({sizes_of(way) for row in rows for way, _ in ways_of(row["ways"])})


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
    records: Sequence[Path], every: Sequence[Sizes], tables: Sequence[Table], columns: Array
) -> Iterator[Array]:
    """Yield :func:`expected` of each product of the records, with the times that were measured."""
    places = {sizes: index for index, sizes in enumerate(every)}
    for path in records:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            problem = hopper.problem(
                of_shape(row["m"], row["n"], row["k"], "bfloat16", row["layout"])
            )
            times = expected(tables, columns, problem)
            timed = [
                (int(way.swapped), places[sizes], time * 1e-6)
                for way, time in ways_of(row["ways"])
                if (sizes := sizes_of(way)) in places
            ]
            timed = [x for x in timed if times[x[0], x[1]] < np.inf]
            if len(timed) < FEWEST:
                continue
            swapped, index, values = (np.array(x) for x in zip(*timed, strict=True))
            # The others have the model's times, corrected by how far it is off for this product.
            times *= np.median(values / times[swapped, index]) * CAUTION
            times[swapped, index] = values
            yield times


def sizes_of(way: Tiling) -> Sizes:
    """Return a tiling's row of the table."""
    return (
        way.block_m, way.block_n, way.cluster_m, way.cluster_n, way.split, way.stream_k,
        way.ping_pong,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Choose, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--more", action="store_true", help="keep the present ones, and add others")
    parser.add_argument("--timed", action="store_true", help="only those of the records")
    parser.add_argument("--products", type=int, default=600)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args(arguments)
    every = timed(options.records) if options.timed else universe()
    tables = [
        Table([tiling(sizes, swapped) for sizes in every], [0] * len(every), 132)
        for swapped in (False, True)
    ]
    columns = np.array([sizes[1] for sizes in every])
    times = [expected(tables, columns, x) for x in products(options.products, options.seed)]
    times += measured(options.records, every, tables, columns)
    cost = np.log(np.array(times).min(1))
    least = cost.min(1)
    present = set(KERNELS) if options.more else set()
    chosen = [index for index, sizes in enumerate(every) if sizes in present]
    current = np.minimum(least + 10, cost[:, chosen].min(1, initial=np.inf))
    while len(chosen) < options.count:
        loss = np.minimum(current[:, None], cost) - least[:, None]
        score = np.minimum(loss, 3).mean(0) + WORST * np.quantile(loss, SHARE, axis=0)
        chosen.append(int(score.argmin()))
        current = np.minimum(current, cost[:, chosen[-1]])
    for index in sorted(chosen):
        print(f"    {every[index]},")
    loss = current - least
    print(
        f"{len(chosen)} of {len(every)} tilings, {H200.name}, {len(loss)} products: "
        f"{loss.mean():.4f} slower in the mean, {np.quantile(loss, SHARE):.3f} of 3%, "
        f"{loss.max():.3f} at the worst"
    )


if __name__ == "__main__":
    main()
