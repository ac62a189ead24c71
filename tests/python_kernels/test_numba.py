"""Kernels of Numba's on the emulator: right, no false finding, planted faults at their lines."""

from __future__ import annotations

import gc
import inspect
import linecache
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise
import tilewise.numba
from tilewise.devices import Device
from tilewise.errors import CompileError, LaunchError, MemoryAccessError, RaceError
from tilewise.numba import shared_arrays

# Before Numba is imported: grids of tests are small.
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
pytest.importorskip("numba_cuda", reason="Numba's CUDA target is not installed: numba-cuda")
pytest.importorskip("numba.cuda.core", reason="Numba's CUDA target is not numba-cuda's")

import numba_kernels as kernels
from numba import cuda

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["sm_80", "sm_90a"])
def where(request: pytest.FixtureRequest, device: Device) -> Device:
    """The emulator of each architecture, or the GPU that the run is for."""
    if device.name == "gpu":
        return device
    return tilewise.emulator(request.param)


def random(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def line_of(kernel: Any, text: str) -> int:
    """The line of a kernel's source that has a text."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    (found,) = (first + at for at, line in enumerate(lines) if text in line)
    return found


def test_sum_of_vectors(where: Device) -> None:
    x, y, out = random(1000), random(1000, seed=2), np.zeros(1000, np.float32)
    report = tilewise.numba.launch(kernels.add[8, 128], x, y, out, device=where)
    np.testing.assert_array_equal(out, x + y)
    assert report.kernel == "add"
    if report.counters is not None:
        assert report.findings == ()
        assert report.counters.global_load_sectors == 250
        line = line_of(kernels.add, "out[i] = x[i]")
        assert report.lines[line].global_load_sectors == 250


def test_product_by_tiles(where: Device) -> None:
    a, b, c = random(40, 50), random(50, 33, seed=2), np.zeros((40, 33), np.float32)
    report = tilewise.numba.launch(kernels.matmul[(3, 3), (16, 16)], a, b, c, device=where)
    np.testing.assert_allclose(c, a @ b, rtol=0, atol=1e-4)
    if report.counters is not None:
        assert report.findings == ()
        assert report.counters.barriers == 9 * 8 * 8
        assert report.resources.shared_bytes == 2 * 16 * 16 * 4


def test_sums_of_blocks(where: Device) -> None:
    x, out = np.arange(1000), np.zeros(1, np.int64)
    report = tilewise.numba.launch(kernels.block_sums[8, 128], x, out, device=where)
    assert out[0] == x.sum()
    assert report.findings == ()


def test_random_points(where: Device) -> None:
    states = _states(64)
    out = np.zeros(64, np.float32)
    report = tilewise.numba.launch(kernels.circle[1, 64], states, 50, out, device=where)
    assert abs(out.mean() - np.pi) < 0.15
    assert report.findings == ()


def _states(count: int) -> Array:
    """States of Numba's generator, made on the host as it makes them."""
    from numba.cuda import random as generator

    states = np.zeros(count, generator.xoroshiro128p_dtype)
    generator.init_xoroshiro128p_states_cpu(states, np.uint64(1), np.uint64(0))
    return states


def test_heat(where: Device) -> None:
    now, then = np.zeros(64), np.zeros(64)
    now[0] = then[0] = 10
    expected = now.copy()
    for _ in range(20):
        expected[1:-1] += 0.25 * (expected[:-2] - 2 * expected[1:-1] + expected[2:])
    tilewise.numba.launch(kernels.heat[1, 64], now, then, 20, device=where)
    np.testing.assert_allclose(now, expected)


def test_dynamic_shared_memory(where: Device) -> None:
    x, out = random(64), np.zeros(64, np.float32)
    configured = kernels.reversed_in_block[1, 64, 0, 256]
    report = tilewise.numba.launch(configured, x, out, device=where)
    np.testing.assert_array_equal(out, x[::-1])
    assert report.launch.shared == 256
    assert report.findings == ()


def test_shared_arrays_have_the_names_and_the_dimensions_of_the_source() -> None:
    found: dict[str, set[Any]] = {}
    for first in (-1, 1):
        x, out = np.full(16, first, np.float32), np.zeros(8, np.float32)
        configured = kernels.unordered[1, 8, 0, 32]
        report = tilewise.numba.launch(configured, x, out, device="emulator", checks="collect")
        for each in report.findings:
            assert each.array is not None
            found.setdefault(each.array, set()).add(each.index)
            if each.array == "tile":
                assert "tile[1, 7] in shared memory" in each.message
    assert found == {
        "tile": {(1, 7)}, "mine": {7}, "unordered::values": {(1, 1, 3)},
        "reversed_here::values": {15},
        "unordered::part (1)": {(1, 0), (1, 3)}, "unordered::part (2)": {(0, 1), (3, 1)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "array"),
    [
        (kernels.IN_A_FUNCTION, r"tile"), (kernels.Kernels.reversing, r"tile"),
        (kernels.größer, r"_cudapy_smem_\d+"),
    ],
    ids=["in a function", "in a class", "not ASCII"],
)  # fmt: skip
def test_a_shared_array_of_a_function_whose_name_ptx_does_not_take(kernel: Any, array: str) -> None:
    x = random(8)
    report = tilewise.numba.launch(kernel[1, 8], x, device="emulator", checks="collect")
    (found,) = report.findings
    assert re.fullmatch(array, found.array or "")
    assert found.index == (1, 7)


def test_shared_arrays_of_one_statement() -> None:
    report = tilewise.numba.launch(kernels.several[1, 8], random(8), device="emulator",
                                   checks="collect")  # fmt: skip
    found = {each.array for each in report.findings if each.kind == "race"}
    assert found == {"here", "there", "low", "high", "first", "second"}


def test_arrays_are_forgotten_with_their_kernel() -> None:
    def kept() -> int:
        gc.collect()
        return sum(map(len, shared_arrays._arrays.values()))

    tilewise.numba.launch(kernels.several[1, 8], random(8), device="emulator", checks="off")
    before = kept()
    kernel = vars(kernels)["reversing"]()
    tilewise.numba.launch(kernel[1, 8], random(8), device="emulator", checks="off")
    del kernel
    assert kept() == before


def test_a_shared_array_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    source, cell = inspect.getsource(kernels.reversing), "<ipython-input-3>"
    lines = source.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, cell, (len(source), None, lines, cell))
    names = dict(vars(kernels))
    exec(compile(source, cell, "exec"), names)
    kernel = names["reversing"]()
    report = tilewise.numba.launch(kernel[1, 8], random(8), device="emulator", checks="collect")
    assert [each.array for each in report.findings] == ["tile"]


def test_constant_and_local_arrays_and_functions(where: Device) -> None:
    x, out = random(100), np.zeros(100, np.float32)
    report = tilewise.numba.launch(kernels.smoothed[1, 128], x, out, device=where)
    padded = np.concatenate((x[:1], x, x[-1:]))
    expected = padded[:-2] * 0.25 + padded[1:-1] * 0.5 + padded[2:] * 0.25
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
    assert report.findings == ()


def test_functions_of_libdevice(where: Device) -> None:
    x, out = random(50), np.zeros((50, 4), np.float32)
    tilewise.numba.launch(kernels.functions[1, 64], x, out, device=where)
    import math

    expected = [[math.sin(v), math.exp(v), math.sqrt(abs(v)), math.erf(v)] for v in x.tolist()]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_histogram(where: Device) -> None:
    x, counts = random(500), np.zeros(10, np.int32)
    report = tilewise.numba.launch(
        kernels.histogram[4, 128], x, np.float32(-3), np.float32(3), counts, device=where
    )
    assert abs(counts - np.histogram(x, 10, (-3, 3))[0]).sum() <= 2  # at the bins' edges
    assert report.findings == ()


def test_arguments_of_every_kind(where: Device) -> None:
    x, out = random(32).astype(np.float64), np.zeros(32)
    record = np.array([(2.5, 7)], dtype=[("scale", "f8"), ("count", "i4")])[0]
    tilewise.numba.launch(
        kernels.every_kind[1, 32], (x, 2), 1 + 3j, True, record, (1, 4), out, device=where
    )
    np.testing.assert_allclose(out, x * 2 + 2.5 * 3 + 4)


@pytest.mark.parametrize("order", ["C", "F"])
def test_strides_of_any_kind(where: Device, order: Any) -> None:
    """Arrays in Fortran's order, reversed ones, columns; and where two are views of one."""
    whole = np.asarray(random(20, 30), order=order)
    out = np.zeros((60, 40), np.float32)
    view = out[::2, ::2]
    tilewise.numba.launch(kernels.transposed[(2, 2), (16, 16)], whole[::-1], view, device=where)
    np.testing.assert_array_equal(view, whole[::-1].T)
    assert np.count_nonzero(out) == np.count_nonzero(whole)
    both = random(32, 32)
    expected = both[:, 16:].copy()
    configured = kernels.transposed[(2, 1), (16, 16)]
    tilewise.numba.launch(configured, both[:, 16:], both[:16].T[:32].T, device=where)
    np.testing.assert_array_equal(both[:16], expected.T)


def test_shuffles(where: Device) -> None:
    x, out = random(64), np.zeros(2, np.float32)
    tilewise.numba.launch(kernels.warp_sums[1, 64], x, out, device=where)
    np.testing.assert_allclose(out, x.reshape(2, 32).sum(axis=1), rtol=1e-5)


def test_tensors_on_the_cpu(where: Device) -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.arange(10.0), torch.zeros(10)
    tilewise.numba.launch(kernels.add[1, 32], x, x, out, device=where)
    assert torch.equal(out, 2 * x)


def test_for_all(where: Device) -> None:
    x, out = random(300), np.zeros(300, np.float32)
    report = tilewise.numba.launch(kernels.add.forall(300), x, x, out, device=where)
    np.testing.assert_array_equal(out, 2 * x)
    assert report.launch.grid == (2, 1, 1)


def test_what_it_prints(where: Device) -> None:
    report = tilewise.numba.launch(kernels.told[1, 2], np.array([3, 5]), device=where)
    assert report.output == "element 0 3\nelement 1 5\n"


def test_a_missing_bound_is_found(emulator: Device) -> None:
    x = random(100)
    with pytest.raises(MemoryAccessError) as caught:
        tilewise.numba.launch(kernels.add_without_bound[1, 128], x, x, x.copy(), device=emulator)
    found = caught.value.findings[0]
    assert found.line == line_of(kernels.add_without_bound, "is missing")
    assert found.file.endswith("numba_kernels.py")
    assert (found.array, found.index, found.thread) == ("x", 100, (100, 0, 0))


def test_an_element_is_spelled_as_in_python(emulator: Device) -> None:
    with pytest.raises(MemoryAccessError) as caught:
        tilewise.numba.launch(
            kernels.transposed[1, (4, 4)], random(4, 4), random(3, 4), device=emulator
        )
    found = caught.value.findings[0]
    assert found.index == (3, 0)
    assert " out[3, 0], outside it" in found.message


def test_a_missing_barrier_is_found(emulator: Device) -> None:
    x, out = np.arange(128), np.zeros(1, np.int64)
    with pytest.raises(RaceError) as caught:
        tilewise.numba.launch(kernels.block_sums_without_barrier[1, 128], x, out, device=emulator)
    found = caught.value.findings[0]
    assert found.line == line_of(kernels.block_sums_without_barrier, "no barrier")


def test_a_barrier_of_the_whole_grid(where: Device) -> None:
    x = np.zeros((6, 4096), np.int32)
    x[0] = np.arange(4096)
    # More blocks than the emulator would run at once.
    report = tilewise.numba.launch(kernels.turned[64, 64], x, device=where)
    assert report.launch.cooperative
    np.testing.assert_array_equal(x[4], np.arange(4096) + 4)
    np.testing.assert_array_equal(x[5], np.arange(4096)[::-1] + 5)


def test_races_around_a_barrier_of_the_whole_grid(emulator: Device) -> None:
    x = np.zeros((6, 128), np.int32)
    tilewise.numba.launch(kernels.turned[4, 32], x, device=emulator, global_races=True)


LINKED = """#include "scale.cuh"
__device__ float offset = 1;
extern "C" __device__ int combined(float* result, float x, float y) {
    float bits[2] = {x, y};
    *result = SCALE * bits[0] + bits[1] + offset;
    return 0;
}
extern "C" __device__ int beyond(float* result, float x, float y) {
    *result = (&offset)[(int)x + 4096];
    return 0;
}"""
SIGNATURE = "float32(float32, float32)"


def calling(function: Any) -> Any:
    """Return a kernel that calls a function of two numbers for each element."""
    make: Any = kernels.calling
    return make(function)


@pytest.fixture
def linked_file(tmp_path: Path) -> Path:
    (tmp_path / "scale.cuh").write_text("#define SCALE 3")
    file = tmp_path / "linked.cu"
    file.write_text(LINKED)
    return file


def test_functions_of_cuda_cpp(where: Device, linked_file: Path) -> None:
    kernel = calling(cuda.declare_device("combined", SIGNATURE, link=str(linked_file)))
    x, y, out = random(64), random(64, seed=2), np.zeros(64, np.float32)
    tilewise.numba.launch(kernel[2, 32], x, y, out, device=where)
    np.testing.assert_allclose(out, 3 * x + y + 1, rtol=1e-6)


def test_a_finding_in_a_linked_function(emulator: Device, linked_file: Path) -> None:
    kernel = calling(cuda.declare_device("beyond", SIGNATURE, link=str(linked_file)))
    x = np.zeros(32, np.float32)
    with pytest.raises(MemoryAccessError) as caught:
        tilewise.numba.launch(kernel[1, 32], x, x, x.copy(), device=emulator)
    (found,) = caught.value.findings
    assert (found.file, found.line) == (str(linked_file), 9)
    assert "numba_kernels.py" in found.message


def test_functions_of_ptx(where: Device, linked_file: Path, tmp_path: Path) -> None:
    ptx = tmp_path / "linked.ptx"
    main = LINKED + 'extern "C" __global__ void unused() {}'
    source = tilewise.Kernel(main, "unused", options=["-rdc=true"], include=[tmp_path])
    ptx.write_text(source.compile("sm_80").ptx)
    function = cuda.declare_device("combined", SIGNATURE)
    kernel = cuda.jit(link=[str(ptx)])(calling(function).py_func)
    x, out = random(64), np.zeros(64, np.float32)
    tilewise.numba.launch(kernel[2, 32], x, x, out, device=where)
    np.testing.assert_allclose(out, 4 * x + 1, rtol=1e-6)


def test_what_can_not_be_linked(emulator: Device, linked_file: Path, tmp_path: Path) -> None:
    x = np.zeros(32, np.float32)

    def launch(file: Path) -> None:
        kernel = calling(cuda.declare_device("combined", SIGNATURE, link=str(file)))
        tilewise.numba.launch(kernel[1, 32], x, x, x.copy(), device=emulator)

    for suffix, words in ((".cubin", "and it is neither"), (".txt", "can't be linked: Unknown")):
        file = tmp_path / f"linked{suffix}"
        file.write_bytes(b"none")
        with pytest.raises(CompileError, match=words):
            launch(file)
    linked_file.write_text(LINKED.replace("+ offset", "+ missing"))
    with pytest.raises(CompileError, match=r"linked\.cu:5: error: .*missing"):
        launch(linked_file)
    with pytest.raises(FileNotFoundError, match=r"missing\.cu"):
        launch(tmp_path / "missing.cu")


def test_a_linked_function_that_is_not_defined(emulator: Device, linked_file: Path) -> None:
    x = np.zeros(32, np.float32)
    linked_file.write_text(LINKED.replace('extern "C" __device__ int combined', "int combined"))
    for how in ({}, {"link": str(linked_file)}):
        kernel = calling(cuda.declare_device("combined", SIGNATURE, **how))
        with pytest.raises(CompileError, match=r"calls combined, which nothing .*link=") as caught:
            tilewise.numba.launch(kernel[1, 32], x, x, x.copy(), device=emulator)
        assert "<ptx>" not in str(caught.value)


def test_pointers_that_a_signature_declares_are_addresses() -> None:
    from numba.cuda import types

    from tilewise.numba.values import flattened

    kinds = [types.CPointer(types.uint8), types.uint32]
    assert list(flattened(["x", "n"], kinds, [1 << 40, 10])) == [("x", 1 << 40), ("n", 10)]


def test_what_does_not_compile(emulator: Device) -> None:
    with pytest.raises(CompileError, match="nothing"):
        tilewise.numba.launch(kernels.wrong[1, 1], np.zeros(3), device=emulator)


@pytest.mark.parametrize(
    ("kernel", "args", "error", "words"),
    [
        (kernels.add, (), TypeError, r"add\[grid, block\]"),
        (print, (), TypeError, "kernel is <built-in"),
        (kernels.add[1, 32], (np.zeros(3),), TypeError, "takes 3 arguments, not 1"),
        (kernels.add[1, 32], (object(), 1, 2), TypeError, "argument x"),
        (kernels.add[0, 32], (*(np.zeros(3),) * 3,), ValueError, "at least 1"),
        (kernels.add[1, 2000], (*(np.zeros(3),) * 3,), LaunchError, "1,024"),
    ],
    ids=["no grid", "no kernel", "too few", "no type", "no blocks", "large block"],
)
def test_what_can_not_be(
    emulator: Device, kernel: Any, args: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tilewise.numba.launch(kernel, *args, device=emulator)


def test_a_device_that_is_none() -> None:
    out = np.zeros(1, np.float32)
    with pytest.raises(TypeError, match="device is 3; "):
        tilewise.numba.launch(kernels.add[1, 1], out, out, out, device=3)  # type: ignore[arg-type]
