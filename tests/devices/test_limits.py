"""The hardware's limits: each refused in words, and just below, allowed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise import compiler
from tilewise.devices import Device, limits
from tilewise.devices.gpu import Gpu
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.places import Dim3


def check(
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (1, 1, 1),
    shared: int = 0,
    static: int = 0,
    max_threads: int = 1024,
) -> None:
    limits.check_launch(
        Launch(grid, block, (), shared),
        static,
        max_shared=limits.max_shared("sm_90"),
        max_threads=max_threads,
    )


@pytest.mark.parametrize(
    "block", [(1024, 1, 1), (1, 1024, 1), (1, 1, 64), (32, 32, 1), (16, 1, 64)]
)
def test_the_largest_blocks(block: Dim3) -> None:
    check(block=block)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ((1025, 1, 1), "1025x1x1 is 1,025 threads; the hardware takes at most 1,024"),
        ((33, 32, 1), "33x32x1 is 1,056 threads"),
        ((1, 1, 65), "block 1x1x65: z is 65; the hardware takes at most 64"),
    ],
)
def test_blocks_that_are_too_large(block: Dim3, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        check(block=block)


def test_grids() -> None:
    check(grid=(2**31 - 1, 65535, 65535))
    told = "x is 2,147,483,648; the hardware takes at most 2,147,483,647"
    with pytest.raises(LaunchError, match=told):
        check(grid=(2**31, 1, 1))
    for axis, grid in (("y", (1, 65536, 1)), ("z", (1, 1, 65536))):
        told = f"{axis} is 65,536; the hardware takes at most 65,535"
        with pytest.raises(LaunchError, match=told):
            check(grid=grid)


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((2**31, 1, 1), (1, 1, 1)), ((2**31, 65536, 1), (1, 1, 1)), ((1, 65536, 1), (1, 1, 1)),
        ((1, 1, 65536), (1, 1, 1)), ((1, 1, 1), (1025, 1, 1)), ((2**40, 1, 1), (32, 32, 2)),
        ((1, 1, 1), (1, 1, 65)),
    ],
)  # fmt: skip
def test_a_gpu_and_the_emulator_refuse_with_one_message(
    grid: Dim3, block: Dim3, emulator: Device
) -> None:
    """Both refuse before they launch anything: the GPU's context here is None."""
    launch = Launch(grid, block, (), 0)
    loaded = SimpleNamespace(static_shared=0, max_threads=1024)
    gpu = SimpleNamespace(max_shared=limits.max_shared("sm_90a"), context=None)
    with pytest.raises(LaunchError) as of_gpu:
        Gpu._check(gpu, loaded, launch)  # type: ignore[arg-type]
    kernel = Kernel('extern "C" __global__ void nothing() {}', "nothing")
    with pytest.raises(LaunchError) as of_emulator:
        kernel.launch(grid, block, (), device=emulator)
    assert str(of_gpu.value) == str(of_emulator.value)


def test_what_the_kernel_itself_allows() -> None:
    check(block=(256, 1, 1), max_threads=256)
    with pytest.raises(LaunchError, match="this kernel takes at most 256, by its registers"):
        check(block=(257, 1, 1), max_threads=256)


def test_blocks_that_are_all_resident() -> None:
    launch = Launch((100, 3, 2), (32, 1, 1), (), cooperative=True)
    limits.check_together(launch, 6, 100, "a GPU")
    words = r"launch of 600 blocks: a GPU holds 594 of them at once, 6 on each of 99 multiproc"
    with pytest.raises(LaunchError, match=words):
        limits.check_together(launch, 6, 99, "a GPU")


def test_shared_memory() -> None:
    check(shared=227 * 1024 - 100, static=100)
    with pytest.raises(LaunchError, match=r"232,449 bytes.*100 static.*at most 232,448"):
        check(shared=227 * 1024 - 99, static=100)
    with pytest.raises(LaunchError, match="negative"):
        check(shared=-1)


def test_shared_memory_by_architecture() -> None:
    kilobytes = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_89": 99}
    kilobytes |= {"sm_90": 227, "sm_90a": 227, "sm_100f": 227, "sm_120": 99, "compute_80": 163}
    assert {arch: limits.max_shared(arch) // 1024 for arch in kilobytes} == kilobytes
    for arch in compiler.architectures():
        assert limits.max_shared(arch) >= 64 * 1024


@pytest.mark.parametrize("arch", ["90", "sm90", "sm_9", "sm_90b", "", "gfx942"])
def test_what_is_no_architecture(arch: str) -> None:
    with pytest.raises(ValueError, match="no architecture"):
        limits.max_shared(arch)


def test_the_best_architecture_for_a_gpu() -> None:
    known = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")
    best = {75: "sm_75", 80: "sm_80", 86: "sm_80", 89: "sm_80", 90: "sm_90a", 100: "sm_100a"}
    best |= {103: "sm_100", 120: "sm_100"}
    assert {gpu: limits.best_architecture(gpu, known) for gpu in best} == best
    with pytest.raises(ValueError, match="no architecture as old as sm_70"):
        limits.best_architecture(70, known)
    assert limits.best_architecture(90, compiler.architectures()) == "sm_90a"
