"""Check whether a matrix C is a correct product of its inputs in a given precision.

No tolerance is picked by hand. The bound follows from the number of roundings that the kernel
makes and from the unit roundoff, as in N. J. Higham, *Accuracy and Stability of Numerical
Algorithms*, 2nd ed., SIAM 2002, ch. 3 (section 3.1 for inner products, 3.5 for matrices; section
2.1, eq. 2.8, for underflow).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.certain import Certain, Float
from tilewise.precision import DTYPES, Limits, dtype_of, limits_of, sums_of
from tilewise.roundoff import gamma, roundings, scalar
from tilewise.shown import Part, Shown, element

Array = npt.NDArray[Any]

_SMALL = 2.0**-560  # products scaled by it are far from overflow, and also from underflow
_PANEL = 1 << 23  # float64 elements of A, and of B, that are checked together: 64 MiB


@dataclass(frozen=True, repr=False)
class Check(Shown):
    """The result of :func:`check`.

    Attributes
    ----------
    correct : bool
        Whether every element is within the bound, and NaN and infinity are only where they may be.
    max_error : float
        The largest |C - C64| / (|alpha| |A||B| + |beta| |C0|) over the elements, after subtracting
        what underflow accounts for; infinity if an element is NaN or infinite and must not be, or
        is finite and must not be. For 16-bit elements, whose bounds differ, it is that of the
        element nearest its bound.
    bound : float
        The largest ``max_error`` that is correct.
    worst : (int, int) or None
        The row and the column of the element with ``max_error``; None if C has no elements.
    nan, infinite : int
        The number of elements of C that are NaN, and of those that are infinite.
    first : (int, int) or None
        The row and the column of the first of them; None if there is none.
    inputs : int
        The number of elements of A, B and the previous C that are NaN or infinite, among those that
        the product reads.
    """

    correct: bool
    max_error: float
    bound: float
    worst: tuple[int, int] | None
    nan: int = 0
    infinite: int = 0
    first: tuple[int, int] | None = None
    inputs: int = 0

    @property
    def remark(self) -> str:
        """A sentence about NaN and infinity; empty if there are none."""
        if not self.nan and not self.infinite:
            return f"C is finite; of the inputs {_of_inputs(self.inputs)}" if self.inputs else ""
        infinite = "1 infinity" if self.infinite == 1 else f"{self.infinite:,} infinities"
        found = [f"{self.nan:,} NaN"] * bool(self.nan) + [infinite] * bool(self.infinite)
        at = f"at {element('C', self.first or ())}"
        where = at if self.nan + self.infinite == 1 else f"the first {at}"
        said = f"C has {' and '.join(found)}, {where}"
        if self.inputs:
            return f"{said}; of the inputs {_of_inputs(self.inputs)} finite"
        return f"{said}, where the inputs have none{': sums overflow' if self.correct else ''}"

    @property
    def details(self) -> str:
        """What C was compared with, the error, and the largest error allowed, as text."""
        worst = (
            "" if self.correct or self.worst is None else f", worst at {element('C', self.worst)}"
        )
        return (
            f"against float64: max error {self.max_error:.3g} of |A||B|, bound {self.bound:.3g}"
            f"{worst}"
        )

    def _summary(self) -> str:
        return f"{'right' if self.correct else 'WRONG'} {self.details}"

    def _parts(self) -> list[Part]:
        return [self._summary(), *filter(None, (self.remark,))]


def _of_inputs(count: int) -> str:
    return "1 element is not" if count == 1 else f"{count:,} elements are not"


def check(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c0: npt.ArrayLike | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: npt.DTypeLike | None = None,
) -> Check:
    """Check whether ``c`` is alpha A B + beta C0 as a correct kernel of this precision has it.

    Parameters
    ----------
    c : array_like, (m, n)
        The result to check.
    a, b : array_like, (m, k) and (k, n)
    c0 : array_like, (m, n), optional
        C before the kernel; ignored if ``beta`` is 0, as A and B are if ``alpha`` is 0.
    alpha, beta : float
        The factors, which have to be finite. They are first rounded to the dtype that the kernel
        computes in, as on their way to the kernel.
    dtype : dtype, optional
        The dtype of the result, one of :data:`tilewise.precision.DTYPES`; by default that of ``c``.
        The kernel computes in it, or in float32 for 16 bits.

    Returns
    -------
    Check

    Raises
    ------
    TypeError
        If ``dtype`` is not one of these.
    ValueError
        If the shapes do not fit, alpha or beta is not finite, or C0 is needed and not given.

    Notes
    -----
    **Finite elements.** C64 is computed in float64. Both C and C64 are sums of k products in some
    order, so with n = :func:`tilewise.roundoff.roundings` each is within gamma_n of the exact
    value, in the unit roundoff of its own dtype, relative to |alpha| |A||B| + |beta| |C0|. The
    bound is the sum of the two: for float32 the second is nothing; for float64 it doubles the
    bound, which keeps the reference a plain float64 product. Two more roundings cover the
    comparison itself, and the bound is divided by 1 - gamma_n because |A||B| is computed too. To
    this, underflow adds at most half the smallest subnormal for each rounding (Higham, eq. 2.8); it
    is taken off before the ratio, so that ``max_error`` stays relative.

    **16 bits.** The sums are float32's, with its gamma_n, and are rounded once to ``dtype``: by at
    most its unit roundoff times |C64| and the bound of the sums, or where that is less than its
    smallest numbers, by half of the smallest. A sum that is finite may be rounded to infinity.

    **NaN and infinity.** What an element may be follows from IEEE 754, whatever the order of the
    sum. A NaN among the factors, zero times infinity, or infinite terms of both signs: NaN, and
    nothing else. Infinite terms of one sign: that infinity. Finite terms: finite, unless the
    terms of one sign alone can exceed the largest number of ``dtype``; then a partial sum may
    overflow to infinity of that sign, though C64 itself is finite, and to NaN if both signs can.
    """
    product = _product(c, a, b, c0, alpha, beta, dtype)
    checker = product.checker
    largest, error, bound, worst = -1.0, 0.0, checker.bound, None
    for top, left, errors, bounds in product.panels():
        with np.errstate(all="ignore"):
            shares = errors / bounds
        i, j = np.unravel_index(int(np.argmax(shares)), shares.shape)
        if shares[i, j] > largest:
            largest, worst = float(shares[i, j]), (top + int(i), left + int(j))
            error, bound = float(errors[i, j]), float(bounds[i, j])
    if worst is None:
        return Check(True, 0.0, checker.bound, None)
    factors = ((product.a, checker.alpha), (product.b, checker.alpha), (product.old, checker.beta))
    read = [x for x, factor in factors if x is not None and factor]
    inputs = sum(int(x.size - np.isfinite(x).sum()) for x in read)
    odd = ~np.isfinite(product.c)
    nan, first = int(np.isnan(product.c).sum()), None
    if odd.any():
        i, j = np.unravel_index(int(np.argmax(odd)), odd.shape)
        first = int(i), int(j)
    return Check(
        error <= bound, error, bound, worst, nan, int(odd.sum()) - nan, first, inputs,
    )  # fmt: skip


def wrong_elements(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c0: npt.ArrayLike | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements of ``c`` that are wrong by the rule of :func:`check`.

    Parameters
    ----------
    c, a, b, c0, alpha, beta
        The arguments of :func:`check`.

    Returns
    -------
    ndarray of bool, (m, n)
        True where an element's error is larger than its bound.

    Raises
    ------
    TypeError, ValueError
        The errors of :func:`check`.
    """
    product = _product(c, a, b, c0, alpha, beta, None)
    wrong = np.zeros(product.c.shape, np.bool_)
    for top, left, errors, bounds in product.panels():
        rows, columns = errors.shape
        wrong[top : top + rows, left : left + columns] = errors > bounds
    return wrong


@dataclass(frozen=True, eq=False)
class _Product:
    """The matrices of a product whose shapes fit together: C, A, B, and C before (``old``)."""

    c: Array
    a: Array
    b: Array
    old: Array | None
    checker: _Checker

    def panels(self) -> Iterator[tuple[int, int, Float, Float]]:
        """Yield each panel of C: its first row and column, the elements' errors and bounds."""
        (m, k), n = self.a.shape, self.b.shape[1]
        step = max(64, min(2048, _PANEL // max(k, 1)))
        for left in range(0, n, step):
            cols = slice(left, left + step)
            with np.errstate(all="ignore"):
                b_panel = self.b[:, cols].astype(np.float64)
            for top in range(0, m, step):
                rows = slice(top, top + step)
                with np.errstate(all="ignore"):
                    found = self.checker.errors(
                        self.c[rows, cols].astype(np.float64),
                        self.a[rows].astype(np.float64),
                        b_panel,
                        None if self.old is None else self.old[rows, cols].astype(np.float64),
                    )
                yield top, left, *found


def _product(
    c: npt.ArrayLike,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c0: npt.ArrayLike | None,
    alpha: float,
    beta: float,
    dtype: npt.DTypeLike | None,
) -> _Product:
    """Return the arguments of :func:`check` as arrays whose shapes fit; raise its errors."""
    c, a, b = np.asarray(c), np.asarray(a), np.asarray(b)
    kind = dtype_of(c.dtype if dtype is None else dtype)
    if kind.name not in DTYPES:
        raise TypeError(f"dtype {kind.name} can't be checked; there are {', '.join(DTYPES)}")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"A of shape {a.shape} and B of shape {b.shape} do not fit: m x k times k x n is wanted"
        )
    (m, k), n = a.shape, b.shape[1]
    if c.shape != (m, n):
        raise ValueError(f"C has shape {c.shape}; A times B has {(m, n)}")
    sums = sums_of(kind)
    alpha, beta = scalar(alpha, sums, "alpha"), scalar(beta, sums, "beta")
    old: Array | None = None
    if beta != 0:
        if c0 is None:
            raise ValueError(f"beta is {beta}, so C before the kernel is needed")
        old = np.asarray(c0)
        if old.shape != (m, n):
            raise ValueError(f"C before the kernel has shape {old.shape}; it must be {(m, n)}")

    return _Product(c, a, b, old, _Checker(kind, k, alpha, beta))


class _Checker:
    """The check of one panel of C, in float64."""

    def __init__(self, dtype: np.dtype[Any], k: int, alpha: float, beta: float) -> None:
        n = roundings(k, alpha, beta)
        of_reference = gamma(n + 2, np.float64)
        sums, out = limits_of(sums_of(dtype)), limits_of(dtype)
        self.alpha = alpha
        self.beta = beta
        self.largest = sums.largest
        of_sums = gamma(n, sums_of(dtype))
        self.growth = 1 + of_sums + of_reference
        self.bound = (of_sums + of_reference) / (1 - of_reference)
        # Each rounding adds half of each. Only the product is halved, because half of float64's own
        # smallest number is not a number.
        least = sums.subnormal + limits_of(np.dtype(np.float64)).subnormal
        self.underflow = least / 2 * (self.growth * (abs(alpha) * k + 2))
        self.out: Limits | None = None  # the limits of C, if the sum is rounded once more
        if sums != out:
            self.out = out
            self.underflow += out.subnormal / 2

    def errors(self, c: Float, a: Float, b: Float, old: Float | None) -> tuple[Float, Float]:
        """Return for each element the ratio of ``Check.max_error``, and its bound."""
        certain = Certain(c.shape)
        value, size = np.zeros(c.shape), np.zeros(c.shape)
        up, down = np.zeros(c.shape), np.zeros(c.shape)  # the sums of the terms of either sign
        unit = 1.0  # the unit of up and down
        if self.alpha != 0:
            a, b = certain.of_product(a, b, self.alpha)
            total, total_size = a @ b, np.abs(a) @ np.abs(b)
            value, size = self.alpha * total, abs(self.alpha) * total_size
            if not np.isfinite(total_size).all():  # float64 overflows too
                unit = _SMALL * _SMALL
                a_small, b_small = a * _SMALL, b * _SMALL
                total, total_size = a_small @ b_small, np.abs(a_small) @ np.abs(b_small)
            # The sum can overflow before alpha makes it smaller, or after alpha made it larger.
            scale = max(1.0, abs(self.alpha))
            up, down = (total_size + total) / 2 * scale, (total_size - total) / 2 * scale
            if self.alpha < 0:
                up, down = down, up
        if old is not None:
            old = certain.of_old(old, self.beta)
            term = self.beta * old
            value, size = value + term, size + np.abs(term)
            up, down = up + unit * np.maximum(term, 0), down + unit * np.maximum(-term, 0)
        may_up = certain.up | (up * self.growth > unit * self.largest)
        may_down = certain.down | (down * self.growth > unit * self.largest)
        bounds = np.full(c.shape, self.bound)
        if self.out is not None:
            of_sum = self.bound * size + self.underflow
            overflow = self.out.largest * (2 - self.out.unit) / (2 - 2 * self.out.unit)
            may_up |= value + of_sum >= overflow
            may_down |= of_sum - value >= overflow
            of_size = np.where(size > 0, np.abs(value) / size, 0.0)
            bounds = self.bound + self.out.unit * (of_size + self.bound)

        error = np.maximum(np.abs(c - value) - self.underflow, 0)
        ratio = np.where(error == 0, 0.0, error / size)
        beyond = np.isfinite(c) & ~(np.isfinite(value) & np.isfinite(size))
        for i, j in np.argwhere(beyond):
            ratio[i, j] = self._exact(c[i, j], a[i], b[:, j], None if old is None else old[i, j])

        right = np.where(
            np.isfinite(c),
            ~(certain.up | certain.down | certain.nan),
            np.where(
                np.isnan(c),
                certain.nan | (may_up & may_down),
                np.where(c > 0, may_up & ~certain.down, may_down & ~certain.up) & ~certain.nan,
            ),
        )
        return np.where(right, np.where(np.isfinite(c), ratio, 0.0), np.inf), bounds

    def _exact(self, c: float, a: Float, b: Float, old: float | None) -> float:
        """Return the ratio of one finite element, if float64 overflows, by rational numbers."""
        value, size = Fraction(0), Fraction(0)
        if self.alpha != 0:
            for x, y in zip(a, b, strict=True):
                term = Fraction(self.alpha) * Fraction(float(x)) * Fraction(float(y))
                value, size = value + term, size + abs(term)
        if old is not None:
            term = Fraction(self.beta) * Fraction(float(old))
            value, size = value + term, size + abs(term)
        error = max(abs(Fraction(float(c)) - value) - Fraction(self.underflow), Fraction(0))
        return float(error / size) if error else 0.0
