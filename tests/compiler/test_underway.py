"""Compilations under way: none is made twice, and nobody waits for one that will not end."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reference import ROOT

from tilewise import compiler
from tilewise.compiler import ahead, nvrtc
from tilewise.compiler.underway import Underway, underway
from tilewise.gemm.transpose import kernel as transposing

ARCH = "sm_90a"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    compiler.forget()
    yield
    compiler.forget()


def test_a_job_is_queued_once_and_taken_in_order() -> None:
    jobs = Underway()
    assert jobs.put(b"1", "first")
    assert jobs.put(b"2", "second")
    assert not jobs.put(b"1", "again")
    assert jobs.take(0) == (b"1", "first")
    assert not jobs.put(b"1", "while it runs")
    jobs.end(b"1")
    assert jobs.put(b"1", "after its end")
    assert [jobs.take(0), jobs.take(0)] == [(b"2", "second"), (b"1", "after its end")]
    assert jobs.take(0.01) is None


def test_who_needs_a_queued_kernel_compiles_it() -> None:
    jobs = Underway()
    jobs.put(b"1", "queued")
    with jobs.compiling(b"1") as was_waited_for:
        assert not was_waited_for
        assert not jobs.queue
        assert not jobs.put(b"1", "while it is compiled")
    assert not jobs.running


def test_who_needs_a_running_one_waits_for_its_end() -> None:
    jobs = Underway()
    jobs.put(b"1", "queued")
    jobs.take(0)
    threading.Timer(0.2, jobs.end, [b"1"]).start()
    begun = time.perf_counter()
    with jobs.compiling(b"1") as was_waited_for:
        assert was_waited_for
    assert time.perf_counter() - begun > 0.15


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


def test_a_kernel_of_another_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not compiled again."""
    kernel = transposing("float64", True)
    ahead.compile_beside([kernel], ARCH, 1)
    while not underway.running:
        time.sleep(0.001)

    def never(*_: object) -> None:
        raise AssertionError("it was compiled twice")

    monkeypatch.setattr(nvrtc, "run", never)
    assert kernel.compile(ARCH, lines=False).cubin


def test_a_process_that_dies_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ahead._process

    def dead() -> Any:
        found = process()
        found.kill()
        found.wait()
        return found

    monkeypatch.setattr(ahead, "_process", dead)
    kernel = transposing("float32", False)
    ahead.compile_beside([kernel], ARCH, 1)
    assert kernel.compile(ARCH, lines=False).cubin
    assert not underway.queue


def _compile_in_a_child(queue: Any) -> None:
    queue.put((dict(underway.running), transposing("float32", True).is_kept(ARCH, lines=False)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_its_parents_threads() -> None:
    key = b"of a thread of the parent"
    underway.put(key, None)
    underway.take(0)
    try:
        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        child = fork.Process(target=_compile_in_a_child, args=(queue,))
        child.start()
        assert queue.get(timeout=60) == ({}, False)
        child.join()
    finally:
        underway.end(key)


def test_other_processes_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    """Where somebody stands in a folder of hand-ins."""
    folder, elsewhere = tmp_path / "hand-ins", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "json.py").write_text("open('was_run', 'w').close()\n")
    script = elsewhere / "ask.py"
    script.write_text(
        "from tilewise.compiler import ahead\n"
        "from tilewise.gemm.transpose import kernel\n"
        "assert ahead.compile_ahead([kernel('float32', True)], 'sm_90a', lines=False) == []\n"
    )
    found = {"PYTHONPATH": str(ROOT), "TILEWISE_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(
        [sys.executable, str(script)], cwd=folder, env={**os.environ, **found}, check=True
    )
    assert sorted(each.name for each in folder.iterdir()) == ["json.py"]


def test_is_kept() -> None:
    kernel = transposing("float32", True)
    assert not kernel.is_kept(ARCH, lines=False)
    compiled = kernel.compile(ARCH, lines=False)
    assert kernel.is_kept(ARCH, lines=False)
    assert not kernel.is_kept(ARCH)  # with lines
    compiler.forget()
    assert kernel.is_kept(ARCH, lines=False)
    assert kernel.compile(ARCH, lines=False) == compiled
