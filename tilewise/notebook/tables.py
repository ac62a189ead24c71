"""The tables of a lesson: a guess, launches side by side, and whether goals are met."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from tilewise.counted import Counters
from tilewise.ladder.run import RunResult
from tilewise.launch import LaunchReport
from tilewise.lens.profile import Profile
from tilewise.shown import Part, Shown, Table, number, plural

USUAL = (
    "global_load_requests", "global_load_sectors", "global_store_sectors", "shared_load_requests",
    "shared_load_wavefronts", "shared_load_bank_conflicts", "shared_store_bank_conflicts",
    "barriers", "divergent_branches", "flops", "warp_instructions",
)  # fmt: skip
"""The counters that :func:`beside` shows where none are named."""
OF_LINES = (
    "global_load_sectors", "global_store_sectors", "shared_load_wavefronts",
    "shared_load_bank_conflicts", "shared_store_bank_conflicts",
)  # fmt: skip
"""The counters that :func:`lines` shows where none are named."""
NO_GUESS = "There is no guess yet: set it in the cell above, run that, and run this again."

Counted = LaunchReport | Profile | RunResult


@dataclass(frozen=True, repr=False)
class Revealed(Shown):
    """A guess beside what was counted.

    Attributes
    ----------
    what : str
        What was counted, in words.
    guess : float or None
        The guess; None if there is none.
    counted : float
    """

    what: str
    guess: float | None
    counted: float

    @property
    def is_right(self) -> bool:
        """Whether the guess is what was counted, to six digits."""
        return self.guess is not None and math.isclose(self.guess, self.counted, rel_tol=1e-6)

    def _summary(self) -> str:
        return f"{self.what}: {number(self.counted)}"

    def _said(self) -> str:
        if self.guess is None:
            return NO_GUESS
        if self.is_right:
            return "Your guess is right."
        if self.guess == 0 or self.counted == 0 or (self.guess < 0) != (self.counted < 0):
            return "Your guess is another number. Why?"
        less, more = sorted((abs(float(self.guess)), abs(float(self.counted))))
        times = more / less
        if math.isinf(times):
            return "Your guess is another number. Why?"
        if abs(self.counted) > abs(self.guess):
            return f"It is {number(times)} times your guess. Why?"
        return f"Your guess is {number(times)} times as much. Why?"

    def _parts(self) -> list[Part]:
        guess = "none" if self.guess is None else number(self.guess)
        rows = [("your guess", guess), ("counted", number(self.counted))]
        return [Table(rows, (self.what, "")), self._said()]


def reveal(what: str, guess: float | None, counted: float) -> Revealed:
    """Show a guess beside what was counted.

    Parameters
    ----------
    what : str
        What was counted, in words.
    guess : float or None
        The guess; None if there is none.
    counted : float

    Returns
    -------
    Revealed
        A result that shows itself in a notebook.

    Raises
    ------
    TypeError
        If the guess is not a number.
    ValueError
        If it is infinite, or out of a float's range.

    Examples
    --------
    >>> from tilewise import notebook
    >>> print(notebook.reveal("sectors", 128, 1024))
    sectors
    your guess    128
    counted     1,024
    It is 8 times your guess. Why?
    """
    if guess is not None:
        if isinstance(guess, bool) or not isinstance(guess, Real):
            raise TypeError(f"the guess is {guess!r}; it takes a number, as 32, or None")
        try:
            is_finite = math.isfinite(guess)
        except OverflowError:  # an integer of hundreds of digits
            is_finite = False
        if not is_finite:
            raise ValueError(f"the guess is {guess}; it takes a finite number, as 32, or None")
        guess = int(guess) if isinstance(guess, Integral) else float(guess)
    return Revealed(what, guess, counted)


@dataclass(frozen=True, repr=False)
class Beside(Shown):
    """The counters of launches, a column for each launch.

    Attributes
    ----------
    columns : mapping of str to Counters
    counters : tuple of str
        The names of :class:`tilewise.Counters`.
    """

    columns: Mapping[str, Counters]
    counters: tuple[str, ...]

    def _summary(self) -> str:
        return f"{' beside '.join(self.columns)}: {plural(len(self.counters), 'counter')}"

    def _parts(self) -> list[Part]:
        rows = [
            (name.replace("_", " "), *(number(getattr(of, name)) for of in self.columns.values()))
            for name in self.counters
        ]
        return [Table(rows, ("", *self.columns))]


def beside(found: Mapping[str, Counted], counters: Sequence[str] = ()) -> Beside:
    """Show the counters of launches side by side.

    Parameters
    ----------
    found : mapping of str to Profile, RunResult or LaunchReport
        The launches by name.
    counters : sequence of str, optional
        The names of :class:`tilewise.Counters`. By default these are the usual ones, if one launch
        has a count other than 0.

    Returns
    -------
    Beside
        A result that shows itself in a notebook.

    Raises
    ------
    ValueError
        If nothing is given, a launch has no counters, or there is no such counter.
    TypeError
        If one of them has no launch.
    """
    if not found:
        raise ValueError("there is nothing to show side by side; give a mapping of launches")
    columns = {name: counters_of(each, name) for name, each in found.items()}
    names = _named(counters)
    usual = tuple(name for name in USUAL if any(getattr(each, name) for each in columns.values()))
    return Beside(columns, names or usual)


def _named(counters: Sequence[str]) -> tuple[str, ...]:
    """Return the names of counters, after checking each.

    Raises
    ------
    ValueError
        If there is no such counter.
    """
    for name in counters:
        if not isinstance(getattr(Counters(), name, None), int):
            raise ValueError(
                f"there is no counter {name!r}; it takes names such as {', '.join(USUAL)}"
            )
    return tuple(counters)


def counters_of(found: Counted, name: str = "it") -> Counters:
    """Return the counters of a launch.

    Raises
    ------
    ValueError
        If it has none, as on a GPU.
    TypeError
        If it is no launch.
    """
    report: Any = found
    if isinstance(found, Profile | RunResult):
        report = found.report
    elif not isinstance(found, LaunchReport):
        kind = type(found).__name__
        raise TypeError(f"{name} is a {kind}; it takes a profile, a run or the report of a launch")
    if report is None or report.counters is None:
        raise ValueError(f"{name} has no counters: only the emulator counts")
    counters: Counters = report.counters
    return counters


@dataclass(frozen=True, repr=False)
class Lines(Shown):
    """A kernel's source, with what each line did.

    Attributes
    ----------
    kernel : str
    source : tuple of (int, str)
        The lines of the kernel, by their numbers.
    by_line : mapping of int to Counters
    counters : tuple of str
        Names of :class:`tilewise.Counters`.
    """

    kernel: str
    source: tuple[tuple[int, str], ...]
    by_line: Mapping[int, Counters]
    counters: tuple[str, ...]

    def _summary(self) -> str:
        lines = plural(len(self.source), "line")
        return f"{self.kernel}: {plural(len(self.counters), 'counter')} of {lines}"

    def _parts(self) -> list[Part]:
        nothing = Counters()
        rows = []
        for line, text in self.source:
            found = self.by_line.get(line, nothing)
            values = [getattr(found, name) for name in self.counters]
            cells = [number(value) if value else "" for value in values]
            rows.append((str(line), text.replace(" ", "\u00a0"), *cells))
        head = ("", "", *(name.replace("_", " ") for name in self.counters))
        return [Table(rows, head, left=2)]

    def _repr_html_(self) -> str:
        """Return the source in letters of one width, for Jupyter."""
        return super()._repr_html_().replace("<table>", '<table style="font-family: monospace">')


def lines(found: Profile, counters: Sequence[str] = ()) -> Lines:
    """Show a kernel's source, with what each of its lines did.

    Parameters
    ----------
    found : Profile
    counters : sequence of str, optional
        Names of :class:`tilewise.Counters`. By default those of :data:`OF_LINES` of which one is
        not 0.

    Returns
    -------
    Lines
        It shows itself in a notebook; lines before the first that did something, and behind the
        last, are left out.

    Raises
    ------
    ValueError
        If there is no such counter, or no line did anything.
    """
    by_line = found.report.lines
    if not by_line:
        raise ValueError(f"{found.kernel} has no lines of which something was counted")
    names = _named(counters) or tuple(
        name for name in OF_LINES if any(getattr(each, name) for each in by_line.values())
    )
    text = found.source.splitlines()
    first, last = max(min(by_line) - 1, 1), min(max(by_line) + 1, len(text))
    source = tuple((i, text[i - 1]) for i in range(first, last + 1))
    return Lines(found.kernel, source, by_line, names)


@dataclass(frozen=True, repr=False)
class Checked(Shown):
    """Whether the goals of an exercise are met.

    Attributes
    ----------
    goals : tuple of (str, bool, str)
        What should be, whether it is, and what was found, for each goal.
    """

    goals: tuple[tuple[str, bool, str], ...]

    @property
    def is_met(self) -> bool:
        """Whether all of them are."""
        return all(is_met for _, is_met, _ in self.goals)

    def _summary(self) -> str:
        met = sum(is_met for _, is_met, _ in self.goals)
        if self.is_met:
            return "Right: every goal is met." if len(self.goals) > 1 else "Right: the goal is met."
        return f"Not yet: {met} of {len(self.goals)} goals are met."

    def _parts(self) -> list[Part]:
        rows = [
            ("✓ met" if is_met else "✗ not yet", goal, said) for goal, is_met, said in self.goals
        ]
        return [self._summary(), Table(rows, left=3)]


def check(*goals: tuple[str, Any] | tuple[str, Any, Any]) -> Checked:
    """Return which goals of an exercise are met.

    Parameters
    ----------
    *goals : (str, bool) or (str, bool, object)
        What should be, whether it is, and what was found, which is shown as text.

    Returns
    -------
    Checked
        A result that shows itself in a notebook.

    Raises
    ------
    ValueError
        If there is no goal.

    Examples
    --------
    >>> from tilewise import notebook
    >>> print(notebook.check(("C is right", True), ("at most 4 sectors", 8 <= 4, 8)))
    Not yet: 1 of 2 goals are met.
    ✓ met      C is right
    ✗ not yet  at most 4 sectors  8
    """
    if not goals:
        raise ValueError("there is no goal to check; give (what should be, whether it is)")
    found = []
    for goal in goals:
        what, is_met, *said = goal
        shown = "" if not said else said[0] if isinstance(said[0], str) else _text(said[0])
        found.append((what, bool(is_met), shown))
    return Checked(tuple(found))


def _text(value: Any) -> str:
    """Return a number as reports write it; of a fault's list the first, and how many more."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, list | tuple):
        more = f" (and {len(value) - 1} more)" if len(value) > 1 else ""
        return f"{value[0]}{more}" if value else "none"
    return str(value)
