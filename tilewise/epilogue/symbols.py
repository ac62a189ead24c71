"""Symbols, with which a function is called to see what it computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tilewise.epilogue.foreign import hint
from tilewise.errors import TraceError
from tilewise.shown import named_type

PACKAGE = str(Path(__file__).parents[1])
BOOLEANS = frozenset({"less", "less_equal", "equal", "not_equal", "and", "or", "not"})
"""The operations whose results are conditions."""


class Symbols:
    """The symbols of one tracing, in the order in which they were made, each different one once."""

    def __init__(self) -> None:
        self.made: dict[tuple[Any, ...], Symbol] = {}

    def make(self, operation: str, *arguments: Any) -> Symbol:
        """Return the symbol of an operation on symbols of this tracing, and on numbers."""
        # 0.0 equals -0.0, and no NaN equals itself, so numbers are told apart by their text.
        key = (operation, *(x if isinstance(x, Symbol) else repr(x) for x in arguments))
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = Symbol(self, operation, arguments)
        return found


class Symbol:
    """A value in a function that is traced; it stands for one element, and all elements alike.

    Attributes
    ----------
    symbols : Symbols
        The symbols of the same tracing.
    operation : str
        ``"acc"``, or in a function of pairs ``"gate"`` and ``"up"``; ``"operand"``; or an operation
        of ``evaluate.py``.
    arguments : tuple of Symbol or float or str
        The arguments of the operation; for an operand its name.
    shown : tuple or None
        The name and the arguments of the function that made the symbol, for messages.
    """

    __slots__ = ("arguments", "operation", "shown", "symbols")
    __array_priority__ = 1000

    def __init__(self, symbols: Symbols, operation: str, arguments: tuple[Any, ...]) -> None:
        self.symbols, self.operation, self.arguments = symbols, operation, arguments
        self.shown: tuple[str, tuple[Any, ...]] | None = None

    __hash__ = object.__hash__

    @property
    def is_condition(self) -> bool:
        """Whether it is the result of a comparison."""
        return self.operation in BOOLEANS

    def __add__(self, other: Any) -> Symbol:
        return operate("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return operate("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return operate("subtract", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return operate("subtract", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return operate("multiply", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return operate("multiply", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return operate("divide", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return operate("divide", other, self)

    def __neg__(self) -> Symbol:
        return operate("negative", self)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return operate("absolute", self)

    def __pow__(self, power: Any, modulus: Any = None) -> Symbol:
        if modulus is not None:
            self._untraced()
        known = "exponents are 0.5, and whole numbers from 1 to 16"
        if isinstance(power, Symbol):
            fail("a power whose exponent is not a constant can't be traced", known)
        power = number(power)
        if power == 0.5:
            return operate("sqrt", self)
        if power not in range(1, 17):
            fail(f"** {power!r} can't be traced", known)
        power = int(power)
        result, square = None, self
        while power:
            if power % 2:
                result = square if result is None else result * square
            power //= 2
            if power:
                square = square * square
        assert result is not None
        return result

    def __lt__(self, other: Any) -> Symbol:
        return operate("less", self, other)

    def __le__(self, other: Any) -> Symbol:
        return operate("less_equal", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return operate("less", other, self)

    def __ge__(self, other: Any) -> Symbol:
        return operate("less_equal", other, self)

    def __eq__(self, other: object) -> Any:
        return operate("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return operate("not_equal", self, other)

    def __and__(self, other: Any) -> Symbol:
        return operate("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Symbol:
        return operate("or", self, other)

    __ror__ = __or__

    def __invert__(self) -> Symbol:
        return operate("not", self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Symbol:
        operation = "square" if ufunc is np.square else _UFUNCS.get(ufunc.__name__)
        if operation is None:
            fail(f"numpy.{ufunc.__name__} can't be traced", hint(ufunc.__name__))
        if method != "__call__":
            name = f"numpy.{ufunc.__name__}"
            fail(f"{name}.{method} can't be traced", f"{name} of values of the epilogue can")
        _refuse_keywords(ufunc.__name__, given)
        if operation == "square":
            return self * self
        if operation.startswith("greater"):
            return operate(operation.replace("greater", "less"), *inputs[::-1])
        return operate(operation, *inputs)

    def __array_function__(self, function: Any, _: Any, given: Any, named: Any) -> Any:
        if function is np.clip:
            return _clipped(*given, **named)
        if function is not np.where:
            fail(f"numpy.{function.__name__} can't be traced", "tilewise.where and alike can")
        if len(given) != 3:
            fail("numpy.where of one argument can't be traced", "numpy.where(condition, x, y) can")
        return operate("where", *given)

    @classmethod
    def __torch_function__(
        cls, function: Any, _: Any, given: tuple[Any, ...] = (), named: Any = None
    ) -> NoReturn:
        for x in given:
            if not isinstance(x, Symbol) and hasattr(x, "dtype"):
                number(x)  # raises that a tensor can't be part of an epilogue
        fail(f"torch.{function.__name__} can't be traced", hint(function.__name__))

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        fail("there is no array of the accumulators yet", "compute with acc itself")

    def __rpow__(self, _: Any) -> NoReturn:
        fail("a power of a number can't be traced", "tilewise.exp(x * math.log(number)) can")

    def _untraced(self, *_: Any) -> NoReturn:
        fail(
            "//, %, ^, @, <<, >>, divmod, round and pow with a modulus can't be traced",
            "+ - * / and ** can",
        )

    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _untraced
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __xor__ = __rxor__ = _untraced
    __matmul__ = __rmatmul__ = __divmod__ = __rdivmod__ = __round__ = _untraced

    def __bool__(self) -> NoReturn:
        fail(
            "`if`, `and`, `or`, `while`, min and max ask whether a value is true, and each element "
            "has its own",
            "tilewise.where, minimum and maximum choose by the element, & and | join conditions",
        )

    def __float__(self) -> NoReturn:
        fail("a value of the epilogue is no number yet", "tilewise.exp, tanh and alike take it")

    __int__ = __index__ = __float__

    def __complex__(self) -> NoReturn:
        self.__float__()

    def __iter__(self) -> NoReturn:
        fail("a value of the epilogue has no elements", "it stands for one element itself")

    def __getitem__(self, _: Any) -> NoReturn:
        self.__iter__()

    def __len__(self) -> NoReturn:
        self.__iter__()

    def __setitem__(self, _: Any, __: Any) -> NoReturn:
        self.__iter__()

    __delitem__ = __contains__ = __getitem__

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        fail("a value of the epilogue is no function", "it stands for one element itself")

    def __format__(self, spec: str) -> str:
        """Return the value as text; raise TraceError for a number's format."""
        return str(self) if not spec else self.__float__()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        fail(f"a value of the epilogue has no {name!r}", "tilewise has functions for epilogues")

    def __repr__(self) -> str:
        return f"<a value of an epilogue: {self.operation}>"


def _refuse_keywords(name: str, given: Mapping[str, Any]) -> None:
    """Raise TraceError if a call of a NumPy function has keywords, which are not traced."""
    if given:
        listed = ", ".join(f"{keyword}=" for keyword in given)
        fail(f"numpy.{name} can't be traced with {listed}", f"numpy.{name} without that can")


_MISSING = object()


def _clipped(
    x: Any, a_min: Any = _MISSING, a_max: Any = _MISSING, out: Any = None, **given: Any
) -> Any:
    """Trace :func:`numpy.clip`: NaN stays NaN, and a bound that is None has no effect."""
    if out is not None:
        given["out"] = out
    if a_min is a_max is _MISSING:
        a_min, a_max = given.pop("min", None), given.pop("max", None)
    _refuse_keywords("clip", given)
    if a_min is _MISSING or a_max is _MISSING:
        fail("numpy.clip has one bound", "numpy.clip(x, low, None) and clip(x, None, high) can")
    if a_min is not None:
        is_traced = isinstance(x, Symbol) or isinstance(a_min, Symbol)
        x = operate("maximum", x, a_min) if is_traced else np.maximum(x, a_min)
    return x if a_max is None else operate("minimum", x, a_max)


_UFUNCS = {
    name: name
    for name in (
        "add", "subtract", "multiply", "divide", "negative", "absolute", "minimum", "maximum",
        "exp", "log", "log1p", "tanh", "sqrt", "less", "less_equal", "greater", "greater_equal",
        "equal", "not_equal",
    )
} | {"logical_and": "and", "logical_or": "or", "logical_not": "not", "bitwise_and": "and",
     "bitwise_or": "or", "invert": "not"}  # fmt: skip
"""The operations by the names of NumPy's functions."""


def operate(operation: str, *arguments: Any) -> Symbol:
    """Return the symbol of an operation, at least one of whose arguments is a symbol.

    Raises
    ------
    TraceError
        If an argument is neither a number nor a symbol, or a condition stands for a number.
    """
    symbols = next(x.symbols for x in arguments if isinstance(x, Symbol))
    found = tuple(x if isinstance(x, Symbol) else number(x) for x in arguments)
    for i, x in enumerate(found):
        wants_condition = operation in ("and", "or", "not") or (operation == "where" and i == 0)
        is_condition = isinstance(x, Symbol) and x.is_condition
        if isinstance(x, Symbol) and x.symbols is not symbols:
            fail("a value of another call's epilogue is used", "give it as an operand")
        if wants_condition and not is_condition:
            fail(f"{operation!r} takes a condition, as x > 0", "compare the value with a number")
        if is_condition and not wants_condition:
            fail("a condition is used as a number", "tilewise.where(condition, 1, 0) is one")
    return symbols.make(operation, *found)


def number(x: Any) -> float:
    """Return a constant of an epilogue.

    Raises
    ------
    TraceError
        If ``x`` is not a number.
    """
    if isinstance(x, bool | np.bool_) or not isinstance(x, int | float | np.integer | np.floating):
        fail(
            f"{named_type(x)} can't be part of an epilogue",
            "numbers can, and arrays as operands: matmul(a, b, epilogue=lambda acc, x: ..., x=x)",
        )
    try:
        return float(x)
    except OverflowError:
        fail("an integer is larger than any float", "constants are numbers of float64")


def fail(what: str, instead: str) -> NoReturn:
    """Raise TraceError, with the line of the caller's function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(PACKAGE)
        or frame.f_globals.get("__name__", "").partition(".")[0] == "torch"
    ):
        frame = frame.f_back
    raise TraceError(f"{frame.f_code.co_filename}:{frame.f_lineno}: {what}; {instead}") from None


def applied(name: str, *arguments: Any) -> Callable[[Symbol], Symbol]:
    """Return a function that notes on a symbol which function made it, for messages."""

    def note(result: Symbol) -> Symbol:
        if isinstance(result, Symbol) and result.shown is None:
            result.shown = (name, arguments)
        return result

    return note
