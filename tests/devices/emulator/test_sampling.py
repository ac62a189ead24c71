"""A grid's counts from one block of each kind are those of the whole grid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples, thorough

from tilewise.compiler import DEFAULT_ARCH
from tilewise.counted import Footprint
from tilewise.devices.emulator import Emulator
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import RUNGS, rung
from tilewise.launch import Launch, LaunchReport
from tilewise.lens.prepared_gemm import PreparedGemm

pytestmark = pytest.mark.usefixtures("ptx_alone")

TILED = [x.name for x in RUNGS if x.default_tile is not None and "float64" in x.dtypes]


def both(
    kernel: Kernel,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    *args: Any,
    shared: int = 0,
    arch: str = DEFAULT_ARCH,
) -> tuple[LaunchReport, LaunchReport]:
    """The profile of a launch from one block of each kind, and of every block; alike."""
    emulator = Emulator(arch)
    compiled = kernel.compile(emulator.arch)
    x, y, z = (*grid, 1, 1)[:3]
    bx, by, bz = (*block, 1, 1)[:3]
    launch = Launch((x, y, z), (bx, by, bz), args, shared)
    some = emulator.profile(compiled, launch)
    whole = emulator.profile(compiled, launch, whole=True)
    assert some.counters == whole.counters
    assert some.lines == whole.lines
    assert some.footprint == whole.footprint
    assert not whole.alike
    if some.alike:
        assert sum(each.count for each in some.alike) == x * y * z
    return some, whole


def product(
    name: str, m: int, n: int, k: int, dtype: str, tile: int, pads: tuple[int, int, int],
    beta: float,
) -> tuple[LaunchReport, LaunchReport]:  # fmt: skip
    each = rung(name)
    grid, block = each.geometry(m, n, tile, dtype)
    lda, ldb, ldc = k + pads[0], n + pads[1], n + pads[2]
    a, b, c = (np.ones(shape, dtype) for shape in ((m, lda), (k, ldb), (m, ldc)))
    args = (m, n, k, 1.0, a, lda, b, ldb, beta, c, ldc)
    return both(each.kernel(dtype, tile), grid, block, *args)


@examples(25, quick=1)
@given(
    st.sampled_from(TILED), *(st.integers(1, 60) for _ in "mnk"),
    st.sampled_from(["float32", "float64"]), st.integers(0, 4),
    st.tuples(*(st.sampled_from([0, 1, 4, 5]) for _ in "abc")), st.sampled_from([0.0, 2.0]),
)  # fmt: skip
def test_the_ladder(
    name: str, m: int, n: int, k: int, dtype: str, which: int, pads: tuple[int, int, int],
    beta: float,
) -> None:  # fmt: skip
    tiles = rung(name).tiles
    few = (2, 4, 7, 8, 16) if isinstance(tiles, range) else tiles[:2]
    tile = few[which % len(few)]
    product(name, m, n, k, dtype, tile, pads, beta)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TILED)
def test_there_are_four_kinds_of_blocks(name: str) -> None:
    tile = 16 if 16 in rung(name).tiles else rung(name).tiles[0]
    m, n = 3 * tile + 4, 2 * tile + 8
    some, _ = product(name, m, n, 24, "float32", tile, (0, 0, 0), 0.0)
    if name == "tuned":  # its blocks go through C in groups, so that the edges lie here and there
        assert len(some.alike) < sum(each.count for each in some.alike)
    else:
        assert sorted(each.count for each in some.alike) == [1, 2, 3, 6]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", [1032, 514])  # rows that are 16-byte aligned, and such that are not
@pytest.mark.parametrize("name", ["warpgroup", "specialized", "persistent"])
def test_blocks_that_copy_in_bulk(name: str, n: int) -> None:
    """Boxes lie inside or at an edge; of the persistent rung, two clusters take tile after tile."""
    m = 392
    if name != "persistent":  # as few tiles as have an inner one beside those at the edges
        m, n = 264, 264 if n % 8 == 0 else 2
    product = PreparedGemm.of(name, m, n, 72)
    emulator = Emulator("sm_90a")
    compiled = product.compile(emulator.arch)
    launch = product.on(emulator).launch
    if name == "persistent":
        launch = replace(launch, grid=(6, 1, 1))
    some = emulator.profile(compiled, launch)
    whole = emulator.profile(compiled, launch, whole=True)
    assert (some.counters, some.lines, some.footprint) == (
        whole.counters, whole.lines, whole.footprint
    )  # fmt: skip
    assert not some.remarks
    assert some.alike
    assert name == "persistent" or len(some.alike) < math.prod(launch.grid)
    least = emulator.sample(compiled, launch, computes=False)
    assert (least.counters, least.lines, least.footprint) == (
        whole.counters, whole.lines, whole.footprint
    )  # fmt: skip


def test_persistent_blocks_are_of_few_kinds() -> None:
    """62 clusters take two tiles, and 4 take one."""
    emulator = Emulator("sm_90a")
    product = PreparedGemm.of("persistent", 2048, 4096, 64)
    launch = product.on(emulator).launch
    found = emulator.sample(product.compile(emulator.arch), launch, computes=False)
    assert [each.count for each in found.alike] == [62, 62, 4, 4]


BULK = r"""
#define SHARED(p) (unsigned)__cvta_generic_to_shared(p)
// Each block of a cluster loads half of a row of x for both, and stores it in y.
extern "C" __global__ void __cluster_dims__(2) rows(const float* x, float* y, int bytes)
{
    __shared__ __align__(128) float row[128];
    __shared__ unsigned long long there;
    unsigned rank, half = bytes / 2;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(SHARED(&there)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    const float* from = x + blockIdx.x / 2 * 128 + rank * (half / 4);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(SHARED(&there)), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1], %2, [%3], %4;"
                     :: "r"(SHARED(row + rank * (half / 4))), "l"(from), "r"(half),
                        "r"(SHARED(&there)), "h"((unsigned short)3) : "memory");
    }
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" :: "r"(SHARED(&there)) : "memory");
    y[blockIdx.x * 128 + threadIdx.x] = row[threadIdx.x];
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
"""


@pytest.mark.parametrize("shift", [0, 4])  # x is 32-byte aligned, or in the middle of a sector
def test_clusters_that_copy_bytes(shift: int) -> None:
    x, y = floats(10 * 128 + shift), floats(20 * 128)
    some, _ = both(Kernel(BULK, "rows"), (20,), (128,), x[shift:], y, 512, arch="sm_90a")
    assert [each.count for each in some.alike] == [10, 10]


def test_a_large_product_in_a_moment() -> None:
    """8192 x 8192 x 256 has 65,536 blocks, all alike."""
    emulator = Emulator()
    n, k = 8192, 256
    kernel, (grid, block) = rung("tiled").kernel(), rung("tiled").geometry(n, n)
    a, b, c = (emulator.empty(shape, np.float32) for shape in ((n, k), (k, n), (n, n)))
    args = (n, n, k, 1.0, a, k, b, n, 0.0, c, n)
    launch = Launch(grid, block, args, checks="off")
    found = emulator.profile(kernel.compile(emulator.arch), launch)
    assert [each.count for each in found.alike] == [(n // 32) ** 2]
    assert found.counters is not None
    # A warp loads a row of 32 elements of each tile, a phase.
    assert found.counters.global_load_requests == (n // 32) ** 2 * (k // 32) * 2 * 32
    assert found.counters.global_load_sectors == 4 * found.counters.global_load_requests
    assert found.counters.ffma == n * n * k
    inputs, results = 2 * n * k * 4 // 32, n * n * 4 // 32
    assert found.footprint == Footprint(inputs * n // 32, inputs, results)


SOURCE = r"""
extern "C" __global__ void copy(int n, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void strided(int n, int stride, const float* x, float* y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i * stride];
}
extern "C" __global__ void unsigned_edge(unsigned n, const float* x, float* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x - 3u;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void backwards(int n, const float* x, float* y) {
    int i = n - 1 - (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= 0) y[i] = x[max(i - 5, 0)];
}
extern "C" __global__ void turned(int gx, const float* x, float* y, int ld) {
    int bx = blockIdx.x % gx, by = blockIdx.x / gx;
    y[(by * 8 + threadIdx.y) * ld + bx * 8 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void masked(const float* x, float* y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    int row = i >> 5, lane = i & 31;
    y[row * 40 + (lane | 32) - 32] = x[(i & ~31) + lane];
}
extern "C" __global__ void odd_blocks(const float* x, float* y) {
    if (blockIdx.x & 1) y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void triangle(const float* x, float* y) {
    float sum = 0;
    for (int i = 0; i <= (int)blockIdx.x; ++i) sum += x[i * 32 + threadIdx.x];
    y[blockIdx.x * 32 + threadIdx.x] = sum;
}
extern "C" __global__ void meeting(const float* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i] + x[64 + threadIdx.x] + x[blockIdx.x] + x[gridDim.x - 1 - blockIdx.x];
}
extern "C" __global__ void one_each(int n, const float* x, float* y) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += x[blockIdx.x * n + i];
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
extern "C" __global__ void grouped(int n, const float* x, float* y) {
    int wide = n / 16, first = blockIdx.x / (4 * wide) * 4, tall = min(wide - first, 4);
    int i = first + blockIdx.x % (4 * wide) % tall, j = blockIdx.x % (4 * wide) / tall;
    int at = (i * 16 + threadIdx.y) * n + j * 16 + threadIdx.x;
    y[at] = x[at] + x[i * 16];
}
extern "C" __global__ void diagonal(int n, const float* x, float* y) {
    int i = blockIdx.x, j = (blockIdx.x + blockIdx.y) % gridDim.x;
    y[(i * 16 + threadIdx.y) * n + j * 16 + threadIdx.x] =
        x[(j * 16 + threadIdx.y) * n + i * 16 + threadIdx.x];
}
extern "C" __global__ void linear(int n, const float* x, float* y) {
    int block = blockIdx.y * gridDim.x + blockIdx.x, i = block / (n / 16), j = block % (n / 16);
    int at = (i * 16 + threadIdx.y) * n + j * 16 + threadIdx.x;
    y[at] = x[at];
}
extern "C" __global__ void corner(int n, const float* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (blockIdx.x == 0 && threadIdx.x == 0) y[n] = x[0];
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void around(int w, int h, const float* x, float* y) {
    int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y;
    if (i >= w || j >= h) return;
    float sum = 0;
    for (int r = j - 1; r <= j + 1; ++r)
        for (int c = i - 1; c <= i + 1; ++c)
            if (r >= 0 && r < h && c >= 0 && c < w) sum += x[r * w + c];
    y[j * w + i] = sum;
}
extern "C" __global__ void one_of_many(int n, const float* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    switch (blockIdx.y) {
    case 0: y[i] = x[i]; break;
    case 1: y[n + i] = x[i] * 2; break;
    case 2: y[2 * n + i] = x[n - 1 - i]; break;
    case 3: y[3 * n + i] = 1; break;
    case 4: if (i % 2) y[4 * n + i] = x[i]; break;
    default: y[5 * n] = x[n - 1];
    }
}
extern "C" __global__ void hashed(const float* x, float* y) {
    unsigned long long h = (blockIdx.x + 1) * 0x9e3779b97f4a7c15ull * 0xbf58476d1ce4e5b9ull;
    if (h >> 63) y[(h >> 58) * 32 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void top_bits(const float* x, float* y) {
    unsigned long long i = ((unsigned long long)blockIdx.x << 62) + threadIdx.x;
    y[(i >> 60) * 32 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void farthest(long long far, const float* x, float* y) {
    long long i = blockIdx.x * 32 + threadIdx.x;
    if (i > far) y[i] = x[i];
}
extern "C" __global__ void low_byte(const float* x, float* y) {
    short low;
    asm volatile("cvt.u8.u32 %0, %1;" : "=h"(low) : "r"(blockIdx.x * 16));
    if (low < 64) y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void carried(const float* x, float* y) {
    unsigned low, high;
    asm volatile("add.cc.u32 %0, %2, 0xfffffff0; addc.u32 %1, 0, 0;"
                 : "=r"(low), "=r"(high) : "r"(blockIdx.x));
    if (high) y[low * 32 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void inserted(unsigned n, const float* x, float* y) {
    unsigned i, part;  // of each block above the lane's; 2 bits of it, so that it comes again
    asm volatile("bfi.b32 %0, %1, %2, 5, 27;" : "=r"(i) : "r"(blockIdx.x), "r"(threadIdx.x));
    asm volatile("bfi.b32 %0, %1, %2, 5, 2;" : "=r"(part) : "r"(blockIdx.x), "r"(threadIdx.x));
    if (i < n && part < 100) y[i] = x[part];
}
extern "C" __global__ void above_the_lane(unsigned n, const float* x, float* y) {
    unsigned i;
    asm volatile("bfi.b32 %0, %1, %2, 5, 27;" : "=r"(i) : "r"(blockIdx.x), "r"(threadIdx.x));
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void by_float(const float* x, float* y) {
    float part = blockIdx.x * 0.25f;
    if (part > 1.5f && part != 3) y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void many_places(const float* x, float* y) {
    unsigned v;
    asm volatile("places: .branchtargets first, second, third;\nbrx.idx %1, places;\n"
                 "first: mov.u32 %0, 3;\nbra.uni end;\nsecond: mov.u32 %0, %2;\nbra.uni end;\n"
                 "third: mov.u32 %0, 0;\nend:"
                 : "=r"(v) : "r"(blockIdx.x % 3), "r"(threadIdx.x));
    if (v) y[blockIdx.x * 32 + threadIdx.x] = x[v];
}
extern "C" __global__ void third_axis(int n, const float* x, float* y, int ld) {
    int i = blockIdx.x * 4 + threadIdx.x, j = blockIdx.y * 4 + threadIdx.y;
    if (i < n && j < n - (int)blockIdx.z) y[(blockIdx.z * n + j) * ld + i] = x[j * ld + i];
}
extern "C" __global__ void chosen(int n, const float* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n && x[i] > 0) y[i] = 1;
}
extern "C" __global__ void gathered(int n, const int* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) y[x[i]] = 1;
}
extern "C" __global__ void relu(int n, const float* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
extern "C" __global__ void floating(int n, float scale, const float* x, float* y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) y[(int)(i * scale)] = x[i];
}
extern "C" __global__ void by_warps(int n, const float* x, float* y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    float sum = i < n ? x[i] : 0;
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    __shared__ float part[2];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = part[0] + part[1];
}
extern "C" __global__ void wide(unsigned n, const float* x, float* y) {
    unsigned long long i = blockIdx.x * 32ull + threadIdx.x;
    if (i < n) y[i] = x[n - 1 - i];
}
extern "C" __global__ void heads(const float* x, float* y) {
    if (blockIdx.x == 3) y[threadIdx.x] = x[threadIdx.x];
    else if (blockIdx.x != 5) y[32 + threadIdx.x] = 0;
}
extern "C" __global__ void unguarded(float* y) {
    y[blockIdx.x * 32 + threadIdx.x] = 1;
}
extern "C" __global__ void timed(float* y) {
    if (clock() % 2) y[blockIdx.x * 32 + threadIdx.x] = 1;
}
"""


def floats(size: int) -> Any:
    return np.random.default_rng(size).standard_normal(size).astype(np.float32)


@given(st.sampled_from(["copy", "unsigned_edge", "backwards", "wide"]), st.integers(1, 3000))
def test_one_axis(name: str, n: int) -> None:
    blocks = -(-(n + 3) // 64)
    some, _ = both(Kernel(SOURCE, name), (blocks,), (64,), n, floats(n), floats(n))
    assert 1 <= len(some.alike) <= 6


@given(st.integers(1, 2000), st.integers(1, 9), st.integers(1, 20))
def test_strides(n: int, stride: int, blocks: int) -> None:
    both(Kernel(SOURCE, "strided"), (blocks,), (32,), n, stride, floats(n * stride), floats(n))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "grid", "block", "args", "kinds"),
    [
        ("relu", (100,), (32,), (3177, floats(3177), floats(3177)), 2),
        ("masked", (50,), (64,), (floats(3200), floats(4000)), 1),
        ("by_warps", (40,), (64,), (2500, floats(2500), floats(40)), None),
        ("heads", (9,), (32,), (floats(32), floats(64)), None),
        ("third_axis", (5, 5, 3), (4, 4), (18, floats(20 * 18), floats(20 * 54), 20), None),
        ("odd_blocks", (9,), (32,), (floats(32), floats(288)), 2),
        ("turned", (30,), (8, 8), (5, floats(8), floats(48 * 40), 40), 1),
        ("floating", (4,), (32,), (120, 0.5, floats(120), floats(120)), 4),
        ("meeting", (40,), (32,), (floats(1280), floats(1280)), 1),
        ("one_each", (100,), (32,), (72, floats(7200), floats(100)), 1),
        ("grouped", (121,), (16, 16), (176, floats(176 * 176), floats(176 * 176)), 1),
        ("diagonal", (6, 6), (16, 16), (96, floats(96 * 96), floats(96 * 96)), 1),
        ("linear", (10, 6), (16, 16), (80, floats(80 * 192), floats(80 * 192)), 1),
        ("corner", (40,), (32,), (1270, floats(1280), floats(1280)), 3),
        ("around", (5, 7), (16, 8), (80, 50, floats(4000), floats(4000)), 9),
        ("one_of_many", (20, 7), (32,), (640, floats(640), floats(3840)), 6),
        ("hashed", (100,), (32,), (floats(32), floats(2048)), 2),
        ("top_bits", (40,), (32,), (floats(32), floats(512)), 1),
        ("farthest", (40,), (32,), (2**63 - 1, floats(1280), floats(1280)), 1),
        ("farthest", (40,), (32,), (-(2**63), floats(1280), floats(1280)), 1),
        ("low_byte", (40,), (32,), (floats(32), floats(1280)), None),
        ("by_float", (20,), (32,), (floats(32), floats(640)), None),
        ("many_places", (20,), (32,), (floats(32), floats(640)), 3),
        ("inserted", (20,), (32,), (600, floats(128), floats(640)), None),
        ("above_the_lane", (20,), (32,), (600, floats(640), floats(640)), 3),
        ("carried", (40,), (32,), (floats(32), floats(1280)), None),
    ],
)
def test_what_blocks_do(
    name: str, grid: tuple[int, ...], block: tuple[int, ...], args: Any, kinds: int | None
) -> None:
    some, _ = both(Kernel(SOURCE, name), grid, block, *args)
    assert some.alike
    assert kinds is None or len(some.alike) == kinds


@pytest.mark.parametrize(
    ("name", "args", "where"),
    [
        ("chosen", (300, floats(300), floats(300)), "x[i] > 0) y[i] = 1"),
        ("gathered", (300, np.arange(300, dtype=np.int32)[::-1].copy(), floats(300)), "y[x[i]]"),
        ("timed", (floats(320),), "clock()"),
    ],
)
def test_what_was_loaded_may_decide(name: str, args: Any, where: str) -> None:
    """Then every block is run, and the report says why."""
    (line,) = (i for i, text in enumerate(SOURCE.split("\n"), 1) if where in text)
    some, _ = both(Kernel(SOURCE, name), (10,), (32,), *args)
    assert not some.alike
    # A quick run has no machine code, which a note says.
    (note,) = (x for x in some.notes if not x.startswith("there is no machine code"))
    assert note.startswith(f"every block was run: <source>:{line}: what was loaded")


def test_the_last_block_reaches_too_far() -> None:
    """All do the same, but not all within the array."""
    emulator = Emulator()
    compiled = Kernel(SOURCE, "unguarded").compile(emulator.arch)
    launch = Launch((10, 1, 1), (32, 1, 1), (np.zeros(300, np.float32),))
    with pytest.raises(MemoryAccessError, match=r"thread \(12, 0, 0\) of block \(9, 0, 0\)"):
        emulator.profile(compiled, launch)
    found = emulator.profile(compiled, replace(launch, checks="collect"))
    assert [(each.block, each.count) for each in found.alike] == [((0, 0, 0), 9), ((9, 0, 0), 1)]
    assert len(found.findings) == 1


NUMBERS = st.recursive(
    st.sampled_from(
        ["blockIdx.x", "(int)blockIdx.y", "threadIdx.x", "n", "far", "-5", "32", "96u"]
    ),
    lambda x: st.one_of(
        st.builds("({} {} {})".format, x, st.sampled_from(["+", "-", "*", "&", "|", "^"]), x),
        st.builds("({} {})".format, x, st.sampled_from(["/ 3", "% 5", "/ 16u", "<< 5", ">> 2"])),
        st.builds("{}((int){}, (int){})".format, st.sampled_from(["min", "max"]), x, x),
        st.builds("({} < {} ? {} : {})".format, x, x, x, x),
        st.builds("(({}){})".format, st.sampled_from(["short", "unsigned char", "long long"]), x),
    ),
    max_leaves=6,
)


@examples(40, quick=3)
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 500), st.sampled_from([1, 32, 40]))
def test_any_numbers(a: str, b: str, i: str, j: str, n: int, threads: int) -> None:
    source = f"""extern "C" __global__ void any(int n, long long far, const float* x, float* y) {{
        if ({a} < {b}) y[(unsigned)({i}) % 4096] = x[(unsigned)({j}) % 4096];
    }}"""
    args = (n, 2**62 + n, floats(4096), floats(4096))
    both(Kernel(source, "any"), (7, 5), (threads,), *args)


def test_arrays_stay_as_they_are() -> None:
    x, y = floats(100), np.zeros(100, np.float32)
    both(Kernel(SOURCE, "copy"), (4,), (32,), 100, x, y)
    assert not y.any()


@thorough
def test_more_kinds_than_are_worth_it() -> None:
    some, _ = both(Kernel(SOURCE, "triangle"), (300,), (32,), floats(9600), floats(9600))
    assert not some.alike
    assert some.notes == ("every block was run: they are of more than 256 kinds",)
