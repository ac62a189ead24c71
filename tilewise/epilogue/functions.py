"""Functions for epilogues, which also take numbers and NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewise.epilogue.evaluate import erf_of, gelu_of, rsqrt_of, sigmoid_of
from tilewise.epilogue.symbols import Symbol, applied, operate

__all__ = [
    "clip",
    "erf",
    "exp",
    "gelu",
    "leaky_relu",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "softplus",
    "sqrt",
    "tanh",
    "where",
]


def _is_traced(*values: Any) -> bool:
    return any(isinstance(x, Symbol) for x in values)


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return ``x`` where the condition holds, and ``y`` elsewhere."""
    if not _is_traced(condition, x, y):
        return np.where(condition, x, y)
    return operate("where", condition, x, y)


def minimum(x: Any, y: Any) -> Any:
    """Return the smaller one; NaN where either is, as in :data:`numpy.minimum`."""
    return operate("minimum", x, y) if _is_traced(x, y) else np.minimum(x, y)


def maximum(x: Any, y: Any) -> Any:
    """Return the larger one; NaN where either is, as in :data:`numpy.maximum`."""
    return operate("maximum", x, y) if _is_traced(x, y) else np.maximum(x, y)


def clip(x: Any, low: Any, high: Any) -> Any:
    """Return ``x``, limited to the range from ``low`` to ``high``."""
    return applied("clip", x, low, high)(minimum(maximum(x, low), high))


def exp(x: Any) -> Any:
    """Return the exponential of ``x``."""
    return operate("exp", x) if _is_traced(x) else np.exp(x)


def log(x: Any) -> Any:
    """Return the natural logarithm of ``x``."""
    return operate("log", x) if _is_traced(x) else np.log(x)


def log1p(x: Any) -> Any:
    """Return the natural logarithm of 1 + x, exact for small x."""
    return operate("log1p", x) if _is_traced(x) else np.log1p(x)


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent of ``x``."""
    return operate("tanh", x) if _is_traced(x) else np.tanh(x)


def erf(x: Any) -> Any:
    """Return the error function of ``x``."""
    return operate("erf", x) if _is_traced(x) else erf_of(np.asarray(x))


def sqrt(x: Any) -> Any:
    """Return the square root of ``x``."""
    return operate("sqrt", x) if _is_traced(x) else np.sqrt(x)


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    return operate("rsqrt", x) if _is_traced(x) else rsqrt_of(x)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return operate("sigmoid", x) if _is_traced(x) else sigmoid_of(np.asarray(x))


def relu(x: Any) -> Any:
    """Return the larger of ``x`` and 0."""
    # relu of NaN is NaN, and its gradient at 0 is 0.
    return applied("relu", x)(where(x <= 0, 0, x))


def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    """Return ``x`` where it is positive, and ``slope`` times ``x`` elsewhere."""
    return applied("leaky_relu", x, slope)(where(x > 0, x, slope * x))


def silu(x: Any) -> Any:
    """Return x / (1 + exp(-x)), also called swish."""
    return applied("silu", x)(x * sigmoid(x))


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), computed without overflow."""
    return applied("softplus", x)(maximum(x, 0) + log1p(exp(-abs(x))))


def gelu(x: Any, approximate: str = "none") -> Any:
    """Return x times the standard normal distribution function of x.

    Parameters
    ----------
    x : array or float
    approximate : str
        ``"none"`` for the exact function, or ``"tanh"`` for PyTorch's approximation of that name.

    Raises
    ------
    ValueError
        If ``approximate`` is neither.
    """
    if approximate == "none":
        return operate("gelu", x) if _is_traced(x) else gelu_of(np.asarray(x))
    if approximate != "tanh":
        raise ValueError(f"approximate is {approximate!r}; it takes 'none' or 'tanh'")
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return applied("gelu", x, "tanh")(x * (0.5 * (1 + tanh(inner))))
