"""The GPU as a device. What needs one runs with ``--device gpu``; the rest runs anywhere."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from tilewise.devices import get_device
from tilewise.devices.capture import captured
from tilewise.devices.cuda import Context, Staged, array_on
from tilewise.devices.gpu import Gpu, has_module_variables
from tilewise.errors import DeviceUnavailableError, LaunchError
from tilewise.kernel import Kernel
from tilewise.launch import Launch, dim3

SCALE = r"""
extern "C" __global__ void scale(int m, int n, float f, float* x, int ld) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
    if (i < m && j < n) x[i * (long long)ld + j] *= f;
}"""
COUNT = r"""
__device__ int counter;
extern "C" __global__ void count(int* seen) { *seen = atomicAdd(&counter, 1); }"""


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Gpu:
    if request.config.getoption("--device") != "gpu":
        pytest.skip("needs a GPU: pytest --device gpu")
    found = get_device("gpu")
    assert isinstance(found, Gpu)
    return found


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has: without the packages there is none, and the words say so."""
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(DeviceUnavailableError, match=r"cuda-core is not installed.*pip install"):
        Gpu()


def test_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with no driver, whatever this one has."""

    def no_driver(_: int) -> tuple[int]:
        raise RuntimeError("no libcuda")

    monkeypatch.setattr(import_module("cuda.bindings.driver"), "cuInit", no_driver)
    get_device.cache_clear()
    try:
        with pytest.raises(DeviceUnavailableError, match="NVIDIA's driver is not installed"):
            get_device("gpu")
        assert get_device("auto").name == "emulator"
    finally:
        get_device.cache_clear()


def test_module_variables_are_found() -> None:
    printing = r"""
    #define assert(x) ((x) ? (void)0 : __assertfail(#x, "f.cu", 1, "k", 1))
    typedef const char* text;
    extern "C" __device__ void __assertfail(text, text, unsigned, text, size_t);
    extern "C" __device__ int printf(const char*, ...);
    extern "C" __global__ void k(int* x) { printf("%d\n", *x); *x = 1; }"""
    assert has_module_variables(Kernel(COUNT, "count").compile().ptx)
    assert not has_module_variables(Kernel(printing, "k").compile().ptx)
    assert not has_module_variables(Kernel(SCALE, "scale").compile().ptx)


def test_what_is_printed_below_python_is_caught() -> None:
    with captured() as output:
        ctypes.CDLL(None).puts(b"by the C library")
        os.write(1, b"by the system\n")
        os.write(2, b"a complaint\n")
    assert sorted(output.printed.splitlines()) == ["by the C library", "by the system"]
    assert output.complained == "a complaint\n"


class HostMemory:
    """Stands for a context whose device memory is the host's, to follow the copies."""

    def __init__(self) -> None:
        self.buffers: list[npt.NDArray[np.uint8]] = []
        self.uploaded = 0

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def synchronize(self) -> None:
        pass

    def allocate(self, size: int) -> Any:
        buffer = np.full(max(size, 1), 0xA5, np.uint8)
        self.buffers.append(buffer)

        class Memory:
            address = buffer.ctypes.data if size else 0
            context = self

        Memory.size = size  # type: ignore[attr-defined]
        return Memory

    def upload(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self.uploaded += data.size
        ctypes.memmove(address, data.ctypes.data, data.size)

    def download(self, data: npt.NDArray[np.uint8], address: int) -> None:
        ctypes.memmove(data.ctypes.data, address, data.size)


def at(address: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What a kernel sees there, shaped and pitched as ``like``."""
    reach = sum((n - 1) * s for n, s in zip(like.shape, like.strides, strict=True)) + like.itemsize
    raw = (ctypes.c_uint8 * reach).from_address(address)
    return np.ndarray(like.shape, like.dtype, raw, 0, like.strides)


def staged(*arrays: npt.NDArray[Any]) -> tuple[HostMemory, Staged]:
    memory = HostMemory()
    return memory, Staged(cast(Context, memory), arrays)


def test_a_pitched_view_keeps_its_pitch_and_what_lies_between() -> None:
    whole = np.arange(24.0).reshape(4, 6)
    view = whole[1:, 1:4]
    _, place = staged(view)
    seen = at(place.addresses[0], view)
    np.testing.assert_array_equal(seen, view)
    gaps = at(place.addresses[0], whole[1:3])
    gaps[...] = -1  # a kernel that writes past its columns
    place.download()
    changed = np.argwhere(whole == -1)
    assert {tuple(map(int, where)) for where in changed} <= {
        (i, j) for i in (1, 2, 3) for j in (1, 2, 3)
    }
    assert (whole[1:3, 1:4] == -1).all()


def test_arrays_that_share_memory_share_it_on_the_device() -> None:
    x = np.arange(10.0)
    memory, place = staged(x[4:], x, x[:6], np.zeros(3), x)
    first = place.addresses[1]
    assert place.addresses == [first + 32, first, first, place.addresses[3], first]
    assert len(memory.buffers) == 2
    assert memory.uploaded == x.nbytes + 24
    at(first, x)[:] += 1
    place.download()
    np.testing.assert_array_equal(x, np.arange(1.0, 11))


def test_neighbours_are_apart_and_read_only_arrays_stay() -> None:
    x = np.arange(8.0)
    left, right = x[:4], x[4:]
    right.flags.writeable = False
    memory, place = staged(left, right, np.zeros((0, 3)))
    assert len(memory.buffers) == 2
    assert place.addresses[2] == 0
    at(place.addresses[0], left)[:] = 7
    at(place.addresses[1], left)[:] = 8
    place.download()
    np.testing.assert_array_equal(x, [7, 7, 7, 7, 4, 5, 6, 7])


def test_an_array_and_its_copy_back() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    memory = cast(Context, HostMemory())
    for host in (whole, whole[:, :3], whole[0, 0], np.array(2.5), np.zeros((0, 4))):
        host = np.asarray(host)
        there = array_on(memory, host)
        assert there.shape == host.shape
        assert there.strides == host.strides
        back = there.to_numpy()
        assert back.dtype == host.dtype
        assert back.flags.c_contiguous
        np.testing.assert_array_equal(back, host)


def test_numpy_arrays_in_and_out(gpu: Gpu) -> None:
    whole = np.arange(60, dtype=np.float32).reshape(6, 10)
    expected = whole.copy()
    expected[1:4, 2:7] *= 3
    report = Kernel(SCALE, "scale").launch((1, 3), 32, (3, 5, 3.0, whole[1:4, 2:7], 10), device=gpu)
    np.testing.assert_array_equal(whole, expected)
    assert report.device == "gpu"
    assert 0 < report.seconds < 1
    assert report.counters is None


def test_device_arrays_stay_where_they_lie(gpu: Gpu) -> None:
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    there = gpu.array(host)
    Kernel(SCALE, "scale").launch((1, 3), 32, (3, 4, 2.0, there, 4), device=gpu)
    np.testing.assert_array_equal(there.to_numpy(), host * 2)
    assert gpu.empty((2, 3), np.float64).to_numpy().shape == (2, 3)


def test_module_variables_start_anew(gpu: Gpu) -> None:
    for _ in range(2):
        seen = np.full(1, -1, np.int32)
        Kernel(COUNT, "count").launch(1, 1, (seen,), device=gpu)
        assert seen[0] == 0


def test_limits_of_the_hardware_and_of_the_kernel(gpu: Gpu) -> None:
    bounded = SCALE.replace("void scale", "void __launch_bounds__(64) scale")
    x = np.ones((1, 100), np.float32)
    for source, block, shared, words in (
        (SCALE, 1025, 0, "at most 1024"),
        (bounded, 65, 0, "this kernel takes at most 64"),
        (SCALE, 32, gpu.max_shared + 1, "shared memory"),
    ):
        with pytest.raises(LaunchError, match=words):
            Kernel(source, "scale").launch(1, block, (1, 100, 2.0, x, 100), shared, device=gpu)
    assert (x == 1).all()


def test_dynamic_shared_memory_up_to_the_most(gpu: Gpu) -> None:
    source = r"""
    extern "C" __global__ void last(int n, float* out) {
        extern __shared__ float s[];
        for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
        __syncthreads();
        if (threadIdx.x == 0) *out = s[n - 1];
    }"""
    for shared in (1024, 49152, gpu.max_shared):
        out = np.zeros(1, np.float32)
        Kernel(source, "last").launch(1, 128, (shared // 4, out), shared, device=gpu)
        assert out[0] == shared // 4 - 1


def test_occupancy(gpu: Gpu) -> None:
    compiled = Kernel(SCALE, "scale").compile(gpu.arch)
    assert gpu.blocks_per_multiprocessor(compiled, 1024) in (1, 2)
    assert gpu.blocks_per_multiprocessor(compiled, 32, gpu.max_shared) == 1
    assert gpu.blocks_per_multiprocessor(compiled, 1025) == 0
    assert gpu.blocks_per_multiprocessor(compiled, 32, gpu.max_shared + 1) == 0
    with pytest.raises(ValueError, match="0 threads"):
        gpu.blocks_per_multiprocessor(compiled, 0)


def test_measured_time_grows_with_the_work(gpu: Gpu) -> None:
    compiled = Kernel(SCALE, "scale").compile(gpu.arch)

    def seconds(m: int, flush: bool = False) -> float:
        x = gpu.array(np.ones((m, 4096), np.float32))
        launch = Launch(dim3((16, m), "grid"), dim3(256, "block"), (m, 4096, 1.0, x, 4096))
        return gpu.measure(compiled, launch, flush=flush)

    assert 0 < seconds(1) < 50e-6
    assert seconds(16384) > 3 * seconds(1)
    assert seconds(1, flush=True) > 0
