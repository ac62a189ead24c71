"""Tensor maps that a kernel makes itself, field by field, and copies by."""

from __future__ import annotations

import numpy as np
import pytest
from reference import assert_same

from tilewise.devices import Device
from tilewise.errors import MemoryAccessError, UnsupportedInstructionError
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

SOURCE = """
typedef unsigned int u32;
typedef unsigned long long u64;
#define REPLACE(FIELD, TYPE, LETTER, VALUE) \\
    asm volatile("tensormap.replace.tile." FIELD ".shared::cta.b1024." TYPE ";" \\
                 :: "l"(at), LETTER(VALUE) : "memory")
#define SET(FIELD, VALUE) \\
    asm volatile("tensormap.replace.tile." FIELD ".shared::cta.b1024.b32 [%0], " VALUE ";" \\
                 :: "l"(at) : "memory")

extern "C" __global__ void box(const float* x, float* out, char* kept, u32 columns, u32 rows,
                               int column, int row) {
    __shared__ __align__(128) float tile[8 * 8];
    __shared__ __align__(128) u32 map[32];
    __shared__ __align__(8) u64 barrier;
    int t = threadIdx.x;
    map[t] = 0;
    __syncwarp();
    u64 at = __cvta_generic_to_shared(map);
    if (t == 0) {
        REPLACE("global_address", "b64 [%0], %1", "l", x);
        SET("rank", RANK);
        REPLACE("box_dim", "b32 [%0], 0, %1", "r", 8);
        REPLACE("box_dim", "b32 [%0], 1, %1", "r", 8);
        REPLACE("global_dim", "b32 [%0], 0, %1", "r", columns);
        REPLACE("global_dim", "b32 [%0], 1, %1", "r", rows);
        REPLACE("global_stride", "b64 [%0], 0, %1", "l", (u64)columns * 4);
        REPLACE("element_stride", "b32 [%0], 0, %1", "r", 1);
        REPLACE("element_stride", "b32 [%0], 1, %1", "r", 1);
        SET("elemtype", ELEMENT);
        SET("interleave_layout", "0");
        SET("swizzle_mode", "0");
        SET("fill_mode", "0");
    }
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync"
                 ".aligned [%0], [%1], 128;" :: "l"(kept), "l"(at) : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(kept) : "memory");
    u32 bar = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;"
                     :: "r"(bar) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3}], [%4];"
                     :: "r"(to), "l"(kept), "r"(column), "r"(row), "r"(bar) : "memory");
    }
    __syncwarp();
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
                 " @!p bra again; }" :: "r"(bar) : "memory");
    for (int i = t; i < 64; i += 32) out[i] = tile[i];
}
"""


def kernel(rank: str = "1", element: str = "7") -> Kernel:
    return Kernel(SOURCE, "box", {"RANK": f'"{rank}"', "ELEMENT": f'"{element}"'})


@pytest.fixture
def hopper(device: Device) -> Device:
    """A device with the instructions of sm_90a."""
    if device.arch != "sm_90a":
        pytest.skip(f"{device.arch} replaces no fields of tensor maps")
    return device


@pytest.mark.parametrize(("column", "row"), [(0, 0), (4, 3), (12, 9)])
def test_a_box_by_a_map_of_its_own(hopper: Device, column: int, row: int) -> None:
    x = np.random.default_rng(1).standard_normal((12, 16)).astype(np.float32)
    out, kept = np.ones((8, 8), np.float32), hopper.empty((128,), np.uint8)
    kernel().launch(1, 32, (x, out, kept, 16, 12, column, row), device=hopper)
    expected = np.zeros((8, 8), np.float32)
    inside = x[row : row + 8, column : column + 8]
    expected[: inside.shape[0], : inside.shape[1]] = inside
    assert_same(out, expected)


def test_a_map_that_reaches_beyond_its_array(emulator: Device, hopper: Device) -> None:
    x, out = np.zeros((8, 16), np.float32), np.zeros((8, 8), np.float32)
    kept = hopper.empty((128,), np.uint8)
    with pytest.raises(MemoryAccessError, match=r"bulk copy reads .* x\["):
        kernel().launch(1, 32, (x, out, kept, 16, 12, 0, 4), device=hopper)


@pytest.mark.parametrize(("rank", "element"), [("5", "7"), ("1", "11")])
def test_fields_that_it_does_not_know(
    emulator: Device, hopper: Device, rank: str, element: str
) -> None:
    x, out = np.zeros((8, 16), np.float32), np.zeros((8, 8), np.float32)
    kept = hopper.empty((128,), np.uint8)
    with pytest.raises(UnsupportedInstructionError, match=r"tensormap\.replace"):
        kernel(rank, element).launch(1, 32, (x, out, kept, 16, 8, 0, 0), device=hopper)
