"""Between which bounds a kernel's result of a traced function lies, by interval arithmetic.

Nothing that multiplies asks for it: results are checked by it, in tests, lessons and benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.epilogue.evaluate import OWN, gelu_of
from tilewise.epilogue.symbols import Symbol

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# The largest errors of float and double functions in ulp, rounded up (CUDA Programming Guide,
# mathematical functions); the sigmoid's follows from exp's. Functions that are not listed are
# rounded correctly.
ULPS = {"sigmoid": 8, "exp": 2, "log": 2, "log1p": 2, "tanh": 2, "erf": 2, "rsqrt": 2}
GELU = 6
"""The largest error of gelu, in units of rounding of its argument (functions.cuh)."""
INCREASING = ("sigmoid", "exp", "log", "log1p", "tanh", "erf", "sqrt")
LEAST = {"log": 0.0, "log1p": -1.0, "sqrt": 0.0, "rsqrt": 0.0}
"""The least argument of the functions that have one."""


class Interval:
    """The bounds of a value in float64; NaN for a value that is NaN for certain.

    Parameters
    ----------
    low, high : array
    """

    def __init__(self, low: Floats, high: Floats) -> None:
        self.low, self.high = low, high


class Condition:
    """Whether a condition may hold, and whether it may fail."""

    def __init__(self, may_hold: Bools, may_fail: Bools) -> None:
        self.may_hold, self.may_fail = may_hold, may_fail


class Enclosure:
    """Bounds for the values of a function that is computed in float32 or float64.

    Parameters
    ----------
    unit : float
        Half the distance from 1 to the next larger number.
    least, largest : float
        The smallest and the largest positive number.
    """

    def __init__(self, unit: float, least: float, largest: float) -> None:
        self.unit, self.least, self.largest = unit, least, largest

    def of(
        self, results: Sequence[Any], needed: Sequence[Symbol], sums: Mapping[str, Interval],
        operands: Mapping[str, Interval],
    ) -> list[Interval]:  # fmt: skip
        """Return bounds for each result.

        The parameters are those of :func:`tilewise.epilogue.evaluate.evaluated`.
        """
        values: dict[int, Any] = {}

        def value(x: Any) -> Any:
            if isinstance(x, Symbol):
                return values[id(x)]
            rounded = np.asarray(np.float32(x) if self.unit > 2.0**-50 else x, np.float64)
            return Interval(rounded, rounded)

        with np.errstate(all="ignore"):
            for symbol in needed:
                if symbol.operation in sums:
                    found: Any = sums[symbol.operation]
                elif symbol.operation == "operand":
                    found = operands[symbol.arguments[0]]
                else:
                    found = self._operate(symbol.operation, [value(x) for x in symbol.arguments])
                values[id(symbol)] = found
            return [value(x) for x in results]

    def _operate(self, operation: str, given: list[Any]) -> Any:
        if operation in ("less", "less_equal", "equal", "not_equal", "and", "or", "not"):
            return _condition(operation, given)
        if operation == "where":
            return _chosen(*given)
        low, high = _BOUNDS.get(operation, _by_corners(operation))(*given)
        if operation in ("negative", "absolute", "minimum", "maximum"):
            return Interval(low, high)
        if operation == "sigmoid":  # exp overflows before the result is the least number
            low = np.where(low < 4 / self.largest, 0.0, low)
        if operation == "gelu":
            of = np.maximum(np.abs(given[0].low), np.abs(given[0].high))
            # Far from 0 gelu is x or 0, and has only the error of rounding.
            off = GELU * self.unit * np.minimum(of, 64.0) + self.least
            low, high = low - off, high + off
        return self._wider(low, high, ULPS.get(operation, 0))

    def _wider(self, low: Floats, high: Floats, ulps: int) -> Interval:
        """Allow for rounding in this dtype, and in float64, in which the bounds are computed."""
        relative = (1 + 2 * ulps) * self.unit + 8 * 2.0**-53
        low = low - (np.abs(low) * relative + (1 + ulps) * self.least)
        high = high + (np.abs(high) * relative + (1 + ulps) * self.least)
        # A value beyond the largest number may be infinity; infinity minus infinity is NaN here.
        low = np.where(low < -self.largest, -np.inf, low)
        high = np.where(high > self.largest, np.inf, high)
        return Interval(low, high)


def _by_corners(operation: str) -> Callable[..., tuple[Floats, Floats]]:
    function = {
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
        "minimum": np.minimum, "maximum": np.maximum,
    }.get(operation)  # fmt: skip
    if function is None:
        return lambda x: _by_ends(operation, x)

    def bounds(x: Interval, y: Interval) -> tuple[Floats, Floats]:
        corners = [function(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        if operation == "divide":
            through_zero = (y.low <= 0) & (y.high >= 0) & (y.low < y.high)
            low, high = np.where(through_zero, -np.inf, low), np.where(through_zero, np.inf, high)
        return _unknown_where_nan(low, high, x, y)

    return bounds


def _unknown_where_nan(
    low: Floats, high: Floats, x: Interval, y: Interval
) -> tuple[Floats, Floats]:
    """Return unknown bounds where a corner is NaN (0 times infinity) and the values differ."""
    nan = np.isnan(x.low) | np.isnan(y.low)
    exact = ((x.low == x.high) & (y.low == y.high)) | nan
    unknown = np.isnan(low) & ~exact
    return np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)


def _by_ends(operation: str, x: Interval) -> tuple[Floats, Floats]:
    function = OWN.get(operation) or getattr(np, operation)
    low, high = function(x.low), function(x.high)
    if operation not in INCREASING:
        low, high = high, low
    least = LEAST.get(operation)
    if least is not None:  # NaN below it
        unknown = (x.low < least) & (x.high >= least)
        low, high = np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)
    return low, high


def _absolute(x: Interval) -> tuple[Floats, Floats]:
    low, high = np.abs(x.low), np.abs(x.high)
    least = np.where((x.low <= 0) & (x.high >= 0), 0.0, np.minimum(low, high))
    return least, np.maximum(low, high)


_LEAST_GELU = -0.7517915246935645
"""The argument at which gelu is least."""


def _gelu(x: Interval) -> tuple[Floats, Floats]:
    low, high, least = gelu_of(x.low), gelu_of(x.high), gelu_of(np.array(_LEAST_GELU))
    turns = (x.low <= _LEAST_GELU) & (x.high >= _LEAST_GELU)
    return np.where(turns, least, np.minimum(low, high)), np.maximum(low, high)


_BOUNDS: dict[str, Callable[..., tuple[Floats, Floats]]] = {
    "negative": lambda x: (-x.high, -x.low),
    "absolute": _absolute,
    "gelu": _gelu,
}


def _condition(operation: str, given: list[Any]) -> Condition:
    if operation == "not":
        return Condition(given[0].may_fail, given[0].may_hold)
    x, y = given
    if operation == "and":
        return Condition(x.may_hold & y.may_hold, x.may_fail | y.may_fail)
    if operation == "or":
        return Condition(x.may_hold | y.may_hold, x.may_fail & y.may_fail)
    nan = np.isnan(x.low) | np.isnan(y.low) | np.isnan(x.high) | np.isnan(y.high)
    if operation == "less":
        return Condition(x.low < y.high, (x.high >= y.low) | nan)
    if operation == "less_equal":
        return Condition(x.low <= y.high, (x.high > y.low) | nan)
    same = (x.low <= y.high) & (y.low <= x.high)
    exact = (x.low == x.high) & (y.low == y.high)
    differ = ~(same & exact)
    return Condition(same, differ) if operation == "equal" else Condition(differ, same)


def _chosen(condition: Condition, x: Interval, y: Interval) -> Interval:
    hold, fail = condition.may_hold, condition.may_fail
    low = np.where(hold, np.where(fail, np.minimum(x.low, y.low), x.low), y.low)
    high = np.where(hold, np.where(fail, np.maximum(x.high, y.high), x.high), y.high)
    return Interval(low, high)
