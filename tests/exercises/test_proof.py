"""The proof of the tests: right solutions pass, however they are written, and wrong ones do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mutants import Mutant, mutants

from tilewise.errors import TilewiseError
from tilewise.exercises.catalogue import Exercise, exercises, find
from tilewise.exercises.grading import FULL, grade
from tilewise.kernel import Kernel

RIGHT = sorted((Path(__file__).parent / "right").glob("*.cu"))
MANY = 60.0  # seconds: how long it takes here is not what these tests are about
WRONG = 12  # variants of each model solution

EQUIVALENT = {
    ("stencil", "left > 0"): "left is never 0: below in the first block, above in the others",
    ("stencil", "left >= 1"): "left is never 0: below in the first block, above in the others",
    ("reduction", "t == 1"): "any one thread may store the block's sum",
    ("bug-barrier", "t == 1"): "any one thread may store the block's largest",
    ("shuffle", "t / 31"): "t / 31 is t / 32 for the first lane of each of the eight warps",
    ("scan", "x[t] : 1"): "what lies behind the row is in no sum of the row",
    ("scan", "x[t] : -1"): "what lies behind the row is in no sum of the row",
    ("softmax", "i += 127) largest"): "each element is looked at, and some twice",
    ("occupancy", "LONGEST 1025"): "a larger array, of which no more is used",
    ("persistent", "blockDim.x / 31"): "256 / 31 is 8, as 256 / 32 is",
    ("register-tiles", "y = -1"): "it is undefined, and the compiler leaves the access out",
    ("swizzle", "8 / i"): "it divides by 0, which is undefined, and gives what is needed",
    ("mma", "8 / i"): "it divides by 0, which is undefined, and gives what is needed",
    **{
        (name, f": {value};"): "the other matrix's tile holds 0 there"
        for name in ("tiling", "register-tiles", "double-buffering") for value in (1, -1)
    },
}  # fmt: skip
"""Changes that make no difference, or none that a run can show, and why: by what the line has
behind the change."""


def reason(exercise: Exercise, mutant: Mutant) -> str:
    """Why a variant is as right as the solution; empty where it is not known to be."""
    new = mutant.change.partition("  ->  ")[2]
    return next(
        (why for (name, part), why in EQUIVALENT.items() if name == exercise.name and part in new),
        "",
    )


def code(exercise: Exercise, source: str) -> str:
    """The PTX of a kernel, without what only says where it comes from; empty if there is none."""
    try:
        ptx = Kernel(source, exercise.kernel).compile().ptx
    except TilewiseError:
        return ""
    return re.sub(r"(?m)^\s*\.loc.*\n|^//.*\n", "", ptx.partition(".section")[0])


def spread(exercise: Exercise) -> list[Mutant]:
    """All variants of the model solution, in an order that mixes their kinds."""
    found = list({each.source: each for each in mutants(exercise.solution)}.values())
    step = next(x for x in (7, 11, 13, 17, 19, 23) if len(found) % x)
    return [found[i * step % len(found)] for i in range(len(found))]


@pytest.mark.sampled(13)
@pytest.mark.parametrize("exercise", exercises(), ids=lambda each: each.name)
def test_the_model_solution_has_all_points_and_the_start_has_not(exercise: Exercise) -> None:
    found = grade(exercise, exercise.solution, seconds=MANY)
    assert found.is_right, str(found)
    assert found.score == FULL
    start = grade(exercise, exercise.start, seconds=MANY)
    assert not start.is_right
    assert not start.refused
    assert start.hints or start.findings


@pytest.mark.thorough
@pytest.mark.parametrize("exercise", exercises(), ids=lambda each: each.name)
def test_the_model_solution_is_right_with_other_seeds(exercise: Exercise) -> None:
    for seed in (1, 2026):
        found = grade(exercise, exercise.solution, seed=seed, seconds=MANY)
        assert found.is_right, str(found)


@pytest.mark.sampled(28)
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_what_is_written_otherwise_and_right_passes(path: Path) -> None:
    exercise = find(path.stem.rpartition("_")[0].replace("_", "-"))
    for seed in (0, 3):
        found = grade(exercise, path.read_text(), path.name, seed=seed, seconds=MANY)
        assert found.is_right, str(found)


def test_there_are_enough_of_both() -> None:
    assert len(RIGHT) >= 40
    assert len({code(find(x.stem.rpartition("_")[0].replace("_", "-")), x.read_text())
                for x in RIGHT[:8]}) == 8  # fmt: skip
    assert WRONG * len(exercises()) >= 200
    for exercise in exercises():
        assert len(spread(exercise)) >= WRONG
        assert len(list(Path(__file__).parent.glob(f"right/{exercise.file[:-3]}_?.cu"))) >= 2


@pytest.mark.sampled(26)
@pytest.mark.parametrize("exercise", exercises(), ids=lambda each: each.name)
def test_no_wrong_variant_passes(exercise: Exercise) -> None:
    """Each differs from the model solution in one place, and in what it makes of it."""
    own, wrong = code(exercise, exercise.solution), 0
    for mutant in spread(exercise):
        its = code(exercise, mutant.source)
        if not its or its == own or reason(exercise, mutant):
            continue  # it does not compile, or to the same instructions
        found = grade(exercise, mutant.source, seconds=MANY, until_wrong=True)
        assert not found.is_right, f"{exercise.name} passes with {mutant}"
        assert found.score < FULL
        wrong += 1
        if wrong == WRONG:
            break
    assert wrong >= 9  # of a short kernel there are no more


def test_every_equivalent_change_is_one_of_the_variants() -> None:
    """What is mended leaves the list."""
    for name, part in EQUIVALENT:
        changes = [each.change.partition("  ->  ")[2] for each in mutants(find(name).solution)]
        assert any(part in change for change in changes), (name, part)
