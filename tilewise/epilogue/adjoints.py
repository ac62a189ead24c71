"""Derivatives of a traced function by reverse accumulation over its operations.

If a function is not differentiable at a point, the derivative there is PyTorch's: that of ``abs``
at 0 is 0, that of ``relu`` at 0 is 0, and each of two equal arguments of ``minimum`` or ``maximum``
gets half.

References
----------
Griewank and Walther, *Evaluating Derivatives*, chapter 3: reverse accumulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.epilogue.simplify import (
    add,
    apply,
    divide,
    is_number,
    multiply,
    negative,
    subtract,
    where,
)
from tilewise.epilogue.symbols import Symbol, operate


def adjoints(needed: Sequence[Symbol], seeds: Mapping[int, Any]) -> dict[int, Any]:
    """Return the derivatives of a weighted sum of symbols with respect to each symbol.

    Parameters
    ----------
    needed : sequence of Symbol
        The symbols, each after its arguments.
    seeds : mapping of int to Symbol or float
        The weights of the symbols that are summed, by the ``id`` of each.

    Returns
    -------
    dict of int to Symbol or float
        The derivatives by the ``id`` of each symbol; those that are always 0 may be missing.
    """
    found = dict(seeds)
    for symbol in reversed(needed):
        g = found.get(id(symbol))
        if g is None or is_number(g, 0) or symbol.is_condition:
            continue
        for argument, part in _parts(symbol, g):
            if isinstance(argument, Symbol) and not is_number(part, 0):
                found[id(argument)] = add(found.get(id(argument), 0.0), part)
    return found


def _parts(t: Symbol, g: Any) -> list[tuple[Any, Any]]:
    """Return an operation's arguments, each with its part of the operation's adjoint ``g``."""
    x = _of_softplus(t)
    if x is not None:
        return [(x, multiply(g, apply("sigmoid", x)))]
    x, power = _power(t)
    if power > 2:
        return [(x, multiply(g, multiply(float(power), x ** (power - 1))))]
    x = t.arguments[0] if t.arguments else None
    if t.operation in _UNARY:
        return [(x, _UNARY[t.operation](g, x, t))]
    if t.operation == "where":
        condition, chosen, other = t.arguments
        condition = _by_result(t, condition)
        return [(chosen, where(condition, g, 0.0)), (other, where(condition, 0.0, g))]
    if t.operation in _BINARY:
        y = t.arguments[1]
        of_x, of_y = _BINARY[t.operation](g, x, y, t)
        return [(x, of_x), (y, of_y)]
    return []  # a sum, or an operand


def _of_gelu(g: Any, x: Any, _: Symbol) -> Any:
    # The derivative is the normal distribution function of x, plus x times its density. That
    # product is 0 at infinity; without ``near`` it would be infinity times 0.
    share = multiply(0.5, add(1.0, apply("erf", multiply(math.sqrt(0.5), x))))
    density = multiply(1 / math.sqrt(2 * math.pi), apply("exp", multiply(-0.5, multiply(x, x))))
    near = where(operate("less", apply("absolute", x), 1e3), x, 0.0)
    return multiply(g, add(share, multiply(near, density)))


_UNARY: dict[str, Callable[[Any, Any, Symbol], Any]] = {
    "negative": lambda g, x, t: negative(g),
    "absolute": lambda g, x, t: where(
        operate("less", 0.0, x), g, where(operate("less", x, 0.0), negative(g), 0.0)
    ),
    "exp": lambda g, x, t: multiply(g, t),
    "log": lambda g, x, t: divide(g, x),
    "log1p": lambda g, x, t: divide(g, add(1.0, x)),
    "tanh": lambda g, x, t: multiply(g, subtract(1.0, multiply(t, t))),
    "erf": lambda g, x, t: multiply(
        g, multiply(2 / math.sqrt(math.pi), apply("exp", negative(multiply(x, x))))
    ),
    "sqrt": lambda g, x, t: divide(g, multiply(2.0, t)),
    "rsqrt": lambda g, x, t: multiply(multiply(-0.5, g), multiply(t, multiply(t, t))),
    "sigmoid": lambda g, x, t: multiply(g, multiply(subtract(1.0, t), t)),
    "gelu": _of_gelu,
}
"""The adjoint of a function's argument x, from the function's adjoint g, x and its value t."""


def _extreme(g: Any, x: Any, y: Any, is_x_lost: Symbol, is_y_lost: Symbol) -> tuple[Any, Any]:
    shared = where(operate("equal", x, y), multiply(0.5, g), g)
    return where(is_x_lost, 0.0, shared), where(is_y_lost, 0.0, shared)


_BINARY: dict[str, Callable[[Any, Any, Any, Symbol], tuple[Any, Any]]] = {
    "add": lambda g, x, y, t: (g, g),
    "subtract": lambda g, x, y, t: (g, negative(g)),
    "multiply": lambda g, x, y, t: (multiply(g, y), multiply(g, x)),
    "divide": lambda g, x, y, t: (divide(g, y), negative(multiply(g, divide(t, y)))),
    "minimum": lambda g, x, y, t: _extreme(
        g, x, y, operate("less", y, x), operate("less", x, y)
    ),
    "maximum": lambda g, x, y, t: _extreme(
        g, x, y, operate("less", x, y), operate("less", y, x)
    ),
}  # fmt: skip


def _by_result(t: Symbol, condition: Symbol) -> Symbol:
    """Return the condition of a ``where``, or an equivalent one that reads its result ``t``.

    By this, the derivatives of relu and leaky relu need their results and not their arguments.
    """
    chosen, other = t.arguments[1:]
    first, second = condition.arguments if len(condition.arguments) == 2 else (None, None)
    is_negative = condition.operation == "less_equal" and is_number(second, 0)
    if is_negative and first is other and is_number(chosen, 0):  # where(x <= 0, 0, x)
        return operate("less_equal", t, 0.0)
    is_positive = condition.operation == "less" and is_number(first, 0)
    if is_positive and second is chosen and _is_scaled(other, second):  # where(0 < x, x, slope * x)
        return operate("less", 0.0, t)
    return condition


def _is_scaled(x: Any, of: Any) -> bool:
    """Return whether x is 0, or the symbol times a positive finite number."""
    if isinstance(x, float):
        return x == 0
    return (
        x.operation == "multiply"
        and x.arguments[1] is of
        and isinstance(x.arguments[0], float)
        and 0 < x.arguments[0] < math.inf
    )


def _power(x: Any, depth: int = 4) -> tuple[Any, int]:
    """Return the base and the exponent of a product of equal factors; else x and 1.

    Four levels of products are enough for the exponents that ``**`` takes, which are at most 16.
    """
    if not depth or not (isinstance(x, Symbol) and x.operation == "multiply"):
        return x, 1
    (base, one), (other, more) = (_power(y, depth - 1) for y in x.arguments)
    is_power = base is other and isinstance(base, Symbol)
    return (base, one + more) if is_power else (x, 1)


def _of_softplus(t: Symbol) -> Any:
    """Return the x of maximum(x, 0) + log1p(exp(-abs(x))), whose derivative is the sigmoid of x."""
    found = t
    if found.operation != "add":
        return None
    larger, rest = found.arguments
    if not (isinstance(larger, Symbol) and larger.operation == "maximum"):
        return None
    x, zero = larger.arguments
    for operation in ("log1p", "exp", "negative", "absolute"):
        if not (isinstance(rest, Symbol) and rest.operation == operation):
            return None
        rest = rest.arguments[0]
    return x if rest is x and is_number(zero, 0) else None
