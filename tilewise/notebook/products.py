"""Check whether a product with an epilogue is as near to the exact one as rounding allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewise.epilogue import Epilogue
from tilewise.roundoff import gamma, roundings

_MORE = 4  # roundings of the scalars and of the operands, besides those of the sum


def within(results: Any, a: Any, b: Any, function: Callable[..., Any], /, **operands: Any) -> bool:
    """Return whether the results of a product A·B with an epilogue are correct.

    The bounds follow from the roundings of the sums (Higham, *Accuracy and Stability of Numerical
    Algorithms*, chapter 3), and from those of the function by interval arithmetic.

    Parameters
    ----------
    results : array, or tuple of arrays
        The results of :func:`tilewise.matmul`.
    a : array, (m, k)
        The matrix A of NumPy, in float32 or float64, as it was multiplied.
    b : array, (k, n)
    function : callable
        The function, as in ``epilogue`` of :func:`tilewise.matmul`.
    **operands
        The operands of the function, by their names.

    Returns
    -------
    bool
        The verdict, which is False if there are more or fewer results than the function has.

    Raises
    ------
    TraceError
        If the function does something that a kernel can't do.
    TypeError
        If an operand is missing, or the function does not have it.
    """
    traced = Epilogue(function).traced
    if set(operands) != set(traced.operands):
        raise TypeError(
            f"the function takes {', '.join(traced.operands) or 'no operands'}, and is given "
            f"{', '.join(operands) or 'none'}"
        )
    dtype = np.asarray(a).dtype.name
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    exact = left @ right
    slack = 2 * gamma(roundings(left.shape[-1], 1.0, 0.0) + _MORE, dtype)
    off = slack * (np.abs(left) @ np.abs(right))
    given = [operands[name] for name in traced.operands]
    bounds = traced.enclose(exact - off, exact + off, given, dtype)
    found = results if isinstance(results, tuple) else (results,)
    if isinstance(results, tuple) != traced.is_tuple or len(found) != len(bounds):
        return False
    return all(
        np.shape(got) == exact.shape and bool(np.all((low <= got) & (got <= high)))
        for got, (low, high) in zip(found, bounds, strict=True)
    )
