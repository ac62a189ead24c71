"""The GPU as a device. What needs one runs with ``--device gpu``; the rest runs anywhere."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from reference import ROOT
from test_launches import NO_ARGUMENTS, add, normal

from tilewise.devices import get_device
from tilewise.devices.capture import captured
from tilewise.devices.cuda import Context, Staged, array_on
from tilewise.devices.gpu import Gpu
from tilewise.devices.gpu_kernel import has_module_variables
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


def test_limits_of_the_kernel_and_of_this_gpu(gpu: Gpu) -> None:
    bounded = SCALE.replace("void scale", "void __launch_bounds__(64) scale")
    x = np.ones((1, 100), np.float32)
    for source, block, shared, words in (
        (SCALE, 1025, 0, "at most 1,024"),
        (bounded, 65, 0, "this kernel takes at most 64"),
        (SCALE, 32, gpu.max_shared + 1, "shared memory"),
    ):
        with pytest.raises(LaunchError, match=words):
            Kernel(source, "scale").launch(1, block, (1, 100, 2.0, x, 100), shared, device=gpu)
    assert (x == 1).all()
    Kernel(bounded, "scale").launch(1, 64, (1, 64, 2.0, x, 100), device=gpu)
    assert (x[0, :64] == 2).all()
    Kernel(NO_ARGUMENTS, "nothing").launch((2**20, 1), 1, (), device=gpu)


def test_dynamic_shared_memory_up_to_the_most(gpu: Gpu) -> None:
    source = r"""
    extern "C" __global__ void last(int n, float* out) {
        extern __shared__ float s[];
        for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
        __syncthreads();
        if (threadIdx.x == 0) *out = s[n - 1];
    }"""
    for shared in (1024, 48 * 1024, 48 * 1024 + 16, gpu.max_shared, 4096):
        out = np.zeros(1, np.float32)
        Kernel(source, "last").launch(1, 128, (shared // 4, out), shared, device=gpu)
        assert out[0] == shared // 4 - 1


def test_occupancy(gpu: Gpu) -> None:
    compiled = Kernel(SCALE, "scale").compile(gpu.arch)
    assert gpu.blocks_per_multiprocessor(compiled, 1024) in (1, 2)
    assert gpu.blocks_per_multiprocessor(compiled, 128) >= 2
    assert gpu.blocks_per_multiprocessor(compiled, 32, gpu.max_shared) == 1
    # A block's shared memory, and 1 KiB that the hardware keeps of it.
    fit = (gpu.max_shared + 1024) // (101 * 1024)
    assert gpu.blocks_per_multiprocessor(compiled, 128, 100 * 1024) == fit
    assert gpu.blocks_per_multiprocessor(compiled, 1025) == 0
    assert gpu.blocks_per_multiprocessor(compiled, 32, gpu.max_shared + 1) == 0
    with pytest.raises(ValueError, match="0 threads"):
        gpu.blocks_per_multiprocessor(compiled, 0)


@pytest.mark.usefixtures("alone")
def test_measured_time_grows_with_the_work(gpu: Gpu) -> None:
    compiled = Kernel(SCALE, "scale").compile(gpu.arch)

    def seconds(m: int, flush: bool = False) -> float:
        x = gpu.array(np.ones((m, 4096), np.float32))
        launch = Launch(dim3((16, m), "grid"), dim3(256, "block"), (m, 4096, 1.0, x, 4096))
        return gpu.measure(compiled, launch, flush=flush)

    small, again, large = seconds(1), seconds(1), seconds(16384)
    assert 0 < small < 20e-6
    assert abs(small - again) < 0.5 * small
    assert large > 3 * small
    assert 2 * 4 * 16384 * 4096 / large > 100e9  # bytes a second
    assert seconds(1, flush=True) > 0


@pytest.mark.usefixtures("alone")
def test_large_launches_take_the_same_time_each(gpu: Gpu) -> None:
    n = 8192
    a, c = (gpu.array(np.ones((n, n), np.float32)) for _ in range(2))
    times = [add(gpu, a, c, n, n).seconds for _ in range(5)]
    assert max(times[1:]) < 2 * min(times[1:])


def test_it_is_what_auto_takes(gpu: Gpu) -> None:
    assert get_device("auto").name == "gpu"
    assert gpu.max_shared >= 48 * 1024


def test_more_memory_than_there_is(gpu: Gpu) -> None:
    with pytest.raises(MemoryError, match="left"):
        gpu.empty((1 << 45,), np.float32)
    x = np.ones((1, 5), np.float32)
    Kernel(SCALE, "scale").launch(1, 32, (1, 5, 3.0, x, 5), device=gpu)
    assert (x == 3).all()


def test_memory_is_freed(gpu: Gpu) -> None:
    for _ in range(200):
        gpu.empty((1 << 28,), np.float64)  # 2 GiB


# Other libraries' arrays


@pytest.fixture
def torch(gpu: Gpu) -> Any:
    return pytest.importorskip("torch")


def test_tensors_of_torch_are_written_where_they_lie(gpu: Gpu, torch: Any) -> None:
    a = torch.randn(31, 64, device="cuda")
    c = torch.zeros(31, 40, device="cuda")
    view, before = a[:, 5:45], c.data_ptr()
    add(gpu, view, c, 31, 40, 64, 40)
    assert c.data_ptr() == before
    assert torch.equal(c, 2 * view)
    half = torch.zeros(8, device="cuda", dtype=torch.bfloat16)
    add(gpu, a.requires_grad_()[:1].detach(), half.view(torch.float32), 0, 0, 64, 4)
    with pytest.raises(TypeError, match=r"not a torch.Tensor of shape \(8,\) and dtype torch.bfl"):
        add(gpu, a, half, 0, 0, 64, 8)


def test_a_launch_waits_for_the_stream_of_torch(gpu: Gpu, torch: Any) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(50):
            c = torch.nn.functional.relu(torch.randn(4096, 4096, device="cuda"))
        kept = c.clone()
        add(gpu, c, c, 4096, 4096)
        assert torch.equal(c, 3 * kept)


def test_tensors_of_torch_that_are_refused(gpu: Gpu, torch: Any) -> None:
    c = torch.zeros(4, 4, device="cuda")
    with pytest.raises(TypeError, match="lies on the host"):
        add(gpu, torch.zeros(4, 4), c, 4, 4)
    for there, m, n in ((c[:, ::2], 4, 2), (torch.zeros(4, 8).cuda().T, 8, 4)):
        with pytest.raises(ValueError, match="row-contiguous"):
            add(gpu, there, c, m, n, 4, 4)


def test_torch_sees_our_arrays(gpu: Gpu, torch: Any) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    ours = gpu.array(whole[:, :5])
    theirs = torch.as_tensor(ours, device="cuda")
    assert theirs.data_ptr() == ours.pointer
    np.testing.assert_array_equal(theirs.cpu().numpy(), whole[:, :5])
    theirs += 1
    np.testing.assert_array_equal(ours.to_numpy(), whole[:, :5] + 1)


def test_arrays_of_cupy(gpu: Gpu) -> None:
    cupy: Any = pytest.importorskip("cupy")
    a = cupy.asarray(normal(16, 48))
    c = cupy.zeros((16, 32), cupy.float32)
    add(gpu, a[:, 8:40], c, 16, 32, 48, 32)
    np.testing.assert_array_equal(cupy.asnumpy(c), 2 * cupy.asnumpy(a)[:, 8:40])
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    ours = gpu.array(whole[:, :5])
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(ours)), whole[:, :5])
    with pytest.raises(ValueError, match="row-contiguous"):
        add(gpu, a.T, c, 16, 16, 16, 32)


# A fault takes the process's context with it, so that each has a process of its own.
FAULT = r"""
import sys

import numpy as np

from tilewise import Kernel, LaunchError, get_device

SOURCE = '''
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*,
                                        unsigned long);
extern "C" __global__ void fault(int kind, float* x) {
    if (kind == 0) *(volatile float*)(x + (1ll << 40)) = 1;
    if (kind == 1) *(volatile float*)((char*)x + 1) = 1;
    if (kind == 2) __assertfail("n == 3", "fault.cu", 7, "fault", 1);
    if (kind == 3) __trap();
}'''
x = np.zeros(4, np.float32)
for _ in range(2):
    try:
        Kernel(SOURCE, "fault").launch(1, 1, (int(sys.argv[1]), x), device=get_device("gpu"))
        print("nothing was raised")
    except LaunchError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " | "))
assert not x.any()
"""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (0, "LaunchError: the kernel read or wrote outside every array"),
        (1, "LaunchError: the kernel read or wrote at an address that is no multiple"),
        (2, "KernelAssertError: "),
        (3, "LaunchError: the kernel "),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_fault_is_named_and_the_context_is_lost(kind: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULT, str(kind)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith(words)
    assert "context was lost" in second
    assert kind != 2 or "n == 3" in first
