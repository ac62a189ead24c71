"""Blocks of inline PTX in braces: their registers and labels are their own."""

from __future__ import annotations

import numpy as np
from reference import assert_same

from tilewise.devices import Device
from tilewise.kernel import Kernel

SOURCE = r"""
// The sum of 1 to n, or -1 where n is 0: a label that stands further down and one further up, in
// two blocks of the same text, one of them in a block of its own.
extern "C" __global__ void sums(const unsigned* n, int* out) {
    int t = threadIdx.x, x, y;
    asm volatile("{ .reg .pred p; .reg .u32 i; mov.s32 %0, -1; setp.eq.u32 p, %1, 0;\n"
                 "@p bra done; mov.s32 %0, 0; mov.u32 i, %1;\n"
                 "again: add.s32 %0, %0, i; sub.u32 i, i, 1; setp.ne.u32 p, i, 0;\n"
                 "@p bra again; done: }" : "=r"(x) : "r"(n[t]));
    asm volatile("{ .reg .pred p; { .reg .u32 i; mov.s32 %0, -1; setp.eq.u32 p, %1, 0;\n"
                 "@p bra done; mov.s32 %0, 0; mov.u32 i, %1;\n"
                 "again: add.s32 %0, %0, i; sub.u32 i, i, 1; setp.ne.u32 p, i, 0;\n"
                 "@p bra again; } done: }" : "=r"(y) : "r"(2 * n[t]));
    out[2 * t] = x;
    out[2 * t + 1] = y;
}

// One of three places by the index, twice: labels, and the tables of them, have the blocks' names.
extern "C" __global__ void places(const unsigned* n, int* out) {
    int t = threadIdx.x, x, y;
    asm volatile("{ .reg .u32 i; rem.u32 i, %1, 3;\n"
                 "all: .branchtargets first, second, third;\n"
                 "brx.idx i, all;\n"
                 "first: mov.s32 %0, 10; bra end;\nsecond: mov.s32 %0, 20; bra end;\n"
                 "third: mov.s32 %0, 30;\nend: }" : "=r"(x) : "r"(n[t]));
    asm volatile("{ .reg .u32 i; rem.u32 i, %1, 2;\n"
                 "first: { all: .branchtargets second, third;\n"
                 "brx.idx i, all;\n"
                 "second: mov.s32 %0, 1; bra end; }\nthird: mov.s32 %0, 2;\nend: }"
                 : "=r"(y) : "r"(n[t]));
    out[2 * t] = x;
    out[2 * t + 1] = y;
}
"""


def test_labels_and_registers_of_blocks(device: Device) -> None:
    n = np.arange(64, dtype=np.uint32) % 11
    out = np.zeros((64, 2), np.int32)
    Kernel(SOURCE, "sums").launch(1, 64, (n, out), device=device)
    whole = np.stack([n, 2 * n], 1).astype(np.int32)
    assert_same(out, np.where(whole == 0, -1, whole * (whole + 1) // 2).astype(np.int32))


def test_tables_of_labels(device: Device) -> None:
    n = np.arange(64, dtype=np.uint32) % 11
    out = np.zeros((64, 2), np.int32)
    Kernel(SOURCE, "places").launch(1, 64, (n, out), device=device)
    assert_same(out, np.stack([10 * (n % 3 + 1), n % 2 + 1], 1).astype(np.int32))
