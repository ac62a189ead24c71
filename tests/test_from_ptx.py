"""``Kernel.from_ptx``: what it takes, and that it is the same kernel as the source's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import KERNELS, thorough

import tilewise
from tilewise.compiler import symbols
from tilewise.compiler.ptx import assembler
from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.counting.joining import join
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program
from tilewise.errors import CompileError
from tilewise.kernel import Kernel
from tilewise.ladder.prepared import prepare
from tilewise.ladder.problem import Gemm, random_problem
from tilewise.ladder.rungs import RUNGS
from tilewise.launch import LaunchReport

has_assembler = pytest.mark.skipif(
    not assembler.tools(), reason="neither nvJitLink nor ptxas is here"
)
ADD = """.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 .ptr .global .align 4 x, .param .f32 a, .param .b32 n)
{
.reg .b32 %r<3>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .pred p;
ld.param.u64 %rd1, [x]; ld.param.f32 %f1, [a]; ld.param.u32 %r2, [n];
mov.u32 %r1, %tid.x; setp.ge.u32 p, %r1, %r2;
@p bra done;
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
ld.global.f32 %f2, [%rd3];
add.f32 %f3, %f2, %f1;
st.global.f32 [%rd3], %f3;
done: ret;
}
"""


def product(rung: Any, kernel: Kernel, arch: str) -> tuple[Any, LaunchReport]:
    """What a rung's kernel makes of a small product, on an emulator of its own."""
    m, n, k = rung.sizes(33, 21, 17)
    a, b, _ = random_problem(m, n, k, rung.dtype(), 3)
    gemm = Gemm.of(a, b, None, alpha=1.5, beta=0.0)
    prepared = prepare(rung, gemm, None)
    grid, block = prepared.geometry
    c = np.zeros((m, n), a.dtype)
    report = kernel.launch(
        grid, block, prepared.args(gemm, a, b, c), prepared.shared, Emulator(arch), "collect"
    )
    return c, report


def of_rung(rung: Any) -> Kernel:
    m, n, k = rung.sizes(33, 21, 17)
    a, b, _ = random_problem(m, n, k, rung.dtype(), 3)
    return prepare(rung, Gemm.of(a, b, None, alpha=1.5, beta=0.0), None).kernel


@has_assembler
@pytest.mark.parametrize(
    "rung",
    [pytest.param(rung, id=rung.name, marks=[thorough] * (rung.name != "tiled")) for rung in RUNGS],
)
def test_a_rung_of_ptx_does_as_its_source(rung: Any, emulator: Device) -> None:
    kernel = of_rung(rung)
    compiled = kernel.compile()
    wanted, expected = product(rung, kernel, "sm_90a")
    found, report = product(rung, Kernel.from_ptx(compiled.ptx, compiled.symbol), "sm_90a")
    np.testing.assert_array_equal(found, wanted)
    assert report.counters == expected.counters
    assert report.lines == expected.lines
    assert report.counted_as == expected.counted_as == "machine code"
    # Without lines, those of the PTX itself say the same.
    bare = re.sub(r"\n\s*\.(?:loc|file)\b[^\n]*", "", compiled.ptx)
    found, report = product(rung, Kernel.from_ptx(bare), "sm_90a")
    np.testing.assert_array_equal(found, wanted)
    assert report.counters == expected.counters


@has_assembler
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(path.name, id=path.name, marks=[thorough] * (path.name != "local.cu"))
        for path in sorted(KERNELS.glob("*.cu"))
    ],
)
def test_every_kernel_of_ptx_counts_as_its_source(file: str, emulator: Device) -> None:
    """The instructions are the PTX's in both cases; what ptxas joins must be the same too."""
    # Some are there only with a macro, and float8.cu compiles with none.
    names = [x.name for x in tilewise.list_kernels(KERNELS / file) if x.compiles]
    assert names or file in ("float8.cu", "templates.cu")
    for name in filter(str.isidentifier, names):  # and no template's
        source = Kernel(KERNELS / file, name).compile()
        found = Kernel.from_ptx(source.ptx, source.symbol).compile()
        assert [(p.name, p.type, p.size, p.align) for p in found.parameters] == [
            (p.name, p.type, p.size, p.align) for p in source.parameters
        ]
        program = Program(parse(found.ptx), found.symbol)
        ours, theirs = join(program, found), join(program, source)
        assert dict(ours.accesses) == dict(theirs.accesses), name
        assert ours.confirmed or not theirs.confirmed, (name, ours.reason)
        # nvJitLink places variables in another order, with other gaps, each less than an alignment.
        more = source.resources.shared_bytes - found.resources.shared_bytes
        aligned = [int(n) for n in re.findall(r"\.shared \.align (\d+)", source.ptx)]
        assert abs(more) < max(aligned, default=1), name


def test_a_kernel_of_ptx_runs(device: Device) -> None:
    x = np.arange(8, dtype=np.float32)
    Kernel.from_ptx(ADD).launch(1, 32, (x, 0.5, 5), device=device)
    assert x.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5, 6, 7]


def test_it_is_for_its_own_target(emulator: Device) -> None:
    kernel, x = Kernel.from_ptx(ADD), np.zeros(8, np.float32)
    assert kernel.arch == "sm_80"
    assert kernel.launch(1, 8, (x, 1, 8), device="emulator").arch == "sm_80"
    newer = tilewise.emulator("sm_90")
    assert kernel.launch(1, 8, (x, 1, 8), device=newer).arch == "sm_90"
    with pytest.raises(ValueError, match="PTX for sm_80 runs on sm_80 and on later ones"):
        kernel.launch(1, 8, (x, 1, 8), device=tilewise.emulator("sm_75"))


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((1.5, 1, 8), TypeError, "argument 0 .*an array or a 64-bit integer, not 1.5"),
        ((None, "a", 8), TypeError, "argument 1 .*a 32-bit float, not 'a'"),
        ((None, 1.0, 1 << 40), ValueError, "argument 2 .*does not fit"),
        ((None, 1.0), TypeError, "add takes 3 arguments, not 2"),
    ],
)
def test_arguments_are_checked_by_the_ptx(
    args: tuple[Any, ...], error: type[Exception], message: str, emulator: Device
) -> None:
    with pytest.raises(error, match=message):
        Kernel.from_ptx(ADD).launch(1, 8, args, device=emulator)


def test_bits_take_a_float_too(emulator: Device) -> None:
    text = ADD.replace(".param .f32 a", ".param .b32 a").replace("ld.param.f32", "ld.param.b32")
    x = np.zeros(4, np.float32)
    Kernel.from_ptx(text).launch(1, 4, (x, 2.5, 4), device=emulator)
    assert x.tolist() == [2.5] * 4


def test_its_variables_are_set_by_name(device: Device) -> None:
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .texref t;\n"
        ".visible .const .align 4 .f32 scale[2];\n.global .align 4 .b32 n = 5;\n"
        ".visible .entry k(.param .u64 x) {\n.reg .b64 a; .reg .f32 f; ld.param.u64 a, [x]; "
        "ld.const.f32 f, [scale+4]; st.global.f32 [a], f; ret; }\n"
    )
    kernel, x = Kernel.from_ptx(text), np.zeros(1, np.float32)
    found = kernel.compile().variables
    assert [(v.name, v.space, v.size) for v in found] == [
        ("scale", "constant", 8), ("n", "device", 4),
    ]  # fmt: skip
    kernel.variables["scale"] = np.array([1, 7], np.float32)
    kernel.launch(1, 1, (x,), device=device)
    assert x[0] == 7


def test_what_it_takes_is_checked(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="takes PTX as a string, or the path"):
        Kernel.from_ptx(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes the kernel's name as a string"):
        Kernel.from_ptx(ADD, 5)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        Kernel.from_ptx(tmp_path / "none.ptx")
    with pytest.raises(CompileError, match="no kernel called 'sub'; it has add"):
        Kernel.from_ptx(ADD, "sub")
    path = tmp_path / "add.ptx"
    path.write_text(ADD)
    assert repr(Kernel.from_ptx(path)) == f"Kernel.from_ptx({str(path)!r}, 'add')"
    kernel = Kernel.from_ptx(path, "add")
    assert kernel.with_macros({"TILE": 3}) is kernel


def test_it_is_isolated_and_limited(emulator: Device) -> None:
    x = np.zeros(8, np.float32)
    kernel = Kernel.from_ptx(ADD, limits=tilewise.Limits(seconds=60))
    report = kernel.launch(1, 8, (x, 1, 8), device=emulator, isolated=True)
    assert x.tolist() == [1] * 8
    assert report.launch.limits == kernel.limits


@has_assembler
def test_it_is_profiled(emulator: Device) -> None:
    x = np.zeros(32, np.float32)
    found = Kernel.from_ptx(ADD).profile(1, 32, (x, 1, 32))
    assert found.counters.global_load_requests == 1
    assert found.counters.fadd == 32
    assert found.occupancy.registers == found.report.resources.registers > 0
    assert found.case.kernel.is_ptx
    assert symbols.entries(found.source) == ("add",)


def test_without_an_assembler_a_profile_says_what_is_missing(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    found = Kernel.from_ptx(ADD + "// no assembler\n").profile(1, 32, (None, 1, 0))
    assert "registers and spills  not known: neither nvJitLink nor ptxas" in re.sub(
        r"\s{2,}", "  ", str(found)
    )
    assert "for its registers are not known" in str(found)
    with pytest.raises(ValueError, match="registers are not known: neither nvJitLink nor ptxas"):
        emulator.blocks_per_multiprocessor(Kernel.from_ptx(ADD + "// no assembler\n").compile(), 32)


@pytest.mark.parametrize("head", ["", "//\n// Generated by NVIDIA NVVM Compiler\n\n", "/* a\n*/ "])
def test_a_kernel_of_cuda_says_who_takes_ptx(head: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the source is PTX, .*Kernel.from_ptx\(text, 'add'\)"):
        Kernel(head + ADD.lstrip(), "add")
    path = tmp_path / "add.ptx"
    path.write_text(head + ADD)
    for given in (path, str(path)):
        with pytest.raises(ValueError, match=r"add.ptx is PTX, .*from_ptx\('.*add.ptx', 'add'\)"):
            Kernel(given, "add")
    path.write_text("nothing")
    with pytest.raises(ValueError, match=r"add.ptx is PTX"):
        Kernel(path, "add")
    with pytest.raises(FileNotFoundError):
        Kernel(str(tmp_path / "none.ptx"), "add")
    # What only speaks of it is C++, and white space without end is no trap.
    Kernel(" " * 100_000 + '// .version 8.0\nextern "C" __global__ void k() {}', "k").compile()


def test_ptx_that_is_none_says_so(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text('extern "C" __global__ void k() {}')
    for given in (path, str(path)):
        with pytest.raises(ValueError, match=r"k.cu is CUDA C\+\+, .*Kernel\('.*k.cu', 'k'\)"):
            Kernel.from_ptx(given, "k")
    with pytest.raises(CompileError, match=r"has no .target, .* is it PTX\?"):
        Kernel.from_ptx(".visible .entry k() { ret; }").compile()
    kernel = Kernel.from_ptx(ADD)
    assert isinstance(kernel, Kernel)
    assert (kernel.defines, kernel.options, kernel.include, kernel.trusted) == ({}, (), (), False)
