"""The figures of a launch, and whether they meet an exercise's goals. None of them is a time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tilewise.counted import Counters
from tilewise.devices.occupancy import occupancy
from tilewise.exercises.cases import Case
from tilewise.exercises.catalogue import Exercise, Goal
from tilewise.launch import LaunchReport
from tilewise.shown import number
from tilewise.specs.expressions import evaluate

_SUMS = ("global_requests", "global_sectors", "shared_requests", "shared_wavefronts",
         "shared_bank_conflicts")  # fmt: skip
_RESOURCES = {
    "shared_bytes": "bytes of shared memory a block",
    "registers": "registers a thread",
    "spill_bytes": "bytes of spilled registers a thread",
    "resident_warps": "warps that a multiprocessor holds at once",
}
FIGURES = (*(each.name for each in fields(Counters)), *_SUMS, *_RESOURCES)
"""The figures of goals: counters of :class:`tilewise.Counters`, sums of some, and resources."""
_WORDS = {
    "at_most": "at most", "at_least": "at least", "exactly": "exactly",
}  # fmt: skip


@dataclass(frozen=True)
class GoalResult:
    """A goal, and how near a submission comes to it.

    Attributes
    ----------
    goal : Goal
    is_met : bool
        Whether it is met in all tests for which it holds.
    test : str
        The first test in which it is missed, or the last visible one in which it is met.
    got, limit : float
        The value and the limit in that test.
    is_hidden : bool
        Whether that test is hidden; then neither value is shown, because the limit is often the
        size.
    """

    goal: Goal
    is_met: bool
    test: str
    got: float
    limit: float
    is_hidden: bool

    @property
    def said(self) -> str:
        """The goal and the figure, in a line."""
        words = said(self.goal.figure)
        if self.is_hidden:
            return f"{words}: {'as' if self.is_met else 'not as'} the goal asks in {self.test}"
        return (
            f"{words}: {number(self.got)} in {self.test}, the goal is {_WORDS[self.goal.rule]} "
            f"{number(self.limit)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; for a hidden test without the values."""
        told = {} if self.is_hidden else {"got": self.got, self.goal.rule: self.limit}
        return {
            "figure": self.goal.figure, "aim": self.goal.aim, "met": self.is_met,
            "test": self.test, **told,
        }  # fmt: skip


def said(figure: str) -> str:
    """Return a figure's name for people."""
    return _RESOURCES.get(figure, figure.replace("_", " "))


def measured(figure: str, report: LaunchReport) -> float:
    """Return a figure of a launch.

    Raises
    ------
    ValueError
        If there is no such figure.
    """
    shared = report.resources.shared_bytes + report.launch.shared
    if figure == "shared_bytes":
        return shared
    if figure == "resident_warps":
        x, y, z = report.launch.block
        return occupancy(report.arch, x * y * z, report.resources.registers, shared).warps
    if figure in _RESOURCES:
        return int(getattr(report.resources, figure))
    if figure in FIGURES and report.counters is not None:
        return int(getattr(report.counters, figure))
    raise ValueError(f"there is no figure {figure!r}; there are {', '.join(FIGURES)}")


def judge(
    exercise: Exercise, launched: list[tuple[Case, LaunchReport]], shows_hidden: bool
) -> list[GoalResult]:
    """Compare the launches of a submission with the goals; visible tests are reported first.

    Raises
    ------
    ValueError
        If a goal has an expression that can't be read.
    """
    found = []
    for goal in exercise.goals:
        results = []
        for case, report in launched:
            if case.test.has_goals:
                limit = float(evaluate(goal.limit, case.sizes, f"the goal {goal.figure}"))
                got = measured(goal.figure, report)
                is_met = {
                    "at_most": got <= limit, "at_least": got >= limit, "exactly": got == limit,
                }[goal.rule]  # fmt: skip
                is_hidden = case.test.is_hidden and not shows_hidden
                results.append(GoalResult(goal, is_met, case.test.name, got, limit, is_hidden))
        if results:
            told = [each for each in results if not each.is_hidden] or results
            found.append(next((each for each in results if not each.is_met), told[-1]))
    return found
