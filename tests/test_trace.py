"""Traces: what is recorded is what ran."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.ladder import RUNGS, rung
from tilewise.launch import Launch
from tilewise.lens.trace import record
from tilewise.problem import random_problem

TILED = [each.name for each in RUNGS if each.default_tile is not None]


def threads(step: dict[str, Any]) -> list[int]:
    return [t for first, count in step["threads"] for t in range(first, first + count)]


def numbers(values: Any) -> Any:
    return np.array(values, np.float64)


@given(
    st.sampled_from(TILED), *(st.integers(1, 9) for _ in "mnk"), st.sampled_from([2, 3, 4]),
    st.sampled_from(["float32", "float64"]), st.sampled_from([0.0, 0.5]),
)  # fmt: skip
def test_the_blocks_parts_of_the_product(
    name: str, m: int, n: int, k: int, tile: int, dtype: str, beta: float
) -> None:
    """Loads give what is in A and B, and stores what C becomes; shared memory gives it back."""
    grid, _ = rung(name).geometry(m, n, tile)
    blocks = [(x, y, 0) for x in range(grid[0]) for y in range(grid[1])]
    trace = record(name, m, n, k, tile=tile, dtype=dtype, beta=beta, blocks=blocks).to_dict()
    a, b, c = random_problem(m, n, k, dtype, 0)
    matrices = {"a": a, "b": b, "c": c}
    result = np.full((m, n), np.nan)
    for block in trace["blocks"]:
        assert not block["cut"]
        shared: dict[int, float] = {}
        for step in block["steps"]:
            assert len(threads(step)) == len(set(threads(step)))
            if step["kind"] not in ("load", "store"):
                continue
            values = numbers(step["values"])
            assert len(values) == len(step["at"]) == len(threads(step))
            if step["space"] == "shared" and step["kind"] == "store":
                shared.update(zip(step["at"], values.tolist(), strict=True))
            elif step["space"] == "shared":
                width = {"float32": 4, "float64": 8}[dtype]
                wide = values.reshape(len(values), -1)
                for place, row in zip(step["at"], wide, strict=True):
                    assert [shared[place + width * i] for i in range(len(row))] == row.tolist()
            elif step["kind"] == "load":
                flat = matrices[step["array"]].reshape(-1)[step["at"]]
                assert values == pytest.approx(flat, rel=1e-5)
            else:
                assert step["array"] == "c"
                result.reshape(-1)[step["at"]] = values
    expected = a.astype(np.float64) @ b.astype(np.float64) + beta * c
    assert result == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_counts_are_the_launchs(emulator: Device) -> None:
    """Of all blocks together, those of the report."""
    m, n, k, tile = 7, 6, 5, 4
    grid, block = rung("tiled").geometry(m, n, tile)
    blocks = [(x, y, 0) for x in range(grid[0]) for y in range(grid[1])]
    steps = [
        step
        for each in record("tiled", m, n, k, tile=tile, blocks=blocks).to_dict()["blocks"]
        for step in each["steps"]
    ]
    a, b, _ = random_problem(m, n, k)
    c = emulator.empty((m, n), np.float32)
    args = (m, n, k, 1.0, emulator.array(a), k, emulator.array(b), n, 0.0, c, n)
    counters = rung("tiled").kernel(tile=tile).launch(grid, block, args, device=emulator).counters
    assert counters is not None
    for kind in ("load", "store"):
        for space in ("global", "shared"):
            mine = [s for s in steps if (s["kind"], s.get("space")) == (kind, space)]
            requests = sum(step["requests"] for step in mine)
            assert requests == getattr(counters, f"{space}_{kind}_requests")
        mine = [s for s in steps if (s["kind"], s.get("space")) == (kind, "global")]
        assert sum(step["sectors"] for step in mine) == getattr(counters, f"global_{kind}_sectors")


def test_phases_and_the_step_to_open_on() -> None:
    trace = record("tiled", 4, 4, 6, tile=2).to_dict()
    (first, last) = trace["blocks"]
    assert (first["index"], last["index"]) == ([0, 0, 0], [1, 1, 0])
    steps = first["steps"]
    phases = [step["phase"] for step in steps if step["phase"] is not None]
    assert phases == sorted(phases)
    assert set(phases) == {0, 1, 2}
    opened = steps[first["first"]]
    assert (opened["kind"], opened["space"], opened["phase"]) == ("load", "shared", 0)
    assert trace["shared"][0] == {
        "name": "sa", "offset": 0, "bytes": 16, "element": 4, "rows": 2, "columns": 2,
    }  # fmt: skip
    assert (
        trace["source"].split("\n")[opened["line"] - 1].strip() == "sum += sa[ty][i] * sb[i][tx];"
    )
    assert json.loads(json.dumps(trace)) == trace


def test_sentences() -> None:
    steps = record("tiled", 3, 3, 3, tile=2, blocks=[(1, 1, 0)]).to_dict()["blocks"][0]["steps"]
    loads = [step for step in steps if step["kind"] == "load" and step["space"] == "global"]
    assert loads[0]["say"] == (
        "2 of 4 threads load row 2, columns 0 to 1 of A: 1 sector, 25 % of them used."
    )
    assert loads[0]["why"].startswith("1 of these threads owns no element of C, and loads for")
    said = [step["say"] for step in steps]
    assert "All 4 threads read sb, row 0, columns 0 to 1: no bank conflict." in said
    assert "Thread 0 stores row 2, column 2 of C: 1 sector, 12 % of them used." in said
    barrier = next(step for step in steps if step["kind"] == "barrier")
    assert barrier["say"] == "All 4 threads wait at the barrier."
    assert "whole block" in barrier["why"]
    assert all(re.fullmatch(r"[A-Z0-9].*\.", step["say"]) for step in steps)


def test_conflicts_say_why() -> None:
    steps = record("tiled_conflicts", 32, 32, 32).to_dict()["blocks"][0]["steps"]
    worst = max(steps, key=lambda step: step.get("conflicts", 0))
    assert worst["conflicts"] > 0
    assert f"{worst['conflicts']} bank conflicts" in worst["say"]
    assert "served in turn" in worst["why"]


def test_a_long_run_is_cut() -> None:
    trace = record("tiled", 8, 8, 64, tile=8, most=50).to_dict()
    assert all(block["cut"] and len(block["steps"]) <= 50 for block in trace["blocks"])


def test_not_a_number_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text("""
extern "C" __global__ void own(int m, int n, int k, real alpha, const real* a, int lda,
    const real* b, int ldb, real beta, real* c, int ldc) {
    c[0] = 0 * (1 / (alpha - 1));
}
""")
    steps = record(f"{path}:own", 1, 1, 1, tile=2).to_dict()["blocks"][0]["steps"]
    (store,) = (step for step in steps if step["kind"] == "store")
    assert set(store["values"]) == {"nan"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"m": 0}, "m is 0; to be watched, a product has at least 1 of each"),
        ({"blocks": [(5, 0, 0)]}, r"there is no block \(5, 0, 0\): the grid is 1 x 1 x 1"),
        ({"tile": 40}, "tile is 40"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(**{"target": "tiled", "m": 2, "n": 2, "k": 2, "tile": 2, **arguments})


def test_nothing_is_wrapped_where_nobody_records() -> None:
    emulator = Emulator()
    kernel = rung("tiled").kernel(tile=2)
    c = emulator.empty((2, 2), np.float32)
    ones = emulator.array(np.ones((2, 2), np.float32))
    args = (2, 2, 2, 1.0, ones, 2, ones, 2, 0.0, c, 2)
    launch = Launch((1, 1, 1), (2, 2, 1), args)
    report, recordings = emulator.record(kernel.compile(emulator.arch), launch, [(0, 0, 0)])
    plain = emulator.launch(kernel.compile(emulator.arch), launch)
    assert report.counters == plain.counters
    assert recordings[0].events
