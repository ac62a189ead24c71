"""The product that a tensor core makes: D = A B + C, rounded once.

A sum over k is formed in double precision and rounded once, with the sum it is added to. Products
of numbers of up to 16 bits are exact there, so that this sum is at least as accurate as a tensor
core's, whose order and roundings are not documented. Sums of integers are exact; of double they are
chains of fused multiply-adds, in the order of k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.double import fma_f64

Values = npt.NDArray[Any]
_FMA = fma_f64("rn")
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1
INTEGERS = ("s8", "u8", "s4", "u4", "b1")


def product(a: Values, b: Values, c: Values, type_: str, saturates: bool, bitwise: str) -> Values:
    """Return D as numbers (:func:`tilewise.devices.emulator.matrices.registers.numbers`).

    Parameters
    ----------
    a, b, c : ndarray
        The matrices, of shapes (warps, m, k), (warps, k, n) and (warps, m, n).
    type_ : str
        The type of A.
    saturates : bool
        Whether a sum of integers stays within 32 bits, rather than wraps around.
    bitwise : str
        The operation on single bits, ``"and"`` or ``"xor"``, whose ones are counted.
    """
    if type_ == "f64":
        return chain(a, b, c)
    if type_ not in INTEGERS:
        return np.asarray(a @ b + c)
    if bitwise == "xor":  # a + b - 2 a b
        found = a.sum(axis=2)[:, :, None] + b.sum(axis=1)[:, None, :] - 2 * _exact(a, b) + c
    else:
        found = _exact(a, b) + c
    return np.asarray(np.clip(found, _LOWEST, _HIGHEST) if saturates else found)


def _exact(a: Values, b: Values) -> Values:
    """Return a product of small integers, which double precision has exactly."""
    found: Values = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return found


def chain(a: Values, b: Values, c: Values) -> Values:
    """Return the chain of fused multiply-adds of double, as IEEE 754 defines them."""
    for k in range(a.shape[2]):
        factors = a[:, :, k, None], b[:, None, k, :]
        x, y = (np.broadcast_to(each, c.shape).ravel() for each in factors)
        c = _FMA(x, y, c.ravel()).reshape(c.shape)
    return c
