"""Findings name an element of a shared array by an index for each dimension of its declaration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewise import compiler
from tilewise.devices import Device
from tilewise.errors import CheckError, MemoryAccessError, RaceError, UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.launch import Finding

pytestmark = pytest.mark.usefixtures("no_machine_code")

RACE = """
extern "C" __global__ void k(REAL* x) {
    __shared__ REAL as[2][TILE][TILE + PAD], flat[TILE * TILE];
    int i = threadIdx.y, j = threadIdx.x;
    as[1][i][j] = x[i * TILE + j];
    flat[i * TILE + j] = 0;
    x[i * TILE + j] = as[1][j][i] + flat[0];
}"""
OUTSIDE = """
#define ROWS 4
extern "C" __global__ void k(float* x, int row, int column) {
    __shared__ float s[ROWS][8];
    for (int i = 0; i < ROWS; ++i) s[i][threadIdx.x] = i;
    __syncthreads();
    x[threadIdx.x] = s[row][column + threadIdx.x];
}"""
FLAT = """
extern "C" __global__ void k(float* x) {
    __shared__ volatile DECLARED;
    if (threadIdx.x) x[0] = ELEMENT;
}"""


def finding(
    kernel: Kernel, error: type[CheckError], args: Any, block: Any, place: Device
) -> Finding:
    with pytest.raises(error) as caught:
        kernel.launch(1, block, args, device=place)
    return caught.value.findings[-1]


@pytest.mark.parametrize(
    ("real", "dtype", "tile", "pad"), [("float", "float32", 4, 1), ("double", "float64", 8, 0)]
)
def test_a_race_in_an_array_of_three_dimensions(
    real: str, dtype: str, tile: int, pad: int, emulator: Device
) -> None:
    kernel = Kernel(RACE, "k", {"REAL": real, "TILE": tile, "PAD": pad})
    for _ in range(2):  # the second from the cache
        found = finding(kernel, RaceError, (np.zeros((tile, tile), dtype),), (tile, tile), emulator)
        assert (found.array, found.index) == ("as", (1, 1, 0))
        assert "reads as[1][1][0] in shared memory with no barrier" in found.message
        compiler.forget()


@pytest.mark.parametrize(("row", "index"), [(4, (4, 0)), (-1, (-1, 0))])
def test_the_first_index_of_an_element_out_of_bounds(
    row: int, index: tuple[int, int], emulator: Device
) -> None:
    """As in global memory: the other indices are in their bounds."""
    x, kernel = np.zeros(8, np.float32), Kernel(OUTSIDE, "k")
    found = finding(kernel, MemoryAccessError, (x, row, 0), 8, emulator)
    assert (found.array, found.index) == ("s", index)
    assert f"s[{row}][0]" in found.message


def test_the_player_marks_the_element(emulator: Device) -> None:
    kernel = Kernel(RACE, "k", {"REAL": "float", "TILE": 4, "PAD": 1})
    trace = kernel.watch(1, (4, 4), (np.zeros((4, 4), np.float32),)).trace.to_dict()
    last = trace["blocks"][0]["steps"][-1]
    assert (last["fault"]["array"], last["fault"]["at"]) == ("as", 1 * 20 + 1 * 5)


@pytest.mark.parametrize("shape", [(4, 8), (32,)])
def test_a_page_tells_it_from_an_argument_of_the_same_name(shape: tuple[int, ...]) -> None:
    source = """
    __device__ __noinline__ void f(int i) {
        __shared__ volatile float t[4][8];
        t[i][threadIdx.x] = i;
    }
    extern "C" __global__ void k(float* t, double* x, int i) {
        f(i);
        x[threadIdx.x] = *(double*)(t + 9);
    }"""
    args = np.zeros(shape, np.float32), np.zeros(8), 1
    found = Kernel(source, "k").watch(1, 8, args)
    assert found.fault is not None
    assert found.fault.findings[-1].kind == "misaligned"
    fault = found.trace.to_dict()["blocks"][0]["steps"][-1]["fault"]
    assert (fault["space"], fault["array"], fault["at"]) == ("global", "t", 9)


@pytest.mark.parametrize(
    ("declared", "element", "index"),
    [
        ("float s[3][5]", "s[2][1]", (2, 1)),
        ("int s[3][5]", "s[2][1]", (2, 1)),
        ("float s[15]", "s[11]", 11),
        ("float s[ROWS(3)][5]", "s[2][1]", (2, 1)),
        # Accessed as another type: the element that holds all accessed bytes, if one does.
        ("double s[3][5]", "((volatile float*)s)[11]", (1, 0)),
        ("short s[3][6]", "((volatile float*)s)[7]", 7),
    ],
)
def test_the_index_depends_on_the_declaration(
    declared: str, element: str, index: Any, emulator: Device
) -> None:
    source = FLAT.replace("DECLARED", declared).replace("ELEMENT", element)
    kernel = Kernel(f"#define ROWS(n) n\n{source}", "k")
    found = finding(kernel, UninitializedReadError, (np.zeros(1, np.float32),), 2, emulator)
    assert (found.array, found.index) == ("s", index)


VECTORS = """
struct Pair { float a, b; };
extern "C" __global__ void k(TYPE* x) {
    __shared__ TYPE s[DECLARED];
    int i = threadIdx.x;
    (&s[0]EACH)[i] = x[i];
    x[i]COMPONENT = (&s[0]EACH)[7 - i]COMPONENT;
}"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("type", "component", "spelled"),
    [
        ("float4", "", ""), ("float4", ".x", ".x"), ("float4", ".w", ".w"), ("float3", ".z", ".z"),
        ("double2", ".y", ".y"), ("uint4", ".z", ".z"), ("uint4", "", ""), ("short2", ".y", ".y"),
        ("uchar4", ".w", ".w"), ("longlong2", ".y", ".y"), ("int2", ".x", ".x"),
        ("Pair", ".b", ""), ("float", "", ""),
    ],
)  # fmt: skip
def test_an_element_of_a_vector_type_is_told_by_its_own_index(
    type: str, component: str, spelled: str, emulator: Device
) -> None:
    for declared, each, index, at in (("2][4", "[0]", (1, 3), "[1][3]"), ("8", "", 7, "[7]")):
        source = VECTORS.replace("DECLARED", declared).replace("EACH", each)
        source = source.replace("TYPE", type).replace("COMPONENT", component)
        dtype = "f8" if type == "double2" else "f4" if type.startswith("float") else "u1"
        args = (np.zeros(256, dtype),)
        found = finding(Kernel(source, "k"), RaceError, args, 8, emulator)
        assert (found.array, found.index, found.component) == ("s", index, spelled[1:])
        assert f"reads s{at}{spelled} in shared memory" in found.message


def test_arrays_of_one_name_in_two_functions(emulator: Device) -> None:
    source = """
    __device__ __noinline__ float f() { __shared__ volatile float s[4][8]; return s[1][0]; }
    __device__ __noinline__ float g() { __shared__ volatile float s[8][4]; return s[1][0]; }
    extern "C" __global__ void k(float* x) { x[threadIdx.x] = f() + g(); }"""
    found = finding(
        Kernel(source, "k"), UninitializedReadError, (np.zeros(1, np.float32),), 1, emulator
    )
    assert found.array in ("f::s", "g::s")
    assert found.index == (1, 0)


TEMPLATES = """
template <int N, typename T = float> __device__ __noinline__ float f(int row) {
    __shared__ volatile T s[2 * N][N];
    return s[row][0];
}
__device__ float g() { __shared__ volatile float s[4][8]; return s[1][0]; }
namespace ns {
template <unsigned N> struct Tile {
    static __device__ __noinline__ float first(int row) {
        constexpr int WIDTH = N / 4;
        __shared__ volatile float s[N][WIDTH];
        return s[row][0];
    }
};
}
template <int N, bool WIDE, typename T> __global__ void k(float* x) {
    __shared__ volatile T s[N][WIDE ? 2 * N : N];
    CALLED;
}"""


@pytest.mark.parametrize(
    ("instance", "called", "index"),
    [
        ("k<4, true, float>", "s[1][1]", (1, 1)), ("k<8, false, double>", "s[1][1]", (1, 1)),
        ("k<4, false, float>", "f<4>(1)", (1, 0)), ("k<4, true, int>", "f<8>(3)", (3, 0)),
        ("k<4, true, int>", "f<4, double>(3)", (3, 0)), ("k<4, true, int>", "g()", (1, 0)),
        ("k<4, true, int>", "ns::Tile<16>::first(2)", (2, 0)),
    ],
)  # fmt: skip
def test_the_extents_of_an_instance_of_a_template(
    instance: str, called: str, index: Any, emulator: Device
) -> None:
    source = TEMPLATES.replace("CALLED", f"s[0][0] = 0; x[threadIdx.x] = {called}")
    args = (np.zeros(1, np.float32),)
    found = finding(Kernel(source, instance), UninitializedReadError, args, 1, emulator)
    assert found.index == index
