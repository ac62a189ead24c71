"""Launches whose blocks wait for each other, and threads that wait for what nobody writes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import thorough

import tilewise
from tilewise.cli.main import main
from tilewise.devices import Device
from tilewise.errors import BarrierError, LaunchError, RaceError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

pytestmark = pytest.mark.usefixtures("uncounted", "ptx_alone")

# What cooperative_groups::this_grid().sync() does, without its headers.
GRID = r"""
__device__ unsigned* grid_barrier() {
    unsigned high, low;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    return (unsigned*)((unsigned long long)high << 32 | low) + 1;
}
__device__ void sync(unsigned* arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned old, now, add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
        asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;"
                     : "=r"(old) : "l"(arrived), "r"(add) : "memory");
        do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
        while ((int)(old ^ now) >= 0);
    }
    __syncthreads();
}
extern "C" __global__ void turn(int steps, int* from, int* to) {
    int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int step = 0; step < steps; ++step) {
        int* kept = step % 2 ? to : from, *next = step % 2 ? from : to;
        next[i] = kept[n - 1 - i] + 1;
        SYNC;
    }
}"""
# As the headers' barrier does, this one traps where there is no memory for it.
GROUP = GRID.replace(
    'extern "C" __global__',
    """struct grid_group {
    static __device__ void sync_all() {
        unsigned* arrived = grid_barrier();
        if (arrived == (unsigned*)4) __trap();
        sync(arrived);
    }
};
extern "C" __global__""",
)
HEADERS = r"""
#include <cooperative_groups.h>
extern "C" __global__ void turn(int n, int* x, int* y) {
    auto grid = cooperative_groups::this_grid();
    x[grid.thread_rank()] = n;
    grid.sync();
    y[grid.thread_rank()] = x[grid.size() - 1 - grid.thread_rank()];
}"""
# Every block counts itself, and then waits until the count is full.
COUNTED = r"""
extern "C" __global__ void counted(int wanted, int* count, int* out) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1);
        while (*(volatile int*)count < wanted) {}
        __threadfence();
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = *(volatile int*)count;
}"""
# Two warps poll, the one before and the other behind the work of a third, which both wait for.
BETWEEN = r"""
extern "C" __global__ void between(volatile int* first, volatile int* second, int* out) {
    int warp = threadIdx.x / 32;
    if (warp == 0) {
        while (*first == 0) {}
        out[threadIdx.x] = 1;
    } else if (warp == 1) {
        int seen = 0;
        for (int i = 0; i < 1000; ++i) seen += *second;
        out[threadIdx.x] = seen;
        *first = 1;
        *second = 1;
    } else {
        while (*second == 0) {}
        out[threadIdx.x] = 3;
    }
}"""
# A thread that waits gives up by itself, by a count or by the clock.
PATIENT = r"""
extern "C" __global__ void patient(volatile int* flag, int* out) {
    int polls = 0;
    while (*flag == 0 && polls < 2000) ++polls;
    long long begin = clock64();
    while (*flag == 0 && clock64() - begin < 20000) {}
    *out = polls;
}"""


def turned(device: Device, blocks: int, sync: str = "sync(grid_barrier())", **how: Any) -> bool:
    """Launch, and say whether it is right."""
    kernel = Kernel(GRID, "turn", {"SYNC": sync})
    x = np.arange(64 * blocks, dtype=np.int32)
    y = np.zeros_like(x)
    kernel.launch(blocks, 64, (3, x, y), device=device, **{"cooperative": True, **how})
    return np.array_equal(y, np.arange(64 * blocks)[::-1] + 3)


@pytest.mark.parametrize("blocks", [1, 2, 7, 600])
def test_blocks_wait_for_each_other(emulator: Device, blocks: int) -> None:
    assert turned(emulator, blocks)


def test_a_grid_barrier_orders_what_blocks_do(emulator: Device) -> None:
    assert turned(emulator, 4, global_races=True)
    with pytest.raises(RaceError, match="nothing that orders it"):
        turned(emulator, 4, "(void)0", global_races=True)


def test_a_grid_barrier_in_a_launch_that_is_not_cooperative(emulator: Device) -> None:
    kernel = Kernel(GROUP, "turn", {"SYNC": "grid_group::sync_all()"})
    x = np.arange(256, dtype=np.int32)
    y = np.zeros_like(x)
    kernel.launch(4, 64, (3, x, y), device=emulator, cooperative=True, global_races=True)
    assert (y == np.arange(256)[::-1] + 3).all()
    (line,) = (i for i, text in enumerate(GROUP.split("\n"), 1) if text.strip() == "SYNC;")
    with pytest.raises(LaunchError, match=rf"<source>:{line}: .* launch it with cooperative=True"):
        kernel.launch(4, 64, (3, x, y), device=emulator)


@thorough  # NVRTC takes seconds for these headers
def test_the_headers_grid_barrier(emulator: Device) -> None:
    x, y = np.zeros(256, np.int32), np.zeros(256, np.int32)
    kernel = Kernel(HEADERS, "turn")
    kernel.launch(4, 64, (9, x, y), device=emulator, cooperative=True, global_races=True)
    assert (y == 9).all()
    with pytest.raises(LaunchError, match=r"<source>:6: .* launch it with cooperative=True"):
        kernel.launch(4, 64, (9, x, y), device=emulator)


def test_more_blocks_than_the_gpu_holds(emulator: Device) -> None:
    # 64 threads: 32 blocks a multiprocessor, of which an H200 has 132, and an A100 108.
    args = (1, np.zeros(64, np.int32), np.zeros(64, np.int32))
    kernel = Kernel(GRID, "turn", {"SYNC": "sync(grid_barrier())"})
    with pytest.raises(LaunchError, match=r"4,225 blocks: the H200 holds 4,224 of them at once"):
        kernel.launch(4225, 64, args, device=emulator, cooperative=True)
    with pytest.raises(
        LaunchError, match=r"the H200 holds 1,188 of them at once, 9 on each of 132"
    ):
        kernel.launch(1189, 64, args, 24 << 10, emulator, cooperative=True)
    with pytest.raises(LaunchError, match="the A100 holds 3,456 of them at once"):
        kernel.launch(3457, 64, args, device=tilewise.emulator("sm_80"), cooperative=True)


def counted(blocks: int, wanted: int, **how: Any) -> tuple[LaunchReport, Any]:
    count, out = np.zeros(1, np.int32), np.zeros(64 * blocks, np.int32)
    report = Kernel(COUNTED, "counted").launch(
        blocks, 64, (wanted, count, out), device="emulator", **how
    )
    return report, out


def test_a_barrier_of_ones_own(emulator: Device) -> None:
    for blocks in (3, 600):
        _, out = counted(blocks, blocks, cooperative=True)
        assert (out == blocks).all()


def test_waiting_for_blocks_that_have_not_begun(emulator: Device) -> None:
    with pytest.raises(BarrierError) as caught:
        counted(600, 600)
    (finding,) = caught.value.findings
    assert (finding.line, finding.array, finding.index) == (6, "count", 0)
    assert "waits forever: it reads count[0] again and again" in finding.message
    assert "344 of the launch's 600 blocks have not begun" in finding.message
    assert "cooperative=True" in finding.message


def test_waiting_for_what_nobody_writes(emulator: Device) -> None:
    for how in ({}, {"cooperative": True}):
        with pytest.raises(BarrierError, match="waits forever: it reads") as caught:
            counted(3, 4, **how)
        assert "begun" not in str(caught.value)
    report, _ = counted(3, 4, checks="collect")
    assert [finding.kind for finding in report.findings] == ["barrier"]


def test_threads_between_two_that_poll_get_a_turn(emulator: Device) -> None:
    first, second = np.zeros(1, np.int32), np.zeros(1, np.int32)
    out = np.zeros(96, np.int32)
    Kernel(BETWEEN, "between").launch(1, 96, (first, second, out), device=emulator)
    assert out.reshape(3, 32).tolist() == [[1] * 32, [0] * 32, [3] * 32]


def test_who_gives_up_by_itself_is_left_to_it(emulator: Device) -> None:
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    Kernel(PATIENT, "patient").launch(1, 1, (flag, out), device=emulator)
    assert out[0] == 2000


def test_profiles_and_recordings(emulator: Device) -> None:
    kernel = Kernel(GRID, "turn", {"SYNC": "sync(grid_barrier())"})
    x = np.zeros(512, np.int32)
    found = kernel.profile(8, 64, (2, x, x.copy()), cooperative=True)
    assert found.blocks_run == 8
    assert any("cooperative launch run together" in note for note in found.report.notes)
    whole = kernel.profile(8, 64, (2, x, x.copy()), cooperative=True, whole=True)
    assert whole.counters == found.counters


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checks", ["raise", "collect", "off"])
def test_a_profile_of_blocks_that_wait(emulator: Device, checks: str) -> None:
    args = (3, np.zeros(1, np.int32), np.zeros(192, np.int32))
    found = Kernel(COUNTED, "counted").profile(3, 64, args, checks=checks)
    assert found.blocks_run == 3
    assert found.report.findings == ()


def test_isolated(emulator: Device) -> None:
    assert turned(emulator, 5, isolated=True)


def test_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "counted.cu"
    source.write_text(COUNTED)
    line = ["run", f"{source}:counted", "--grid", "300", "--block", "64", "--device", "emulator",
            "--args", "wanted=300", "count=zeros:1", "out=zeros:19200", "--json"]  # fmt: skip
    assert main([*line, "--cooperative", "--expect", "out = 300"]) == 0
    assert json.loads(capsys.readouterr().out)["cooperative"] is True
    assert main(line) == 1
    told = capsys.readouterr()
    assert "launch with --cooperative, so that all blocks run together" in told.err
    assert "cooperative=" not in told.out + told.err


@pytest.mark.parametrize("command", ["run", "profile", "watch", "roofline"])
def test_the_launch_that_is_suggested_is_cooperative(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    source = GRID.replace("step < steps", "step < 2").replace("SYNC", "sync(grid_barrier())")
    Path("turn.cu").write_text(source)
    assert main([command, "turn.cu:turn", "--block", "32"]) == 2
    told = capsys.readouterr().err
    line = next(x for x in told.splitlines() if x.startswith("  tilewise "))
    assert "--cooperative" in line
    assert f"tilewise {command} " in line
    assert main(shlex.split(line)[1:]) == 0


@thorough
def test_commands_name_the_option_of_a_cooperative_launch(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turn.cu").write_text(HEADERS)
    line = ["turn.cu:turn", "--grid", "4", "--block", "64", "--args", "9", "zeros:256", "zeros:256"]
    on = {"run": ["--device", "emulator"], "roofline": ["--on", "H200"]}
    refused = "turn.cu:6: thread (0, 0, 0) of block (0, 0, 0) waits for the whole grid, in a launch"
    for command in ("run", "profile", "roofline", "watch"):
        assert main([command, *line, *on.get(command, [])]) == 2
        told = capsys.readouterr().err
        assert refused in told
        assert "launch it with --cooperative" in told
        assert "cooperative=" not in told
        assert main([command, *line, "--cooperative", *on.get(command, [])]) == 0
