"""Values with bounds on their rounding errors, for expressions of arrays.

Each value has the most that a correct computation of it in some precision may differ from it:
running error analysis (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed.,
SIAM 2002, section 3.3), element by element. Sums and inner products may be added up in any order
(section 3.1). Integers have no error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ULPS = {
    "exp": (2, 1), "exp2": (2, 1), "expm1": (1, 1), "log": (1, 1), "log2": (1, 1),
    "log10": (2, 1), "log1p": (1, 1), "sqrt": (0, 0), "rsqrt": (2, 1), "cbrt": (1, 1),
    "tanh": (2, 1), "sinh": (3, 2), "cosh": (2, 1), "atan": (2, 2), "sin": (2, 2), "cos": (2, 2),
}  # fmt: skip
"""The largest errors of CUDA's functions for ``float`` and for ``double``, in units of the last
place (CUDA C++ Programming Guide 13.0, section 17.1, tables 17 and 18). They do not hold for
intrinsics such as ``__expf``, nor with ``--use_fast_math``.
"""
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    name: getattr(np, {"atan": "arctan"}.get(name, name)) for name in ULPS if name != "rsqrt"
}
_FUNCTIONS["rsqrt"] = lambda x: 1 / np.sqrt(x)
# NumPy's cube root is the C library's: that of glibc 2.36 is wrong by up to 3 units in the last
# place of a float64, but not if it is computed in a wider type, where there is one.
_FUNCTIONS["cbrt"] = lambda x: np.cbrt(x.astype(np.longdouble)).astype(np.float64)


@dataclass(frozen=True)
class Precision:
    """The precision that a computation rounds to.

    Attributes
    ----------
    dtype : dtype
    unit : float
        The unit roundoff: half the distance from 1 to the next number.
    least : float
        The smallest subnormal number.
    """

    dtype: np.dtype[Any]
    unit: float
    least: float

    @classmethod
    def of(cls, dtype: npt.DTypeLike) -> Precision:
        """Return the precision of a float dtype, of a complex one's parts, or of bfloat16."""
        kind = np.dtype(dtype)
        if kind.name == "bfloat16":
            return cls(kind, 2.0**-8, 2.0**-133)
        info = np.finfo(kind if kind.kind in "fc" else np.float64)
        return cls(kind, float(info.eps) / 2, float(info.smallest_subnormal))

    def gamma(self, operations: Any) -> Any:
        """Return the most that roundings, one after another, change a value relative to it."""
        return np.expm1(operations * np.log1p(self.unit))


class Bounded:
    """Values, each with the most that a correct one may differ from it.

    Parameters
    ----------
    value : array_like
        The values, float64, or int64 for exact ones.
    error : array_like or None
        The bounds; None if the values are exact, as inputs are.
    precision : Precision
    """

    __array_priority__ = 1000

    def __init__(self, value: Any, error: Any, precision: Precision) -> None:
        self.value = np.asarray(value)
        self.is_whole = self.value.dtype.kind in "biu"
        self.error = np.zeros(()) if error is None or self.is_whole else np.asarray(error)
        self.precision = precision

    def _made(self, value: Any, error: Any = None) -> Self:
        """Return values of the same precision, which are exact without an error."""
        return type(self)(value, error, self.precision)

    def _of(self, other: Any) -> Bounded:
        return other if isinstance(other, Bounded) else self._made(other)

    def _rounded(self, value: Array, error: Any, ulps: float = 0.5) -> Self:
        """Return a value with the error that it carries, and that of its own rounding."""
        if value.dtype.kind in "biu":
            return self._made(value)
        unit, least = self.precision.unit * 2 * ulps, self.precision.least * max(ulps, 1)
        return self._made(value, error + unit * (np.abs(value) + error) + least)

    def __add__(self, other: Any) -> Self:
        b = self._of(other)
        return self._rounded(self.value + b.value, self.error + b.error)

    def __sub__(self, other: Any) -> Self:
        b = self._of(other)
        return self._rounded(self.value - b.value, self.error + b.error)

    def __mul__(self, other: Any) -> Self:
        b = self._of(other)
        return self._rounded(self.value * b.value, self._crossed(b, np.multiply))

    def __truediv__(self, other: Any) -> Self:
        b = self._of(other)
        value = np.asarray(self.value / b.value)
        left = np.abs(b.value) - b.error
        error = np.where(left > 0, (self.error + np.abs(value) * b.error) / left, np.inf)
        return self._rounded(value, np.where(self.error + b.error == 0, 0.0, error))

    def __matmul__(self, other: Any) -> Self:
        b = self._of(other)
        value = np.asarray(self.value @ b.value)
        depth = self.value.shape[-1]
        error = self._crossed(b, np.matmul)
        size = np.matmul(np.abs(self.value), np.abs(b.value))
        if value.dtype.kind in "biu":
            return self._made(value)
        return self._made(value, error + self.precision.gamma(depth) * (size + error)
                       + depth * self.precision.least)  # fmt: skip

    def _crossed(self, b: Bounded, product: Callable[[Array, Array], Array]) -> Array:
        """Return the error of a product of values with errors."""
        size, other = np.abs(self.value), np.abs(b.value)
        mine, its = (np.broadcast_to(x.error, x.value.shape) for x in (self, b))
        return product(mine, other) + product(size, its) + product(mine, its)

    def __pow__(self, other: Any) -> Self:
        b = self._of(other)
        times = int(b.value) if b.value.ndim == 0 and b.value == np.floor(b.value) else -1
        if not 0 <= times <= 64:
            raise ValueError("a power must be an integer from 0 to 64; sqrt and exp are functions")
        value = np.asarray(self.value**times)
        if self.is_whole or times == 0:
            return self._made(value)
        outer = (np.abs(self.value) + self.error) ** times
        error = outer - np.abs(self.value) ** times
        return self._made(value, error + self.precision.gamma(times) * outer
                       + times * self.precision.least)  # fmt: skip

    def __floordiv__(self, other: Any) -> Self:
        return self._whole(other, "//", np.floor_divide)

    def __mod__(self, other: Any) -> Self:
        return self._whole(other, "%", np.mod)

    def __and__(self, other: Any) -> Self:
        return self._whole(other, "&", np.bitwise_and)

    def __or__(self, other: Any) -> Self:
        return self._whole(other, "|", np.bitwise_or)

    def __xor__(self, other: Any) -> Self:
        return self._whole(other, "^", np.bitwise_xor)

    def __lshift__(self, other: Any) -> Self:
        return self._whole(other, "<<", np.left_shift)

    def __rshift__(self, other: Any) -> Self:
        return self._whole(other, ">>", np.right_shift)

    def _whole(self, other: Any, sign: str, operation: Callable[..., Any]) -> Self:
        b = self._of(other)
        if not (self.is_whole and b.is_whole):
            raise ValueError(f"{sign} is for integers")
        return self._made(operation(self.value, b.value))

    def __neg__(self) -> Self:
        return self._made(-self.value, self.error)

    def __pos__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        if not self.is_whole:
            raise ValueError("~ is for integers")
        return self._made(~self.value)

    def compared(self, other: Any, operation: Callable[..., Any]) -> Self:
        """Return a comparison, ignoring that its outcome within the errors is not known."""
        b = self._of(other)
        if np.any(np.abs(self.value - b.value) < self.error + b.error):
            raise ValueError(
                "a comparison depends on roundings; compare what is given, not computed"
            )
        return self._made(operation(self.value, b.value))

    def rounded(self, name: str) -> Self:
        """Return the values rounded to integers: ``"floor"``, ``"ceil"`` or ``"rint"``."""
        low, high = (getattr(np, name)(self.value + sign * self.error) for sign in (-1, 1))
        if np.any(low != high):
            raise ValueError(f"{name} depends on roundings; take it of what is given, not computed")
        return self._made(low)

    @property
    def T(self) -> Self:
        """The transposed values."""
        error = np.broadcast_to(self.error, self.value.shape)
        return self._made(self.value.T, error.T)

    def __getitem__(self, index: Any) -> Self:
        error = np.broadcast_to(self.error, self.value.shape)
        return self._made(self.value[index], error[index])

    def reshape(self, *shape: int) -> Self:
        """Return the values in another shape."""
        error = np.broadcast_to(self.error, self.value.shape)
        return self._made(self.value.reshape(shape), error.reshape(shape))

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Return the sum along an axis, or of all values."""
        how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
        value = np.asarray(self.value.sum(**how))
        if self.is_whole:
            return self._made(value)
        count = self.value.size if axis is None else self.value.shape[axis]
        error = np.broadcast_to(self.error, self.value.shape)
        spread = self.precision.gamma(max(count - 1, 0)) * (np.abs(self.value) + error).sum(**how)
        return self._made(value, error.sum(**how) + spread)

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Return the sum by the count."""
        count = self.value.size if axis is None else self.value.shape[axis]
        total = self.sum(axis, keepdims)
        whole = total.value.astype(np.float64)  # not an integer, even for integers
        return self._made(whole, None if total.is_whole else total.error) / count

    def cumsum(self, axis: int = -1) -> Self:
        """Return the sums of all elements up to each one."""
        value = self.value.cumsum(axis)
        if self.is_whole:
            return self._made(value)
        error = np.broadcast_to(self.error, self.value.shape)
        count = self.value.shape[axis]
        spread = self.precision.gamma(max(count - 1, 0)) * (np.abs(self.value) + error).cumsum(axis)
        return self._made(value, error.cumsum(axis) + spread)

    def extreme(self, which: str, axis: int | None = None, keepdims: bool = False) -> Self:
        """Return the largest or the smallest, as ``which`` says: ``"max"`` or ``"min"``."""
        how: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
        error = np.broadcast_to(self.error, self.value.shape)
        return self._made(getattr(self.value, which)(**how), error.max(**how))

    def apart(self, other: Any, which: str) -> Self:
        """Return the larger or the smaller by element: ``"maximum"`` or ``"minimum"``."""
        b = self._of(other)
        error = np.maximum(self.error, b.error)
        return self._made(getattr(np, which)(self.value, b.value), error)

    def __abs__(self) -> Self:
        return self._made(np.abs(self.value), self.error)

    def function(self, name: str) -> Self:
        """Apply a function of :data:`ULPS` to each element; its result is also rounded.

        How far the input's error moves a monotonic function is seen at the ends of its interval;
        sine and cosine move no further than their input.
        """
        apply = _FUNCTIONS[name]
        at = self.value.astype(np.float64)
        value = apply(at)
        if name in ("sin", "cos"):
            moved = np.broadcast_to(self.error, at.shape)
        else:
            ends = [apply(at - self.error), apply(at + self.error)]
            if name == "cosh":
                ends.append(apply(np.maximum(np.abs(at) - self.error, 0)))
            moved = np.zeros(at.shape)
            for end in ends:
                off = np.abs(end - value)
                # Both infinite, or NaN of an input that is: the value itself is compared.
                moved = np.maximum(moved, np.where(np.isfinite(value) & ~(end == value), off, 0.0))
            moved = np.where(np.isnan(moved), np.inf, moved)
        ulps = ULPS[name][self.precision.unit <= Precision.of(np.float64).unit]
        return self._rounded(np.asarray(value), moved, ulps + 0.5)


def chosen(where: Bounded, a: Bounded, b: Bounded) -> Bounded:
    """Return elements of ``a`` where ``where`` is true, else of ``b``."""
    value = np.where(where.value.astype(bool), a.value, b.value)
    return Bounded(value, np.where(where.value.astype(bool), a.error, b.error), a.precision)
