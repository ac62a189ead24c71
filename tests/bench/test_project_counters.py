"""Public projects' kernels under Nsight Compute, for which a function stands in here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import script

from tilewise.lens.metrics import EXACT, METRICS, Hardware
from tilewise.lens.nsight import ProfilerError, Watched

SCRIPT = script("project_counters.py")
GLOBALS = SCRIPT["measured"].__globals__
FOLDER = Path("projects")


class Gpu:
    """Launches kernels k0, k1, ... as Nsight Compute's child does; some of them otherwise."""

    def __init__(self, count: int, otherwise: Mapping[int, str]) -> None:
        self.count, self.otherwise = count, otherwise
        self.sessions: list[range] = []

    def chosen(self, *_: Any) -> list[tuple[str, Any]]:
        return [("p", SimpleNamespace(kernel=f"space::k{i}<4>")) for i in range(self.count)]

    def watch(self, python: Sequence[str], seconds: float) -> Watched:
        into, first, most = python[python.index("--launch") + 1 :][:3]
        asked = range(int(first), min(int(first) + int(most), self.count))
        self.sessions.append(asked)
        lines: list[dict[str, Any]] = []
        launches: list[dict[str, str]] = []
        for index in asked:
            lines.append({"begun": index})
            how = self.otherwise.get(index, "")
            if how in ("ends", "hangs"):
                if how == "hangs":  # all that was counted is lost
                    launches.clear()
                break
            error = "no" if how == "does not compile" else ""
            wrong = "off" if how == "wrong" else ""
            lines.append({"index": index, "gpu": "a GPU", "error": error, "wrong": wrong})
            if not error:
                name = "another" if how == "renamed" else f"_Z2k{index}v"
                launches.append({"Kernel Name": name, METRICS[EXACT[0]][0][0]: str(index)})
        Path(into).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Watched("1.0", launches, "==ERROR== LaunchFailed\n" if len(lines) % 2 else "")


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what measures kernels on a GPU that does as it is told."""

    def measured(gpu: Gpu) -> list[tuple[int, Hardware | None, str]]:
        monkeypatch.setitem(GLOBALS, "watch", gpu.watch)
        monkeypatch.setitem(GLOBALS, "chosen", gpu.chosen)
        return list(SCRIPT["measured"](FOLDER, None, ""))

    return measured


def test_every_kernel_is_measured_in_order(measure: Any) -> None:
    gpu = Gpu(20, {3: "wrong", 5: "does not compile"})
    found = measure(gpu)
    assert [index for index, _, _ in found] == list(range(20))
    assert [len(session) for session in gpu.sessions] == [16, 4]
    counted = {index: each.counters[EXACT[0]] for index, each, _ in found if each}
    assert counted == {index: index for index in range(20) if index != 5}
    assert {index: said for index, _, said in found if said} == {3: "off", 5: "no"}


@pytest.mark.parametrize("how", ["ends", "hangs"])
@pytest.mark.parametrize("bad", [[0], [1], [6, 7], [15], [19]])
def test_a_launch_that_takes_the_process_with_it(measure: Any, how: str, bad: list[int]) -> None:
    gpu = Gpu(20, dict.fromkeys(bad, how))
    found = measure(gpu)
    assert [index for index, _, _ in found] == list(range(20))
    assert [index for index, each, _ in found if each is None] == bad
    said = "its launch never ended; Nsight Compute says: LaunchFailed"
    assert {said_of for index, _, said_of in found if index in bad} == {said}
    assert len(gpu.sessions) < 10


def test_another_kernel_than_was_launched_is_an_error(measure: Any) -> None:
    with pytest.raises(ProfilerError, match="counted another for space::k1<4>"):
        measure(Gpu(3, {1: "renamed"}))


def test_equal_is_what_must_be_equal() -> None:
    metrics = {names[0][0]: 8 for names in METRICS.values()}
    metrics |= {m.lstrip("-"): 0 for names in METRICS.values() for m in names[0][1:]}
    found = Hardware("k", dict.fromkeys(METRICS, 8), 8, {}, "a GPU", "1.0", metrics)
    counted = dict.fromkeys(METRICS, 8)
    compared = SCRIPT["compared"]
    assert compared(found, counted) == {"equal": True, "differs": {}}
    other = {**counted, "warp_instructions": 9}
    assert compared(found, other) == {"equal": True, "differs": {"warp_instructions": [9, 8]}}
    assert not compared(found, {**counted, EXACT[0]: 9})["equal"]
    less = Hardware("k", {EXACT[0]: 8}, 8, {}, "a GPU", "1.0", metrics)
    assert not compared(less, counted)["equal"]


def test_rows_of_other_kernels_stay() -> None:
    def rows(*names: str) -> dict[str, Any]:
        return {"rows": [{"project": x[:-1], "file": "f", "kernel": x[-1]} for x in names]}

    found = SCRIPT["merged"](rows("xGeMM1", "fast.cu1", "xGeMM2"), {**rows("xGeMM2"), "ncu": "2"})
    assert found == {**rows("xGeMM1", "xGeMM2", "fast.cu1"), "ncu": "2"}


def test_every_reason_is_of_a_kernel_that_is_tried() -> None:
    unlike, every = GLOBALS["unlike"].__globals__["UNLIKE"], GLOBALS["PROJECTS"]
    assert {project for project, _ in unlike} <= set(every)
    assert GLOBALS["unlike"]("fast.cu", "M10::matmul<1>")
    assert not GLOBALS["unlike"]("fast.cu", "M1::matmul<1>")
    assert not GLOBALS["unlike"]("cuda-samples", "testKernel<int>")
