"""Watching a product that is wrong: its wrong elements, with what they are and should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import PLACE, SIGNATURE, RunWatch
from player import Open, classes, seek

from tilewise.errors import RaceError
from tilewise.exercises.cases import make
from tilewise.exercises.catalogue import find
from tilewise.exercises.running import run
from tilewise.kernel import Kernel
from tilewise.ladder.problem import random_problem
from tilewise.lens.tours.find import tour_of
from tilewise.lens.watch import watch, watch_case

pytestmark = pytest.mark.usefixtures("no_machine_code", "ptx_alone")

# Row 3 is twice as large, and nobody writes column 1.
MINE = f"""
extern "C" __global__ void mine{SIGNATURE} {{{PLACE}
    if (row >= m || col >= n || col == 1) return;
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[row * lda + p] * b[p * ldb + col];
    c[row * ldc + col] = alpha * (row == 3 ? 2 * sum : sum) + (beta == 0 ? 0 : beta * c[row * ldc + col]);
    __threadfence();
    __syncwarp(__activemask());
}}
"""  # noqa: E501


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.cu").write_text(MINE)
    return f"{tmp_path}/own.cu:mine"


def trace(own: str, beta: float = 0.0) -> dict[str, Any]:
    return watch(own, 6, 8, 5, tile=4, beta=beta).trace.to_dict()


def test_each_wrong_element_is_there_and_no_other(own: str) -> None:
    a, b, _ = random_problem(6, 8, 5, "float32", 0)
    right = a.astype(np.float64) @ b.astype(np.float64)
    wrong = trace(own)["wrong"]
    places = [(i, j) for i in range(6) for j in range(8) if i == 3 or j == 1]
    assert [tuple(at) for at in wrong["at"]] == places
    assert wrong["right"] == [float(f"{right[at]:.6g}") for at in places]
    for (_, j), computed, should in zip(places, wrong["computed"], wrong["right"], strict=True):
        assert computed is None if j == 1 else computed == pytest.approx(2 * should, rel=1e-5)


def test_with_a_c_of_before_the_launch(own: str) -> None:
    """What nobody writes is what it was, and is known by its value alone."""
    a, b, c = random_problem(6, 8, 5, "float32", 0)
    wrong = trace(own, beta=0.5)["wrong"]
    right = a.astype(np.float64) @ b.astype(np.float64) + 0.5 * c.astype(np.float64)
    number = wrong["at"].index([0, 1])
    assert wrong["computed"][number] == float(f"{c[0, 1]:.6g}")
    assert wrong["right"][number] == float(f"{right[0, 1]:.6g}")


def test_a_right_product_has_none() -> None:
    assert "wrong" not in watch("tiled", 8, 8, 8, tile=4).trace.to_dict()


def test_the_tour_ends_there(own: str) -> None:
    found = trace(own)
    tour, wrong = tour_of(found), found["wrong"]
    assert tour.question == "Where does own.cu:mine go wrong?"
    assert "13 of 48 elements of C are wrong." in tour.sentences
    stop = tour.stops[-1]
    number = wrong["at"].index([3, 0])  # of block (0, 0) the first that it stores
    assert stop.mark == {"array": "c", "at": 3 * 8}
    assert f"C[3][0], is {wrong['computed'][number]}, and should be" in stop.text
    assert str(wrong["right"][number]) in stop.text


def test_the_page_marks_them(own: str, show: Open) -> None:
    found = trace(own)
    tab = show(found)
    steps = found["blocks"][0]["steps"]
    seek(tab, 0)
    assert not classes(tab, ".of-c .grid .cell", "wrong")
    seek(tab, len(steps) - 2)  # this block has stored all of its elements
    assert steps[-2]["kind"] != "store"
    assert classes(tab, ".of-c .grid .cell", "wrong") == [24, 26, 27]
    seek(tab, len(steps) - 1)
    assert classes(tab, ".of-c .grid .cell", "wrong") == [
        8 * i + j for i, j in found["wrong"]["at"]
    ]
    number = found["wrong"]["at"].index([3, 2])
    value = found["wrong"]["right"][number]
    tab.hover(".of-c .grid .cell >> nth=26")
    assert f"right would be {value:.6g}." in tab.inner_text("#tip")
    tab.click(".of-c .grid .cell >> nth=1")
    assert "Nobody writes it; right would be" in tab.inner_text("#story")
    assert "wrong in the end" in tab.inner_text("#arrays .legend")
    assert "the fault" not in tab.inner_text("#arrays .legend")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_opening_leads_to_it(own: str, show: Open, width: int) -> None:
    tab = show(trace(own), width=width, at="")
    tab.click("#to-fault")
    assert tab.inner_text("#tour-title") == "Wrong elements of C"
    assert "right would be" in tab.inner_text("#story")
    found = trace(own)["wrong"]
    computed = found["computed"][found["at"].index([3, 0])]
    assert tab.inner_text("#story").startswith(f"It holds {computed:.6g}.")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    # Neither the card nor the closer look hides the other.
    card, look = (tab.locator(each).bounding_box() for each in ("#tour", "#details"))
    assert card["y"] + card["height"] <= look["y"] or look["y"] + look["height"] <= card["y"]


ONE_DIMENSION = """
__global__ void scale(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i != 70) y[i] = i % 256 == 5 ? 8 : a * x[i];
}
"""
TWO_DIMENSIONS = """
__global__ void scale_rows(int m, int n, const float* s, const float* x, float* y) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row < m && col < n) y[row * n + col] = s[row] * x[row * n + col] + (row == 3 && col < 2);
}
"""


@pytest.mark.parametrize(
    ("name", "source", "wrong", "first"),
    [
        ("index", ONE_DIMENSION, [5, 70, 261, 517, 773], "y[5], is 8.0, and"),
        ("coalescing", TWO_DIMENSIONS, [3 * 64, 3 * 64 + 1], "y[3][0], is"),
        (
            "index",
            ONE_DIMENSION.replace("i % 256 == 5", "0"),
            [70],
            "1 of 1,024 elements of y is wrong. y[70] was never written, and should be",
        ),
    ],
)
def test_wrong_elements_of_an_exercise_are_marked(
    name: str, source: str, wrong: list[int], first: str, show: Open
) -> None:
    """The page marks them as it marks those of C, in arrays of one dimension and of two."""
    exercise = find(name)
    case = make(exercise, exercise.tests[0])
    found = watch_case(Kernel(source, exercise.kernel), case)
    assert not found.correct
    (compared,) = found.compared
    assert compared.wrong == len(wrong)
    trace = found.trace.to_dict()
    tour = tour_of(trace)
    size = case.arrays["y"].size
    verb = "is" if len(wrong) == 1 else "are"
    assert f"{len(wrong)} of {size:,} elements of y {verb} wrong." in tour.sentences
    assert tour.stops[-1].mark == {"array": "y", "at": wrong[0]}
    assert first in tour.stops[-1].text
    tab = show(trace)
    seek(tab, len(trace["blocks"][0]["steps"]) - 1)
    assert classes(tab, ".of-y .grid .cell", "wrong") == wrong
    tab.hover(f".of-y .grid .cell >> nth={wrong[0]}")
    assert "right would be" in tab.inner_text("#tip")


LOST = """__global__ void count_positive(int n, const float* x, int* count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        *count += 1;
    }
}
"""


@pytest.mark.parametrize("of_a_block", ["", "threadIdx.x == 5 && "])
def test_races_in_global_memory_are_found_as_a_grade_finds_them(of_a_block: str) -> None:
    """Those between blocks are no fault of any block that is recorded by itself."""
    exercise = find("bug-atomic")
    case = make(exercise, exercise.tests[0])
    own = LOST.replace("(i <", f"({of_a_block}i <")
    found = watch_case(Kernel(own, exercise.kernel), case)
    graded = run(exercise, own)[1][0].findings
    assert graded
    assert isinstance(found.fault, RaceError)
    assert found.fault.findings == graded
    assert found.trace.fault is None
    assert found.trace.to_dict()["wrong"]["array"] == "count"
    assert "FAULT: " in repr(found)


def test_a_right_count_has_no_races() -> None:
    exercise = find("bug-atomic")
    right = LOST.replace("*count += 1", "atomicAdd(count, 1)")
    found = watch_case(Kernel(right, exercise.kernel), make(exercise, exercise.tests[0]))
    assert found.correct
    assert found.fault is None


def test_races_of_an_exercise_on_the_command_line(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(LOST)
    words = ("own.cu:count_positive", "--exercise", "bug-atomic")
    code, out, err = run_watch(*words, "--trace", "t.json")
    assert code == 1
    assert "the worst is count[0], which is 1 and should be 519" in " ".join(out.split())
    assert "own.cu:5: " in err
    assert "race" in err
    assert json.loads((tmp_path / "t.json").read_text())["wrong"]["array"] == "count"
    code, out, _ = run_watch(*words, "--json")
    assert (code, json.loads(out)["kind"]) == (1, "RaceError")


def test_on_the_command_line(run_watch: RunWatch, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(MINE)
    assert run_watch("own.cu:mine", "--trace", "t.json")[0] == 1
    assert json.loads((tmp_path / "t.json").read_text())["wrong"]["array"] == "c"
