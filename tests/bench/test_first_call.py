"""How first calls are measured: which products, in which order, and what is told of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import script

from tilewise.bench import first_call
from tilewise.bench.first_call import MODES, PASSES, RUNS, Run

SCRIPT = script("first_call.py")


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_products_differ_but_for_those_that_come_again(run: Run) -> None:
    passes = run.passes(7)
    assert tuple(passes) == PASSES
    assert passes["first"] == passes["again"]
    assert len({*passes["first"], *passes["others"]}) == 2 * run.count
    assert {len(sizes) for sizes in passes.values()} == {run.count}
    assert run.passes(7) == passes != run.passes(8)
    bounds = [(1, 4096), (6144,) * 2, (4096,) * 2] if run.name == "weight" else [(1, 2000)] * 3
    for sizes in passes["first"] + passes["others"]:
        for size, (least, most) in zip(sizes, bounds, strict=True):
            assert least <= size <= most


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("contender", first_call.CONTENDERS)
def test_a_process_times_every_call(contender: str, layout: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    found = first_call.here(contender, Run("random", "float32", 2, layout, ""), 3, device="cpu")
    assert {name: len(times) for name, times in found["seconds"].items()} == dict.fromkeys(
        PASSES, 2
    )
    assert all(seconds > 0 for times in found["seconds"].values() for seconds in times)
    assert found["correct"] is True
    json.dumps(found)


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    run = Run("random", "float32", 1, "NN", "")
    front_door = sys.modules["tilewise.matmul"]
    monkeypatch.setattr(front_door, "matmul", lambda a, b, **_: torch.mm(a, b) * 1.001)
    assert first_call.here("ours", run, 3, device="cpu")["correct"] is False


def test_modes_are_passes_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its own cache folder, ours and PyTorch's in turn."""
    asked = []

    def process(contender: str, run: Run, seed: int, cache: Path) -> dict[str, Any]:
        asked.append((run.name, contender, cache))
        assert cache.is_dir()
        (cache / "entry").write_bytes(bytes(10))
        at = float(len(asked))
        before = {"torch": 1.0, "contender": 2.0}
        return {
            "seconds": {name: [at, 3 * at, 2 * at + i] for i, name in enumerate(PASSES)},
            "import_seconds": before,
            "start_seconds": before,
            "waited": dict.fromkeys(PASSES, 0.0),
            "correct": len(asked) != 4,
        }

    monkeypatch.setattr(first_call, "in_a_process", process)
    found = first_call.measure(1, tmp_path)
    assert asked == [
        (name, contender, tmp_path / name)
        for name in RUNS
        for contender in ("ours", "torch", "ours")
    ]
    modes = found["weight"]["modes"]
    assert list(modes) == list(MODES)
    assert modes["empty"]["ours"] == {"total": 6.0, "median": 2.0, "longest": 3.0}
    assert modes["cached"]["ours"] == {"total": 18.0, "median": 6.0, "longest": 9.0}
    assert modes["others"]["torch"]["total"] == 13.0
    assert modes["again"]["ours"]["median"] == 8.0
    assert (found["weight"]["files"], found["weight"]["bytes"]) == (1, 10)
    assert found["weight"]["correct"]
    assert not found["random"]["correct"]

    told = SCRIPT["table"](found["random"])
    assert "150 products, float32 NN" in told
    assert "WRONG" in told
    row = next(line for line in told.splitlines() if line.strip().startswith("again"))
    assert row.split()[-1] == f"{(6 * 6 + 2) / (6 * 5 + 2):.2f}"
