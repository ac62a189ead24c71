"""Watching a kernel with a fault: the page ends there, and shows where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import RunWatch
from player import Open, classes, position

from tilewise.errors import ADVICE, CheckError, MemoryAccessError, RaceError
from tilewise.kernel import Kernel
from tilewise.lens.tours.find import tour_of
from tilewise.lens.watch import Watch, watch

pytestmark = pytest.mark.usefixtures("no_machine_code", "ptx_alone")

TWICE = """
__global__ void twice(int n, float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 2 * x[i];
}
"""
STENCIL = """
__global__ void stencil(int n, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i - 1] + x[i];
}
"""
REVERSE = """
__global__ void reverse(int n, const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[63 - t];
    __syncthreads();
    y[t] += 1;
}
"""
SHIFT = """
__global__ void shift(int n, const float* x, float* y) {
    __shared__ float s[65];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[t + 1];
}
"""
HALF = """
__global__ void half(int n, const float* x, float* y) {
    int t = threadIdx.x;
    if (t < 48) __syncthreads();
    else { y[t] = 0; __syncthreads(); y[t] = x[t]; __syncthreads(); }
}
"""
FAR = """
__global__ void far(int n, const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x + 40] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}
"""
PRODUCT = """
extern "C" __global__ void mine(int m, int n, int k, real alpha, const real* A, int lda,
                                const real* B, int ldb, real beta, real* C, int ldc)
{
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || col >= n) return;
    real sum = 0;
    for (int i = 0; i <= k; ++i) sum += A[row * lda + i] * B[i * ldb + col];
    C[row * ldc + col] = alpha * sum;
}
"""


def seen(source: str, name: str, threads: int = 64, count: int = 64, grid: int = 1) -> Watch:
    arrays = [np.ones(count, np.float32) for _ in range(source.count("float*"))]
    return Kernel(source, name).watch(grid, threads, (count, *arrays))


def last(found: Watch) -> dict[str, Any]:
    step: dict[str, Any] = found.trace.to_dict()["blocks"][0]["steps"][-1]
    return step


@pytest.mark.parametrize(
    ("source", "name", "kind", "line", "fault", "words"),
    [
        (TWICE, "twice", "out of bounds", 4,
         {"thread": 63, "access": "load", "space": "global", "array": "x", "at": 63},
         "x has elements 0 to 62."),
        (STENCIL, "stencil", "out of bounds", 4,
         {"thread": 0, "access": "load", "space": "global", "array": "x", "at": -1},
         "x has elements 0 to 62."),
        (FAR, "far", "out of bounds", 4,
         {"thread": 24, "access": "store", "space": "shared", "array": "s", "at": 64},
         "s has elements 0 to 63."),
        (REVERSE, "reverse", "race", 6,
         {"thread": 0, "space": "shared", "array": "s", "at": 63}, "a barrier between them"),
        (SHIFT, "shift", "uninitialised", 7,
         {"thread": 63, "space": "shared", "array": "s", "at": 64}, "before anybody wrote it"),
        (HALF, "half", "barrier", 4, {"thread": 0}, "reach the same barrier"),
    ],
)  # fmt: skip
def test_the_last_step_is_the_fault(
    source: str, name: str, kind: str, line: int, fault: dict[str, Any], words: str
) -> None:
    count = 63 if name in ("twice", "stencil") else 64
    found = seen(source, name, count=count)
    assert isinstance(found.fault, CheckError)
    (finding,) = found.fault.findings
    step = last(found)
    assert (step["kind"], step["line"], finding.kind, finding.line) == ("fault", line, kind, line)
    assert step["fault"] | fault | {"kind": kind} == step["fault"]
    assert finding.message in step["say"]
    assert words in step["why"]
    assert ADVICE[kind] in step["why"]
    data = found.trace.to_dict()
    assert data["blocks"][0]["first"] == len(data["blocks"][0]["steps"]) - 1
    assert not found.correct
    assert "FAULT" in repr(found)
    tour = tour_of(data)
    assert tour.ends_at_fault
    assert tour.stops[-1].step == data["blocks"][0]["first"]
    assert finding.message[1:] in tour.stops[-1].text
    assert finding.message in tour.sentences[-1]


def test_what_the_others_of_the_access_reach_is_told_too() -> None:
    fault = last(seen(TWICE, "twice", count=63, threads=65))["fault"]
    assert fault["others"] == [*range(63), 64]


def test_the_run_ends_at_the_access_and_not_where_it_was_found() -> None:
    """A race is found at the barrier behind it."""
    steps = seen(REVERSE, "reverse").trace.to_dict()["blocks"][0]["steps"]
    assert not any(step["kind"] == "barrier" for step in steps)
    assert (steps[-2]["kind"], steps[-2]["line"]) == ("load", 6)
    before, fault = tour_of(seen(REVERSE, "reverse").trace.to_dict()).stops[-2:]
    assert (before.title, steps[before.step]["line"]) == ("The other access", 5)
    assert fault.title == "A race"


@pytest.mark.thorough
def test_a_race_before_a_loop_without_end() -> None:
    """The recording is cut in the loop, and the block reaches no barrier."""
    source = REVERSE.replace("__syncthreads();", "while (n) ((volatile float*)y)[0] += 1;")
    found = Kernel(source, "reverse").watch(1, 64, (64, *np.zeros((2, 64), np.float32)))
    assert isinstance(found.fault, RaceError)
    (block,) = found.trace.to_dict()["blocks"]
    assert block["cut"]
    fault = block["steps"][-1]["fault"]
    assert (fault["array"], fault["at"]) == ("s", 63)
    right = source.replace("s[63 - t]", "s[t]")
    assert Kernel(right, "reverse").watch(1, 64, (64, *np.zeros((2, 64), np.float32))).fault is None


@pytest.mark.parametrize("faulty", ["first", "second"])
def test_functions_whose_shared_arrays_have_one_name(faulty: str) -> None:
    """The page shows the fault in the shared array of the faulty function."""
    beyond = {"first": 0, "second": 0, faulty: 1}
    source = "".join(
        f"""
    __device__ __noinline__ void {name}(float* x) {{
        __shared__ float t[32];
        t[threadIdx.x + {beyond[name]}] = *x;
        __syncthreads();
        *x = t[31 - threadIdx.x];
    }}"""
        for name in beyond
    )
    source += """
    extern "C" __global__ void k(float* x) { first(x + threadIdx.x); second(x + threadIdx.x); }"""
    x = np.zeros(32, np.float32)
    found = Kernel(source, "k").watch(1, 32, (x,))
    assert found.fault is not None
    (finding,) = found.fault.findings
    assert (finding.array, finding.index) == (f"{faulty}::t", 32)
    trace = found.trace.to_dict()
    starts = {each["name"]: each["offset"] for each in trace["shared"]}
    assert sorted(starts) == ["first::t", "second::t"]
    last = trace["blocks"][0]["steps"][-1]
    assert (last["fault"]["array"], last["fault"]["at"]) == (f"{faulty}::t", 32)
    assert last["fault"]["others"] == list(range(1, 32))
    assert f"{faulty}::t has elements 0 to 31" in last["why"]


def test_all_who_wait_at_a_barrier_are_there() -> None:
    steps = seen(HALF, "half").trace.to_dict()["blocks"][0]["steps"]
    waiting = [step["threads"] for step in steps if step["kind"] == "barrier"]
    assert waiting == [[[0, 48]], [[48, 16]]]


def test_a_fault_of_a_block_that_was_not_asked_for_is_shown() -> None:
    x = np.zeros(300, np.float32)
    found = Kernel(TWICE, "twice").watch(8, 64, (512, x), blocks=[(0, 0, 0)])
    data = found.trace.to_dict()
    assert [block["index"] for block in data["blocks"]] == [[4, 0, 0]]
    assert "x[300]" in last(found)["say"]
    assert not x.any()


def test_blocks_that_ended_before_are_kept() -> None:
    data = seen(TWICE, "twice", threads=64, grid=2, count=100).trace.to_dict()
    assert [block["index"] for block in data["blocks"]] == [[1, 0, 0], [0, 0, 0]]
    assert data["blocks"][1]["steps"][-1]["kind"] != "fault"


@pytest.mark.parametrize(
    ("declared", "access", "named"),
    [("__device__ float z[4];", "z[threadIdx.x + 4] = *y", "z[4]"), ("", "*y = x[0]", "x[0]")],
    ids=["a variable of the module", "an array without elements"],
)
def test_a_fault_of_what_is_not_shown_is_of_no_other_array(
    declared: str, access: str, named: str
) -> None:
    source = f"{declared}__global__ void f(const float* x, float* y) {{ {access}; }}"
    arrays = np.zeros(0, np.float32), np.zeros(4, np.float32)
    found = Kernel(source, "f").watch(1, 1, arrays)
    step = last(found)
    assert named in step["say"]
    assert step["fault"].keys() == {"kind", "thread", "access"}
    assert step["why"] == ADVICE["out of bounds"]
    assert tour_of(found.trace.to_dict()).ends_at_fault


def test_a_product(tmp_path: Path) -> None:
    """Matrices have the names that the player gives them, whatever the kernel calls its own."""
    (tmp_path / "own.cu").write_text(PRODUCT)
    found = watch(f"{tmp_path}/own.cu:mine", 8, 8, 12, tile=4)
    step = last(found)
    assert step["fault"]["array"] == "b"
    assert step["fault"]["at"] == 12 * 8
    assert (
        "B has rows 0 to 11 and columns 0 to 7; by its address this is row 12, column 0"
        in (step["why"])
    )
    assert "B[12][0]" in step["say"]


def test_on_the_command_line(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(PRODUCT)
    code, out, err = run_watch("own.cu:mine", "--trace", "t.json")
    assert code == 1
    assert out == "own_mine.html: written; open it in a browser\nt.json: written\n"
    assert err.startswith("tilewise: own.cu:8: out of bounds: thread (0, 0, 0) of block (0, 0, 0)")
    assert (tmp_path / "own_mine.html").read_text().startswith("<!doctype html>")
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["blocks"][0]["steps"][-1]["kind"] == "fault"


def test_as_json_and_beside_another(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(PRODUCT)
    code, out, err = run_watch("own.cu:mine", "--beside", "tiled", "--json")
    found = json.loads(out)
    assert (code, found["kind"]) == (1, "MemoryAccessError")
    assert found["findings"][0]["array"] == "B"
    assert found["written"] == {"page": "own_mine_beside_tiled.html"}
    assert (tmp_path / "own_mine_beside_tiled.html").is_file()
    assert "out of bounds" in err


def test_costs_up_to_a_fault_are_not_compared(shared_tab: Any, tmp_path: Path) -> None:
    """A share of what a kernel did up to its fault is no share of the product."""
    (tmp_path / "own.cu").write_text(PRODUCT)
    own, tiled = (watch(name, 8, 8, 12, tile=4) for name in (f"{tmp_path}/own.cu:mine", "tiled"))
    for pair in (own.beside(tiled), tiled.beside(own)):
        pair.save(tmp_path / "two.html")
        tab = shared_tab
        tab.goto("about:blank")
        tab.goto((tmp_path / "two.html").as_uri())
        tab.wait_for_selector("body[data-step]")
        tab.keyboard.press("End")
        assert not "".join(tab.locator("#costs-table td:last-child").all_inner_texts())
        assert tab.inner_text("#costs-note") == (
            "Not compared: own.cu:mine stops at a fault, with a part of the work done."
        )
        told = tab.locator(".told.cut").all_inner_texts()
        assert told == ["FAULT: out of bounds at line 8; it stops there"]


def test_a_launch_on_the_command_line(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(TWICE)
    words = ("own.cu:twice", "--grid", 2, "--block", 64, "--args", "n=100", "x=ones:n")
    code, out, err = run_watch(*words)
    assert (code, "x[100]" in err, out.count("written")) == (1, True, 1)
    assert run_watch(*words[:-1], "x=ones:128")[0] == 0


def test_the_page_draws_it_outside_of_the_matrix(show: Open, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(PRODUCT)
    tab = show(watch(f"{tmp_path}/own.cu:mine", 8, 8, 12, tile=4).trace.to_dict())
    assert position(tab) == int(tab.get_attribute("#slider", "max"))
    assert tab.inner_text(".of-b .fault-place") == "✗ b[12][0]: 1 row below the last"
    grid, own = tab.locator(".of-b .grid").bounding_box(), tab.locator(".of-b .outside.own")
    box = own.bounding_box()
    assert box["y"] >= grid["y"] + grid["height"] - 0.5
    assert box["x"] == pytest.approx(grid["x"], abs=0.5)
    assert tab.locator(".of-b .outside").count() == 4  # a row of the tile's
    assert classes(tab, "#threads .grid .cell", "bad") == [0]
    tab.click("#back")
    assert tab.locator(".of-b .outside.off").count() == 4
    assert not tab.is_visible(".of-b .fault-place")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_opening_leads_to_it(show: Open, width: int) -> None:
    tab = show(seen(SHIFT, "shift").trace.to_dict(), width=width, at="")
    assert tab.inner_text("#h-opening") == "Where does shift go wrong?"
    tab.click("#to-fault")
    assert tab.inner_text("#tour-title") == "Nobody wrote it"
    assert classes(tab, "#shared .grid .cell", "bad") == [64]
    assert tab.inner_text("#shared .fault-place") == "✗ s[64]"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_fault_far_away_is_drawn_at_the_edge(show: Open) -> None:
    source = TWICE.replace("x[i] = 2 * x[i]", "x[1000 * i] = 1")
    found = seen(source, "twice", threads=2, count=64)
    assert isinstance(found.fault, MemoryAccessError)
    tab = show(found.trace.to_dict())
    assert tab.inner_text(".of-x .fault-place") == "✗ x[1000]: 937 elements past the last"
    grid, box = (tab.locator(f".of-x {x}").bounding_box() for x in (".grid", ".outside.own"))
    assert box["y"] - grid["y"] - grid["height"] < box["height"] + 1


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ("32 + i", "s[32].z: 1 vector past the last"),
        ("33 + i", "s[33].z: 2 vectors past the last"),
        ("i - 2", "s[-2].z: 2 vectors before the first"),
    ],
)
def test_what_is_outside_of_an_array_of_vectors_is_counted_in_vectors(
    show: Open, index: str, name: str
) -> None:
    source = """
    __global__ void k(int n, float* x) {
        __shared__ float4 s[32];
        int i = threadIdx.x;
        s[i] = make_float4(x[i], 0, 0, 0);
        __syncthreads();
        x[i] = s[INDEX].z;
    }"""
    found = seen(source.replace("INDEX", index), "k", threads=32)
    tab = show(found.trace.to_dict())
    assert tab.inner_text("#shared .fault-place") == f"✗ {name}"


@pytest.mark.parametrize(
    ("declared", "element", "name"),
    [
        ("float s[4][8]", "s[4][i % 8]", "s[4][0]: 1 row below the last"),
        ("float s[4][8]", "s[i / 8 - 2][i % 8]", "s[-2][0]: 2 rows above the first"),
        ("float s[4][8]", "s[i / 8][i % 8 + 16]", "s[4][0]: 1 row below the last"),
        ("float s[2][2][8]", "s[i / 16 + 1][1][i % 8]", "s[2][1][0]: 2 rows below the last"),
        ("float2 s[4][8]", "s[5][i % 8].y", "s[5][0].y: 2 rows below the last"),
    ],
)
def test_what_is_outside_of_an_array_of_rows_is_counted_in_rows(
    show: Open, declared: str, element: str, name: str
) -> None:
    source = """
    __global__ void rows(int n, float* x) {
        __shared__ DECLARED;
        int i = threadIdx.x;
        reinterpret_cast<float (&)[sizeof(s) / 4]>(s)[i] = x[i];
        __syncthreads();
        x[i] = ELEMENT;
    }"""
    given = source.replace("DECLARED", declared).replace("ELEMENT", element)
    found = seen(given, "rows", threads=32)
    tab = show(found.trace.to_dict())
    assert tab.inner_text("#shared .fault-place") == f"✗ {name}"
