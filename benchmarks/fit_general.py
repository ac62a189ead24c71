"""Fit the model of the general kernel to measured times; no GPU is needed.

    python benchmarks/fit_general.py [--check] RECORD [RECORD ...]

A record is what ``benchmarks/choices.py`` writes for one dtype; only its times of the general
family are used. That script's options ``--family general --k 16 64 256 1024 4096`` time no other
family, and products in which each constant (``tilewise.gemm.families.general.COSTS``) has a visible
share. Three errors are printed: that of the present model, that of the constants that fit best, and
that of a cross-validation, in which each of ``--folds`` parts of the times is predicted by
constants fitted to the others. With ``--check`` nothing is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np
from command_line import add_fit, parser_of
from gauss_newton import Floats, least_squares

from tilewise.explanation import of_shape
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.general import COSTS, Costs, General, seconds
from tilewise.gemm.product import Product

SPRING = 0.05  # how strongly a constant is held at its present value, if no time depends on it
LARGE_ERROR = 0.3  # larger errors count less


@dataclass(frozen=True)
class Point:
    """A product that the general kernel was timed with.

    Attributes
    ----------
    product : Product
    chip : Chip
        The GPU that it was timed on.
    measured : float
        Seconds.
    """

    product: Product
    chip: Chip
    measured: float

    def error(self, costs: Costs) -> float:
        """Return the logarithm of the ratio of the predicted time to the measured one."""
        return float(np.log(seconds(self.product, self.chip, costs) / self.measured))


def points(record: dict[str, Any]) -> list[Point]:
    """Return a record's times of the general kernel.

    Raises
    ------
    ValueError
        If it has none.
    """
    chip, dtype = Chip(**record["chip"]), record["dtype"]
    found = [
        Point(of_shape(row["m"], row["n"], row["k"], dtype, row["layout"]), chip, 1e-6 * way["us"])
        for row in record["rows"]
        for way in row["ways"]
        if way["family"] == General.name
    ]
    if not found:
        raise ValueError(
            "the record has no time of the general kernel; make it with --family general"
        )
    return found


def fit(every: Sequence[Point], costs: Costs) -> Costs:
    """Return the constants that fit best; the search begins at ``costs``."""
    begin = np.log(costs)

    def errors(at: Floats) -> Floats:
        return np.array([point.error(Costs(*np.exp(at))) for point in every])

    found = least_squares(
        errors, begin, begin, np.full(len(costs), SPRING), np.ones(len(every)), LARGE_ERROR
    )
    return Costs(*(float(x) for x in np.exp(found)))


def foretold(every: Sequence[Point], costs: Costs, folds: int) -> list[float]:
    """Return the error of each point by constants that were fitted to the other folds."""
    found: list[float] = []
    for fold in range(folds):
        fitted = fit([x for i, x in enumerate(every) if i % folds != fold], costs)
        found += (point.error(fitted) for point in every[fold::folds])
    return found


def told(words: str, errors: Sequence[float]) -> str:
    """Return a line with the mean and the largest factor between predicted and measured times."""
    off = [float(np.exp(abs(error))) for error in errors]
    mean, worst = geometric_mean(off), max(off)
    return f"{words}: off by a factor of {mean:.3f} in the mean, {worst:.2f} at worst"


def main() -> None:
    """Fit the constants, and print them with their errors."""
    parser = parser_of(__doc__)
    add_fit(parser, folds=4)
    options = parser.parse_args()
    for path in options.records:
        record = json.loads(path.read_text(encoding="utf-8"))
        every, costs = points(record), COSTS[record["dtype"]]
        name = f"{record['dtype']}, {len(every)} products"
        print(told(f"{name}, the present model", [x.error(costs) for x in every]))
        if options.check:
            continue
        print(told(f"{name}, cross-validated", foretold(every, costs, options.folds)))
        fitted = fit(every, costs)
        print(told(f"{name}, fitted", [x.error(fitted) for x in every]))
        print({key: float(f"{value:.3g}") for key, value in fitted._asdict().items()})


if __name__ == "__main__":
    main()
