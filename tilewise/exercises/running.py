"""Compile and launch submissions on the emulator, in other processes and within limits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tilewise import isolated
from tilewise.compiler import Compiled
from tilewise.compiler.ahead import cores
from tilewise.compiler.names import signature
from tilewise.errors import CheckError, CompileError, LimitError, TilewiseError, told
from tilewise.exercises.cases import Case, bits_of, make, unwritten
from tilewise.exercises.catalogue import Exercise
from tilewise.kernel import Kernel
from tilewise.launch import DEFAULT_ARCH, Finding, Launch, LaunchReport
from tilewise.limits import Limits
from tilewise.specs.arrays import Array
from tilewise.specs.expected import Compared, compare, wrong_elements

SECONDS = 5.0
"""The time that a submission may take by default, with all its tests, on an idle machine. An
infinite loop ends at the limit on instructions, which is the same on every machine."""
MEMORY = 1 << 30
OUTPUT = 1 << 14
MOST_SOURCE = 1 << 18
MOST_PTX = 1 << 22
_COMPILE_SHARE = 0.6  # of the seconds; the rest is for the tests
_TEST_SHARE = 0.4
_LEAST_SECONDS = 0.05
_GRACE = 1.0
_BOUNDS = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_INCLUDE = re.compile(r"; name its folder in include=, or trust the source with trusted=True")


class RefusedError(Exception):
    """A submission that can't be launched: it does not compile, or has no such kernel."""


@dataclass(frozen=True)
class Wrong:
    """An array with wrong elements.

    Attributes
    ----------
    compared : Compared
    elements : ndarray of bool
        Which elements are wrong.
    unwritten : ndarray of bool
        Which elements nothing wrote.
    got, wanted : float
        The value and the expected value of the first wrong element.
    """

    compared: Compared
    elements: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    unwritten: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    got: float
    wanted: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test.

    Attributes
    ----------
    case : Case
    report : LaunchReport or None
        The report; None if the launch failed.
    problem : str
        Why there is no report, or which input was changed; empty if there is no problem.
    wrong : tuple of Wrong
    findings : tuple of Finding
    line : int
        The line at which the launch was stopped; 0 if it is not known.
    is_stopped : bool
        Whether it was stopped at a limit.
    """

    case: Case
    report: LaunchReport | None
    problem: str = ""
    wrong: tuple[Wrong, ...] = ()
    findings: tuple[Finding, ...] = ()
    line: int = 0
    is_stopped: bool = False

    @property
    def is_right(self) -> bool:
        """Whether every array is as it should be, and no fault was found on the way."""
        return self.has_result and not self.findings

    @property
    def has_result(self) -> bool:
        """Whether every array is as it should be."""
        return self.report is not None and not self.problem and not self.wrong


@dataclass
class Clock:
    """The seconds that a submission has left."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds until the submission's time is over; negative after that."""
        return self.begun + self.seconds - time.monotonic()


def _crowd() -> float:
    """Return the load average for each core, at least 1: how much longer a process takes here."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        return 1.0
    return max(1.0, load / cores())


def run(
    exercise: Exercise,
    source: str,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    until_wrong: bool = False,
    done: Callable[[str], None] = lambda _: None,
) -> tuple[Compiled, list[Outcome]]:
    """Compile a submission and run an exercise's tests.

    Parameters
    ----------
    exercise : Exercise
    source : str
    seed : int
    seconds : float
        The seconds that all of it may take on an idle machine; on a busy one, more. A launch that
        is stopped is the last one.
    until_wrong : bool
        Whether to stop at the first test that is wrong.
    done : callable
        A function that is called with the name of each test that begins.

    Raises
    ------
    RefusedError
    ValueError, TypeError
        If the exercise itself is wrong.
    """
    clock = Clock(seconds * _crowd())
    compiled = _compiled(exercise, source, clock)
    threads = threads_of(exercise, compiled)
    outcomes = []
    for test in exercise.tests:
        done(test.name)
        outcome = _launched(exercise, compiled, make(exercise, test, seed, threads), clock)
        outcomes.append(outcome)
        if outcome.is_stopped or (until_wrong and not outcome.is_right):
            break
    return compiled, outcomes


def _compiled(exercise: Exercise, source: str, clock: Clock) -> Compiled:
    """Compile the kernel, and see that it takes what the exercise gives it."""
    if len(source) > MOST_SOURCE:
        raise RefusedError(
            f"the file has {len(source):,} characters; a submission has {MOST_SOURCE:,} at most"
        )
    limits = Limits(seconds=clock.seconds * _COMPILE_SHARE, memory=MEMORY, output=OUTPUT)
    try:
        compiled = Kernel(source, exercise.kernel, limits=limits).compile(DEFAULT_ARCH)
    except CompileError as error:
        raise RefusedError(_INCLUDE.sub("; a submission is one file", str(error))) from None
    except LimitError as error:
        raise RefusedError(f"compiling it was stopped: {error}") from None
    except (TilewiseError, ValueError, TypeError) as error:
        raise RefusedError(str(error)) from None
    return checked(exercise, compiled)


def checked(exercise: Exercise, compiled: Compiled) -> Compiled:
    """Return ``compiled`` if its parameters are those of the exercise.

    Raises
    ------
    RefusedError
        If the parameters' types differ, or the PTX is longer than what is run.
    """
    if len(compiled.ptx) > MOST_PTX:
        raise RefusedError(
            f"the compiler makes {len(compiled.ptx):,} characters of PTX of it, and "
            f"{MOST_PTX:,} are the most that is run: a loop may be unrolled that should not be"
        )
    wanted = [each.type for each in exercise.parameters]
    got = [each.declared for each in compiled.parameters]
    is_same = len(wanted) == len(got) and all(
        found in ("", "*", want) for found, want in zip(got, wanted, strict=True)
    )
    if not is_same:
        raise RefusedError(
            f"the kernel is {signature(compiled)}, and the exercise launches {exercise.signature}"
        )
    return compiled


def threads_of(exercise: Exercise, compiled: Compiled) -> int | None:
    """Return a block's threads by the kernel's launch bounds; None if the exercise sets them."""
    return _bounds(compiled) if exercise.threads is not None else None


def _bounds(compiled: Compiled) -> int | None:
    """Return the threads of the kernel's launch bounds; None if it has none."""
    head = compiled.ptx.partition(f".entry {compiled.symbol}")[2].partition("{")[0]
    found = _BOUNDS.search(head)
    return None if found is None else int(np.prod([int(x) for x in found.groups() if x]))


def _launched(exercise: Exercise, compiled: Compiled, case: Case, clock: Clock) -> Outcome:
    """Run one test."""
    if clock.left() < _LEAST_SECONDS:
        over = f"not run: the submission's {clock.seconds:.3g} seconds were over before"
        return Outcome(case, None, over, is_stopped=True)
    before = {name: bits_of(x).copy() for name, x in case.arrays.items()}
    limits = Limits(
        seconds=max(min(clock.left(), clock.seconds * _TEST_SHARE), _LEAST_SECONDS),
        instructions=exercise.instructions, memory=MEMORY, output=OUTPUT,
    )  # fmt: skip
    asked = Launch(
        case.grid, case.block, case.args, case.shared, "collect", global_races=True, limits=limits
    )
    try:
        report, _ = isolated.launch(
            "emulator", DEFAULT_ARCH, compiled, asked, grace=_GRACE, confirms=False
        )
    except CheckError as error:
        return replace(_ended(case, error.stopped or error), findings=error.findings)
    except (TilewiseError, ValueError, TypeError) as error:
        return _ended(case, error)
    return _judged(case, report, before)


def _ended(case: Case, error: Exception) -> Outcome:
    """Return the outcome of a launch that an error ended."""
    if isinstance(error, CheckError):
        return Outcome(case, None, "a fault stopped the launch")
    if not isinstance(error, LimitError):
        return Outcome(case, None, str(error))
    at = f"at line {error.line}, " if error.line else ""
    told_of = f"{at}{error.what}: it takes more than {told(error.limit, error.value)}"
    return Outcome(case, None, told_of, line=error.line, is_stopped=True)


def _judged(
    case: Case,
    report: LaunchReport,
    before: dict[str, Array],
) -> Outcome:
    """Compare the arrays with their expected values."""
    arrays = case.arrays
    wrong = []
    for each in case.expected:
        result = arrays[each.name]
        left = unwritten(result)
        compared = compare(each, result, unwritten=left)
        if compared.first is not None:
            wrong.append(Wrong(
                compared, wrong_elements(each, result, left), left,
                float(result[compared.first]), float(each.value[compared.first]),
            ))  # fmt: skip
    written = {each.name for each in case.expected}
    changed = [
        name for name, x in arrays.items()
        if name not in written and not np.array_equal(bits_of(x), before[name])
    ]  # fmt: skip
    problem = f"it changes {changed[0]}, which is an input" if changed else ""
    return Outcome(case, report, problem, tuple(wrong), report.findings)
