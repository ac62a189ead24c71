"""Launches in a process of their own: as those in this one, and ending whatever happens."""

from __future__ import annotations

import os
import pickle
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewise import isolated, isolated_process
from tilewise.compiler import confine
from tilewise.devices import get_device
from tilewise.errors import (
    KernelAssertError,
    LaunchError,
    LimitError,
    MemoryAccessError,
    TilewiseError,
    UninitializedReadError,
)
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport
from tilewise.limits import Limits

SCALE = """extern "C" __global__ void scale(int n, double by, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 3) printf("%d of %d\\n", i, n);
    if (i < n) y[i] = x[i] * by;
}
"""


def both(kernel: Kernel, args: tuple[Any, ...], **more: Any) -> tuple[LaunchReport, LaunchReport]:
    """The reports of a launch here and of one in a process, and their arrays as well."""
    own = tuple(x.copy() if isinstance(x, np.ndarray) else x for x in args)
    here = kernel.launch(2, 32, own, device="emulator", **more)
    there = kernel.launch(2, 32, args, device="emulator", isolated=True, **more)
    for one, other in zip(own, args, strict=True):
        np.testing.assert_array_equal(one, other)
    return here, there


def test_the_report_and_the_arrays_are_the_same() -> None:
    x = np.arange(60, dtype=np.float32)
    here, there = both(Kernel(SCALE, "scale"), (60, 2.5, x, np.zeros(60, np.float32)))
    assert there.output == "3 of 60\n"
    limited = replace(here.launch, limits=Limits())
    assert replace(there, seconds=0) == replace(here, seconds=0, launch=limited)


def test_findings_and_errors_are_the_same() -> None:
    short = (60, 2.5, np.ones(50, np.float32), np.zeros(60, np.float32))
    here, there = both(Kernel(SCALE, "scale"), short, checks="collect")
    assert there.findings
    assert there.findings == here.findings
    trap = 'extern "C" __global__ void k(int* x) {\n  x[0] = 7;\n  __trap(); }'
    unwritten = """extern "C" __global__ void k(int* x) {
        __shared__ int s[64];
        if (x[0] == 5) s[x[2]] = 1;
        x[0] = s[x[1]];
    }"""
    ones = np.ones(3, np.int32)
    for kernel, args, error in (
        (Kernel(SCALE, "scale"), short, MemoryAccessError),
        (Kernel(trap, "k"), (ones,), KernelAssertError),
        (Kernel(unwritten, "k"), (ones,), UninitializedReadError),
        (Kernel(SCALE, "scale"), (1, 2.5, ones), TypeError),
        (Kernel(SCALE, "scale"), (1 << 40, 2.5, short[2], short[3]), ValueError),
    ):
        caught = []
        for is_isolated in (False, True):
            with pytest.raises(error) as raised:
                kernel.launch(2, 32, args, device="emulator", isolated=is_isolated)
            caught.append(raised.value)
        assert type(caught[0]) is type(caught[1])
        assert str(caught[0]) == str(caught[1])
        assert vars(caught[0]) == vars(caught[1])
    assert (ones == 1).all()  # nothing is copied back from a launch that failed
    read_only = np.zeros(60, np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="x is written by the kernel but is read-only"):
        Kernel(SCALE, "scale").launch(
            2, 32, (60, 2.0, read_only, read_only), device="emulator", isolated=True
        )


def test_views_and_arrays_that_overlap() -> None:
    source = """extern "C" __global__ void k(float* whole, float* part, short* odd, int m) {
        int i = threadIdx.x;
        if (blockIdx.x == 0 && i < 3) { part[i] += 100; whole[i * m] = -1; odd[i] = 5; }
    }"""
    kernel = Kernel(source, "k")
    found = []
    for is_isolated in (False, True):
        whole = np.arange(48, dtype=np.float32).reshape(6, 8)
        odd = np.zeros((4, 6), np.int16)
        args = (whole, whole[1:, 2:5], odd[2:, 3:], 8)
        kernel.launch(1, 32, args, device="emulator", isolated=is_isolated)
        assert (whole[:3, 0] == -1).all()
        assert whole[1, 2] == 110
        assert odd[2, 3] == 5
        found.append((whole, odd))
    for here, there in zip(*found, strict=True):
        np.testing.assert_array_equal(here, there)
    empty = np.zeros(0, np.float32)
    Kernel('extern "C" __global__ void k(float* x) {}', "k").launch(
        1, 1, (empty,), device="emulator", isolated=True
    )


def test_arguments_of_other_kinds() -> None:
    source = """struct S { int a; float b; };
    extern "C" __global__ void k(S s, unsigned char c, float* none, float h, long long n, int* x) {
        x[0] = s.a + (int)s.b + c + (none == nullptr) + (int)h + (int)n;
    }"""
    x = np.zeros(1, np.int32)
    s = np.array([(1000, 200.0)], "i4,f4").tobytes()
    args = (s, np.uint8(30), None, np.float32(4), -10, x)
    Kernel(source, "k").launch(1, 1, args, device="emulator", isolated=True)
    assert x[0] == 1225
    there = get_device("emulator").array(np.zeros(1, np.int32))
    with pytest.raises(TypeError, match=r"argument 5 lies on a device; .* takes NumPy arrays"):
        Kernel(source, "k").launch(1, 1, (*args[:5], there), device="emulator", isolated=True)


def test_limits_hold_in_the_process() -> None:
    x = np.zeros(4, np.int32)
    head = 'extern "C" __global__ void k(volatile int* x) {\n'
    for body, limits, said in (
        ("while (1)\n x[0] = 1; }", Limits(seconds=1), r"<source>:[23]: .*limit of 1 seconds"),
        ("while (1)\n x[0] = 1; }", Limits(instructions=5000), r"<source>:[23]: .*instructions"),
        ('\nwhile (1) printf("x"); }', Limits(output=100), r"<source>:3: .*100 bytes of output"),
        ("\nint a[1 << 28]; a[x[0]] = 1; x[1] = a[x[2]]; }", Limits(memory=1 << 28), r"<source>:"),
    ):
        begin = time.monotonic()
        with pytest.raises(LimitError, match=said):
            Kernel(head + body, "k", limits=limits).launch(
                1, 32, (x,), device="emulator", checks="off", isolated=True
            )
        assert time.monotonic() - begin < 15
    assert not x.any()


def test_a_process_that_does_not_answer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "_SHARED_FOLDER", tmp_path)
    kernel = Kernel('extern "C" __global__ void k() {}', "k", limits=Limits(seconds=1))
    kernel.compile()
    monkeypatch.setattr(isolated, "GRACE", -0.99999)
    with pytest.raises(LimitError, match="the launch was stopped: limit of 1 seconds"):
        kernel.launch(1, 1, (), device="emulator", isolated=True)
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', "k")
    kernel.compile()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LaunchError, match="ended with exit code 1, and said nothing"):
        kernel.launch(1, 1, (), device="emulator", isolated=True)


def test_an_answer_runs_nothing() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("false",)

    for data in (pickle.dumps(Evil()), b"", b"no pickle", pickle.dumps(os.kill)):
        with pytest.raises((pickle.UnpicklingError, EOFError)):
            isolated.Reader(data).load()
    error = LimitError("seconds", 1, "stopped", "k.cu", 4)
    again = isolated.Reader(pickle.dumps(error)).load()
    assert isinstance(again, TilewiseError)


def test_what_fails_in_another_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', "k")
    tasks = []
    monkeypatch.setattr(isolated, "_asked", lambda *asked: tasks.append(asked[0]))
    with suppress(AttributeError):
        kernel.launch(1, 1, (), device="emulator", isolated=True)
    (tmp_path / "arrays").write_bytes(b"\0")
    task = replace(tasks[0], file=str(tmp_path / "arrays"))
    monkeypatch.setattr(confine, "limit_memory", lambda _: None)
    assert isinstance(isolated_process.answer(task), LaunchReport)
    monkeypatch.setattr(isolated_process, "Emulator", lambda arch: vars(kernel)["nothing"])
    found = isolated_process.answer(task)
    assert isinstance(found, LaunchError)
    assert "KeyError" in str(found)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
def test_a_process_that_dies_is_out_of_memory_only_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', "k", limits=Limits())
    kernel.compile()

    def launch(program: str) -> None:
        monkeypatch.setattr(confine, "_RUN", f"import os, signal, sys, time\n{program}")
        kernel.launch(1, 1, (), device="emulator", isolated=True)

    die = "os.write(1, b'!'); sys.stdin.buffer.read(); os.kill(os.getpid(), signal.SIG"
    with pytest.raises(LaunchError, match="ended with signal SIGSEGV"):
        launch(f"{die}SEGV)")
    with pytest.raises(LaunchError, match="ended with signal SIGKILL"):
        launch("os.kill(os.getpid(), signal.SIGKILL)")  # before its memory is limited
    if sys.platform == "linux":
        with pytest.raises(LimitError, match="limit of 4 GiB of memory"):
            launch(f"{die}KILL)")
    monkeypatch.setattr(confine, "START_SECONDS", 0.5)
    with pytest.raises(LaunchError, match=r"did not start: .* not ready within 0\.5 seconds"):
        launch("time.sleep(60)")


def test_limits_on_a_gpu_take_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    place = get_device("emulator")
    monkeypatch.setattr(place, "name", "gpu")
    kernel = Kernel('extern "C" __global__ void k() {}', "k", limits=Limits())
    with pytest.raises(ValueError, match="isolated=True"):
        kernel.launch(1, 1, (), device=place)
