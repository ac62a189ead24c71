"""Which shared-memory accesses ptxas joins: the table of cases, held against machine code."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from tilewise import compiler
from tilewise.compiler import Compiled
from tilewise.compiler import machine_code as sass
from tilewise.compiler.machine_code import Disassembly, MemoryInstruction
from tilewise.counted import Confirmation
from tilewise.devices import Device
from tilewise.devices.emulator.counting import confirming, joining
from tilewise.devices.emulator.ptx import syntax as ptx
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program
from tilewise.kernel import Kernel

TILED = """
extern "C" __global__ void tiled(int k, const real* a, const real* b, real* c) {
    __shared__ real sa[TILE][TILE + PAD], sb[TILE][TILE + PAD];
    int tx = threadIdx.x, ty = threadIdx.y;
    real sum = 0;
    for (int p = 0; p < k; p += TILE) {
        sa STORE = a[ty * k + p + tx];
        sb STORE = b[(p + ty) * k + tx];
        __syncthreads();
        #pragma unroll UNROLL
        for (int i = 0; i < TILE; ++i)
            sum += READ;
        __syncthreads();
    }
    c[ty * k + tx] = sum;
}
"""
ROWS = {"STORE": "[ty][tx]", "READ": "sa[ty][i] * sb[i][tx]"}
TRANSPOSED = {"STORE": "[tx][ty]", "READ": "sa[i][ty] * sb[tx][i]"}


def widths(joined: joining.Joining, program: Program) -> Counter[tuple[str, int]]:
    """Accesses of each (kind, width in bits) as they will be counted."""
    found: Counter[tuple[str, int]] = Counter()
    for (_, kind, width), number in confirming.counts_of(program, joined.accesses).items():
        found[kind, width] += number
    return found


def program_of(compiled: Compiled) -> Program:
    return Program(parse(compiled.ptx), compiled.symbol)


ARRAYS = """
extern "C" __global__ void arrays(int n, float* x) {
    __shared__ float first[FIRST], second[512];
    first[threadIdx.x] = second[threadIdx.x] = n;
    __syncthreads();
    x[0] = first[n] + second[n];
    const float* p = second + INDEX;
    x[threadIdx.x] = p[0] * p[1] * p[2] * p[3];
}
"""
PLACES = [
    # Newer versions of ptxas take the array's place for a number where they may.
    ("sm_80", 1, "threadIdx.x * 4", [{32: 1, 128: 1}, {32: 4}]),
    ("sm_80", 2, "threadIdx.x * 4", [{64: 2}]),
    ("sm_80", 1, "3 + threadIdx.x * 4", [{128: 1}, {32: 4}]),
    ("sm_80", 3, "1 + threadIdx.x * 2", [{64: 2}, {32: 4}]),
    ("sm_120", 2, "2 + threadIdx.x * 4", [{64: 2}]),
    ("sm_90a", 1, "threadIdx.x * 4", [{32: 4}]),
    ("sm_90a", 2, "threadIdx.x * 4", [{64: 2}]),
    ("sm_90a", 4, "threadIdx.x * 4", [{128: 1}]),
    ("sm_90a", 1, "3 + threadIdx.x * 4", [{32: 4}]),
    # Without an index all of the address is known: 4, 8, 12, and 16.
    ("sm_90a", 1, "0", [{32: 1, 128: 1}]),
    ("sm_90a", 2, "0", [{64: 2}]),
]
JOINED: list[tuple[dict[str, str], str, int, int, int, dict[int, int]]] = [
    # Measured on hardware: 32 LDS and 8 LDS.128 a phase (6,307,840 conflicts of loads).
    (TRANSPOSED, "float", 32, 0, 32, {32: 32, 128: 8}),
    (ROWS, "float", 32, 0, 32, {32: 32, 128: 8}),
    (ROWS, "float", 32, 1, 32, {32: 64}),
    (ROWS, "double", 16, 0, 16, {64: 16, 128: 8}),
    (TRANSPOSED, "double", 16, 1, 16, {64: 32}),
    # A loop's pointer that starts 8 bytes off is known to be aligned to 8 only.
    (ROWS, "float", 16, 0, 4, {32: 4, 64: 2}),
    # Rows of 6 floats: pairs. Rows of 8 with 7 of them read: the eighth is read in passing.
    (ROWS, "float", 5, 1, 5, {32: 6, 64: 2}),
    (ROWS, "float", 7, 1, 7, {32: 7, 128: 2}),
    (ROWS, "float", 5, 0, 5, {32: 10}),
    (ROWS, "unsigned short", 8, 0, 8, {16: 8, 64: 2}),
    (ROWS, "unsigned char", 8, 0, 8, {8: 16}),
]


def tiled_kernel(
    name: str, layout: dict[str, str], real: str, tile: int, pad: int, unroll: int
) -> str:
    """The tiled kernel by a name of its own, its macros replaced."""
    sizes = {"real": real, "TILE": str(tile), "PAD": str(pad), "UNROLL": str(unroll)}
    text = TILED.replace("tiled(", f"{name}(")
    for macro, value in {**layout, **sizes}.items():
        text = re.sub(rf"\b{macro}\b", value, text)
    return text


INLINED = """
__device__ float product(const float* p, const float* q) {
    return p[0] * q[0] + p[1] * q[1]
         + p[2] * q[2] + p[3] * q[3];
}
extern "C" __global__ void inlined(float* x) {
    __shared__ float s[32][4], t[4][32];
    int i = threadIdx.x;
    for (int j = 0; j < 4; ++j)
        s[i][j] = t[j][i] = x[i + 99 * j];
    __syncthreads();
    x[i] = product(s[31 - i], t[i % 4]) + product(s[i], s[i ^ 1]);
}
"""
DOUBTFUL = """extern "C" __global__ void doubtful(int n, float4* x) {
    __shared__ float s[4][128];
    int i = threadIdx.x;
    x[i] = make_float4(s[0][4 * i], s[0][4 * i + 1], s[0][4 * i + 2], s[0][4 * i + 3]);
    __syncthreads();
    x[i + n] = make_float4(s[1][4 * i], s[1][4 * i + 1], s[1][4 * i + 2], s[1][4 * i + 3]);
    __syncthreads();
    x[i + 2 * n] = make_float4(s[2][4 * i], s[2][4 * i + 1],
                               s[2][4 * i + 2], s[2][4 * i + 3]);
}
"""


@cache
def compiled_together(arch: str) -> Compiled:
    """All kernels of these tests in one, for nvdisasm needs a fifth of a second a module."""
    kernels = []
    if arch == "sm_90a":
        kernels = [tiled_kernel(f"tiled{at}", *case[:5]) for at, case in enumerate(JOINED)]
        kernels += [tiled_kernel("tiled_by_16", ROWS, "float", 16, 0, 16), INLINED, DOUBTFUL]
    kernels.append(tiled_kernel("tiled", TRANSPOSED, "float", 32, 0, 32))
    for at, (its, first, index, _) in enumerate(PLACES):
        if its == arch:
            sizes = ARRAYS.replace("FIRST", str(first)).replace("INDEX", index)
            kernels.append(sizes.replace("arrays(", f"arrays{at}("))
    # Each begins at line 1 again.
    return compiler.compile("#line 1\n".join(kernels), "tiled", arch=arch)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("at", range(len(PLACES)))
def test_arrays_lie_one_after_another(at: int) -> None:
    arch, *_, expected = PLACES[at]
    compiled = replace(compiled_together(arch), symbol=f"arrays{at}")
    program = program_of(compiled)
    joined = joining.join(program, compiled)
    assert joined.confirmed, joined.reason
    counts = confirming.counts_of(program, joined.accesses)
    found = {width: n for (line, kind, width), n in counts.items() if (line, kind) == (8, "LDS")}
    assert found in expected


@pytest.mark.parametrize("at", range(len(JOINED)))
def test_tiled_kernels(at: int) -> None:
    loads = JOINED[at][-1]
    compiled = replace(compiled_together("sm_90a"), symbol=f"tiled{at}")
    program = program_of(compiled)
    joined = joining.join(program, compiled)
    assert joined.confirmed, joined.reason
    found = {width: n for (kind, width), n in widths(joined, program).items() if kind == "LDS"}
    # The compiler may run several phases a turn: then everything stands there several times.
    copies = sum(found.values()) // sum(loads.values())
    assert found == {width: number * copies for width, number in loads.items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_120", "sm_75", "sm_100", "sm_80"])
def test_architectures_join_alike(arch: str) -> None:
    compiled = compiled_together(arch)
    program = program_of(compiled)
    joined = joining.join(program, compiled)
    assert joined.confirmed, joined.reason
    assert widths(joined, program) == {("LDS", 32): 32, ("LDS", 128): 8, ("STS", 32): 2}
    # Each wide access counts at its first load, where the other three add nothing.
    wide = {index: found for index, found in joined.accesses.items() if found is not None}
    assert len(joined.accesses) == 32
    assert len(wide) == 8
    for index, (width, offset) in wide.items():
        address = program.instructions[index].operands[1]
        assert isinstance(address, ptx.Address)
        assert width == 16
        assert (address.offset + offset) % 16 == 0
        assert joined.counted(index, 4) == (16, offset)
    assert joined.counted(-1, 4) == (4, 0)


@dataclass(frozen=True)
class Case:
    """One block of PTX: B is an address aligned to ``stride``, Q an unknown, F0 to F7 floats."""

    name: str
    body: str
    expected: str
    stride: int = 16


def loads(*offsets: int, type_: str = "f32") -> str:
    return "".join(f"ld.shared.{type_} F{i}, [B+{at}];" for i, at in enumerate(offsets))


def stores(*offsets: int) -> str:
    return "".join(f"st.shared.f32 [B+{at}], F{i};" for i, at in enumerate(offsets))


def between(middle: str) -> str:
    all_four = loads(0, 4, 8, 12).split(";")
    return ";".join(all_four[:2]) + ";" + middle + ";".join(all_four[2:])


def at(address: str) -> str:
    return "{.reg .u32 t, u; .reg .pred p;" + address + loads(0, 4, 8, 12).replace("[B", "[t") + "}"


CASES = [
    Case("two", loads(0, 4), "LDS64"),
    Case("two_across", loads(4, 8), "LDS32 LDS32"),
    Case("two_apart", loads(0, 8), "LDS32 LDS32"),
    Case("three", loads(0, 4, 8), "LDS128"),
    Case("three_last", loads(4, 8, 12), "LDS128"),
    Case("three_with_gap", loads(0, 8, 12), "LDS128"),
    Case("backwards", loads(12, 8, 4, 0), "LDS128"),
    Case("seven", loads(8, 12, 16, 20, 24, 28, 32), "LDS64 LDS128 LDS32"),
    Case("aligned_to_8", loads(0, 4, 8, 12), "LDS64 LDS64", 8),
    Case("aligned_to_8_three", loads(4, 8, 12), "LDS32 LDS64", 8),
    Case("aligned_to_4", loads(0, 4, 8, 12), "LDS32 LDS32 LDS32 LDS32", 4),
    Case("types", loads(0) + "{.reg .u32 t; ld.shared.u32 t, [B+4]; mov.b32 F1, t;}", "LDS64"),
    Case("vectors", "ld.shared.v2.f32 {F0,F1}, [B]; ld.shared.v2.f32 {F2,F3}, [B+8];", "LDS128"),
    Case("vector_and_one", "ld.shared.v2.f32 {F0,F1}, [B];ld.shared.f32 F2, [B+8];", "LDS128"),
    Case(
        "other_sizes",
        "{.reg .b64 t; ld.shared.b64 t, [B]; mov.b64 {F0,F1}, t;} ld.shared.f32 F2, [B+8];"
        "ld.shared.f32 F3, [B+12];",
        "LDS64 LDS64",
    ),
    Case("volatile", loads(0, 4).replace("ld.", "ld.volatile."), "LDS32 LDS32"),
    Case(
        "predicated",
        "{.reg .pred p; setp.eq.u32 p, Q, 0; mov.f32 F0, 0f00000000; mov.f32 F1, F0;"
        "@p ld.shared.f32 F0, [B]; @p ld.shared.f32 F1, [B+4];}",
        "LDS32 LDS32",
    ),
    Case("barrier", between("bar.sync 0;"), "LDS64 LDS64"),
    Case("warp_barrier", between("bar.warp.sync -1;"), "LDS64 LDS64"),
    Case("fence", between("membar.cta;"), "LDS64 LDS64"),
    Case("store", between("st.shared.f32 [Q], F0;"), "LDS64 STS32 LDS64"),
    Case("atomic", between("red.shared.add.u32 [Q], 1;"), "LDS64 LDS64"),
    Case(
        "global_store",
        between("{.reg .u64 t; cvt.u64.u32 t, Q; st.global.f32 [t], F0;}"),
        "LDS128",
    ),
    Case("other_array", between("ld.shared.f32 F4, [Q];"), "LDS128 LDS32"),
    Case("shifted", at("shl.b32 t, Q, 4;"), "LDS128"),
    Case("masked", at("and.b32 t, Q, -16;"), "LDS128"),
    Case("masked_less", at("and.b32 t, Q, -8;"), "LDS64 LDS64"),
    Case("multiplied", at("mad.lo.u32 t, Q, 48, B;"), "LDS128"),
    Case("swizzled", at("shl.b32 t, Q, 4; xor.b32 t, t, B;"), "LDS128"),
    Case("chosen", at("setp.eq.u32 p, Q, 3; selp.b32 u, 16, 32, p; add.u32 t, u, B;"), "LDS128"),
    Case("odd_factor", at("mad.lo.u32 t, Q, 24, B;"), "LDS64 LDS64"),
    Case(
        "moving_pointer",
        "{.reg .u32 t; mov.u32 t, B; ld.shared.f32 F0, [t]; add.u32 t, t, 4;"
        "ld.shared.f32 F1, [t]; add.u32 t, t, 4; ld.shared.f32 F2, [t];}",
        "LDS128",
    ),
    Case(
        "computed_twice",
        "{.reg .u32 t, u; shl.b32 t, Q, 4; add.u32 t, t, B; shl.b32 u, Q, 4; add.u32 u, B, u;"
        "ld.shared.f32 F0, [t]; ld.shared.f32 F1, [u+4];}",
        "LDS64",
    ),
    Case("stores_four", stores(0, 4, 8, 12), "STS128"),
    Case("stores_mixed", stores(8, 12, 0, 4), "STS128"),
    Case("stores_three", stores(0, 4, 8), "STS64 STS32"),
    Case("stores_in_turn", stores(0, 16, 4, 20), "STS32 STS32 STS32 STS32"),
    Case("stores_interrupted", stores(0, 4, 32, 8, 12), "STS64 STS32 STS64"),
    Case("stores_aligned_to_8", stores(0, 4, 8, 12), "STS64 STS64", 8),
    Case(
        "store_load_store",
        stores(0, 4) + "ld.shared.f32 F7, [Q];" + "st.shared.f32 [B+8], F2;"
        "st.shared.f32 [B+12], F3;",
        "STS64 LDS32 STS64",
    ),
]


def kernel(case: Case) -> str:
    floats = [f"f{i}" for i in range(8)]
    body = case.body
    for i in range(8):
        body = body.replace(f"F{i}", f"%{i}")
    body = body.replace("[B", "[%8").replace(" B", " %8").replace("Q", "%9")
    return f"""
    extern "C" __global__ void case_{case.name}(float* x, unsigned q) {{
        extern __shared__ __align__(16) char s[];
        unsigned b = (unsigned)__cvta_generic_to_shared(s) + threadIdx.x * {case.stride};
        x += threadIdx.x * 64;
        float {", ".join(f"{f} = x[{3 * i + i * i}]" for i, f in enumerate(floats))};
        asm volatile("{body}" : {", ".join(f'"+f"({f})' for f in floats)}
                     : "r"(b), "r"(q) : "memory");
        {" ".join(f"x[{3 * i + i * i}] = {f};" for i, f in enumerate(floats))}
    }}"""


@cache
def module() -> Compiled:
    """All cases in one, for nvdisasm needs a third of a second a module."""
    return compiler.compile("".join(map(kernel, CASES)), f"case_{CASES[0].name}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_table(case: Case) -> None:
    compiled = replace(module(), symbol=f"case_{case.name}")
    program = program_of(compiled)
    joined = joining.join(program, compiled)
    assert joined.confirmed, joined.reason
    expected = Counter((word[:3], int(word[3:])) for word in case.expected.split())
    assert widths(joined, program) == expected
    machine = sass.disassemble(compiled).counts("LDS", "STS")
    assert Counter({key[1:]: number for key, number in machine.items()}) == expected


def test_inlined_functions_keep_their_lines() -> None:
    compiled = replace(compiled_together("sm_90a"), symbol="inlined")
    program = program_of(compiled)
    joined = joining.join(program, compiled)
    assert joined.confirmed, joined.reason
    assert widths(joined, program)["LDS", 128] == 4


def machine_code(monkeypatch: pytest.MonkeyPatch, found: Disassembly) -> None:
    monkeypatch.setattr(sass, "disassemble", lambda compiled: found)


def tiled() -> Compiled:
    return replace(compiled_together("sm_90a"), symbol="tiled_by_16")


def test_nothing_joins_where_nothing_can_be_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tiled()
    machine_code(monkeypatch, Disassembly(None, "no program"))
    joined = joining.join(program_of(compiled), compiled)
    assert (joined.accesses, joined.confirmed, joined.reason) == ({}, False, "no program")


def test_another_machine_code_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tiled()
    real = sass.disassemble(compiled).instructions
    assert real is not None
    wide = next(i for i in real if i.opcode == "LDS" and i.width == 128)
    split = [i for i in real if i is not wide] + [replace(wide, width=64)] * 2
    machine_code(monkeypatch, Disassembly(tuple(split)))
    joined = joining.join(program_of(compiled), compiled)
    assert not joined.confirmed
    lines = {
        each.line for each in program_of(compiled).instructions if each.index in joined.accesses
    }
    assert wide.line not in lines
    assert f"line {wide.line} " in joined.reason
    assert "64 bits" in joined.reason


def test_repeated_loop_bodies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tiled()
    real = sass.disassemble(compiled).instructions
    assert real is not None
    expected = joining.join(program_of(compiled), compiled)
    machine_code(monkeypatch, Disassembly(real * 3))
    assert joining.join(program_of(compiled), compiled) == expected
    # Fewer than the PTX has is another matter: some were left out.
    machine_code(monkeypatch, Disassembly(real[: len(real) // 2]))
    assert not joining.join(program_of(compiled), compiled).confirmed


def test_a_kernel_with_no_shared_memory_needs_no_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compiler.compile('extern "C" __global__ void k(int* x) { *x = 1; }', "k")
    machine_code(monkeypatch, Disassembly((MemoryInstruction(1, "LDS", 32, ""),)))
    assert joining.join(program_of(compiled), compiled).confirmed


def test_machine_code_that_decides_no_count_is_read_when_a_report_is_asked(
    monkeypatch: pytest.MonkeyPatch, emulator: Device
) -> None:
    # One store and one load of each thread, with a barrier between them: nothing can join.
    source = """
extern "C" __global__ void reversed(int* x) {
    __shared__ int s[32];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[31 - threadIdx.x];
}
"""
    asked = []

    def disassemble(compiled: Compiled) -> Disassembly:
        asked.append(compiled.name)
        return Disassembly(None, "no program")

    monkeypatch.setattr(sass, "disassemble", disassemble)
    x = np.arange(32, dtype=np.int32)
    kernel = Kernel(source, "reversed")
    reports = [kernel.launch(1, 32, [x], device=emulator) for _ in range(3)]
    assert list(x) == list(range(31, -1, -1))
    assert all(each.counters and each.counters.shared_load_requests == 1 for each in reports)
    assert not asked
    sent = pickle.loads(pickle.dumps(reports[0]))
    assert asked == ["reversed"]
    assert reports[1] == replace(reports[1])
    for report in (*reports, sent):
        assert (report.counted_as, report.notes) == ("PTX", ("no program",))
    assert asked == ["reversed"]
    # Where accesses may be joined, the counts depend on it.
    tile = np.ones((16, 16), np.float32)
    defines = {"real": "float", "TILE": 16, "PAD": 0, "UNROLL": 16, **ROWS}
    Kernel(TILED, "tiled", defines).launch(1, (16, 16), [16, tile, tile, tile.copy()])
    assert asked[1] == "tiled"


def test_reports_of_the_same_launch_with_other_doubts_are_not_equal(emulator: Device) -> None:
    kernel = Kernel('extern "C" __global__ void k(int* x) { *x = 1; }', "k")
    report = kernel.launch(1, 1, [np.zeros(1, np.int32)], device=emulator)
    assert report == replace(report, confirmation=Confirmation())
    doubtful = replace(report, confirmation=Confirmation(lambda: "no nvdisasm"))
    assert doubtful != report
    assert doubtful == replace(report, confirmation=Confirmation(lambda: "no nvdisasm"))
    assert (doubtful.counted_as, doubtful.notes) == ("PTX", ("no nvdisasm",))
    assert pickle.loads(pickle.dumps(doubtful)) == doubtful
    assert "no nvdisasm" not in repr(doubtful)
    assert "note: no nvdisasm" in str(doubtful)


PTXAS_MERGES = "that happens where ptxas merges an access in an if with one in its else"
PTXAS_UNROLLS = "that happens where ptxas unrolls a loop and joins accesses of different iterations"


@pytest.mark.parametrize(
    ("ours", "machine", "said"),
    [
        ({32: 1}, {}, f"and by the PTX should be 1 of 32 bits: {PTXAS_MERGES}"),
        ({64: 8}, {128: 16}, f"and by the PTX should be 8 of 64 bits: {PTXAS_UNROLLS}"),
        ({64: 2}, {32: 4}, "in the machine code, and by the PTX should be 2 of 64 bits"),
    ],
)  # fmt: skip
def test_the_reason_says_what_makes_such_a_difference(
    ours: dict[int, int], machine: dict[int, int], said: str
) -> None:
    sides = {(4, "STS"): (Counter(ours), Counter(machine))}
    reason = confirming._difference([(4, "STS")], sides, {})
    assert reason.startswith("the shared stores of line 4 are")
    assert reason.endswith(said)


def test_a_line_in_doubt_leaves_the_others_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = replace(compiled_together("sm_90a"), symbol="doubtful")
    program = program_of(compiled)
    every = widths(joining.join(program, compiled), program)
    assert every["LDS", 128] == 3
    real = sass.disassemble(compiled).instructions
    assert real is not None
    wide = {i.line: i for i in real if i.opcode == "LDS"}
    assert set(wide) == {4, 6, 9}
    split = [i for i in real if i is not wide[6]] + [replace(wide[6], width=64)] * 2
    machine_code(monkeypatch, Disassembly(tuple(split)))
    joined = joining.join(program, compiled)
    assert "loads of line 6 are 2 of 64 bits" in joined.reason
    assert widths(joined, program) == {("LDS", 128): 2, ("LDS", 32): 4}
    # The last one joins loads of two lines.
    split = [i for i in real if i is not wide[9]] + [replace(wide[9], width=64)] * 2
    machine_code(monkeypatch, Disassembly(tuple(split)))
    joined = joining.join(program, compiled)
    assert "loads of line 9 are 2 of 64 bits" in joined.reason
    assert widths(joined, program) == {("LDS", 128): 2, ("LDS", 32): 4}
