"""A tour as data: its stops, each with a place in the trace, a text and perhaps a prediction.

This is all that the page knows of a tour. A stop names what to look at by these words:

========== =========================================================================
word       the page highlights
========== =========================================================================
an array's its rows and columns in global memory, as ``"a"``
name
traffic    the loads from global memory so far
requests   a warp's request and the sectors that it touches
sum        one thread's multiply-add, with its factors
arrivals   the warps that have arrived at a barrier
shared     the arrays in shared memory
banks      the words of shared memory, a bank a column
threads    the threads with their last results
source     the line of the source
stages     the stages that asynchronous copies fill
warps      warps side by side
pieces     pieces of 16 bytes in the banks
fragments  which lane holds which elements
story      the closer look at what is marked
========== =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewise.shown import plural

MOST_CHOICES = 4
FEWEST_CHOICES = 3
IRREGULAR = {
    "matrix": "matrices", "box": "boxes",
    "ldmatrix": "ldmatrix", "mma.sync": "mma.sync", "wgmma": "wgmma",
}  # fmt: skip


def many(count: int, thing: str) -> str:
    """Return a count with its noun: ``no sector``, ``1 sector``, ``2 sectors``, ``2 matrices``."""
    if not count:
        return f"no {thing}"
    return counted(count, thing)


def counted(count: int, thing: str) -> str:
    """Return a count with its noun, with a figure for none: ``0 sectors``."""
    if count != 1 and thing in IRREGULAR:
        return f"{count:,} {IRREGULAR[thing]}"
    return plural(count, thing)


@dataclass(frozen=True)
class Ask:
    """A prediction to make before the step is shown.

    Attributes
    ----------
    question : str
    choices : tuple of str
    right : int
        The index of the right choice in ``choices``.
    remarks : tuple of str
        What the page says when a choice is made, one for each; empty for nothing.
    answer : int or None
        The right choice as a number, if it is one.
    """

    question: str
    choices: tuple[str, ...]
    right: int
    remarks: tuple[str, ...]
    answer: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "question": self.question, "choices": list(self.choices), "right": self.right,
            "remarks": list(self.remarks),
        }  # fmt: skip


def ask(
    question: str,
    answer: int,
    unit: str,
    others: Iterable[int],
    remarks: Mapping[int, str] | None = None,
) -> Ask:
    """Return a prediction of a number.

    Parameters
    ----------
    question : str
    answer : int
        The right answer, counted in the trace.
    unit : str
        The unit in the singular, as in ``"sector"``.
    others : iterable of int
        The wrong answers, the most tempting first. One that equals ``answer`` or is negative is
        left out. If fewer than two are left, multiples of ``answer`` and numbers above it are
        added.
    remarks : mapping of int to str, optional
        The remarks on wrong answers, by the answer.
    """
    spare = (2 * answer, 4 * answer, answer + 1, answer + 2, answer + 3)
    tempting = [x for x in dict.fromkeys(others) if x != answer and x >= 0][: MOST_CHOICES - 1]
    for one in spare:
        if len(tempting) < FEWEST_CHOICES - 1 and one != answer and one not in tempting:
            tempting.append(one)
    numbers = sorted([answer, *tempting])
    said = remarks or {}
    return Ask(
        question, tuple(counted(x, unit) for x in numbers), numbers.index(answer),
        tuple("" if x == answer else said.get(x, "") for x in numbers), answer,
    )  # fmt: skip


@dataclass(frozen=True)
class Stop:
    """A stop of a tour.

    Attributes
    ----------
    step : int
        The index among the block's steps.
    title : str
        The title in a few words.
    text : str
        A sentence or two; at a stop with a question, they are said after the answer.
    look : tuple of str
        What to look at, the most important first, in the words above.
    before : str
        What is said before the question, at a stop with one.
    ask : Ask or None
    block : int
        The number of the recorded block.
    warp : int
        The warp whose accesses the banks, the pieces and the fragments show.
    shows_sectors : bool
        Whether the array marks the sectors that the warp's access touches.
    mark : mapping or None
        A further mark: ``{"thread": 0}``, an element of an array as ``{"array": "a", "at": 5}``, or
        a cell of shared memory as ``{"byte": 8}``.
    """

    step: int
    title: str
    text: str
    look: tuple[str, ...]
    before: str = ""
    ask: Ask | None = None
    block: int = 0
    warp: int = 0
    shows_sectors: bool = False
    mark: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "block": self.block, "step": self.step, "title": self.title, "text": self.text,
            "look": list(self.look), "warp": self.warp, "sectors": self.shows_sectors,
        }  # fmt: skip
        if self.mark is not None:
            found["mark"] = dict(self.mark)
        if self.ask is not None:
            found |= {"before": self.before, "ask": self.ask.to_dict()}
        return found


@dataclass(frozen=True)
class Tour:
    """A tour's opening text, and its stops.

    Attributes
    ----------
    question : str
        The question that the launch raises; for a kernel that is not on the ladder, what it does.
    sentences : tuple of str
        Sentences on what the launch is and does.
    stops : tuple of Stop
        The stops; empty if there is nothing to stop at.
    is_of_rung : bool
        Whether the tour is written for a rung, rather than found from the trace alone.
    ends_at_fault : bool
        Whether the last stop is the fault that ended the run, or a wrong result.
    """

    question: str
    sentences: tuple[str, ...]
    stops: tuple[Stop, ...] = field(default=())
    is_of_rung: bool = False
    ends_at_fault: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the page."""
        return {
            "question": self.question, "sentences": list(self.sentences),
            "of_rung": self.is_of_rung, "fault": self.ends_at_fault,
            "stops": [each.to_dict() for each in self.stops],
        }  # fmt: skip
