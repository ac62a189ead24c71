"""Counters against counts done by hand: 32-byte sectors, 32 banks of four bytes.

Nsight Compute read the same requests, sectors and bank conflicts for these launches on an H200.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Launcher

from tilewise.counted import Counters
from tilewise.devices import Device

pytestmark = pytest.mark.usefixtures("ptx_alone")


@pytest.fixture(autouse=True)
def only_here(emulator: Device) -> None:
    """A GPU's counters are read by Nsight Compute, elsewhere."""


def counters(
    launch: Launcher, name: str, grid: Any, block: Any, *args: Any, **options: Any
) -> Counters:
    report = launch("counting", name, grid, block, *args, counts=True, **options)
    assert report.counters is not None
    total = Counters()
    for line in report.lines.values():
        total += line
    assert total == report.counters
    return report.counters


def floats(n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(n, dtype=np.float32)


@pytest.mark.parametrize(
    ("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (3, 12), (4, 16), (8, 32), (9, 32), (32, 32)]
)
def test_strided_loads(launch: Launcher, stride: int, sectors: int) -> None:
    c = counters(launch, "strided", 2, 64, stride, floats(128 * 32), floats(128))
    assert c.global_load_requests == 4
    assert c.global_load_sectors == 4 * sectors
    assert c.global_store_requests == 4
    assert c.global_store_sectors == 16


@pytest.mark.parametrize(("by", "sectors"), [(0, 4), (1, 5), (7, 5), (8, 4)])
def test_offset_loads(launch: Launcher, by: int, sectors: int) -> None:
    c = counters(launch, "offset", 1, 64, by, floats(80), floats(64))
    assert c.global_load_sectors == 2 * sectors


def test_one_word_for_all(launch: Launcher) -> None:
    c = counters(launch, "same_word", 3, 96, floats(3), floats(3 * 96))
    assert (c.global_load_requests, c.global_load_sectors) == (9, 9)


@pytest.mark.parametrize(
    ("n", "requests", "sectors"), [(1, 1, 1), (32, 1, 4), (33, 2, 5), (50, 2, 7), (0, 0, 0)]
)
def test_requests_need_an_active_lane(
    launch: Launcher, n: int, requests: int, sectors: int
) -> None:
    c = counters(launch, "some_lanes", 2, 64, n, floats(max(n, 1)), floats(max(n, 1)))
    assert (c.global_load_requests, c.global_load_sectors) == (requests, sectors)
    assert (c.global_store_requests, c.global_store_sectors) == (requests, sectors)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("of", "size"),
    [("unsigned char", 1), ("short", 2), ("float", 4), ("float2", 8), ("double", 8),
     ("float4", 16), ("int4", 16), ("double2", 16)],
)  # fmt: skip
def test_widths(launch: Launcher, of: str, size: int) -> None:
    kind = {"short": np.int16, "float": np.float32, "float2": np.float32, "float4": np.float32,
            "double": np.float64, "double2": np.float64}.get(of, np.uint8)  # fmt: skip
    a, out = (np.zeros(64 * size, np.uint8).view(kind) for _ in range(2))
    c = counters(launch, f"copy<{of}>", 1, 64, a, out)
    assert (c.global_load_requests, c.global_load_sectors) == (2, 2 * size)
    assert (c.global_store_requests, c.global_store_sectors) == (2, 2 * size)


# Four bytes a lane: lanes in one bank at different words conflict, stride s in gcd(s, 32) lanes.
@pytest.mark.parametrize(
    ("stride", "conflicts"), [(0, 0), (1, 0), (2, 1), (3, 0), (4, 3), (8, 7), (31, 0), (32, 31)]
)
def test_bank_conflicts_of_words(launch: Launcher, stride: int, conflicts: int) -> None:
    out = floats(64)
    c = counters(launch, "banks<float>", 1, 64, 33, stride, out, shared=4 * 64 * 33, checks="off")
    assert (c.shared_store_requests, c.shared_store_bank_conflicts) == (2, 0)
    assert (c.shared_load_requests, c.shared_load_bank_conflicts) == (2, 2 * conflicts)


# Eight bytes a lane take two wavefronts, half a warp each.
@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (2, 2), (3, 0), (4, 6), (16, 30)])
def test_bank_conflicts_of_doubles(launch: Launcher, stride: int, conflicts: int) -> None:
    out = np.zeros(32)
    c = counters(launch, "banks<double>", 1, 32, 1, stride, out, shared=8 * 32 * 17, checks="off")
    assert c.shared_store_bank_conflicts == 0
    assert c.shared_load_bank_conflicts == conflicts


# Sixteen bytes a lane take four wavefronts, a quarter of a warp each.
@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (2, 4), (4, 12), (8, 28), (9, 0)])
def test_bank_conflicts_of_quads(launch: Launcher, stride: int, conflicts: int) -> None:
    out = floats(128)
    c = counters(launch, "banks<float4>", 1, 32, 1, stride, out, shared=16 * 32 * 9, checks="off")
    assert c.shared_store_bank_conflicts == 0
    assert c.shared_load_bank_conflicts == conflicts


# Bytes of one word are one access.
@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (4, 0), (8, 1), (128, 31)])
def test_bank_conflicts_of_bytes(launch: Launcher, stride: int, conflicts: int) -> None:
    name, out = "banks<unsigned char>", np.zeros(32, np.uint8)
    c = counters(launch, name, 1, 32, 1, stride, out, shared=32 * 128, checks="off")
    assert c.shared_load_bank_conflicts == conflicts


@pytest.mark.parametrize(("width", "conflicts"), [(32, 31), (33, 0), (34, 1), (36, 3)])
def test_transposes(launch: Launcher, width: int, conflicts: int) -> None:
    n = 64
    warps = n * n // 32
    c = counters(
        launch, "transpose", (2, 2), (32, 32), n, floats(n * n), floats(n * n),
        defines={"WIDTH": width},
    )  # fmt: skip
    assert (c.global_load_requests, c.global_load_sectors) == (warps, 4 * warps)
    assert (c.global_store_requests, c.global_store_sectors) == (warps, 4 * warps)
    assert (c.shared_store_requests, c.shared_store_bank_conflicts) == (warps, 0)
    assert c.shared_load_requests == warps
    assert c.shared_load_bank_conflicts == conflicts * warps


LANE = np.arange(32)


# Lanes that share an address take turns, and each turn counts its sectors. The numbers are those
# that Nsight Compute read on the H200, for four and for eight bytes a lane.
@pytest.mark.parametrize(
    ("bins", "sectors", "wide_sectors"),
    [
        (LANE * 0, 32, 32), (LANE // 2, 4, 8), (LANE // 4, 4, 8), (LANE // 16, 16, 16),
        (LANE % 2, 16, 16), (LANE % 4, 8, 8), (LANE % 8 * 8, 32, 32), (LANE * 2, 8, 16),
        (LANE // 16 * 8, 32, 32), (np.maximum(LANE - 1, 0), 5, 9), (LANE, 4, 8),
        (np.random.default_rng(0).integers(0, 16, 32), 9, 17), (31 - LANE, 4, 8),
    ],
)  # fmt: skip
def test_atomics(
    launch: Launcher, bins: np.ndarray[Any, Any], sectors: int, wide_sectors: int
) -> None:
    keys = bins.astype(np.int32)
    c = counters(launch, "atomic_traffic", 1, 32, np.zeros(300, np.int32), keys)
    assert (c.global_atomic_requests, c.global_atomic_sectors) == (1, sectors)
    out = np.zeros(32, np.int32)
    c = counters(launch, "atomic_results", 1, 32, np.zeros(300, np.uint64), keys, out)
    assert (c.global_atomic_requests, c.global_atomic_sectors) == (1, wide_sectors)


@pytest.mark.parametrize("block", [32, 50])
def test_operations(launch: Launcher, block: int) -> None:
    c = counters(launch, "arithmetic", 1, block, floats(block), floats(block))
    assert c.flops == 4 * block  # an addition, a product, and two in the fused one


@pytest.mark.parametrize(("rounds", "block", "warps"), [(0, 64, 2), (3, 64, 2), (5, 33, 2)])
def test_barriers(launch: Launcher, rounds: int, block: int, warps: int) -> None:
    c = counters(launch, "barriers", 2, block, rounds, np.zeros(block, np.int32))
    assert c.barriers == 2 * warps * rounds


def test_divergence(launch: Launcher) -> None:
    straight = counters(launch, "strided", 1, 64, 1, floats(64), floats(64))
    assert straight.divergent_branches == 0
    assert straight.thread_instructions == 32 * straight.warp_instructions
    c = counters(launch, "branches", 1, 64, np.zeros(128, np.int32))
    assert c.divergent_branches >= 2
    assert c.warp_instructions < c.thread_instructions < 32 * c.warp_instructions


def test_lines(launch: Launcher) -> None:
    report = launch("counting", "strided", 1, 32, 1, floats(32), floats(32), counts=True)
    (line,) = [n for n, c in report.lines.items() if c.global_load_requests]
    assert report.lines[line].global_store_requests == 1
    assert report.lines[line].global_load_sectors == 4
