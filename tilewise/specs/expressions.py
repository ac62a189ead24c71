"""Integers and fractions on a command line: ``1<<20``, ``ceil(n/256)``, ``16xn``.

An expression is Python's, of numbers, of names with numbers as values, and of a few functions.
Python's parser reads it; nothing in it is executed that is not listed here.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Container, Mapping
from fractions import Fraction
from typing import Any

from tilewise.shown import shortened

Number = int | float | Fraction

_MOST_BITS = 256
"""The most bits of a number that is shifted or raised to a power; no kernel takes more."""


def _divided(a: Number, b: Number) -> Number:
    return Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() * b > _MOST_BITS:
        raise ValueError(f"{a} ** {shortened(b)} is too large")
    return a**b


def _shifted(a: int, b: int) -> int:
    if a.bit_length() + b > _MOST_BITS:
        raise ValueError(f"{shortened(a)} << {shortened(b)} is too large")
    return a << b


def _ceil(a: Number, b: Number = 1) -> int:
    return math.ceil(_divided(a, b))


_OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _divided,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power,
    ast.LShift: _shifted, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Number]] = {
    "ceil": _ceil, "floor": math.floor, "cdiv": _ceil, "min": min, "max": max, "abs": abs,
    "sqrt": math.sqrt, "log2": math.log2,
}  # fmt: skip
"""The functions of expressions; ``cdiv(a, b)`` is a / b rounded up, as ``ceil(a/b)`` is."""
CONSTANTS: dict[str, Number] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}


class UnknownNameError(ValueError):
    """The error that an expression has a name without a value.

    Attributes
    ----------
    name : str
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def evaluate(text: str, names: Mapping[str, Number], what: str) -> Number:
    """Return the number that an expression describes.

    Parameters
    ----------
    text : str
        The expression in Python's notation. A quotient of integers is exact.
    names : mapping
        The values of names.
    what : str
        The name of the argument for messages.

    Raises
    ------
    UnknownNameError
        If it contains an unknown name.
    ValueError
        If it is not such an expression, has no value, as 1/0, or is beyond the largest float64.

    Examples
    --------
    >>> evaluate("ceil(n/256)", {"n": 1000}, "--grid")
    4
    """
    try:
        tree = parsed(text, names)
    except ValueError:
        raise ValueError(f"{what} is {text!r}, which is no expression of numbers") from None
    try:
        value = _value(tree, names)
    except UnknownNameError as error:
        raise UnknownNameError(error.name, f"{what} is {text!r}: {error}") from None
    except ZeroDivisionError:
        raise ValueError(f"{what} is {text!r}, which divides by 0") from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{what} is {text!r}: {error}") from None
    if isinstance(value, complex):
        raise ValueError(f"{what} is {text!r}, which is no real number")
    try:
        float(value)
    except OverflowError:
        raise ValueError(f"{what} is {text!r}, which is beyond the largest float64") from None
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def parsed(text: str, names: Container[str]) -> ast.expr:
    """Return an expression's syntax tree, in which a keyword such as ``in`` is a name.

    Raises
    ------
    ValueError
        If it is no expression.
    """
    mark = "_of_the_kernel"

    def renamed(found: re.Match[str]) -> str:
        is_taken = keyword.iskeyword(found[0]) and found[0] in names
        return f"{found[0]}{mark}" if is_taken else found[0]

    try:
        tree = ast.parse(re.sub(r"\b[A-Za-z_]\w*", renamed, text.strip()), mode="eval").body
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = node.id.removesuffix(mark)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is no expression") from None
    return tree


def whole(text: str, names: Mapping[str, Number], what: str) -> int:
    """Return the integer that an expression describes.

    Raises
    ------
    UnknownNameError, ValueError
        As in :func:`evaluate`; or if the number has a fraction.
    """
    value = evaluate(text, names, what)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int):
        advice = f"; ceil({text}) rounds it up" if "/" in text else ""
        raise ValueError(f"{what} is {text!r} = {_said(value)}; it takes a whole number{advice}")
    return int(value)


def extents(text: str, names: Mapping[str, Number], what: str) -> tuple[int, ...]:
    """Return the integers that commas, or an ``x`` between two of them, separate: ``4,4``,
    ``16xn``.

    Parameters
    ----------
    text, names, what
        The arguments of :func:`evaluate`.

    Raises
    ------
    UnknownNameError, ValueError
        As in :func:`whole`; or if it is ambiguous which ``x`` is a separator.

    Examples
    --------
    >>> extents("2,max(n, 8),mxn", {"m": 3, "n": 5}, "a shape")
    (2, 8, 3, 5)
    """
    if not text.strip():
        raise ValueError(f"{what} is empty; it takes integers, as 1024 or 16,16")
    return tuple(whole(part, names, what) for part in _apart(text, names, what))


def _apart(text: str, names: Mapping[str, Number], what: str) -> list[str]:
    """Return the expressions between commas, or between numbers and names that an ``x`` joins."""
    if found := re.search(r"\b0[xX]([0-9A-Fa-f]+)", text):
        of = f"{int(found[1], 16)} or 0,{found[1]}"
        raise ValueError(f"{what} is {text!r}: is {found[0]} one number or two? Write {of}")

    def separated(found: re.Match[str]) -> str:
        word, before, after = found[0], text[: found.start()], text[found.end() :]
        if word in names or word in FUNCTIONS:
            return word
        parts = word.split("x")
        whole_words = parts[
            bool(re.search(r"[\d)]\Z", before)) : len(parts) - after.startswith("(")
        ]
        are_sizes = all(part in names or part.isdigit() for part in whole_words)
        return ",".join(parts) if len(parts) > 1 and are_sizes else word

    spread, parts, deep = re.sub(r"[A-Za-z_]\w*", separated, text), [""], 0
    for letter in spread:
        deep += (letter == "(") - (letter == ")")
        if letter == "," and deep == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def literal(value: float) -> float:
    """Return a number as Python reads it; raise ValueError if its digits are infinity to Python."""
    if value == math.inf:
        raise ValueError("it has a number beyond the largest float64; inf is infinity")
    return value


def _value(node: ast.expr, names: Mapping[str, Number]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return literal(node.value)
    if isinstance(node, ast.Name):
        if node.id in names:
            return names[node.id]
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        known = ", ".join(names)
        raise UnknownNameError(
            node.id,
            f"{node.id} stands for no number" + (f"; known are {known}" if known else ""),
        )
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id not in FUNCTIONS:
            raise ValueError(
                f"there is no function {node.func.id}; there are {', '.join(FUNCTIONS)}"
            )
        return FUNCTIONS[node.func.id](*(_value(each, names) for each in node.args))
    raise ValueError("it takes numbers, names, + - * / // % ** << >> & | ^ ~, and functions")


def _said(value: Number) -> str:
    return str(float(value))
