"""Warps of one block that take ``__syncthreads()`` in different branches: found, and gone past."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.errors import BarrierError
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

# Two halves of a block, producer and consumer, each with barriers of its own: as many on either
# side, so that the hardware, which counts arrivals, lets them pass.
APART = r"""
extern "C" __global__ void apart(int n, const float* x, float* y) {
    __shared__ float a[64], b[64];
    int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        a[t] = x[t];
        for (int i = 0; i < n; ++i) {
            __syncthreads();
            b[t] = a[63 - t] + i;
            __syncthreads();
            a[t] += 1;
        }
    } else {
        float sum = 0;
        for (int i = 0; i < n; ++i) {
            __syncthreads();
            __syncthreads();
            sum += b[t];
        }
        y[t] = sum;
    }
}"""


def launch(checks: str, source: str = APART) -> tuple[list[str], bool]:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel = Kernel(source, "apart")
    report = kernel.launch(1, 128, (4, x, y), device="emulator", checks=checks)
    is_right = np.array_equal(y, sum(x[::-1] + 2 * i for i in range(4)))
    assert all(finding.kind == "barrier" for finding in report.findings)
    return [f"{f.line}: {f.message}" for f in report.findings], is_right


def test_it_is_a_finding(emulator: Device) -> None:
    with pytest.raises(BarrierError, match="64 other threads wait at the one in line 16"):
        launch("raise")


def test_collecting_goes_on_and_is_right(emulator: Device) -> None:
    findings, is_right = launch("collect")
    assert is_right
    assert [each.partition(":")[0] for each in findings] == ["8", "10"]
    assert "waits at this barrier while 64 other threads wait at the one in line 16" in findings[0]
    assert "wait at the one in line 17" in findings[1]
    assert launch("off") == ([], True)


def test_a_race_beside_it_is_still_found(emulator: Device) -> None:
    source = APART.replace("a[63 - t] + i;\n            __syncthreads();", "a[63 - t] + i;")
    source = source.replace("__syncthreads();\n            sum", "sum")
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    report = Kernel(source, "apart").launch(1, 128, (4, x, y), device="emulator", checks="collect")
    assert {finding.kind for finding in report.findings} == {"barrier", "race"}
