"""benchmarks/fit_simt.py: what the planner loses of what was measured, and that its fit fits."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest

from tilewise.gemm.families.simt.costs import COSTS, FACTORS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fit_simt.py"


@pytest.fixture(scope="module")
def script() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)  # as Python does for a script
        yield runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(("dtype", "products"), [("float32", 130), ("float64", 130)])
def test_what_the_planner_loses(script: dict[str, Any], dtype: str, products: int) -> None:
    """Of ways that were timed on an H200: 2 to 3%, of random products and of the suites."""
    record = json.loads(script["RECORD"].read_text(encoding="utf-8"))
    every = script["points"](record, dtype)
    times = script["expected"](every, dtype, COSTS[dtype], FACTORS[dtype])
    chosen = script["choose"](every, times)
    assert len(chosen) >= products
    assert all(regret >= 0.999 for regret, *_ in chosen)
    assert geometric_mean(regret for regret, *_ in chosen) < 1.025
    assert geometric_mean(speed for _, speed, _ in chosen) > 1.08


def test_a_fit_finds_what_was_changed(script: dict[str, Any]) -> None:
    """Of ways that take what the model says, with constants that are not its own."""
    dtype = "float32"
    record = json.loads(script["RECORD"].read_text(encoding="utf-8"))
    every = script["points"](record, dtype)[::3]
    other = replace(COSTS[dtype], start=2.5e-6, memory=0.8)
    times = script["expected"](every, dtype, other, FACTORS[dtype])
    made = [
        replace(point, measured=seconds, best=float(seconds.min()))
        for point, seconds in zip(every, times, strict=True)
    ]
    costs, factors = script["fit"](made, dtype, COSTS[dtype], FACTORS[dtype])
    assert costs.start == pytest.approx(2.5e-6, rel=0.1)
    assert costs.memory == pytest.approx(0.8, rel=0.05)

    def errors(costs: Any, factors: dict[str, float]) -> float:
        found = script["expected"](made, dtype, costs, factors)
        logarithms = [np.log(x / y.measured) for x, y in zip(found, made, strict=True)]
        return float(np.std(np.concatenate(logarithms)))

    assert errors(costs, factors) < 0.25 * errors(COSTS[dtype], FACTORS[dtype])
