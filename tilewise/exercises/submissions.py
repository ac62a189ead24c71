"""Folders of submissions: find the files, read them with care, and grade them in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.compiler.ahead import cores
from tilewise.exercises.catalogue import Exercise
from tilewise.exercises.grading import FAULTS, GOALS, RESULTS, Grade, grade
from tilewise.exercises.running import MOST_SOURCE

SUFFIX = ".cu"


@dataclass(frozen=True)
class Submission:
    """A file that a student handed in.

    Attributes
    ----------
    path : Path
    name : str
        Its path below the folder that is graded, or the file's name.
    """

    path: Path
    name: str

    @property
    def student(self) -> str:
        """The name of its folder, or its own name if it is in none."""
        first, *more = Path(self.name).parts
        return first if more else Path(self.name).stem


def find(path: Path, exercise: Exercise) -> list[Submission]:
    """Return the submissions at a path: the file, or all files ``*.cu`` below the folder.

    Where a folder below ``path`` has a file of the exercise's name, its other files are left out.
    Links are left out, as they may lead to files that are not the student's, and so are hidden
    files.

    Raises
    ------
    FileNotFoundError
        If there is no such path, or no submission in the folder.
    ValueError
        If the file is none of CUDA C++.
    """
    if not path.exists():
        likely = path.with_name(exercise.file) if path.name else path
        meant = f"; did you mean {likely}?" if likely.is_file() else ""
        raise FileNotFoundError(f"there is no file {path}{meant}")
    if not path.is_dir():
        if not path.is_file() or path.suffix not in (SUFFIX, ".cuh"):
            raise ValueError(f"{path} is no file {SUFFIX}, and no folder of them")
        return [Submission(path, path.name)]
    by_folder: dict[Path, list[Path]] = {}
    for each in sorted(path.rglob(f"*{SUFFIX}")):
        below = each.relative_to(path).parts
        parts = [path.joinpath(*below[: depth + 1]) for depth in range(len(below))]
        is_own = not any(part.is_symlink() or part.name.startswith(".") for part in parts)
        if is_own and each.is_file():
            by_folder.setdefault(each.parent, []).append(each)
    found = []
    for folder, files in by_folder.items():
        own = [each for each in files if each.name == exercise.file]
        found += [
            Submission(each, each.relative_to(path).as_posix())
            for each in (own if own and folder != path else files)
        ]
    if not found:
        raise FileNotFoundError(f"there is no file *{SUFFIX} in {path}")
    return sorted(found, key=lambda each: each.name)


def read(submission: Submission) -> str:
    """Return the text of a submission.

    Raises
    ------
    ValueError
        If it is too long, or no text.
    OSError
        If it can't be read.
    """
    with submission.path.open("rb") as file:
        data = file.read(4 * MOST_SOURCE + 1)
    if len(data) > 4 * MOST_SOURCE:
        raise ValueError(f"the file has more than {4 * MOST_SOURCE:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"byte {error.start:,} of the file is not valid UTF-8; save it as UTF-8"
        ) from None
    if "\0" in text:
        raise ValueError("the file is no text: it has a NUL byte")
    return text


def grade_one(exercise: Exercise, submission: Submission, **how: Any) -> Grade:
    """Grade a submission; one that can't be read has no points.

    Parameters
    ----------
    exercise : Exercise
    submission : Submission
    **how
        The arguments of :func:`tilewise.exercises.grading.grade`.
    """
    try:
        source = read(submission)
    except (OSError, ValueError) as error:
        return refused(exercise, submission.name, str(error), how.get("seed", 0))
    return grade(exercise, source, submission.name, **how)


def refused(exercise: Exercise, name: str, why: str, seed: int = 0) -> Grade:
    """Return the grade of what could not be run."""
    most = (RESULTS, FAULTS, GOALS) if exercise.goals else (RESULTS + GOALS, FAULTS, 0)
    return Grade(exercise.name, name, seed, 0, 0, 0, most, why)


def grade_all(
    exercise: Exercise,
    submissions: Sequence[Submission],
    *,
    workers: int | None = None,
    done: Callable[[str], None] = lambda _: None,
    **how: Any,
) -> list[Grade]:
    """Grade submissions in parallel.

    Parameters
    ----------
    exercise : Exercise
    submissions : sequence of Submission
    workers : int, optional
        The most submissions at once; by default one for each core.
    done : callable
        A function that is called with the name of each one that is graded.
    **how
        The arguments of :func:`tilewise.exercises.grading.grade`.

    Returns
    -------
    list of Grade
        The grades, in the submissions' order.
    """

    def one(submission: Submission) -> Grade:
        found = grade_one(exercise, submission, **how)
        done(submission.name)
        return found

    with ThreadPoolExecutor(workers or cores()) as pool:
        return list(pool.map(one, submissions))
