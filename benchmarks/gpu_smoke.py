"""Whether the GPU device does what it promises, on the GPU of this machine.

    python benchmarks/gpu_smoke.py

Prints PASS or FAIL for each item, and exits with 1 if one failed. PyTorch and CuPy are tried
where they are installed. What loses the GPU's context is tried in processes of its own.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import tilewise
from tilewise.devices.gpu import Gpu
from tilewise.launch import Launch, dim3

ADD = r"""
extern "C" __global__ void add(int m, int n, float f, const float* a, int lda, float* c, int ldc) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < m && j < n) c[i * (long long)ldc + j] += f * a[i * (long long)lda + j];
}"""
MIXED = r"""
struct Pair { int i; double x; };
extern "C" __global__ void mixed(bool flag, signed char b, short h, unsigned u, long long q,
                                 float f, double d, Pair p, double* out) {
    out[0] = flag; out[1] = b; out[2] = h; out[3] = u; out[4] = (double)q;
    out[5] = f; out[6] = d; out[7] = p.i; out[8] = p.x;
}"""
TEMPLATE = r"""
template <class T, int N> __global__ void fill(T* x) { x[threadIdx.x] = T(N); }"""
COUNTER = r"""
__device__ int counter = 5;
extern "C" __global__ void next(int* out) { *out = counter++; }"""
PRINT = r"""
extern "C" __device__ int printf(const char*, ...);
extern "C" __global__ void say(int n) { printf("hello %d\n", n + threadIdx.x); }"""
DYNAMIC = r"""
extern "C" __global__ void last(int n, float* out) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *out = s[n - 1];
}"""
STATIC = r"""
extern "C" __global__ void both(int n, float* out) {
    __shared__ float t[10000];
    extern __shared__ float s[];
    t[threadIdx.x] = threadIdx.x; s[threadIdx.x] = t[threadIdx.x] + n;
    __syncthreads();
    if (threadIdx.x == 0) *out = s[blockDim.x - 1];
}"""
NO_ARGUMENTS = 'extern "C" __global__ void nothing() {}'
FAULTS = r"""
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*,
                                        unsigned long);
extern "C" __global__ void fault(int kind, float* x) {
    if (kind == 0) *(volatile float*)(x + (1ll << 40)) = 1;
    if (kind == 1) *(volatile float*)((char*)x + 1) = 1;
    if (kind == 2) __assertfail("n == 3", "fault.cu", 7, "fault", 1);
    if (kind == 3) __trap();
}"""

CHECKS: list[Callable[[Gpu], str | None]] = []


class NotHere(Exception):
    """Something optional is not installed."""


def item(check: Callable[[Gpu], str | None]) -> Callable[[Gpu], str | None]:
    CHECKS.append(check)
    return check


def optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise NotHere(f"{name} is not installed") from None


def same(got: Any, expected: Any) -> None:
    np.testing.assert_array_equal(got, expected)


def refuses(error: type[Exception], words: str, work: Callable[[], object]) -> None:
    said = "nothing was raised"
    try:
        work()
    except error as caught:
        said = str(caught)
    assert words in said, f"{words!r} is not in: {said}"


def add(gpu: Gpu, a: Any, c: Any, m: int, n: int, lda: int, ldc: int) -> tilewise.LaunchReport:
    grid = (max(1, -(-n // 32)), max(1, -(-m // 8)))
    return tilewise.Kernel(ADD, "add").launch(
        grid, (32, 8), (m, n, 2.0, a, lda, c, ldc), device=gpu
    )


@item
def what_it_is(gpu: Gpu) -> str:
    assert tilewise.get_device("auto").name == "gpu"
    assert gpu.max_shared >= 48 * 1024
    return f"{gpu.description}; compiles for {gpu.arch}; {gpu.max_shared} B shared a block"


@item
def numpy_in_and_out(gpu: Gpu) -> str:
    rng = np.random.default_rng(1)
    a, c = rng.standard_normal((2, 37, 53), np.float32)
    expected = c + 2 * a
    report = add(gpu, a, c, 37, 53, 53, 53)
    same(c, expected)
    assert report.device == "gpu"
    assert report.resources.registers > 0
    return f"{report.seconds * 1e6:.1f} µs"


@item
def pitched_numpy_views(gpu: Gpu) -> None:
    rng = np.random.default_rng(2)
    big, out = rng.standard_normal((2, 40, 64), np.float32)
    expected = out.copy()
    expected[3:20, 8:31] += 2 * big[5:22, 1:24]
    add(gpu, big[5:22, 1:24], out[3:20, 8:31], 17, 23, 64, 64)
    same(out, expected)


@item
def one_array_twice_and_views_that_overlap(gpu: Gpu) -> None:
    x = np.arange(1, 65, dtype=np.float32).reshape(8, 8)
    expected = x.copy()
    expected[4:] += 2 * x[:4]
    add(gpu, x[:4], x[4:], 4, 8, 8, 8)
    same(x, expected)
    expected = x * 3
    add(gpu, x, x, 8, 8, 8, 8)
    same(x, expected)


@item
def read_only_numpy_arrays_do_not_change(gpu: Gpu) -> None:
    c = np.ones((4, 4), np.float32)
    c.flags.writeable = False
    add(gpu, np.ones((4, 4), np.float32), c, 4, 4, 4, 4)
    same(c, 1)


@item
def own_device_arrays(gpu: Gpu) -> None:
    rng = np.random.default_rng(3)
    a, c = rng.standard_normal((2, 33, 48), np.float32)
    on_a, on_c = gpu.array(a[:, :40]), gpu.array(c)
    assert on_a.pointer % 256 == 0
    same(on_a.to_numpy(), a[:, :40])
    add(gpu, on_a, on_c, 33, 40, 48, 48)
    expected = c.copy()
    expected[:, :40] += 2 * a[:, :40]
    same(on_c.to_numpy(), expected)
    assert gpu.empty((5, 7), np.float64).to_numpy().shape == (5, 7)
    add(gpu, on_a.pointer, on_c, 33, 40, 48, 48)


@item
def arrays_with_no_elements(gpu: Gpu) -> None:
    for shape in ((0,), (0, 5), (5, 0)):
        nothing = gpu.array(np.zeros(shape, np.float32))
        assert nothing.to_numpy().shape == shape
        add(gpu, nothing, gpu.empty(shape, np.float32), 0, 0, 5, 5)
        add(gpu, np.zeros(shape, np.float32), np.zeros(shape, np.float32), 0, 0, 5, 5)


@item
def torch_tensors(gpu: Gpu) -> None:
    torch = optional("torch")
    a = torch.randn(31, 64, device="cuda")
    c = torch.zeros(31, 40, device="cuda")
    view = a[:, 5:45]
    before = c.data_ptr()
    add(gpu, view, c, 31, 40, 64, 40)
    assert c.data_ptr() == before
    assert torch.equal(c, 2 * view)
    half = torch.zeros(8, device="cuda", dtype=torch.bfloat16)
    add(gpu, a.requires_grad_()[:1].detach(), half, 0, 0, 64, 8)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(50):
            c = torch.nn.functional.relu(torch.randn(4096, 4096, device="cuda"))
        kept = c.clone()
        add(gpu, c, c, 4096, 4096, 4096, 4096)
        assert torch.equal(c, 3 * kept)


@item
def torch_tensors_that_cannot_be_used(gpu: Gpu) -> None:
    torch = optional("torch")
    c = torch.zeros(4, 4, device="cuda")
    refuses(TypeError, "lies on the host", lambda: add(gpu, torch.zeros(4, 4), c, 4, 4, 4, 4))
    refuses(ValueError, "row-contiguous", lambda: add(gpu, c[:, ::2], c, 4, 2, 4, 4))
    refuses(
        ValueError, "row-contiguous", lambda: add(gpu, torch.zeros(4, 8).cuda().T, c, 8, 4, 4, 4)
    )


@item
def torch_sees_our_arrays(gpu: Gpu) -> None:
    torch = optional("torch")
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    ours = gpu.array(whole[:, :5])
    theirs = torch.as_tensor(ours, device="cuda")
    assert theirs.data_ptr() == ours.pointer
    same(theirs.cpu().numpy(), whole[:, :5])
    theirs += 1
    same(ours.to_numpy(), whole[:, :5] + 1)


@item
def cupy_arrays(gpu: Gpu) -> None:
    cupy = optional("cupy")
    a = cupy.random.standard_normal((16, 48), dtype=cupy.float32)
    c = cupy.zeros((16, 32), cupy.float32)
    add(gpu, a[:, 8:40], c, 16, 32, 48, 32)
    same(cupy.asnumpy(c), 2 * cupy.asnumpy(a)[:, 8:40])
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    ours = gpu.array(whole[:, :5])
    same(cupy.asnumpy(cupy.asarray(ours)), whole[:, :5])
    refuses(ValueError, "row-contiguous", lambda: add(gpu, a.T, c, 16, 16, 16, 32))


@item
def every_kind_of_parameter(gpu: Gpu) -> None:
    out = np.zeros(9)
    pair = np.array([(-3, 0.25)], np.dtype([("i", "i4"), ("x", "f8")], align=True))[0]
    tilewise.Kernel(MIXED, "mixed").launch(
        1, 1, (True, -5, -300, 2**32 - 1, -(2**40), 0.5, 1 / 3, pair, out), device=gpu
    )
    same(out, [1, -5, -300, 2**32 - 1, -(2**40), 0.5, 1 / 3, -3, 0.25])
    tilewise.Kernel(NO_ARGUMENTS, "nothing").launch(1, 1, (), device=gpu)


@item
def a_template_instance(gpu: Gpu) -> None:
    x = np.zeros(32)
    tilewise.Kernel(TEMPLATE, "fill<double, 7>").launch(1, 32, (x,), device=gpu)
    same(x, 7)


@item
def wrong_arguments(gpu: Gpu) -> None:
    x = np.zeros((4, 4), np.float32)
    kernel = tilewise.Kernel(ADD, "add")
    refuses(TypeError, "takes 7 arguments, not 2", lambda: kernel.launch(1, 1, (1, 2), device=gpu))
    swapped = (x, 4, 2.0, x, 4, x, 4)
    refuses(TypeError, "argument 0", lambda: kernel.launch(1, 32, swapped, device=gpu))
    refuses(ValueError, "argument 0", lambda: add(gpu, x, x, 2**32, 1, 4, 4))
    refuses(ValueError, "row-contiguous", lambda: add(gpu, x.T, x, 4, 4, 4, 4))
    refuses(TypeError, "argument 3", lambda: add(gpu, [1.0], x, 4, 4, 4, 4))


@item
def limits(gpu: Gpu) -> None:
    kernel = tilewise.Kernel(NO_ARGUMENTS, "nothing")
    bounded = tilewise.Kernel(NO_ARGUMENTS.replace("void", "void __launch_bounds__(96)"), "nothing")

    def launch(grid: Any, block: Any, shared: int = 0, k: tilewise.Kernel = kernel) -> object:
        return k.launch(grid, block, (), shared, device=gpu)

    error = tilewise.LaunchError
    refuses(error, "at most 1024", lambda: launch(1, 1025))
    refuses(error, "at most 64", lambda: launch(1, (1, 1, 65)))
    refuses(error, "at most 65535", lambda: launch((1, 65536), 1))
    refuses(error, "this kernel takes at most 96", lambda: launch(1, 97, k=bounded))
    refuses(error, "shared memory", lambda: launch(1, 1, gpu.max_shared + 1))
    launch(1, 1024)
    launch(1, 96, k=bounded)
    launch(2**20, 1)


@item
def dynamic_shared_memory(gpu: Gpu) -> None:
    kernel = tilewise.Kernel(DYNAMIC, "last")
    for shared in (1024, 48 * 1024, 48 * 1024 + 16, gpu.max_shared, 4096):
        out = np.zeros(1, np.float32)
        kernel.launch(1, 256, (shared // 4, out), shared, device=gpu)
        same(out, shared // 4 - 1)
    out = np.zeros(1, np.float32)
    tilewise.Kernel(STATIC, "both").launch(1, 256, (1, out), 16 * 1024, device=gpu)
    same(out, 256)


@item
def occupancy(gpu: Gpu) -> str:
    compiled = tilewise.Kernel(DYNAMIC, "last").compile(gpu.arch)
    full, some = (gpu.blocks_per_multiprocessor(compiled, t) for t in (1024, 128))
    large = gpu.blocks_per_multiprocessor(compiled, 128, 100 * 1024)
    assert 1 <= full <= 2 <= some
    assert large == (gpu.max_shared + 1024) // (101 * 1024)
    assert gpu.blocks_per_multiprocessor(compiled, 128, gpu.max_shared + 1) == 0
    return f"1024 threads: {full}, 128: {some}, 128 with 100 KB: {large}"


@item
def module_variables_start_anew(gpu: Gpu) -> None:
    for _ in range(3):
        out = np.zeros(1, np.int32)
        tilewise.Kernel(COUNTER, "next").launch(1, 1, (out,), device=gpu)
        same(out, 5)


@item
def printing(gpu: Gpu) -> None:
    report = tilewise.Kernel(PRINT, "say").launch(1, 2, (40,), device=gpu)
    assert report.output == "hello 40\nhello 41\n", repr(report.output)


@item
def timing(gpu: Gpu) -> str:
    compiled = tilewise.Kernel(ADD, "add").compile(gpu.arch)

    def seconds(m: int, n: int, flush: bool = False) -> float:
        a, c = (gpu.array(np.ones((m, n), np.float32)) for _ in range(2))
        grid = dim3((-(-n // 32), -(-m // 8)), "grid")
        launch = Launch(grid, dim3((32, 8), "block"), (m, n, 2.0, a, n, c, n))
        return gpu.measure(compiled, launch, flush=flush)

    small, again = seconds(64, 64), seconds(64, 64)
    cold = seconds(64, 64, flush=True)
    large = seconds(16384, 16384)
    rate = 3 * 4 * 16384**2 / large * 1e-9
    assert small < 20e-6, f"a small kernel takes {small * 1e6:.1f} µs"
    assert abs(small - again) < 0.5 * small
    assert large > 20 * small
    assert rate > 100
    return (
        f"64²: {small * 1e6:.2f} and {again * 1e6:.2f} µs, flushed {cold * 1e6:.2f} µs; "
        f"16384²: {large * 1e3:.3f} ms, {rate:.0f} GB/s"
    )


@item
def the_report_of_a_large_launch(gpu: Gpu) -> str:
    n = 8192
    a, c = (gpu.array(np.ones((n, n), np.float32)) for _ in range(2))
    times = [add(gpu, a, c, n, n, n, n).seconds for _ in range(5)]
    assert max(times[1:]) < 2 * min(times[1:])
    return f"{min(times) * 1e6:.0f} to {max(times) * 1e6:.0f} µs"


@item
def too_much_memory(gpu: Gpu) -> None:
    refuses(MemoryError, "left", lambda: gpu.empty((1 << 45,), np.float32))
    numpy_in_and_out(gpu)


@item
def memory_is_freed(gpu: Gpu) -> None:
    for _ in range(200):
        gpu.empty((1 << 28,), np.float64)  # 2 GiB


def fault(kind: int) -> None:
    """In a process of its own: make the fault, and print what was raised, twice."""
    x = np.zeros(4, np.float32)
    gpu = Gpu()
    for _ in range(2):
        try:
            tilewise.Kernel(FAULTS, "fault").launch(1, 1, (kind, x), device=gpu)
            print("nothing was raised")
        except tilewise.LaunchError as error:
            print(f"{type(error).__name__}: {error}".replace("\n", " | "))
    assert not x.any()


@item
def faults_of_a_kernel(_: Gpu) -> str:
    said = []
    for kind, words in enumerate(
        (
            "LaunchError: the kernel read or wrote outside every array",
            "LaunchError: the kernel read or wrote at an address that is no multiple",
            "KernelAssertError: ",
            "LaunchError: the kernel ",
        )
    ):
        done = subprocess.run(
            [sys.executable, __file__, "--fault", str(kind)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        lines = done.stdout.splitlines()
        whole = f"{kind}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, whole
        assert len(lines) == 2, whole
        assert lines[0].startswith(words), whole
        assert "context was lost" in lines[1], whole
        assert kind != 2 or "n == 3" in lines[0], whole
        said.append(lines[0])
    return "\n        ".join(["", *said])


def main() -> int:
    gpu = tilewise.get_device("gpu")
    assert isinstance(gpu, Gpu)
    failed = 0
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            print(f"PASS  {name}: {check(gpu) or 'as it should'}", flush=True)
        except NotHere as reason:
            print(f"      {name}: not tried, {reason}", flush=True)
        except Exception:  # a smoke test goes on
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} without failure")
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fault"]:
        fault(int(sys.argv[2]))
    else:
        raise SystemExit(main())
