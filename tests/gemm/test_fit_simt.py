"""benchmarks/fit_simt.py: what the planner loses of what was measured, and that its fit fits."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest
from scripts import script

from tilewise.gemm.families.simt.costs import COSTS, FACTORS

SCRIPT = script("fit_simt.py")


@pytest.mark.parametrize(("dtype", "products"), [("float32", 130), ("float64", 130)])
def test_what_the_planner_loses(dtype: str, products: int) -> None:
    """Of ways that were timed on an H200: 2 to 3%, of random products and of the suites."""
    record = json.loads(SCRIPT["RECORD"].read_text(encoding="utf-8"))
    every = SCRIPT["points"](record, dtype)
    times = SCRIPT["expected"](every, dtype, COSTS[dtype], FACTORS[dtype])
    chosen = SCRIPT["choose"](every, times)
    assert len(chosen) >= products
    assert all(regret >= 0.999 for regret, *_ in chosen)
    assert geometric_mean(regret for regret, *_ in chosen) < 1.025
    assert geometric_mean(speed for _, speed, _ in chosen) > 1.08


@pytest.mark.thorough
def test_a_fit_finds_what_was_changed() -> None:
    """Of ways that take what the model says, with constants that are not its own."""
    dtype = "float32"
    record = json.loads(SCRIPT["RECORD"].read_text(encoding="utf-8"))
    every = SCRIPT["points"](record, dtype)[::3]
    other = replace(COSTS[dtype], start=2.5e-6, memory=0.8)
    times = SCRIPT["expected"](every, dtype, other, FACTORS[dtype])
    made = [
        replace(point, measured=seconds, best=float(seconds.min()))
        for point, seconds in zip(every, times, strict=True)
    ]
    costs, factors = SCRIPT["fit"](made, dtype, COSTS[dtype], FACTORS[dtype])
    assert costs.start == pytest.approx(2.5e-6, rel=0.1)
    assert costs.memory == pytest.approx(0.8, rel=0.05)

    def errors(costs: Any, factors: dict[str, float]) -> float:
        found = SCRIPT["expected"](made, dtype, costs, factors)
        logarithms = [np.log(x / y.measured) for x, y in zip(found, made, strict=True)]
        return float(np.std(np.concatenate(logarithms)))

    assert errors(costs, factors) < 0.25 * errors(COSTS[dtype], FACTORS[dtype])
