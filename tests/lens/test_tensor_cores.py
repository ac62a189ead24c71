"""The probes of the tensor cores do the work that is counted, and are for the GPUs they name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu

from tilewise.devices import Device
from tilewise.devices.emulated import emulator
from tilewise.lens import tensor_cores
from tilewise.lens.ceilings import count, loops
from tilewise.lens.tensor_cores import LANES, SHARED_BYTES, THREADS, bits, tensor_core_flops

HALVES = ("bfloat16", "float16")


def place_of(device: Device, arch: str) -> Device:
    """The device under test, where it can run code for ``arch``; an emulator of it by default."""
    if device.name == "emulator":
        return emulator(arch)
    if arch == "sm_90a" and device.arch != arch:
        pytest.skip("needs a GPU of compute capability 9.0")
    return device


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", HALVES)
def test_wgmma_does_the_work_that_is_counted(device: Device, dtype: str) -> None:
    place = place_of(device, "sm_90a")
    out = np.zeros((1, 256), np.float32)
    ones = bits(np.ones(SHARED_BYTES // 2), dtype)
    report = tensor_cores.wgmma_kernel(dtype).launch(
        1, 256, (1, ones, out), shared=SHARED_BYTES, device=place
    )
    assert (out == 128 * 4096).all()  # 128 sums of a thread, each over k = 4096
    if report.counters is not None:
        totals = 256 * 128  # each thread adds its sums up at the end
        assert report.counters.flops == tensor_cores.FLOPS_A_SUM + totals


@pytest.mark.parametrize(("dtype", "half"), [("bfloat16", "bf16"), ("float16", "f16")])
def test_the_probes_compile_without_spills(dtype: str, half: str) -> None:
    by_wgmma = tensor_cores.wgmma_kernel(dtype).compile("sm_90a")
    assert by_wgmma.resources.spill_bytes == 0
    assert f"wgmma.mma_async.sync.aligned.m64n256k16.f32.{half}.{half}" in by_wgmma.ptx
    by_mma = tensor_cores.mma_kernel(dtype).compile("sm_80")
    assert by_mma.resources.spill_bytes == 0
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{half}.{half}" in by_mma.ptx
    assert tensor_cores.float64_kernel().compile("sm_90a").resources.spill_bytes == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", HALVES)
def test_mma_does_the_work_that_is_counted(device: Device, dtype: str) -> None:
    rounds, blocks = 3, 2
    out = np.zeros((blocks, THREADS), np.float32)
    ones = bits(np.ones(LANES * 12), dtype)
    kernel = tensor_cores.mma_kernel(dtype)
    report = kernel.launch(blocks, THREADS, (rounds, ones, out), device=place_of(device, "sm_80"))
    # Of a lane 4 of each of 8 sums, each over k = 16 of each round.
    assert (out == rounds * 8 * 4 * 16).all()
    if report.counters is not None:
        warps = blocks * THREADS // LANES
        expected = warps * rounds * tensor_cores.MMA_FLOPS_A_ROUND + blocks * THREADS * 32
        assert report.counters.flops == expected


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_float64_does_the_work_that_is_counted(device: Device, arch: str) -> None:
    rounds, blocks = 3, 2
    out = np.zeros((blocks, THREADS))
    args = (rounds, np.ones(LANES * 6), out)
    report = tensor_cores.float64_kernel().launch(
        blocks, THREADS, args, device=place_of(device, arch)
    )
    # Of a lane 4 of each of 8 sums, each over k = 8 of each round.
    assert (out == rounds * 8 * 4 * 8).all()
    if report.counters is not None:
        warps = blocks * THREADS // LANES
        expected = warps * rounds * tensor_cores.FLOAT64_FLOPS_A_ROUND + blocks * THREADS * 32
        assert report.counters.flops == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_the_loop_of_mma_has_products_and_little_else(arch: str) -> None:
    compiled = tensor_cores.mma_kernel("bfloat16").compile(arch)
    assert compiled.resources.spill_bytes == 0
    (loop,) = (each for each in loops(compiled) if count(each, "HMMA"))
    assert count(loop, "HMMA") % 8 == 0  # each instruction of PTX is one, the loop unrolled or not
    assert len(loop) - count(loop, "HMMA") <= 8


@pytest.mark.parametrize(
    ("arch", "measured"),
    [
        ("sm_75", ()),
        ("sm_80", (*HALVES, "float64")),
        ("sm_86", HALVES),
        ("sm_89", HALVES),
        ("sm_90a", (*HALVES, "float64")),
        ("sm_100a", ("float64",)),  # whose products of 16 bits are of other instructions
        ("sm_120a", HALVES),
    ],
)
def test_each_gpu_has_its_probe_or_none(arch: str, measured: tuple[str, ...]) -> None:
    gpu = FakeGpu()
    gpu.arch = arch
    found = {dtype: tensor_core_flops(gpu, dtype, 0.1) for dtype in tensor_cores.DTYPES}
    assert {dtype for dtype, flops in found.items() if flops is not None} == set(measured)
    if measured == HALVES:
        (launch,) = gpu.launches.values()
        assert launch.grid == (12, 1, 1)  # as many as are resident at once
        assert found["float16"] == pytest.approx(12 * 8 * 40_000 * 8 * 2 * 16 * 8 * 16 / 1e-3)


def test_values_are_rounded_to_their_type() -> None:
    values: Any = np.array([1.0, -2.5])
    assert bits(values, "bfloat16").tolist() == [0x3F80, 0xC020]
    assert bits(values, "float16").tolist() == [0x3C00, 0xC100]
