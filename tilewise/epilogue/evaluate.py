"""Evaluates a traced function for arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.epilogue.symbols import Symbol, operate


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


class _Traced(dict[str, Callable[..., Any]]):
    """The functions that trace operations, by the names of the operations."""

    def __missing__(self, operation: str) -> Callable[..., Any]:
        return float if operation == "constant" else partial(operate, operation)


def _functions(acc: Any) -> dict[str, Callable[..., Any]]:
    """Return a function for each operation, on arrays of the library and the dtype of ``acc``.

    On symbols, the functions trace the operations.
    """
    if isinstance(acc, Symbol):
        return _Traced()
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
