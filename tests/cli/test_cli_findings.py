"""What the checks find, as ``tilewise run`` and ``tilewise profile`` tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from commands import Tilewise, save

import tilewise as tw
from tilewise.cli.commands.profile import _SlowRunNotice
from tilewise.cli.main import main
from tilewise.launch import Finding

pytestmark = pytest.mark.usefixtures("emulator", "k_cu", "no_machine_code")


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


STUCK = "__global__ void silent(int* x) { while (*x >= 0) ++*(volatile int*)x; }"


def test_a_profile_without_end_says_so_before_its_limit(
    tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.cli.commands.profile.STUCK", 0)
    Path("stuck.cu").write_text(STUCK)
    launch = ("--grid", 1, "--block", 1, "--args", "zeros:1:int32")
    found = tilewise("profile", "stuck.cu:silent", *launch, "--limit", "instructions=20000")
    assert found.code == 1
    assert found.err.splitlines() == [
        "tilewise: profiling stuck.cu:silent: the first blocks have not all ended after 0 s; "
        "--limit seconds=MOST stops it (now after 60 s)",
        "tilewise: stuck.cu:1: the launch was stopped: limit of 20,000 instructions",
        "`--limit instructions=MOST` sets another limit, `--no-limits` none.",
    ]


LATE = "tilewise: profiling k: the first blocks have not all ended after 0 s; Ctrl-C stops it\n"
FINDING = Finding("race", "thread (0, 0, 0)", "k.cu", 3)


@pytest.fixture
def notice(monkeypatch: pytest.MonkeyPatch) -> Iterator[_SlowRunNotice]:
    monkeypatch.setattr("tilewise.cli.commands.profile.STUCK", 0)
    with _SlowRunNotice("k", "", "Ctrl-C stops it", None) as slow:
        yield slow


def _after(slow: _SlowRunNotice, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is printed until the timer's thread has ended."""
    if slow.timer is not None:
        slow.timer.join(60)
        assert not slow.timer.is_alive()
    return capsys.readouterr().err


def test_first_blocks_that_do_not_end_are_told_from_each_launch_s_begin(
    notice: _SlowRunNotice, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not _after(notice, capsys)  # nothing is launched: it may be compiled
    notice.progress(0, 9)
    assert _after(notice, capsys) == LATE
    notice.progress(3, 9)
    notice.found(FINDING)
    assert not _after(notice, capsys)
    notice.progress(0, 9)
    assert _after(notice, capsys) == LATE.replace("; Ctrl", f"; found: {FINDING}; Ctrl")


def test_the_finding_of_first_blocks_that_do_not_end_is_told_once(
    notice: _SlowRunNotice, capsys: pytest.CaptureFixture[str]
) -> None:
    notice.progress(0, 9)
    assert _after(notice, capsys) == LATE
    for _ in range(2):
        notice.found(FINDING)
    told = f"tilewise: profiling k: found: {FINDING}; Ctrl-C stops it\n"
    assert _after(notice, capsys) == told
    notice.progress(3, 9)
    notice._tell_stuck(1)  # the timer ran out as the blocks ended
    assert not _after(notice, capsys)


def test_a_finding_while_the_timer_prints_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finders: list[Thread] = []

    class Slow(_SlowRunNotice):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if (name, value) == ("is_stuck", True):
                finders.append(Thread(target=self.found, args=(FINDING,)))
                finders[0].start()
                finders[0].join(0.1)  # it ends only if nothing keeps the two apart

    monkeypatch.setattr("tilewise.cli.commands.profile.STUCK", 0)
    with Slow("k", "", "Ctrl-C stops it", None) as slow:
        slow.progress(0, 9)
        assert slow.timer is not None
        slow.timer.join(60)
        finders[0].join(60)
    assert capsys.readouterr().err.count(f"found: {FINDING}") == 1


@pytest.mark.parametrize("whole", [False, True])
def test_the_progress_of_a_launch_begins_with_no_block(whole: bool) -> None:
    seen: list[tuple[int, int]] = []
    tw.profile("tiled", 32, 32, 1024, tile=8, whole=whole, progress=lambda *done: seen.append(done))
    assert seen[0] == (0, 16)
    assert seen[-1] == (16, 16)


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


BULK = """__global__ void bulk(int* x) {
    __shared__ alignas(16) int s[4];
    unsigned from = (unsigned)__cvta_generic_to_shared(s);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;"
                 :: "l"(x), "r"(from) : "memory");
}
"""


def test_a_null_pointer_is_told_as_one(tilewise: Tilewise) -> None:
    Path("null.cu").write_text("__global__ void null(int* x, int** y) { x[gridDim.x - 1] = 1; }")
    launch = ("run", "null.cu:null", "--block", 1, "--args", "null", "null", "--grid")
    told = "writes 4 bytes of global memory that belongs to no array (address 0x0, a null pointer)"
    assert told in tilewise(*launch, 1).err
    assert "(address 0x4, near a null pointer)" in tilewise(*launch, 2).err
    Path("bulk.cu").write_text(BULK)
    bulk = tilewise("run", "bulk.cu:bulk", *launch[2:6], "--grid", 1, "--arch", "sm_90a")
    assert "global memory that belongs to no array (address 0x0, a null pointer)" in bulk.err
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
