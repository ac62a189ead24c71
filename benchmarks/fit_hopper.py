"""Fits the costs of the Hopper kernel's model to measured times of random products; needs no GPU.

    python benchmarks/fit_hopper.py RECORD [RECORD ...] [--test 0.25] [--evaluations 60]

A record is what ``benchmarks/choices.py`` writes: random products, each timed by many tilings. A
part of the products is kept to test what was fitted to the others. Prints the regret of both (the
time of the tiling that the model chooses, by that of the best that was timed), and the fitted
:class:`Costs`.

A tiling counts the more the nearer it is to its product's best, and an error that all tilings of a
product share counts little: it changes no choice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from tilewise.explain import of_shape
from tilewise.gemm.chip import H200
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.costs import COSTS, Costs
from tilewise.gemm.families.hopper.model import seconds
from tilewise.gemm.families.hopper.table import Table
from tilewise.gemm.families.hopper.tiling import Tiling

SHARP, SHARED = 3.0, 0.5  # how fast weight falls with distance from the best; of shared errors
FIXED = ("rows", "columns", "realign", "realign_wait", "realign_latency")
FREEDOM = 1.3  # of a cost's logarithm, around what it was

Array = npt.NDArray[np.float64]


class Sample:
    """The times of a record as arrays."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.products: list[dict[str, Any]] = []
        tilings: list[Tiling] = []
        views: list[int] = []
        self.problems: list[Any] = []
        microseconds: list[float] = []
        for record in records:
            for row in record["rows"]:
                product = of_shape(row["m"], row["n"], row["k"], "bfloat16", row["layout"])
                problem = hopper.problem(product)
                for tiling, time in ways_of(row["ways"]):
                    if len(self.problems) != 2 * len(self.products) + 2:
                        self.problems += [problem, problem.swapped]
                    tilings.append(tiling)
                    views.append(2 * len(self.products) + tiling.swapped)
                    microseconds.append(time)
                if len(self.problems) == 2 * len(self.products) + 2:
                    self.products.append(row)
        self.table = Table(tilings, views, H200.multiprocessors)
        self.of = np.array(views) // 2
        self.time = np.array(microseconds)
        self.best = np.full(len(self.products), np.inf)
        np.minimum.at(self.best, self.of, self.time)
        self.weight = np.exp(-SHARP * np.minimum(self.time / self.best[self.of] - 1, 1.5))

    def expected(self, costs: Costs) -> Array:
        """Return what the model expects, in microseconds."""
        return 1e6 * seconds(self.table, self.problems, costs, only_worth=False)

    def errors(self, costs: Costs) -> Array:
        """Return the logarithms of expected by measured, weighed."""
        error = np.log(self.expected(costs) / self.time)
        count = len(self.products)
        weighed = np.bincount(self.of, self.weight * error, count)
        shared = weighed / np.bincount(self.of, self.weight, count)
        result: Array = (error - (1 - SHARED) * shared[self.of]) * np.sqrt(self.weight)
        return result

    def regrets(self, costs: Costs) -> Array:
        """Return, of each product, the time of the model's choice by the best."""
        expected = self.expected(costs)
        found = np.ones(len(self.products))
        for index in range(len(self.products)):
            rows = np.flatnonzero(self.of == index)
            found[index] = self.time[rows[expected[rows].argmin()]] / self.best[index]
        return found


def ways_of(ways: Sequence[Any]) -> Iterator[tuple[Tiling, float]]:
    """Yield the tilings that were timed, and their microseconds, of aligned products."""
    for way in ways:
        if isinstance(way, list):  # the short form that is kept in the repository
            *sizes, stream_k, swapped, ping_pong, time = way
            flags = {"stream_k": stream_k, "swapped": swapped, "ping_pong": ping_pong}
            yield Tiling(*sizes, **{name: bool(flag) for name, flag in flags.items()}), time
        elif way["family"] == "hopper":
            yield Tiling(**way["choice"]), way["us"]


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
    found: dict[str, Any] = {}
    rest = [float(f"{x:.3g}") for x in np.exp(values)]
    for each in fields(Costs):
        if each.name not in FIXED:
            value = getattr(COSTS, each.name)
            if isinstance(value, tuple):
                found[each.name], rest = tuple(rest[: len(value)]), rest[len(value) :]
            else:
                found[each.name] = rest.pop(0)
    return replace(COSTS, **found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--test", type=float, default=0.25, help="share of the products")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, default=60)
    options = parser.parse_args(arguments)
    sample = Sample(json.loads(path.read_text(encoding="utf-8")) for path in options.records)
    is_test = np.random.default_rng(options.seed).random(len(sample.products)) < options.test
    fitted_to = ~is_test[sample.of]
    start = vector(COSTS)

    def residuals(values: Array) -> Array:
        errors = sample.errors(costs_of_exact(values))[fitted_to]
        result: Array = np.concatenate([errors, 0.05 * (values - start)])
        return result

    show("before", sample.regrets(COSTS), is_test)
    if options.evaluations:
        bounds = (start - FREEDOM, start + FREEDOM)
        found = least_squares(
            residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.1,
            max_nfev=options.evaluations,
        )  # fmt: skip
        costs = costs_of(found.x)
        show("fitted", sample.regrets(costs), is_test)
        for each in fields(Costs):
            print(f"    {each.name}: {getattr(costs, each.name)}")


def costs_of_exact(values: Array) -> Costs:
    """Return the costs of a vector, not rounded: rounding would hide small steps of the fit."""
    found: dict[str, Any] = {}
    rest = [float(x) for x in np.exp(values)]
    for each in fields(Costs):
        if each.name not in FIXED:
            value = getattr(COSTS, each.name)
            size = len(value) if isinstance(value, tuple) else 1
            found[each.name] = tuple(rest[:size]) if isinstance(value, tuple) else rest[0]
            rest = rest[size:]
    return replace(COSTS, **found)


def show(what: str, regrets: Array, is_test: npt.NDArray[np.bool_]) -> None:
    """Print the mean regret and the worst ones, of what was fitted and of what was kept."""
    for name, part in (("fitted to", ~is_test), ("kept apart", is_test)):
        if part.any():
            mean = np.exp(np.log(regrets[part]).mean())
            worst = np.sort(regrets[part])[::-1][:4]
            print(f"{what}: {name} {part.sum()}: regret {mean:.4f}, worst {worst.round(3)}")


if __name__ == "__main__":
    main()
