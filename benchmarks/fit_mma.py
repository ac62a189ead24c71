"""Fit the model of the ``mma.sync`` kernel to measured times; no GPU is needed.

    python benchmarks/fit_mma.py [--check] RECORD [RECORD ...]

A record is what ``benchmarks/choices.py`` writes with ``--family mma --capability 80``: of products
whose sizes are multiples of 8, and of others, whose matrices are not aligned. It prints the error
of the present model, that of a cross-validation, in which each of ``--folds`` parts of the products
is predicted by constants fitted to the others, and the constants that fit best
(``tilewise.gemm.families.mma.model``). The regret is the time of the way that the planner chooses,
as a multiple of the fastest measured way's: by the present model, and by the fitted one in the
cross-validation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

import numpy as np
from command_line import add_fit, parser_of
from gauss_newton import Floats, least_squares

from tilewise.explanation import of_shape
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.mma import kernel
from tilewise.gemm.families.mma.family import Mma
from tilewise.gemm.families.mma.model import COSTS, SHARES, Costs, Table, priced
from tilewise.gemm.product import Product

SPRING = 0.1  # how strongly a constant is held at its present value, if no time depends on it
STIFF = 1e6  # the same of one that is to stay
LARGE_ERROR = 0.2  # larger errors count less


class Measured(NamedTuple):
    """A product, and the seconds that ways to compute it took.

    Attributes
    ----------
    product : Product
    chip : Chip
        The GPU that they were timed on.
    seconds : mapping of (str, int, str, str) to float
        By tiles, parts, and how A and B are read.
    """

    product: Product
    chip: Chip
    seconds: dict[tuple[str, int, str, str], float]


class Constants(NamedTuple):
    """What is fitted: the model's constants."""

    costs: Costs
    shares: dict[str, tuple[float, float]]

    @property
    def numbers(self) -> Floats:
        """The logarithms of all of them."""
        return np.log([*self.costs, *(x for pair in self.shares.values() for x in pair)])

    @staticmethod
    def of(numbers: Floats) -> Constants:
        """Return the constants with these logarithms."""
        each = [float(x) for x in np.exp(numbers)]
        costs, pairs = each[: len(COSTS)], each[len(COSTS) :]
        return Constants(
            Costs(*costs), {x: (pairs[2 * i], pairs[2 * i + 1]) for i, x in enumerate(SHARES)}
        )


PRESENT = Constants(COSTS, SHARES)


def read(record: dict[str, Any]) -> list[Measured]:
    """Return a record's products."""
    chip, dtype = Chip(**record["chip"]), record["dtype"]
    found = []
    for row in record["rows"]:
        product = of_shape(row["m"], row["n"], row["k"], dtype, row["layout"])
        names = "BA" if kernel.is_swapped(product) else "AB"
        seconds = {}
        for way in row["ways"]:
            if way["family"] == Mma.name:
                choice = way["choice"]
                read = (_read_as(choice, name) for name in names)
                seconds[choice["tiles"], choice["parts"], *read] = 1e-6 * way["us"]
        each = Measured(product, chip, {})
        known = predicted(Measured(product, chip, seconds), PRESENT)
        each.seconds.update((way, seconds[way]) for way in known)
        found.append(each)
    return found


def _read_as(choice: Mapping[str, Any], name: str) -> str:
    """Return how A or B is read by an offer's choices."""
    if name in choice["packed"]:
        return kernel.PACKED
    return kernel.REALIGNED if name in choice["realigned"] else kernel.COPIED


def predicted(each: Measured, constants: Constants) -> dict[tuple[str, int, str, str], float]:
    """Return the seconds that a product's measured ways should take."""
    found = priced(each.product, each.chip, Table(each.chip, *constants))
    times: dict[tuple[str, int, str, str], float] = {}
    for at in found.ranked():
        way, seconds, _ = found.way(at)
        parts = kernel.parts_of(each.product, way)
        times.setdefault((str(way.tiles), parts, way.a, way.b), seconds)
    return {way: times[way] for way in each.seconds if way in times}


def errors_of(every: Sequence[Measured], constants: Constants) -> Floats:
    """Return the logarithms of predicted by measured times, of all ways of all products."""
    found: list[float] = []
    for each in every:
        times = predicted(each, constants)
        found += (math.log(times[way] / each.seconds[way]) for way in each.seconds)
    return np.array(found)


def fit(
    every: Sequence[Measured], constants: Constants = PRESENT, only: Sequence[str] = ()
) -> Constants:
    """Return the constants that fit best; the search begins at ``constants``.

    Those that ``only`` names are fitted, and the others stay; by default all are fitted.
    """
    begin = constants.numbers
    springs = np.full(len(begin), SPRING)
    if only:
        names = [*Costs._fields, *(tiles for tiles in SHARES for _ in range(2))]
        springs[[i for i, name in enumerate(names) if name not in only]] = STIFF
    # Those that may be chosen count most: by how near they are to the fastest.
    weights = np.array([
        (min(each.seconds.values()) / seconds) ** 1.5
        for each in every
        for seconds in each.seconds.values()
    ])  # fmt: skip
    found = least_squares(
        lambda at: errors_of(every, Constants.of(at)), begin, begin,
        springs, weights, LARGE_ERROR,
    )  # fmt: skip
    return Constants.of(found)


def regrets(every: Sequence[Measured], constants: Constants) -> list[float]:
    """Return how many times slower than the fastest way the one that is planned is."""
    found = []
    for each in every:
        times = predicted(each, constants)
        chosen = min(times, key=times.__getitem__)
        found.append(each.seconds[chosen] / min(each.seconds.values()))
    return found


def told(errors: Floats) -> str:
    """Return the mean and the largest factor between predicted and measured times in words."""
    off = np.exp(np.abs(errors))
    return f"off by a factor of {geometric_mean(off):.3f} in the mean, {off.max():.2f} at worst"


def main() -> None:
    """Fit the constants, and print them with their errors."""
    parser = parser_of(__doc__)
    add_fit(parser, folds=3)
    parser.add_argument(
        "--only", nargs="+", choices=[*Costs._fields, *SHARES], default=[],
        help="fit these costs, and the shares of these tiles, alone",
    )  # fmt: skip
    options = parser.parse_args()
    every = [
        each
        for path in options.records
        for each in read(json.loads(path.read_text(encoding="utf-8")))
    ]
    now = regrets(every, PRESENT)
    print(f"{len(every)} products, the present model: {told(errors_of(every, PRESENT))}")
    print(f"regret {geometric_mean(now):.4f} in the mean, {max(now):.3f} at worst")
    if options.check:
        return
    errors, later = [], []
    for fold in range(options.folds):
        fitted = fit(
            [x for i, x in enumerate(every) if i % options.folds != fold], only=options.only
        )
        errors.append(errors_of(every[fold :: options.folds], fitted))
        later += regrets(every[fold :: options.folds], fitted)
    print(f"cross-validated: {told(np.concatenate(errors))}")
    print(f"regret {geometric_mean(later):.4f} in the mean, {max(later):.3f} at worst")
    fitted = fit(every, only=options.only)
    print(f"fitted: {told(errors_of(every, fitted))}")
    print({name: float(f"{x:.3g}") for name, x in fitted.costs._asdict().items()})
    print({name: tuple(float(f"{x:.3g}") for x in pair) for name, pair in fitted.shares.items()})


if __name__ == "__main__":
    main()
