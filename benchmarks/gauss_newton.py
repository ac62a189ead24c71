"""Fit a model's few constants by least squares; a spring holds each near a value of its own."""

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
        Takes (n,) constants, or their logarithms, and returns (m,) errors.
    begin, rest, springs : ndarray
        Shape (n,): where the search begins, the values that the springs pull to, and how strong
        the springs are.
    weights : ndarray
        Shape (m,): the weights of the errors.
    large : float
        Errors larger than this count linearly, not by their square.
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
