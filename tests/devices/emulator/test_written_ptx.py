"""PTX as compilers and people write it, beyond what NVRTC does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewise.compiler.ptx import assembler
from tilewise.devices import Device
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program
from tilewise.errors import CompileError, UnsupportedInstructionError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n"
START = """.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
"""


def run(
    body: str, device: str | Device, before: str = "", head: str = HEAD, **options: Any
) -> tuple[Any, LaunchReport]:
    """What a kernel makes of 0, 1, 2, ..., a thread an element."""
    text = f"{head}{before}\n.visible .entry k(.param .u64 .ptr .global .align 4 x)\n"
    x = np.arange(32, dtype=np.float32)
    kernel = Kernel.from_ptx(f"{text}{{\n{START}{body}\n}}\n")
    return x, kernel.launch(1, 32, (x,), device=device, **options)


TWICE = "ld.global.f32 %f1, [%rd3]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd3], %f1; ret;"
AGAIN = "add.f32 %f1, %f1, %f1;"
TURNED = {
    "a vector of one element": "ld.global.b32 { %f1 }, [ %rd3 + 0 ];"
    f"{AGAIN} st.global.b32 [%rd3], {{ %f1 }}; ret;",
    "a guarded vector of one element": "setp.ne.u32 %p1, %r1, 99; @%p1 ld.global.b32 { %f1 }, "
    f"[ %rd3 + 0 ]; {AGAIN} @%p1 st.global.b32 [ %rd3 + 0 ], {{ %f1 }}; ret;",
    "no space, and an instruction's name": ".reg.f32 add, C;\n.reg.b64\tr; ld.global.f32 add,[%rd3]"
    "; add.f32 add,add,add; st.global.f32 [%rd3], add; ret;",
    "comments": f"/* ; {{ \n */ {TWICE} // ; }}",
    "lines and pragmas": f'.loc 1 4 2\nL: .pragma "nounroll"; .loc 1 6 1, function_name $L, '
    f"inlined_at 1 4 2 {TWICE}",
    "a line that parts an instruction": TWICE.replace(", ", ",\n"),
    "a scope in a line": "{.reg.f32 f;ld.global.f32 f,[%rd3];add.f32 f,f,f;"
    "st.global.f32 [%rd3],f;}ret;",
    "a cache's policy": TWICE.replace("ld.global", "ld.global.nc.L1::evict_last.L2::128B"),
    "the environment's registers": "mov.u32 %r2, %envreg2; cvt.rn.f32.u32 %f2, %r2; ld.global.f32 "
    "%f1, [%rd3]; fma.rn.f32 %f1, %f1, 0f40000000, %f2; st.global.f32 [%rd3], %f1; ret;",
    "the system's shared memory": "mov.u32 %r2, %reserved_smem_offset_1; mad.lo.u32 %r2, %r1, 4, "
    "%r2; ld.global.f32 %f1, [%rd3]; add.f32 %f1, %f1, %f1; st.shared.f32 [%r2], %f1; "
    "ld.shared.f32 %f2, [%r2]; st.global.f32 [%rd3], %f2; ret;",
}  # fmt: skip


@pytest.mark.parametrize("what", TURNED)
def test_what_others_write_runs(what: str, device: Device) -> None:
    before = '.file 1 "a//b;{.py", 123, 456\n.section .debug_str { $L: .b8 102\n.b8 0 }'
    x, _ = run(TURNED[what], device if device.name == "gpu" else "emulator", before)
    np.testing.assert_array_equal(x, 2 * np.arange(32, dtype=np.float32))


BEFORE = {
    "a function that nobody calls": ".func f() { .reg .b32 a; mov.b32 a, %nosuch; ret; }",
    "a texture that nobody reads": ".global .texref tx;",
    "a common variable": ".common .global .align 4 .b32 c;",
    "another name": ".func f() { ret; }\n.func g();\n.alias g, f;",
    "what does not return": ".func f() .noreturn;\n.func f() .noreturn { trap; }",
    "old debug data": "@@DWARF .section .debug_info\n@@DWARF .byte 3, }\n",
    "debug data": ".section .debug_abbrev\n{\n.b8 1 // }\n}\n.section .debug_macinfo { }",
    "dynamic shared memory": ".extern .shared .align 16 .b8 s[];",
}


@pytest.mark.parametrize("what", BEFORE)
def test_what_stands_before_a_kernel_does_no_harm(
    what: str, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "nobody" in what:  # an assembler reads all of a module
        monkeypatch.setattr(assembler, "tools", tuple)
    x, _ = run(TWICE, "emulator", BEFORE[what])
    np.testing.assert_array_equal(x, 2 * np.arange(32, dtype=np.float32))


@pytest.mark.parametrize("change", [("\n", "\r\n"), ("\n", " ")], ids=["CRLF", "one line"])
def test_lines_may_end_otherwise(change: tuple[str, str], emulator: Device) -> None:
    head, body = (text.replace(*change) for text in (HEAD, TWICE))
    x, _ = run(body, "emulator", head=head)
    assert x[3] == 6


def test_functions_are_called_by_another_name(emulator: Device) -> None:
    before = (
        ".func f(.param .b64 a) { .reg .b64 a1; ld.param.b64 a1, [a]; st.global.f32 [a1], "
        "0f40000000; ret; }\n.func g(.param .b64 a);\n.alias g, f;"
    )
    body = "{ .param .b64 p; st.param.b64 [p], %rd3; call g, (p); } ret;"
    assert set(run(body, "emulator", before)[0]) == {2}


def test_what_is_not_known_is_an_error_where_it_is_reached(emulator: Device) -> None:
    unknown = "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [tx, {%f1, %f2}]; ret;"
    before = ".global .texref tx;"
    body = f"setp.eq.u32 %p1, %r1, NUMBER; @%p1 bra L; {TWICE}\nL: {unknown}"
    assert run(body.replace("NUMBER", "99"), "emulator", before)[0][3] == 6
    with pytest.raises(UnsupportedInstructionError, match=r"tex\.2d\.v4\.f32\.f32 .*line 10"):
        run(body.replace("NUMBER", "3"), "emulator", before)


def test_what_can_not_be_read_is_an_error_where_it_is_reached(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    unknown = "mov.b32 %r2, %nosuch; ret;"
    body = f"setp.eq.u32 %p1, %r1, NUMBER; @%p1 bra L; {TWICE}\nL: {unknown}"
    assert run(body.replace("NUMBER", "99"), "emulator")[0][3] == 6
    with pytest.raises(
        UnsupportedInstructionError, match=r"register %nosuch, in 'mov\.b32 %r2, %nosuch'"
    ):
        run(body.replace("NUMBER", "3"), "emulator")
    with pytest.raises(CompileError, match="branches to NOWHERE, which is no label of it"):
        run("bra NOWHERE;", "emulator")


def test_counts_without_machine_code_say_so(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    body = ".shared .align 4 .b8 s[128];" + TWICE + "// no machine code"
    _, report = run(body, "emulator")
    assert report.counted_as == "PTX"
    assert "there is no machine code: neither nvJitLink nor ptxas" in report.notes[0]
    assert report.resources.shared_bytes == 128
    assert report.to_dict()["resources"]["registers"] is None


def test_lines_are_the_sources_or_the_ptxs_own(emulator: Device) -> None:
    _, report = run(TWICE, "emulator", checks="collect")
    assert set(report.lines) >= {9}
    _, report = run(f".loc 1 70 1\n{TWICE}", "emulator", '.file 1 "k.cu"')
    assert 70 in report.lines
    with pytest.raises(Exception, match=r"k\.cu:70: out of bounds: .* x\[-1"):
        run(".loc 1 70 1\nld.global.f32 %f1, [%rd1+-4]; ret;", "emulator", '.file 1 "k.cu"')
    with pytest.raises(Exception, match=r"<ptx>:9: out of bounds"):
        run("ld.global.f32 %f1, [%rd1+-4]; ret;", "emulator")


def test_functions_on_cycles_are_recursive() -> None:
    calls = {"k": "ab", "a": "b", "b": "c", "c": "b", "d": "d", "e": ""}
    bodies = "".join(
        f".func {name}() {{ {''.join(f'call {each};' for each in called)} ret; }}\n"
        for name, called in calls.items()
        if name != "k"
    )
    text = f"{HEAD}{bodies}.entry k() {{ call a; call d; call e; ret; }}"
    assert Program(parse(text), "k").recursive == {"b", "c", "d"}
