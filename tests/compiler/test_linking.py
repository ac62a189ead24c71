"""PTX of several modules as one."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.compiler.ptx.linking import linked
from tilewise.devices import Device
from tilewise.errors import CompileError
from tilewise.kernel import Kernel

HEAD = "//\n.version 8.0\n.target sm_80\n.address_size 64\n"
CALL = """
{{ .param .b32 given; st.param.b32 [given], {value}; .param .b32 found;
   call (found), {name}, (given); ld.param.b32 {value}, [found]; }}"""
MAIN = f"""{HEAD}
.file 1 "main.py"
.extern .func (.param .b32 r) twice(.param .b32 x);
.extern .func (.param .b32 r) thrice(.param .b32 x);
.visible .entry kernel(.param .u64 to)
{{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    .loc 1 7 0
    ld.param.u64 %rd1, [to];
    ld.global.u32 %r1, [%rd1];
    {CALL.format(name="twice", value="%r1")}
    {CALL.format(name="thrice", value="%r1")}
    st.global.u32 [%rd1], %r1;
    ret;
}}"""
SHARED = """
.global .align 4 .u32 offset = 1;
.weak .func (.param .b32 r) plus(.param .b32 x)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.b32 %r1, [x];
    mov.u64 %rd1, offset;
    ld.global.u32 %r2, [%rd1];
    add.s32 %r1, %r1, %r2;
    st.param.b32 [r], %r1;
    ret;
}"""


def module(name: str, times: int) -> str:
    """A module with a function that multiplies and adds, and a kernel of the same name as all."""
    return f"""{HEAD}{SHARED}
.file 1 "{name}.cu"
.visible .func (.param .b32 r) {name}(.param .b32 x)
{{
    .reg .b32 %r<2>;
    .loc 1 {times} 0
    ld.param.b32 %r1, [x];
    mul.lo.s32 %r1, %r1, {times}; // {{ not a bracket
    {CALL.format(name="plus", value="%r1")}
    st.param.b32 [r], %r1;
    ret;
}}
.visible .entry unused() {{ ret; }}
"""


def test_functions_of_several_modules() -> None:
    text = linked(MAIN, [module("twice", 2), module("thrice", 3)])
    x = np.array([5], np.int32)
    kernel = Kernel.from_ptx(text)
    kernel.launch(1, 1, (x,), device="emulator")
    assert x[0] == (5 * 2 + 1) * 3 + 1
    assert kernel.name == "kernel"
    for number, name in enumerate(("main.py", "twice.cu", "thrice.cu"), 1):
        assert f'.file {number} "{name}"' in text
    assert ".loc 3 3 0" in text


def test_nothing_to_link_is_the_text_itself() -> None:
    assert linked(MAIN, []) == MAIN


def test_what_is_defined_twice() -> None:
    with pytest.raises(CompileError, match="twice is defined twice in what is linked"):
        linked(MAIN, [module("twice", 2), module("twice", 3)])


def test_what_nobody_defines_stays_declared() -> None:
    text = linked(MAIN, [module("twice", 2)])
    assert text.count(".extern .func") == 1
    assert ".extern .func (.param .b32 r) thrice" in text


def test_cuda_cpp_that_calls_what_nobody_defines(emulator: Device) -> None:
    """With -rdc=true it compiles, for its PTX may be linked with more; it can't be launched."""
    source = """extern __device__ int far(int);
extern "C" __global__ void k(int* x) {
    x[0] = far(x[0]);
}"""
    kernel = Kernel(source, "k", options=["-rdc=true"])
    assert "_Z3fari" in kernel.compile().ptx
    with pytest.raises(CompileError, match=r"^<source>:3: far is called, which is declared"):
        kernel.launch(1, 1, (np.zeros(1, np.int32),), device=emulator)


def test_a_call_of_what_nobody_defines() -> None:
    for others, missing in (([], "twice"), ([module("twice", 2)], "thrice")):
        told = f"^<ptx>: kernel calls {missing}, which the PTX declares and does not define"
        with pytest.raises(CompileError, match=told):
            Kernel.from_ptx(linked(MAIN, others)).compile()
    deeper = module("twice", 2).replace("(found), plus,", "(found), thrice,")
    with pytest.raises(CompileError, match=r"^<ptx>: twice calls thrice"):
        Kernel.from_ptx(linked(MAIN.replace("thrice,", "twice,"), [deeper])).compile()
    # What the kernel does not call may stay where it is, and so may what the driver brings.
    text = linked(MAIN, [module("twice", 2), module("thrice", 3)])
    more = "\n.extern .func (.param .b32 r) elsewhere(.param .b32 x);\n.visible .func unused() {"
    body = f".reg .b32 %r<2>; mov.b32 %r1, 1; {CALL.format(name='elsewhere', value='%r1')} ret;"
    Kernel.from_ptx(f"{text}{more}{body} }}").compile()
    alias = ".func (.param .b32 r) thrice(.param .b32 x);\n.alias thrice, twice;"
    twice = linked(MAIN.replace(".extern .func (.param .b32 r) thrice(.param .b32 x);", ""),
                   [module("twice", 2)])  # fmt: skip
    x = np.array([5], np.int32)
    kernel = Kernel.from_ptx(
        twice.replace(".visible .entry kernel", f"{alias}\n.visible .entry kernel")
    )
    kernel.launch(1, 1, (x,), device="emulator")
    assert x[0] == (5 * 2 + 1) * 2 + 1
    for name in ("vprintf", "malloc", "free", "__assertfail", "cudaGetParameterBufferV2"):
        Kernel.from_ptx(text.replace("thrice", name)).compile()
        Kernel.from_ptx(linked(MAIN.replace("thrice", name), [module("twice", 2)])).compile()
