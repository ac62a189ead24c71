"""Fit the model of tiles for float32 and float64 to measured times; no GPU is needed.

    python benchmarks/fit_simt.py [--check] [--folds 4] [FILE]

The record has products of the suites and random ones, the times on an H200 of ways to compute each
by tiles, and the time of the vendor's library. The constants of the model
(``tilewise.gemm.families.simt.costs``: ``COSTS`` and ``FACTORS``) are varied together by
Gauss-Newton steps, which lessen the squares of the logarithms of expected by measured times. The
ways that are nearly the fastest of their product weigh most, and a weak spring holds each constant
near its present value. With ``--folds``, each share of the random products is predicted by
constants fitted to the others. The regret (a choice's time as a multiple of the fastest way's) and
the constants are printed. With ``--check`` nothing is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from command_line import parser_of
from gauss_newton import Floats, least_squares

from tilewise.bench.record import product_of
from tilewise.bench.suites import COLUMNS, ROWS, SUITES, Shape
from tilewise.gemm.chip import H200
from tilewise.gemm.families.simt import kernel
from tilewise.gemm.families.simt.costs import COSTS, FACTORS, Costs
from tilewise.gemm.families.simt.matrices import traits_of
from tilewise.gemm.families.simt.table import PARTS, Table, Way
from tilewise.gemm.families.simt.tiles import tiles_for
from tilewise.gemm.families.simt.ways import every_way
from tilewise.gemm.product import ALIGNMENT, Product
from tilewise.places import ITEM_SIZES

RECORD = Path(__file__).parent / "results" / "simt_h200.json"
SWEEP = "sweep"  # random products, among the suites
NEAR, LEAST, SLOWEST = 0.25, 0.02, 2.0  # of a way's weight, by its time by the fastest's
OF_SUITES, OF_THIN = 0.5, 0.05  # weights beside those of random products
SPRING, FACTOR_SPRING = 0.2, 2.0
LARGE_ERROR = 0.15

Factors = dict[str, float]


@dataclass(frozen=True)
class Point:
    """A product that was timed.

    Attributes
    ----------
    suite, name : str
    product : Product
        As the kernel computes it.
    vendor, best : float
        Seconds, by the vendor's library and by the best of all tiles that were timed once.
    before : float or None
        Of what was planned when it was timed.
    rows, columns : sequence of int
        Of the ways that were timed, their places in the table of the model.
    measured : array
        Seconds of each.
    """

    suite: str
    name: str
    product: Product
    vendor: float
    best: float
    before: float | None
    rows: Sequence[int]
    columns: Sequence[int]
    measured: Floats

    @property
    def traits(self) -> tuple[int, int]:
        """What of A and B decides which ways there are."""
        return traits(self.product)

    def expected(self, table: Table) -> Floats:
        """Return the seconds of each way, by the model."""
        x, item = self.product, ITEM_SIZES[self.product.dtype]
        is_unaligned = bool(x.d.offset or x.d.row_stride * item % ALIGNMENT)
        found = table.seconds(
            x.m, x.n, x.k, x.batch, counts=max(self.columns) + 1, is_unaligned=is_unaligned,
            shares=(x.a.batch_stride == 0, x.b.batch_stride == 0),
        )  # fmt: skip
        return found[list(self.rows), list(self.columns)]


def traits(product: Product) -> tuple[int, int]:
    """Return the traits of A, and of B transposed."""
    x, item = product, ITEM_SIZES[product.dtype]
    of_a = traits_of(x.a, x.m, x.k, x.batch, item)
    return of_a, traits_of(x.b.transposed, x.n, x.k, x.batch, item)


def points(record: dict[str, Any], dtype: str) -> list[Point]:
    """Return what a record has for a dtype, of ways that the planner still knows."""
    found = []
    for suite, name, vendor, best, before, ways in record[dtype]["rows"]:
        product = kernel.swapped(product_of(shape_of(name), dtype))
        places = _places(dtype, *traits(product))
        rows, columns, measured = [], [], []
        for way in ways.split("; "):
            number, copies, parts, microseconds = way.split()
            key = record[dtype]["tiles"][int(number)], int(copies[0]), int(copies[1])
            if key in places:
                rows.append(places[key])
                columns.append(int(np.searchsorted(PARTS, int(parts))))
                measured.append(1e-6 * float(microseconds))
        if rows:
            seconds = 1e-6 * vendor, 1e-6 * best, before and 1e-6 * before
            found.append(Point(suite, name, product, *seconds, rows, columns, np.array(measured)))
    return found


@cache
def _named() -> dict[str, Shape]:
    return {f"{x.name} {x.layout}": x for shapes in SUITES.values() for x in shapes}


def shape_of(name: str) -> Shape:
    """Return a product by its name, of a suite or as ``776x2029x2127 NT``."""
    if name in _named():
        return _named()[name]
    size, layout = name.split()
    m, n, k = map(int, size.split("x"))
    return Shape(m, n, k, *(COLUMNS if letter == "T" else ROWS for letter in layout))


@cache
def _places(dtype: str, of_a: int, of_b: int) -> dict[tuple[str, int, int], int]:
    ways = _ways(dtype, of_a, of_b)
    return {(str(way.tiles), way.copy_a, way.copy_b): i for i, way in enumerate(ways)}


@cache
def _ways(dtype: str, of_a: int, of_b: int) -> list[Way]:
    return every_way(dtype, H200, of_a, of_b)


def expected(every: Sequence[Point], dtype: str, costs: Costs, factors: Factors) -> list[Floats]:
    """Return the seconds of each point's ways, by the model with those constants."""
    tables: dict[tuple[int, int], Table] = {}
    found = []
    for point in every:
        if point.traits not in tables:
            tables[point.traits] = Table(dtype, H200, _ways(dtype, *point.traits), costs, factors)
        found.append(point.expected(tables[point.traits]))
    return found


def fit(
    every: Sequence[Point], dtype: str, costs: Costs, factors: Factors
) -> tuple[Costs, Factors]:
    """Return the constants that fit best."""
    names, tiles = list(asdict(costs)), sorted({str(x) for x in tiles_for(dtype, H200)})
    begin = np.log([*asdict(costs).values(), *(factors.get(x, 1.0) for x in tiles)])
    springs = np.array([SPRING] * len(names) + [FACTOR_SPRING] * len(tiles))
    rest = begin.copy()
    rest[len(names) :] = 0.0
    weights = np.sqrt(np.concatenate([_weights(point) for point in every]))
    measured = np.log(np.concatenate([point.measured for point in every]))

    def constants(at: Floats) -> tuple[Costs, Factors]:
        values = [float(x) for x in np.exp(at)]
        return Costs(*values[: len(names)]), dict(zip(tiles, values[len(names) :], strict=True))

    def errors(at: Floats) -> Floats:
        found: Floats = np.log(np.concatenate(expected(every, dtype, *constants(at)))) - measured
        return found

    return constants(least_squares(errors, begin, rest, springs, weights, LARGE_ERROR))


def _weights(point: Point) -> Floats:
    slower = point.measured / point.best
    found = np.maximum(LEAST, np.exp(-(slower - 1) / NEAR))
    found[slower > SLOWEST] = LEAST
    if min(point.product.m, point.product.n) <= 8:  # the thin kernel's
        found *= OF_THIN
    return found * (1.0 if point.suite == SWEEP else OF_SUITES)


def choose(every: Sequence[Point], times: Sequence[Floats]) -> list[tuple[float, float, str]]:
    """Return each choice's regret, the vendor's time by its time, and the product's name.

    Of those that are not the thin kernel's.
    """
    found = []
    for point, seconds in zip(every, times, strict=True):
        if min(point.product.m, point.product.n) > 8:
            chosen = float(point.measured[int(seconds.argmin())])
            found.append((chosen / point.best, point.vendor / chosen, point.name))
    return found


def show(words: str, chosen: Sequence[tuple[float, float, str]]) -> float:
    """Print the mean and the worst of choices; return the mean regret."""
    regrets, speeds = [x for x, *_ in chosen], [x for _, x, _ in chosen]
    regret = geometric_mean(regrets)
    print(
        f"{words}: {len(chosen)} products, regret {regret:.4f}, worst {max(regrets):.3f}; "
        f"{geometric_mean(speeds):.3f} of the vendor's speed, worst {min(speeds):.3f}"
    )
    return regret


def main() -> None:
    """Fit the constants of each dtype, and print them with the regrets."""
    parser = parser_of(__doc__)
    parser.add_argument("record", type=Path, nargs="?", default=RECORD)
    parser.add_argument("--check", action="store_true", help="fit nothing; print the regret")
    parser.add_argument("--folds", type=int, default=4, help="parts of the cross-validation")
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="print the N worst products"
    )
    options = parser.parse_args()
    record = json.loads(options.record.read_text(encoding="utf-8"))
    for dtype in COSTS:
        every = points(record, dtype)
        random = [x for x in every if x.suite == SWEEP]
        suites = [x for x in every if x.suite != SWEEP]
        before = [
            (x.before / x.best, x.vendor / x.before, x.name)
            for x in random
            if x.before and min(x.product.m, x.product.n) > 8
        ]
        show(f"{dtype}, random, as planned when they were timed", before)
        now = COSTS[dtype], FACTORS[dtype]
        for words, some in (("random", random), ("suites", suites)):
            chosen = choose(some, expected(some, dtype, *now))
            show(f"{dtype}, {words}, by the model of now", chosen)
            for regret, speed, name in sorted(chosen, reverse=True)[: options.worst]:
                print(f"    {name}: regret {regret:.3f}, {speed:.3f} of the vendor's speed")
        if options.check:
            continue
        foretold = []
        for fold in range(options.folds):
            others = [x for i, x in enumerate(random) if i % options.folds != fold]
            share = random[fold :: options.folds]
            fitted = fit([*others, *suites], dtype, *now)
            foretold += choose(share, expected(share, dtype, *fitted))
        if foretold:
            show(f"{dtype}, random, each foretold by the others", foretold)
        costs, factors = fit(every, dtype, *now)
        for words, some in (("random", random), ("suites", suites)):
            chosen = choose(some, expected(some, dtype, costs, factors))
            show(f"{dtype}, {words}, fitted", chosen)
        print({key: float(f"{value:.3g}") for key, value in asdict(costs).items()})
        print({key: round(value, 3) for key, value in factors.items()})


if __name__ == "__main__":
    main()
