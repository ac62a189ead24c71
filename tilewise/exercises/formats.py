"""Grades in the formats of Gradescope, Autolab and nbgrader.

Sources: Gradescope, "Autograder Specifications", "Output format" (``results.json``); Autolab,
"Guide for Lab Authors", "Writing Autograders", and "Formatted Feedback" (the autoresult is the last
line of standard output); nbgrader, ``nbgrader export`` (the columns of its CSV) and "Autograded
answers", partial credit.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from tilewise.exercises.goals import said
from tilewise.exercises.grading import FULL, Grade

_COLUMNS = ("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
            "raw_score", "late_submission_penalty", "score", "max_score")  # fmt: skip
AUTOLAB_PROBLEMS = ("Results", "Faults", "Goals")
"""The names of the problems of an assessment for ``--format autolab``."""


def gradescope(grade: Grade, hidden_visibility: str = "after_published") -> dict[str, Any]:
    """Return the document ``results.json``.

    Parameters
    ----------
    grade : Grade
    hidden_visibility : str
        The visibility of hidden tests: ``"hidden"``, ``"after_due_date"``, ``"after_published"`` or
        ``"visible"``.
    """
    tests: list[dict[str, Any]] = []
    if grade.refused:
        tests.append(_case("runs", 0, 0, False, grade.refused))
    for each in grade.tests:
        about = f" ({each.about})" if each.about else ""
        tests.append(
            _case(f"{each.name}{about}", each.points, each.most, each.is_right, each.said)
            | {"visibility": hidden_visibility if each.is_hidden else "visible"}
        )
    if not grade.refused:
        is_free = grade.faults > 0
        told = "\n".join(grade.faults_said) or (
            "" if grade.faults else "Counts once every result is right."
        )
        tests.append(_case("no fault", grade.faults, grade.most[1], is_free, told))
        tests += [
            _case(
                f"goal: {said(each.goal.figure)}", grade.points_of(each) * each.is_met,
                grade.points_of(each), each.is_met,
                f"{each.said}\n{each.goal.aim}",
            )
            for each in grade.goal_results
        ]  # fmt: skip
        if grade.most[2] and not grade.goal_results:
            tests.append(_case(
                "goals", 0, grade.most[2], False, "Goals count once every result is right."
            ))  # fmt: skip
    output = [*grade.hints]
    if grade.printed:
        output.append(f"The kernel printed, in the first test:\n{grade.printed}")
    return {
        "score": grade.score,
        "output": "\n".join(output),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {"exercise": grade.exercise, "seed": grade.seed},
    }


def _case(name: str, score: float, most: float, passed: bool, output: str) -> dict[str, Any]:
    return {
        "name": name, "score": round(score, 4), "max_score": round(most, 4),
        "status": "passed" if passed else "failed", "output": output,
    }  # fmt: skip


def autolab(grade: Grade) -> str:
    """Return the report, then the line of the formatted feedback, and last the autoresult."""
    stages: dict[str, dict[str, dict[str, Any]]] = {"Build": {}, "Tests": {}, "Goals": {}}
    stages["Build"]["runs"] = _stage(not grade.refused, grade.refused)
    for each in grade.tests:
        stages["Tests"][each.name] = _stage(each.is_right, each.said)
    if not grade.refused:
        stages["Tests"]["no fault"] = _stage(not grade.findings, "; ".join(grade.faults_said))
    for goal in grade.goal_results:
        stages["Goals"][said(goal.goal.figure)] = _stage(goal.is_met, goal.said)
    used = [name for name, cases in stages.items() if cases]
    feedback = {"_presentation": "semantic", "stages": used, **{x: stages[x] for x in used}}
    points = (grade.results, grade.faults, grade.goals)
    scores = {"scores": dict(zip(AUTOLAB_PROBLEMS, points, strict=True))}
    return "\n".join((str(grade), json.dumps(feedback), json.dumps(scores)))


def _stage(passed: bool, hint: str) -> dict[str, Any]:
    return {"passed": True} if passed else {"passed": False, "hint": hint}


def nbgrader(grades: Sequence[Grade], students: Sequence[str]) -> str:
    """Return CSV with the columns of ``nbgrader export``, a row for each submission.

    Parameters
    ----------
    grades : sequence of Grade
    students : sequence of str
        The id of each submission's student.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for grade, student in zip(grades, students, strict=True):
        writer.writerow(
            (grade.exercise, "", "", student, "", "", "", grade.score, 0.0, grade.score, FULL)
        )
    return out.getvalue()
