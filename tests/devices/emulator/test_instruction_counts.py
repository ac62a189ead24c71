"""What ldmatrix, stmatrix, cp.async, bulk copies and wgmma are counted as.

The cases are those that Nsight Compute is held against; what is expected of them is counted here
again, address by address, or written down.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tilewise
from tilewise.devices import Device
from tilewise.lens.agreement import emulate
from tilewise.lens.case_spec import Spec
from tilewise.lens.hardware_cases import make
from tilewise.lens.instruction_cases import BLOCKS, specs

pytestmark = pytest.mark.usefixtures("no_machine_code")

CASES = tuple(specs())


def turns(addresses: list[int]) -> int:
    """Wavefronts of 16-byte accesses that are served together."""
    words = {address // 4 + i for address in addresses for i in range(4)}
    return max(Counter(word % 32 for word in words).values())


def counted(spec: Spec) -> tilewise.Counters:
    report, right = emulate(spec)
    assert right
    assert report.counters is not None
    return report.counters


# Quickly, some of them.
@pytest.mark.sampled(14)
@pytest.mark.parametrize(
    "spec", [spec for spec in CASES if spec.kernel == "matrix_rows"], ids=lambda spec: spec.name
)
@pytest.mark.usefixtures("emulator")
def test_rows_of_matrices(spec: Spec) -> None:
    """Each matrix of a warp by itself; lanes whose addresses are not used don't count."""
    matrices, _, stores = spec.shape
    wavefronts = 0
    for warp in make(spec).args[1].tolist():
        wavefronts += sum(
            turns([16 * place for place in warp[first : first + 8]])
            for first in range(0, 8 * matrices, 8)
        )
    c = counted(spec)
    warps = len(make(spec).args[1])
    loaded = (c.ldmatrix_requests, c.ldmatrix_wavefronts, c.ldmatrix_bank_conflicts)
    stored = (c.stmatrix_requests, c.stmatrix_wavefronts, c.stmatrix_bank_conflicts)
    assert (stored if stores else loaded) == (warps, wavefronts, wavefronts - matrices * warps)
    assert (loaded if stores else stored) == (0, 0, 0)


@pytest.mark.parametrize(
    ("pattern", "conflicts"),
    [("side_by_side", 0), ("padded", 0), ("swizzled", 0), ("two_way", 4), ("eight_way", 28)],
)
@pytest.mark.usefixtures("emulator")
def test_conflicts_of_a_warp(pattern: str, conflicts: int) -> None:
    """Of four matrices: padding and swizzle leave none."""
    for stores in (0, 1):
        c = counted(Spec("matrix_rows", "uint32", (4, 0, stores), pattern=pattern))
        assert c.shared_bank_conflicts == BLOCKS * conflicts
        found = c.stmatrix_bank_conflicts if stores else c.ldmatrix_bank_conflicts
        assert found == BLOCKS * conflicts


@pytest.mark.parametrize(
    ("shape", "pattern", "wavefronts", "conflicts"),
    [
        ((4, 0), "side_by_side", 1, 0), ((4, 0), "two_way", 2, 1), ((4, 0), "eight_way", 8, 7),
        ((8, 0), "side_by_side", 2, 0), ((16, 0), "side_by_side", 4, 0),
        # Banks that are read count too.
        ((4, 0), "from_apart", 8, 7), ((16, 0), "from_one", 32, 28), ((16, 0), "padded", 4, 0),
        # Past L1, the lines that are written, and how pieces change place in them.
        ((16, 1), "padded", 32, 0), ((16, 1), "eight_way", 32, 0), ((16, 1), "every_other", 4, 0),
        ((16, 1), "one_lane", 1, 0), ((16, 1), "one_further", 12, 0), ((16, 1), "backwards", 4, 0),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("emulator")
def test_cp_async_writes_shared_memory(
    shape: tuple[int, int], pattern: str, wavefronts: int, conflicts: int
) -> None:
    c = counted(Spec("async_copy", "uint32", shape, pattern=pattern))
    assert (c.cp_async_requests, c.cp_async_wavefronts) == (BLOCKS, BLOCKS * wavefronts)
    assert c.cp_async_bank_conflicts == BLOCKS * conflicts


COPY = r"""
extern "C" __global__ void copy(const int* x, int* y, int bytes, int ahead) {
    __shared__ __align__(128) int s[128];
    unsigned at = (unsigned)__cvta_generic_to_shared(s + 4 * threadIdx.x);
    const int* from = x + ahead * blockIdx.x + 4 * threadIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) y[128 * blockIdx.x + i] = s[i];
}
"""


@pytest.mark.parametrize(("size", "requests", "sectors"), [(16, 1, 16), (4, 1, 16), (0, 0, 0)])
def test_copies_of_less_read_whole_sectors(
    emulator: Device, size: int, requests: int, sectors: int
) -> None:
    """Of 32 lanes that copy 16 bytes each, as much as they read of it."""
    x, y = np.arange(1, 129, dtype=np.int32), np.zeros(128, np.int32)
    c = tilewise.Kernel(COPY, "copy").launch(1, 32, (x, y, size, 0), device=emulator).counters
    assert c is not None
    np.testing.assert_array_equal(y, np.where(np.arange(128) % 4 < size // 4, x, 0))
    assert (c.global_load_requests, c.global_load_sectors) == (requests, sectors)
    assert c.global_load_bytes == 32 * size


@pytest.mark.usefixtures("emulator")
def test_blocks_that_copy_from_elsewhere_in_a_line_are_not_counted_as_one() -> None:
    """Each begins to read a sector further on: as many sectors, but other wavefronts."""
    kernel, blocks = tilewise.Kernel(COPY, "copy"), 64
    x, y = np.ones(8 * blocks + 128, np.int32), np.zeros((blocks, 128), np.int32)
    few = kernel.profile(blocks, 32, (x, y, 16, 8))
    whole = kernel.profile(blocks, 32, (x, y, 16, 8), whole=True)
    assert few.counters == whole.counters
    assert whole.counters is not None
    assert whole.counters.global_load_sectors == blocks * 16
    assert whole.counters.cp_async_wavefronts > blocks * 4
    assert few.blocks_run < blocks


@pytest.mark.parametrize(
    ("shape", "loads", "sectors", "size", "stores"),
    [
        # bytes, copies a block, blocks a cluster
        ((16, 1, 1), 4, 4, 64, 4), ((48, 1, 1), 4, 8, 192, 4), ((4096, 1, 1), 4, 512, 16384, 4),
        ((160, 3, 1), 12, 60, 1920, 12), ((1024, 1, 4), 4, 128, 4096, 16),
        ((16, 2, 2), 8, 2 * 8, 128, 16),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("emulator")
def test_bulk_copies(
    shape: tuple[int, int, int], loads: int, sectors: int, size: int, stores: int
) -> None:
    """A multicast is one load, which reads its sectors once, in pairs."""
    c = counted(Spec("bulk_copy", "uint8", shape))
    assert (c.bulk_load_requests, c.bulk_load_sectors, c.bulk_load_bytes) == (loads, sectors, size)
    assert (c.bulk_store_requests, c.bulk_store_bytes) == (stores, size * stores // loads)
    assert c.bulk_reduction_requests == 0


def test_boxes_count_what_lies_in_the_array(emulator: Device) -> None:
    """Rows of 176 bytes in boxes of 128, 24 rows in boxes of 16: of loads, zeros are sectors."""
    spec = Spec("tensor_copy", "uint16", (0,), pattern="outside")
    report, right = emulate(spec)
    assert right
    c = report.counters
    assert c is not None
    assert c.bulk_load_requests == c.bulk_store_requests == 4
    assert c.bulk_load_bytes == c.bulk_store_bytes == 24 * 176
    # 176 bytes are five and a half sectors: the boxes of even and odd rows meet in other ones.
    assert c.bulk_store_sectors == 12 * (4 + 2) + 12 * (5 + 2)
    # Filled are 80 bytes of each row of the boxes to the right, and eight rows of those below.
    assert c.bulk_load_sectors == c.bulk_store_sectors + 24 * 3 + 2 * 8 * 4
    # Rows of 112 bytes are cut where 128 bytes of shared memory end.
    odd = counted(Spec("tensor_copy", "uint16", (0,), pattern="odd_pitch"))
    assert (odd.bulk_load_sectors, odd.bulk_store_sectors) == (292, 260)
    adding = counted(Spec("tensor_copy", "uint32", (1,), pattern="128B"))
    assert (adding.bulk_store_requests, adding.bulk_reduction_requests) == (0, 4)
    assert adding.bulk_reduction_bytes == 32 * 256


@pytest.mark.parametrize(("n", "shared"), [(8, 1), (256, 1), (64, 0)])
@pytest.mark.usefixtures("emulator")
def test_products_of_warpgroups(n: int, shared: int) -> None:
    """Four warps each; 32 bytes of each row of A, if it is in shared memory, and column of B."""
    c = counted(Spec("warpgroup_product", "float16", (n, shared), pattern="128B"))
    assert c.wgmma_requests == 4 * BLOCKS
    assert c.wgmma_bytes == BLOCKS * 32 * (n + 64 * shared)


WMMA = r"""
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void product(const half* x, float* y) {
    __shared__ __align__(32) half a[16 * PITCH];
    for (int i = threadIdx.x; i < 16 * PITCH; i += 32) a[i] = x[i];
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, a, PITCH);
    wmma::load_matrix_sync(right, a, PITCH);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(y, sum, 16, wmma::mem_row_major);
}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("pitch", "conflicts"), [(16, 4), (24, 0), (64, 28)])
@pytest.mark.usefixtures("emulator")
def test_wmma_loads_by_ldmatrix(pitch: int, conflicts: int) -> None:
    """Two loads of four matrices; rows 32 bytes apart, 48, and in the same banks."""
    kernel = tilewise.Kernel(WMMA, "product", {"PITCH": pitch})
    x, y = np.ones(16 * pitch, np.float16), np.zeros((16, 16), np.float32)
    report = kernel.launch(1, 32, (x, y), device="emulator")
    np.testing.assert_array_equal(y, 16)
    c = report.counters
    assert c is not None
    assert c.ldmatrix_requests == 2
    assert c.ldmatrix_bank_conflicts == 2 * conflicts
    assert c.ldmatrix_wavefronts == 8 + 2 * conflicts


TILES = r"""
extern "C" __global__ void tiles(const uint4* x, float* y) {
    __shared__ __align__(16) uint4 s[256];
    unsigned at = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at),
                 "l"(x + blockIdx.x * 256 + threadIdx.x));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    at = (unsigned)__cvta_generic_to_shared(s + 8 * (threadIdx.x % 32));
    unsigned a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
    y[blockIdx.x * 256 + threadIdx.x] = a + b + c + d;
}
"""


@pytest.mark.usefixtures("emulator")
def test_a_profile_shows_and_multiplies_them() -> None:
    """From one block of 50, line by line, and in the roofline's wavefronts."""
    x, y = np.zeros((50 * 256, 4), np.uint32), np.zeros(50 * 256, np.float32)
    kernel = tilewise.Kernel(TILES, "tiles")
    found = kernel.profile(50, 256, (x, y))
    whole = kernel.launch(50, 256, (x, y), device="emulator")
    assert found.blocks_run == 1
    assert found.counters == whole.counters
    warps = 50 * 8
    figures = {figure.name: figure.value for figure in found.figures()}
    assert figures["ldmatrix requests"] == figures["cp.async requests"] == warps
    assert figures["ldmatrix wavefronts"] == 32 * warps
    assert figures["ldmatrix bank conflicts"] == 28 * warps
    assert figures["cp.async wavefronts"] == 4 * warps
    assert figures["cp.async bank conflicts"] == 0
    assert "stmatrix requests" not in figures
    line, conflicts = found.worst_line or (0, 0)
    assert "ldmatrix" in TILES.split("\n")[line - 1]
    assert conflicts == 28 * warps
    assert found.work.shared_wavefronts == 36 * warps
    assert found.counters.shared_requests == 2 * warps


@pytest.mark.usefixtures("emulator")
def test_bulk_stores_of_blocks_that_are_not_run_are_counted() -> None:
    """The last block stores fewer bytes: of either kind of block, one is run."""
    source = r"""
extern "C" __global__ void store(int n, char* y) {
    __shared__ __align__(128) char s[128];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 128; ++i) s[i] = 1;
        int size = n - 128 * (int)blockIdx.x;
        if (size > 128) size = 128;
        unsigned at = (unsigned)__cvta_generic_to_shared(s);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(y + 128 * blockIdx.x), "r"(at), "r"(size) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""
    y = np.zeros(1008, np.uint8)
    kernel = tilewise.Kernel(source, "store")
    found = kernel.profile(8, 32, (len(y), y))
    assert found.blocks_run == 2
    c = found.counters
    assert (c.bulk_store_requests, c.bulk_store_bytes, c.bulk_store_sectors) == (8, 1008, 32)
    figures = {figure.name: figure.value for figure in found.figures()}
    assert figures["bulk store requests"] == 8
    assert figures["bulk stores"] == 1008
    assert "bulk load requests" not in figures
    footprint = found.report.footprint
    assert footprint is not None
    assert footprint.stores == 32
    assert found.work.dram_bytes == found.work.l2_bytes == 32 * 32
    shown = [row[0] for row in c.by_memory()]
    assert "bulk stores" in shown
    assert "bulk loads" not in shown
