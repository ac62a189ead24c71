"""What the checks find, as ``tilewise run`` and ``tilewise profile`` tell it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from commands import Tilewise, save

from tilewise.cli.main import main
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("emulator", "k_cu")


def test_findings_are_exit_code_1(tilewise: Tilewise) -> None:
    words = ("run", "k.cu:saxpy", "--grid", 1, "--block", 32, "--args", 8, 1, "zeros:8", "empty:8")
    found = tilewise(*words)
    assert found.code == 1
    assert "k.cu:5: uninitialised: thread (0, 0, 0)" in found.err
    assert "y[0]" in found.err
    document = tilewise(*words, "--json").json
    assert document["kind"] == "UninitializedReadError"
    assert document["findings"][0]["array"] == "y"


FAULTS = """extern "C" __global__ void faults(const int* bound, float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = s[63 - threadIdx.x];
    x[64 + threadIdx.x] = 1;
    x[128 + threadIdx.x] = 2;
    x[192 + threadIdx.x] = 3;
    x[256 + threadIdx.x] = 4;
    for (volatile int i = 0; i != bound[0]; i = i + 2)
        ;
}
"""


def test_all_findings_are_listed_as_a_profile_lists_them(tilewise: Tilewise) -> None:
    Path("faults.cu").write_text(FAULTS)
    words = ("faults.cu:faults", "--grid", 1, "--block", 64, "--args", "zeros:1:int32", "zeros:64")
    found = tilewise("run", *words)
    assert found.code == 1
    assert "out of bounds" in found.err
    listed = [line.removeprefix("tilewise: ") for line in found.err.splitlines()]
    assert [line.split(": ")[:2] for line in listed] == [
        *([f"faults.cu:{line}", "out of bounds"] for line in (5, 6, 7, 8)),
        ["faults.cu:4", "race"],
    ]
    told = " ".join(tilewise("profile", *words).out.split())
    for line in listed:
        assert f"found: {line}" in told
    document = tilewise("run", *words, "--json").json
    assert [each["line"] for each in document["findings"]] == [5, 6, 7, 8, 4]
    assert document["error"].splitlines() == listed


def test_a_launch_that_does_not_end_after_a_fault_is_stopped(
    tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.cli.commands.launches.AFTER_FAULT", 0.3)
    Path("faults.cu").write_text(FAULTS)
    words = ("run", "faults.cu:faults", "--grid", 1, "--block", 64, "--args", "ones:1:int32")
    found = tilewise(*words, "zeros:64", "--limit", "seconds=300")
    assert found.code == 1
    *listed, last = found.err.splitlines()
    assert [line.removeprefix("tilewise: ").partition(": ")[0] for line in listed] == [
        f"faults.cu:{line}" for line in (5, 6, 7, 8, 4)
    ]
    assert "the launch was stopped after its first finding: limit of 0.3 seconds" in last
    profiled = tilewise("profile", *words[1:], "zeros:64", "--limit", "instructions=20000")
    assert profiled.code == 1
    *listed, last = profiled.err.splitlines()
    assert [line.removeprefix("tilewise: ").partition(": ")[0] for line in listed] == [
        f"faults.cu:{line}" for line in (5, 6, 7, 8, 4)
    ]
    assert "the launch was stopped: limit of 20,000 instructions" in last


STUCK = """
__global__ void silent(int* x) { while (*x >= 0) ++*(volatile int*)x; }
__global__ void early(int* x) { x[1] = 1; while (*x >= 0) ++*(volatile int*)x; }
__global__ void late(int* x) { while (*x >= 0) if (++*(volatile int*)x == 3000) x[1] = 1; }
"""
FOUND = r"found: stuck.cu:\d: out of bounds: .* writes 4 bytes of global memory at x\[1\], .*; "


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("silent", ["no block has ended after 0.1 s; "]),
        ("early", ["no block has ended after 0.1 s; " + FOUND]),
        ("late", ["no block has ended after 0.1 s; ", FOUND]),
    ],
)
def test_a_profile_without_end_says_so_before_its_limit(
    kernel: str, expected: list[str], tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.cli.commands.profile.STUCK", 0.1)
    Path("stuck.cu").write_text(STUCK)
    Kernel("stuck.cu", kernel).compile()
    launch = ("--grid", 1, "--block", 1, "--args", "zeros:1:int32", "--limit", "seconds=1.5")
    found = tilewise("profile", f"stuck.cu:{kernel}", *launch)
    assert found.code == 1
    lines = found.err.splitlines()
    stops = r"--limit seconds=MOST stops it \(now after 1.5 s\)"
    for each, line in zip(expected, lines, strict=False):
        assert re.fullmatch(f"tilewise: profiling stuck.cu:{kernel}: {each}{stops}", line)
    assert len([line for line in lines if "profiling" in line]) == len(expected)
    assert "the launch was stopped: limit of 1.5 seconds" in found.err
    hint = "`--limit seconds=MOST` sets another limit, `--no-limits` none."
    assert (hint in lines) == (kernel == "silent")


def test_one_of_a_thing_is_not_told_as_several(
    tilewise: Tilewise, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("one.cu").write_text("__global__ void one(char* x) { x[threadIdx.x + 1] = 0; }")
    launch = ("run", "one.cu:one", "--grid", 1, "--block", 1, "--args", "zeros:1")
    found = tilewise(*launch)
    assert "writes 1 byte of global memory at x[1], outside it (1 byte)" in found.err
    found = tilewise(*launch, 1)
    assert "one(char* x) takes 1 argument, and 2 are given" in found.err
    save(Path(), a=np.ones((2, 2), np.float32))
    assert main(["multiply", "a.npy", "a.npy", "--out", "c.npy", "--memory", "1"]) == 2
    assert "memory is 1 byte; one element of each matrix takes" in capsys.readouterr().err


def test_a_null_pointer_is_told_as_one(tilewise: Tilewise) -> None:
    Path("null.cu").write_text("__global__ void null(int* x, int** y) { x[gridDim.x - 1] = 1; }")
    launch = ("run", "null.cu:null", "--block", 1, "--args", "null", "null", "--grid")
    told = "writes 4 bytes of global memory that belongs to no array (address 0x0, a null pointer)"
    assert told in tilewise(*launch, 1).err
    assert "(address 0x4, beside a null pointer)" in tilewise(*launch, 2).err
    found = tilewise("run", "null.cu:null", "--grid", 1, "--block", 1, "--args", "null", "zeros:1")
    assert found.code == 2
    assert "argument y (int**): an array of pointers can't be written here; it takes" in found.err


def test_dynamic_shared_memory_that_was_not_asked_for(tilewise: Tilewise) -> None:
    Path("dynamic.cu").write_text(
        "__global__ void dynamic(float* x)\n"
        "{ extern __shared__ float s[]; s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[1]; }\n"
    )
    launch = ("run", "dynamic.cu:dynamic", "--grid", 1, "--block", 4, "--args", "zeros:1")
    told = "outside the block's 0 bytes of shared memory; --shared BYTES gives a launch dynamic"
    assert told in tilewise(*launch).err
    found = tilewise(*launch, "--shared", 8)
    assert "outside the block's 8 bytes of shared memory" in found.err
    assert "gives a launch" not in found.err
    assert tilewise(*launch, "--shared", 16).code == 0
