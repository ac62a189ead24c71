"""Compiling within limits, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewise import compiler
from tilewise.compiler import forking, nvrtc, processes, starting
from tilewise.errors import CompileError, LimitError
from tilewise.limits import Limits

KERNEL = 'extern "C" __global__ void k(int* x) { *x = 1; }\n'
DOUBLING = "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(40))
BOMB = f'#define A0 x[0] += 1;\n{DOUBLING}extern "C" __global__ void k(int* x) {{\nA40 }}\n'
TEMPLATES = (
    "template <int N, int M> struct F { static const int v = F<N-1, M>::v + F<N-1, M+(1<<N)>::v; };"
    "\ntemplate <int M> struct F<0, M> { static const int v = 1; };\n"
    'extern "C" __global__ void k(int* x) { *x = F<28, 0>::v; }\n'
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", [BOMB, TEMPLATES], ids=["macros", "templates"])
def test_a_compilation_without_end_is_stopped(source: str) -> None:
    begin = time.monotonic()
    with pytest.raises(LimitError, match=r"k\.cu:\d+: .*limit of 1 second\b") as caught:
        compiler.compile(source, "k", path=Path("k.cu"), limits=Limits(seconds=1))
    assert time.monotonic() - begin < 60
    found = caught.value
    assert (found.limit, found.value, found.file) == ("seconds", 1, "k.cu")
    assert found.line in ((43,) if source is BOMB else (1, 2))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", [TEMPLATES, BOMB], ids=["templates", "macros"])
def test_a_compilation_that_fills_the_memory_is_stopped(source: str) -> None:
    with pytest.raises(LimitError, match=r"<source>:\d+: .*limit of 256 MiB of memory") as caught:
        compiler.compile(source, "k", limits=Limits(memory=256 << 20))
    assert caught.value.limit == "memory"
    assert caught.value.line in ((43,) if source is BOMB else (1, 2))


def test_an_assembler_that_fills_the_memory_is_stopped() -> None:
    body = "int a[1 << 28]; a[x[0]] = 1; x[1] = a[x[2]];"
    source = f'extern "C" __global__ void k(volatile int* x) {{ {body} }}'
    with pytest.raises(LimitError, match=r"<source>: .*limit of 256 MiB of memory"):
        compiler.compile(source, "k", limits=Limits(memory=256 << 20))


def test_the_same_comes_of_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own ü.cuh").write_text("#define VALUE 321\n")
    source = (
        '#include "own ü.cuh"\ntemplate <int N> __global__ void t(int* x) { *x = N * VALUE; }\n'
    )
    path = tmp_path / "k.cu"
    found = []
    for limits in (None, Limits()):
        os.environ["TILEWISE_CACHE_DIR"] = str(tmp_path / str(limits is None))
        compiler.forget()
        found.append(compiler.compile(source, "t<3>", path=path, limits=limits))
        with pytest.raises(CompileError, match=r"<source>:2: error: .*nothing"):
            compiler.compile("\n__device__ int x = nothing;\n" + KERNEL, "k", limits=limits)
        with pytest.raises(CompileError, match="ptxas refuses this line"):
            compiler.compile('__global__ void k() {\n asm("nothing;"); }', "k", limits=limits)
        with pytest.raises(CompileError, match="no kernel called 'j'"):
            compiler.compile(KERNEL, "j", limits=limits)
    assert found[0] == found[1]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    compiler.forget()


def test_what_was_compiled_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.compile(KERNEL, "k", limits=Limits())
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(processes, "ask", None)
    compiler.compile(KERNEL, "k", limits=Limits())
    compiler.forget()
    compiler.compile(KERNEL, "k", limits=Limits(seconds=1))


def test_without_limits_there_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(processes, "ask", None)
    compiler.compile(KERNEL, "k")


def test_the_process_imports_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    compiler.compile(KERNEL, "k", limits=Limits())
    assert not (tmp_path / "ran").exists()


def test_a_compiler_that_breaks_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for limits in (Limits(), Limits(memory=None)):
        with pytest.raises(CompileError, match=r"the compiler broke down \(exit code 1\)"):
            compiler.compile(KERNEL, "k", limits=limits)


START = "import os, sys, time\nos.write(1, b'!')\nsys.stdin.buffer.read()\n"


@pytest.mark.thorough
def test_all_steps_of_a_compilation_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # With the name and without it nothing compiles: two processes, each of 0.8 seconds.
    answer = (
        "from tilewise.compiler.cache import pack\nfrom tilewise.compiler.nvrtc import Output\n"
    )
    program = (
        f"{answer}from dataclasses import asdict\n{START}time.sleep(0.8)\n"
        "os.write(1, pack(asdict(Output('refused', ok=False))))"
    )
    monkeypatch.setattr(starting, "_RUN", program)
    monkeypatch.setattr(forking, "can_fork", lambda: False)
    with pytest.raises(LimitError, match=r"limit of 1\.2 seconds"):
        compiler.compile(KERNEL, "k", limits=Limits(seconds=1.2))
    with pytest.raises(CompileError, match="refused"):
        compiler.compile(KERNEL, "k", limits=Limits(seconds=30))


def test_nvrtc_is_told_of_headers() -> None:
    options = ["--gpu-architecture=sm_90", "--no-source-include"]
    found = nvrtc.run('#include "/no/such.cuh"\n' + KERNEL, "k.cu", options, "k",
                      {"/no/such.cuh": "#pragma once\n"})  # fmt: skip
    assert found.ok
