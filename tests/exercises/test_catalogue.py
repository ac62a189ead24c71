"""The exercises as they are handed out: whole, consistent, and with nothing given away."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tilewise.exercises import cases, catalogue
from tilewise.exercises.catalogue import FOLDER, SPEC, Exercise, exercises, find, read
from tilewise.exercises.goals import FIGURES
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("ptx_alone")

EACH = pytest.mark.parametrize("exercise", exercises(), ids=lambda each: each.name)


def test_there_are_enough_in_the_order_of_the_folders() -> None:
    names = [each.name for each in exercises()]
    assert len(names) >= 20
    assert len(set(names)) == len(names)
    assert (names[0], names[-1]) == ("index", "persistent")
    assert sum(name.startswith("bug-") for name in names) >= 4
    topics = (
        "coalescing tiling boundary bank-conflicts padding transpose reduction scan histogram "
        "stencil softmax register-tiles vector-loads occupancy double-buffering shuffle mma "
        "swizzle epilogue"
    )
    for name in topics.split():
        assert find(name).name == name


@EACH
def test_an_exercise_is_whole(exercise: Exercise) -> None:
    """A page of text under its title, tests of both kinds, a goal or a bug, figures that exist."""
    lines = exercise.text.splitlines()
    assert lines[0] == f"# {exercise.title}"
    assert any(line.startswith("**To do.**") for line in lines)
    assert len(exercise.text.split()) >= 120
    assert max(map(len, lines)) <= 130
    hidden = [test for test in exercise.tests if test.is_hidden]
    assert len(exercise.tests) - len(hidden) >= 2
    assert hidden
    assert exercise.goals or exercise.name in ("boundary", "bug-bounds")
    assert {goal.figure for goal in exercise.goals} <= set(FIGURES)
    shown = exercise.to_dict()
    assert len(shown["tests"]) + shown["hidden_tests"] == len(exercise.tests)
    assert not any("hidden" in test["name"] for test in shown["tests"])


@pytest.mark.sampled(5)
@EACH
def test_its_files_compile_and_say_what_the_exercise_launches(exercise: Exercise) -> None:
    for source in (exercise.start, exercise.solution):
        compiled = Kernel(source, exercise.kernel).compile()
        assert [each.declared for each in compiled.parameters] == [
            each.type for each in exercise.parameters
        ]
        assert compiled.resources.spill_bytes == 0
    # A line for a student to complete, or a bug that the file admits to have.
    assert re.search(r"TODO|bug|Right", exercise.start)
    assert "TODO" not in exercise.solution


@EACH
def test_the_seed_draws_values_and_hidden_sizes(exercise: Exercise) -> None:
    for test in exercise.tests:
        one, same, other = (cases.make(exercise, test, seed) for seed in (3, 3, 4))
        assert one.sizes == same.sizes
        assert one.grid == same.grid
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, same.arrays[name])
        drawn = [
            name for name, array in one.arrays.items()
            if array.shape != other.arrays[name].shape
            or not np.array_equal(array, other.arrays[name], equal_nan=array.dtype.kind == "f")
        ]  # fmt: skip
        is_fixed = all(
            re.match("full|ones|zeros|arange|empty", test.given.get(each.name, each.text))
            for each in exercise.parameters
            if each.type.endswith("*")
        )
        assert drawn or is_fixed
        for each in one.expected:  # what nobody wrote is seen as unwritten, or it was given
            array = one.arrays[each.name]
            assert cases.unwritten(array).all() or not cases.unwritten(array).any()


def test_whole_numbers_have_no_zero_and_sum_up_without_rounding() -> None:
    exercise = find("tiling")
    case = cases.make(exercise, exercise.tests[0])
    a, b = case.arrays["a"], case.arrays["b"]
    assert {*np.unique(a)} == {*range(-4, 0), *range(1, 5)}
    np.testing.assert_array_equal((a @ b).astype(np.float64), case.expected[0].value)
    assert case.expected[0].error is None


def test_a_name_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no exercise 'reducton'; did you mean reduction\?"):
        find("reducton")
    with pytest.raises(FileNotFoundError, match=r"is no exercise: it has no exercise\.toml"):
        find(str(tmp_path))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a copy of an exercise."""
    shutil.copytree(FOLDER / "01_index", tmp_path / "mine")
    return tmp_path / "mine"


def test_an_exercise_of_ones_own(own: Path) -> None:
    found = find(str(own))
    assert (found.name, found.title) == ("mine", find("index").title)
    assert found.file == "mine.cu"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('kernel = "scale"', "", "kernel is missing"),
        ('kernel = "scale"', 'kernel = "scale"\ncolour = 3', "colour is not known"),
        ("float a = 2.5", "float a", "the parameter 'float a' is not understood"),
        ("n = 1024", "n = 1.5", r"test 1 has n = 1\.5; it takes sizes"),
        ("n = [1500, 3000]", "n = [3000, 1500]", "hidden test 1 has n"),
        ("at_most", "atmost", "the goal .* is not understood"),
        ("[[tests]]", "[[tests", "exercise.toml: "),
    ],
)
def test_a_wrong_file_of_tests_is_told(own: Path, old: str, new: str, told: str) -> None:
    text = (own / SPEC).read_text()
    assert old in text
    (own / SPEC).write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=told):
        read(own)


def test_a_file_that_is_missing(own: Path) -> None:
    (own / catalogue.SOLUTION).unlink()
    with pytest.raises(FileNotFoundError, match=r"has no solution\.cu"):
        read(own)
