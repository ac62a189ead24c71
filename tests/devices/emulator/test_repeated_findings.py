"""One line, one finding: of a line of which the compiler makes several instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

pytestmark = pytest.mark.usefixtures("uncounted")

UNROLLED = r"""
extern "C" __global__ void k(float* x, float* y) {
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        y[threadIdx.x * 4 + i] = x[threadIdx.x * 4 + i];
}
extern "C" __global__ void race(float* x) {
    __shared__ float s[128], t[128];
    s[threadIdx.x] = s[threadIdx.x + 64] = x[threadIdx.x]; t[threadIdx.x] = 1;
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < 32; i += 8)
        sum += s[(threadIdx.x + 32 + i) % 64];
    #pragma unroll
    for (int i = 0; i < 32; i += 8)
        sum += s[(threadIdx.x + 96 - i) % 128] * t[(threadIdx.x + 32 + i) % 64];
    x[threadIdx.x] = sum;
}
extern "C" __global__ void both_ways(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    s[63 - threadIdx.x] += s[threadIdx.x ^ 32];
    x[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void unwritten(float* x) {
    __shared__ float s[256];
    if (x[0] == 5) s[threadIdx.x] = s[threadIdx.x + 64] = 1;
    #pragma unroll
    for (int i = 0; i < 3; ++i)
        x[threadIdx.x + 64 * i] = s[threadIdx.x + 64 * i];
}
extern "C" __global__ void same(int* x) {
    __shared__ int s[4];
    if (threadIdx.x == 0) s[0] = s[3] = 2;
    #pragma unroll
    for (int i = 0; i < 4; i += 3) s[i] = 2;
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x % 2 * 3];
}
"""


def collect(name: str, *sizes: int, threads: int = 64) -> LaunchReport:
    arrays = [np.zeros(size, np.int32 if name == "same" else np.float32) for size in sizes]
    return Kernel(UNROLLED, name).launch(1, threads, arrays, device="emulator", checks="collect")


def line_of(text: str) -> int:
    (line,) = (n for n, each in enumerate(UNROLLED.split("\n"), 1) if each.strip() == text)
    return line


def test_out_of_bounds_in_an_unrolled_loop(emulator: Device) -> None:
    report = collect("k", 101, 103, threads=32)
    line = line_of("y[threadIdx.x * 4 + i] = x[threadIdx.x * 4 + i];")
    found = {(f.line, f.array, f.count) for f in report.findings}
    # Thread 25 reads x[100] to x[103], and 26 to 31 do so further out.
    assert found == {(line, "x", 4), (line, "y", 4)}
    first = next(f for f in report.findings if f.array == "x")
    assert first.thread == (26, 0, 0)
    assert first.index == 104
    assert first.message.endswith("(and 5 other threads here; 4 instructions of this line do so)")
    assert first.to_dict()["count"] == 4
    assert str(first) in " ".join(str(report).split())


def test_the_first_one_that_raises_is_one(emulator: Device) -> None:
    with pytest.raises(MemoryAccessError) as caught:
        Kernel(UNROLLED, "k").launch(
            1, 32, (np.zeros(101, np.float32), np.zeros(101, np.float32)), device="emulator"
        )
    (finding,) = caught.value.findings
    assert finding.count == 1
    assert "instructions" not in finding.message


def test_races_are_one_a_line_and_an_array(emulator: Device) -> None:
    findings = collect("race", 64).findings
    alone = line_of("sum += s[(threadIdx.x + 32 + i) % 64];")
    twice = line_of("sum += s[(threadIdx.x + 96 - i) % 128] * t[(threadIdx.x + 32 + i) % 64];")
    assert [(f.line, f.array, f.count) for f in findings] == [
        (alone, "s", 4), (twice, "s", 4), (twice, "t", 4),
    ]  # fmt: skip


def test_reads_and_writes_of_one_line_are_two(emulator: Device) -> None:
    findings = collect("both_ways", 64).findings
    line = line_of("s[63 - threadIdx.x] += s[threadIdx.x ^ 32];")
    verbs = [re.search(r"(reads|writes) s", f.message)[1] for f in findings if f.line == line]  # type: ignore[index]
    assert sorted(set(verbs)) == ["reads", "writes"]


def test_values_that_nobody_wrote(emulator: Device) -> None:
    (finding,) = collect("unwritten", 192).findings
    assert (finding.kind, finding.array, finding.count) == ("uninitialised", "s", 3)


def test_notes_are_one_a_line_too(emulator: Device) -> None:
    (note,) = (note for note in collect("same", 64).notes if "same value" in note)
    assert note.endswith("here their order does not matter (2 instructions of this line do so)")
