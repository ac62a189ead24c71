"""The command that shows a submission's launch step by step."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewise.exercises.cases import Case
from tilewise.exercises.catalogue import Exercise, exercises
from tilewise.exercises.running import Outcome
from tilewise.specs.arrays import Array

_OWN = re.compile(r"^(whole|spike):")  # values that only exercises have


def command(exercise: Exercise, file: str, outcomes: Sequence[Outcome], seed: int = 0) -> str:
    """Return the command that shows the first visible test that fails; empty if all are right.

    The command launches the test with the test's values. If the exercise does not come with
    tilewise, its folder may be the teacher's alone and is not named: the command then describes the
    launch, and its random values differ from the test's.
    """
    for outcome in outcomes:
        test = outcome.case.test
        if outcome.is_right or test.is_hidden:
            continue
        if exercise not in exercises():
            return _line(exercise, file, outcome.case)
        words = [
            "tilewise", "watch", f"{file}:{exercise.kernel}", "--exercise", exercise.name,
            "--test", test.name.rpartition(" ")[2],
        ]  # fmt: skip
        return shlex.join(words + (["--seed", str(seed)] if seed else []))
    return ""


def of_file(line: str, path: Path, exercise: Exercise) -> str:
    """Return a command of :func:`command` with the path of the file, as it was given."""
    words = shlex.split(line)
    return shlex.join([*words[:2], f"{path}:{exercise.kernel}", *words[3:]]) if words else ""


def _line(exercise: Exercise, file: str, case: Case) -> str:
    words = [
        "tilewise", "watch", f"{file}:{exercise.kernel}", "--grid", _extents(case.grid),
        "--block", _extents(case.block),
    ]  # fmt: skip
    if case.shared:
        words += ["--shared", str(case.shared)]
    words.append("--args")
    for parameter, value in zip(exercise.parameters, case.args, strict=True):
        name = parameter.name
        if isinstance(value, np.ndarray):
            words.append(f"{name}={_array(case, case.test.given.get(name, parameter.text), value)}")
        else:
            words.append(f"{name}={value}")
    return shlex.join(words)


def _extents(extents: Sequence[int]) -> str:
    kept = list(extents)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return ",".join(map(str, kept))


def _array(case: Case, text: str, value: Array) -> str:
    """Return an array's text with numbers in place of the test's sizes."""
    if _OWN.match(text):
        return f"random:{','.join(map(str, value.shape))}"
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(case.sizes.get(m[0], m[0])), text)
