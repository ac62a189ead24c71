"""Fits the costs of the Hopper kernel's model to measured tilings; needs no GPU.

    python benchmarks/hopper_tilings.py --json FILE
    python benchmarks/fit_costs.py FILE [FILE ...] [--only NAME ...] [--keep K] [--trials N]

Each cost is varied in turn, and what lowers the loss is kept. The loss is the sum of squared
logarithms of expected by measured time, over tilings that take at most 2.5 times as long as their
product's fastest; of the logarithms of each product's regret, the time of the tiling that would be
chosen by that of the fastest; and, --keep times, of squared logarithms of each cost by what it was,
so that what the measurements say nothing of stays as it is. Prints the costs, and for each product
the tiling that would be chosen, beside the fastest.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich.progress import track

from tilewise.gemm.families.hopper.costs import COSTS, Costs, seconds
from tilewise.gemm.families.hopper.tilings import Problem, Tiling

SLOWEST = 2.5  # by the fastest, that counts
WORST = 0.5  # logarithm of expected by measured time, beyond which all errors are alike


@dataclass(frozen=True)
class Point:
    """One tiling of one product.

    Attributes
    ----------
    name : str
        The product's.
    tiling : Tiling
    problem : Problem
    multiprocessors : int
    around : float
        Seconds of what is done besides the kernel, by the model.
    measured : float
        Seconds of all.
    """

    name: str
    tiling: Tiling
    problem: Problem
    multiprocessors: int
    around: float
    measured: float

    def expected(self, costs: Costs) -> float:
        """Seconds of all, by the model with these costs."""
        return self.around + seconds(self.tiling, self.problem, self.multiprocessors, costs)


def points(record: dict[str, Any]) -> list[Point]:
    """Those of a file that benchmarks/hopper_tilings.py wrote."""
    return [
        Point(
            f"{row['name']} {row['layout']}",
            Tiling(**each["tiling"]),
            Problem(**each["problem"]),
            record["multiprocessors"],
            each["around"],
            each["seconds"],
        )
        for row in record["rows"]
        for each in row["tilings"]
        if each["seconds"] <= SLOWEST * row["tilings"][0]["seconds"]
    ]


def loss(costs: Costs, measured: Sequence[Point], names: Sequence[str], keep: float) -> float:
    """What is to be small: how far the model and its choices are off, and costs have moved."""
    squares = 0.0
    chosen: dict[str, tuple[float, float]] = {}  # of each product: expected and measured
    fastest: dict[str, float] = {}
    for x in measured:
        expected = x.expected(costs)
        squares += min(abs(math.log(expected / x.measured)), WORST) ** 2
        if x.name not in chosen or expected < chosen[x.name][0]:
            chosen[x.name] = expected, x.measured
        fastest[x.name] = min(x.measured, fastest.get(x.name, math.inf))
    regrets = sum(math.log(time / fastest[name]) for name, (_, time) in chosen.items())
    moved = (math.log(getattr(costs, name) / getattr(COSTS, name)) for name in names)
    return squares + regrets + keep * sum(x * x for x in moved)


def fit(measured: Sequence[Point], names: Sequence[str], keep: float, trials: int) -> Costs:
    """The costs with the smallest loss of so many; the same each time."""
    generator = random.Random(0)
    steps = dict.fromkeys(names, 0.2)
    best, least = COSTS, loss(COSTS, measured, names, keep)
    for _ in track(range(trials), "fitting", transient=True):
        name = generator.choice(names)
        factor = math.exp(generator.gauss(0, steps[name]))
        costs = replace(best, **{name: getattr(best, name) * factor})
        found = loss(costs, measured, names, keep)
        if found < least:
            best, least = costs, found
            steps[name] = min(0.5, 1.5 * steps[name])
        else:
            steps[name] = max(0.01, 0.9 * steps[name])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    every = [field.name for field in fields(Costs)]
    parser.add_argument("--only", nargs="+", choices=every, default=every, metavar="NAME")
    parser.add_argument("--keep", type=float, default=0.2, metavar="K")
    parser.add_argument("--trials", type=int, default=3000, metavar="N")
    options = parser.parse_args()
    measured = [x for file in options.files for x in points(json.loads(file.read_text()))]
    costs = fit(measured, options.only, options.keep, options.trials)
    for name in options.only:
        print(f"{name:12s} {getattr(costs, name):10.3g}  was {getattr(COSTS, name):.3g}")
    regrets = []
    for product in dict.fromkeys(x.name for x in measured):
        of_product = [x for x in measured if x.name == product]
        chosen = min(of_product, key=lambda x: x.expected(costs))
        fastest = min(of_product, key=lambda x: x.measured)
        regrets.append(chosen.measured / fastest.measured)
        print(
            f"{product:36s} {chosen.measured * 1e6:9.1f} µs, expected "
            f"{chosen.expected(costs) * 1e6:9.1f}, best {fastest.measured * 1e6:9.1f}  "
            f"{regrets[-1]:.3f}  {chosen.tiling}"
        )
    mean = geometric_mean(regrets)
    print(f"{len(measured)} tilings, regret: mean {mean:.3f}, worst {max(regrets):.3f}")


if __name__ == "__main__":
    main()
