"""PTX as LLVM writes it where NVRTC writes another: Triton's is of that kind."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel

HEAD = """
.version 7.8
.target sm_80
.address_size 64
"""


def test_the_address_of_a_parameter_has_32_bits(emulator: Device) -> None:
    kernel = Kernel.from_ptx(
        HEAD
        + """
        .visible .entry by_address(.param .align 4 .b8 pair[8], .param .u64 .ptr .global out)
        {
            .reg .b32 %r<4>; .reg .b64 %rd<5>;
            mov.b32 %r1, pair;
            cvt.u64.u32 %rd1, %r1;
            cvta.param.u64 %rd2, %rd1;
            ld.u32 %r2, [%rd2+4];
            ld.param.u64 %rd3, [out];
            st.global.u32 [%rd3], %r2;
            ret;
        }"""
    )
    out = np.zeros(1, np.uint32)
    for _ in range(3):
        kernel.launch(1, 1, (np.array([3, 5], np.uint32), out), device=emulator)
        assert out[0] == 5


def test_the_null_pointer_is_near_no_parameter(emulator: Device) -> None:
    kernel = Kernel.from_ptx(
        HEAD
        + """
        .visible .entry from_nowhere(.param .u64 .ptr .global x)
        {
            .reg .b32 %r<2>; .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [x];
            ld.global.u32 %r1, [%rd1+4];
            st.global.u32 [%rd1], %r1;
            ret;
        }"""
    )
    with pytest.raises(MemoryAccessError, match="belongs to no array"):
        kernel.launch(1, 1, (None,), device=emulator)
