"""The checks: every planted fault is found where it is, and right kernels are left in peace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference import KERNELS, Array, Launcher, assert_same

from tilewise.devices import Device
from tilewise.errors import (
    BarrierError,
    CheckError,
    MemoryAccessError,
    RaceError,
    UninitializedReadError,
)
from tilewise.kernel import Kernel
from tilewise.launch import Finding

pytestmark = pytest.mark.usefixtures("uncounted")

LINES = {
    match[1]: number
    for number, line in enumerate((KERNELS / "faults.cu").read_text().splitlines(), 1)
    if (match := re.search(r"// fault: (\w+)", line))
}
ERRORS = {
    "out of bounds": MemoryAccessError,
    "misaligned": MemoryAccessError,
    "uninitialised": UninitializedReadError,
    "race": RaceError,
    "barrier": BarrierError,
}


def integers(n: int) -> Array:
    return np.arange(n, dtype=np.int32)


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def found(
    launch: Launcher,
    kind: str,
    name: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *args: Any,
    shared: int = 0,
) -> Finding:
    """The first finding, by both ways to ask for it; arrays stay as they are when it is raised."""
    before = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    with pytest.raises(ERRORS[kind]) as caught:
        launch("faults", name, grid, block, *args, shared=shared)
    for x, y in zip(args, before, strict=True):
        if isinstance(x, np.ndarray):
            assert_same(x, y)
    report = launch("faults", name, grid, block, *args, shared=shared, checks="collect")
    (raised,), (collected, *_) = caught.value.findings, report.findings
    # What is raised is the first instruction's; what is collected counts those of the line.
    assert raised == replace(collected, message=raised.message, count=1)
    assert collected.message.startswith(raised.message.rstrip(")"))
    assert raised.kind == kind
    assert raised.file.endswith("faults.cu")
    assert raised.line == LINES[name]
    assert f"faults.cu:{raised.line}: {kind}" in str(caught.value)
    return raised


@pytest.fixture(autouse=True)
def only_here(emulator: Device) -> None:
    """A GPU has no such checks, and some of these faults would take its context down."""


def test_read_past_the_end(launch: Launcher) -> None:
    finding = found(launch, "out of bounds", "read_past", 2, 64, 100, floats(100), floats(100))
    assert (finding.block, finding.thread) == ((1, 0, 0), (35, 0, 0))
    assert (finding.array, finding.index) == ("a", 100)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_read_of_an_empty_array(launch: Launcher, shape: tuple[int, ...]) -> None:
    """Whose rows or elements are nothing apart."""
    empty = np.zeros(shape, np.float32)
    with pytest.raises(MemoryAccessError) as caught:
        launch("faults", "read_past", 1, 1, 5, empty, floats(5))
    assert caught.value.findings[0].kind == "out of bounds"


def test_write_past_the_end_of_a_matrix(launch: Launcher) -> None:
    out = floats(5, 12)
    finding = found(launch, "out of bounds", "write_past", (2, 2), (8, 4), 5, 12, out)
    assert (finding.block, finding.thread) == ((0, 1, 0), (0, 1, 0))
    assert (finding.array, finding.index) == ("out", (5, 0))


def test_read_before_the_start(launch: Launcher) -> None:
    finding = found(launch, "out of bounds", "before_start", 1, 32, integers(32), integers(32))
    assert finding.thread == (0, 0, 0)
    # Between two arrays: which of them was meant can't be told.
    assert "a[-2]" in finding.message or finding.array != "a"


def test_null_pointer(launch: Launcher) -> None:
    finding = found(launch, "out of bounds", "null_pointer", 1, 8, None, integers(8))
    assert finding.thread == (0, 0, 0)
    assert finding.array is None


def test_write_between_the_rows_of_a_view(launch: Launcher) -> None:
    whole = floats(6, 10)
    finding = found(launch, "out of bounds", "into_gap", 1, 32, 6, 7, 10, whole[:, :7])
    assert finding.thread == (7, 0, 0)
    assert (finding.array, finding.index) == ("out", (0, 7))


def test_vector_partly_past_the_end(launch: Launcher) -> None:
    finding = found(launch, "out of bounds", "vector_past", 1, 32, 10, floats(10), floats(32))
    assert finding.thread == (2, 0, 0)
    assert finding.array == "a"
    assert finding.index in (8, 10)


def test_atomic_past_the_end(launch: Launcher) -> None:
    finding = found(launch, "out of bounds", "atomic_past", 1, 40, integers(33))
    assert finding.thread == (33, 0, 0)
    assert (finding.array, finding.index) == ("bins", 33)


def test_past_the_end_of_shared(launch: Launcher) -> None:
    a = integers(32) + 3
    finding = found(launch, "out of bounds", "shared_past", 1, 32, a, integers(32))
    assert finding.thread == (29, 0, 0)
    assert (finding.array, finding.index) == ("tile", 32)


def test_from_one_shared_array_into_the_next(launch: Launcher) -> None:
    a = integers(32) + 3
    finding = found(launch, "out of bounds", "into_the_next", 1, 32, a, integers(32))
    assert finding.thread == (29, 0, 0)
    assert (finding.array, finding.index) == ("first", 32)
    assert "outside it (128 bytes) and in second[0]" in finding.message


def test_from_dynamic_shared_memory_into_an_array_before_it(launch: Launcher) -> None:
    args = integers(32) + 1, np.zeros(32, np.int32)
    finding = found(launch, "out of bounds", "before_the_dynamic", 1, 32, *args, shared=128)
    assert finding.thread == (0, 0, 0)
    assert (finding.array, finding.index) == ("buffer", -1)
    assert "and in fixed[31]" in finding.message


def test_past_the_dynamic_shared_memory(launch: Launcher) -> None:
    args = integers(64), integers(64)
    finding = found(launch, "out of bounds", "dynamic_past", 1, 64, *args, shared=60 * 4)
    assert finding.thread == (60, 0, 0)
    assert (finding.array, finding.index) == ("buffer", 60)


def test_past_the_end_of_local(launch: Launcher) -> None:
    a = np.array([0, 1, 2, 3, 100], np.int32)
    finding = found(launch, "out of bounds", "local_past", 1, 5, a, integers(5))
    assert finding.thread == (4, 0, 0)


def test_misaligned(launch: Launcher) -> None:
    finding = found(launch, "misaligned", "misaligned", 1, 4, floats(16), floats(4))
    assert finding.thread == (1, 0, 0)
    assert (finding.array, finding.index) == ("a", 1)


@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_misaligned_at_the_end_is_misaligned_first(emulator: Device, space: str) -> None:
    """Though its last bytes are outside of the array."""
    where = {"global": "", "shared": "__shared__ float x[32];", "local": "float x[32];"}[space]
    parameter = "float* x" if where == "" else "float* y"
    source = f"""extern "C" __global__ void end(int i, {parameter}, float4* out) {{
        {where}
        for (int j = 0; j < 32; j++) x[j] = i + j;
        *out = *reinterpret_cast<float4*>(x + i);
    }}"""
    x, out = floats(32), floats(1, 4)
    with pytest.raises(MemoryAccessError, match=r"address is 12 bytes past a multiple of 16") as e:
        Kernel(source, "end").launch(1, 1, (31, x, out), device=emulator)
    (finding,) = e.value.findings
    assert finding.kind == "misaligned"
    if space != "local":
        assert (finding.array, finding.index) == ("x", 31)


def test_misaligned_in_shared(launch: Launcher) -> None:
    a = integers(32) * 2
    a[13] = 7
    finding = found(launch, "misaligned", "misaligned_shared", 1, 32, a, integers(32))
    assert finding.thread == (13, 0, 0)
    assert finding.array == "tile"


def test_global_memory_nobody_wrote(launch: Launcher, emulator: Device) -> None:
    a = emulator.empty((32,), np.float32)
    finding = found(launch, "uninitialised", "unset_global", 1, 32, a, floats(32))
    assert finding.thread == (0, 0, 0)
    assert (finding.array, finding.index) == ("a", 0)


def test_an_array_that_was_written_may_be_read(launch: Launcher, emulator: Device) -> None:
    x = emulator.empty((32,), np.float32)
    launch("faults", "unset_global", 1, 32, floats(32), x)
    y = np.zeros(32, np.float32)
    launch("faults", "unset_global", 1, 32, x, y)
    assert_same(y, floats(32))


def test_shared_memory_nobody_wrote(launch: Launcher) -> None:
    finding = found(launch, "uninitialised", "unset_shared", 1, 64, 60, floats(64), floats(64))
    assert finding.thread == (0, 0, 0)
    assert (finding.array, finding.index) == ("tile", 63)


def test_local_memory_nobody_wrote(launch: Launcher) -> None:
    a = np.array([2, 2, 2, 5, 5], np.int32)
    finding = found(launch, "uninitialised", "unset_local", 1, 4, a, integers(4))
    assert finding.thread == (2, 0, 0)


@pytest.mark.parametrize(
    ("name", "block", "index"),
    [
        ("read_after_write", 64, range(64)),
        ("write_after_read", 64, range(64)),
        ("write_after_write", 64, range(64)),
        ("missing_syncwarp", 32, range(32)),
        ("syncwarp_for_block", 64, range(64)),
    ],
)
def test_races(launch: Launcher, name: str, block: int, index: range) -> None:
    finding = found(launch, "race", name, 1, block, integers(block), integers(block))
    assert finding.block == (0, 0, 0)
    assert finding.thread is not None
    assert finding.thread[0] in range(block)
    assert finding.array == "tile"
    assert finding.index in index


def test_race_of_the_other_block_only(launch: Launcher) -> None:
    args = integers(64), integers(64)
    assert found(launch, "race", "read_after_write", 3, 64, *args).thread is not None


def test_race_for_one_place(launch: Launcher) -> None:
    finding = found(launch, "race", "who_is_last", 1, 64, integers(64))
    assert finding.array == "last"


def test_race_between_phases(launch: Launcher) -> None:
    args = 3, integers(192), integers(64)
    finding = found(launch, "race", "phase_without_barrier", 1, 64, *args)
    assert finding.array == "tile"


def test_one_phase_is_no_race(launch: Launcher) -> None:
    out = integers(64)
    assert launch("faults", "phase_without_barrier", 1, 64, 1, integers(64), out).findings == ()


def test_race_of_an_atomic_and_a_plain_read(launch: Launcher) -> None:
    finding = found(launch, "race", "atomic_and_plain", 1, 64, integers(64))
    assert finding.array == "sum"


def test_race_of_an_asynchronous_copy(launch: Launcher) -> None:
    finding = found(launch, "race", "copy_without_barrier", 1, 64, floats(64), floats(64))
    assert finding.array == "tile"


@pytest.mark.parametrize("name", ["two_barriers", "skipped_barrier"])
def test_barriers_that_a_part_of_the_block_never_reaches(launch: Launcher, name: str) -> None:
    finding = found(launch, "barrier", name, 1, 64, integers(64), integers(64))
    assert finding.block == (0, 0, 0)
    assert finding.thread is not None


def test_barrier_that_never_fills(launch: Launcher) -> None:
    finding = found(launch, "barrier", "never_full", 2, 64, integers(64))
    assert finding.block == (0, 0, 0)


def test_collecting_goes_on(launch: Launcher) -> None:
    a, out = integers(64), integers(64)
    report = launch("faults", "write_after_read", 1, 64, a, out, checks="collect", counts=True)
    assert [f.kind for f in report.findings] == ["race"]
    assert report.counters is not None
    assert report.counters.barriers == 2 * 2  # a warp counts each
    assert report.to_dict()["findings"][0]["array"] == "tile"


def test_off_finds_no_races(launch: Launcher) -> None:
    a, out = integers(64), integers(64)
    assert launch("faults", "read_after_write", 1, 64, a, out, checks="off").findings == ()


def test_off_still_keeps_to_the_arrays(launch: Launcher) -> None:
    with pytest.raises(CheckError):
        launch("faults", "read_past", 2, 64, 100, floats(100), floats(100), checks="off")


@pytest.mark.thorough
def test_off_still_ends_a_lock_that_nobody_opens(emulator: Device) -> None:
    source = """
    extern "C" __global__ void k(int* lock, float* x) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        x[threadIdx.x] = 1;
    }
    """
    lock, x = np.zeros(1, np.int32), np.zeros(64, np.float32)
    with pytest.raises(BarrierError, match="waits forever: it reads"):
        Kernel(source, "k").launch(1, 64, (lock, x), device=emulator, checks="off")
    assert not x.any()
    assert not lock.any()


def test_off_still_ends_a_barrier_that_is_never_full(launch: Launcher) -> None:
    with pytest.raises(BarrierError, match="waits forever at barrier 1: 64 of 96"):
        launch("faults", "never_full", 1, 64, integers(64), checks="off")


@pytest.mark.parametrize("index", [-(2**31), -1, 64, 5000, 2**31 - 1])
def test_far_past_an_array_is_not_in_another(emulator: Device, index: int) -> None:
    source = 'extern "C" __global__ void far(int i, float* x, float* y) { y[i] = x[0]; }'
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(MemoryAccessError) as caught:
        Kernel(source, "far").launch(1, 1, (index, x, y), device=emulator)
    (finding,) = caught.value.findings
    assert (finding.array, finding.index) == ("y", index)
    assert not x.any()
    assert not y.any()
