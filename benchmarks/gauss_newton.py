"""Least squares of a model with few constants, each held by a spring to where it should be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
STEPS, DELTA, FARTHEST = 8, 1e-3, 0.5


def least_squares(
    errors: Callable[[Floats], Floats],
    begin: Floats,
    rest: Floats,
    springs: Floats,
    weights: Floats,
    large: float,
) -> Floats:
    """Return the constants with the least errors, by Gauss-Newton steps.

    Parameters
    ----------
    errors : callable
        Of (n,) constants, or their logarithms: (m,) errors.
    begin, rest, springs : ndarray
        (n,): where the search begins, where springs pull to, and how strong they are.
    weights : ndarray
        (m,): of the errors.
    large : float
        Errors beyond count by their size, and not by its square.
    """
    at = begin
    for _ in range(STEPS):
        here = errors(at)
        slopes = np.column_stack(
            [(errors(at + DELTA * one) - here) / DELTA for one in np.eye(len(at))]
        )
        of_each = weights / np.sqrt(1 + (here / large) ** 2)
        left = np.vstack([of_each[:, np.newaxis] * slopes, np.diag(springs)])
        right = np.concatenate([-of_each * here, springs * (rest - at)])
        at = at + np.clip(np.linalg.lstsq(left, right, rcond=None)[0], -FARTHEST, FARTHEST)
    return at
