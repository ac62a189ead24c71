"""Reading the machine code: memory instructions, their widths and source lines."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tilewise import compiler
from tilewise.compiler import machine_code as sass
from tilewise.compiler.machine_code import MemoryInstruction

SOURCE = """__device__ float twice(const float* p, int i) {
    return p[i] * 2;
}
extern "C" __global__ void first(float* x, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        sum += s[i * 3];
    if (n > 3)
        x[n] = twice(s, n) + sum;
}
extern "C" __global__ void second(double* x) {
    __shared__ double s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    compiler.forget()
    sass.disassemble.cache_clear()
    sass._text.cache_clear()


def test_lines_and_widths_of_two_kernels_and_no_third() -> None:
    first = compiler.compile(SOURCE, "first")
    found = sass.disassemble(first).counts("LDS", "STS")
    assert found == Counter({(6, "STS", 32): 1, (11, "LDS", 32): 4, (2, "LDS", 32): 1})
    second = sass.disassemble(replace(first, symbol="second"))
    assert second.counts() == Counter(
        {(17, "LDG", 64): 1, (17, "STS", 64): 1, (19, "LDS", 64): 1, (19, "STG", 64): 1}
    )
    assert "third" in sass.disassemble(replace(first, symbol="third")).reason


def test_predicates_modifiers_and_sections() -> None:
    text = """
\t.section\t.text.other,"ax",@progbits
\t//## File "/a b/x.cu", line 1
        /*0000*/                   LDS R1, [R2] ;
\t.section\t.text.kernel,"ax",@progbits
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDS.U.128 R4, [R0.X16] ;
\t//## File "/a b/x.cu", line 7 inlined at "/a b/x.cu", line 9
\t//## File "/a b/x.cu", line 9
        /*0020*/              @!P1 STS.64 [R0+0x8], R2 ;
        /*0030*/             @!UP2 LDG.E.U16.CONSTANT R2, desc[UR4][R2.64] ;
        /*0040*/                   LDS.U8 R2, [R2] ;
        /*0050*/                   ATOMS.ADD R2, [R2], R3 ;
        /*0060*/                   LDSM.16.M88.4 R4, [R4] ;
.L_x_0:
        /*0070*/                   BRA `(.L_x_0) ;
"""
    assert list(sass.parse(text, "kernel")) == [
        MemoryInstruction(0, "LDS", 128, "@P0"),
        MemoryInstruction(9, "STS", 64, "@!P1"),
        MemoryInstruction(9, "LDG", 16, "@!UP2"),
        MemoryInstruction(9, "LDS", 8, ""),
        MemoryInstruction(9, "ATOMS", 32, ""),
        MemoryInstruction(9, "LDSM", 16, ""),
    ]


def test_it_is_read_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiler.compile(SOURCE, "second")
    before = sass.disassemble(compiled)
    sass.disassemble.cache_clear()
    sass._text.cache_clear()
    monkeypatch.setattr(sass, "find_nvdisasm", lambda: None)
    assert sass.disassemble(compiled) == before


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "pip install"),
        (Path("/no/such/program"), "could not be run"),
        (Path(sys.executable), "failed"),
    ],
)
def test_without_nvdisasm_there_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, program: Path | None, reason: str
) -> None:
    monkeypatch.setattr(sass, "find_nvdisasm", lambda: program)
    found = sass.disassemble(compiler.compile(SOURCE, "first"))
    assert found.instructions is None
    assert reason in found.reason
    assert found.counts() == Counter()
