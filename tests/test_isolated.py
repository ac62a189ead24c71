"""Launches in a process of their own: as those in this one, and ending whatever happens."""

from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import hears_ctrl_c
from reference import thorough

from tilewise import isolated, isolated_process
from tilewise.compiler import confine, forking, processes, starting
from tilewise.devices import Device, get_device
from tilewise.errors import (
    CheckError,
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
from tilewise.tracebacks import VARIABLE

SCALE = """extern "C" __global__ void scale(int n, double by, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 3) printf("%d of %d\\n", i, n);
    if (i < n) y[i] = x[i] * by;
}
"""


def both(
    kernel: Kernel, args: tuple[Any, ...], device: str = "emulator", **more: Any
) -> tuple[LaunchReport, LaunchReport]:
    """The reports of a launch here and of one in a process, and their arrays as well."""
    own = tuple(x.copy() if isinstance(x, np.ndarray) else x for x in args)
    here = kernel.launch(2, 32, own, device=device, **more)
    there = kernel.launch(2, 32, args, device=device, isolated=True, **more)
    for one, other in zip(own, args, strict=True):
        np.testing.assert_array_equal(one, other)
    return here, there


def test_the_report_and_the_arrays_are_the_same(device: Device) -> None:
    x = np.arange(60, dtype=np.float32)
    args = (60, 2.5, x, np.zeros(60, np.float32))
    here, there = both(Kernel(SCALE, "scale"), args, device.name)
    assert there.output == "3 of 60\n"
    limited = replace(here.launch, limits=Limits())
    assert replace(there, seconds=0) == replace(here, seconds=0, launch=limited)


def test_counts_need_not_be_held_against_the_machine_code() -> None:
    kernel = Kernel(SCALE, "scale")
    args = (60, 2.5, np.ones(60, np.float32), np.zeros(60, np.float32))
    asked = replace(kernel.launch(2, 32, args, device="emulator").launch, args=args)
    reports = [
        isolated.launch("emulator", "sm_90a", kernel.compile(), asked, confirms=confirms)[0]
        for confirms in (True, False)
    ]
    assert [each.counted_as for each in reports] == ["machine code", "PTX"]
    assert reports[1].notes == ("the counts were not held against the machine code",)
    assert reports[0].counters == reports[1].counters


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
        ("while (1)\n x[0] = 1; }", Limits(seconds=0.5), r"<source>:[23]: .*limit of 0\.5 seconds"),
        ("while (1)\n x[0] = 1; }", Limits(instructions=5000), r"<source>:[23]: .*instructions"),
        ('\nwhile (1) printf("x"); }', Limits(output=100), r"<source>:3: .*100 bytes of output"),
        ("\nint a[1 << 28]; a[x[0]] = 1; x[1] = a[x[2]]; }", Limits(memory=1 << 28), r"<source>:"),
    ):
        if limits.memory == Limits().memory:  # else the compiler is stopped, or the launch
            Kernel(head + body, "k").compile()
        begin = time.monotonic()
        with pytest.raises(LimitError, match=said):
            Kernel(head + body, "k", limits=limits).launch(
                1, 32, (x,), device="emulator", checks="off", isolated=True
            )
        assert time.monotonic() - begin < 60
    assert not x.any()


def test_a_process_that_does_not_answer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "_SHARED_FOLDER", tmp_path)
    kernel = Kernel('extern "C" __global__ void k() {}', "k", limits=Limits(seconds=1))
    kernel.compile()
    monkeypatch.setattr(isolated, "GRACE", -0.99999)
    with pytest.raises(LimitError, match="the launch was stopped: limit of 1 second"):
        kernel.launch(1, 1, (), device="emulator", isolated=True)
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', "k")
    kernel.compile()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LaunchError, match="ended with exit code 1, and said nothing"):
        kernel.launch(1, 1, (), device="emulator", isolated=True)


ODD_ANSWERS = (
    b"no pickle",
    b"(lp0\n0b.",  # the state of a list
    b"cnumpy\nint64\n.",
    b"ctilewise.errors\nno.such.Error\n.",
    b"ctilewise.errors\nNoSuchError\n.",
    pickle.PROTO + b"\x04\x8c\x0ftilewise.errors\x8c\x16LimitError.mro.__Error\x93.",
)


@pytest.mark.parametrize(
    "said", [*ODD_ANSWERS, b"ctilewise.errors\nLimitError\n.", pickle.dumps((1, 2))]
)
def test_an_answer_that_is_none(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', "k")
    kernel.compile()
    # Without the flush, the answer would not be sent before the process ends.
    write = f"import sys; sys.stdout.buffer.write(b'!' + {said!r}); sys.stdout.flush()"
    write += "; sys.stdin.buffer.read()"
    monkeypatch.setattr(starting, "_RUN", write)
    monkeypatch.setattr(forking, "can_fork", lambda: False)
    with pytest.raises(LaunchError, match="exit code 0, and its answer can't be read: "):
        kernel.launch(1, 1, (), device="emulator", isolated=True)


def test_an_answer_runs_nothing() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("false",)

    for data in (pickle.dumps(Evil()), pickle.dumps(os.kill), *ODD_ANSWERS[3:]):
        with pytest.raises(pickle.UnpicklingError):
            isolated.Reader(data).load()
    error = LimitError("seconds", 1, "stopped", "k.cu", 4)
    again = isolated.Reader(pickle.dumps(error)).load()
    assert isinstance(again, TilewiseError)
    assert isinstance(isolated.Reader(pickle.dumps(CheckError(()))).load(), CheckError)


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
    monkeypatch.setattr(forking, "can_fork", lambda: False)

    def launch(program: str) -> None:
        monkeypatch.setattr(starting, "_RUN", f"import os, signal, sys, time\n{program}")
        kernel.launch(1, 1, (), device="emulator", isolated=True)

    die = "os.write(1, b'!'); sys.stdin.buffer.read(); os.kill(os.getpid(), signal.SIG"
    with pytest.raises(LaunchError, match="ended with signal SIGSEGV"):
        launch(f"{die}SEGV)")
    with pytest.raises(LaunchError, match="ended with signal SIGKILL"):
        launch("os.kill(os.getpid(), signal.SIGKILL)")  # before its memory is limited
    if sys.platform == "linux":
        with pytest.raises(LimitError, match="limit of 4 GiB of memory"):
            launch(f"{die}KILL)")
    monkeypatch.setattr(starting, "START_SECONDS", 0.5)
    with pytest.raises(LaunchError, match=r"did not start: .* not ready within 0\.5 seconds"):
        launch("time.sleep(60)")


@pytest.mark.parametrize("name", ["emulator", "gpu"])
def test_no_launch_on_a_gpu_is_in_a_process_that_was_forked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA can't be used where a process was forked after it had begun."""
    may_fork = []

    def ask(*_: object, **more: Any) -> None:
        may_fork.append(more["may_fork"])
        raise TimeoutError

    kernel = Kernel('extern "C" __global__ void k() {}', "k")
    place = get_device("emulator")
    kernel.compile()
    monkeypatch.setattr(processes, "ask", ask)
    monkeypatch.setattr(place, "name", name)
    with pytest.raises(LaunchError, match="did not start"):
        kernel.launch(1, 1, (), device=place, isolated=True)
    assert may_fork == [name == "emulator"]


def test_limits_on_a_gpu_take_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    place = get_device("emulator")
    monkeypatch.setattr(place, "name", "gpu")
    kernel = Kernel('extern "C" __global__ void k() {}', "k", limits=Limits())
    with pytest.raises(ValueError, match="isolated=True"):
        kernel.launch(1, 1, (), device=place)


def test_shared_memory_is_an_integer() -> None:
    kernel = Kernel('extern "C" __global__ void k() {}', "k")
    sizes: tuple[Any, ...] = (np.int64(16), np.uint8(16), 16)
    for shared in sizes:
        report = kernel.launch(1, 32, (), shared, device="emulator", isolated=True)
        assert type(report.launch.shared) is int
    for wrong in (1.5, "16", None, True):
        with pytest.raises(TypeError, match=rf"^shared is {wrong!r}; it takes a whole number of"):
            kernel.launch(1, 32, (), wrong, device="emulator")  # type: ignore[arg-type]


SMALL = """
import sys
from pathlib import Path
import numpy as np
from tilewise import Kernel, isolated
isolated._SHARED_FOLDER = Path(sys.argv[1])
x = np.ones(1 << 20, np.float32)
source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 2; }'
Kernel(source, "k").launch(1, 32, (x,), device="emulator", isolated=True)
print(int(x.sum()))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="takes a file system of its own")
def test_arrays_larger_than_the_file_system_in_memory(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=1m none {tmp_path} && "
    own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*own, mount + "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    found = subprocess.run(
        [*own, mount + 'exec "$@"', "sh", sys.executable, "-c", SMALL, str(tmp_path)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, f"{(1 << 20) + 32}\n"), found.stderr


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="reserves no room in files")
def test_no_folder_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LaunchError, match=r"its arrays take \d,\d\d\d bytes, .* No space left"):
        Kernel(SCALE, "scale").launch(
            1, 32, (1, 2.0, *np.ones((2, 1), np.float32)), device="emulator", isolated=True
        )


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open has a name there")
def test_a_parent_that_is_killed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "_SHARED_FOLDER", tmp_path)
    asked = isolated._asked
    left: list[Path] = []

    def ask(*given: Any) -> LaunchReport:
        left.extend(tmp_path.iterdir())
        return asked(*given)

    monkeypatch.setattr(isolated, "_asked", ask)
    both(Kernel(SCALE, "scale"), (60, 2.5, np.ones(60, np.float32), np.zeros(60, np.float32)))
    assert not left


ENDLESS = """
import numpy as np, tilewise
source = 'extern "C" __global__ void f(volatile float* x) { while (x[0] == 0) x[1] = 1; }'
kernel = tilewise.Kernel(source, "f")
kernel.compile()
print("begun", flush=True)
kernel.launch(1, 32, (np.zeros(4, np.float32),), device="emulator", isolated=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="of signals that Windows has not")
@pytest.mark.parametrize("after", [0.3, pytest.param(1.5, marks=thorough)])
def test_ctrl_c_shows_the_callers_own_frame_alone(after: float, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDLESS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), VARIABLE: ""}
    process = subprocess.Popen(
        [sys.executable, str(script)], env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hears_ctrl_c,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the process that launches too
    _, told = process.communicate(timeout=60)
    assert told.count("Traceback") == 1
    assert re.findall(r'File "(.*)", line', told) == [str(script)]
    assert told.endswith("KeyboardInterrupt\n")


@pytest.mark.skipif(os.name == "nt", reason="of signals that Windows has not")
def test_ctrl_c_does_not_end_the_process_that_launches() -> None:
    """It is the caller's to say so: a launch from another thread than the first goes on."""
    with starting.python("tilewise.isolated_process") as process:
        starting.wait_for_start(process)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.kill()
