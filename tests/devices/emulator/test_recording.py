"""What is recorded of instructions on matrices, of copies and waits, and of blocks in company."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewise.compiler.mangled import plain_name
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.recording.events import NOWHERE, Event, Recording
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.places import Dim3

pytestmark = pytest.mark.usefixtures("ptx_alone")

Matrix = npt.NDArray[Any]
LETTER = {"f32": "f", "s32": "r", "f64": "d", "f16": "r"}
C_TYPE = {"f": "float", "r": "unsigned", "d": "double"}


def recorded(
    source: str, name: str, args: tuple[Any, ...], *, grid: Dim3 = (1, 1, 1), threads: int = 32,
    blocks: tuple[Dim3, ...] = ((0, 0, 0),), arch: str = "sm_90a", shared: int = 0,
    cooperative: bool = False,
) -> tuple[list[Any], tuple[Recording, ...]]:  # fmt: skip
    """The arguments behind the launch, and the recordings."""
    emulator = Emulator(arch)
    placed = [emulator.array(x) if isinstance(x, np.ndarray) else x for x in args]
    launch = Launch(grid, (threads, 1, 1), tuple(placed), shared, cooperative=cooperative)
    _, found = emulator.record(Kernel(source, name).compile(arch), launch, blocks)
    return [x.to_numpy() if hasattr(x, "to_numpy") else x for x in placed], found


def only(recording: Recording, opcode: str) -> Event:
    ops = recording.program.instructions
    (found,) = (e for e in recording.events if ops[e.op].opcode == opcode)
    return found


def gathered(held: Held, values: Matrix) -> Matrix:
    """The matrix, of what lanes hold: (lanes, elements)."""
    places = held.row * held.columns + held.column  # each once
    assert sorted(places.ravel().tolist()) == list(range(held.rows * held.columns))
    found = np.zeros((held.rows, held.columns))
    found[held.row, held.column] = values
    return found


# The instruction's types, A's elements, and how many registers of A, B and D a lane holds.
PRODUCTS = [
    ("m16n8k16.row.col.f32.f16.f16.f32", np.float16, "r", (4, 2, 4)),
    ("m16n8k8.row.col.f32.f16.f16.f32", np.float16, "r", (2, 1, 4)),
    ("m16n8k16.row.col.f16.f16.f16.f16", np.float16, "r", (4, 2, 2)),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", np.float32, "r", (4, 2, 4)),
    ("m16n8k32.row.col.s32.s8.s8.s32", np.int8, "r", (4, 2, 4)),
    ("m8n8k4.row.col.f64.f64.f64.f64", np.float64, "d", (1, 1, 2)),
]


@pytest.mark.parametrize(("types", "dtype", "letter", "counts"), PRODUCTS)
def test_what_lanes_hold_is_what_is_multiplied(
    types: str, dtype: Any, letter: str, counts: tuple[int, int, int]
) -> None:
    """D = A B, each gathered of the lanes' registers by the layout that was recorded."""
    d_type = types.split(".")[3]
    of_d = LETTER[d_type]
    a, b, d = counts
    names = [
        [f"%{first + i}" for i in range(n)]
        for first, n in ((0, d), (d, a), (d + a, b), (d + a + b, d))
    ]
    operands = ", ".join("{" + ", ".join(each) + "}" for each in names)
    outs = ", ".join(f'"={of_d}"(to[threadIdx.x * {d} + {i}])' for i in range(d))
    ins = ", ".join(
        [f'"{letter}"(a[threadIdx.x * {a} + {i}])' for i in range(a)]
        + [f'"{letter}"(b[threadIdx.x * {b} + {i}])' for i in range(b)]
        + [f'"{of_d}"(({C_TYPE[of_d]})0)'] * d
    )
    source = f"""
    extern "C" __global__ void one(const {C_TYPE[letter]}* a, const {C_TYPE[letter]}* b,
                                   {C_TYPE[of_d]}* to) {{
        asm volatile("mma.sync.aligned.{types} {operands};" : {outs} : {ins});
    }}"""
    rng = np.random.default_rng(1)
    register = np.dtype(np.float64 if letter == "d" else np.uint32)
    packed = register.itemsize // np.dtype(dtype).itemsize
    of_a, of_b = (rng.integers(-4, 5, (32, n * packed)).astype(dtype) for n in (a, b))
    out = np.zeros(32 * d, {"f": np.float32, "r": np.uint32, "d": np.float64}[of_d])
    (*_, result), (recording,) = recorded(
        source, "one", (of_a.view(register).ravel(), of_b.view(register).ravel(), out)
    )
    kind = {"s32": np.int32, "f16": np.float16}.get(d_type, out.dtype)
    event = only(recording, "mma")
    assert (event.kind, len(event.threads)) == ("matrix", 32)
    held = {each.name: each for each in event.held}
    assert [held[name].packed for name in "AB"] == [packed, packed]
    d_matrix = gathered(held["D"], result.view(kind).reshape(32, -1))
    expected = gathered(held["A"], of_a) @ gathered(held["B"], of_b)
    assert expected.any()
    np.testing.assert_array_equal(d_matrix, expected)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("turn", ["", ".trans"])
def test_rows_and_who_gets_their_elements(count: int, turn: str) -> None:
    """Row r of matrix m is at the address of lane 8 m + r; no other lane's address is used."""
    outs = ", ".join(f'"=r"(to[threadIdx.x * {count} + {i}])' for i in range(count))
    words = ", ".join(f"%{i}" for i in range(count))
    source = f"""
    extern "C" __global__ void rows(const unsigned short* from, unsigned* to) {{
        __shared__ __align__(16) unsigned short tile[{64 * count}];
        for (int i = threadIdx.x; i < {64 * count}; i += 32) tile[i] = from[i];
        __syncwarp();
        unsigned row = {8 * count} - 1 - threadIdx.x % {8 * count};
        unsigned at = __cvta_generic_to_shared(&tile[row * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{turn}.shared.b16 {{{words}}}, [%{count}];"
                     : {outs} : "r"(at) : "memory");
    }}"""
    data = np.arange(64 * count, dtype=np.uint16)
    (_, result), (recording,) = recorded(source, "rows", (data, np.zeros(32 * count, np.uint32)))
    event = only(recording, "ldmatrix")
    assert (event.kind, event.space, event.width, event.requests) == ("load", "shared", 16, 1)
    assert event.address is not None
    gives = event.address != NOWHERE
    np.testing.assert_array_equal(gives, np.arange(32) < 8 * count)
    np.testing.assert_array_equal(event.address[gives], np.arange(8 * count)[::-1] * 16)
    (held,) = event.held
    assert (held.rows, held.columns) == (8 * count, 8)
    rows = gathered(held, result.view(np.uint16).reshape(32, -1))
    np.testing.assert_array_equal(rows, data.reshape(-1, 8)[::-1])


def test_stored_rows() -> None:
    source = """
    extern "C" __global__ void rows(const unsigned* from, unsigned short* to) {
        __shared__ __align__(16) unsigned short tile[128];
        unsigned at = __cvta_generic_to_shared(&tile[threadIdx.x % 16 * 8]);
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
            :: "r"(at), "r"(from[threadIdx.x]), "r"(from[32 + threadIdx.x]) : "memory");
        __syncwarp();
        for (int i = threadIdx.x; i < 128; i += 32) to[i] = tile[i];
    }"""
    data = np.arange(128, dtype=np.uint16)
    (_, result), (recording,) = recorded(
        source, "rows", (data.view(np.uint32), np.zeros(128, np.uint16))
    )
    event = only(recording, "stmatrix")
    (held,) = event.held
    lanes = data.view(np.uint16).reshape(2, 32, 2).swapaxes(0, 1).reshape(32, 4)
    np.testing.assert_array_equal(gathered(held, lanes), result.reshape(16, 8))
    assert event.values is not None
    np.testing.assert_array_equal(event.values[:16], result.reshape(16, 8))


def test_a_warpgroups_sums() -> None:
    """PTX ISA 9.7.15.5.1.1: row 16 w + 8 h + l / 4, column 8 j + 2 (l % 4) + c."""
    sums = ", ".join(f"%{i}" for i in range(8))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(8))
    source = f"""
    extern "C" __global__ void product(float* to) {{
        __shared__ __align__(1024) unsigned short tiles[2048];
        for (int i = threadIdx.x; i < 2048; i += 128) tiles[i] = 0;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        float d[8] = {{}};
        unsigned at = __cvta_generic_to_shared(tiles);
        unsigned long long of = (at >> 4 & 0x3fff) | 128ull >> 4 << 16 | 256ull >> 4 << 32;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {{{sums}}}, %8, %9, 1, 1, "
                     "1, 0, 0;" : {outs} : "l"(of), "l"(of + 128));
        asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;"
                     ::: "memory");
        for (int i = 0; i < 8; ++i) to[threadIdx.x * 8 + i] = d[i];
    }}"""
    _, (recording,) = recorded(source, "product", (np.zeros(1024, np.float32),), threads=128)
    (event,) = (e for e in recording.events if e.kind == "matrix")
    (held,) = event.held
    lane, element = np.arange(128)[:, None], np.arange(8)
    rows = lane // 32 * 16 + element // 2 % 2 * 8 + lane % 32 // 4
    np.testing.assert_array_equal(held.row, rows)
    np.testing.assert_array_equal(held.column, element // 4 * 8 + lane % 4 * 2 + element % 2)
    assert event.pieces is not None
    # Without a swizzle: 8 rows of 16 bytes side by side, 128 bytes from k to the next 8 of k.
    row, half = np.arange(64)[:, None], np.arange(2)
    at = row % 8 * 16 + row // 8 * 256 + half * 128
    np.testing.assert_array_equal(event.pieces["A"], at.reshape(1, -1))
    np.testing.assert_array_equal(event.pieces["B"], 2048 + at[:16].reshape(1, -1))
    waits = [e.sync for e in recording.events if e.sync is not None]
    assert [(x.on, x.action, x.allowed) for x in waits] == [
        ("wgmma", "commit", None), ("wgmma", "wait", 0)
    ]  # fmt: skip


CLUSTER = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) pass(float* to) {
    __shared__ float mine[32];
    mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
    asm volatile("barrier.cluster.arrive;\\nbarrier.cluster.wait;" ::: "memory");
    unsigned at = __cvta_generic_to_shared(&mine[threadIdx.x]), there, rank = blockIdx.x % 2 ^ 1;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    float got;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(got) : "r"(there));
    to[blockIdx.x * 32 + threadIdx.x] = got;
    asm volatile("barrier.cluster.arrive;\\nbarrier.cluster.wait;" ::: "memory");
}"""


def test_a_block_of_a_cluster_is_recorded_and_the_others_run() -> None:
    args = (np.full(128, -1, np.float32),)
    (out,), (last, first) = recorded(
        CLUSTER, "pass", args, grid=(4, 1, 1), blocks=((3, 0, 0), (0, 0, 0))
    )
    blocks = np.array([100, 0, 300, 200])[:, None]
    np.testing.assert_array_equal(out.reshape(4, 32), blocks + np.arange(32))
    for recording, block in ((first, 0), (last, 3)):
        assert not recording.is_cut
        assert all((e.threads < 32).all() for e in recording.events)
        (stored,) = (e for e in recording.events if (e.kind, e.space) == ("store", "global"))
        np.testing.assert_array_equal(stored.values, blocks[block] + np.arange(32))
        assert (stored.requests, stored.sectors) == (1, 4)
        syncs = [e.sync for e in recording.events if e.sync is not None]
        assert [(x.on, x.action) for x in syncs] == [("cluster", "arrive"), ("cluster", "wait")] * 2


def test_one_block_of_a_cluster_leaves_other_clusters_alone() -> None:
    (out,), _ = recorded(
        CLUSTER, "pass", (np.full(128, -1, np.float32),), grid=(4, 1, 1), blocks=((1, 0, 0),)
    )
    assert (out[64:] == -1).all()
    assert (out[:64] >= 0).all()


def test_a_block_of_the_largest_grid() -> None:
    """No memory is kept for each block of the grid: its x alone would take 16 GiB."""
    source = """
    extern "C" __global__ void last(unsigned* to) { to[threadIdx.x] = blockIdx.x + threadIdx.x; }"""
    grid = (2**31 - 1, 65535, 65535)
    (out,), (recording,) = recorded(
        source, "last", (np.zeros(32, np.uint32),), grid=grid, blocks=((2**31 - 2, 65534, 65534),)
    )
    np.testing.assert_array_equal(out, 2**31 - 2 + np.arange(32))
    assert not recording.is_cut


def test_blocks_of_a_cooperative_launch() -> None:
    """Each waits for all: that works only where all of them run, and once."""
    source = """
    extern "C" __global__ void meet(int* count, int* out) {
        if (threadIdx.x == 0) {
            atomicAdd(count, 1);
            while (atomicAdd(count, 0) < gridDim.x) {}
        }
        __syncthreads();
        out[blockIdx.x * 64 + threadIdx.x] = *(volatile int*)count;
    }"""
    args = (np.zeros(1, np.int32), np.zeros(5 * 64, np.int32))
    (count, out), recordings = recorded(
        source, "meet", args, grid=(5, 1, 1), threads=64, blocks=((0, 0, 0), (4, 0, 0)),
        cooperative=True,
    )  # fmt: skip
    assert count.tolist() == [5]
    assert (out == 5).all()
    for recording in recordings:
        assert not recording.is_cut
        last = [e for e in recording.events if (e.kind, e.space) == ("store", "global")][-1]
        np.testing.assert_array_equal(last.values, np.full(64, 5))
        assert sorted(last.threads) == list(range(64))


def test_waits_at_an_mbarrier_and_a_bulk_copy() -> None:
    source = """
    extern "C" __global__ void load(const float* from, float* to) {
        __shared__ __align__(16) float tile[64];
        __shared__ unsigned long long full;
        unsigned bar = __cvta_generic_to_shared(&full), at = __cvta_generic_to_shared(tile);
        if (threadIdx.x == 32) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            asm volatile("{ .reg .pred done;\\n again: mbarrier.try_wait.parity.shared::cta.b64 "
                         "done, [%0], 0;\\n @!done bra again; }" :: "r"(bar) : "memory");
            to[threadIdx.x] = tile[threadIdx.x] + tile[32 + threadIdx.x];
        } else if (threadIdx.x == 32) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;"
                         :: "r"(bar) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                         "[%0], [%1], 256, [%2];" :: "r"(at), "l"(from), "r"(bar) : "memory");
        }
    }"""
    data = np.arange(64, dtype=np.float32)
    (_, out), (recording,) = recorded(source, "load", (data, np.zeros(32, np.float32)), threads=64)
    np.testing.assert_array_equal(out, data[:32] + data[32:])
    syncs = [e.sync for e in recording.events if e.sync is not None]
    offset = recording.program.shared_offsets
    (bar,) = (at for name, at in offset.items() if "full" in name)
    assert [(x.action, x.at, x.passes, x.is_expecting) for x in syncs] == [
        ("init", (bar,), True, False), ("wait", (bar,), False, False),
        ("arrive", (bar,), True, True),
    ]  # fmt: skip
    (copy,) = (e for e in recording.events if e.move is not None)
    assert copy.move is not None
    assert (copy.threads.tolist(), copy.move.size, copy.move.barrier) == ([32], 256, bar)
    assert copy.move.origin is not None
    assert np.diff(copy.move.origin).tolist() == [16] * 15
    assert copy.sectors == 8


def test_shared_variables_of_one_name() -> None:
    """The name of their function tells them apart, or a number if the function is the same."""
    source = """
    __device__ __noinline__ void first(float* x) {
        __shared__ float t[32]; t[threadIdx.x] = *x; __syncthreads(); *x = t[31 - threadIdx.x];
    }
    template <int N> __device__ __noinline__ void second(float* x) {
        __shared__ float t[N]; t[threadIdx.x] = *x; __syncthreads(); *x = t[31 - threadIdx.x];
    }
    extern "C" __global__ void k(float* x) {
        __shared__ float own[32];
        own[threadIdx.x] = *x;
        __syncthreads();
        float* to = x + 31 - threadIdx.x;
        *to = own[threadIdx.x];
        first(to); second<32>(to); second<64>(to);
        { __shared__ float u[32]; u[threadIdx.x] = *x; __syncthreads(); *to = u[threadIdx.x]; }
        { __shared__ float u[32]; u[threadIdx.x] = *x; __syncthreads(); *to += u[threadIdx.x]; }
    }"""
    _, (recording,) = recorded(source, "k", (np.zeros(32, np.float32),))
    program = recording.program
    names = {"own", "first::t", "second<32>::t", "second<64>::t", "k::u (1)", "k::u (2)"}
    assert set(program.shared_names.values()) == names
    for symbol, offset in program.shared_offsets.items():
        assert program.shared_variable(offset + 4) == (symbol, offset)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain", "plain"), ("_ZZ5tiledE2sa", "sa"), ("_ZZ1fPfE5tile2_1", "tile2"),
        ("_ZZ4sumsIfEvPT_E4tile_0", "tile"), ("_ZZ1fRA32_A32_fE2S5_0", "S5"),
        ("_ZZ6kernelILi128ELin3EEvPKDv4_fE1t", "t"), ("_ZZN12_GLOBAL__N_11fEvE1s", "s"),
        ("_ZZN2M57kernel5IfEEvPfPK3MapS5_E4full", "full"), ("_ZZ1fSt4pairIifEE4tile_0", "tile"),
    ],
)  # fmt: skip
def test_a_variables_name_as_the_source_has_it(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


def test_matrices_of_wmma_by_their_accesses() -> None:
    """A and B come from shared memory by rows, as the machine code has it; D goes out in pairs."""
    registers = ["{" + ",".join(f"{letter}{i}" for i in range(8)) + "}" for letter in "abd"]
    kinds = " ".join(
        f".reg .{'f32' if letter == 'd' else 'b32'} {letter}<8>;" for letter in "abd"
    )  # fmt: skip
    of_a, of_b, of_d = registers
    zeros = "{" + ",".join(["0f00000000"] * 8) + "}"
    source = f"""
    extern "C" __global__ void one(const unsigned* from, float* to) {{
        __shared__ __align__(32) unsigned short tiles[512];
        for (int i = threadIdx.x; i < 256; i += 32) ((unsigned*)tiles)[i] = from[i];
        __syncwarp();
        unsigned at = __cvta_generic_to_shared(tiles);
        asm volatile("{{ {kinds}\\n"
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {of_a}, [%0], 16;\\n"
            "wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {of_b}, [%1], 16;\\n"
            "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {of_d}, {of_a}, {of_b}, {zeros};\\n"
            "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%2], {of_d}, 16; }}"
            :: "r"(at), "r"(at + 512), "l"(to) : "memory");
    }}"""
    a, b = np.random.default_rng(2).integers(-3, 4, (2, 16, 16)).astype(np.float16)
    data = np.concatenate((a, b)).view(np.uint32).ravel()
    (_, out), (recording,) = recorded(source, "one", (data, np.zeros(256, np.float32)))
    np.testing.assert_array_equal(out.reshape(16, 16), a.astype(float) @ b.astype(float))
    moved = [e for e in recording.events if e.held and e.kind != "matrix"]
    assert [(e.kind, e.space, e.width, e.is_by_rows, e.requests, e.conflicts) for e in moved] == [
        *[("load", "shared", 16, True, 1, 4)] * 2, *[("store", "global", 8, False, 1, 0)] * 4
    ]  # fmt: skip
    for event, first in zip(moved[:2], (0, 512), strict=True):
        assert event.address is not None
        assert sorted(event.address) == list(range(first, first + 512, 16))
    stored = np.zeros(256, np.float32)
    base = min(int(e.address.min()) for e in moved[2:] if e.address is not None)
    for event in moved[2:]:
        assert event.address is not None
        assert event.values is not None
        places = (event.address - base)[:, None] // 4 + np.arange(2)
        stored[places] = event.values.view(np.float32)
    np.testing.assert_array_equal(stored, out)
