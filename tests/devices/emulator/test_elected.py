"""Which atomics one lane of a warp executes for all, as the machine code has it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference import some

from tilewise import compiler
from tilewise.compiler import machine_code as sass
from tilewise.compiler.machine_code import Disassembly
from tilewise.compiler.ptx import assembler
from tilewise.devices import Device
from tilewise.devices.emulated import emulator as emulator_of
from tilewise.devices.emulator import programs
from tilewise.kernel import Kernel

ARCHITECTURES = ("sm_75", "sm_80", "sm_90a", "sm_100", "sm_120")
SOURCE = """extern "C" __global__ void k(int n, real* c, const real* x, real* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        STATEMENT;
}
"""
THREADS = 1000  # of 4 blocks of 256: 31 whole warps, and 8 lanes of another
WARPS = 32
EACH, ONE, WHOLE = THREADS, WARPS, 31 + 8


WHICH = [
    ("atomicAdd(c, x[i])", ONE), ("atomicSub(c, n)", ONE), ("atomicMax(c, x[i])", ONE),
    ("atomicOr(c, i)", ONE), ("atomicAdd_system(c, 1)", ONE),
    ("atomicAdd(c + blockIdx.x, 1)", ONE),
    # Each lane wants the sum of those before it: by shuffles, which takes a whole warp.
    ("y[i] = atomicAdd(c, x[i])", WHOLE),
    ("y[i] = atomicMax(c, x[i])", EACH), ("atomicExch(c, 1)", EACH),
    ("atomicCAS(c, 1, 2)", EACH),
    ("atomicAdd(c + threadIdx.x / 32, 1)", EACH),
    ("atomicAdd(y + i, 1)", 125),
    # Two of one line, in one basic block, of which one lane executes the first alone.
    ("{ atomicAdd(c, 1); atomicAdd(y + i, 1); }", ONE + 125),
    ("{ if (x[i] % 64 < 32) atomicAdd(c, 1); }", 16),
]  # fmt: skip
STATEMENTS = {
    "int": [*(each for each, _ in WHICH), "atomicAdd(c, 1)", "y[i] = atomicAdd(c, 1)"],
    "float": ["atomicAdd(c, 1)"],
    "unsigned long long": ["atomicAdd(c, 1)", "atomicAdd(c, x[i])"],
}
ELSEWHERE = {"int": ["atomicAdd(c, 1)", "atomicAdd(c, x[i])", "y[i] = atomicAdd(c, 1)"]}
LOOP = """extern "C" __global__ void loop(int n, int* c, const int* x) {
    for (int i = threadIdx.x; i < n; i += 32)
        if (x[i] > 2)
            atomicAdd(c, 1);
}
"""


def compiled_together(arch: str) -> dict[tuple[str, str], Kernel]:
    """The kernel of each type and statement.

    All that are launched on an architecture are of one source, for nvdisasm needs a fifth of a
    second a module.
    """
    statements = STATEMENTS if arch == "sm_90a" else ELSEWHERE
    names = {(type_, each): f"k{len(type_)}_{at}"
             for type_, every in statements.items() for at, each in enumerate(every)}  # fmt: skip
    kernels = [
        SOURCE.replace("STATEMENT", each).replace("k(", f"{name}(").replace("real", type_)
        for (type_, each), name in names.items()
    ]
    source = LOOP + "".join(kernels)
    loop = Kernel(source, "loop")
    return {("int", "loop"): loop, **{key: Kernel(source, name) for key, name in names.items()}}


def counted(
    statement: str, dtype: Any = np.int32, real: str = "int", arch: str = "sm_90a"
) -> tuple[int, int, str]:
    """Requests and sectors of the atomics, and as what they are counted."""
    x = np.arange(1024).astype(dtype)
    kernel = compiled_together(arch)[real, statement]
    args = (THREADS, np.zeros(8, dtype), x, x.copy())
    report = kernel.launch(4, 256, args, device=emulator_of(arch))
    assert report.counters is not None
    assert not report.notes
    c = report.counters
    return c.global_atomic_requests, c.global_atomic_sectors, report.counted_as


@pytest.mark.parametrize("arch", some(ARCHITECTURES, 2))
def test_adding_one_to_one_place_is_one_lanes(arch: str) -> None:
    assert counted("atomicAdd(c, 1)", arch=arch) == (WARPS, ONE, "machine code")
    assert counted("y[i] = atomicAdd(c, 1)", arch=arch) == (WARPS, ONE, "machine code")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("statement", "sectors"), WHICH)
def test_which_are_one_lanes(statement: str, sectors: int) -> None:
    _, found, counted_as = counted(statement)
    assert (found, counted_as) == (sectors, "machine code")


def test_types() -> None:
    assert counted("atomicAdd(c, 1)", np.uint64, "unsigned long long")[1] == ONE
    assert counted("atomicAdd(c, x[i])", np.uint64, "unsigned long long")[1] == EACH
    assert counted("atomicAdd(c, 1)", np.float32, "float")[1] == EACH


def test_older_architectures_add_up_by_shuffles() -> None:
    assert counted("atomicAdd(c, x[i])", arch="sm_75")[1] == WHOLE
    assert counted("atomicAdd(c, x[i])", arch="sm_80")[1] == ONE


def test_loops_are_unrolled(emulator: Device) -> None:
    kernel = compiled_together("sm_90a")["int", "loop"]
    c, x = np.zeros(1, np.int32), np.arange(320, dtype=np.int32)
    report = kernel.launch(1, 32, (320, c, x), device=emulator)
    assert c[0] == 317
    assert report.counters is not None
    assert report.counters.global_atomic_sectors == 10
    assert report.lines[4].global_atomic_sectors == 10
    assert report.counted_as == "machine code"


@pytest.mark.skipif(not assembler.tools(), reason="needs an assembler")
def test_ptx_of_others_without_lines(emulator: Device) -> None:
    text = """.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 c)
{
.reg .b64 a;
ld.param.u64 a, [c];
red.global.add.u32 [a], 2;
atom.global.max.u32 _, [a], 9;
ret;
}
"""
    c = np.zeros(1, np.uint32)
    report = Kernel.from_ptx(text).launch(1, 64, (c,), device=emulator)
    assert c[0] >= 9
    assert report.counters is not None
    assert report.counters.global_atomic_sectors == 4
    assert report.counted_as == "machine code"


def of_machine_code(monkeypatch: pytest.MonkeyPatch, *lanes: str) -> str:
    """The note of a launch whose machine code has so many atomics, each with its lanes."""
    source = SOURCE.replace("STATEMENT", "{ atomicAdd(c, 1); if (x[i] == 0) atomicAdd(c + 1, 2); }")
    kernel = Kernel(source, "k", {"real": "int"})
    real = sass.disassemble(kernel.compile())
    assert real.instructions is not None
    one = next(i for i in real.instructions if i.operation == "ADD")
    made = Disassembly(tuple(replace(one, lanes=each) for each in lanes))
    monkeypatch.setattr(sass, "disassemble", lambda _: made)
    x = np.zeros(32, np.int32)
    monkeypatch.setattr(programs, "_known", OrderedDict())  # with what was read of a kernel
    report = kernel.launch(1, 32, (32, x.copy(), x, x.copy()), device="emulator")
    assert report.counters is not None
    assert report.counters.global_atomic_sectors == (2 if lanes == ("one",) * 4 else 64)
    assert report.counted_as == ("PTX" if report.notes else "machine code")
    return "; ".join(report.notes)


@pytest.mark.parametrize(
    ("lanes", "said"),
    [
        (("one", "one", "one", "one"), ""),
        (("one",), "1 by one lane of a warp in the machine code, and 2 in the PTX"),
        ((), "are none in the machine code, and 2 in the PTX"),
        (
            ("one", ""),
            "1 by one lane of a warp and 1 by each lane in the machine code, and 2 in the PTX",
        ),
        (
            ("one", "unknown"),
            "1 by unknown lanes in the machine code, and 2 in the PTX",
        ),
    ],
)
def test_what_cannot_be_told_is_counted_as_ptx(
    lanes: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = of_machine_code(monkeypatch, *lanes)
    assert said in note
    if said:
        assert note.startswith("the 32-bit atomic operations ADD of line 4 are")


HEAD = '\t.section\t.text.k,"ax",@progbits\n\t//## File "x.cu", line 3\n'


def read(*instructions: str, symbol: str = "k") -> list[str]:
    """The lanes of each atomic in instructions of the machine code."""
    rows = [
        row if row.endswith(":") else f"        /*{16 * at:04x}*/  {row} ;"
        for at, row in enumerate(instructions)
    ]
    return [i.lanes for i in sass.parse(HEAD + "\n".join(rows), symbol) if i.operation]


VOTE = ("VOTEU.ANY UR6, UPT, PT", "UFLO.U32 UR7, UR6", "S2R R0, SR_LANEID")
ELECTED = (*VOTE, "ISETP.EQ.U32.AND P0, PT, R0, UR7, PT")
ADD = "REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R5"


@pytest.mark.parametrize(
    ("instructions", "lanes"),
    [
        ((ADD,), [""]),
        ((f"@P0 {ADD}",), [""]),
        ((*ELECTED, f"@P0 {ADD}"), ["one"]),
        ((*ELECTED, f"@!P0 {ADD}"), ["unknown"]),
        ((*VOTE, "ISETP.NE.U32.AND P0, PT, UR7, R0, PT", f"@!P0 {ADD}"), ["one"]),
        ((*VOTE, "MOV R9, UR7", "ISETP.EQ.U32.AND P0, PT, R9, R0.reuse, PT", f"@P0 {ADD}"),
         ["one"]),
        # By a branch, up to where another comes in.
        ((*ELECTED, "@!P0 BRA `(.L_x_1)", ADD), ["one"]),
        ((*ELECTED, "@!P0 BRA `(.L_x_1)", ".L_x_1:", ADD), ["unknown"]),
        # The predicate, or what it was made of, is something else by then.
        ((*ELECTED, "ISETP.GE.AND P0, PT, R4, R3, PT", f"@P0 {ADD}"), ["unknown"]),
        ((*ELECTED, "SHFL.UP P0, R6, R7, 0x1, RZ", f"@P0 {ADD}"), ["unknown"]),
        ((*VOTE, "LDC.64 R0, c[0x0][0x210]", "ISETP.EQ.U32.AND P0, PT, R0, UR7, PT", f"@P0 {ADD}"),
         ["unknown"]),
        ((*VOTE, "IMAD.WIDE R8, R1, 0x4, R2", "ISETP.EQ.U32.AND P0, PT, R9, UR7, PT", f"@P0 {ADD}"),
         ["unknown"]),
        # A vote of those alone for whom something holds.
        (("VOTE.ANY R1, PT, P3", "FLO.U32 R1, R1", "S2R R0, SR_LANEID",
          "ISETP.EQ.U32.AND P0, PT, R0, R1, PT", f"@P0 {ADD}"), [""]),
        # A lane of a fixed number.
        (("S2R R0, SR_LANEID", "ISETP.EQ.U32.AND P0, PT, R0, RZ, PT", f"@P0 {ADD}"), [""]),
        # Of a whole warp one, of another each.
        (("VOTE.ANY R1, PT, PT", "ISETP.EQ.U32.AND P0, PT, R1, -0x1, PT", f"@!P0 {ADD}",
          "S2R R0, SR_LANEID", "ISETP.EQ.U32.AND P1, PT, R0, 0x1f, PT", f"@P1 {ADD}"),
         ["rest", "whole"]),
        (("VOTE.ANY R1, PT, PT", "ISETP.EQ.U32.AND P0, PT, R1, -0x1, PT", f"@!P0 {ADD}"),
         ["unknown"]),
    ],
)  # fmt: skip
def test_the_machine_code_is_read(instructions: tuple[str, ...], lanes: list[str]) -> None:
    assert read(*instructions) == lanes


def test_of_another_kernel_nothing_is_known() -> None:
    assert not read(ADD, symbol="other")


def test_without_nvdisasm_they_are_counted_as_ptx(
    monkeypatch: pytest.MonkeyPatch, emulator: Device
) -> None:
    monkeypatch.setattr(sass, "disassemble", lambda _: Disassembly(None, "no program"))
    source = 'extern "C" __global__ void k(int* c) { atomicAdd(c, 1); } // no nvdisasm\n'
    report = Kernel(source, "k").launch(1, 32, [np.zeros(1, np.int32)], device=emulator)
    assert report.counters is not None
    assert report.counters.global_atomic_sectors == 32
    assert (report.counted_as, report.notes) == ("PTX", ("no program",))


def test_kernels_without_atomics_need_no_machine_code(
    monkeypatch: pytest.MonkeyPatch, emulator: Device
) -> None:
    def disassemble(_: compiler.Compiled) -> Disassembly:
        raise AssertionError("it is read")

    monkeypatch.setattr(sass, "disassemble", disassemble)
    source = 'extern "C" __global__ void k(float* c) { atomicAdd(c, 1.f); } // of floats\n'
    report = Kernel(source, "k").launch(1, 32, [np.zeros(1, np.float32)], device=emulator)
    assert report.counted_as == "machine code"
