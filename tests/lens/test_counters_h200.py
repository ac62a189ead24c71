"""The emulator's counters are what Nsight Compute read on an H200, exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from reference import ROOT, thorough

from tilewise.devices import Device
from tilewise.ladder.rungs import rung
from tilewise.lens.agreement import counts, emulate
from tilewise.lens.case_spec import KERNELS, Spec
from tilewise.lens.hardware_cases import CASES, LADDER, is_right, make
from tilewise.lens.instruction_cases import KINDS
from tilewise.lens.metrics import EXACT

GENERAL = [name for name in EXACT if name.startswith(("global", "shared"))]  # of any kernel
KEPT = ROOT / "benchmarks" / "results" / "counters_h200.json"


@cache
def kept() -> dict[str, dict[str, Any]]:
    """The cases that were measured, by name."""
    return {case["name"]: case for case in json.loads(KEPT.read_text())["cases"]}


def by_kernel() -> Iterator[tuple[str, list[Any]]]:
    """The cases' names with their marks: thorough, but the first of each kernel in one dtype.

    The kernels' dtypes take turns.
    """
    first: dict[str, dict[str, str]] = {}
    for name, case in kept().items():
        first.setdefault(case["spec"]["kernel"], {}).setdefault(case["spec"]["dtype"], name)
    quick = {list(names.values())[at % len(names)] for at, names in enumerate(first.values())}
    for name in kept():
        yield name, [thorough] * (name not in quick)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in by_kernel()])
@pytest.mark.usefixtures("emulator")
def test_every_case_counts_what_the_hardware_did(name: str) -> None:
    """Those that were kept, each made again; they are cases of the benchmark still."""
    case = kept()[name]
    again = Spec.of(case["spec"])
    assert again in CASES
    report, right = emulate(again)
    counted = counts(report)
    names = [name for name in EXACT if name in case["hardware"]]
    assert set(GENERAL) <= set(names)
    assert {name: counted[name] for name in names} == {
        name: case["hardware"][name] for name in names
    }
    assert right
    assert report.counted_as == "machine code"


def test_the_benchmark_has_every_rung_and_every_kernel() -> None:
    """In both precisions, with several tiles, rows that lie apart, and beta."""
    files = {path.stem for path in KERNELS.glob("*.cu")}
    assert {case.kernel for case in CASES} == files | set(LADDER)
    for name in LADDER:
        mine = [case for case in CASES if case.kernel == name]
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
    assert len({case.name for case in CASES}) == len(CASES)


def others() -> Iterator[Any]:
    """Cases that are no product; of kernels of one instruction, one of each shape is quick."""
    seen = set()
    for spec in CASES:
        kind = (spec.kernel, spec.shape)
        if spec.kernel not in LADDER:
            marks = [thorough] * (spec.kernel in KINDS and kind in seen)
            yield pytest.param(spec, marks=marks, id=spec.name)
        seen.add(kind)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spec", list(others()))
def test_kernels_that_are_no_product_compute_what_they_say(spec: Spec, device: Device) -> None:
    case = make(spec)
    case.kernel.launch(case.grid, case.block, case.args, case.shared, device)
    assert is_right(spec, make(spec).args, case.args)
