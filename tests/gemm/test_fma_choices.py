"""What benchmarks/fma_choices.py times, beside what the planner chose."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from tilewise.gemm.plan import plan_on
from tilewise.gemm.product import Operand, Product

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "fma_choices.py"

pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [511, 512, 1001, 2049, 4099])
def test_the_first_way_is_the_planner_s(dtype: str, n: int) -> None:
    """And each has a name of its own, though copies are made in several ways."""
    script = runpy.run_path(str(SCRIPT))
    rows = Operand(n, 1)
    product = Product(n, n, n, 1, dtype, dtype, 1.0, 0.0, rows, rows, None, rows)
    ways = script["best_ways"](product, script["H200"])
    assert len({way.name for way in ways}) == len(ways) >= script["WAYS"]
    first = ways[0].plan()
    planned = plan_on(product, script["H200"])
    assert first.chosen == planned.chosen
    assert [step.launch for step in first.steps] == [step.launch for step in planned.steps]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_record_says_what_the_planner_of_now_loses(
    dtype: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = BENCHMARKS / "results" / f"fma_choices_{dtype}_h200.json"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--again", str(record)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().out
    for row in json.loads(record.read_text(encoding="utf-8"))["rows"]:
        assert f"{row['shape']}: " in said
    means = re.findall(r"^(\w+): mean .* regret ([0-9.]+)$", said, re.MULTILINE)
    assert [suite for suite, _ in means] == ["square", "odd", "thin"]
    assert all(1 <= float(regret) < 1.05 for _, regret in means)
