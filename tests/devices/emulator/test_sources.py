"""Lines of headers: findings name the header, counters go to the kernel's own line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewise import compiler
from tilewise.compiler import Compiled
from tilewise.compiler import machine_code as sass
from tilewise.compiler.machine_code import Disassembly, MemoryInstruction
from tilewise.counted import Counters
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.counting import joining
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.sources import Sources
from tilewise.errors import LaunchError, MemoryAccessError, UnsupportedInstructionError
from tilewise.kernel import Kernel
from tilewise.launch import Launch, LaunchReport

KERNEL = """#include "parts/outer.cuh"
inline float first(const float* x) { return x[0]; }
extern "C" __global__ void k(int n, float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = s[threadIdx.x + 32] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = neighbours(s, n);
    x[threadIdx.x + 32] = pair(s, 2) + first(x);
}
extern "C" __global__ void race(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = pair(s, 32 - threadIdx.x);
}
extern "C" __global__ void ends() { stop(); }
extern "C" __global__ void odd(int* x) { unknown(x); }
"""
OUTER = """#pragma once
#include "inner.cuh"


__device__ inline float neighbours(const float* s, int i) {
    return pair(s, i) * s[i + 3];
}
__device__ inline void stop() { __trap(); }
__device__ inline void unknown(int* x) {
    asm volatile("{.reg .b32 r; .reg .f32 f; mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 "
                 "{f, f, f, f, f, f, f, f}, {r, r}, {r, r}, {f,f,f,f,f,f,f,f};}" ::: "memory");
}
"""
INNER = """#pragma once
__device__ inline float pair(const float* s, int i) {
    return s[i] + s[i + 1];
}
"""


def written(folder: Path) -> Path:
    """Write the kernels and their headers into a folder; return the kernels' file."""
    (folder / "parts").mkdir()
    (folder / "parts" / "outer.cuh").write_text(OUTER)
    (folder / "parts" / "inner.cuh").write_text(INNER)
    (folder / "kernel.cu").write_text(KERNEL)
    return folder / "kernel.cu"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the kernels' file, of one path for all tests, so that each kernel is compiled once."""
    return written(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    """Return the kernels' file of one test, which may write other kernels into it."""
    return written(tmp_path)


def run(file: Path, n: int, checks: str = "raise") -> LaunchReport:
    x = np.arange(64, dtype=np.float32)
    return Kernel(file, "k").launch(1, 32, (n, x), device="emulator", checks=checks)


def test_findings_name_the_header(file: Path) -> None:
    with pytest.raises(MemoryAccessError) as caught:
        run(file, 63)
    (finding,) = caught.value.findings
    assert (finding.file, finding.line) == (str(file.parent / "parts" / "inner.cuh"), 3)
    assert f"inner.cuh:3: {finding.kind}: " in str(caught.value)
    places = {(Path(f.file).name, f.line) for f in run(file, 63, "collect").findings}
    assert places == {("inner.cuh", 3), ("outer.cuh", 6)}


def test_a_function_of_a_header_that_is_not_inlined(tmp_path: Path) -> None:
    # NVRTC declares its file first.
    (tmp_path / "own.cuh").write_text(
        "\n\n__device__ __noinline__ void store(float* x, int i) { x[i] = 1; }\n"
    )
    file = tmp_path / "kérnel.cu"
    file.write_text(
        '#include "own.cuh"\nextern "C" __global__ void k(float* x) {\n'
        "    store(x, threadIdx.x);\n    x[threadIdx.x + 40] = 2;\n}\n"
    )

    def run(elements: int) -> None:
        Kernel(file, "k").launch(1, 32, (np.zeros(elements, np.float32),), device="emulator")

    for elements, name, line in ((16, "own.cuh", 3), (48, "kérnel.cu", 4)):
        with pytest.raises(MemoryAccessError) as caught:
            run(elements)
        found = caught.value.findings[0]
        assert (Path(found.file).name, found.line) == (name, line)


def test_a_header_is_named_from_where_the_kernel_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(MemoryAccessError) as caught:
        run(Path("kernel.cu"), 63)
    assert caught.value.findings[0].file == str(Path("parts", "inner.cuh"))
    monkeypatch.chdir(file.parent.parent)
    with pytest.raises(MemoryAccessError) as caught:
        run(Path(file.parent.name, "kernel.cu"), 63)
    assert caught.value.findings[0].file == str(Path(file.parent.name, "parts", "inner.cuh"))


def test_lines_of_other_files_are_named_with_them(file: Path) -> None:
    x = np.zeros(64, np.float32)
    report = Kernel(file, "race").launch(1, 64, (x,), device="emulator", checks="collect")
    race = next(finding for finding in report.findings if finding.kind == "race")
    assert (Path(race.file).name, race.line) == ("inner.cuh", 3)
    assert f"(line 12 of {file})" in race.message


def test_the_kernels_line_that_called_a_header_is_named(file: Path) -> None:
    findings = run(file, 63, "collect").findings
    inner, outer = (
        next(f for f in findings if Path(f.file).name == name)
        for name in ("inner.cuh", "outer.cuh")
    )
    assert inner.message.endswith(f"; in pair, called at {file}:7")
    assert (inner.calls, outer.calls) == ((7,), (7,))
    assert outer.message.endswith(f"; in neighbours, called at {file}:7")
    with pytest.raises(MemoryAccessError, match=rf"in pair, called at {re.escape(str(file))}:7"):
        run(file, 63)


def test_both_sides_of_a_race_name_the_kernels_line(own_file: Path) -> None:
    source = """#include "parts/inner.cuh"
__device__ inline void put(float* s, float x) {
    s[threadIdx.x] = x;
}
template <int N> struct Two {
    __device__ static void all(float* s, float x) { put(s, x); s[threadIdx.x + N] = x; }
};
extern "C" __global__ void twice(float* x) {
    __shared__ float s[128];
    Two<64>::all(s, x[threadIdx.x]);
    x[threadIdx.x] = pair(s, 62 - threadIdx.x);
}
"""
    own_file.write_text(source)
    x = np.zeros(64, np.float32)
    found = (
        Kernel(own_file, "twice").launch(1, 64, (x,), device="emulator", checks="collect").findings
    )
    race = next(f for f in found if "(line 3 of" in f.message)
    assert (Path(race.file).name, race.line, race.calls) == ("inner.cuh", 3, (11,))
    assert f"(line 3 of {own_file}, in put, called at line 6, from line 10)" in race.message
    assert race.message.endswith(f"; in pair, called at {own_file}:11")


def test_a_line_of_the_kernels_own_helper_says_who_called_it(own_file: Path) -> None:
    own_file.write_text("""__device__ inline float at(const float* x, int i) { return x[i]; }
extern "C" __global__ void k(float* x) {
    float sum = at(x, threadIdx.x);
    sum += at(x, threadIdx.x + 100);
    x[threadIdx.x] = sum + at(x, threadIdx.x + 200);
}
""")
    x = np.zeros(40, np.float32)
    found = Kernel(own_file, "k").launch(1, 32, (x,), device="emulator", checks="collect").findings
    assert [(f.line, f.calls) for f in found] == [(1, (4,)), (1, (5,))]
    assert found[0].message.endswith("; in at, called at line 4")


def test_the_lines_of_an_included_kernel_that_called_a_header_are_named(own_file: Path) -> None:
    """The file that is compiled only includes the kernel, as a runner of many kernels does."""
    body = own_file.parent / "kernels" / "body.cuh"
    body.parent.mkdir()
    body.write_text("""#include "../parts/inner.cuh"
__device__ inline float both(const float* s, int i) { return pair(s, i) + 1; }
extern "C" __global__ void included(float* x) {
    x[threadIdx.x] = both(x, threadIdx.x);
}
""")
    own_file.write_text('#include "kernels/body.cuh"\n')
    x = np.zeros(16, np.float32)
    found = Kernel(own_file, "included").launch(1, 32, (x,), device="emulator", checks="collect")
    finding = next(f for f in found.findings if Path(f.file).name == "inner.cuh")
    assert finding.message.endswith(f"; in pair, called at {body}:2, from {body}:4")
    assert finding.calls == (), "they are lines of the kernel's own file, and that has none of them"


def test_a_header_that_is_not_inlined_says_who_called_it(own_file: Path) -> None:
    own_file.write_text("""#include "parts/far.cuh"
__device__ __noinline__ float between(const float* x, int n) {
    return far(x, n) + 1;
}
extern "C" __global__ void calls(int n, float* x) {
    if (n < 0) x[0] = far(x, 0);
    x[threadIdx.x] = between(x, n);
}
""")
    header = own_file.parent / "parts" / "far.cuh"
    header.write_text("\n__device__ __noinline__ float far(const float* x, int n) { return x[n]; }")
    x = np.zeros(32, np.float32)
    found = Kernel(own_file, "calls").launch(1, 32, (64, x), device="emulator", checks="collect")
    (finding,) = found.findings
    assert (Path(finding.file).name, finding.line, finding.calls) == ("far.cuh", 2, (3, 7))
    assert finding.message.endswith(f"; in far, called at {own_file}:3, from {own_file}:7")


def test_errors_name_the_header(file: Path) -> None:
    with pytest.raises(LaunchError, match=r"outer\.cuh:8: thread"):
        Kernel(file, "ends").launch(1, 32, (), device="emulator")
    with pytest.raises(
        UnsupportedInstructionError,
        match=r"line 10 of .*outer\.cuh, in unknown, called at .*kernel\.cu:16\)",
    ):
        Kernel(file, "odd").launch(1, 32, (np.zeros(32, np.int32),), device="emulator")


def test_counters_go_to_the_line_that_a_header_was_inlined_at(file: Path) -> None:
    report = run(file, 8)
    assert report.counters is not None
    lines = report.lines
    assert report.counted_as == "machine code"
    # Three loads of a header in a header; two of one and one of the kernel's own function.
    assert {n: c.shared_load_requests for n, c in lines.items() if c.shared_load_requests} == {
        7: 3,
        8: 1,
    }
    assert {n for n, c in lines.items() if c.global_load_requests} == {2, 5}
    assert set(lines) <= set(range(2, 10))
    total = Counters()
    for line in lines.values():
        total += line
    assert total == report.counters


def test_what_was_not_inlined_counts_in_the_total_only(own_file: Path) -> None:
    source = """#include "parts/far.cuh"
    extern "C" __global__ void calls(int n, float* x) {
        x[threadIdx.x] = far(x, n);
    }"""
    header = own_file.parent / "parts" / "far.cuh"
    header.write_text("""
    __device__ __noinline__ float far(const float* x, int n) { return x[n]; }""")
    kernel = compiler.compile(source, "calls", path=own_file)
    # The header's function comes first, so that the header is file 1.
    ptx = re.sub(r'(\.file\s+1 )".*"', lambda match: f'{match[1]}"{header}"', kernel.ptx)
    args = (64, np.zeros(64, np.float32))
    launch = Launch((1, 1, 1), (32, 1, 1), args, checks="collect")
    report = Emulator().launch(replace(kernel, ptx=ptx), launch)
    assert [(f.file, f.line) for f in report.findings] == [(str(header), 2)]
    assert report.counters is not None
    assert report.counters.warp_instructions > sum(
        line.warp_instructions for line in report.lines.values()
    )
    assert set(report.lines) == {2, 3, 4}


def compiled(file: Path) -> Compiled:
    return compiler.compile(KERNEL, "k", path=file)


def test_the_machine_code_confirms_lines_of_headers(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(file)
    program = Program(parse(kernel.ptx), kernel.symbol)
    assert joining.join(program, kernel).confirmed
    found = Disassembly((MemoryInstruction(6, "LDS", 8, ""),))
    monkeypatch.setattr(sass, "disassemble", lambda compiled: found)
    reason = joining.join(program, kernel).reason
    assert f"shared loads of line 3 of {file.parent / 'parts' / 'inner.cuh'} are none" in reason


PTX = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {
    mov.u32 %r0, 0;
    .loc 1 10 1
    mov.u32 %r0, 1;
    .loc 2 20 1, function_name $L__info_string0, inlined_at 1 10 1
    .loc 3 30 1, function_name $L__info_string1, inlined_at 2 20 1
    mov.u32 %r0, 2;
    .loc 3 0 0
    .loc 3 30 1
    mov.u32 %r0, 3;
    .loc 3 30 1, function_name $L__info_string1, inlined_at 3 30 1
    .loc 3 30 1, function_name $L__info_string1, inlined_at 3 30 1
    mov.u32 %r0, 4;
    .loc 2 40 1, function_name $L__info_string2, inlined_at 1 50 7
    mov.u32 %r0, 5;
    .loc 2 60 1
    mov.u32 %r0, 6;
    .loc 1 70 1, function_name $L__info_string0, inlined_at 2 60 1
    ret;
}
.file 1 "kernels/k.cu"
.file 2 "FOLDER/kernels/a \\"b\\".cuh"
.file 3 "/elsewhere/\\303\\251.cuh"
"""


def test_inlined_at() -> None:
    text = PTX.replace("%r0", "r").replace("entry k() {", "entry k() { .reg .u32 r;")
    module = parse(text.replace("FOLDER", str(Path.cwd())))
    sources = Sources(module.files, "kernels/k.cu")
    own, a, c = "kernels/k.cu", str(Path("kernels", 'a "b".cuh')), str(Path("/elsewhere/é.cuh"))
    assert [
        (sources.name(i), i.line, sources.own_line(i)) for i in module.functions["k"].instructions
    ] == [
        (own, 0, 0),
        (own, 10, 10),
        (c, 30, 10),
        (c, 30, 10),
        (c, 30, 10),
        (a, 40, 50),
        (a, 60, None),
        (own, 70, 70),
    ]
