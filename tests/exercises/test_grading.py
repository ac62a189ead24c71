"""Grades: what a student is told, and what somebody gets who tries to cheat or to do harm."""

from __future__ import annotations

import html
import json
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from reference import some

from tilewise.cli.main import main
from tilewise.exercises.cases import make
from tilewise.exercises.catalogue import Exercise, exercises, find
from tilewise.exercises.grading import FAULTS, FULL, GOALS, NOT_RUN, RESULTS, Grade, grade
from tilewise.exercises.running import MOST_SOURCE

INDEX = """__global__ void scale(int n, float a, const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    %s
}
"""


def graded(body: str, exercise: str = "index", **more: object) -> Grade:
    """The grade of a body of ``scale``, or of a whole source."""
    is_body = exercise.endswith(("index", "mine")) and "__global__" not in body
    source = INDEX % body if is_body else body
    return grade(exercise, source, "mine.cu", **{"seconds": 30.0, **more})  # type: ignore[arg-type]


def shortened(name: str) -> Exercise:
    """An exercise with only the first of its tests."""
    exercise = find(name)
    return replace(exercise, tests=exercise.tests[:1])


def test_points() -> None:
    whole = graded("if (i < n) y[i] = a * x[i];")
    assert (whole.results, whole.faults, whole.goals) == (RESULTS, FAULTS, GOALS)
    assert (whole.score, whole.is_right, whole.hints) == (FULL, True, ())
    some = graded("if (i < n && n != 1) y[i] = a * x[i];")
    assert (some.results, some.faults, some.goals) == (RESULTS * 4 / 5, 0, 0)
    assert not some.is_right
    twice = "const volatile float* v = x; if (i < n) { v[i]; y[i] = a * v[i]; }"
    slow = graded(twice)
    assert (slow.results, slow.faults, slow.goals) == (RESULTS, FAULTS, 0)
    assert not slow.is_right
    without_goals = grade("bug-bounds", find("bug-bounds").solution, seconds=30)
    assert (without_goals.results, without_goals.goals) == (RESULTS + GOALS, 0)
    assert without_goals.score == FULL


def test_a_grade_shows_itself_in_a_notebook() -> None:
    """As much as it prints: each test, goal, fault and hint has a row, escaped."""
    found = grade("coalescing", find("coalescing").start, "mine.cu", seconds=30)
    assert repr(found) == "<Grade: mine.cu: 70 of 100 points>"
    page = found._repr_html_()
    said = [*(x.said for x in found.goal_results), *found.hints, *(x.name for x in found.tests)]
    assert found.goal_results
    assert all(html.escape(each) in page for each in said)
    assert page.count("<tr>") == len(said)
    refused = grade("index", "int main() {", "<b>.cu", seconds=30)
    assert html.escape(refused.refused) in refused._repr_html_()
    assert "<b>" not in refused._repr_html_()
    fault = grade("bug-bounds", find("bug-bounds").start, "b.cu", seconds=30)
    assert fault.faults_said
    assert all(html.escape(each) in fault._repr_html_() for each in fault.faults_said)


def test_a_fault_is_no_right_result_although_the_values_are() -> None:
    found = grade("bug-bounds", find("bug-bounds").start, "b.cu", seconds=30)
    assert found.score == 0
    assert {(each.kind, each.line) for each, _ in found.findings} >= {("out of bounds", 8)}
    assert found.faults_said[0].startswith("line 6: out of bounds: ")
    assert "a fault was found: elsewhere it can be wrong" in found.tests[0].said
    assert any("array's size" in hint for hint in found.hints)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if (i < n - 1) y[i] = a * x[i];", "never written in element 1023, the last of 1,024"),
        ("if (i < n / 2) y[i] = a * x[i];", "elements 512 to 1023, the last 512 of 1,024"),
        ("if (i < n) y[i] = x[i];", "Each wrong element of y is 0.4 times what it should be."),
        ("if (i < n) y[i] = 0;", "The wrong elements of y are 0."),
        ("if (i < n) y[i] = a * x[i + 1 < n ? i + 1 : i];", "y[i + 1] should have."),
        ("if (i < n && threadIdx.x) y[i] = a * x[i];", "exactly where i % 256 is 0; all else"),
        ("if (i == 0) y[i] = a * x[i];", "in elements 1 to 1023, the last 1,023 of 1,024"),
        ("if (i < n) y[i] = nanf(\"\");", "are NaN"),
        ("", "No element of y was written."),
    ],
)  # fmt: skip
def test_where_a_result_is_wrong_and_how(body: str, told: str) -> None:
    found = graded(body, until_wrong=True)
    assert not found.is_right
    assert any(told in hint for hint in found.hints), found.hints


def test_hints_say_what_each_line_does() -> None:
    found = grade(shortened("coalescing"), find("coalescing").start, seconds=30)
    assert "Line 7: a warp's store touches 16 sectors on average; 4 would do" in " ".join(
        found.hints
    )
    conflicts = grade(shortened("padding"), find("padding").start, seconds=30)
    assert "takes 32 turns of the banks on average; 1 would do" in " ".join(conflicts.hints)
    again = grade(shortened("double-buffering"), find("double-buffering").start, seconds=30)
    assert "Line 19: each warp waits 4 times at the barrier." in again.hints
    assert all(each.goal.aim in again.hints for each in again.goal_results if not each.is_met)
    narrow = """__global__ void axpy(int n, float a, const float* x, float* y) {
        int i = blockIdx.x * 1024 + threadIdx.x;
        for (int j = 0; j < 4; ++j, i += 256) if (i < n) y[i] += a * x[i];
    }"""
    few = grade(shortened("vector-loads"), narrow, seconds=30)
    assert "4 bytes a lane on average; lanes that move 16 bytes each need fewer" in " ".join(
        few.hints
    )


def test_hidden_tests_tell_neither_sizes_nor_values() -> None:
    """Known sizes and values are no help: hidden tests have others, drawn from the seed."""
    cheat = "if (i < n && (n == 1024 || n == 1000 || n == 1)) y[i] = a * x[i];"
    found = graded(cheat)
    assert [each.is_right for each in found.tests] == [True, True, True, False, False]
    assert found.results == RESULTS * 3 / 5
    hidden = [each for each in found.tests if each.is_hidden]
    assert [(each.about, each.said) for each in hidden] == [
        ("", "some elements were never written")
    ] * 2
    assert "a hidden one is not" in found.hints[0]
    # A goal's limit is often the size: only those of visible tests are told.
    model = grade("index", find("index").solution)
    assert model.goal_results
    assert not any("hidden" in goal.said or goal.is_hidden for goal in model.goal_results)
    goal = replace(model.goal_results[0], test="hidden test 1", is_hidden=True)
    assert goal.said == "global load sectors: as the goal asks in hidden test 1"
    assert not {"got", "at_most"} & set(goal.to_dict())
    told = graded(cheat, shows_hidden=True)
    assert all("n = " in each.about for each in told.tests if each.is_hidden)
    past = graded("if (i < n || n > 1024) y[i] = a * x[i];")
    assert past.findings[0][1]
    assert past.faults_said == ["line 4: out of bounds: found in a hidden test"]
    table = ", ".join(["1.0f"] * 8)
    by_heart = f"__constant__ float t[] = {{{table}}};\n" + INDEX % "if (i < n) y[i] = t[i % 8];"
    assert not graded(by_heart).is_right


def test_other_seeds_have_other_values() -> None:
    sizes = {graded("", seed=seed, shows_hidden=True).tests[3].about for seed in range(3)}
    assert len(sizes) == 3


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("__global__ void other(int n) {}", "no kernel called 'scale'; it has other"),
        ("__global__ void scale(int n, const float* x, float* y) {}",
         "and the exercise launches scale(int n, float a, const float* x, float* y)"),
        ("__global__ void scale(int n, double a, const float* x, float* y) {}",
         "the kernel is scale(int n, double a"),
        (INDEX % "if (i < m) y[i] = 0;", 'mine.cu:4: error: identifier "m" is undefined'),
        ('#include "/etc/passwd"\n' + INDEX % "", "a submission is one file"),
        ('#include "../../secret.h"\n' + INDEX % "", '"../../secret.h"'),
        ('#include <cuda.h>\n#include "/proc/self/environ"\n' + INDEX % "", "mine.cu:2: error"),
        ("", "no kernel"),
        ("int main() { return 0; }", "no kernel"),
        ("/" * (MOST_SOURCE + 1), "characters; a submission has"),
    ],
)  # fmt: skip
def test_what_does_not_run_has_no_points(source: str, told: str) -> None:
    found = grade("index", source, "mine.cu", seconds=30)
    assert told in found.refused
    assert "root:" not in found.refused
    assert (found.score, found.is_right, found.tests) == (0, False, ())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("while (n) y[0] += a;", "instructions"),
        ("if (threadIdx.x == 0) for (;;) y[i] += x[0];", "instructions"),
        ('for (;;) printf("for ever and ever, %d\\n", i);', "output"),
        ("*(volatile int*)nullptr = i;", ""),
        ("__trap();", "trap"),
        ("float s[20000]; for (int j = 0; j < n; j += 64) s[j * 7] = j; y[i] = s[n];", ""),
        ("y[i] = malloc(1 << 30) != nullptr;", "malloc"),
        ("asm volatile(\"exit;\");", "never written"),
        ("for (long long j = 0; j < (1ll << 40); ++j) y[j + 5000] = 1;", ""),
    ],
)  # fmt: skip
def test_what_does_harm_ends_soon_without_points(body: str, told: str) -> None:
    """Loops and output without end, wild writes, traps, memory: each ends, and says why."""
    few = replace(find("index"), instructions=10_000)
    begun = time.monotonic()
    found = grade(few, INDEX % body, "mine.cu", seconds=30)
    assert found.score == 0
    assert told in found.tests[0].said + " ".join(each.said for each in found.tests) + " ".join(
        found.hints
    )
    assert time.monotonic() - begun < 30


def test_memory_that_is_not_there() -> None:
    source = "__device__ float all[1 << 29];\n" + INDEX % "all[i * 1000] = 1; y[i] = all[n];"
    found = grade("index", source, seconds=30)
    assert found.score == 0


def test_a_launch_that_is_stopped_is_the_last() -> None:
    found = graded("if (n == 1000) while (n) y[0] += a; if (i < n) y[i] = a * x[i];")
    assert [each.is_right for each in found.tests] == [True, False, False, False, False]
    assert "at line 4" in found.tests[1].said
    assert found.tests[2].said == NOT_RUN
    assert len(found.tests) == len(find("index").tests)


def test_faults_are_told_of_a_launch_that_is_stopped_after_them() -> None:
    found = graded("if (n == 1024) { y[n] = 0; while (n) y[0] += a; } if (i < n) y[i] = a * x[i];")
    first, second, *_ = found.tests
    assert first.is_stopped
    assert "it takes more than" in first.said
    assert second.said == NOT_RUN
    assert "out of bounds" in {each.kind for each, _ in found.findings}
    assert found.hints


def test_an_input_must_stay_as_it_is() -> None:
    found = graded("if (i < n) { y[i] = a * x[i]; ((float*)x)[i] = 0; }")
    assert found.tests[0].said == "it changes x, which is an input"
    assert not found.is_right


def test_what_nobody_wrote_is_wrong_also_where_nan_is_right() -> None:
    test = replace(find("index").tests[0], given={"x": "full:n:nan"})
    exercise = replace(find("index"), tests=(test,))
    whole, nothing = ("if (i < n) y[i] = a * x[i];", "")
    assert grade(exercise, INDEX % whole, seconds=30).is_right
    found = grade(exercise, INDEX % nothing, seconds=30)
    assert found.score == 0
    assert "never written" in found.tests[0].said


def test_what_it_prints_is_shown_without_control_characters() -> None:
    found = graded('if (i == 0) printf("\\033[31mhello\\n"); if (i < n) y[i] = a * x[i];')
    assert found.printed == "?[31mhello\n"
    assert found.is_right


def test_the_submission_chooses_the_block_where_it_may() -> None:
    source = (INDEX % "if (i < n) y[i] = a * x[i];").replace("void ", "void __launch_bounds__(64) ")
    assert grade("index", source, seconds=30).is_right
    fixed = find("grid-stride").solution.replace("void ", "void __launch_bounds__(64) ", 1)
    assert not grade("grid-stride", fixed, seconds=30).is_right


def test_what_it_takes_is_checked() -> None:
    with pytest.raises(ValueError, match="seed is -1; it must be at least 0"):
        grade("index", "", seed=-1)
    with pytest.raises(ValueError, match="seconds is 0; it must be above 0"):
        grade("index", "", seconds=0)


def test_nbgrader_takes_points_and_for_none_an_error() -> None:
    found = grade("index", find("index").solution, seconds=30)
    assert found.for_nbgrader(points=4) == 4
    part = graded("if (i < n && n != 1) y[i] = a * x[i];")
    assert part.for_nbgrader(points=10) == 4.8
    with pytest.raises(AssertionError, match=r"mine\.cu: 0 of 100 points"):
        graded("").for_nbgrader()


def test_a_grade_takes_seconds(tmp_path: Path) -> None:
    """In a warm process: half of what a submission may take, though other tests use the cores."""
    begun = time.process_time()
    for name in some(("index", "softmax", "persistent"), 1):
        assert grade(name, find(name).solution, seconds=60).is_right
    assert time.process_time() - begun < 5


def test_what_is_wrong_can_be_watched() -> None:
    found = graded("y[i] = a * x[i];")
    assert found.watch == "tilewise watch mine.cu:scale --exercise index --test 2"
    assert graded("if (i < n) y[i] = a * x[i];").watch == ""
    hidden = graded("if (i < n && n < 1500) y[i] = a * x[i];")
    assert not hidden.is_right
    assert hidden.watch == ""
    some = graded("if (i < n && n != 1) y[i] = a * x[i];", seed=7)
    assert some.watch == "tilewise watch mine.cu:scale --exercise index --test 3 --seed 7"


def test_an_exercise_of_ones_own_is_watched_without_its_folder(tmp_path: Path) -> None:
    """A student may not have the folder, and must not see where the teacher has it."""
    folder = tmp_path / "mine"
    shutil.copytree(find("index").folder, folder)
    found = graded("y[i] = a * x[i];", str(folder))
    assert found.watch == (
        "tilewise watch mine.cu:scale --grid 4 --block 256 --args n=1000 a=2.5 x=random:1000 "
        "y=empty:1000"
    )


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("if (i < n && i % 3) y[i] = a * x[i];", list(range(0, 1024, 3))),
        ("if (i < n) y[i] = i == 999 ? 5 : a * x[i];", [999]),
    ],
)
def test_the_page_marks_the_elements_that_are_wrong_in_the_test(
    body: str, wrong: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page marks all of them and no others, with the values of the test itself."""
    monkeypatch.chdir(tmp_path)
    Path("mine.cu").write_text(INDEX % body)
    words = shlex.split(graded(body, seed=3).watch)
    assert main([*words[1:], "--trace", "t.json"]) == 1
    trace = json.loads(Path("t.json").read_text())
    y = next(each for each in trace["arrays"] if each["name"] == "y")
    marked = trace["wrong"]
    assert marked["array"] == "y"
    assert [row * y["leading"] + column for row, column in marked["at"]] == wrong
    index = find("index")
    case = make(index, index.tests[0], 3)
    (expected,) = case.expected
    assert marked["right"] == [float(f"{expected.value[i]:.6g}") for i in wrong]
    assert marked["computed"] == [5.0 if i == 999 and len(wrong) == 1 else None for i in wrong]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--exercise index --test 9", "index has visible tests 1 to 3, and no test 9"),
        ("--exercise index --test 0", "index has visible tests 1 to 3, and no test 0"),
        (
            "--exercise transpose",
            "transpose takes a kernel transpose, as FILE.cu:transpose, and not mine.cu",
        ),
        ("--exercise indx", "there is no exercise 'indx'; did you mean index?"),
        ("--exercise index -m 5", "-m can't be combined with --exercise; leave it out"),
        ("--exercise index --beside tiled", "--beside can't be combined with --exercise"),
        ("--test 2", "--test chooses a test of an exercise; give --exercise too"),
    ],
)
def test_options_that_an_exercise_s_test_refuses(
    words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("mine.cu").write_text(INDEX % "if (i < n) y[i] = a * x[i];")
    assert main(["watch", "mine.cu:scale", *words.split()]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("each", exercises(), ids=lambda each: each.name)
def test_the_command_launches_each_exercise(each: Exercise, tmp_path: Path) -> None:
    """As it is to be completed, or with its bug: what is not right is shown."""
    (tmp_path / each.file).write_text(each.start)
    found = grade(each, each.start, f"{tmp_path / each.file}", seconds=30, until_wrong=True)
    if not found.watch:
        assert found.refused or all(x.is_right for x in found.tests if not x.is_hidden)
        return
    command, verb, *words = shlex.split(found.watch)
    assert (command, verb) == ("tilewise", "watch")
    assert main(["watch", *words, "-o", f"{tmp_path}/page.html"]) in (0, 1)
    assert (tmp_path / "page.html").is_file()
