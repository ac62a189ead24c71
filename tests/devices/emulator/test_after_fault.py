"""A launch that goes on after its first finding, and an error with all findings where it is cut."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest

from tilewise.devices.emulator.threads.budget import Budget
from tilewise.errors import (
    BarrierError,
    CheckError,
    KernelAssertError,
    LaunchError,
    LimitError,
    MemoryAccessError,
    RaceError,
)
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport
from tilewise.limits import Limits

pytestmark = pytest.mark.usefixtures("uncounted")

SOURCE = r"""
extern "C" __global__ void several(int n, const float* x, float* y) {
    __shared__ float s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i + 1];
    y[i] = s[63 - threadIdx.x];
    y[n + i] = 3;
}
extern "C" __global__ void endless(volatile int* x) {
    int bound = x[32];
    x[threadIdx.x + 16] = 1;
    while (bound == 0)
        x[0] += 1;
    x[40] = 1;
}
extern "C" __global__ void asserting(int* x) {
    x[threadIdx.x] = 1;
    if (threadIdx.x == 0) asm volatile("trap;");
}
extern "C" __global__ void stuck(int* x) {
    x[threadIdx.x] = 1;
    if (threadIdx.x < 32) __syncthreads();
    else { __syncthreads(); x[1] = 2; __syncthreads(); }
    x[100] = 1;
}
extern "C" __global__ void noted(int* x) {
    __shared__ int s[4];
    if (threadIdx.x == 0) s[0] = s[3] = 2;
    #pragma unroll
    for (int i = 0; i < 4; i += 3) s[i] = 2;
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x % 2 * 3];
}
extern "C" __global__ void racing(volatile int* p, int* x) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    int seen = s[63 - threadIdx.x];
    x[threadIdx.x] = seen;
    seen += x[63 - threadIdx.x];
    while (p[0] == 0) { s[threadIdx.x] = seen; x[64 + threadIdx.x] = seen; }
    p[1] = seen;
}
"""


def launch(name: str, *args: Any, limits: Limits | None = None, **more: Any) -> LaunchReport:
    kernel = Kernel(SOURCE, name, limits=limits)
    kernel.compile()
    return kernel.launch(4 if name == "several" else 1, 64, args, device="emulator", **more)


def line(text: str) -> int:
    return 1 + SOURCE[: SOURCE.index(text)].count("\n")


def several(**more: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    """The error, or else the report, of a kernel with three faults; and what it writes."""
    y = np.zeros(256, np.float32)
    try:
        return launch("several", 256, np.ones(256, np.float32), y, **more), y
    except CheckError as error:
        return error, y


def test_all_findings_are_in_one_error_and_no_array_changes() -> None:
    collected, _ = several(checks="collect")
    first, _ = several()
    found, y = several(after_fault=60)
    assert first.findings == found.findings[:1]
    assert found.findings == collected.findings
    assert [(each.kind, each.line) for each in found.findings] == [
        ("out of bounds", line("s[threadIdx.x] = x[i + 1]")),
        ("out of bounds", line("y[n + i]")),
        ("race", line("y[i] = s")),
    ]
    assert type(found) is MemoryAccessError  # as the first one is
    assert str(found) == "\n".join(map(str, found.findings))
    assert not y.any()


def test_it_is_as_before_where_nothing_is_found_or_all_is_collected() -> None:
    report, y = several(checks="collect", after_fault=60)
    assert len(report.findings) == 3
    assert y.any()
    assert not launch("noted", np.zeros(64, np.int32), after_fault=60).findings
    with pytest.raises(MemoryAccessError) as caught:  # nothing is looked for
        launch("endless", np.zeros(8, np.int32), checks="off", after_fault=60)
    assert len(caught.value.findings) == 1


def test_what_does_not_end_after_its_first_fault_is_stopped() -> None:
    began = time.process_time()
    with pytest.raises(MemoryAccessError) as caught:
        launch("endless", np.zeros(8, np.int32), after_fault=0.3)
    assert time.process_time() - began < 20
    found = caught.value
    assert [each.line for each in found.findings] == [line("int bound"), line("x[threadIdx.x + 16")]
    told = "the launch was stopped after its first finding: limit of 0.3 seconds"
    assert isinstance(found.stopped, LimitError)
    assert found.stopped.line in (line("while (bound"), line("x[0] += 1"))
    assert str(found).endswith(told)
    again = pickle.loads(pickle.dumps(found))
    assert (again.findings, str(again.stopped), str(again)) == (
        found.findings, str(found.stopped), str(found),
    )  # fmt: skip


def test_a_limit_of_the_launch_is_told_behind_the_findings() -> None:
    limits = Limits(instructions=20_000)
    with pytest.raises(MemoryAccessError, match="the launch was stopped: limit of 20,000 instr"):
        launch("endless", np.zeros(8, np.int32), limits=limits, after_fault=30)
    with pytest.raises(LimitError):  # before any finding
        launch("endless", np.zeros(128, np.int32), limits=limits, after_fault=600)


def test_findings_are_kept_where_a_limit_ends_a_launch_that_collects_them() -> None:
    limits = Limits(instructions=20_000)
    with pytest.raises(MemoryAccessError) as caught:
        launch("endless", np.zeros(8, np.int32), limits=limits, checks="collect")
    assert [x.line for x in caught.value.findings] == [line("int bound"), line("x[threadIdx.x + 1")]
    assert isinstance(caught.value.stopped, LimitError)
    assert caught.value.stopped.limit == "instructions"
    kernel = Kernel(SOURCE, "endless", limits=limits)
    with pytest.raises(MemoryAccessError, match="limit of 20,000 instructions"):
        kernel.profile(1, 64, (np.zeros(8, np.int32),), checks="collect")
    with pytest.raises(LimitError):  # without a finding
        launch("endless", np.zeros(128, np.int32), limits=limits, checks="collect")
    with pytest.raises(MemoryAccessError, match="trap"):
        launch("asserting", np.zeros(8, np.int32), checks="collect")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("grid", [1, 300])
def test_races_since_the_last_barrier_are_found_where_a_limit_ends_the_launch(grid: int) -> None:
    kernel = Kernel(SOURCE, "racing", limits=Limits(instructions=grid * 3_000))
    args = np.zeros(2, np.int32), np.zeros(128, np.int32)
    found = {}
    for mode in ("raise", "collect"):
        for in_global in (False, True):
            with pytest.raises(RaceError, match=r"limit of .* instructions") as caught:
                kernel.launch(
                    grid, 64, args, device="emulator", checks=mode, global_races=in_global
                )
            assert isinstance(caught.value.stopped, LimitError)
            found[mode, in_global] = [each.line for each in caught.value.findings]
    reads = line("int seen"), line("seen += x")
    assert found["raise", False] == found["raise", True] == [reads[0]]
    assert found["collect", False][0] == reads[0]
    assert reads[1] not in found["collect", False]
    assert reads[1] in found["collect", True]


def test_memory_that_the_system_refuses_is_told_behind_the_findings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Budget, "count", refused)
    with pytest.raises(MemoryAccessError, match="the launch was stopped: limit of 4 GiB of memory"):
        launch("endless", np.zeros(8, np.int32), limits=Limits(), after_fault=30)


def test_another_error_is_told_behind_the_findings() -> None:
    with pytest.raises(MemoryAccessError, match=r"x\[8\](.|\n)*trap") as caught:
        launch("asserting", np.zeros(8, np.int32), after_fault=60)
    assert isinstance(caught.value.stopped, KernelAssertError)


def test_threads_that_wait_forever() -> None:
    with pytest.raises(BarrierError) as caught:
        launch("stuck", np.zeros(64, np.int32), after_fault=60)
    with pytest.raises(BarrierError) as first:
        launch("stuck", np.zeros(64, np.int32))
    assert caught.value.findings[0] == first.value.findings[0]


def test_notes_are_findings_where_they_are_asked_for() -> None:
    with pytest.raises(RaceError):
        launch("noted", np.zeros(64, np.int32), checks="strict", after_fault=60)
    with pytest.raises(CheckError) as caught:
        launch("noted", np.zeros(32, np.int32), checks="strict", after_fault=60)
    assert {each.kind for each in caught.value.findings} == {"race", "out of bounds"}


def test_what_an_error_shows() -> None:
    found, _ = several(after_fault=60)
    more = CheckError(found.findings, LaunchError("it was stopped"))
    assert more.text(1).split("\n")[1:] == ["... and 2 more", "it was stopped"]
    assert len(more.text().split("\n")) == 4


ALL_OUT = """
extern "C" __global__ void k(float* x, int o) {{
    __shared__ __align__(16) float s[64];
    {body};
    x[threadIdx.x] = o > 64 ? 1 : s[threadIdx.x];
}}"""


@pytest.mark.parametrize(
    "body",
    [
        "s[threadIdx.x + o] = 1", "((float4*)s)[threadIdx.x + o] = make_float4(1, 2, 3, 4)",
        "((char*)s)[threadIdx.x + 4 * o] = 1", "atomicAdd(s + threadIdx.x + o, 1.0f)",
        "x[0] = s[threadIdx.x + o]", "x[threadIdx.x + o] = 2", "atomicAdd(x + threadIdx.x + o, 1)",
    ],
)  # fmt: skip
def test_all_threads_reach_outside(body: str) -> None:
    for checks, seconds in (("collect", 0), ("raise", 60)):
        x = np.zeros(64, np.float32)
        kernel = Kernel(ALL_OUT.format(body=body), "k")
        try:
            findings = kernel.launch(
                2, 32, (x, 100_000), device="emulator", checks=checks, after_fault=seconds
            ).findings
        except CheckError as error:
            findings = error.findings
        assert [each.kind for each in findings] == ["out of bounds"]
        assert "31 other threads" in findings[0].message or "63 other" in findings[0].message
        assert x[:32].all() == (checks == "collect")


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_seconds_that_are_none(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"after_fault is (-1|nan); it takes seconds, at least 0"):
        several(after_fault=seconds)


@pytest.mark.parametrize("seconds", ["a", None, [1]])
def test_seconds_of_another_type(seconds: Any) -> None:
    with pytest.raises(TypeError, match=r"after_fault is .*; it takes a number of seconds"):
        several(after_fault=seconds)


def test_seconds_of_numpy() -> None:
    assert several(after_fault=np.float32(60))[0].findings
