"""Shared memory in loops that are not unrolled: what one step showed is used for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.devices.emulator.counting import transactions
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

pytestmark = pytest.mark.usefixtures("no_machine_code")

STEPS = r"""
typedef TYPE real;
extern "C" __global__ void steps(const real* x, real* y, int count, int pitch, int phases) {
    __shared__ real before[8];
    __shared__ real s[1024];
    if (threadIdx.x < 8) before[threadIdx.x] = 0;
    real sum = 0;
    for (int phase = 0; phase < phases; ++phase) {
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = x[i] + phase;
        __syncthreads();
        #pragma unroll 1
        for (int k = 0; k < count; ++k) sum += s[k * pitch + threadIdx.x * STRIDE];
        __syncthreads();
    }
    y[threadIdx.x] = sum + before[threadIdx.x % 8];
}
"""
UNROLLED = STEPS.replace("#pragma unroll 1", "#pragma unroll").replace("k < count", "k < COUNT")


def launch(
    source: str, count: int, pitch: int, stride: int = 1, dtype: str = "float32", **more: Any
) -> tuple[LaunchReport, np.ndarray[Any, Any]]:
    names = {"float32": "float", "float64": "double", "uint8": "unsigned char", "int16": "short"}
    defines = {"TYPE": names[dtype], "STRIDE": stride, "COUNT": count}
    x = (np.arange(1024) % 100).astype(dtype)
    y = np.zeros(64, dtype)
    kernel = Kernel(source, "steps", defines)
    report = kernel.launch(2, 64, (x, y, count, pitch, 3), device="emulator", **more)
    return report, y


# Quickly, each dtype and each pattern once.
@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int16"])
@pytest.mark.parametrize(("pitch", "stride"), [(64, 1), (1, 8), (3, 2), (33, 4)])
def test_counts_are_those_of_the_unrolled_loop(
    dtype: str, pitch: int, stride: int, emulator: Device
) -> None:
    rolled, y = launch(STEPS, 12, pitch, stride, dtype)
    # What is narrower than a word would be joined in the unrolled loop, and counted otherwise.
    unrolled, z = launch(UNROLLED, 12, pitch, stride, dtype)
    np.testing.assert_array_equal(y, z)
    assert rolled.counters is not None
    assert unrolled.counters is not None
    for name in ("shared_load_requests", "shared_load_bank_conflicts"):
        assert getattr(rolled.counters, name) == getattr(unrolled.counters, name), name


def test_each_step_is_not_counted_anew(emulator: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    count = transactions.load_wavefronts

    def counted(*args: Any) -> tuple[int, int]:
        calls.append(args)
        return count(*args)

    monkeypatch.setattr(transactions, "load_wavefronts", counted)
    launch(STEPS, 14, 64)
    assert len(calls) < 10


@pytest.mark.parametrize(("count", "wrong"), [(15, 0), (16, 0), (17, 1)])
def test_a_step_beyond_the_array_is_found(count: int, wrong: int, emulator: Device) -> None:
    report, _ = launch(STEPS, count, 64, checks="collect")
    assert len(report.findings) == wrong
    if wrong:
        (finding,) = report.findings
        assert (finding.kind, finding.array, finding.index) == ("out of bounds", "s", 1024)
        assert "other threads here" in finding.message


def test_a_step_back_into_another_array_is_found(emulator: Device) -> None:
    report, _ = launch(STEPS, 3, -4, checks="collect")
    (finding,) = report.findings
    assert (finding.kind, finding.array) == ("out of bounds", "s")
    # The sum with threadIdx.x is unsigned, and some NVRTCs address with all of its 32 bits.
    assert finding.index in (-4, 2**32 - 4)


def test_a_step_that_is_half_outside_is_found(emulator: Device) -> None:
    report, _ = launch(STEPS, 2, 970, checks="collect")
    (finding,) = report.findings
    assert finding.index == 1024
    assert finding.thread == (54, 0, 0)


def test_a_race_in_a_later_phase_is_found(emulator: Device) -> None:
    source = STEPS.replace(
        "        __syncthreads();\n    }", "        if (phase != 1) __syncthreads();\n    }"
    )
    report, _ = launch(source, 12, 33, checks="collect")
    assert {finding.kind for finding in report.findings} == {"race"}
    assert not launch(STEPS, 12, 33, checks="collect")[0].findings


def test_without_room_for_patterns_it_is_the_same(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, y = launch(STEPS, 14, 64)
    monkeypatch.setattr("tilewise.devices.emulator.machine.PATTERN_BYTES", 0)
    found, z = launch(STEPS, 14, 64)
    np.testing.assert_array_equal(y, z)
    assert found.counters == expected.counters
