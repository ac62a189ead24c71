"""Arithmetic on the symbols of a traced function that leaves out operations without effect.

Each function returns a number if its arguments are numbers, and otherwise a symbol.
"""

from __future__ import annotations

import math
from typing import Any

from tilewise.epilogue.symbols import Symbol, operate


def add(x: Any, y: Any) -> Any:
    """Return x + y. The sum of two ``where`` of one condition is one ``where`` of sums."""
    if not _is_traced(x, y):
        return x + y
    if is_number(x, 0):
        return y
    if is_number(y, 0):
        return x
    if x is y:
        return multiply(2.0, x)
    for one, other in ((x, y), (y, x)):
        if isinstance(other, Symbol) and other.operation == "negative":
            return subtract(one, other.arguments[0])
    if _is_choice(x) and _is_choice(y) and x.arguments[0] is y.arguments[0]:
        condition, *of_x = x.arguments
        sums = (add(a, b) for a, b in zip(of_x, y.arguments[1:], strict=True))
        return where(condition, *sums)
    return operate("add", x, y)


def subtract(x: Any, y: Any) -> Any:
    """Return x - y."""
    if not _is_traced(x, y):
        return x - y
    if is_number(y, 0):
        return x
    return negative(y) if is_number(x, 0) else operate("subtract", x, y)


def multiply(x: Any, y: Any) -> Any:
    """Return x y, and 0 if either is the number 0, whatever the other is."""
    if not _is_traced(x, y):
        return x * y
    if isinstance(y, float):
        x, y = y, x
    if isinstance(x, float):
        if x == 0:
            return 0.0
        if x == 1:
            return y
        if x == -1:
            return negative(y)
        if _is_choice(y) and any(is_number(each, 0) for each in y.arguments[1:]):
            condition, *chosen = y.arguments
            return where(condition, *(multiply(x, each) for each in chosen))
        if y.operation == "multiply" and isinstance(y.arguments[0], float):
            # If x is a power of two, the product of the two numbers is exact.
            product = x * y.arguments[0]
            if math.frexp(x)[0] == 0.5:
                return multiply(product, y.arguments[1])
    return operate("multiply", x, y)


def divide(x: Any, y: Any) -> Any:
    """Return x / y."""
    if isinstance(y, float) and y and abs(math.frexp(y)[0]) == 0.5 and 2**-64 < abs(y) < 2**64:
        return multiply(1 / y, x)  # exact
    if not _is_traced(x, y):
        return x / y if y else math.nan
    return 0.0 if is_number(x, 0) else operate("divide", x, y)


def negative(x: Any) -> Any:
    """Return -x."""
    if isinstance(x, float):
        return -x
    return x.arguments[0] if x.operation == "negative" else operate("negative", x)


def where(condition: Symbol, x: Any, y: Any) -> Any:
    """Return x where the condition holds, and y elsewhere."""
    is_same = x is y or (isinstance(x, float) and isinstance(y, float) and repr(x) == repr(y))
    return x if is_same else operate("where", condition, x, y)


def apply(operation: str, x: Any) -> Symbol:
    """Return the symbol of a unary operation, as in ``apply("exp", x)``."""
    return operate(operation, x)


def _is_traced(*values: Any) -> bool:
    return any(isinstance(x, Symbol) for x in values)


def is_number(x: Any, number: float) -> bool:
    """Return whether x is a number rather than a symbol, and equals ``number``."""
    return isinstance(x, float) and x == number


def _is_choice(x: Any) -> bool:
    return isinstance(x, Symbol) and x.operation == "where"
