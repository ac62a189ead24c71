"""Values that nobody wrote are faults where they decide something, and not where they are read."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hardware import carries, instructions, meaning, operands
from reference import KERNELS, Array, Launcher, assert_same, some, thorough

from tilewise.devices import Device
from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.checks.propagation import full, rule
from tilewise.errors import UninitializedReadError
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

SOURCE = (KERNELS / "speculated.cu").read_text().splitlines()
USES = {
    match[1]: number
    for number, line in enumerate(SOURCE, 1)
    if (match := re.search(r"// use: (\w+)", line))
}
N = 10
I = np.arange(32, dtype=np.int32)  # noqa: E741


@pytest.fixture
def unset(emulator: Device) -> object:
    """An array that nobody wrote."""
    return emulator.empty((32,), np.int32)


def expected(name: str) -> Array:
    a = I + 1
    kept = a[:N][a[:N] % 2 == 1]
    following = (I + 1) % 32
    found: dict[str, Array] = {
        "flag": np.full(32, -1),
        "out_parameter": np.where(I < N, a, -1),
        "compared": (I < N) & (a % 3 == 1),
        "local_array": np.full(32, kept.max() + 3 * kept.sum()),
        "by_shared": np.where(following < N, a[following], -1),
        "by_value": np.where(I < N, a, -1),
        "printed": np.zeros(32),
    }
    return found[name].astype(np.int32)


@pytest.mark.parametrize(
    "name",
    ["flag", "out_parameter", "compared", "local_array", "by_shared", "by_value", "printed"],
)
def test_a_value_that_is_not_wanted_is_no_read(launch: Launcher, unset: object, name: str) -> None:
    out = np.zeros(32, np.int32)
    report = launch("speculated", name, 1, 32, N, I + 1, unset, out)
    assert_same(out, expected(name))
    if name == "printed":
        assert report.output == "1 2 3 4 5 6 7 8 9 10 -1 -1 "


@pytest.mark.parametrize("name", list(USES))
def test_a_value_that_decides_is_reported_with_both_lines(
    launch: Launcher, unset: object, name: str
) -> None:
    out = np.zeros(32, np.int32)
    with pytest.raises(UninitializedReadError) as caught:
        launch("speculated", name, 1, 32, N, I, unset, out)
    (finding,) = caught.value.findings
    assert "unset[" in SOURCE[finding.line - 1]
    assert finding.array == "unset"
    assert f" at line {USES[name]}" in finding.message
    assert finding.message.startswith(f"thread {finding.thread} of block (0, 0, 0) reads what")
    assert not out.any()
    report = launch("speculated", name, 1, 32, N, I, unset, out, checks="collect")
    assert report.findings[0] == finding


def test_every_read_that_decides_is_found(emulator: Device, unset: object) -> None:
    """Also where another read of the same sum was found before."""
    source = """extern "C" __global__ void sums(const int* x, const int* y, int* out) {
        int sum = x[threadIdx.x];
        sum += y[threadIdx.x];
        out[threadIdx.x] = sum;
        out[threadIdx.x + 32] = y[31 - threadIdx.x];
    }"""
    out = np.zeros(64, np.int32)
    other = emulator.empty((32,), np.int32)
    launched = Kernel(source, "sums").launch(
        1, 32, (unset, other, out), device=emulator, checks="collect"
    )
    assert [(f.line, f.array) for f in launched.findings] == [(2, "x"), (3, "y"), (5, "y")]


VOLATILE = """extern "C" __global__ void k(int n, const volatile int* x, int* out) {
        int value = x[threadIdx.x];
        out[threadIdx.x] = threadIdx.x < n ? 1 : value;
    }"""
ACQUIRING = """extern "C" __global__ void k(int n, const int* x, int* out) {
        int value;
        asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(x + threadIdx.x));
        out[threadIdx.x] = threadIdx.x < n ? 1 : value;
    }"""
REDUCED = """extern "C" __global__ void k(int n, const volatile int* x, int* out) {
        volatile __shared__ int s[48];
        int t = threadIdx.x;
        s[t] = t;
        __syncwarp();
        for (int d = 16; d > 0; d >>= 1) {
            int sum = s[t] + s[t + d];
            __syncwarp();
            s[t] = sum;
            __syncwarp();
        }
        if (t == 0) out[0] = s[n - 32] - 495;
    }"""


@pytest.mark.parametrize("source", [VOLATILE, ACQUIRING, REDUCED])
def test_a_volatile_read_is_followed_too(emulator: Device, unset: object, source: str) -> None:
    """No compiler moves it; but what is read and decides nothing does no harm."""
    kernel, out = Kernel(source, "k"), np.ones(32, np.int32)
    kernel.launch(1, 32, (32, unset, out), device=emulator)
    assert (out == 1).all()
    with pytest.raises(UninitializedReadError) as caught:
        kernel.launch(1, 32, (31 if source != REDUCED else 50, unset, out), device=emulator)
    (finding,) = caught.value.findings
    assert "stores it in global memory" in finding.message or source == REDUCED


def test_a_loop_that_waits_for_a_flag_that_nobody_set(emulator: Device) -> None:
    source = """extern "C" __global__ void k(int* out) {
        __shared__ volatile int flag;
        while (flag == 0) {}
        out[0] = 1;
    }"""
    with pytest.raises(UninitializedReadError) as caught:
        Kernel(source, "k").launch(1, 1, (np.zeros(1, np.int32),), device=emulator)
    assert (caught.value.findings[0].line, caught.value.findings[0].array) == (3, "flag")


LDMATRIX = """extern "C" __global__ void k(int n, const short* a, unsigned* out) {{
    __shared__ alignas(16) short s[256];
    int t = threadIdx.x;
    for (int i = t; i < 256; i += 32)
        if (i / 64 != 3 && i / 8 != 13) s[i] = a[i];  // not matrix 3, nor row 5 of matrix 1
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(s + 8 * t), x[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
    unsigned other = {other};
    out[t] = x[0] + x[2];
    out[32 + t] = n == 1 ? x[1] : other;
    if (n == 3) out[64 + t] = x[3];
}}"""


@pytest.mark.parametrize("is_transposed", [False, True])
def test_rows_of_matrices_that_nobody_wrote(emulator: Device, is_transposed: bool) -> None:
    """``ldmatrix`` loads for other lanes: each element is followed to the register that gets it."""
    a, out, t = np.arange(256, dtype=np.int16), np.zeros(96, np.uint32), np.arange(32)
    other = "t % 4 == 2 ? x[1] & 0xffff : x[1]" if is_transposed else "t / 4 == 5 ? 0 : x[1]"
    trans = ".trans" if is_transposed else ""
    kernel = Kernel(LDMATRIX.format(other=other, trans=trans), "k")
    kernel.launch(1, 32, (0, a, out), device=emulator)
    tiles = a.view(np.uint16).reshape(4, 8, 8)
    tiles = tiles.swapaxes(1, 2) if is_transposed else tiles
    words = np.ascontiguousarray(tiles).view(np.uint32).reshape(4, 32)
    kept = np.where(t % 4 == 2, words[1] & 0xFFFF, words[1])
    kept = kept if is_transposed else np.where(t // 4 == 5, 0, words[1])
    assert_same(out[:64], np.concatenate([words[0] + words[2], kept]).astype(np.uint32))
    for n, index, lane in ((1, 104, 13), (3, 192, 24)):
        found = kernel.launch(1, 32, (n, a, out), device=emulator, checks="collect").findings
        assert [(f.kind, f.array, f.index) for f in found] == [("uninitialised", "s", index)]
        assert found[0].line in (8, 9)  # NVRTCs differ in which line of a statement they say
        assert found[0].thread == (lane, 0, 0)
        assert f"stores it in global memory at line {12 if n == 1 else 13}" in found[0].message


def test_a_bit_field_may_be_set_before_anything_was_written(emulator: Device) -> None:
    source = """struct Fields { unsigned a : 3, b : 5; };
    extern "C" __global__ void k(int n, int* out) {
        Fields fields[4];
        for (int j = 0; j < n; ++j) fields[j & 3].b = j;
        out[0] = fields[n & 3].b;
    }"""
    out = np.zeros(1, np.int32)
    Kernel(source, "k").launch(1, 1, (7, out), device=emulator)
    assert out[0] == 3
    with pytest.raises(UninitializedReadError):
        Kernel(source, "k").launch(1, 1, (2, out), device=emulator)


@pytest.mark.parametrize("seed", some(range(3), 1))
def test_undefined_bits_change_nothing_that_is_called_defined(seed: int) -> None:
    """For every arithmetic instruction: other values of them leave all other bits as they are."""
    wrong = []
    for name in instructions():
        semantics = meaning(name)
        opcode, *modifiers = name.partition("#")[0].split(".")
        random = np.random.default_rng([seed, *name.encode()])
        values = operands(semantics)
        kinds = list(semantics.inputs)
        if "#" in name:
            values[3] = np.full(len(values[0]), int(name.partition("#")[2]), np.uint32)
        if semantics.carry_in:
            values.append(carries())
            kinds.append("u32")
        masks = []
        for place, kind in enumerate(kinds):
            bits = random.integers(0, 2**64, len(values[0]), dtype=np.uint64)
            bits = np.where(random.random(len(bits)) < 0.3, np.uint64(2**64 - 1), bits)
            bits = np.where(random.random(len(bits)) < 0.4, np.uint64(0), bits) & full(kind)
            if place == 3 or (kind == "u32" and semantics.carry_in and place == len(kinds) - 1):
                bits = np.zeros_like(bits)  # a table, a carry: both have few values
            masks.append(bits)
        flips = [bits & random.integers(0, 2**64, len(bits), dtype=np.uint64) for bits in masks]
        changed = [flip(value, bits) for value, bits in zip(values, flips, strict=True)]
        with np.errstate(all="ignore"):
            made = rule(opcode, tuple(modifiers), semantics)(masks, values)
            before, after = semantics.function(*values), semantics.function(*changed)
        pairs = zip(
            before if isinstance(before, tuple) else (before,),
            after if isinstance(after, tuple) else (after,),
            made,
            strict=True,
        )
        for one, other, bits in pairs:
            leaks = (integers(one) ^ integers(other)) & ~bits
            if leaks.any():
                wrong.append(f"{name}: lane {np.flatnonzero(leaks)[0]}")
    assert not wrong, "\n".join(wrong)


def integers(values: Array) -> Array:
    """The bits of values, as uint64."""
    if values.dtype == np.bool_:
        return values.astype(np.uint64)
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)


def flip(values: Array, bits: Array) -> Array:
    if values.dtype == np.bool_:
        return values ^ bits.astype(np.bool_)
    held = integers(values) ^ bits
    return held.astype(f"u{values.dtype.itemsize}").view(values.dtype)


@pytest.mark.parametrize(
    ("name", "masks", "values", "expected"),
    [
        ("and.b32", [0xFF, 0], [0, 0x0F], 0x0F),
        ("and.pred", [1, 0], [0, 0], 0),
        ("and.pred", [1, 0], [0, 1], 1),
        ("or.b32", [0xFF, 0], [0, 0x0F], 0xF0),
        ("shl.b32", [0xF, 0], [0, 4], 0xF0),
        ("shr.s32", [0x80000000, 0], [0, 4], 0xF8000000),
        ("shr.u32", [0x80000000, 0], [0, 4], 0x08000000),
        ("cvt.u32.u8", [0xFF], [0], 0xFF),
        ("cvt.s32.s8", [0xFF], [0], 0xFFFFFFFF),
        ("prmt.b32", [0xFF00, 0, 0], [0, 0, 0x3210], 0xFF00),
        ("bfe.u32", [0xFF00, 0, 0], [0, 0, 8], 0),
        ("bfe.u32", [0xFF00, 0, 0], [0, 8, 8], 0xFF),
        ("add.s32", [1, 0], [0, 0], 0xFFFFFFFF),
        ("selp.b32", [0xFF, 0, 0], [1, 2, 0], 0),
        ("selp.b32", [0xFF, 0, 0], [1, 2, 1], 0xFF),
        ("selp.b32", [0, 0, 1], [1, 3, 0], 2),
        ("setp.eq.and.s32", [7, 0, 0], [0, 0, 0], 0),
        ("setp.eq.and.s32", [7, 0, 0], [0, 0, 1], 1),
        ("setp.eq.or.s32", [7, 0, 0], [0, 0, 1], 0),
    ],
)
def test_what_is_undefined_after_an_instruction(
    name: str, masks: list[int], values: list[int], expected: int
) -> None:
    opcode, *modifiers = name.split(".")
    semantics = resolve(opcode, tuple(modifiers))
    bits = [np.array([mask], np.uint64) for mask in masks]
    held = [
        flip(np.zeros(1, operand.dtype), np.array([value], np.uint64))
        for operand, value in zip(operands(semantics), values, strict=True)
    ]
    assert rule(opcode, tuple(modifiers), semantics)(bits, held)[0].tolist() == [expected]


SCANNED = """extern "C" __global__ void k(int n, const int* x, int* out) {
        __shared__ int s[32];
        int t = threadIdx.x;
        if (t < 20) s[t] = t;
        __syncwarp();
        int sum = s[t];
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(~0u, sum, d);
            if (t >= d) sum += other;
        }
        if (t < n) out[t] = sum;
    }"""


def test_a_shuffle_gives_what_nobody_wrote_to_other_lanes(emulator: Device) -> None:
    """It is a fault of who uses it, with the line of who read it."""
    kernel, out = Kernel(SCANNED, "k"), np.zeros(32, np.int32)
    kernel.launch(1, 32, (20, out, out), device=emulator)
    assert_same(out, np.where(I < 20, np.cumsum(I), 0).astype(np.int32))
    with pytest.raises(UninitializedReadError) as caught:
        kernel.launch(1, 32, (21, out, out), device=emulator)
    (finding,) = caught.value.findings
    assert (finding.line, finding.thread) == (6, (20, 0, 0))
    assert "s[20]" in finding.message
    assert "stores it in global memory at line 11" in finding.message


@pytest.mark.parametrize(
    "taken",
    ["__shfl_sync(~0u, t, s[t] & 31)", "__any_sync(~0u, s[t])", "__shfl_sync(~0u, s[t], 25)"],
)
def test_what_nobody_wrote_decides_in_a_warp(emulator: Device, taken: str) -> None:
    """The lane that gives, a vote, and a value that all lanes take and store."""
    source = SCANNED.replace("int sum = s[t];", f"int sum = {taken};")
    with pytest.raises(UninitializedReadError):
        Kernel(source, "k").launch(1, 32, (20, I, I.copy()), device=emulator)


@thorough
def test_groups_of_several_warps_find_their_barriers_at_zero(emulator: Device) -> None:
    """They lie in the system's shared memory, which the kernel does not write."""
    pytest.importorskip("nvidia.cu13")
    source = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __global__ void k(int* out) {
        __shared__ cg::block_tile_memory<128> memory;
        auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
        int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
        if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = sum;
    }"""
    out = np.zeros(2, np.int32)
    report = Kernel(source, "k").launch(1, 128, (out,), device=emulator, checks="strict")
    assert not report.findings
    assert out.tolist() == [sum(range(64)), sum(range(64, 128))]


EXCHANGED = """extern "C" __global__ void k(int* out) {
        __shared__ int s[4];
        int old = atomicExch(&s[threadIdx.x & 3], 7);
        __syncthreads();
        out[threadIdx.x] = s[threadIdx.x & 3] + WANTED;
    }"""


def test_an_exchange_stores_where_nobody_wrote(emulator: Device) -> None:
    """What it finds there is a fault where the kernel wants it, and no later read is one."""
    out = np.zeros(32, np.int32)
    kernel = Kernel(EXCHANGED, "k", {"WANTED": 0})
    kernel.launch(1, 32, (out,), device=emulator, checks="strict")
    assert (out == 7).all()
    wanting = Kernel(EXCHANGED, "k", {"WANTED": "old"})
    report = wanting.launch(1, 32, (out,), device=emulator, checks="collect")
    assert [(finding.line, finding.array) for finding in report.findings] == [(3, "s")]
