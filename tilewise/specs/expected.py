"""The expected values of a launch's arrays: an expression of the arguments, or a file.

``y = a*x + y`` says what y should be after the launch, from the arguments before it. The tolerance
follows from the expression's own operations, in the array's precision
(:mod:`tilewise.specs.bounds`); integers, and arrays from files, must be equal, unless a tolerance
is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.shown import Record, element, number, plural
from tilewise.specs.arguments import place_of
from tilewise.specs.arrays import Array, load
from tilewise.specs.bounds import Precision
from tilewise.specs.formulas import Unset, evaluate

_WRITTEN = re.compile(r"\s*([A-Za-z_]\w*|\d+)\s*=(?!=)(.*)", re.DOTALL)
_FILE = re.compile(r"\s*(?:(?P<path>.+\.npy)|(?P<archive>.+\.npz):(?P<key>[^:]+))\s*", re.I)
_NOTHING = 1e-200
_FEW = 10  # one element in so many may have a bound as wide as itself, as sums cancel


@dataclass(frozen=True)
class Expected:
    """The expected values of one array.

    Attributes
    ----------
    name : str
        The argument's name.
    text : str
        The expression, or the file.
    value : ndarray
        The values, in the array's shape.
    error : ndarray or None
        The most that each element may be off; None if that is not known, as for a file.
    """

    name: str
    text: str
    value: Array
    error: Array | None


@dataclass(frozen=True, repr=False)
class Compared(Record):
    """The comparison of an array with its expected values.

    Attributes
    ----------
    name, expected : str
    correct : bool
    rule : str
        The rule for each element.
    elements, wrong : int
        The number of elements, and of those that are wrong.
    first : tuple of int or None
        The place of the first wrong element in row-major order; None if there is none.
    worst : tuple of int or None
        The place of the element with the largest error relative to what is allowed; None if there
        is no element.
    got, wanted, allowed : float, int or None
        The value of that element (None if nothing wrote it), its expected value, and its tolerance.
    max_error : float
        The largest difference of finite elements.
    share : float or None
        The largest difference relative to its tolerance; None if nothing is allowed.
    loose : int
        The number of elements whose bound is as wide as the value itself, so that even 0 is within
        it.
    """

    name: str
    expected: str
    correct: bool
    rule: str
    elements: int
    wrong: int
    first: tuple[int, ...] | None
    worst: tuple[int, ...] | None
    got: float | int | None
    wanted: float | int | None
    allowed: float | None
    max_error: float
    share: float | None
    loose: int = 0

    def _summary(self) -> str:
        what = f"{self.name} = {self.expected}"
        if self.correct:
            near = (
                ""
                if self.share is None
                else f", the largest error {self.share:.2g} of what is allowed"
            )
            told = f"right: {what}, in {plural(self.elements, 'element')}, {self.rule}{near}"
            if self.loose * _FEW >= self.elements and self.loose:
                told += (
                    f"; in {number(self.loose)} of them the bound is as wide as the value: --rtol "
                    "or --atol says more"
                )
            return told
        assert self.worst is not None
        first = ""
        if self.first is not None and self.first != self.worst:
            first = f", the first {element(self.name, self.first)}"
        worst = element(self.name, self.worst)
        got = "was never written" if self.got is None else f"is {_short(self.got)}"
        allowed = f", within {self.allowed:.3g}" if self.allowed else ""
        return (
            f"WRONG: {what}, in {number(self.wrong)} of {plural(self.elements, 'element')}"
            f"{first}, compared {self.rule}; the worst is {worst}, which {got} and "
            f"should be {_short(self.wanted)}{allowed}"
        )


def parse(text: str, values: Mapping[str, Any], names: Sequence[str] = ()) -> Expected:
    """Return the expected values that ``NAME = EXPRESSION``, or ``NAME=FILE.npy``, describes.

    Parameters
    ----------
    text : str
    values : mapping
        The arguments before the launch: numbers, and arrays.
    names : sequence of str
        The names of all parameters, so that the array may be given by its place.

    Raises
    ------
    ValueError
        If the text has another form, or the expression has unknown parts or another shape.
    OSError
        If the file can't be read.
    """
    what = f"--expect is {text!r}"
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise ValueError(f"{what}; it takes NAME=EXPRESSION or NAME=FILE.npy, as 'y = a*x + y'")
    name, right = found[1], found[2].strip()
    arrays = [each for each, value in values.items() if isinstance(value, np.ndarray | Unset)]
    place = place_of(name, names)
    name = name if place is None else names[place]
    if name not in arrays:
        near = get_close_matches(name, arrays, 1)
        there = f"did you mean {near[0]}? There are" if near else "there are"
        raise ValueError(f"{what}: {name} is no array; {there} {', '.join(arrays) or 'none'}")
    array = values[name]
    error = None
    if of_file := _FILE.fullmatch(right):
        value = load(Path(of_file["path"] or of_file["archive"]), of_file["key"], "--expect")
    else:
        computed = evaluate(right, values, Precision.of(array.dtype), what)
        value, error = computed.value, np.broadcast_to(computed.error, computed.value.shape)
    if value.size == math.prod(array.shape) and value.ndim:
        value = value.reshape(array.shape)
        error = None if error is None else error.reshape(array.shape)
    try:
        value = np.broadcast_to(value, array.shape)
        error = None if error is None else np.broadcast_to(error, array.shape)
    except ValueError:
        raise ValueError(
            f"{what}: it has shape {value.shape}, and {name} has {array.shape}"
        ) from None
    return Expected(name, right, value, error)


def file_of(text: str) -> Path | None:
    """Return the file that ``NAME=FILE.npy`` reads; None of an expression."""
    found = _WRITTEN.fullmatch(text)
    of_file = None if found is None else _FILE.fullmatch(found[2])
    return None if of_file is None else Path(of_file["path"] or of_file["archive"])


def compare(
    expected: Expected,
    result: Array,
    rtol: float | None = None,
    atol: float | None = None,
    unwritten: npt.NDArray[np.bool_] | None = None,
) -> Compared:
    """Compare an array with its expected values.

    Parameters
    ----------
    expected : Expected
    result : ndarray
    rtol, atol : float, optional
        The tolerance in place of the bound: ``atol + rtol * |expected|``.
    unwritten : ndarray of bool, optional
        The elements that nothing wrote, which are wrong whatever their values.

    Returns
    -------
    Compared
        The comparison. NaN must be where it should be, and infinity too, unless a finite value that
        is as large may overflow.
    """
    judged = _judged(expected, result, rtol, atol, unwritten)
    got, wanted, allowed, rule = judged.got, judged.wanted, judged.allowed, judged.rule
    right, beyond, off = judged.right, judged.beyond, judged.off
    wrong = int(np.count_nonzero(~right))
    finite = off[np.isfinite(off)]
    ranks = np.where(right, -1, beyond) if wrong else beyond
    worst = _place(ranks) if result.size else None
    is_bound = expected.error is not None and rtol is None and atol is None
    return Compared(
        expected.name, expected.text, wrong == 0, rule, result.size, wrong,
        _place(~right) if wrong else None, worst,
        None if worst is None or (unwritten is not None and unwritten[worst])
        else _plain(got[worst]),
        None if worst is None else _plain(wanted[worst]),
        None if worst is None else float(allowed[worst]),
        float(finite.max()) if finite.size else 0.0,
        float(beyond.max()) if result.size and np.any(allowed > 0) and not wrong else None,
        int(np.count_nonzero((allowed >= np.abs(wanted)) & (allowed > 0))) if is_bound else 0,
    )  # fmt: skip


def wrong_elements(
    expected: Expected, result: Array, unwritten: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which elements are wrong, by the rule of :func:`compare`."""
    return np.asarray(~_judged(expected, result, None, None, unwritten).right)


@dataclass(frozen=True)
class _Judged:
    """Elements compared with their expected values."""

    got: Array
    wanted: Array
    allowed: Array
    rule: str
    right: Array
    beyond: Array
    off: Array


def _judged(
    expected: Expected,
    result: Array,
    rtol: float | None,
    atol: float | None,
    unwritten: npt.NDArray[np.bool_] | None,
) -> _Judged:
    kind, wanted = result.dtype, expected.value
    got = result if kind.kind in "biuc" else result.astype(np.float64)
    if kind.kind == "u" and wanted.dtype.kind in "iu":
        wanted = wanted.astype(np.int64).astype(kind)  # it wraps around, as the kernel's does
    if rtol is not None or atol is not None:
        rule = f"within rtol {rtol or 0:g} and atol {atol or 0:g}"
        allowed = (atol or 0) + (rtol or 0) * np.abs(wanted)
    elif kind.kind in "biu":
        rule, allowed = "exactly", np.zeros(result.shape)
    elif expected.error is None:
        rule, allowed = "exactly", np.zeros(result.shape)
        if wanted.dtype.kind == "f":
            with np.errstate(over="ignore"):
                wanted = wanted.astype(kind).astype(got.dtype)
    else:
        allowed = _allowed(wanted, expected.error, Precision.of(kind))
        rule = f"as near as rounding in {kind} comes" if allowed.any() else "exactly"
    largest = math.inf if kind.kind in "biu" else _largest(kind)
    right, beyond, off = _held(got, wanted, allowed, largest, unwritten)
    return _Judged(got, wanted, allowed, rule, right, beyond, off)


def _held(
    got: Array,
    wanted: Array,
    allowed: Array,
    largest: float,
    unwritten: npt.NDArray[np.bool_] | None,
) -> tuple[Array, Array, Array]:
    """Return which elements are right, their errors relative to the tolerance, and their errors."""
    is_whole = got.dtype.kind in "biu"
    with np.errstate(all="ignore"):
        off = _off(got, wanted) if is_whole else np.abs(got - wanted)
        is_same = (got == wanted) | (_is_nan(got) & _is_nan(wanted))
        right = is_same | ((off <= allowed) & np.isfinite(wanted))
        may_overflow = (np.abs(wanted) + allowed > largest) & ((got > 0) == (wanted > 0))
        right |= np.isinf(got) & may_overflow
        if unwritten is not None:
            right, is_same = right & ~unwritten, is_same & ~unwritten
        # If nothing is allowed, any error is far beyond it.
        beyond = off / np.maximum(allowed, _NOTHING)
        beyond = np.where(is_same | (right & ~np.isfinite(off)), 0.0, beyond)
        beyond = np.where(np.isnan(beyond), np.inf, beyond)
    return right, beyond, off


def _allowed(wanted: Array, error: Array, precision: Precision) -> Array:
    """Return the tolerance of each element: the kernel's roundings, and the reference's.

    The reference is computed in float64; by the same analysis its errors are those of the kernel's
    precision, smaller by the ratio of their units. A value that is not computed, and that the
    array's dtype can't represent, is rounded when it is stored.
    """
    with np.errstate(all="ignore"):
        stored = wanted.astype(precision.dtype).astype(np.float64)
        rounding = precision.unit * np.abs(wanted) + precision.least
        is_rounded = (error == 0) & (stored != wanted)
        return np.asarray(
            error * (1 + 2.0**-53 / precision.unit) + np.where(is_rounded, rounding, 0.0)
        )


def _place(x: Array) -> tuple[int, ...]:
    """Return the place of the largest element, the first one of equals."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(x)), x.shape))


def _off(got: Array, wanted: Array) -> Array:
    return np.abs(got.astype(np.float64) - wanted.astype(np.float64))


def _is_nan(x: Array) -> Array:
    return np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool)


def _largest(kind: np.dtype[Any]) -> float:
    return 3.4e38 if kind.name == "bfloat16" else float(np.finfo(kind).max)


def _plain(value: Any) -> float | int | None:
    found = value.item()
    return found if isinstance(found, int | float) else abs(found)


def _short(value: float | int | None) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
