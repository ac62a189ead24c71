"""Bound what roundings do to a sum of products, and round numbers as they reach a kernel.

N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM 2002, ch. 3.
"""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
import numpy.typing as npt

from tilewise.precision import limits_of
from tilewise.shown import shortened


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Return half the distance from 1 to the next number: 2**-24 for float32."""
    return limits_of(dtype).unit


def gamma(operations: int, dtype: npt.DTypeLike) -> float:
    """Return the most that ``operations`` roundings can change a value, relative to it.

    Parameters
    ----------
    operations : int
        The number of roundings one after another, at least 0.
    dtype : dtype
        The dtype that they round to.

    Returns
    -------
    float
        With n operations and unit roundoff u, (1 + u)**n - 1. Higham's gamma_n = nu / (1 - nu)
        (Lemma 3.1) is an upper bound of it, within a relative nu where nu is small, and no bound at
        all from nu = 1 on, which is k = 2**24 in float32, a depth that a GPU reaches.

    Raises
    ------
    ValueError
        If ``operations`` is negative.
    """
    if operations < 0:
        raise ValueError(f"operations is {operations}; it must be at least 0")
    return math.expm1(operations * math.log1p(unit_roundoff(dtype)))


def roundings(k: int, alpha: float, beta: float) -> int:
    """Return the most roundings of an element of C, with or without fused multiply-adds.

    A product of the sum goes through at most k roundings (one when it is made, and k - 1 additions,
    since the first addition, to zero, is exact), one for alpha unless that is 0, 1 or -1, and one
    for adding beta C. An element of the old C goes through at most two.
    """
    by_alpha = alpha not in (0, 1, -1)
    of_product = k + by_alpha + (beta != 0) if alpha != 0 else 0
    of_old = 1 + (beta not in (1, -1)) if beta != 0 else 0
    return max(of_product, of_old)


def scalar(value: float, dtype: npt.DTypeLike, what: str) -> float:
    """Return ``value`` rounded to ``dtype``, as it reaches the kernel; ``what`` is for messages.

    Raises
    ------
    TypeError
        If it is not a real number.
    ValueError
        If it is not finite, or too large for ``dtype``.
    """
    if isinstance(value, bool) or not isinstance(value, (Real, np.integer, np.floating)):
        raise TypeError(f"{what} is {value!r}; it must be a number")
    try:
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(dtype).type(value))
    except OverflowError:  # an integer that no float can hold
        rounded = math.inf
    if not math.isfinite(rounded):
        raise ValueError(
            f"{what} is {shortened(value)}; it must be finite as {np.dtype(dtype).name}"
        )
    return rounded
