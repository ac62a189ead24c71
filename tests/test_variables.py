"""``kernel.variables``: ``__constant__`` and ``__device__`` variables, set and read by name."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewise import compiler
from tilewise.devices import Device
from tilewise.devices.cuda import GpuArray
from tilewise.devices.emulated import emulator as emulator_of
from tilewise.devices.gpu_module import GpuModule
from tilewise.errors import (
    CheckError,
    LimitError,
    MemoryAccessError,
    UninitializedReadError,
    VariableError,
)
from tilewise.kernel import Kernel
from tilewise.ladder.run import run
from tilewise.lens.profiling import profile as profile_product
from tilewise.lens.trace import record
from tilewise.limits import Limits

pytestmark = pytest.mark.usefixtures("ptx_alone")

SOURCE = r"""
namespace filters {
    __constant__ float weights[2][3];
    __device__ double total;
    namespace { __device__ int hidden[2] = {1, 2}; }
}
namespace other { __device__ unsigned total; }
template <int N> __device__ int table[N];
struct Point { int x; float y; };
__constant__ Point origin;
__constant__ int zero = 0, offset;
__constant__ float none[2] = {};
__device__ int counter = 5;
__device__ float* where;
__device__ float4 vectors[2];
__device__ bool is_on = true;
__device__ unsigned char bytes[8];
extern "C" __global__ void sums(float* y) {
    int i = threadIdx.x;
    y[i] = filters::weights[i % 2][i % 3] + none[i % 2] + zero;
    if (i == 0) {
        ++counter;
        filters::total += 0.5;
        filters::hidden[1] = other::total += 3;
        is_on = !is_on;
        vectors[1].z = 7;
        table<4>[2] = 9;
        bytes[3] = 200;
    }
}
extern "C" __global__ void origins(float* y) { *y = origin.x + origin.y; }
extern "C" __global__ void through(float* y) { *y = where[1]; }
extern "C" __global__ void beyond(float* y, int i) { *y = filters::weights[0][i]; }
extern "C" __global__ void past(float* y, int i) { filters::hidden[i] = 1; *y = offset; }
"""
WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


def kernel(name: str = "sums", **more: Any) -> Kernel:
    return Kernel(SOURCE, name, **more)


def launched(found: Kernel, device: Device, *args: Any, **more: Any) -> np.ndarray[Any, Any]:
    y = np.full(6, -1, np.float32)
    found.launch(1, 6 if found.name == "sums" else 1, (y, *args), device=device, **more)
    return y


def test_constants_are_set_by_name(device: Device) -> None:
    found = kernel()
    found.variables["filters::weights"] = WEIGHTS
    expected = [WEIGHTS[i % 2, i % 3] for i in range(6)]
    np.testing.assert_array_equal(launched(found, device), expected)
    np.testing.assert_array_equal(found.variables["filters::weights"], WEIGHTS)
    found.variables["weights"] = 10 * WEIGHTS  # without its namespace, for there is one such
    np.testing.assert_array_equal(launched(found, device), np.multiply(expected, 10))


def test_device_variables_keep_what_a_launch_wrote(device: Device) -> None:
    found = kernel()
    found.variables["weights"] = WEIGHTS
    for launches in range(1, 4):
        launched(found, device)
        assert found.variables["counter"] == 5 + launches
        assert found.variables["filters::total"] == launches / 2
    assert found.variables["other::total"] == 9
    np.testing.assert_array_equal(found.variables["filters::hidden"], [1, 9])
    np.testing.assert_array_equal(found.variables["table<4>"], [0, 0, 9, 0])
    np.testing.assert_array_equal(found.variables["vectors"], [[0] * 4, [0, 0, 7, 0]])
    found.variables["counter"] = 100
    launched(found, device)
    assert found.variables["counter"] == 101
    assert found.variables["is_on"] == np.True_


def test_each_kernel_has_its_own(device: Device) -> None:
    one, other = kernel(), kernel()
    one.variables["weights"] = other.variables["weights"] = WEIGHTS
    launched(one, device)
    launched(other, device)
    assert one.variables["counter"] == other.variables["counter"] == 6


def test_what_they_hold_before_a_launch(emulator: Device) -> None:
    found = kernel()
    assert found.variables["counter"] == 5
    assert found.variables["counter"].dtype == np.int32
    assert found.variables["is_on"].dtype == np.bool_
    np.testing.assert_array_equal(found.variables["hidden"], [1, 2])
    assert found.variables["weights"].shape == (2, 3)
    assert found.variables["vectors"].shape == (2, 4)
    assert found.variables["where"].dtype == np.uint64
    copy = found.variables["hidden"]
    copy[0] = 50
    assert found.variables["hidden"][0] == 1


def test_their_names(emulator: Device) -> None:
    found = kernel()
    assert set(found.variables) == {
        "filters::weights", "filters::total", "filters::hidden", "other::total", "table<4>",
        "origin", "zero", "offset", "none", "counter", "where", "vectors", "is_on", "bytes",
    }  # fmt: skip
    assert len(found.variables) == 14
    assert "counter" in found.variables
    assert "::counter" in found.variables
    assert "weights" in found.variables
    assert "counters" not in found.variables
    assert len(Kernel('extern "C" __global__ void k() {}', "k").variables) == 0
    assert "counter (device, int)" in repr(found.variables)
    assert "filters::weights (constant, float[2][3])" in repr(found.variables)


def test_headers_with_many_constants_leave_the_types(emulator: Device) -> None:
    uses = "".join(
        f"constexpr int n{i} = cuda::std::fixed<Kind, Kind({i})>::value + "
        f"own::fixed<Kind, Kind({i})>::value;\n"
        for i in range(20)
    )
    fixed = "template <class T, T N> struct fixed { static constexpr int value = int(N); };"
    source = f"""
        enum class Kind {{ one, two }};
        namespace cuda {{ namespace std {{ {fixed} template <int N> __device__ int there[N]; }} }}
        namespace own {{ {fixed} }}
        {uses}
        __constant__ float weights[3];
        extern "C" __global__ void k(float* x) {{
            x[0] = weights[n1] + cuda::std::there<3>[n0];
        }}
    """
    found = Kernel(source, "k").variables
    assert "weights (constant, float[3])" in repr(found)
    assert found["weights"].dtype == np.float32
    assert not any("cuda" in name for name in found)
    assert sum("own" in name for name in found) == 20


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("counters", 1, VariableError, "no variable called 'counters'; did you mean counter"),
        ("total", 1, VariableError, "'total' may be filters::total or other::total"),
        ("weights", WEIGHTS.astype(np.float64), TypeError,
         "filters::weights takes float32, and the array is float64"),
        ("weights", WEIGHTS.T.copy(), ValueError,
         r"filters::weights has the shape \(2, 3\), and the array \(3, 2\)"),
        ("weights", WEIGHTS[:1], ValueError, r"has the shape \(2, 3\), and the array \(1, 3\)"),
        ("counter", 1 << 31, ValueError, "counter takes int32, and 2147483648 is none"),
        ("counter", 1.5, ValueError, "counter takes int32, and 1.5 is none"),
        ("counter", np.float32(1), TypeError, "counter takes int32, and the array is float32"),
        ("origin", np.zeros(3, np.float32), ValueError, "origin has 8 bytes, and the array 12"),
        ("origin", 5, TypeError, "origin is a structure.*; it takes an array of 8 bytes"),
        ("counter", "five", ValueError, "counter takes int32, and 'five' is none"),
        ("bytes", np.zeros(3, np.uint8), ValueError, "bytes has 8 bytes, and the array 3"),
    ],
)  # fmt: skip
def test_what_they_refuse(
    name: str, value: Any, error: type[Exception], words: str, emulator: Device
) -> None:
    found = kernel()
    with pytest.raises(error, match=words):
        found.variables[name] = value


def test_what_they_take(device: Device) -> None:
    found = kernel()
    found.variables["weights"] = WEIGHTS.tolist()
    found.variables["counter"] = np.uint32(7)
    found.variables["weights"] = WEIGHTS.reshape(-1)
    found.variables["weights"] = np.asfortranarray(WEIGHTS)
    found.variables["bytes"] = np.arange(2, dtype=np.float32)
    found.variables["is_on"] = True
    launched(found, device)
    assert found.variables["counter"] == 8
    np.testing.assert_array_equal(found.variables["weights"], WEIGHTS)
    assert not found.variables["is_on"]
    assert found.variables["bytes"].dtype == np.uint8


def test_a_structure_is_its_bytes(device: Device) -> None:
    found = kernel("origins")
    point = np.zeros((), [("x", np.int32), ("y", np.float32)])
    point["x"], point["y"] = 3, 0.5
    found.variables["origin"] = point
    assert launched(found, device)[0] == 3.5
    assert found.variables["origin"].dtype == np.uint8
    assert found.variables["origin"].view(point.dtype)["x"] == 3


def test_a_pointer_takes_an_array_of_the_device(device: Device) -> None:
    found = kernel("through")
    there = device.array(np.array([4, 5, 6], np.float32))
    found.variables["where"] = there
    assert launched(found, device)[0] == 5
    assert found.variables["where"] == there.pointer


def test_a_pointer_to_an_array_of_another_device_is_refused(emulator: Device) -> None:
    """Each emulator counts its addresses from the same one: an array of this one lies there."""
    source = """__device__ float* where;
    extern "C" __global__ void grow(float* y) { where[0] += 1; y[0] = where[0]; }"""
    other, found, y = emulator_of("sm_80"), Kernel(source, "grow"), np.full(4, 5, np.float32)
    there, here = (each.array(np.full(4, 2, np.float32)) for each in (other, emulator))
    found.variables["where"] = there
    wrong = r"^where: an array of shape \(4,\) and dtype float32 is another emulator's; make it on"
    for each in (found, found.with_macros({"UNUSED": 1})):
        with pytest.raises(TypeError, match=wrong):
            each.launch(1, 1, (y,), device=emulator)
        with pytest.raises(TypeError, match=wrong):
            each.profile(1, 1, (y,))
        with pytest.raises(TypeError, match=wrong):
            each.watch(1, 1, (y,))
    assert (y == 5).all()
    found.launch(1, 1, (y,), device=other)
    assert (y[0], there.to_numpy()[0]) == (3, 3)
    found.variables["where"] = here
    found.launch(1, 1, (y,), device=emulator)
    with pytest.raises(TypeError, match=wrong):  # its module there was made before
        found.launch(1, 1, (y,), device=other)
    assert (there.to_numpy()[0], here.to_numpy()[0]) == (3, 3)
    found.variables["where"] = here.pointer  # a number is the caller's own affair
    found.launch(1, 1, (y,), device=emulator)
    assert here.to_numpy()[0] == 4


def test_a_pointer_of_a_gpu_takes_no_array_of_the_emulator(emulator: Device) -> None:
    module = GpuModule(None, None, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"of shape \(2, 3\) and dtype float32 lies on another"):
        module.accept(emulator.array(WEIGHTS))
    module.accept(GpuArray(None, (2,), (4,), np.dtype(np.float32)))  # type: ignore[arg-type]
    module.accept(SimpleNamespace(pointer=1 << 20))


def test_a_constant_that_nobody_set_is_a_finding(emulator: Device) -> None:
    with pytest.raises(UninitializedReadError) as caught:
        launched(kernel(), emulator)
    (finding,) = caught.value.findings
    assert finding.array == "filters::weights"
    assert finding.line == SOURCE.split("\n").index(
        "    y[i] = filters::weights[i % 2][i % 3] + none[i % 2] + zero;"
    ) + 1  # fmt: skip
    assert "reads filters::weights[0][0], a __constant__ variable that nobody set" in str(finding)
    assert "kernel.variables['filters::weights'] = ..." in str(finding)
    with pytest.raises(UninitializedReadError, match="reads origin"):
        launched(kernel("origins"), emulator)
    y = launched(kernel("origins"), emulator, checks="collect")
    assert y[0] == 0
    with pytest.raises(UninitializedReadError, match="reads offset"):
        launched(kernel("past"), emulator, 0)


def test_a_constant_of_a_header_that_nobody_set(emulator: Device, tmp_path: Path) -> None:
    (tmp_path / "tables.cuh").write_text("__constant__ int table[4], shifts[2] = {0, 1};")
    (tmp_path / "k.cu").write_text("""#include "tables.cuh"
extern "C" __global__ void k(int* y) { *y = (table[3] == 0) + shifts[1]; }""")
    found, y = Kernel(tmp_path / "k.cu", "k"), np.zeros(1, np.int32)
    with pytest.raises(UninitializedReadError, match=r"reads table\[3\]"):
        found.launch(1, 1, (y,), device=emulator)
    found.variables["table"] = [1, 2, 3, 4]
    found.launch(1, 1, (y,), device=emulator)
    assert y[0] == 1


def test_out_of_bounds_names_the_variable(emulator: Device) -> None:
    found = kernel("beyond")
    found.variables["weights"] = WEIGHTS
    assert launched(found, emulator, 2)[0] == 3
    with pytest.raises(MemoryAccessError, match=r"at filters::weights\[2\]\[0\], outside it"):
        launched(found, emulator, 6)
    found = kernel("past")
    found.variables["offset"] = 1
    with pytest.raises(MemoryAccessError, match=r"at filters::hidden\[2\], outside it \(8 bytes\)"):
        launched(found, emulator, 2)


def test_a_launch_that_fails_leaves_them(emulator: Device) -> None:
    found = kernel("past")
    found.variables["hidden"] = [3, 4]
    with pytest.raises(CheckError):
        launched(found, emulator, 0)  # the constant is not set
    np.testing.assert_array_equal(found.variables["hidden"], [3, 4])


def test_a_profile_sees_them_and_leaves_them(emulator: Device) -> None:
    found = kernel()
    found.variables["weights"] = WEIGHTS
    launched(found, emulator)
    profile = found.profile(1, 6, (np.zeros(6, np.float32),), checks="raise")
    assert not profile.report.findings
    assert found.variables["counter"] == 6


def test_each_device_has_its_own(emulator: Device) -> None:
    found, place = kernel(), emulator_of("sm_80")
    found.variables["weights"] = WEIGHTS
    launched(found, emulator)
    launched(found, emulator)
    launched(found, place)
    assert found.variables["counter"] == 6  # where the last launch was
    launched(found, emulator)
    assert found.variables["counter"] == 8
    found.variables["counter"] = 20  # on all of them
    launched(found, place)
    assert found.variables["counter"] == 21


def test_isolated_launches(emulator: Device) -> None:
    found = kernel()
    found.variables["weights"] = WEIGHTS
    expected = [WEIGHTS[i % 2, i % 3] for i in range(6)]
    for launches in range(1, 3):
        np.testing.assert_array_equal(launched(found, emulator, isolated=True), expected)
        assert found.variables["counter"] == 5 + launches
    launched(found, emulator)
    assert found.variables["counter"] == 8
    launched(found, emulator, isolated=True)
    assert found.variables["counter"] == 9
    with pytest.raises(UninitializedReadError, match="reads filters::weights"):
        launched(kernel(), emulator, isolated=True)


def test_a_launch_that_is_stopped_leaves_them(emulator: Device) -> None:
    source = """
__device__ int steps;
extern "C" __global__ void k() { for (;;) ++*(volatile int*)&steps; }"""
    found = Kernel(source, "k", limits=Limits(instructions=1000))
    with pytest.raises(LimitError):
        found.launch(1, 1, (), device=emulator)
    assert found.variables["steps"] == 0


def test_a_kernel_with_more_macros_has_what_was_set(emulator: Device) -> None:
    found = kernel()
    found.variables["weights"] = WEIGHTS
    more = found.with_macros({"UNUSED": 1})
    assert launched(more, emulator)[0] == 1
    more.variables["counter"] = 50
    assert found.variables["counter"] == 5


def test_kernels_with_variables_are_pickled(emulator: Device) -> None:
    found = kernel()
    found.variables["weights"] = WEIGHTS
    launched(found, emulator)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.variables["weights"], WEIGHTS)
    assert launched(again, emulator)[0] == 1


def test_variables_come_from_the_cache(emulator: Device) -> None:
    kernel().compile()
    compiler.forget()
    again = kernel().compile()
    weights = next(each for each in again.variables if each.name == "filters::weights")
    assert (weights.declared, weights.shape, weights.space) == ("float", (2, 3), "constant")


def test_a_variable_of_a_function(emulator: Device) -> None:
    source = """
extern "C" __global__ void k(int* y) { static __device__ int calls = 3; *y = calls++; }"""
    found, y = Kernel(source, "k"), np.zeros(1, np.int32)
    for expected in (3, 4):
        found.launch(1, 1, (y,), device=emulator)
        assert y[0] == expected
    assert found.variables["calls"].view(np.int32) == 5


def test_pointers_between_variables_stay_right(emulator: Device) -> None:
    source = """
__device__ int values[2] = {1, 2};
__device__ int* at = &values[1];
extern "C" __global__ void k(int* y) { *y = ++*at; at = &values[0]; }"""
    for is_isolated in (False, True):
        found, y = Kernel(source, "k"), np.zeros(1, np.int32)
        found.launch(1, 1, (y,), device=emulator, isolated=is_isolated)
        assert y[0] == 3
    found = Kernel(source, "k")
    for expected in (3, 2, 3):
        found.launch(1, 1, (y,), device=emulator)
        assert y[0] == expected


def test_products_see_what_was_set(emulator: Device) -> None:
    source = """
__constant__ float scale;
extern "C" __global__ void mine(int m, int n, int k, real alpha, const real* a, int lda,
                                const real* b, int ldb, real beta, real* c, int ldc) {
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * sum * scale;
}"""
    found, a = Kernel(source, "mine"), np.ones((8, 8), np.float32)
    with pytest.raises(UninitializedReadError, match="reads scale"):
        run(found, a, a, tile=8, device=emulator)
    found.variables["scale"] = 1
    assert run(found, a, a, tile=8, device=emulator).correct
    assert profile_product(found, 8, 8, 8, tile=8).correct
    assert record(found, 8, 8, 8, tile=8)


def test_a_name_of_a_source_that_takes_macros_is_refused_at_the_launch(emulator: Device) -> None:
    source = """
__device__ int VARIABLE;
extern "C" __global__ void k(NUMBER* y) { *y = 1; }"""
    y = np.zeros(1, np.int32)
    for variable in ("steps", "other"):
        found = Kernel(source, "k")
        found.variables["steps"] = 3
        found = found.with_macros({"NUMBER": "int", "VARIABLE": variable})
        if variable == "other":
            with pytest.raises(VariableError, match="no variable called 'steps'; the kernel"):
                found.launch(1, 1, (y,), device=emulator)
        else:
            found.launch(1, 1, (y,), device=emulator)
            assert found.variables["steps"] == 3
    found = Kernel('extern "C" __global__ void k(NUMBER* y) { *y = 1; }', "k")
    found.variables["steps"] = 3
    with pytest.raises(VariableError, match="the kernel's module has none"):
        found.with_macros({"NUMBER": "int"}).launch(1, 1, (y,), device=emulator)


def test_variables_of_ptx_are_their_bytes(emulator: Device) -> None:
    ptx = """
.version 7.0
.target sm_80
.address_size 64
.visible\t.const .align 4 .b8 _ZN2ns4addsE[8];
.global .align 4 .u32 steps = 3;
.visible .entry k(.param .u64 y)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [y];
    ld.const.u32 %r1, [_ZN2ns4addsE+4];
    ld.global.u32 %r2, [steps];
    add.u32 %r3, %r1, %r2;
    st.global.u32 [steps], %r3;
    st.global.u32 [%rd1], %r3;
    ret;
}"""
    found, y = Kernel.from_ptx(ptx), np.zeros(1, np.int32)
    assert set(found.variables) == {"ns::adds", "steps"}
    with pytest.raises(UninitializedReadError, match="reads ns::adds"):
        found.launch(1, 1, (y,), device=emulator)
    found.variables["adds"] = np.array([1, 10], np.int32)
    for expected in (13, 23):
        found.launch(1, 1, (y,), device=emulator)
        assert y[0] == expected
    assert found.variables["steps"].view(np.int32) == 23


class Driver:
    """Stands for a GPU's context: one library, and memory at the address of each variable."""

    def __init__(self) -> None:
        self.memory = {0x1000: bytearray(24), 0x2000: bytearray(4)}
        self.calls: list[str] = []

    def current(self) -> Any:
        return nullcontext()

    def call(self, function: str, *args: Any) -> Any:
        assert function == "cuLibraryGetGlobal"
        assert args[0] == "library"
        address = {b"_ZN7filters7weightsE": 0x1000, b"counter": 0x2000}[args[1]]
        return address, len(self.memory[address])

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def upload(self, address: int, data: Any) -> None:
        self.calls.append("upload")
        self.memory[address][:] = data.tobytes()

    def download(self, data: Any, address: int) -> None:
        self.calls.append("download")
        data[:] = np.frombuffer(self.memory[address], np.uint8)


def test_a_module_on_a_gpu_is_read_and_written_when_its_work_is_done() -> None:
    driver = Driver()
    code = type("Code", (), {"handle": "library"})()
    module = GpuModule(driver, code, None)  # type: ignore[arg-type]
    module.write("_ZN7filters7weightsE", WEIGHTS.tobytes())
    assert module.read("_ZN7filters7weightsE") == WEIGHTS.tobytes()
    assert module.read("counter") == bytes(4)
    assert driver.calls == ["synchronize", "upload", *["synchronize", "download"] * 2]
