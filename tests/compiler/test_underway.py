"""Compilations under way: none is made twice, and nobody waits for one that will not end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import hears_ctrl_c
from reference import ROOT

from tilewise import compiler
from tilewise.compiler import ahead, apart, forking, nvrtc
from tilewise.compiler.gate import Gate
from tilewise.compiler.underway import PATIENCE, Underway, underway
from tilewise.errors import CompileError, DeviceUnavailableError
from tilewise.gemm.transpose import kernel as transposing
from tilewise.kernel import Kernel
from tilewise.limits import Limits

ARCH = "sm_90a"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    compiler.forget()
    yield
    assert ahead.wait(
        60
    )  # else a thread may still compile a kernel that the next test expects to compile
    compiler.forget()


def test_a_job_is_queued_once_and_taken_in_order() -> None:
    jobs = Underway()
    assert jobs.put(b"1", "first")
    assert jobs.put(b"2", "second")
    assert not jobs.put(b"1", "again")
    assert jobs.take() == (b"1", "first")
    assert not jobs.put(b"1", "while it runs")
    jobs.end(b"1")
    assert jobs.put(b"1", "after its end")
    assert [jobs.take(), jobs.take()] == [(b"2", "second"), (b"1", "after its end")]
    assert jobs.take() is None


def test_an_urgent_job_is_taken_first() -> None:
    jobs = Underway()
    for key in (b"1", b"2", b"3"):
        assert jobs.put(key, "waits")
    assert not jobs.put(b"2", "urgent", is_first=True)
    assert jobs.put(b"4", "more urgent", is_first=True)
    assert [jobs.take() for _ in range(3)] == [
        (b"4", "more urgent"), (b"2", "urgent"), (b"1", "waits"),
    ]  # fmt: skip


def test_who_needs_a_queued_kernel_compiles_it() -> None:
    jobs = Underway()
    jobs.put(b"1", "queued")
    with jobs.compiling(b"1") as was_waited_for:
        assert not was_waited_for
        assert not jobs.queue
        assert not jobs.put(b"1", "while it is compiled")
    assert not jobs.running


def test_who_needs_a_running_one_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Underway()
    compiling, is_waited_for = threading.Event(), threading.Event()
    order = []

    def compile_it() -> None:
        with jobs.compiling(b"1"):
            compiling.set()
            assert is_waited_for.wait(60)
            order.append("compiled")

    other = threading.Thread(target=compile_it)
    other.start()
    compiling.wait()
    wait = jobs.running[b"1"].wait

    def noted(timeout: float | None = None) -> bool:
        is_waited_for.set()
        return wait(timeout)

    monkeypatch.setattr(jobs.running[b"1"], "wait", noted)
    with jobs.compiling(b"1") as was_waited_for:
        assert was_waited_for
        assert order == ["compiled"]
    other.join()


def test_an_error_ends_it_too() -> None:
    jobs = Underway()
    with pytest.raises(ValueError, match="no"), jobs.compiling(b"1"):
        raise ValueError("no")
    assert not jobs.running


def test_two_threads_compile_a_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = nvrtc.run, []

    def counted(*args: Any) -> nvrtc.Output:
        calls.append(args)
        time.sleep(0.1)
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", counted)
    kernel = transposing("float32", True)
    found: list[compiler.Compiled] = []
    threads = [
        threading.Thread(target=lambda: found.append(kernel.compile(ARCH, lines=False)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len({each.cubin for each in found}) == 1


def test_a_kernel_of_another_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not compiled again."""
    run, callers = nvrtc.run, []

    def counted(*args: Any) -> nvrtc.Output:
        callers.append(threading.current_thread())
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", counted)
    monkeypatch.setattr(apart, "has_server", lambda: False)
    kernel = transposing("float64", True)
    ahead.compile_beside([kernel], ARCH, 1)
    while not callers:
        time.sleep(0.001)
    assert kernel.compile(ARCH, lines=False).cubin
    assert len(callers) == 1
    assert callers[0] is not threading.current_thread()


def test_a_compilation_that_fails_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    run = nvrtc.run

    def fails_elsewhere(*args: Any) -> nvrtc.Output:
        if threading.current_thread() is not threading.main_thread():
            raise DeviceUnavailableError("not in this thread")
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", fails_elsewhere)
    monkeypatch.setattr(apart, "has_server", lambda: False)
    kernel = transposing("float32", False)
    ahead.compile_beside([kernel], ARCH, 1)
    assert kernel.compile(ARCH, lines=False).cubin
    assert not underway.queue


@pytest.mark.skipif(not forking.can_fork(), reason="this system forks no such processes")
def test_a_thread_lets_a_process_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of threads that compile themselves, NVRTC's front end takes one at a time."""

    def not_here(*_: Any) -> nvrtc.Output:
        raise AssertionError("NVRTC is called in this process")

    kernels = [transposing(dtype, True) for dtype in ("float32", "float64")]
    expected = [each.compile(ARCH, lines=False) for each in kernels]
    with monkeypatch.context() as patch:
        patch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "another"))
        patch.setattr(nvrtc, "run", not_here)
        compiler.forget()
        assert ahead.compile_ahead(kernels, ARCH, lines=False) == []
        found = [each.find(ARCH, lines=False) for each in kernels]
    assert [x and (x.ptx, x.cubin) for x in found] == [(x.ptx, x.cubin) for x in expected]


def test_where_the_process_is_killed_the_thread_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> nvrtc.Output:
        raise CompileError("k.cu: the compiler broke down (signal SIGKILL)")

    monkeypatch.setattr(apart, "has_server", lambda: True)
    monkeypatch.setattr(apart, "run", killed)
    kernel = transposing("float32", True)
    assert ahead.compile_ahead([kernel], ARCH, lines=False) == []
    assert kernel.find(ARCH, lines=False) is not None


def test_no_server_is_asked_for_where_a_process_is_needed_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asks waits until it has started, or for a minute until it has not."""

    def asked() -> bool:
        raise AssertionError("a server is asked for")

    monkeypatch.setattr(apart, "has_server", asked)
    source = 'extern "C" __global__ void k(int* x) { *x = 1; }'
    request = compiler.Request(source, "k", limits=Limits(), apart=True)
    assert compiler.compile_request(request).ptx


def test_a_thread_that_is_being_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    is_starting, may_start, start = threading.Event(), threading.Event(), threading.Thread.start

    def late(thread: threading.Thread) -> None:
        if thread.name == "compile beside":
            is_starting.set()
            may_start.wait(60)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    other = threading.Thread(target=ahead._one_more_thread, args=(1,))
    other.start()
    assert is_starting.wait(60)
    threading.Timer(0.1, may_start.set).start()
    assert ahead.wait(60)
    other.join(60)
    assert not ahead._beside


def test_threads_end_when_nothing_waits() -> None:
    ahead.compile_beside([transposing("float32", True)], ARCH, 4)
    for thread in list(ahead._beside):
        thread.join(60)
    assert not ahead._beside
    assert not underway.running


END = """
import sys, threading
from tilewise.compiler import ahead
from tilewise.compiler.gate import Gate
from tilewise.compiler.underway import underway
from tilewise.gemm.transpose import kernel
kernels = [kernel(dtype, way) for dtype in ("float32", "float64") for way in (True, False)]
ahead.compile_beside(kernels, "sm_90a", 1)
while not underway.running:
    pass
print(len(underway.queue))
"""


def test_a_process_ends_with_what_has_begun(tmp_path: Path) -> None:
    """At once but for that, without a word, and with it in the cache."""
    found = {"PYTHONPATH": str(ROOT), "TILEWISE_CACHE_DIR": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", END], env={**os.environ, **found}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("3\n", "")
    entries = [x for x in (tmp_path / "cache" / "entries").rglob("*") if x.is_file()]
    assert 1 <= len(entries) <= 2  # a second may begin just before the end


SLOW = """
import time
from tilewise.compiler import apart, nvrtc
apart.has_server = lambda: False
run = nvrtc.run
def slow(*args):
    time.sleep(30)
    return run(*args)
nvrtc.run = slow
"""


@pytest.mark.skipif(os.name == "nt", reason="of signals that Windows has not")
def test_ctrl_c_ends_a_process_that_waits_for_what_has_begun(tmp_path: Path) -> None:
    """By the signal, as elsewhere, without a word, and nothing that was printed is lost."""
    found = {"PYTHONPATH": str(ROOT), "TILEWISE_CACHE_DIR": str(tmp_path / "cache")}
    waits = "import os; os.write(2, b'ends\\n')\n"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW + END + waits], env={**os.environ, **found}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hears_ctrl_c,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == "ends\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=20)
    assert (process.returncode, out, told) == (-signal.SIGINT, "3\n", "")


def _compile_in_a_child(queue: Any) -> None:
    compiled = transposing("float32", True).compile(ARCH, lines=False)
    queue.put((len(underway.running), len(underway.queue), len(compiled.cubin) > 0))


def compiled_in_a_child() -> Any:
    """What a process that is forked now says of compilations, and of its own."""
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_compile_in_a_child, args=(queue,))
    child.start()
    found = queue.get(timeout=60)
    child.join()
    return found


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_while_threads_compile_compiles_too() -> None:
    ahead.compile_beside([transposing("float64", way) for way in (True, False)], ARCH, 2)
    while not underway.running:
        time.sleep(0.001)
    assert compiled_in_a_child() == (0, 0, True)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_while_another_caller_compiles_compiles_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, run = threading.Event(), nvrtc.run

    def told(*args: Any) -> nvrtc.Output:
        entered.set()
        return run(*args)

    monkeypatch.setattr(nvrtc, "run", told)
    other = transposing("float64", True)
    caller = threading.Thread(target=lambda: other.compile(ARCH, lines=False))
    caller.start()
    assert entered.wait(60)
    assert compiled_in_a_child() == (0, 0, True)
    caller.join()


def test_a_gate_waits_for_who_is_inside_and_keeps_others_out() -> None:
    gate, inside, leave = Gate(), threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with gate.inside():
            inside.set()
            leave.wait()
            order.append("left")

    def second() -> None:
        with gate.inside():
            order.append("in")

    threads = [threading.Thread(target=each) for each in (first, second)]
    threads[0].start()
    inside.wait()
    threading.Timer(0.1, leave.set).start()
    gate.close()
    order.append("closed")
    threads[1].start()
    time.sleep(0.1)
    order.append("open")
    gate.open()
    for thread in threads:
        thread.join()
    assert order == ["left", "closed", "open", "in"]


def test_a_queue_survives_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("what nobody expected")

    with monkeypatch.context() as patch:
        patch.setattr(ahead, "compile_request", fails)
        ahead.compile_beside([transposing("float32", True)], ARCH, 1)
        for thread in list(ahead._beside):
            thread.join(60)
    assert not ahead._beside
    assert not underway.queue


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has control groups")
@pytest.mark.parametrize(
    ("quota", "count"), [("150000 100000", 2), ("max 100000", 8), ("10 100000", 1), ("", 8)]
)
def test_a_containers_quota_of_cores(
    quota: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(ahead, "CPU_QUOTA", tmp_path / "cpu.max")
    assert ahead.cores() == 8
    (tmp_path / "cpu.max").write_text(quota)
    assert ahead.cores() == count


def test_urgent_kernels_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_one_more_thread", lambda _: None)
    kernels = [transposing(dtype, way) for dtype in ("float32", "float64") for way in (True, False)]
    ahead.compile_beside(kernels[:1], ARCH, 1)
    ahead.compile_beside(kernels[1:], ARCH, 1, is_urgent=True)
    queued = [kernel for kernel, _ in underway.queue.values()]
    underway.queue.clear()
    assert queued == [*kernels[1:], kernels[0]]


def test_what_has_limits_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'extern "C" __global__ void k(int* x) { *x = 5; }'
    limited = Kernel(source, "k", limits=Limits(seconds=30))
    key = compiler.key_of(Kernel(source, "k").request(ARCH))
    assert key is not None
    with underway.compiling(key):
        begun = time.perf_counter()
        assert limited.compile(ARCH).cubin
    assert time.perf_counter() - begun < PATIENCE / 2


def test_find() -> None:
    kernel = transposing("float32", True)
    assert kernel.find(ARCH, lines=False) is None
    compiled = kernel.compile(ARCH, lines=False)
    assert kernel.find(ARCH, lines=False) == compiled
    assert kernel.find(ARCH) is None  # with lines
    compiler.forget()
    assert kernel.find(ARCH, lines=False) == compiled
    assert kernel.compile(ARCH, lines=False) == compiled
