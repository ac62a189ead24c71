"""Grades in the formats of those who take them, as their documents have it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tilewise.exercises import formats
from tilewise.exercises.catalogue import find
from tilewise.exercises.grading import FULL, Grade, grade

# Gradescope, "Autograder Specifications", "Output format".
TOP = {"score", "execution_time", "output", "output_format", "test_output_format",
       "test_name_format", "visibility", "stdout_visibility", "extra_data", "tests",
       "leaderboard"}  # fmt: skip
CASE = {"score", "max_score", "status", "name", "name_format", "number", "output", "output_format",
        "tags", "visibility", "extra_data"}  # fmt: skip
VISIBILITIES = {"hidden", "after_due_date", "after_published", "visible"}


@pytest.fixture(scope="module")
def grades() -> dict[str, Grade]:
    """A right one, one that misses a goal, one that is wrong, one that does not compile."""
    sources = {
        "right": find("padding").solution,
        "slow": find("padding").start,
        "wrong": find("padding").solution.replace("row < n && to < m", "row < n - 1 && to < m"),
        "broken": "__global__ void transpose(int m",
    }
    return {
        name: grade("padding", text, f"{name}.cu", seconds=60) for name, text in sources.items()
    }


def test_gradescope(grades: dict[str, Grade]) -> None:
    for name, each in grades.items():
        found = json.loads(json.dumps(formats.gradescope(each), allow_nan=False))
        assert set(found) <= TOP
        assert found["score"] == each.score
        assert found["visibility"] in VISIBILITIES
        assert found["stdout_visibility"] in VISIBILITIES
        for case in found["tests"]:
            assert set(case) <= CASE
            assert case["status"] in ("passed", "failed")
            assert case.get("visibility", "visible") in VISIBILITIES
            assert 0 <= case["score"] <= case["max_score"] or name == "broken"
            assert isinstance(case["output"], str)
        total = sum(case["score"] for case in found["tests"])
        assert total == pytest.approx(each.score, abs=0.1)
        if name != "broken":
            assert sum(case["max_score"] for case in found["tests"]) == pytest.approx(
                FULL, abs=0.01
            )
        is_passed = all(case["status"] == "passed" for case in found["tests"])
        assert is_passed == (name == "right")


def test_hidden_tests_on_gradescope(grades: dict[str, Grade]) -> None:
    for visibility in ("after_published", "hidden"):
        found = formats.gradescope(grades["wrong"], visibility)
        shown = {
            case["name"]: case["visibility"] for case in found["tests"] if "visibility" in case
        }
        assert shown["hidden test 1"] == visibility
        assert [shown[name] for name in shown if not name.startswith("hidden")] == ["visible"] * 2


def test_autolab(grades: dict[str, Grade]) -> None:
    """Guide for Lab Authors: the last line is the autoresult; before it, the formatted feedback."""
    for name, each in grades.items():
        *report, feedback, last = formats.autolab(each).splitlines()
        scores = json.loads(last)
        assert list(scores) == ["scores"]
        assert scores["scores"] == {
            "Results": each.results, "Faults": each.faults, "Goals": each.goals
        }  # fmt: skip
        said = json.loads(feedback)
        assert said["_presentation"] == "semantic"
        assert set(said) == {"_presentation", "stages", *said["stages"]}
        for stage in said["stages"]:
            for case in said[stage].values():
                assert case["passed"] is True or case["hint"]
        assert said["Build"]["runs"]["passed"] == (name != "broken")
        assert f"{name}.cu: {each.score:g} of 100 points" == report[0]


def test_nbgrader(grades: dict[str, Grade]) -> None:
    """The columns of ``nbgrader export``."""
    text = formats.nbgrader(list(grades.values()), ["ann", 'b,"ob', "eve", "zoë"])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["student_id"] for row in rows] == ["ann", 'b,"ob', "eve", "zoë"]
    assert list(rows[0]) == [
        "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
        "raw_score", "late_submission_penalty", "score", "max_score",
    ]  # fmt: skip
    for row, each in zip(rows, grades.values(), strict=True):
        assert (row["assignment"], float(row["max_score"])) == ("padding", FULL)
        assert float(row["score"]) == float(row["raw_score"]) == each.score


def test_json_is_plain(grades: dict[str, Grade]) -> None:
    for name, each in grades.items():
        found = json.loads(json.dumps(each.to_dict(), allow_nan=False))
        assert found["right"] == (name == "right")
        assert found["score"] == pytest.approx(sum(found["points"].values()), abs=0.1)
        assert sum(found["most"].values()) == found["max_score"] == FULL
