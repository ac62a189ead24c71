"""The emulator's counters are what Nsight Compute read on an H200, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewise.devices import Device
from tilewise.ladder import rung
from tilewise.problem import random_problem

FILE = Path(__file__).parents[1] / "benchmarks" / "results" / "ncu_h200.json"
MEASURED: list[dict[str, Any]] = json.loads(FILE.read_text())["launches"]


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: f"{one['kernel']}-{one['m']}")
def test_counters(one: dict[str, Any], emulator: Device) -> None:
    m, n, k, tile = (one[name] for name in ("m", "n", "k", "tile"))
    a, b, _ = random_problem(m, n, k, one["dtype"])
    each = rung(one["kernel"])
    c = emulator.empty((m, n), one["dtype"])
    args = (m, n, k, 1.0, emulator.array(a), k, emulator.array(b), n, 0.0, c, n)
    report = each.kernel(one["dtype"], tile).launch(
        tuple(one["grid"]), (tile, tile), args, device=emulator
    )
    assert report.counters is not None
    counted = report.counters.to_dict()
    assert {name: counted[name] for name in one["counters"]} == one["counters"]
    assert report.counted_as == "machine code"
    assert not report.findings


def test_what_was_measured_is_all_there() -> None:
    assert {(one["kernel"], one["m"]) for one in MEASURED} == {
        ("tiled", 640),
        ("tiled", 600),
        ("coalesced", 640),
        ("coalesced", 600),
        ("tiled_conflicts", 640),
    }
