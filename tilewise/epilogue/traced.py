"""A traced function of an epilogue, which can be written as CUDA C++ and evaluated on arrays."""

from __future__ import annotations

import copyreg
import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tilewise.epilogue.enclosure import Enclosure, Floats, Interval
from tilewise.epilogue.evaluate import evaluated
from tilewise.epilogue.instructions import instructions_of
from tilewise.epilogue.parameters import check_names, named, parameters_of
from tilewise.epilogue.symbols import Symbol, Symbols, number
from tilewise.errors import TraceError

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "less": "<", "less_equal": "<=",
    "equal": "==", "not_equal": "!=", "and": "&&", "or": "||",
}  # fmt: skip
_PREFIX = {"negative": "-", "not": "!"}
# How tightly an operation binds, for the parentheses of formulas.
_BINDS = {"or": 1, "and": 2, "equal": 3, "not_equal": 3, "less": 3, "less_equal": 3, "add": 4,
          "subtract": 4, "multiply": 5, "divide": 5, "negative": 6, "not": 6}  # fmt: skip


class Traced:
    """The operations that a function computes; equal computations in the same words are one object.

    Attributes
    ----------
    sums : tuple of str
        The names of its arguments besides its operands: :data:`SUM`, or :data:`PAIR` for pairs.
    operands : tuple of str
        The names of its operands, in the function's order.
    results : tuple of Symbol or float
    needed : list of Symbol
        The symbols that the results need, each after its arguments.
    is_tuple : bool
        Whether the function returned a tuple of results.
    statements : tuple of str
        C++ declarations that compute ``values`` from ``sums`` and ``x0``, ``x1`` ..., the operands;
        all are of the type ``real``.
    values : tuple of str
        A C++ expression for each result.
    instructions : int
        The number of instructions that compute the results for one element.
    """

    __slots__ = (
        "__weakref__", "instructions", "is_tuple", "needed", "operands", "results", "statements",
        "sums", "values",
    )  # fmt: skip

    def __init__(
        self,
        sums: tuple[str, ...],
        operands: tuple[str, ...],
        results: tuple[Any, ...],
        is_tuple: bool,
    ) -> None:
        self.sums = sums
        self.operands, self.results, self.is_tuple = operands, results, is_tuple
        self.needed = needed_by(results)
        self.instructions = instructions_of(self.needed, sums)
        names: dict[int, str] = {}
        statements: list[str] = []
        for symbol in self.needed:
            if symbol.operation in sums:
                names[id(symbol)] = symbol.operation
            elif symbol.operation == "operand":
                names[id(symbol)] = f"x{operands.index(symbol.arguments[0])}"
            else:
                names[id(symbol)] = name = f"t{len(statements)}"
                kind = "bool" if symbol.is_condition else "real"
                statements.append(f"const {kind} {name} = {_text(symbol, names)};")
        self.statements = tuple(statements)
        self.values = tuple(names[id(x)] if isinstance(x, Symbol) else constant(x) for x in results)

    def evaluate(self, acc: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results for an array of sums.

        Parameters
        ----------
        acc : array, or of pairs (array, array)
            One array of NumPy, CuPy or PyTorch, of float32 or float64; two for a function of pairs.
        operands : sequence of array or float
            The operands in the function's order; arrays are of the same library and dtype.
        """
        given = dict(zip(self.operands, operands, strict=True))
        of = dict(zip(self.sums, acc if self.takes_pairs else (acc,), strict=True))
        return evaluated(self.results, self.needed, of, given)

    def enclose(
        self, low: Floats, high: Floats, operands: Sequence[Any], dtype: str
    ) -> list[tuple[Floats, Floats]]:
        """Return bounds for the results of a kernel.

        Parameters
        ----------
        low, high : array of float64
            The bounds of the sums; for pairs (2, ...), first those of gate, then those of up.
        operands : sequence of array, float or (array, array)
            The operands in the function's order. Kernels round them to ``dtype``, too. Two arrays
            are the bounds of an operand.
        dtype : str
            The dtype in which the function is computed, float32 or float64.

        Notes
        -----
        By interval arithmetic, each operation rounded correctly (contracted to a fused one or not)
        and each function with the error that NVIDIA documents. Where a NaN is possible and not
        sure, the bounds are minus and plus infinity.
        """
        kind = np.finfo(dtype)
        enclosure = Enclosure(float(kind.eps) / 2, float(kind.smallest_subnormal), float(kind.max))

        def rounded(x: Any) -> Floats:
            return np.asarray(x).astype(dtype).astype(np.float64)

        given = {
            name: Interval(*map(rounded, x if isinstance(x, tuple) else (x, x)))
            for name, x in zip(self.operands, operands, strict=True)
        }
        ends = zip(low, high, strict=True) if self.takes_pairs else [(low, high)]
        of = {name: Interval(*each) for name, each in zip(self.sums, ends, strict=True)}
        found = enclosure.of(self.results, self.needed, of, given)
        return [(x.low, x.high) for x in found]

    @property
    def takes_pairs(self) -> bool:
        """Whether it is a function of two sums."""
        return self.sums is PAIR

    def __str__(self) -> str:
        results = ", ".join(map(shown, self.results))
        return f"({results})" if self.is_tuple else results

    def __repr__(self) -> str:
        return f"<epilogue {self}>"


class Epilogue:
    """A function that is traced once, for many products.

    Everything that the function reads besides its arguments, such as the variables of a closure,
    keeps the value of that time; parameters with defaults are constants. A pickle holds what was
    traced, and not the function, so it may be a ``lambda``; of a derived class it also holds the
    attributes that the class added.

    Parameters
    ----------
    function : callable
        A function as :func:`tilewise.matmul` takes it for ``epilogue``.
    pairs : bool, optional
        Whether it is a function of pairs, whose first two parameters are products.

    Raises
    ------
    TraceError
        If the function does what no kernel can do.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> biased = tilewise.Epilogue(lambda acc, bias: tilewise.relu(acc + bias))
    >>> print(biased)
    relu(acc + bias)
    >>> tilewise.matmul(np.ones((1, 2)), np.eye(2), epilogue=biased, bias=np.array([-3.0, 1.0]))
    array([[0., 2.]])
    """

    def __init__(self, function: Callable[..., Any], *, pairs: bool = False) -> None:
        if isinstance(function, Epilogue) and function.traced.takes_pairs is pairs:
            self._set(function.traced, function.function)
            return
        while isinstance(function, Epilogue):
            function = function.function
        sums = PAIR if pairs else SUM
        parameters, optional = parameters_of(function, len(sums))
        names = tuple(x for x in parameters if x not in optional)
        self._set(_traced(function, sums, names), function)

    def _set(self, traced: Traced, function: Callable[..., Any]) -> None:
        self.traced, self.function = traced, function
        self.key = f"epilogue {next(_numbers)}"
        registered[self.key] = self

    @classmethod
    def _of(cls, traced: Traced, function: Callable[..., Any]) -> Epilogue:
        """Return the epilogue of a function that was traced."""
        made = cls.__new__(cls)
        made._set(traced, function)
        return made

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Return what a pickle of a derived class's object holds (``pickled.py``)."""
        return copyreg.dispatch_table[Epilogue](self)

    def __copy__(self) -> Epilogue:
        """Return the epilogue itself, which does not change."""
        return self

    def __deepcopy__(self, _: Any) -> Epilogue:
        """Return the epilogue itself, which does not change."""
        return self

    def __call__(self, *values: Any, **operands: Any) -> Any:
        """Call the function, for instance on arrays."""
        return self.function(*values, **operands)

    def __str__(self) -> str:
        return str(self.traced)

    @property
    def cuda(self) -> str:
        """The code of the function in kernels, as CUDA C++."""
        return "\n".join((*self.traced.statements, f"return {', '.join(self.traced.values)};"))


SUM, PAIR = ("acc",), ("gate", "up")
"""The names of a function's first parameter, and of the first two parameters for pairs."""
_interned: WeakValueDictionary[tuple[Any, ...], Traced] = WeakValueDictionary()
_numbers = itertools.count()
registered: WeakValueDictionary[str, Epilogue] = WeakValueDictionary()
"""The epilogues that exist, by their keys; a graph has the key as a constant."""


def trace(
    function: Callable[..., Any] | Epilogue,
    names: Sequence[str],
    taken: Container[str] = (),
    *,
    pairs: bool = False,
) -> Traced:
    """Return what a function computes, by calling it once with symbols.

    Parameters
    ----------
    function : callable
        The function. Its first parameter, or for pairs the first two, is the accumulator, whatever
        its name; the other parameters are operands.
    names : sequence of str
        The names of the given operands.
    taken : container of str, optional
        The names that no operand can have, because they are arguments of the caller itself.
    pairs : bool, optional

    Raises
    ------
    TraceError
        If the function does what no kernel can do, or takes other operands.
    """
    if isinstance(function, Epilogue):
        traced = function.traced
        if traced.takes_pairs is not pairs:
            was, here = "of pairs", "with one matrix, whose columns are no pairs"
            if pairs:
                was, here = "of single elements", "with pairs; give tilewise.Epilogue pairs=True"
            raise TraceError(f"{function} was traced as a function {was}, and is used {here}")
        if traced.operands != names and set(traced.operands) != set(names):
            check_names(str(function), traced.operands, (), names, taken)
        return traced
    sums = PAIR if pairs else SUM
    parameters, optional = parameters_of(function, len(sums))
    if parameters != tuple(names):
        check_names(named(function), parameters, optional, names, taken)
        parameters = tuple(x for x in parameters if x in names)
    return _traced(function, sums, parameters)


def _traced(
    function: Callable[..., Any], sums: tuple[str, ...], operands: tuple[str, ...]
) -> Traced:
    symbols = Symbols()
    given = {name: symbols.make("operand", name) for name in operands}
    found = function(*map(symbols.make, sums), **given)
    is_tuple = isinstance(found, tuple)
    results = tuple(_result(function, x, symbols) for x in (found if is_tuple else (found,)))
    if not results:
        raise TraceError(f"{named(function)} returns no result")
    return interned(sums, operands, results, is_tuple)


def interned(
    sums: tuple[str, ...], operands: tuple[str, ...], results: tuple[Any, ...], is_tuple: bool
) -> Traced:
    """Return the :class:`Traced` with these attributes; equal ones are one object."""
    traced = Traced(sums, operands, results, is_tuple)
    words = tuple(symbol.shown and symbol.shown[0] for symbol in traced.needed)
    key = (sums, operands, traced.statements, traced.values, is_tuple, words)
    return _interned.setdefault(key, traced)


def _result(function: Callable[..., Any], x: Any, symbols: Symbols) -> Any:
    if isinstance(x, Symbol):
        if x.symbols is not symbols:
            raise TraceError(f"{named(function)} returns a value of another call's epilogue")
        if x.is_condition:
            raise TraceError(
                f"{named(function)} returns a condition; a number is "
                "tilewise.where(condition, 1, 0)"
            )
        return x
    if x is None:
        raise TraceError(f"{named(function)} returns None, and not what becomes of acc")
    if isinstance(x, bool) or not isinstance(x, int | float | np.integer | np.floating):
        raise TraceError(
            f"{named(function)} returns a {type(x).__qualname__}; an epilogue returns what becomes "
            "of acc, or a tuple of such"
        )
    return number(x)


def needed_by(results: Iterable[Any], given: Container[int] = ()) -> list[Symbol]:
    """Return the symbols that results need, each after its arguments.

    The arguments of symbols whose ``id`` is in ``given`` are left out.
    """
    found: dict[int, Symbol] = {}

    def visit(x: Any) -> Iterator[Any]:
        if isinstance(x, Symbol) and id(x) not in found:
            if id(x) not in given:
                yield from x.arguments
            found[id(x)] = x

    # With a stack of its own, because a long chain of operations is deeper than Python's stack.
    for result in results:
        stack = [(result, visit(result))]
        while stack:
            following = next(stack[-1][1], None)
            if following is None:
                stack.pop()
            elif isinstance(following, Symbol):
                stack.append((following, visit(following)))
    return list(found.values())


def _text(symbol: Symbol, names: Mapping[int, str]) -> str:
    given = [names[id(x)] if isinstance(x, Symbol) else constant(x) for x in symbol.arguments]
    operation = symbol.operation
    if operation in _INFIX:
        return f"{given[0]} {_INFIX[operation]} {given[1]}"
    if operation in _PREFIX:
        return f"{_PREFIX[operation]}{given[0]}"
    if operation == "where":
        return f"{given[0]} ? {given[1]} : {given[2]}"
    return f"f_{operation}({', '.join(given)})"


def constant(x: float) -> str:
    """Return a number as C++ text, rounded to ``real``."""
    if math.isnan(x):
        return "(real)__int_as_float(0x7fc00000)"
    if math.isinf(x):
        return f"(real)__int_as_float(0x{'7f' if x > 0 else 'ff'}800000)"
    return f"(real){x!r}" if math.copysign(1, x) > 0 else f"(real)({x!r})"


def shown(x: Any) -> str:
    """Return a value as text: a symbol as a formula, a number, or a word as it is."""
    return x if isinstance(x, str) else _shown(x)[0]


def _shown(x: Any) -> tuple[str, int]:
    """Return a value as text, and how tightly its last operation binds."""
    if not isinstance(x, Symbol):
        return (f"{x:g}" if float(f"{x:g}") == x else repr(x)), 6 if x < 0 else 9
    if x.shown is not None:
        name, arguments = x.shown
        return f"{name}({', '.join(map(shown, arguments))})", 9
    if x.operation in (*SUM, *PAIR):
        return x.operation, 9
    if x.operation == "operand":
        return str(x.arguments[0]), 9
    given = [_shown(each) for each in x.arguments]
    binds = _BINDS.get(x.operation, 9)
    if x.operation in _INFIX:
        left, right = given
        sign = {"&&": "&", "||": "|"}.get(_INFIX[x.operation], _INFIX[x.operation])
        first = left[0] if left[1] >= binds else f"({left[0]})"
        return f"{first} {sign} {right[0] if right[1] > binds else f'({right[0]})'}", binds
    if x.operation in _PREFIX:
        sign = {"!": "~"}.get(_PREFIX[x.operation], "-")
        return f"{sign}{given[0][0] if given[0][1] >= 6 else f'({given[0][0]})'}", binds
    name = {"absolute": "abs"}.get(x.operation, x.operation)
    return f"{name}({', '.join(each for each, _ in given)})", 9
