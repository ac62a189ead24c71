"""Launches on either device: what a kernel is given, and what is left in the arrays afterwards."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.devices.emulator.device import Emulator
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

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
BOUNDED = """
extern "C" __global__ void __launch_bounds__(96) bounded(float* x) { x[threadIdx.x] = 1; }
"""
# All sums are live at once: the loop's bound is not known.
MANY_REGISTERS = """
extern "C" __global__ void many(float* x, int n) {
    float sums[160];
    for (int i = 0; i < 160; ++i) sums[i] = x[i];
    for (int k = 0; k < n; ++k)
        for (int i = 0; i < 160; ++i) sums[i] = sums[i] * x[k] + x[k + i];
    for (int i = 0; i < 160; ++i) x[i] = sums[159 - i];
}
"""
COUNTER = r"""
__device__ int counter = 5;
extern "C" __global__ void next(int* out) { *out = counter++; }"""
PRINT = r"""
extern "C" __device__ int printf(const char*, ...);
extern "C" __global__ void say(int n) { printf("hello %d\n", n + threadIdx.x); }"""
STATIC = r"""
extern "C" __global__ void both(int n, float* out) {
    __shared__ float t[10000];
    extern __shared__ float s[];
    t[threadIdx.x] = threadIdx.x; s[threadIdx.x] = t[threadIdx.x] + n;
    __syncthreads();
    if (threadIdx.x == 0) *out = s[blockDim.x - 1];
}"""
GRID = r"""
extern "C" __global__ void turn(int* x, int* y) {
    unsigned high, low, n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] += 1;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    unsigned* arrived = (unsigned*)((unsigned long long)high << 32 | low) + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1, old, now;
        __threadfence();
        old = atomicAdd(arrived, add);
        do now = *(volatile unsigned*)arrived; while ((int)(old ^ now) >= 0);
        __threadfence();
    }
    __syncthreads();
    y[i] = x[n - 1 - i];
}"""
NO_ARGUMENTS = 'extern "C" __global__ void nothing() {}'


def add(
    device: Device, a: Any, c: Any, m: int, n: int, lda: int | None = None, ldc: int | None = None
) -> LaunchReport:
    """C += 2 A, with rows ``n`` elements apart by default."""
    grid = (max(1, -(-n // 32)), max(1, -(-m // 8)))
    args = (m, n, 2.0, a, n if lda is None else lda, c, n if ldc is None else ldc)
    return Kernel(ADD, "add").launch(grid, (32, 8), args, device=device)


def normal(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def test_blocks_that_wait_for_each_other(device: Device) -> None:
    n = 64 * 200
    x, y = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    report = Kernel(GRID, "turn").launch(200, 64, (x, y), device=device, cooperative=True)
    np.testing.assert_array_equal(y, np.arange(n)[::-1] + 1)
    assert report.launch.cooperative
    assert "cooperative" in str(report)
    with pytest.raises(LaunchError, match=r"a cooperative launch of 100,000 blocks: .* holds"):
        Kernel(GRID, "turn").launch(100_000, 64, (x, y), device=device, cooperative=True)


def test_numpy_arrays(device: Device) -> None:
    a, c = normal(2, 37, 53)
    expected = c + 2 * a
    report = add(device, a, c, 37, 53)
    np.testing.assert_array_equal(c, expected)
    assert report.device == device.name
    assert report.resources.registers > 0
    assert report.seconds > 0


def test_views_of_pitched_arrays(device: Device) -> None:
    whole, out = normal(2, 40, 64)
    expected = out.copy()
    expected[3:20, 8:31] += 2 * whole[5:22, 1:24]
    add(device, whole[5:22, 1:24], out[3:20, 8:31], 17, 23, 64, 64)
    np.testing.assert_array_equal(out, expected)


def test_one_array_twice_and_views_that_share_memory(device: Device) -> None:
    x = np.arange(1, 65, dtype=np.float32).reshape(8, 8)
    expected = x.copy()
    expected[4:] += 2 * x[:4]
    add(device, x[:4], x[4:], 4, 8)
    np.testing.assert_array_equal(x, expected)
    expected = x * 3
    add(device, x, x, 8, 8)
    np.testing.assert_array_equal(x, expected)


def test_device_arrays_and_addresses(device: Device) -> None:
    a, c = normal(2, 33, 48)
    on_a, on_c = device.array(a[:, :40]), device.array(c)
    assert on_a.pointer % 256 == 0
    np.testing.assert_array_equal(on_a.to_numpy(), a[:, :40])
    add(device, on_a, on_c, 33, 40, 48, 48)
    expected = c.copy()
    expected[:, :40] += 2 * a[:, :40]
    np.testing.assert_array_equal(on_c.to_numpy(), expected)
    add(device, on_a.pointer, on_c, 33, 40, 48, 48)
    expected[:, :40] += 2 * a[:, :40]
    np.testing.assert_array_equal(on_c.to_numpy(), expected)
    assert device.empty((5, 7), np.float64).to_numpy().shape == (5, 7)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
def test_arrays_with_no_elements(device: Device, shape: tuple[int, ...]) -> None:
    nothing = device.array(np.zeros(shape, np.float32))
    assert nothing.to_numpy().shape == shape
    add(device, nothing, device.empty(shape, np.float32), 0, 0, 5, 5)
    add(device, np.zeros(shape, np.float32), np.zeros(shape, np.float32), 0, 0, 5, 5)


def test_every_kind_of_parameter(device: Device) -> None:
    out = np.zeros(9)
    pair = np.array([(-3, 0.25)], np.dtype([("i", "i4"), ("x", "f8")], align=True))[0]
    args = (True, -5, -300, 2**32 - 1, -(2**40), 0.5, 1 / 3, pair, out)
    Kernel(MIXED, "mixed").launch(1, 1, args, device=device)
    assert out.tolist() == [1, -5, -300, 2**32 - 1, -(2**40), 0.5, 1 / 3, -3, 0.25]
    Kernel(NO_ARGUMENTS, "nothing").launch(1, 1, (), device=device)


def test_an_instance_of_a_template(device: Device) -> None:
    x = np.zeros(32)
    Kernel(TEMPLATE, "fill<double, 7>").launch(1, 32, (x,), device=device)
    assert (x == 7).all()


def test_wrong_arguments(device: Device) -> None:
    x = np.zeros((4, 4), np.float32)
    kernel = Kernel(ADD, "add")
    with pytest.raises(TypeError, match="takes 7 arguments, not 2"):
        kernel.launch(1, 1, (1, 2), device=device)
    with pytest.raises(TypeError, match="argument 0"):
        kernel.launch(1, 32, (x, 4, 2.0, x, 4, x, 4), device=device)
    with pytest.raises(ValueError, match="argument 0"):
        add(device, x, x, 2**32, 1, 4, 4)
    with pytest.raises(ValueError, match="row-contiguous"):
        add(device, x.T, x, 4, 4)
    with pytest.raises(TypeError, match="argument 3"):
        add(device, [1.0], x, 4, 4)
    assert not x.any()


@pytest.mark.parametrize("args", [np.zeros(4, np.float32), np.float32(1), 3, "x", b"x", None])
def test_a_single_argument_is_no_sequence_of_them(args: Any, device: Device) -> None:
    kernel = Kernel('extern "C" __global__ void k(float* x) { *x = 1; }', "k")
    told = rf"args is of type {type(args).__name__}; .*: of a single one, \(x,\)"
    with pytest.raises(TypeError, match=told):
        kernel.launch(1, 1, args, device=device)
    with pytest.raises(TypeError, match=told):
        kernel.profile(1, 1, args)


@pytest.mark.parametrize(
    ("grid", "kind", "told"),
    [
        (0, ValueError, "grid is 0; every extent must be at least 1"),
        ((4, -1), ValueError, "grid is 4 x -1; every extent must be at least 1"),
        ("a", TypeError, "grid is 'a'; it takes an integer, or up to three, x first"),
        (1.5, TypeError, "grid is 1.5; it takes an integer, or up to three, x first"),
    ],
)
def test_a_grid_that_is_none(grid: Any, kind: type[Exception], told: str, device: Device) -> None:
    with pytest.raises(kind, match=re.escape(told)):
        Kernel(NO_ARGUMENTS, "nothing").launch(grid, 1, (), device=device)


@pytest.mark.parametrize("name", ["counts", "isolated", "cooperative", "global_races"])
def test_a_flag_that_is_no_bool(name: str, device: Device) -> None:
    kernel, flag = Kernel(NO_ARGUMENTS, "nothing"), {name: "no"}
    with pytest.raises(TypeError, match=f"{name} is 'no'; it takes True or False"):
        kernel.launch(1, 1, (), device=device, **flag)  # type: ignore[arg-type]
    kernel.launch(1, 1, (), device=device, **{name: 0})  # type: ignore[arg-type]


def test_limits_of_the_hardware(device: Device) -> None:
    kernel = Kernel(NO_ARGUMENTS, "nothing")
    for grid, block, words in (
        (1, 1025, "at most 1,024"),
        (1, (1, 1, 65), "at most 64"),
        (2**31, 1, "grid 2147483648x1x1: x is 2,147,483,648; .* at most 2,147,483,647"),
        ((1, 65536), 1, "grid 1x65536x1: y is 65,536; .* at most 65,535"),
        ((1, 1, 65536), 1, "grid 1x1x65536: z is 65,536; .* at most 65,535"),
    ):
        with pytest.raises(LaunchError, match=words):
            kernel.launch(grid, block, (), device=device)
    kernel.launch(1, 1024, (), device=device)


def test_limits_of_the_kernel(device: Device) -> None:
    """By its __launch_bounds__, and by its registers: 255 a thread leave room for 256 threads."""
    x = np.zeros(1024, np.float32)
    bounded = Kernel(BOUNDED, "bounded")
    with pytest.raises(LaunchError, match="64x2x1 is 128 threads; this kernel takes at most 96"):
        bounded.launch(1, (64, 2), (x,), device=device)
    assert not x.any()
    bounded.launch(1, (48, 2), (x,), device=device)
    assert np.count_nonzero(x) == 48
    many = Kernel(MANY_REGISTERS, "many")
    registers = many.compile(device.arch).resources.registers
    assert registers > 128
    with pytest.raises(LaunchError, match="this kernel takes at most"):
        many.launch(1, 1024, (x, 0), device=device)
    many.launch(1, 128, (x, 0), device=device)


def test_static_and_dynamic_shared_memory(device: Device) -> None:
    out = np.zeros(1, np.float32)
    Kernel(STATIC, "both").launch(1, 256, (1, out), 16 * 1024, device=device)
    assert out[0] == 256


def test_variables_of_a_module_start_anew(device: Device) -> None:
    for _ in range(3):
        out = np.zeros(1, np.int32)
        Kernel(COUNTER, "next").launch(1, 1, (out,), device=device)
        assert out[0] == 5


def test_what_a_kernel_prints(device: Device) -> None:
    report = Kernel(PRINT, "say").launch(1, 2, (40,), device=device)
    assert report.output == "hello 40\nhello 41\n"


def test_a_read_only_array_stays(device: Device) -> None:
    """On a GPU a kernel writes to a copy, which is not copied back; the emulator refuses it."""
    a, c = np.ones((2, 4, 4), np.float32)
    c.flags.writeable = False
    if device.name == "emulator":
        with pytest.raises(ValueError, match="c is written by the kernel but is read-only"):
            add(device, a, c, 4, 4)
    else:
        add(device, a, c, 4, 4)
    assert (c == 1).all()


def test_an_array_of_another_emulator_is_refused() -> None:
    """Each emulator counts its addresses from the same one: ``c`` would lie where ``a`` does."""
    source = 'extern "C" __global__ void grow(const float* a, float* c) { c[0] = a[0] + 1; }'
    a, c = np.full(1, 5, np.float32), Emulator("sm_80").zeros((1,), np.float32)
    for device in ("emulator", Emulator("sm_80")):
        with pytest.raises(TypeError, match=r"array of shape \(1,\) and dtype float32 is another"):
            Kernel(source, "grow").launch(1, 1, (a, c), device=device)
    assert a[0] == 5
    with pytest.raises(TypeError, match="make it on the device of the launch"):
        Kernel(source, "grow").profile(1, 1, (a, c))
