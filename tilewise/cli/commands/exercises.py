"""The commands of exercises: what there is, a file to begin with, and grading."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.options import RIGHT, WRONG, Json, print_json

if TYPE_CHECKING:
    from tilewise.exercises.catalogue import Exercise
    from tilewise.exercises.grading import Grade
    from tilewise.exercises.submissions import Submission

ACTIONS = ("show", "start", "solution")


class Format(StrEnum):
    table = "table"
    gradescope = "gradescope"
    autolab = "autolab"
    nbgrader = "nbgrader"


class Visibility(StrEnum):
    hidden = "hidden"
    after_due_date = "after_due_date"
    after_published = "after_published"
    visible = "visible"


def names(incomplete: str) -> list[str]:
    """Return the exercises that begin so, for a shell that completes the word."""
    from tilewise.exercises.catalogue import exercises

    return [each.name for each in exercises() if each.name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="EXERCISE",
        help="An exercise of `tilewise exercises`, or the folder of one of your own.",
        autocompletion=names,
    ),
]


def exercises(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[show EXERCISE|start EXERCISE [FOLDER]|solution EXERCISE]",
            help="Show the text of an exercise; write its text and the file to complete into a "
            "folder, by default this one; or print the model solution. By default, list all.",
            autocompletion=lambda incomplete: [
                *(each for each in ACTIONS if each.startswith(incomplete)),
                *names(incomplete),
            ],
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Of start: write over files that are there.")
    ] = False,
    as_json: Json = False,
) -> int:
    """List the exercises, show one, or write the file to begin with.

    They teach in their order, from an index to a persistent kernel of the tensor cores; some have
    bugs to find. `tilewise grade EXERCISE FILE.cu` says what is right, and what to look at next.
    """
    from tilewise.cli import show
    from tilewise.exercises import catalogue

    if not words:
        if as_json:
            print_json({"exercises": [each.to_dict() for each in catalogue.exercises()]})
        else:
            show.exercises(catalogue.exercises())
        return RIGHT
    action, *rest = words if words[0] in ACTIONS else ("show", *words)
    most = 2 if action == "start" else 1
    if not 1 <= len(rest) <= most:
        raise ValueError(
            f"`tilewise exercises {action}` takes an exercise{' and a folder' * (most - 1)}, and "
            f"is given {len(rest)} words; its subcommands are show EXERCISE, start EXERCISE "
            "[FOLDER] and solution EXERCISE"
        )
    try:
        exercise = catalogue.find(rest[0])
    except ValueError as error:
        if words[0] in ACTIONS:
            raise
        raise ValueError(
            f"{error}. `tilewise exercises` has the subcommands show EXERCISE, start EXERCISE "
            "[FOLDER] and solution EXERCISE"
        ) from None
    if action == "start":
        files = start(exercise, Path(*rest[1:]), force)
        if as_json:
            print_json({"written": [str(each) for each in files]})
        else:
            for each in files:
                print(f"{each}: written")
            print(f"tilewise grade {rest[0]} {files[0]} says how far you are")
    elif action == "solution":
        if as_json:
            print_json({"name": exercise.name, "solution": exercise.solution})
        else:
            print(exercise.solution, end="")
    elif as_json:
        print_json({**exercise.to_dict(), "text": exercise.text, "start": exercise.start})
    else:
        show.exercise(exercise)
    return RIGHT


def start(exercise: Exercise, folder: Path, is_forced: bool) -> list[Path]:
    """Write an exercise's file to complete and its text into a folder, which is made if need be.

    Raises
    ------
    ValueError
        If one of them is there already.
    OSError
        If one can't be written.
    """
    source = folder / exercise.file
    files = {source: exercise.start, source.with_suffix(".md"): exercise.text}
    there = [str(each) for each in files if each.exists() or each.is_symlink()]
    if there and not is_forced:
        raise ValueError(f"{' and '.join(there)} would be overwritten; --force allows it")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return list(files)


def grade(
    name: Name,
    submission: Annotated[
        str, typer.Argument(metavar="FILE.cu|FOLDER", help="A submission, or a folder of them.")
    ],
    format: Annotated[
        Format,
        typer.Option(
            help="gradescope: results.json. autolab: a report whose last line has the scores. "
            "nbgrader: the CSV of `nbgrader export`."
        ),
    ] = Format.table,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write to a file what would be printed."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the tests' values and of the hidden tests' sizes.")
    ] = 0,
    seconds: Annotated[
        float, typer.Option(help="The time limit for each submission, with all its tests.")
    ] = 5.0,
    workers: Annotated[
        int | None, typer.Option(help="Submissions at once; by default one for each core.")
    ] = None,
    shows_hidden: Annotated[
        bool, typer.Option("--show-hidden", help="Tell sizes and values of hidden tests, too.")
    ] = False,
    visibility: Annotated[
        Visibility, typer.Option(help="Of hidden tests on Gradescope.")
    ] = Visibility.after_published,
    as_json: Json = False,
) -> int:
    """Grade a solution of an exercise, or a folder of them.

    Each is compiled and run on the emulator, in processes of its own, within limits of time, memory
    and output, and can open no file. The exit code is 0 if all of them are right, and 1 if one is
    not.
    """
    from dataclasses import replace

    from tilewise.exercises import catalogue, submissions, watching

    if as_json and format is not Format.table:
        raise ValueError(f"--json and --format {format.value} are two formats; give one of them")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers is {workers}; it must be at least 1")
    exercise = catalogue.find(name)
    path = Path(submission)
    how = {"seed": seed, "seconds": seconds, "shows_hidden": shows_hidden}
    is_single = format in (Format.gradescope, Format.autolab)
    if is_single and path.is_dir():
        return _print(_only(exercise, path, how), format, visibility, out)
    found = submissions.find(path, exercise)
    grades = _graded(exercise, found, workers, how, is_folder=path.is_dir())
    if not is_single:
        # Who hands in knows the file by its name; who grades it here, by its path.
        grades = [
            replace(each, watch=watching.of_file(each.watch, of.path, exercise))
            for each, of in zip(grades, found, strict=True)
        ]
    if as_json:
        document = {"grades": [each.to_dict() for each in grades]} if path.is_dir() else (
            grades[0].to_dict()
        )  # fmt: skip
        _write_json(document, out)
    elif format is Format.nbgrader:
        from tilewise.exercises import formats

        _write(formats.nbgrader(grades, [each.student for each in found]), out)
    elif is_single:
        return _print(grades[0], format, visibility, out)
    else:
        _show(exercise, grades, path.is_dir(), out)
    return RIGHT if all(each.is_right for each in grades) else WRONG


def _graded(
    exercise: Exercise,
    found: list[Submission],
    workers: int | None,
    how: dict[str, float],
    *,
    is_folder: bool,
) -> list[Grade]:
    """Grade, with a progress bar of the submissions, or of the tests of one."""
    from tilewise.cli import show
    from tilewise.exercises import submissions

    if not is_folder:
        with show.progress(len(exercise.tests), f"compiling {found[0].name}") as step:
            return [submissions.grade_one(exercise, found[0], done=step, **how)]
    with show.progress(len(found), f"grading {len(found)} submissions") as step:
        return submissions.grade_all(exercise, found, workers=workers, done=step, **how)


def _only(exercise: Exercise, path: Path, how: dict[str, float]) -> Grade:
    """Return the grade of the one submission in a folder, as Gradescope and Autolab have it."""
    from tilewise.exercises import submissions

    try:
        found = submissions.find(path, exercise)
    except FileNotFoundError:
        return submissions.refused(
            exercise, path.name, f"there is no file *.cu; hand in {exercise.file}"
        )
    own = [each for each in found if each.path.name == exercise.file]
    if len(own or found) > 1:
        several = ", ".join(each.name for each in found[:4])
        if len(found) > 4:
            several += f", and {len(found) - 4} more"
        return submissions.refused(
            exercise, path.name, f"there are several files ({several}); hand in {exercise.file}"
        )
    return submissions.grade_one(exercise, (own or found)[0], **how)


def _print(grade: Grade, format: Format, visibility: Visibility, out: Path | None) -> int:
    """Print one grade in the format of Gradescope or Autolab."""
    from tilewise.exercises import formats

    if format is Format.gradescope:
        _write_json(formats.gradescope(grade, visibility.value), out)
    else:
        _write(formats.autolab(grade) + "\n", out)
    return RIGHT if grade.is_right else WRONG


def _show(exercise: Exercise, grades: list[Grade], is_folder: bool, out: Path | None) -> None:
    from tilewise.cli import show

    if out is not None:
        _write("\n\n".join(map(str, grades)) + "\n", out)
    elif is_folder:
        show.grades(exercise, grades)
    else:
        show.grade(exercise, grades[0])


def _write_json(document: dict[str, Any], out: Path | None) -> None:
    import json

    from tilewise.cli.commands.options import plain

    if out is None:
        print_json(document)
    else:
        _write(json.dumps(plain(document), indent=2, allow_nan=False) + "\n", out)


def _write(text: str, out: Path | None) -> None:
    from tilewise.provenance import write_whole

    if out is None:
        print(text, end="")
    else:
        write_whole(out, text.encode())
        print(f"{out}: written")
