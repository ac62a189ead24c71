"""What benchmarks/fma_choices.py times, beside what the planner chose."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tilewise.plan import plan_on
from tilewise.product import Operand, Product
from tilewise.tuned import Chip

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "fma_choices.py"

pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [511, 512, 1001, 4099])
def test_the_first_way_is_the_planner_s(dtype: str, n: int) -> None:
    """And each has a name of its own, though copies are made in several ways."""
    script = runpy.run_path(str(SCRIPT))
    rows = Operand(n, 1)
    product = Product(n, n, n, 1, dtype, dtype, 1.0, 0.0, rows, rows, None, rows)
    ways = script["best_ways"](product, 132)
    assert len(ways) == script["WAYS"]
    (_, first), *_ = ways.values()
    planned = plan_on(product, Chip("NVIDIA H200", 132))
    assert first.chosen == planned.chosen
    assert [step.launch for step in first.steps] == [step.launch for step in planned.steps]
