"""Occupancy: the guide's figures by hand, NVIDIA's own calculator, and the driver's answer."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise import compiler
from tilewise.cli.main import main
from tilewise.devices import Device, limits
from tilewise.devices.emulator import Emulator
from tilewise.devices.occupancy import (
    ARCHITECTURES,
    Multiprocessor,
    Occupancy,
    blocks_per_multiprocessor,
    multiprocessor,
    occupancy,
)
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import rung

KB = 1024


# ---- by hand ----


def test_every_architecture_of_the_guide() -> None:
    # CUDA Programming Guide 13, "Compute Capabilities": threads, blocks, shared memory in KB; and
    # the most of it a block.
    guide = {
        "sm_75": (1024, 16, 64, 64),
        "sm_80": (2048, 32, 164, 163),
        "sm_86": (1536, 16, 100, 99),
        "sm_87": (1536, 16, 164, 163),
        "sm_88": (1536, 16, 100, 99),
        "sm_89": (1536, 24, 100, 99),
        "sm_90": (2048, 32, 228, 227),
        "sm_100": (2048, 32, 228, 227),
        "sm_103": (2048, 32, 228, 227),
        "sm_110": (1536, 24, 228, 227),
        "sm_120": (1536, 24, 100, 99),
        "sm_121": (1536, 24, 100, 99),
    }
    assert tuple(guide) == ARCHITECTURES
    for arch, (threads, blocks, shared, block_shared) in guide.items():
        place = multiprocessor(arch)
        assert (place.threads, place.blocks, place.shared) == (threads, blocks, shared * KB)
        assert place.max_shared == block_shared * KB == limits.max_shared(arch)
        assert (place.registers, place.name) == (64 * KB, arch)
    assert multiprocessor("sm_90a").threads == 2048


def test_registers_by_hand() -> None:
    # 46 x 32 registers a warp are 1,472, rounded up to 256 are 1,536. A part has 16,384: 10 warps,
    # four parts 40. Blocks of 16 warps: 2.
    found = occupancy("sm_80", 512, 46, 0)
    assert -(-46 * 32 // 256) * 256 == 1536
    assert (found.by_registers, found.blocks) == (16384 // 1536 * 4 // 16, 2)
    assert found.limits == ("registers",)
    assert (found.warps, found.max_warps, found.share) == (2 * 16, 64, 0.5)
    # Not 65,536 // 1,536 = 42 warps: of blocks of 21 warps 1 fits, and not 2.
    assert occupancy("sm_80", 21 * 32, 46, 0).by_registers == 1
    # 255 registers, as 256: a block has at most 65,536 / 256 = 256 threads.
    assert occupancy("sm_90", 256, 255, 0).blocks == 1
    none = occupancy("sm_90", 257, 255, 0)
    assert (none.blocks, none.warps, none.share, none.limits) == (0, 0, 0, ("registers",))


def test_shared_memory_by_hand() -> None:
    # The driver takes 1 KB a block: 228 KB hold 228 / (8 + 1) = 25 blocks of 8 KB.
    found = occupancy("sm_90", 32, 32, 8 * KB)
    assert (found.by_shared, found.blocks, found.limits) == (25, 25, ("shared memory",))
    # In units of 128 bytes: 1 byte more makes it 9 KB and 128 bytes.
    assert occupancy("sm_90", 32, 32, 8 * KB + 1).by_shared == 228 * KB // (9 * KB + 128) == 24
    # Turing takes nothing, and has units of 256 bytes.
    assert occupancy("sm_75", 32, 32, 8 * KB).by_shared == 8
    assert occupancy("sm_75", 32, 32, 8 * KB + 1).by_shared == 64 * KB // (8 * KB + 256) == 7
    assert occupancy("sm_75", 32, 32, 0).by_shared is None
    assert occupancy("sm_90", 32, 32, 227 * KB).blocks == 1


def test_warps_blocks_and_barriers_by_hand() -> None:
    assert occupancy("sm_86", 1024, 32, 0).blocks == 1536 // 1024 == 1
    assert occupancy("sm_86", 1024, 32, 0).share == 32 / 48
    small = occupancy("sm_89", 32, 32, 0)
    assert (small.blocks, small.limits, small.share) == (24, ("blocks",), 0.5)
    # 33 threads are two warps.
    assert occupancy("sm_90", 33, 16, 0).by_warps == 32
    both = occupancy("sm_90", 64, 32, 0)
    assert (both.blocks, both.limits) == (32, ("blocks", "warps", "registers"))
    # Hopper has 64 named barriers, as Nsight Compute reads there: 21 blocks of 3.
    assert occupancy("sm_90", 32, 32, 0, barriers=3).by_barriers == 64 // 3 == 21
    assert occupancy("sm_90", 32, 32, 0, barriers=16).limits == ("barriers",)
    assert occupancy("sm_80", 32, 32, 0, barriers=16).by_barriers is None


def test_registers_left_out() -> None:
    found = occupancy("sm_90", 1024, 0, 0)
    assert (found.by_registers, found.blocks, found.limits) == (None, 2, ("warps",))


def test_a_multiprocessor_of_ones_own() -> None:
    small = Multiprocessor(threads=512, blocks=4, shared=16 * KB, registers=8 * KB, name="small")
    found = occupancy(small, 128, 40, 2 * KB)
    # 8,192 / 4 registers a part, 1,280 a warp: 1 warp, so 4 warps in all, one block of 4.
    assert (found.by_registers, found.by_warps, found.by_shared) == (1, 4, 8)
    assert found.arch == "small"
    assert occupancy(small, 1024, 0, 0).blocks == 0
    with pytest.raises(ValueError, match="a block of small has from 0 to 16,384 bytes"):
        occupancy(small, 128, 40, 16 * KB + 1)


def test_to_dict() -> None:
    found = occupancy("sm_90", 256, 40, 2048)
    assert json.loads(json.dumps(found.to_dict())) == {
        "arch": "sm_90", "threads": 256, "registers": 40, "shared": 2048, "barriers": 0,
        "blocks": 6, "warps": 48, "max_warps": 64, "by_blocks": 32, "by_warps": 8,
        "by_registers": 6, "by_shared": 76, "by_barriers": None,
        "limits": ["registers"], "share": 0.75,
    }  # fmt: skip


# ---- bad input ----


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 32, 0), "threads is 0; a block has from 1 to 1,024"),
        ((1025, 32, 0), "threads is 1,025; a block has from 1 to 1,024"),
        ((32, 256, 0), "registers is 256; a thread has from 0 to 255"),
        ((32, -1, 0), "registers is -1"),
        ((32, 32, -1), "shared is -1; a block of sm_90 has from 0 to 232,448 bytes"),
        ((32, 32, 227 * KB + 1), "shared is 232,449; a block of sm_90"),
    ],
)
def test_what_no_block_can_have(given: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        occupancy("sm_90", *given)


def test_other_bad_input() -> None:
    with pytest.raises(ValueError, match="barriers is 17; a block has from 0 to 16"):
        occupancy("sm_90", 32, 32, 0, barriers=17)
    with pytest.raises(TypeError, match=r"threads is 32\.0; it must be an integer"):
        occupancy("sm_90", 32.0, 32, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sm_70 has is not known; there are sm_75, .*sm_121"):
        occupancy("sm_70", 32, 32, 0)
    with pytest.raises(ValueError, match="no architecture"):
        multiprocessor("hopper")
    with pytest.raises(ValueError, match="blocks is 0; it must be at least 1"):
        Multiprocessor(1024, 0, 16 * KB)
    with pytest.raises(ValueError, match="shared is -1; it must be at least 0"):
        Multiprocessor(1024, 8, -1)


# ---- at any figures ----

ARCH = st.sampled_from(ARCHITECTURES)
THREADS = st.integers(1, 1024)
REGISTERS = st.integers(1, 255)
SHARED = st.integers(0, 227 * KB)
BARRIERS = st.integers(0, 16)


def any_occupancy(arch: str, threads: int, registers: int, shared: int, **more: int) -> Occupancy:
    return occupancy(arch, threads, registers, min(shared, limits.max_shared(arch)), **more)


@given(ARCH, THREADS, REGISTERS, SHARED, BARRIERS)
def test_as_many_as_fit_and_no_more(
    arch: str, threads: int, registers: int, shared: int, barriers: int
) -> None:
    found = any_occupancy(arch, threads, registers, shared, barriers=barriers)
    place = multiprocessor(arch)
    warps = -(-threads // 32)

    def fits(blocks: int) -> dict[str, bool]:
        of_warp = -(-registers * 32 // 256) * 256
        in_a_part = -(-blocks * warps // 4)  # where the warps are dealt out evenly
        reserved = blocks * place.reserved_shared
        return {
            "blocks": blocks <= place.blocks,
            "warps": blocks * warps * 32 <= place.threads,
            "registers": in_a_part * of_warp <= place.registers // 4,
            "shared memory": blocks * found.shared + reserved <= place.shared,
            "barriers": not place.barriers or blocks * barriers <= place.barriers,
        }

    assert all(fits(found.blocks).values())
    assert found.limits
    for name, held in fits(found.blocks + 1).items():
        if name != "shared memory":
            assert held == (name not in found.limits)
    if "shared memory" in found.limits:  # one more would not fit, a block being whole units
        each = found.shared + place.reserved_shared + place.shared_unit - 1
        assert (found.blocks + 1) * each > place.shared
    assert found.warps == found.blocks * warps <= found.max_warps
    assert found.resident_threads <= place.threads
    assert 0 <= found.share <= 1


@given(ARCH, THREADS, REGISTERS, REGISTERS, SHARED, SHARED)
def test_more_registers_or_shared_memory_never_allow_more_blocks(
    arch: str, threads: int, registers: int, more: int, shared: int, wider: int
) -> None:
    few, many = sorted((registers, more))
    narrow, wide = sorted((shared, wider))
    least = any_occupancy(arch, threads, few, narrow)
    assert any_occupancy(arch, threads, many, narrow).blocks <= least.blocks
    assert any_occupancy(arch, threads, few, wide).blocks <= least.blocks
    assert occupancy(arch, threads, 0, 0).blocks >= least.blocks


# ---- NVIDIA's own calculator, where there is a CUDA toolkit ----

CALCULATOR = r"""
#include <climits>
#include <cstring>
#include "cuda_occupancy.h"

extern "C" int reckon(const int* place, int threads, int registers, int shared, int* out)
{
    cudaOccDeviceProp device;
    device.computeMajor = place[0] / 10;
    device.computeMinor = place[0] % 10;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = place[1];
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = place[2];
    device.reservedSharedMemPerBlock = place[3];
    device.sharedMemPerBlockOptin = place[2] - place[3];
    device.numSms = 1;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin;
    cudaOccDeviceState state;
    cudaOccResult result;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(
        &result, &device, &kernel, &state, threads, shared);
    int found[6] = {
        result.activeBlocksPerMultiprocessor, result.blockLimitBlocks, result.blockLimitWarps,
        result.blockLimitRegs, result.blockLimitSharedMem, (int)result.limitingFactors};
    memcpy(out, found, sizeof found);
    return error;
}
"""


@pytest.fixture(scope="session")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``cuda_occupancy.h``, as a function."""
    homes = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    homes += sorted(Path("/usr/local").glob("cuda-*"), reverse=True)
    headers = (home / "include" / "cuda_occupancy.h" for home in homes)
    # An older one does not know every architecture of the table.
    header = next((found for found in headers if found.is_file()), None)
    host = shutil.which("c++") or shutil.which("g++")
    if header is None or host is None or "case 11:" not in header.read_text():
        pytest.skip("needs a CUDA toolkit (13 or later) and a C++ compiler")
    folder = tmp_path_factory.mktemp("calculator")
    (folder / "calculator.cpp").write_text(CALCULATOR)
    library = folder / "calculator.so"
    command = [host, "-shared", "-fPIC", f"-I{header.parent}", "-o", str(library), "calculator.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(library)).reckon


BITS = {"warps": 1, "registers": 2, "shared memory": 4, "blocks": 8}
UNLIMITED = 2**31 - 1


@given(ARCH, THREADS, st.integers(0, 255), SHARED)
def test_as_nvidia_reckons(
    calculator: Any, arch: str, threads: int, registers: int, shared: int
) -> None:
    mine = any_occupancy(arch, threads, registers, shared)
    place = multiprocessor(arch)
    capability = limits.compute_capability(arch)
    figures = (capability, place.threads, place.shared, place.reserved_shared)
    out = (ctypes.c_int * 6)()
    assert calculator((ctypes.c_int * 4)(*figures), threads, registers, mine.shared, out) == 0
    limit = [mine.by_blocks, mine.by_warps, mine.by_registers, mine.by_shared]
    assert [mine.blocks, *(UNLIMITED if by is None else by for by in limit)] == list(out[:5])
    assert sum(BITS[name] for name in mine.limits) == out[5]


# ---- a kernel, on a device ----

HOLDS = r"""
extern "C" __global__ void BOUNDS holds(int n, float* x)
{
    __shared__ float s[STATIC];
    float held[HELD];  // in registers
    for (int i = 0; i < HELD; ++i) held[i] = x[i * n + threadIdx.x];
    for (int t = 0; t < n; ++t)
        for (int i = 0; i < HELD; ++i) held[i] = held[i] * held[(i + 1) % HELD] + x[t];
    float sum = 0;
    for (int i = 0; i < HELD; ++i) sum += held[i];
    s[threadIdx.x % STATIC] = sum;
    __syncthreads();
    x[threadIdx.x] = s[(threadIdx.x + 1) % STATIC];
}
"""
BARRIERS_USED = r"""
extern "C" __global__ void meets(float* x)
{
    asm volatile("bar.sync %0;" ::"n"(BARRIER));
    x[threadIdx.x] = 1;
}
"""


def test_the_emulator_says_the_same() -> None:
    kernel = Kernel(HOLDS, "holds", {"HELD": 64, "STATIC": 2048, "BOUNDS": ""})
    for arch in ("sm_75", "sm_90a"):
        emulator = Emulator(arch)
        compiled = kernel.compile(arch)
        resources = compiled.resources
        assert (resources.shared_bytes, resources.spill_bytes) == (8192, 0)
        for threads, shared in ((32, 0), (256, 10_000), (512, 50_000)):
            found = occupancy(arch, threads, resources.registers, 8192 + shared)
            assert emulator.blocks_per_multiprocessor(compiled, threads, shared) == found.blocks
        most = limits.max_shared(arch) - 8192
        assert emulator.blocks_per_multiprocessor(compiled, 32, most) == 1
        assert emulator.blocks_per_multiprocessor(compiled, 32, most + 1) == 0
        assert emulator.blocks_per_multiprocessor(compiled, 1025) == 0
        for threads, shared in ((0, 0), (32, -1)):
            with pytest.raises(ValueError, match=f"a block of {threads} threads with {shared}"):
                blocks_per_multiprocessor(arch, resources, threads, shared)


def same_as_the_driver(gpu: Device, kernel: Kernel, threads: int, shared: int) -> int:
    """Registers a thread, once the driver's answer is ours."""
    compiled = kernel.compile(gpu.arch)
    resources = compiled.resources
    total = resources.shared_bytes + shared
    mine = occupancy(gpu.arch, threads, resources.registers, total, barriers=resources.barriers)
    assert gpu.blocks_per_multiprocessor(compiled, threads, shared) == mine.blocks, mine
    return resources.registers


def test_as_the_driver_says(gpu: Device) -> None:
    seen = set()
    most = limits.max_shared(gpu.arch)
    for held in (1, 24, 40, 64, 80, 96, 112, 128, 160, 192, 250):
        kernel = Kernel(HOLDS, "holds", {"HELD": held, "STATIC": 8, "BOUNDS": ""})
        for threads in (1, 33, 100, 1000, *range(32, 1025, 32)):
            seen.add(same_as_the_driver(gpu, kernel, threads, 0))
        for kilobytes in range(0, 201, 8):
            for shared in (kilobytes * KB, kilobytes * KB + 97):
                if shared + 32 <= most:
                    for threads in (32, 128, 416, 1024):
                        same_as_the_driver(gpu, kernel, threads, shared)
    assert len(seen) > 6  # the kernels differ
    for bound in (64, 256, 1024):
        bounds = f"__launch_bounds__({bound})"
        kernel = Kernel(HOLDS, "holds", {"HELD": 96, "STATIC": 1000, "BOUNDS": bounds})
        for threads in range(32, bound + 1, 32):
            same_as_the_driver(gpu, kernel, threads, 5000)


def test_barriers_as_the_driver_says(gpu: Device) -> None:
    for barrier in (0, 1, 3, 7, 15):
        kernel = Kernel(BARRIERS_USED, "meets", {"BARRIER": barrier})
        assert kernel.compile(gpu.arch).resources.barriers == barrier + 1
        for threads in (32, 256, 1024):
            same_as_the_driver(gpu, kernel, threads, 0)


# ---- the command ----


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["occupancy", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_rung_on_every_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "tiled", "--tile", "16")
    known = compiler.architectures()
    # With the instructions that the GPU alone has, where it has some.
    own = [f"{x}a" if f"{x}a" in known else x for x in ARCHITECTURES if x in known]
    assert [row["arch"] for row in found["rows"]] == own
    assert (found["kernel"], found["tile"], found["dtype"]) == ("tiled", 16, "float32")
    assert (found["block"], found["threads"]) == ([16, 16, 1], 256)
    assert found["left_out"] == []
    for row in found["rows"]:
        resources = rung("tiled").kernel("float32", 16).compile(row["arch"]).resources
        assert (row["registers"], row["shared"]) == (resources.registers, 2 * 16 * 16 * 4)
        expected = occupancy(row["arch"], 256, resources.registers, 2048, barriers=1)
        assert row == expected.to_dict()
        assert row["blocks"] > 0


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["occupancy", "tiled", "--shared", "60000", "--arch", "sm_90", "--arch", "sm_89"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "60,000 bytes of dynamic shared memory" in out
    # 8,192 static bytes, 60,000 dynamic, 1,024 of the driver: 3 times in 228 KB, once in 100 KB.
    hopper, ada = (line.split() for line in out.splitlines() if line.startswith("sm_"))
    assert hopper[2:8] == ["68,192", "2", "64", "of", "64", "100%"]
    assert ada[2:8] == ["68,192", "1", "32", "of", "48", "67%"]


@pytest.mark.thorough
def test_a_kernel_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text(
        """extern "C" __global__ void wide(real* x) {
            __shared__ real s[TILE * 100];
            s[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = s[blockDim.x - threadIdx.x];
        }
        extern "C" __global__ void late(float* x) { asm volatile("cp.async.wait_all;"); *x = 1; }"""
    )
    words = (f"{path}:wide", "--dtype", "float64", "--tile", "8", "--arch", "sm_90a")
    (row,) = document(capsys, *words)["rows"]
    assert (row["arch"], row["threads"], row["shared"]) == ("sm_90a", 64, 8 * 100 * 8)
    (row,) = document(capsys, *words, "--block", "96,2,2", "--shared", "1000")["rows"]
    assert (row["threads"], row["shared"]) == (384, 7400)
    # What no one asked for by name may fail, if another does not.
    path.write_text(path.read_text()[path.read_text().index('extern "C" __global__ void late') :])
    found = document(capsys, f"{path}:late", "--block", "32")
    assert [left["arch"] for left in found["left_out"]] == ["sm_75"]
    assert "sm_80 or higher" in found["left_out"][0]["why"]
    assert found["rows"][0]["arch"] == "sm_80"
    assert main(["occupancy", f"{path}:late", "--block", "32"]) == 0
    assert "sm_75 is left out: " in capsys.readouterr().out
    assert main(["occupancy", f"{path}:late", "--arch", "sm_75"]) == 2


def test_a_kernel_that_does_not_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "holds.cu"
    path.write_text(HOLDS.replace("BOUNDS", "").replace("STATIC", "8").replace("HELD", "192"))
    words = ["occupancy", f"{path}:holds", "--block", "1024", "--arch", "sm_90"]
    assert main(words) == 0
    out = capsys.readouterr().out
    (row,) = (line.split() for line in out.splitlines() if line.startswith("sm_90"))
    assert row[3:] == ["0", "0", "of", "64", "0%", "registers"]
    assert "0 blocks: the kernel can't be launched so." in out


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["tiles"], ["'tiles'", "tiled"]),
        (["nowhere.cu:f"], ["nowhere.cu"]),
        (["tiled", "--arch", "sm_70"], ["sm_70", "sm_75"]),
        (["tiled", "--arch", "turing"], ["turing", "sm_90"]),
        (["tiled", "--tile", "16", "--block", "32,32,2"], ["threads is 2,048", "1,024"]),
        (["tiled", "--block", "0"], ["at least 1"]),
        (["tiled", "--block", "2,2,65"], ["--block is 2,2,65", "along z a block has at most 64"]),
        (["tiled", "--block", "16x16"], ["--block is '16x16'", "16,16"]),
        (["tiled", "--shared", "-1"], ["--shared is -1"]),
        (["tiled", "--shared", "300000"], ["--shared is 300,000 bytes", "8,192 of its own"]),
        (["tiled", "--tile", "33"], ["33", "2 to 32"]),
        (["single_thread", "--tile", "4"], ["no tiles"]),
        (["tiled", "--dtype", "int8"], ["int8", "float64"]),
    ],
)
def test_bad_arguments(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["occupancy", *words]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in parts), told
    assert main(["occupancy", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out).keys() == {"error", "kind"}
