"""Fit the model of the Hopper kernel to measured times of random products; no GPU is needed.

    python benchmarks/fit_hopper.py RECORD [RECORD ...] [--folds 4] [--evaluations 12] [--steps 30]

A record is what ``benchmarks/choices.py`` writes: random products, each timed by many tilings. The
products are divided into folds, and the model's choices for each fold are made by constants that
were fitted to the other folds. They are judged by their regret: the time of the tiling that the
model chooses, as a multiple of the fastest one's that was timed. Then the constants are fitted to
all products, and printed.

They are fitted twice. The first fit is to the times, by least squares: a tiling weighs the more,
the nearer it is to its product's fastest, and an error that all tilings of a product share weighs
little, because it changes no choice. The second fit, from there on, is to the choices: the loss is
the regret of tilings that are chosen with probabilities, which fall by a factor of e for each 2%
that a tiling is expected to take longer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from command_line import parser_of
from scipy.optimize import least_squares, minimize
from tiling_ways import recorded_times

from tilewise.explanation import of_shape
from tilewise.gemm.chip import KNOWN, Chip
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.costs import COSTS, Costs
from tilewise.gemm.families.hopper.model import seconds
from tilewise.gemm.families.hopper.table import Table
from tilewise.gemm.families.hopper.tiling import Problem, Tiling

SHARP, SHARED = 3.0, 0.5  # how fast weight falls with distance from the best; of shared errors
DOUBT = 0.02  # of a cost's logarithm: tilings that are expected to be so near may be taken
TAIL, MOST = 3.0, 0.5  # how much a regret's square counts beside it; the most that one counts
OF_TIMES, OF_START = 5.0, 0.002  # what errors of times and changes count in the fit to choices
ROBUST = 0.1  # errors beyond count by their size, not by their square
FIXED = (
    "rows", "columns", "realign", "realign_wait", "realign_latency", "issue", "operand",
)  # fmt: skip
FREEDOM = 1.3  # of a cost's logarithm, around what it was

Array = npt.NDArray[np.float64]


class Sample:
    """The times of some records as arrays; each record has a weight."""

    def __init__(
        self, records: Iterable[dict[str, Any]], counts: Iterable[float] | None = None
    ) -> None:
        self.products: list[dict[str, Any]] = []
        self.rows_of_records: list[slice] = []
        self._parts: list[tuple[Table, list[Problem], Chip]] = []
        of: list[int] = []
        microseconds: list[float] = []
        weights: list[float] = []
        for record, weight in zip(records, counts or repeat(1.0), strict=False):
            tilings: list[Tiling] = []
            views: list[int] = []
            problems: list[Problem] = []
            for row in record["rows"]:
                found = list(recorded_times(row["ways"]))
                if not found:
                    continue
                product = of_shape(row["m"], row["n"], row["k"], "bfloat16", row["layout"])
                problem = hopper.problem(product)
                for tiling, time in found:
                    tilings.append(tiling)
                    views.append(len(problems) + tiling.swapped)
                    of.append(len(self.products))
                    microseconds.append(time)
                problems += [problem, problem.swapped]
                self.products.append(row)
                weights.append(weight)
            begun = self.rows_of_records[-1].stop if self.rows_of_records else 0
            self.rows_of_records.append(slice(begun, len(self.products)))
            chip = chip_of(record)
            self._parts.append((Table(tilings, views, chip.multiprocessors), problems, chip))
        self.of, self.counts = np.array(of), np.array(weights)
        self.time = np.array(microseconds)
        self.best = np.full(len(self.products), np.inf)
        np.minimum.at(self.best, self.of, self.time)
        regret = np.minimum(np.log(self.time / self.best[self.of]), MOST)
        self.loss = regret + TAIL * regret**2
        near = np.exp(-SHARP * np.minimum(self.time / self.best[self.of] - 1, 1.5))
        self.weight = near * self.counts[self.of]

    def expected(self, costs: Costs) -> Array:
        """Return the times that the model expects, in microseconds, given costs for an H200."""
        found = [
            seconds(table, problems, costs.on(chip), only_worth=False)
            for table, problems, chip in self._parts
        ]
        result: Array = 1e6 * np.concatenate(found)
        return result

    def errors(self, costs: Costs) -> Array:
        """Return the logarithms of expected by measured, weighed."""
        error = np.log(self.expected(costs) / self.time)
        count = len(self.products)
        weighed = np.bincount(self.of, self.weight * error, count)
        shared = weighed / np.bincount(self.of, self.weight, count)
        result: Array = (error - (1 - SHARED) * shared[self.of]) * np.sqrt(self.weight)
        return result

    def doubted(self, costs: Costs) -> Array:
        """Return, of each product, the loss of the choice by expected times that are in doubt."""
        count = len(self.products)
        least = np.full(count, np.inf)
        logarithm = np.log(self.expected(costs))
        np.minimum.at(least, self.of, logarithm)
        share: Array = np.exp((least[self.of] - logarithm) / DOUBT)
        lost = np.bincount(self.of, share * self.loss, count)
        result: Array = lost / np.bincount(self.of, share, count)
        return result

    def regrets(self, costs: Costs) -> Array:
        """Return, of each product, the time of the model's choice by the best."""
        expected = self.expected(costs)
        found = np.ones(len(self.products))
        for index in range(len(self.products)):
            rows = np.flatnonzero(self.of == index)
            found[index] = self.time[rows[expected[rows].argmin()]] / self.best[index]
        return found


def chip_of(record: dict[str, Any]) -> Chip:
    """Return the GPU of a record."""
    return Chip(**record["chip"]) if "chip" in record else KNOWN[record["machine"]["gpu"]]


def vector(costs: Costs) -> Array:
    """Return the logarithms of the costs that are fitted."""
    values: list[float] = []
    for each in fields(Costs):
        if each.name not in FIXED:
            value = getattr(costs, each.name)
            values += value if isinstance(value, tuple) else [value]
    result: Array = np.log(np.array(values))
    return result


def costs_of(values: Array) -> Costs:
    """Return the costs of such a vector."""
    return _with([float(x) for x in np.exp(values)])


def _with(rest: list[float]) -> Costs:
    found: dict[str, Any] = {}
    for each in fields(Costs):
        if each.name not in FIXED:
            value = getattr(COSTS, each.name)
            size = len(value) if isinstance(value, tuple) else 1
            found[each.name] = tuple(rest[:size]) if isinstance(value, tuple) else rest[0]
            rest = rest[size:]
    return replace(COSTS, **found)


def rounded(costs: Costs) -> Costs:
    """Return the costs with three digits each."""
    return _with([float(f"{x:.3g}") for x in np.exp(vector(costs))])


def fitted(sample: Sample, is_in: npt.NDArray[np.bool_], evaluations: int, steps: int) -> Costs:
    """Return the costs fitted to some of the products: to their times, then to the choices.

    Parameters
    ----------
    sample : Sample
    is_in : array of bool
        Whether each product counts.
    evaluations, steps : int
        Of the fit to times, and to choices, at most.
    """
    start, rows = vector(COSTS), is_in[sample.of]

    def residuals(values: Array) -> Array:
        errors = sample.errors(costs_of(values))[rows]
        result: Array = np.concatenate([errors, 0.05 * (values - start)])
        return result

    bounds = (start - FREEDOM, start + FREEDOM)
    if evaluations:
        start = least_squares(
            residuals, start, bounds=bounds, loss="soft_l1", f_scale=ROBUST, max_nfev=evaluations
        ).x
    before = start.copy()

    def loss(values: Array) -> float:
        costs = costs_of(values)
        errors = sample.errors(costs)[rows] / ROBUST
        of_times = 2 * ROBUST**2 * (np.sqrt(1 + errors**2) - 1).sum() / sample.weight[rows].sum()
        change = ((values - before) ** 2).sum()
        doubted = np.average(sample.doubted(costs)[is_in], weights=sample.counts[is_in])
        return float(doubted + OF_TIMES * of_times + OF_START * change)

    if steps:
        found = minimize(
            with_gradient(loss), start, jac=True, method="L-BFGS-B",
            bounds=[(x - 1, x + 1) for x in start], options={"maxiter": steps},
        )  # fmt: skip
        start = found.x
    return rounded(costs_of(start))


def with_gradient(loss: Callable[[Array], float]) -> Callable[[Array], tuple[float, Array]]:
    """Return a function of the loss and its gradient, by small steps."""

    def both(values: Array) -> tuple[float, Array]:
        here, step = loss(values), 1e-4
        steps = np.eye(len(values)) * step
        return here, np.array([(loss(values + each) - here) / step for each in steps])

    return both


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print."""
    parser = parser_of(__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument(
        "--counts", nargs="+", type=float, metavar="N", help="weights of each record's products"
    )
    parser.add_argument("--folds", type=int, default=4, help="0 for none")
    parser.add_argument("--seed", type=int, default=7, help="of the folds")
    parser.add_argument("--evaluations", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args(arguments)
    if options.counts and len(options.counts) != len(options.records):
        parser.error(f"{len(options.counts)} --counts for {len(options.records)} records")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in options.records]
    sample = Sample(records, options.counts)
    count = len(sample.products)

    def show_all(words: str, regrets: Array) -> None:
        show(words, regrets)
        if len(records) > 1:
            for path, rows in zip(options.records, sample.rows_of_records, strict=True):
                show(f"    {path.name}", regrets[rows])

    show_all("before", sample.regrets(COSTS))
    kept = np.ones(count)
    fold = np.random.default_rng(options.seed).integers(0, max(1, options.folds), count)
    for index in range(options.folds):
        costs = fitted(sample, fold != index, options.evaluations, options.steps)
        kept[fold == index] = sample.regrets(costs)[fold == index]
    if options.folds:
        show_all("kept apart", kept)
    costs = fitted(sample, np.ones(count, np.bool_), options.evaluations, options.steps)
    show_all("fitted to", sample.regrets(costs))
    for each in fields(Costs):
        print(f"    {each.name}: {getattr(costs, each.name)}")


def show(what: str, regrets: Array) -> None:
    """Print the mean regret, how many are large, and the worst ones."""
    mean, worst = np.exp(np.log(regrets).mean()), np.sort(regrets)[::-1][:4]
    shares = ", ".join(f"{(regrets > 1 + x).mean():.1%} above {x:.0%}" for x in (0.05, 0.1))
    print(f"{what}: {len(regrets)} products: regret {mean:.4f}, {shares}, worst {worst.round(3)}")


if __name__ == "__main__":
    main()
