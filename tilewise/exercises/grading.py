"""Grade a submission: its score, its faults by line, and hints on what to look at next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.exercises import hints, watching
from tilewise.exercises.cases import Case
from tilewise.exercises.catalogue import Exercise, find
from tilewise.exercises.goals import GoalResult, judge
from tilewise.exercises.running import SECONDS, Outcome, RefusedError, Wrong, run
from tilewise.launch import Finding, LaunchReport
from tilewise.shown import Part, Shown, Table, element, plural

RESULTS, FAULTS, GOALS = 60, 10, 30
"""The points, of a hundred, for correct results, for no fault, and for the goals. In an exercise
without goals, the points for goals are added to those for results. The points for no fault and for
goals are given only if every result is correct.
"""
FULL = RESULTS + FAULTS + GOALS
NOT_RUN = "not run, because of the test before"
_MOST_PRINTED = 2000
_MOST_FINDINGS = 12


@dataclass(frozen=True)
class TestResult:
    """The outcome of a test in words.

    Attributes
    ----------
    name : str
    is_hidden, is_right : bool
    points, most : float
    about : str
        The sizes and the test's note; empty for a hidden test.
    said : str
        What is wrong; empty if nothing is.
    is_stopped : bool
        Whether it was stopped at a limit.
    """

    name: str
    is_hidden: bool
    is_right: bool
    points: float
    most: float
    about: str
    said: str
    is_stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.name, "hidden": self.is_hidden, "right": self.is_right,
            "points": self.points, "most": self.most, "about": self.about, "said": self.said,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Grade(Shown):
    """A submission's grade.

    Attributes
    ----------
    exercise, file : str
    seed : int
    results, faults, goals : float
        The points.
    most : (int, int, int)
        The most points for results, for no fault, and for the goals.
    refused : str
        Why it was not launched; empty if it was.
    tests : tuple of TestResult
    goal_results : tuple of GoalResult
        The results of the goals; empty if a result is wrong.
    findings : tuple of (Finding, bool)
        The first finding of each kind at each line, and whether a hidden test found it.
    hints : tuple of str
    printed : str
        What the kernel printed in the first test, cut.
    watch : str
        The command that shows the first visible test that is not right; empty if there is none.
    """

    exercise: str
    file: str
    seed: int
    results: float
    faults: float
    goals: float
    most: tuple[int, int, int]
    refused: str = ""
    tests: tuple[TestResult, ...] = ()
    goal_results: tuple[GoalResult, ...] = ()
    findings: tuple[tuple[Finding, bool], ...] = ()
    hints: tuple[str, ...] = ()
    printed: str = ""
    watch: str = ""

    @property
    def score(self) -> float:
        """The points of a hundred, in tenths."""
        return round(self.results + self.faults + self.goals, 1)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong: every result is right, no fault was found, each goal is met."""
        return (
            not self.refused
            and not self.findings
            and all(each.is_right for each in self.tests)
            and all(each.is_met for each in self.goal_results)
        )

    @property
    def faults_said(self) -> list[str]:
        """The faults, one a line; of hidden tests without the values."""
        return [_fault(each, is_hidden) for each, is_hidden in self.findings]

    def for_nbgrader(self, points: float = FULL) -> float:
        """Return the points for a cell of nbgrader's, which has to end with this value.

        nbgrader takes a cell's value above 0 as partial credit, but 0 as full credit, so this
        raises an error for no points.

        Parameters
        ----------
        points : float
            The points of the cell.

        Raises
        ------
        AssertionError
            If the score is 0; its message is the report.
        """
        if not self.score > 0:
            raise AssertionError(str(self))
        return round(points * self.score / FULL, 4)

    def points_of(self, goal: GoalResult) -> float:
        """Return the points that there are for one of its goals."""
        return _share(goal, self.goal_results, self.most[2])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "exercise": self.exercise,
            "file": self.file,
            "seed": self.seed,
            "score": self.score,
            "max_score": FULL,
            "right": self.is_right,
            "points": {"results": self.results, "faults": self.faults, "goals": self.goals},
            "most": dict(zip(("results", "faults", "goals"), self.most, strict=True)),
            "refused": self.refused,
            "tests": [each.to_dict() for each in self.tests],
            "goals": [each.to_dict() for each in self.goal_results],
            "findings": [
                {"kind": each.kind, "line": each.line, "hidden": is_hidden,
                 "message": _fault(each, is_hidden)}
                for each, is_hidden in self.findings
            ],
            "hints": list(self.hints),
            "printed": self.printed,
            "watch": self.watch,
        }  # fmt: skip

    def _summary(self) -> str:
        return f"{self.file}: {self.score:g} of {FULL} points"

    def _parts(self) -> list[Part]:
        rows = [
            (test.name, "right" if test.is_right else test.said, test.about) for test in self.tests
        ]
        rows += [("goal", "met" if x.is_met else "missed", x.said) for x in self.goal_results]
        rows += [("fault", each, "") for each in self.faults_said]
        rows += [("hint", each, "") for each in self.hints]
        parts: list[Part] = [self._summary(), *[self.refused] * bool(self.refused)]
        return [*parts, Table(rows, left=3)] if rows else parts

    def __str__(self) -> str:
        lines = [self._summary()]
        lines += [self.refused] * bool(self.refused)
        for test in self.tests:
            about = f" ({test.about})" if test.about else ""
            lines.append(f"{test.name}{about}: {'right' if test.is_right else test.said}")
        lines += [
            f"goal {'met' if each.is_met else 'MISSED'}: {each.said}" for each in self.goal_results
        ]
        lines += self.faults_said
        lines += [f"hint: {each}" for each in self.hints]
        return "\n".join(lines)


def grade(
    exercise: Exercise | str,
    source: str,
    file: str = "submission",
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    shows_hidden: bool = False,
    until_wrong: bool = False,
    done: Callable[[str], None] = lambda _: None,
) -> Grade:
    """Grade a submission, on the emulator.

    Parameters
    ----------
    exercise : Exercise or str
        The exercise, its name, or its folder.
    source : str
        The submission in CUDA C++. It may include CUDA's headers and no other file.
    file : str
        The name of the file in the report.
    seed : int
        The seed of the tests' values and of the hidden tests' sizes.
    seconds : float
        The seconds that the submission may take, with all tests.
    shows_hidden : bool
        Whether the report shows sizes and values of hidden tests.
    until_wrong : bool
        Whether it ends with the first test that is not right.
    done : callable
        A function that is called with the name of each test that begins.

    Raises
    ------
    ValueError, FileNotFoundError
        If there is no such exercise, or the seed or the seconds are invalid.
    """
    if isinstance(exercise, str):
        exercise = find(exercise)
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be at least 0")
    if not 0 < seconds <= 3600:
        raise ValueError(f"seconds is {seconds:g}; it must be above 0, and at most 3,600")
    most = (RESULTS, FAULTS, GOALS) if exercise.goals else (RESULTS + GOALS, FAULTS, 0)
    try:
        _, outcomes = run(
            exercise, source, seed=seed, seconds=seconds, until_wrong=until_wrong, done=done
        )
    except RefusedError as error:
        refused = str(error).replace("<source>", file)
        return Grade(exercise.name, file, seed, 0, 0, 0, most, refused)
    return _graded(exercise, file, seed, most, outcomes, shows_hidden)


def _graded(
    exercise: Exercise,
    file: str,
    seed: int,
    most: tuple[int, int, int],
    outcomes: Sequence[Outcome],
    shows_hidden: bool,
) -> Grade:
    """Return the grade of a submission whose tests were run."""
    share = most[0] / len(exercise.tests)
    tests = tuple(_test(each, share, shows_hidden, file) for each in outcomes)
    left = exercise.tests[len(tests) :]
    is_right = not left and all(each.is_right for each in tests)
    tests += tuple(TestResult(x.name, x.is_hidden, False, 0.0, share, "", NOT_RUN) for x in left)
    findings = _findings(outcomes, shows_hidden)
    goals: list[GoalResult] = []
    if is_right:
        launched = [(x.case, x.report) for x in outcomes if x.report is not None]
        goals = judge(exercise, launched, shows_hidden)
    found = hints.of_findings(each for each, _ in findings)
    found += _result_hints(outcomes, shows_hidden)
    launches = {x.case.test.name: (x.case, x.report) for x in outcomes if x.report is not None}
    for each in goals:
        if not each.is_met:
            found.append(each.goal.aim)
            if not each.is_hidden:
                found += hints.of_goal(each, *launches[each.test])
    return Grade(
        exercise.name, file, seed,
        float(most[0]) if is_right else round(sum(each.points for each in tests), 1),
        float(most[1]) if is_right and not findings else 0.0,
        round(sum(_share(each, goals, most[2]) for each in goals if each.is_met), 1),
        most, "", tests, tuple(goals), findings, tuple(dict.fromkeys(found)),
        _printed(outcomes), watching.command(exercise, file, outcomes, seed),
    )  # fmt: skip


def _share(goal: GoalResult, goals: Sequence[GoalResult], most: float) -> float:
    """Return the points of one goal."""
    return most * goal.goal.weight / sum(each.goal.weight for each in goals)


def _test(outcome: Outcome, share: float, shows_hidden: bool, file: str) -> TestResult:
    test, case = outcome.case.test, outcome.case
    is_told = shows_hidden or not test.is_hidden
    said = ""
    if not outcome.is_right:
        if outcome.has_result:
            said = "the result is right here, but a fault was found: elsewhere it can be wrong"
        elif not is_told:
            said = _kind(outcome)
        else:
            said = outcome.problem or "; ".join(_compared(x) for x in outcome.wrong)
            said = said.replace("<source>", file)
    return TestResult(
        test.name, test.is_hidden, outcome.is_right, share if outcome.is_right else 0.0, share,
        _about(case) if is_told else "", said, outcome.is_stopped,
    )  # fmt: skip


def _kind(outcome: Outcome) -> str:
    """Return what is wrong with a hidden test, without its sizes and values."""
    if outcome.problem:
        at = f" at line {outcome.line}" if outcome.line else ""
        return f"stopped{at}" if outcome.report is None else outcome.problem
    left = sum(int(x.unwritten.sum()) for x in outcome.wrong)
    return "some elements were never written" if left else "the result is not right"


def _compared(wrong: Wrong) -> str:
    """Return the number of wrong elements, and the first of them, in words."""
    found = wrong.compared
    assert found.first is not None
    at = element(found.name, found.first)
    is_unwritten = bool(wrong.unwritten[found.first])
    got = "was never written" if is_unwritten else f"is {wrong.got:.6g}"
    return (
        f"{found.wrong:,} of {plural(found.elements, 'element')} of {found.name} wrong; {at} {got} "
        f"and should be {wrong.wanted:.6g}"
    )


def _about(case: Case) -> str:
    sizes = [f"{name} = {case.sizes[name]:,}" for name in case.test.sizes]
    sizes += [f"{name} = {text}" for name, text in case.test.given.items()]
    note = [case.test.note] if case.test.note else []
    return "; ".join([", ".join(sizes), *note])


def _findings(outcomes: Sequence[Outcome], shows_hidden: bool) -> tuple[tuple[Finding, bool], ...]:
    """Return the first finding of each kind at each line, in the order of the tests."""
    found: dict[tuple[str, int], tuple[Finding, bool]] = {}
    for outcome in outcomes:
        is_hidden = outcome.case.test.is_hidden and not shows_hidden
        for each in outcome.findings:
            found.setdefault((each.kind, each.line), (each, is_hidden))
    return tuple(found.values())[:_MOST_FINDINGS]


def _fault(finding: Finding, is_hidden: bool) -> str:
    at = f"line {finding.line}" if finding.line else "a line that the compiler does not name"
    said = "found in a hidden test" if is_hidden else finding.message.replace("<source>:", "line ")
    return f"{at}: {finding.kind}: {said}"


def _result_hints(outcomes: Sequence[Outcome], shows_hidden: bool) -> list[str]:
    """Return hints on the first wrong test that may be shown, or that only hidden tests
    are wrong.
    """
    wrong = [each for each in outcomes if not each.is_right]
    for each in wrong:
        if each.wrong and (shows_hidden or not each.case.test.is_hidden):
            return hints.of_result(each)
    if wrong and all(each.case.test.is_hidden for each in wrong):
        return [
            "Every visible test is right, and a hidden one is not: it has other sizes and other "
            "values. Try sizes that are no multiple of the block, smaller ones and larger ones."
        ]
    return []


def _printed(outcomes: Sequence[Outcome]) -> str:
    """Return what the kernel printed in the first test, without control characters."""
    reports: list[LaunchReport | None] = [each.report for each in outcomes[:1]]
    text = "".join(each.output for each in reports if each is not None)
    plain = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    if len(plain) > _MOST_PRINTED:
        more = plural(len(plain) - _MOST_PRINTED, "character")
        plain = f"{plain[:_MOST_PRINTED]}\n... and {more} more"
    return plain
