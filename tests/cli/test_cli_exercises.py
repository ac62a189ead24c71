"""``tilewise exercises`` and ``tilewise grade``, from a folder as students and teachers have it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tilewise.cli.main import main
from tilewise.exercises import submissions
from tilewise.exercises.catalogue import Exercise, exercises, find
from tilewise.exercises.grading import Grade, grade

INDEX = find("index")


@pytest.fixture
def graded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grade a submission once, for tests of how its grade is told in several formats."""
    kept: dict[tuple[object, ...], Grade] = {}

    def once(exercise: Exercise, source: str, name: str, **how: Any) -> Grade:
        key = (exercise.name, source, name, how["seed"], how["shows_hidden"])
        if key not in kept:
            kept[key] = grade(exercise, source, name, **how)
        return kept[key]

    monkeypatch.setattr(submissions, "grade", once)


@pytest.fixture
def tw(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls the command line in an empty folder; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_list_and_show(tw: Any) -> None:
    code, out, _ = tw("exercises")
    assert code == 0
    assert all(f" {each.name} " in out for each in exercises())
    code, out, _ = tw("exercises", "--json")
    assert [each["name"] for each in json.loads(out)["exercises"]] == [x.name for x in exercises()]
    for words in (("exercises", "index"), ("exercises", "show", "index")):
        code, out, _ = tw(*words)
        assert code == 0
        assert INDEX.text.splitlines()[0] in out
        assert "scale(int n, float a, const float* x, float* y)" in out
        assert "2 tests" in out
        assert "1500" not in out  # the hidden sizes
    code, out, _ = tw("exercises", "show", "index", "--json")
    assert json.loads(out)["start"] == INDEX.start
    assert "1500" not in out
    assert tw("exercises", "solution", "index")[1] == INDEX.solution


def test_start_and_grade(tw: Any, tmp_path: Path) -> None:
    code, out, _ = tw("exercises", "start", "bug-race", "a/b")
    assert code == 0
    file = tmp_path / "a" / "b" / "bug_race.cu"
    assert file.read_text() == find("bug-race").start
    assert file.with_suffix(".md").read_text() == find("bug-race").text
    assert "tilewise grade bug-race a/b/bug_race.cu" in out
    code, out, _ = tw("grade", "bug-race", str(file), "--seconds", "60")
    assert code == 1
    assert "line 9: race" in out
    (command,) = [line for line in out.splitlines() if line.startswith("tilewise watch ")]
    assert shlex.split(command)[2] == f"{file}:smooth"  # as it was given, from where it was given
    code, out, _ = tw("grade", "bug-race", str(file), "--format", "autolab", "--seconds", "60")
    assert str(tmp_path) not in out
    file.write_text(find("bug-race").solution)
    code, out, _ = tw("grade", "bug-race", str(file), "--seconds", "60")
    assert (code, "bug_race.cu: 100 of 100 points" in out) == (0, True)
    code, _, err = tw("exercises", "start", "bug-race", "a/b")
    assert code == 2
    assert "would be overwritten; --force allows it" in err
    assert file.read_text() == find("bug-race").solution
    assert tw("exercises", "start", "bug-race", "a/b", "--force")[0] == 0
    assert file.read_text() == find("bug-race").start


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("grade", "index", "nothing.cu"), "there is no file nothing.cu"),
        (("grade", "bug-race", "bug-race.cu"), "no file bug-race.cu; did you mean bug_race.cu?"),
        (("grade", "indx", "nothing.cu"), "did you mean index?"),
        (("exercises", "list"), "there is no exercise 'list'"),
        (("exercises", "foo"), "show EXERCISE, start EXERCISE [FOLDER] and solution EXERCISE"),
        (("exercises", "foo", "index"), "show EXERCISE, start EXERCISE [FOLDER] and solution"),
        (("grade", "index", "notes.txt"), "notes.txt is no file .cu"),
        (("grade", "index", "empty"), "there is no file *.cu in empty"),
        (("grade", "index"), "FILE.cu|FOLDER is missing"),
        (("grade", "index", "mine.cu", "--seed", "-1"), "must be at least 0"),
        (("grade", "index", "mine.cu", "--seconds", "0"), "must be above 0"),
        (("grade", "index", "mine.cu", "--workers", "0"), "must be at least 1"),
        (("grade", "index", "mine.cu", "--json", "--format", "autolab"), "two formats"),
        (("grade", "index", "mine.cu", "--format", "canvas"), "canvas"),
        (("exercises", "show"), "takes an exercise, and is given 0 words"),
        (("exercises", "start", "index", "a", "b"), "takes an exercise and a folder"),
        (("exercises", "nothing"), "no exercise 'nothing'"),
    ],
)
def test_bad_arguments(tw: Any, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "mine.cu").write_text(INDEX.solution)
    (tmp_path / "bug_race.cu").write_text(find("bug-race").start)
    code, out, err = tw(*words)
    assert code == 2
    assert told in out + err


@pytest.fixture
def class_folder(tmp_path: Path) -> Path:
    """Submissions of a class: right, wrong, no text, several files, links, other files."""
    folder = tmp_path / "class"
    files: dict[str, str | bytes] = {
        "ann/index.cu": INDEX.solution,
        "ann/old.cu": INDEX.start,
        "bob/kernel.cu": INDEX.start,
        "bob/notes.md": "not a submission",
        "cid/kernel.cu": "this is no CUDA C++",
        "dan/deep/er/x.cu": INDEX.solution,
        "eve.cu": b"\xff\xfe\x00",
        ".hidden/x.cu": INDEX.solution,
        "fay/.ipynb_checkpoints/x.cu": INDEX.solution,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    secret = tmp_path / "secret.cu"
    secret.write_text(INDEX.solution)
    (folder / "gus").mkdir()
    (folder / "gus" / "x.cu").symlink_to(secret)
    (folder / "hal").symlink_to(tmp_path)
    return folder


@pytest.mark.usefixtures("graded_once")
def test_a_folder(tw: Any, class_folder: Path) -> None:
    code, out, _ = tw("grade", "index", "class", "--json", "--seconds", "60")
    assert code == 1
    grades = json.loads(out)["grades"]
    assert [(each["file"], each["score"]) for each in grades] == [
        ("ann/index.cu", 100), ("bob/kernel.cu", 0), ("cid/kernel.cu", 0),
        ("dan/deep/er/x.cu", 100), ("eve.cu", 0),
    ]  # fmt: skip
    assert "is not valid UTF-8" in grades[4]["refused"]
    code, out, _ = tw("grade", "index", "class", "--seconds", "60")
    assert code == 1
    assert "5 submissions, 2 of them right" in out
    code, out, _ = tw(
        "grade", "index", "class", "--format", "nbgrader", "-o", "g.csv", "--seconds", "60"
    )
    assert (code, out) == (1, "g.csv: written\n")
    rows = Path("g.csv").read_text().splitlines()
    assert [row.split(",")[3] for row in rows] == ["student_id", "ann", "bob", "cid", "dan", "eve"]


def test_a_folder_says_what_is_wrong_first(tw: Any, tmp_path: Path) -> None:
    """A kernel that does not end is not merely wrong, and no message ends within a word."""
    files = {
        "ends.cu": INDEX.solution,
        "never.cu": INDEX.solution.replace("{", "{ for (;;) __syncthreads();", 1),
        "other.cu": INDEX.solution.replace(INDEX.kernel, INDEX.kernel + "_" + "long" * 20),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, out, _ = tw("grade", "index", ".", "--seconds", "60")
    rows = " ".join(out.split())
    assert code == 1
    assert "never.cu 0 0 0 0 test 1 was stopped at a limit" in rows
    assert f"other.cu 0 0 0 0 other.cu has no kernel called '{INDEX.kernel}'; it has ..." in rows


@pytest.mark.usefixtures("graded_once")
def test_formats(tw: Any, tmp_path: Path) -> None:
    (tmp_path / "index.cu").write_text(INDEX.start)
    code, out, _ = tw("grade", "index", "index.cu", "--format", "gradescope", "--seconds", "60")
    assert code == 1
    assert json.loads(out)["tests"][0]["status"] == "failed"
    code, out, _ = tw("grade", "index", "index.cu", "--format", "autolab", "--seconds", "60")
    assert json.loads(out.splitlines()[-1]) == {"scores": {"Results": 0, "Faults": 0, "Goals": 0}}
    code, out, _ = tw("grade", "index", "index.cu", "--json", "--seconds", "60")
    assert (code, json.loads(out)["score"]) == (1, 0)
    code, out, _ = tw(
        "grade", "index", ".", "--format", "gradescope", "--out", "results.json", "--seconds", "60"
    )
    assert code == 1
    assert json.loads(Path("results.json").read_text())["score"] == 0


def test_gradescope_has_a_result_whatever_is_handed_in(tw: Any, class_folder: Path) -> None:
    """A folder without a file, or with several, is a grade of 0 and no error of the grader."""
    (class_folder.parent / "none").mkdir()
    several = class_folder.parent / "several"
    several.mkdir()
    for name in ("a.cu", "b.cu"):
        (several / name).write_text(INDEX.solution)
    many = class_folder.parent / "many"
    many.mkdir()
    for i in range(6):
        (many / f"{i}.cu").write_text(INDEX.solution)
    for folder, told in (("none", "there is no file *.cu; hand in index.cu"),
                         ("many", "several files (0.cu, 1.cu, 2.cu, 3.cu, and 2 more)"),
                         ("several", "there are several files (a.cu, b.cu)")):  # fmt: skip
        code, out, _ = tw("grade", "index", folder, "--format", "gradescope")
        found = json.loads(out)
        assert (code, found["score"]) == (1, 0)
        assert told in found["tests"][0]["output"]
    code, out, _ = tw("grade", "index", "class/ann", "--format", "gradescope", "--seconds", "60")
    assert (code, json.loads(out)["score"]) == (0, 100)
