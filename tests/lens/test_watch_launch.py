"""Watching any kernel: a trace of its own arrays, and the page that shows it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from player import Open, classes, seek
from signatures import SOURCE

from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.lens.trace import record_launch
from tilewise.lens.watch import watch_launch
from tilewise.places import Dim3
from tilewise.pointer import pointer
from tilewise.specs.run import Prepared, prepare
from tilewise.tensor_map import tensor_map

pytestmark = pytest.mark.usefixtures("no_machine_code", "ptx_alone")


def ready(name: str, grid: str, block: str, *args: str, shared: str = "0") -> Prepared:
    return prepare(Kernel(SOURCE, name), args, grid, block, shared, arch="sm_90a")


def trace(name: str, *words: str, blocks: tuple[Dim3, ...] = (), **more: Any) -> dict[str, Any]:
    return record_launch(ready(name, *words, **more), blocks=blocks).to_dict()


def said(found: dict[str, Any], block: int = 0) -> list[str]:
    return [x["say"] for x in found["blocks"][block]["steps"] if x["kind"] in ("load", "store")]


def test_arrays_of_one_dimension() -> None:
    found = trace("saxpy", "2", "64", "n=100", "a=2", "x=arange:n", "y=ones:n")
    x, y = found["arrays"]
    assert (x["name"], x["rows"], x["columns"], x["leading"]) == ("x", 4, 32, 32)
    assert (x["flat"], x["count"], x["dtype"]) == (True, 100, "float32")
    assert x["values"] == list(range(100))
    assert y["address"] % 32 == 0
    where = "elements 64 to 99 of"
    assert said(found, 1) == [
        f"36 of 64 threads load {where} x: 5 sectors, 90 % of them used.",
        f"36 of 64 threads load {where} y: 5 sectors, 90 % of them used.",
        f"36 of 64 threads store {where} y: 5 sectors, 90 % of them used.",
    ]
    stored = next(s for s in found["blocks"][1]["steps"] if s["kind"] == "store")
    assert stored["values"] == [2.0 * i + 1 for i in range(64, 100)]
    assert stored["at"] == list(range(64, 100))


def test_arrays_of_more_dimensions_and_those_that_nobody_wrote() -> None:
    found = trace("transpose", "1,1", "8,8", "random:2x3x4", "empty:n,m", "m=6", "n=4")
    first, second = found["arrays"]
    assert (first["rows"], first["columns"]) == (6, 4)
    assert "flat" not in first
    assert (second["rows"], second["columns"], second["values"]) == (4, 6, None)
    assert any("load in[0 to 1][0 to 2][0 to 3]: " in each for each in said(found))


def test_types_of_each_array() -> None:
    found = trace("histogram", "1", "32", "arange:32", "32", "zeros:64")
    (load,) = (s for s in found["blocks"][0]["steps"] if s["kind"] == "load")
    assert load["values"] == list(range(32))
    assert load["array"] == "data"
    assert [x["dtype"] for x in found["arrays"]] == ["uint8", "uint32"]


def test_dynamic_shared_memory() -> None:
    found = trace("reversed", "1", "64", "arange:64", shared="4*64")
    (shared,) = found["shared"]
    assert (shared["bytes"], shared["element"], shared["rows"], shared["columns"]) == (
        256,
        4,
        2,
        32,
    )


SHARED = """
typedef unsigned long long Barrier;
struct Pair {{ float x, y; }};
extern "C" __global__ void k(float* x, REAL* y) {{
    {}
    char* place = (char*)s;
    for (int i = threadIdx.x; i < 512; i += blockDim.x) place[i] = 0;
    __syncthreads();
    x[threadIdx.x] = place[threadIdx.x];
}}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("declared", "element", "rows", "columns", "is_flat", "of_doubles"),
    [
        ("__shared__ double s[4][16];", 8, 4, 16, False, ()),
        ("__shared__ Barrier s[64];", 8, 2, 32, True, ()),
        ("#if 0\n__shared__ float s[4][32];\n#else\n__shared__ float s[16][8];\n#endif", 4, 16, 8,
         False, ()),
        ("const int T = 8;\n__shared__ double s[T][T];", 8, 8, 8, False, ()),
        ("struct T { enum { ROWS = 8 }; };\n__shared__ double s[T::ROWS][8];", 8, 2, 32, True, ()),
        ("extern __shared__ double s[];", 8, 2, 32, True, ()),
        ("extern __shared__ float s[][32];", 4, 4, 32, False, ()),
        # A cell has one value, and bytes are where a kernel keeps what it likes.
        ("__shared__ Pair s[4][16];", 4, 4, 32, True, ()),
        ("__shared__ float4 s[4][8];", 4, 4, 32, False, ()),
        ("__shared__ short4 s[8][8];", 2, 8, 32, False, ()),
        ("__shared__ short2 s[8][16];", 4, 8, 16, False, ()),
        ("__shared__ unsigned char s[2][256];", 4, 4, 32, True, (1, 2, 256, False)),
        ("extern __shared__ char s[];", 4, 4, 32, True, (1, 16, 32, True)),
    ],
)  # fmt: skip
def test_how_a_shared_array_is_drawn(
    declared: str, element: int, rows: int, columns: int, is_flat: bool, of_doubles: tuple[Any, ...]
) -> None:
    is_dynamic = "extern" in declared
    for real, dtype in (("float", np.float32), ("double", np.float64)):
        kernel = Kernel(SHARED.format(declared), "k", {"REAL": real})
        args = np.zeros(32, np.float32), np.zeros(32, dtype)
        found = kernel.watch(1, 32, args, 512 if is_dynamic else 0).trace.to_dict()["shared"][0]
        shape = element, rows, columns, is_flat
        expected = of_doubles or shape if real == "double" else shape
        drawn = found["element"], found["rows"], found["columns"], found.get("flat", False)
        assert (found["name"], found["bytes"], *drawn) == ("s", 512, *expected)


@pytest.mark.parametrize(
    ("declared", "extents", "name"),
    [
        ("float s[2][4][16]", [2, 4, 16], "s[1][1][2]"), ("float s[8][16]", [8, 16], "s[5][2]"),
        ("float s[1][128]", [1, 128], "s[0][82]"), ("float s[128]", None, "s[82]"),
        ("float4 s[4][8]", [4, 8], "s[2][4].z"), ("float4 s[32]", None, "s[20].z"),
        ("float3 s[2][2][10]", [2, 2, 10], "s[1][0][7].y"),
    ],
)  # fmt: skip
def test_a_cell_has_the_name_of_the_source(
    show: Open, declared: str, extents: Any, name: str
) -> None:
    kernel = Kernel(SHARED.format(f"__shared__ {declared};"), "k", {"REAL": "float"})
    args = np.zeros(32, np.float32), np.zeros(32, np.float32)
    trace = kernel.watch(1, 32, args).trace.to_dict()
    assert trace["shared"][0].get("extents") == extents
    tab = show(trace)
    tab.click("#shared .cell >> nth=82")
    assert name in tab.inner_text("#details")


PLANES = """
__global__ void planes(const float* x, float* y, int first) {
    __shared__ float s[2][4][4];
    int i = threadIdx.x, j = threadIdx.y;
    s[1][j][i] = x[(first * 4 + j) * 4 + i];
    __syncthreads();
    y[j * 4 + i] = s[1][j / 2][i & 1];
}"""


@pytest.mark.parametrize("first", [1, 2, -1])
def test_elements_of_three_dimensions_are_spelled_alike(show: Open, first: int) -> None:
    kernel = Kernel(PLANES, "planes")
    args = np.zeros((2, 4, 4), np.float32), np.zeros((4, 1, 4), np.float32), first
    found = kernel.watch(1, (4, 4), args)
    trace = found.trace.to_dict()
    assert [each["extents"] for each in trace["arrays"]] == [[2, 4, 4], [4, 1, 4]]
    tab = show(trace)
    if first == 1:
        say = [step["say"] for step in trace["blocks"][0]["steps"]]
        assert any("load x[1][0 to 3][0 to 3]: 2 sectors" in each for each in say)
        assert any("store y[0 to 3][0][0 to 3]: 2 sectors" in each for each in say)
        assert any("store to s[1][0 to 3][0 to 3]: no" in each for each in say)
        assert any("read s[1][0 to 1][0 to 1]: no" in each for each in say)
        tab.click("#arrays .of-x .cell >> nth=22")
        assert "x[1][1][2]" in tab.inner_text("#details")
        return
    element = f"x[{first}][0][0]"
    assert found.fault is not None
    assert f" {element}, outside it" in str(found.fault)
    (*_, last) = trace["blocks"][0]["steps"]
    assert f"x has 2 x 4 x 4 elements; by its address this is {element}." in last["why"]
    seek(tab, len(trace["blocks"][0]["steps"]) - 1)
    assert tab.inner_text("#arrays .of-x .fault-place").startswith(f"✗ {element}:")


def test_faults_of_blocks_that_are_not_watched_are_found() -> None:
    words = ("saxpy", "4", "64", "n=256", "a=1", "x=zeros:256", "y=zeros:129")
    found = watch_launch(ready(*words), blocks=[(0, 0, 0)])
    assert isinstance(found.fault, MemoryAccessError)
    assert "y[129]" in str(found.fault)
    assert not found.correct
    assert found.trace.to_dict()["blocks"][0]["index"] == [2, 0, 0]
    assert watch_launch(ready(*words[:5], "x=zeros:256", "y=zeros:256")).correct


def test_the_page(show: Open) -> None:
    found = trace("saxpy", "2", "64", "n=100", "a=2", "x=arange:n", "y=ones:n")
    tab = show(found)
    assert tab.inner_text("#title").replace("\N{MULTIPLICATION SIGN}", "x") == (
        "saxpy 2 x 1 blocks of 64 x 1 threads"
    )
    assert tab.eval_on_selector_all("#arrays h3", "all => all.map(x => x.textContent)") == [
        "x, 100 elements", "y, 100 elements"
    ]  # fmt: skip
    steps = found["blocks"][0]["steps"]
    load = next(i for i, s in enumerate(steps) if s["kind"] == "load" and s["array"] == "x")
    seek(tab, load)
    assert classes(tab, "#arrays .of-x .cell", "read") == list(range(64))
    assert tab.locator("#arrays .of-x .cell:not(.row)").count() >= 100
    store = next(i for i, s in enumerate(steps) if s["kind"] == "store")
    seek(tab, store)
    assert classes(tab, "#arrays .of-y .cell", "write") == list(range(64))
    tab.click("#arrays .of-y .cell >> nth=5")
    assert tab.inner_text("#story").startswith("It holds 11.")
    assert tab.is_hidden("#compared")  # with no product there is no untiled one


def test_arrays_called_as_a_products_are_none(show: Open) -> None:
    source = """
    __global__ void add(const float* a, const float* b, float* c) {
        int i = threadIdx.x;
        c[i] = a[i] + b[i];
    }
    """
    one = prepare(Kernel(source, "add"), ["ones:40", "ones:40", "empty:40"], "1", "40",
                  arch="sm_90a")  # fmt: skip
    tab = show(record_launch(one).to_dict())
    assert tab.get_attribute("#arrays", "class") == "flow"
    assert tab.inner_text("#arrays h3 >> nth=0") == "a, 40 elements"
    tab.hover("#arrays .of-a .cell >> nth=39")
    assert "a[39]" in tab.inner_text("#tip")
    assert "1" in tab.inner_text("#tip")


def test_a_large_array_is_drawn_coarser(show: Open) -> None:
    found = trace("saxpy", "1", "32", "n=32", "a=2", "x=zeros:20000", "y=zeros:20000")
    assert [x["values"] for x in found["arrays"]] == [None, None]
    tab = show(found)
    tab.hover("#arrays .of-x .cell >> nth=0")
    assert tab.inner_text("#tip").startswith("x[0] and others")
    assert np.prod([found["arrays"][0][x] for x in ("rows", "columns")]) == 20000


CLUSTER = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) pass(float* to) {
    __shared__ float mine[32];
    mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
    asm volatile("barrier.cluster.arrive;\\nbarrier.cluster.wait;" ::: "memory");
    unsigned at = __cvta_generic_to_shared(&mine[threadIdx.x]), there, rank = blockIdx.x % 2 ^ 1;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    float got;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(got) : "r"(there));
    to[blockIdx.x * 32 + threadIdx.x] = got;
    asm volatile("barrier.cluster.arrive;\\nbarrier.cluster.wait;" ::: "memory");
}"""


def test_a_block_of_a_cluster(show: Open) -> None:
    prepared = prepare(Kernel(CLUSTER, "pass"), ["empty:128"], "4", "32", arch="sm_90a")
    found = watch_launch(prepared).trace.to_dict()
    assert [each["index"] for each in found["blocks"]] == [[0, 0, 0], [3, 0, 0]]
    for block, first in zip(found["blocks"], (100, 200), strict=True):
        (stored,) = (s for s in block["steps"] if s["kind"] == "store" and s["space"] == "global")
        assert stored["values"] == [first + t for t in range(32)]
    tab = show(found)
    for number, step in enumerate(found["blocks"][0]["steps"]):
        seek(tab, number)
        assert tab.inner_text("#say") == step["say"]


COUNTED = """
extern "C" __global__ void meet(int* count, int* out) {
    if (threadIdx.x == 0) {
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < gridDim.x) {}
    }
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = *(volatile int*)count;
}"""


def test_a_cooperative_launch() -> None:
    prepared = prepare(
        Kernel(COUNTED, "meet"), ["zeros:1", "empty:96"], "3", "32", arch="sm_90a", cooperative=True
    )
    found = watch_launch(prepared).trace.to_dict()
    for block in found["blocks"]:
        stored = [s for s in block["steps"] if s["kind"] == "store" and s["space"] == "global"]
        assert stored[-1]["values"] == [3] * 32


def test_with_arrays_of_ones_own() -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    found = Kernel(SOURCE, "saxpy").watch(2, 64, (100, 2.0, x, y), blocks=[(1, 0, 0)])
    assert y.tolist() == [1] * 100  # no array changes
    data = found.trace.to_dict()
    (block,) = data["blocks"]
    assert block["index"] == [1, 0, 0]
    assert data["arrays"][0]["name"] == "x"
    assert data["arrays"][0]["values"] == x.tolist()
    (stored,) = (s for s in block["steps"] if s["kind"] == "store")
    assert stored["values"] == [2.0 * i + 1 for i in range(64, 100)]
    assert found.page.startswith("<!doctype html>")
    assert found.correct


def test_arrays_behind_pointers_and_tensor_maps() -> None:
    source = """
    extern "C" __global__ void copy(const void* map, const float* x, float* y) {
        y[threadIdx.x] = x[threadIdx.x];
    }"""
    x, y = np.arange(64, dtype=np.float32), np.zeros(32, np.float32)
    args = (tensor_map(x, 32), pointer(x, 16), y)
    found = Kernel(source, "copy").watch(1, 32, args).trace.to_dict()
    assert [each["name"] for each in found["arrays"]] == ["map", "y"]  # x is there once
    (load,) = (s for s in found["blocks"][0]["steps"] if s["kind"] == "load")
    assert (load["array"], load["at"]) == ("map", list(range(16, 48)))


def test_a_fault_of_another_block_is_found() -> None:
    x, y = np.zeros(256, np.float32), np.zeros(129, np.float32)
    kernel = Kernel(SOURCE, "saxpy")
    found = kernel.watch(4, 64, (256, 1.0, x, y), blocks=[(0, 0, 0)])
    assert "[129]" in str(found.fault)
    assert found.trace.to_dict()["blocks"][0]["index"] == [2, 0, 0]
    assert y.tolist() == [0] * 129  # no array changes


@pytest.mark.parametrize(
    ("grid", "args", "blocks", "error", "said"),
    [
        (1, (1, 2.0), (), TypeError, "saxpy takes 4 arguments, not 2"),
        (1, (1, 2.0, "x", None), (), TypeError, "argument 2"),
        (1, (1, 2.0, np.ones(64, np.float32)[::2], None), (), ValueError, "contiguous"),
        (1, (1, 2.0, np.ones(64), None), (), TypeError, "float64"),
        (0, (1, 2.0, None, None), (), ValueError, "grid is 0"),
        (2, (0, 2.0, None, None), [(1, 0)], ValueError, "a block to show is (1, 0)"),
        (2, (0, 2.0, None, None), [1], ValueError, "a block to show is 1; it takes"),
        (2, (0, 2.0, None, None), [(0.5, 0, 0)], ValueError, "a block to show is (0.5, 0, 0)"),
        (2, (0, 2.0, None, None), [(2, 0, 0)], ValueError, "there is no block"),
    ],
)
def test_what_can_not_be_watched(
    grid: int, args: Any, blocks: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        Kernel(SOURCE, "saxpy").watch(grid, 64, args, blocks=blocks)


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 4)])
def test_a_view_whose_rows_are_apart(shape: tuple[int, ...]) -> None:
    """Its finding, its sentence and its place in the trace are of the same element."""
    source = "__global__ void k(const float* x, float* y, int i) { *y = x[i]; }"
    view = np.zeros(shape, np.float32)[..., :3]
    found = Kernel(source, "k").watch(1, 1, (view, np.zeros(1, np.float32), 7))
    assert found.trace.to_dict()["arrays"][0]["leading"] == 4
    last = found.trace.to_dict()["blocks"][0]["steps"][-1]
    element = "x[0][1][3]" if len(shape) > 2 else "x[1][3]"
    assert f" {element}, outside it" in last["say"]
    assert (element if len(shape) > 2 else "row 1, column 3") in last["why"]
