"""Exact results, and by how much a computation of lower precision may be off from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]

SINGLE = 2.0**-24  # the unit roundoff of float32


@dataclass(frozen=True)
class Rounded:
    """What is computed in float32, as it is exactly, and how far the float32 one may be off.

    Each operation adds to the errors that its operands carry that of its own rounding (Higham,
    *Accuracy and Stability of Numerical Algorithms*, section 3.3: running error analysis). Fused
    multiply-adds round less than that.

    Attributes
    ----------
    value, error : array of float64
        Of one shape, or broadcast against each other.
    """

    value: Float
    error: Float

    @classmethod
    def of(cls, values: Any) -> Rounded:
        """Take numbers that are as they are given."""
        value = np.asarray(values, np.float64)
        return cls(value, np.zeros(value.shape))

    def _made(self, value: Float, error: Float, units: float = 1) -> Rounded:
        """Return a result that is rounded besides, by so many unit roundoffs."""
        return Rounded(value, error + units * SINGLE * (np.abs(value) + error))

    def __add__(self, other: Rounded) -> Rounded:
        return self._made(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Rounded) -> Rounded:
        return self._made(self.value - other.value, self.error + other.error)

    def __mul__(self, other: Rounded) -> Rounded:
        error = (
            np.abs(self.value) * other.error
            + self.error * np.abs(other.value)
            + self.error * other.error
        )
        return self._made(self.value * other.value, error)

    def __truediv__(self, other: Rounded) -> Rounded:
        """Divide, by ``div.full.f32``, which may be off by 2 units in the last place (PTX ISA)."""
        least = np.abs(other.value) - other.error
        value = self.value / other.value
        return self._made(value, (self.error + np.abs(value) * other.error) / least, 4)

    def __matmul__(self, other: Rounded) -> Rounded:
        """Multiply matrices, sums in float32 in any order."""
        a, b = np.abs(self.value), np.abs(other.value)
        error = a @ other.error + self.error @ (b + other.error)
        terms = (a + self.error) @ (b + other.error)
        return Rounded(self.value @ other.value, error + self.value.shape[-1] * SINGLE * terms)

    @property
    def mT(self) -> Rounded:
        """The transposed matrices, as NumPy names them."""
        return Rounded(self.value.mT, self.error.mT)

    def sum(self, axis: int) -> Rounded:
        """Add up along an axis, in any order; it stays, of extent 1."""
        terms = (np.abs(self.value) + self.error).sum(axis, keepdims=True)
        error = self.error.sum(axis, keepdims=True)
        return Rounded(
            self.value.sum(axis, keepdims=True), error + self.value.shape[axis] * SINGLE * terms
        )

    def sqrt(self) -> Rounded:
        """Take the root, by ``sqrt.approx.f32``, which may be off by 2**-23 of it (PTX ISA)."""
        value = np.sqrt(self.value)
        return self._made(value, value - np.sqrt(self.value - self.error), 2)

    def exp2(self) -> Rounded:
        """Take 2 to that power, by ``ex2.approx.ftz.f32``, off by 2**-22 of it, or zero."""
        value = np.exp2(self.value)
        found = self._made(value, value * np.expm1(self.error * math.log(2)), 4)
        return Rounded(value, found.error + 2.0**-126)

    def exp(self) -> Rounded:
        """Take e to that power, which is 2 to that of the product with log2(e), rounded."""
        return (self * Rounded.of(math.log2(math.e))).again(1).exp2()

    def log2(self) -> Rounded:
        """Take the logarithm, by ``lg2.approx.f32``, off by 2**-22 around 1 at most (PTX ISA)."""
        value = np.log2(self.value)
        error = value - np.log2(self.value - self.error)
        return Rounded(value, error + 2.0**-22 * np.maximum(1, np.abs(value)))

    def again(self, units: float) -> Rounded:
        """Round so many times more."""
        return self._made(self.value, self.error, units)

    def stored(self, about: Any) -> Rounded:
        """Round to a shorter format, to its subnormal numbers also.

        Parameters
        ----------
        about : finfo
            NumPy's or PyTorch's.
        """
        step = float(about.eps) / 2 * (np.abs(self.value) + self.error)
        least = float(about.smallest_normal) * float(about.eps) / 2
        return Rounded(self.value, self.error + np.maximum(step, least))
