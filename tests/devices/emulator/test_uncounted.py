"""A launch that is not counted does the same, and its report has no counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.counting import transactions
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.ladder.prepared import prepare
from tilewise.ladder.problem import Gemm, random_problem
from tilewise.ladder.rungs import rung
from tilewise.launch import Launch, LaunchReport

pytestmark = pytest.mark.usefixtures("ptx_alone")

TALLY = r"""
extern "C" __global__ void tally(int n, const int* x, int* counts, int* out)
{
    __shared__ int own[8];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t < 8) own[t] = 0;
    __syncthreads();
    if (i < n) atomicAdd(&own[x[i] & 7], 1);
    __syncthreads();
    if (t < 8) atomicAdd(&counts[t], own[t]);
    int local[9];
    for (int k = 0; k < 9; ++k) local[k] = i * k;
    if (i < n) out[i] = local[x[i] % 9];
    if (i == 1) printf("%d\n", n);
}
"""


def product(name: str, dtype: str, counts: bool, emulator: Device) -> tuple[LaunchReport, bytes]:
    a, b, c = random_problem(70, 88, 24, dtype)
    gemm = Gemm.of(a, b, c, beta=0.5)
    prepared = prepare(rung(name), gemm, None)
    at = [emulator.array(x) for x in (a, b, c)]
    report = prepared.kernel.launch(
        *prepared.geometry, prepared.args(gemm, *at), prepared.shared, emulator, "strict",
        counts=counts,
    )  # fmt: skip
    return report, at[2].to_numpy().tobytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("tiled", "float32"), ("thread_tile_2d", "float64"), ("multistage", "float16"),
     ("persistent", "float16")],
)  # fmt: skip
def test_a_product_has_the_same_bits(name: str, dtype: str, emulator: Device) -> None:
    """By loads and stores, ``ldmatrix``, ``cp.async``, tensor copies and ``wgmma``."""
    counted, c = product(name, dtype, True, emulator)
    plain, d = product(name, dtype, False, emulator)
    assert c == d
    assert counted.counters is not None
    assert counted.counters.flops > 0
    assert (plain.counters, plain.lines, plain.notes) == (None, {}, ())
    assert plain.to_dict()["counters"] is None


def test_atomics_local_memory_and_output(emulator: Device) -> None:
    x = np.random.default_rng(0).integers(0, 99, 150).astype(np.int32)
    found = []
    for counts in (True, False):
        tallies, out = np.zeros(8, np.int32), np.zeros(150, np.int32)
        kernel = Kernel(TALLY, "tally")
        report = kernel.launch(2, 96, (150, x, tallies, out), device=emulator, counts=counts)
        assert (report.counters is not None) == counts
        found.append((tallies.tolist(), out.tolist(), report.output))
    assert found[0] == found[1]
    assert found[0][0] == np.bincount(x & 7, minlength=8).tolist()
    assert found[0][2] == "150\n"


def test_nothing_is_counted(emulator: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sectors nor wavefronts are computed, and no machine code is read."""

    def refuse(*_: object) -> None:
        raise AssertionError("counts")

    for name in ("sectors", "distinct", "load_wavefronts", "store_wavefronts", "matrix_wavefronts"):
        monkeypatch.setattr(transactions, name, refuse)
    monkeypatch.setattr("tilewise.devices.emulator.copies.cp_async.cost", refuse)
    monkeypatch.setattr("tilewise.compiler.machine_code.disassemble", refuse)
    for name, dtype in (("tiled", "float32"), ("multistage", "float16"), ("persistent", "float16")):
        product(name, dtype, False, emulator)


def test_variables_are_those_of_counted_launches(emulator: Device) -> None:
    source = """__constant__ float by[3]; __device__ int launches;
    extern "C" __global__ void k(float* x) {
        x[threadIdx.x] *= by[threadIdx.x];
        if (threadIdx.x == 0) ++launches;
    }"""
    kernel = Kernel(source, "k")
    kernel.variables["by"] = [1, 2, 3]
    x = np.ones(3, np.float32)
    for counts, isolated in ((False, False), (True, False), (False, False), (False, True)):
        report = kernel.launch(1, 3, (x,), device=emulator, counts=counts, isolated=isolated)
        assert (report.counters is not None) == counts
    assert x.tolist() == [1, 16, 81]
    assert kernel.variables["launches"] == 4


def test_a_fault_is_raised(emulator: Device) -> None:
    x = np.zeros(150, np.int32)
    with pytest.raises(MemoryAccessError, match=r"x\[150\]"):
        Kernel(TALLY, "tally").launch(
            2, 96, (151, x, np.zeros(8, np.int32), x), device=emulator, counts=False
        )


def test_a_profile_and_a_recording_count_all_the_same() -> None:
    emulator = Emulator()
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    source = 'extern "C" __global__ void copy(const float* x, float* y) '
    source += "{ y[threadIdx.x] = x[threadIdx.x]; }"
    compiled = Kernel(source, "copy").compile(emulator.arch)
    launch = Launch((1, 1, 1), (64, 1, 1), (x, y), counts=False)
    recorded, _ = emulator.record(compiled, launch, [(0, 0, 0)])
    for report in (emulator.profile(compiled, launch), recorded):
        assert report.counters is not None
        assert report.counters.global_load_sectors == 8
    counted = emulator.launch(compiled, replace(launch, counts=True))
    assert counted.counters == recorded.counters
