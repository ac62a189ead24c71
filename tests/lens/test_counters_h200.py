"""The emulator's counters are what Nsight Compute read on an H200, exactly."""

from __future__ import annotations

import json
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tilewise.devices import Device
from tilewise.ladder.rungs import rung
from tilewise.lens.metrics import EXACT

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = runpy.run_path(str(BENCHMARKS / "counters.py"))
KEPT = BENCHMARKS / "results" / "counters_h200.json"
CASES: tuple[Any, ...] = SCRIPT["CASES"]


@cache
def kept() -> dict[str, dict[str, Any]]:
    """The cases that were measured, by name."""
    return {case["name"]: case for case in json.loads(KEPT.read_text())["cases"]}


@pytest.mark.parametrize("name", kept())
@pytest.mark.usefixtures("emulator")
def test_every_case_counts_what_the_hardware_did(name: str) -> None:
    """Those that were kept, each made again; they are cases of the benchmark still."""
    case = kept()[name]
    again = SCRIPT["Spec"].of(case["spec"])
    assert again in CASES
    report, is_right = SCRIPT["emulate"](again)
    counted = SCRIPT["counts"](report)
    assert {name: counted[name] for name in EXACT} == {
        name: case["hardware"][name] for name in EXACT
    }
    assert is_right
    assert report.counted_as == "machine code"


def test_the_benchmark_has_every_rung_and_every_kernel() -> None:
    """In both precisions, with several tiles, rows that lie apart, and beta."""
    cases = SCRIPT["CASES"]
    files = {path.stem for path in SCRIPT["KERNELS"].glob("*.cu")}
    assert {case.kernel for case in cases} == files | set(SCRIPT["LADDER"])
    for name in SCRIPT["LADDER"]:
        mine = [case for case in cases if case.kernel == name]
        assert {case.dtype for case in mine} == {"float32", "float64"}
        tiles = rung(name).tiles
        few = (
            {8, 16, 32} if isinstance(tiles, range) else {tiles[0], tiles[-1]} if tiles else {None}
        )
        assert {case.tile for case in mine} == few
        assert {case.beta for case in mine} == {0, 0.5}
        apart = [sum(case.leading) > case.shape[2] + 2 * case.shape[1] for case in mine]
        assert any(apart)
        assert not all(apart)
    assert len({case.name for case in cases}) == len(cases)


@pytest.mark.parametrize(
    "spec",
    [spec for spec in SCRIPT["CASES"] if spec.kernel not in SCRIPT["LADDER"]],
    ids=lambda spec: spec.name,
)
def test_kernels_that_are_no_product_compute_what_they_say(spec: Any, device: Device) -> None:
    case = SCRIPT["make"](spec)
    case.kernel.launch(case.grid, case.block, case.args, case.shared, device)
    assert SCRIPT["is_right"](spec, SCRIPT["make"](spec).args, case.args)
