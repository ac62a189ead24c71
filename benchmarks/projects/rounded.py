"""Compute exact results, with the largest errors that Triton's float32 computations may have."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilewise.specs.bounds import Bounded, Precision

Float = npt.NDArray[np.float64]

SINGLE = Precision.of(np.float32)


class Rounded(Bounded):
    """The exact value of a float32 computation, and the bound on the float32 value's error.

    Functions and quotients are those that Triton compiles to, whose errors are larger than one
    rounding. Those of fused multiply-adds are smaller.

    Parameters
    ----------
    value : array of float64
    error : array of float64, optional
        Its shape can be broadcast to the value's; by default the value is exact.
    precision : Precision
    """

    def __init__(self, value: Any, error: Any = None, precision: Precision = SINGLE) -> None:
        super().__init__(np.asarray(value, np.float64), error, precision)

    def __truediv__(self, other: Any) -> Self:
        """Divide, by ``div.full.f32``, which may be off by 2 units in the last place (PTX ISA)."""
        found = super().__truediv__(other)
        return self._rounded(found.value, found.error, 1.5)  # it already has half an ulp

    @property
    def mT(self) -> Self:
        """The transposed matrices, as NumPy names them."""
        return self._made(self.value.mT, np.broadcast_to(self.error, self.value.shape).mT)

    def sum(self, axis: int | None = None, keepdims: bool = True) -> Self:
        """Add up along an axis, which stays with an extent of 1."""
        return super().sum(axis, keepdims)

    def sqrt(self) -> Self:
        """Take the root, by ``sqrt.approx.f32``, which may be off by 2**-23 of it (PTX ISA)."""
        value = np.sqrt(self.value)
        return self._rounded(value, value - np.sqrt(self.value - self.error), 1)

    def exp2(self) -> Self:
        """Take 2 to that power, by ``ex2.approx.ftz.f32``, off by 2**-22 of it, or zero."""
        value = np.exp2(self.value)
        found = self._rounded(value, value * np.expm1(self.error * math.log(2)), 2)
        return self._made(value, found.error + 2.0**-126)

    def exp(self) -> Self:
        """Take e to that power, which is 2 to that of the product with log2(e), rounded."""
        return (self * math.log2(math.e)).again(1).exp2()

    def log2(self) -> Self:
        """Take the logarithm, by ``lg2.approx.f32``, off by 2**-22 around 1 at most (PTX ISA)."""
        value = np.log2(self.value)
        error = value - np.log2(self.value - self.error)
        return self._made(value, error + 2.0**-22 * np.maximum(1, np.abs(value)))

    def again(self, times: float) -> Self:
        """Round so many times more."""
        return self._rounded(self.value, self.error, times / 2)

    def stored(self, about: Any) -> Self:
        """Round to a shorter format, to its subnormal numbers also.

        Parameters
        ----------
        about : finfo
            NumPy's or PyTorch's.
        """
        step = float(about.eps) / 2 * (np.abs(self.value) + self.error)
        least = float(about.smallest_normal) * float(about.eps) / 2
        return self._made(self.value, self.error + np.maximum(step, least))
