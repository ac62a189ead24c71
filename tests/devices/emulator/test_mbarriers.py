"""Barriers that count arrivals and bytes, and clusters: results on both devices, and faults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import KERNELS, Array, Launcher

from tilewise.devices import Device
from tilewise.errors import BarrierError, CheckError, LaunchError, MemoryAccessError, RaceError
from tilewise.places import Dim3


@pytest.fixture(autouse=True)
def hopper(device: Device) -> None:
    """Both need a device of compute capability 9.0."""
    if int(device.arch[3:].rstrip("af")) < 90:
        pytest.skip("needs mbarriers and clusters: compute capability 9.0")


def integers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-1000, 1000, shape, dtype=np.int32)


@given(
    blocks=st.integers(1, 5), readers=st.integers(1, 3), phases=st.integers(0, 9),
    stages=st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_ring(launch: Launcher, blocks: int, readers: int, phases: int, stages: int) -> None:
    a, out = integers(blocks, phases, 32), np.zeros((blocks, readers, 32), np.int32)
    block = 32 * (1 + readers)
    launch("mbarriers", "ring", blocks, block, phases, a, out, defines={"STAGES": stages})
    weights = np.arange(phases)[:, None] + np.arange(1, readers + 1)
    np.testing.assert_array_equal(out, np.einsum("pr,bpl->brl", weights, a[:, :, ::-1]))


@given(blocks=st.integers(1, 4), threads=st.integers(1, 128), phases=st.integers(0, 6))
def test_states(launch: Launcher, blocks: int, threads: int, phases: int) -> None:
    a, out = integers(blocks, threads), np.zeros((blocks, threads), np.int32)
    launch("mbarriers", "states", blocks, threads, phases, a, out)
    for p in range(phases):
        a = a + 3 * np.roll(a, -(1 + p), axis=1)
    np.testing.assert_array_equal(out, a)


def test_dropping(launch: Launcher) -> None:
    out = np.zeros(50, np.int32)
    launch("mbarriers", "dropping", 1, 50, out)
    np.testing.assert_array_equal(out, np.arange(50, 0, -1))


def test_bytes(launch: Launcher) -> None:
    out = np.zeros(128, np.int32)
    launch("mbarriers", "bytes", 1, 128, out)
    assert (out == 7).all()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_alone(launch: Launcher, count: int) -> None:
    out = np.zeros((3, 3), np.int32)
    launch("mbarriers", "alone", 1, 3, np.uint32(count), out)
    np.testing.assert_array_equal(out, [[0, 1, 1]] * 3)


def test_copies(launch: Launcher) -> None:
    a, out = integers(128), np.zeros(128, np.int32)
    launch("mbarriers", "copies", 1, 128, a, out)
    np.testing.assert_array_equal(out, a[::-1])


SHAPES: list[tuple[Dim3, Dim3]] = [
    ((1, 1, 1), (3, 2, 2)), ((2, 1, 1), (6, 1, 1)), ((1, 2, 3), (5, 4, 3)), ((2, 2, 1), (4, 6, 2)),
    ((8, 1, 1), (8, 3, 1)), ((2, 2, 2), (2, 4, 6)),
]  # fmt: skip


def defined(cluster: Dim3) -> dict[str, int]:
    return dict(zip("XYZ", cluster, strict=True))


def by_cluster(x: Array, cluster: Dim3, grid: Dim3) -> Array:
    """Of blocks in the grid's order: shape (clusters, ranks, ...)."""
    (cx, cy, cz), (gx, gy, gz) = cluster, grid
    tail = x.shape[1:]
    x = x.reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx, -1)
    return x.transpose(0, 2, 4, 1, 3, 5, 6).reshape(-1, cx * cy * cz, *tail)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cluster", "grid"), SHAPES)
def test_numbers(launch: Launcher, cluster: Dim3, grid: Dim3) -> None:
    blocks = int(np.prod(grid))
    out = np.zeros((blocks, 14), np.uint32)
    launch("clusters", "numbers", grid, 1, out, defines=defined(cluster))
    block = np.stack(np.unravel_index(np.arange(blocks), grid[::-1])[::-1], axis=1)
    size = np.array(cluster)
    rank = block % size @ (1, size[0], size[0] * size[1])
    wanted = [block % size, block // size, *np.broadcast_arrays(size, block)[:1],
              *np.broadcast_arrays(np.array(grid) // size, block)[:1]]  # fmt: skip
    np.testing.assert_array_equal(out[:, :12], np.hstack(wanted))
    np.testing.assert_array_equal(out[:, 12], rank)
    assert (out[:, 13] == size.prod()).all()


@pytest.mark.parametrize("size", [1, 2, 8])
def test_addresses(launch: Launcher, size: int) -> None:
    """The blocks of a cluster have different addresses for a variable: the rank is above."""
    out = np.zeros((size, size, 4), np.uint32)
    launch("clusters", "addresses", size, size, out, defines=defined((size, 1, 1)))
    rank = np.arange(size)
    own = out[:, 0, 0]
    np.testing.assert_array_equal(own >> 24, rank)
    assert len(np.unique(own & 0xFFFFFF)) == 1
    np.testing.assert_array_equal(out[:, :, 1], np.broadcast_to(own, (size, size)))
    np.testing.assert_array_equal(out[:, :, 2], np.broadcast_to(rank, (size, size)))
    assert not out[:, :, 3].any()


@pytest.mark.sampled(8)  # three shapes and every number of times
@pytest.mark.parametrize(("cluster", "grid"), SHAPES)
@pytest.mark.parametrize("times", [0, 1, 5])
def test_pass(launch: Launcher, cluster: Dim3, grid: Dim3, times: int) -> None:
    a = integers(int(np.prod(grid)), 64)
    out = np.zeros_like(a)
    launch("clusters", "pass", grid, 64, times, a, out, defines=defined(cluster))
    given = by_cluster(a, cluster, grid)
    np.testing.assert_array_equal(by_cluster(out, cluster, grid), np.roll(given, times, axis=1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cluster", "grid"), SHAPES)
def test_look(launch: Launcher, cluster: Dim3, grid: Dim3) -> None:
    a = integers(int(np.prod(grid)), 64)
    out = np.zeros_like(a)
    launch("clusters", "look", grid, 64, a, out, defines=defined(cluster))
    given = by_cluster(a, cluster, grid)[:, :, ::-1]
    size = given.shape[1]
    wanted = np.einsum("r,crt->ct", np.arange(1, size + 1), given)[:, None] + 1000 * size
    got = by_cluster(out, cluster, grid)
    np.testing.assert_array_equal(got, np.broadcast_to(wanted, got.shape))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cluster", "grid"), SHAPES)
def test_count(launch: Launcher, cluster: Dim3, grid: Dim3) -> None:
    blocks = int(np.prod(grid))
    a = integers(blocks, 64) % 8
    out = np.zeros((blocks, 8), np.int32)
    launch("clusters", "count", grid, 64, a, out, defines=defined(cluster))
    given = by_cluster(a, cluster, grid)
    counts = (given[..., None] == np.arange(8)).sum(axis=(1, 2))
    got = by_cluster(out, cluster, grid)
    np.testing.assert_array_equal(got[:, 0], counts)
    assert not got[:, 1:].any()


RING_FAULTS: list[tuple[int, type[CheckError], str]] = [
    (1, MemoryAccessError, "uses an mbarrier at byte .* not aligned to 8 bytes"),
    (2, MemoryAccessError, "uses an mbarrier at byte .* outside the block's shared memory"),
    (3, BarrierError, r"uses the mbarrier full\[0\], which nobody initialised"),
    (4, BarrierError, "for a phase that nobody completes: 1 of 33 arrivals and 0 bytes"),
    (5, RaceError, r"reads stages\[0\]\[31\] .* with no barrier after the write of another thread"),
    (6, BarrierError, "initialises an mbarrier for 0 arrivals"),
    (7, RaceError, "with no barrier after its initialisation by another thread"),
    (8, RaceError, r"writes stages\[.* with no barrier after the .* of another thread"),
    (9, BarrierError, r"empty\[0\] by a parity, and nothing orders it after the end of the phase"),
    (10, BarrierError, r"the mbarrier (full|empty)\[\d\] for a phase that nobody completes: 32 of"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fault", "error", "words"), RING_FAULTS)
def test_faults_of_a_ring(
    emulator: Device, launch: Launcher, fault: int, error: type[CheckError], words: str
) -> None:
    a, out = integers(2, 6, 32), np.zeros((2, 2, 32), np.int32)
    with pytest.raises(error, match=words) as caught:
        launch("mbarriers", "ring", 2, 96, 6, a, out, defines={"FAULT": fault})
    finding = caught.value.findings[0]
    assert finding.block == (0, 0, 0)
    assert finding.thread is not None
    assert not out.any()


def test_who_arrives_alone_knows_that_the_phase_has_ended(
    emulator: Device, launch: Launcher
) -> None:
    out = np.zeros(32, np.int32)
    launch("mbarriers", "second_phase", 1, 64, out, defines={"ARRIVALS": 1})
    assert out.all()
    # Of two arrivals, neither says that the other has been.
    with pytest.raises(BarrierError, match=r"turn\[0\] by a parity, and nothing orders it after"):
        launch("mbarriers", "second_phase", 1, 64, out, defines={"ARRIVALS": 2})


def test_waiting_forever_is_named(emulator: Device, launch: Launcher) -> None:
    a, out = integers(1, 6, 32), np.zeros((1, 1, 32), np.int32)
    report = launch("mbarriers", "ring", 1, 64, 6, a, out, defines={"FAULT": 4}, checks="collect")
    lines = (KERNELS / "mbarriers.cu").read_text().splitlines()
    polls = next(i for i, line in enumerate(lines, 1) if "again: mbarrier.try_wait" in line) - 1
    finding = report.findings[0]
    # NVRTCs differ in which line of a statement they say.
    end = next(i for i, line in enumerate(lines[polls:], polls + 1) if line.endswith(");"))
    assert finding.kind == "barrier"
    assert polls <= finding.line <= end
    assert (finding.block, finding.thread) == ((0, 0, 0), (32, 0, 0))
    assert (finding.array, finding.index) == ("full", 0)


CLUSTER_FAULTS: list[tuple[int, type[CheckError], str]] = [
    (2, BarrierError, "waits forever at barrier 1|waits forever at its cluster's barrier"),
    (3, BarrierError, "waits at its cluster's barrier without having arrived"),
    (4, RaceError, r"(writes|reads) x\[.* with no barrier after the .* of another thread"),
    (5, MemoryAccessError, "a block that its cluster does not have"),
    (6, RaceError, r"reads x\[.* with no barrier after the write of another thread|which does not"),
]


@pytest.mark.parametrize(("fault", "error", "words"), CLUSTER_FAULTS)
def test_faults_of_a_cluster(
    emulator: Device, launch: Launcher, fault: int, error: type[CheckError], words: str
) -> None:
    a, out = integers(4, 64), np.zeros((4, 64), np.int32)
    with pytest.raises(error, match=words):
        launch("clusters", "pass", 4, 64, 3, a, out, defines={"FAULT": fault})


def test_clusters_that_can_not_be(emulator: Device, launch: Launcher) -> None:
    out = np.zeros((48, 14), np.uint32)
    with pytest.raises(LaunchError, match=r"grid 3x1x1: x is 3, .* no multiple of .* 2 "):
        launch("clusters", "numbers", 3, 1, out)
    with pytest.raises(LaunchError, match="a cluster of 4x4x1 is 16 blocks; it takes at most 8"):
        launch("clusters", "numbers", (4, 4), 1, out, defines=defined((4, 4, 1)))
