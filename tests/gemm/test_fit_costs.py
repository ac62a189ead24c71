"""The fit of the model's costs: it finds what made the measurements, and leaves the rest alone."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tilewise.gemm.families.hopper.costs import COSTS, Costs, seconds
from tilewise.gemm.families.hopper.tilings import Problem, candidates

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fit_costs.py"
AROUND = 2e-6


def record(costs: Costs) -> dict[str, Any]:
    """What benchmarks/hopper_tilings.py would write where the model with these costs is right."""
    rows = []
    for problem in (
        Problem(1024, 1024, 1024),
        Problem(64, 6144, 4096),
        Problem(300, 301, 1111, a_shifted=True, b_shifted=True, d_copied=False),
    ):
        tilings = [
            {
                "tiling": asdict(tiling),
                "problem": asdict(problem),
                "around": AROUND,
                "seconds": AROUND + seconds(tiling, problem, 132, costs),
            }
            for tiling in candidates(problem, 132)
        ]
        tilings.sort(key=lambda x: float(str(x["seconds"])))
        name = f"{problem.m}x{problem.n}x{problem.k}"
        rows.append({"name": name, "layout": "NN", "tilings": tilings})
    return {"multiprocessors": 132, "rows": rows}


def test_costs_are_found_again() -> None:
    script = runpy.run_path(str(SCRIPT))
    there = replace(COSTS, dram_one=1.5 * COSTS.dram_one, shift=0.5 * COSTS.shift)
    measured = script["points"](record(there))
    names = ("dram_one", "shift", "split")
    found = script["fit"](measured, names, 0.01, 150)
    before, after = (script["loss"](costs, measured, names, 0.01) for costs in (COSTS, found))
    assert after < before / 5
    assert found.dram_one == pytest.approx(there.dram_one, rel=0.1)
    assert found.flops == COSTS.flops


def test_what_was_not_measured_stays() -> None:
    script = runpy.run_path(str(SCRIPT))
    measured = [x for x in script["points"](record(COSTS)) if not x.tiling.shifted]
    assert script["fit"](measured, ("shift", "shift_wait"), 0.2, 20) == COSTS


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tilings.json"
    file.write_text(json.dumps(record(COSTS)))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(file), "--only", "tile", "--trials", "5"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    shown = capsys.readouterr().out
    assert f"tile         {COSTS.tile:10.3g}  was {COSTS.tile:.3g}" in shown
    assert "regret: mean 1.000, worst 1.000" in shown
