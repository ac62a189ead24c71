"""The source that PTX was compiled from: whether it is still the one, and the types it declares."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tilewise.compiler.declared import fits, type_of
from tilewise.compiler.names import signature
from tilewise.devices import Device
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("ptx_alone")

SOURCE = """#include <cuda_fp16.h>
extern "C" __global__ void twice(int n, __half* x, const float* y) {
    int i = threadIdx.x;
    if (i < n)
        x[i] = __float2half(2.f * y[i]);
}
"""
PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u32 twice_param_0, .param .u64 twice_param_1,
    .param .u64 twice_param_2)
{
.reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %rd<7>; .reg .b16 %h; .reg .pred p;
.loc 1 3 5
mov.u32 %r1, %tid.x;
ld.param.u32 %r2, [twice_param_0];
.loc 1 4 5
setp.ge.u32 p, %r1, %r2;
@p bra done;
.loc 1 5 9
ld.param.u64 %rd1, [twice_param_1]; ld.param.u64 %rd2, [twice_param_2];
mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
ld.global.f32 %f1, [%rd4];
add.f32 %f2, %f1, %f1;
cvt.rn.f16.f32 %h, %f2;
mul.wide.u32 %rd5, %r1, 2; add.s64 %rd6, %rd1, %rd5;
st.global.b16 [%rd6], %h;
.loc 1 6 1
done: ret;
}
.file 1 "k.cu"STAMP
"""
MADE = 1_700_000_000


def kernel(folder: Path, source: str = SOURCE, stamp: str = "", later: float = 0) -> Kernel:
    """The kernel of PTX beside a source that was written so many seconds later."""
    (folder / "k.cu").write_text(source)
    (folder / "k.ptx").write_text(PTX.replace("STAMP", stamp))
    os.utime(folder / "k.ptx", (MADE, MADE))
    os.utime(folder / "k.cu", (MADE + later, MADE + later))
    return Kernel.from_ptx(folder / "k.ptx")


SIZE = len(SOURCE)
OTHERS = "its twice takes other parameters"


@pytest.mark.parametrize(
    ("stamp", "later"), [("", 0), ("", -99), ("", 0.5), (f", {MADE + 9}, {SIZE}", 9),
     (", 0, 0", 99)],
)  # fmt: skip
def test_types_are_those_of_a_source_that_nobody_changed(
    stamp: str, later: float, tmp_path: Path, emulator: Device
) -> None:
    found = kernel(tmp_path, stamp=stamp, later=later)
    compiled = found.compile()
    assert not compiled.source_doubt
    assert compiled.source == SOURCE
    assert [x.declared for x in compiled.parameters] == ["int", "__half*", "float*"]
    x, y = np.zeros(8, np.float16), np.ones(8, np.float32)
    report = found.launch(1, 8, (8, x, y), device=emulator)
    assert x.tolist() == [2] * 8
    assert not any("compiled from" in note for note in report.notes)
    with pytest.raises(TypeError, match="float16"):
        found.launch(1, 8, (8, y, y), device=emulator)
    with pytest.raises(ValueError, match="does not fit"):
        found.launch(1, 8, (1 << 31, x, y), device=emulator)


@pytest.mark.parametrize(
    ("source", "stamp", "later", "why", "is_shown"),
    [
        (SOURCE, "", 60, "it was changed later", True),
        (SOURCE, f", {MADE}, {SIZE}", 60, "it was changed later", True),
        (f"//\n{SOURCE}", f", {MADE}, {SIZE}", 0, f"it had {SIZE} bytes, and has {SIZE + 3} now",
         False),
        ("\n".join(SOURCE.splitlines()[:4]), "", 0, "the PTX names line 6, and the file has 4 now",
         False),
        (SOURCE.replace("int n,", "int n, int m,"), "", 0, OTHERS, False),
        (SOURCE.replace("int n,", "float n,"), "", 0, OTHERS, False),
        (SOURCE.replace("int n,", "long long n,"), "", 0, OTHERS, False),
        (SOURCE.replace("__half* x", "__half x"), "", 0, OTHERS, False),
    ],
)  # fmt: skip
def test_another_source_is_said(
    source: str, stamp: str, later: float, why: str, is_shown: bool, tmp_path: Path,
    emulator: Device,
) -> None:  # fmt: skip
    found = kernel(tmp_path, source, stamp, later)
    compiled = found.compile()
    assert f"k.cu may not be what the PTX was compiled from ({why})" in compiled.source_doubt
    assert compiled.source == (source if is_shown else "")
    assert [x.declared for x in compiled.parameters] == ["", "", ""]
    assert signature(compiled) == "twice(.u32, .u64, .u64)"
    args = (8, np.zeros(8, np.float32), np.ones(8, np.float32))
    report = found.launch(1, 8, args, device=emulator)
    assert compiled.source_doubt in report.notes
    assert compiled.source_doubt in found.profile(1, 8, args).report.notes


def test_a_source_that_is_edited_between_two_launches(tmp_path: Path) -> None:
    found = kernel(tmp_path)
    assert not found.compile().source_doubt
    kernel(tmp_path, SOURCE + "\n", later=60)
    assert "it was changed later" in found.compile().source_doubt
    (tmp_path / "k.cu").unlink()
    compiled = found.compile()
    assert (compiled.source, compiled.source_doubt) == ("", "")


def test_a_source_that_the_caller_names(tmp_path: Path) -> None:
    text, source = PTX.replace("STAMP", ""), tmp_path / "elsewhere.cu"
    source.write_text(SOURCE)
    compiled = Kernel.from_ptx(text, source=source).compile()
    assert [x.declared for x in compiled.parameters] == ["int", "__half*", "float*"]
    source.write_text(SOURCE.replace("int n,", "double n,"))
    compiled = Kernel.from_ptx(text, source=source).compile()
    assert "takes other parameters" in compiled.source_doubt
    assert compiled.source  # it is shown all the same
    assert [x.declared for x in compiled.parameters] == ["", "", ""]


def test_what_the_source_does_not_say_plainly_is_not_taken(tmp_path: Path) -> None:
    for other in (
        SOURCE.replace("int n, __half* x, const float* y", "PARAMETERS"),
        # Two of a name, as in two branches of an #if.
        SOURCE + SOURCE.replace("__half* x", "float* x"),
        SOURCE.replace("twice", "thrice"),
    ):
        compiled = kernel(tmp_path, other).compile()
        assert not compiled.source_doubt
        assert [x.declared for x in compiled.parameters] == ["", "", ""]
    compiled = kernel(tmp_path, SOURCE.replace("__half* x", "real* x")).compile()
    assert [x.declared for x in compiled.parameters] == ["int", "*", "float*"]


@pytest.mark.parametrize(
    ("part", "type_"),
    [
        ("int n", "int"), ("int", "int"), ("unsigned", "unsigned int"),
        ("unsigned n", "unsigned int"),
        ("const float* __restrict__ x", "float*"), ("float const * const x", "float*"),
        ("float *x", "float*"), ("float** x", "float**"), ("float x[]", "float*"),
        ("float x[4][4]", "float**"), ("long long int n", "long long"),
        ("unsigned long long n", "unsigned long long"), ("long unsigned int n", "unsigned long"),
        ("short int x", "short"), ("signed char c", "signed char"), ("char c", "char"),
        ("std::size_t n", "unsigned long"), ("uint8_t* p", "unsigned char*"), ("half h", "__half"),
        ("void* p", "void*"), ("real* x", "*"), ("T x", ""), ("vec<float, 4>* x", "*"),
        ("vec<float, 4> x", ""), ("float (&x)[4]", ""), ("void (*f)(int)", ""),
        ("int n = 4", "int"),
        ("const __grid_constant__ CUtensorMap map", ""), ("bool flag", "bool"),
        ("...", ""), ("", ""),
    ],
)  # fmt: skip
def test_types_are_read(part: str, type_: str) -> None:
    assert type_of(part) == type_


def test_types_fit_parameters_of_their_size() -> None:
    assert fits("int", 4, "u32")
    assert fits("int", 4, "b32")
    assert fits("float", 4, "f32")
    assert fits("float", 4, "b32")
    assert fits("long", 8, "s64")
    assert fits("float4", 16, "b8")
    assert fits("__half", 2, "b8")
    assert fits("float*", 8, "u64")
    assert fits("", 99, "b8")
    assert not fits("int", 8, "u64")
    assert not fits("float", 4, "u32")
    assert not fits("int", 4, "f32")
    assert not fits("float*", 4, "u32")
    assert not fits("double*", 8, "f64")


def test_kernels_without_parameters(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k()\n{\n.loc 1 1 1\nret;\n}\n"
        '.file 1 "k.cu"\n'
    )
    for written in ("k()", "k(void)", "k(NOTHING)"):
        (tmp_path / "k.cu").write_text(f'extern "C" __global__ void {written} {{}}\n')
        assert not Kernel.from_ptx(tmp_path / "k.ptx").compile().source_doubt
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(int n) {}\n')
    assert "other parameters" in Kernel.from_ptx(tmp_path / "k.ptx").compile().source_doubt
