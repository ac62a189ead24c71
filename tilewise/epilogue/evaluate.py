"""Evaluate a traced function on arrays, and enclose the results of a kernel that computes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

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


def erf_of(x: npt.NDArray[Any]) -> Any:
    """Return the error function of an array, by SciPy where it is installed."""
    return _special("erf", x)


def gelu_of(x: npt.NDArray[Any]) -> Any:
    """Return gelu of an array: x times the standard normal distribution function of x."""
    return _gelu_by(lambda y: _special("erfc", y), np, x)


def _gelu_by(erfc: Callable[[Any], Any], library: Any, x: Any) -> Any:
    # The bound gives the limit at minus infinity, instead of infinity times 0.
    return library.maximum(x, -1e3) * (erfc(x * -math.sqrt(0.5)) * 0.5)


def _special(name: str, x: npt.NDArray[Any]) -> Any:
    """Return a function of SciPy's for an array, or Python's own if SciPy is not installed."""
    try:
        return getattr(import_module("scipy.special"), name)(x)
    except ImportError:
        x = np.asarray(x)
        found = np.fromiter(map(getattr(math, name), x.ravel().tolist()), np.float64, x.size)
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        return found.reshape(x.shape).astype(kind)[()]


def sigmoid_of(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) for an array."""
    return 1 / (1 + np.exp(-x))


def rsqrt_of(x: Any) -> Any:
    """Return 1 / sqrt(x) for an array."""
    return 1 / np.sqrt(x)


OWN: dict[str, Callable[[Any], Any]] = {
    "erf": erf_of, "gelu": gelu_of, "sigmoid": sigmoid_of, "rsqrt": rsqrt_of,
}  # fmt: skip
"""The functions that NumPy does not have."""


def evaluated(
    results: Sequence[Any],
    needed: Sequence[Symbol],
    sums: Mapping[str, Any],
    operands: Mapping[str, Any],
) -> tuple[Any, ...]:
    """Return the results of a function on arrays.

    Parameters
    ----------
    results : sequence of Symbol or float
    needed : sequence of Symbol
        The symbols that the results need, each after its arguments.
    sums : mapping of str to array
        Arrays of NumPy, CuPy or PyTorch, by the operations that stand for them.
    operands : mapping of str to array or float
    """
    functions = _functions(next(iter(sums.values())))
    values: dict[int, Any] = {}

    def value(x: Any) -> Any:
        return values[id(x)] if isinstance(x, Symbol) else functions["constant"](x)

    for symbol in needed:
        if symbol.operation in sums:
            found = sums[symbol.operation]
        elif symbol.operation == "operand":
            found = operands[symbol.arguments[0]]
            found = functions["constant"](found) if isinstance(found, float) else found
        else:
            found = functions[symbol.operation](*map(value, symbol.arguments))
        values[id(symbol)] = found
    return tuple(value(x) for x in results)


def _functions(acc: Any) -> dict[str, Callable[..., Any]]:
    """Return a function for each operation, on arrays of the library and the dtype of ``acc``."""
    if type(acc).__module__.partition(".")[0] == "torch":
        torch = import_module("torch")

        def constant(x: float) -> Any:
            return torch.tensor(x, dtype=acc.dtype, device=acc.device)

        return {
            "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
            "negative": torch.neg, "absolute": torch.abs, "minimum": torch.minimum,
            "maximum": torch.maximum, "exp": torch.exp, "log": torch.log, "log1p": torch.log1p,
            "tanh": torch.tanh, "erf": torch.erf, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
            "gelu": torch.nn.functional.gelu, "sigmoid": torch.sigmoid, "less": torch.lt,
            "less_equal": torch.le, "equal": torch.eq, "not_equal": torch.ne,
            "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not,
            "where": torch.where, "constant": constant,
        }  # fmt: skip
    library = import_module(type(acc).__module__.partition(".")[0])
    own = OWN  # NumPy's exp and sqrt work on CuPy's arrays, too
    if library is not np:
        special = import_module("cupyx.scipy.special")
        own = {
            **OWN, "erf": special.erf, "gelu": lambda x: _gelu_by(special.erfc, library, x),
        }  # fmt: skip
    found: dict[str, Callable[..., Any]] = {
        name: getattr(library, name)
        for name in (
            "add", "subtract", "multiply", "divide", "negative", "absolute", "minimum", "maximum",
            "exp", "log", "log1p", "tanh", "sqrt", "less", "less_equal", "equal", "not_equal",
            "where",
        )
    }  # fmt: skip
    for name in ("and", "or", "not"):
        found[name] = getattr(library, f"logical_{name}")
    return {**found, **own, "constant": acc.dtype.type}


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
        operands: Mapping[str, Floats],
    ) -> list[Interval]:  # fmt: skip
        """Return bounds for each result; the parameters are those of :func:`evaluated`."""
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
                    each = operands[symbol.arguments[0]]
                    found = Interval(each, each)
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
