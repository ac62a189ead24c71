"""The problem of the ladder: C = alpha A B + beta C over matrices in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.masked import is_masked
from tilewise.precision import DTYPES, dtype_of, sums_of
from tilewise.roundoff import scalar
from tilewise.shown import Part, Shown, product_line

Matrix = npt.NDArray[Any]

LARGEST = 2**31 - 1  # a kernel takes sizes and leading dimensions as int


@dataclass(frozen=True, repr=False)
class Gemm(Shown):
    """A product C = alpha A B + beta C, row-major, with leading dimensions.

    Attributes
    ----------
    m, n, k : int
        The sizes: C is m x n, A is m x k, B is k x n. Each may be 0.
    dtype : numpy.dtype
        The dtype of all three, one of :data:`tilewise.precision.DTYPES`.
    alpha, beta : float
        The factors as they reach the kernel: rounded to ``dtype``, or for 16 bits to float32.
    a, b : ndarray
        The caller's own arrays; nothing is copied.
    c : ndarray or None
        C before the product; None if there is none, and then ``beta`` is 0.
    lda, ldb, ldc : int
        The elements from one row to the next, at least the width and at least 1.
    """

    m: int
    n: int
    k: int
    dtype: np.dtype[Any]
    alpha: float
    beta: float
    a: Matrix
    b: Matrix
    c: Matrix | None
    lda: int
    ldb: int
    ldc: int

    def _summary(self) -> str:
        line = product_line(self.m, self.n, self.k, self.alpha, self.beta)
        return f"{line}, {self.dtype}, lda {self.lda:,}, ldb {self.ldb:,}, ldc {self.ldc:,}"

    def _parts(self) -> list[Part]:
        return [self._summary()]

    @classmethod
    def of(
        cls,
        a: Matrix,
        b: Matrix,
        c: Matrix | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> Gemm:
        """Return the product of some arrays.

        Parameters
        ----------
        a, b : ndarray, (m, k) and (k, n)
            Arrays of float16, bfloat16, float32 or float64, both the same. A row must be
            contiguous. Rows may be apart, so that a part of a wider matrix (``x[:, :n]``) is used
            in place.
        c : ndarray, (m, n), optional
            C before the product; needed unless ``beta`` is 0.
        alpha, beta : float
            The factors, which have to be finite.

        Raises
        ------
        TypeError
            If an argument is not a NumPy array, or has a dtype that the kernels don't compute in,
            or another dtype than A; or if a scalar is not a number.
        ValueError
            If the shapes don't fit, a size is over 2**31 - 1, an array is not row-major, a scalar
            is not finite, or C is needed and missing.
        """
        _check_array(a, "A")
        _check_array(b, "B", like=a)
        (m, k), (rows_of_b, n) = a.shape, b.shape
        if k != rows_of_b:
            raise ValueError(
                f"A is {m:,} x {k:,} and B is {rows_of_b:,} x {n:,}; "
                f"A must have as many columns as B has rows, and {k:,} is not {rows_of_b:,}"
            )
        sums = sums_of(a.dtype)
        alpha, beta = scalar(alpha, sums, "alpha"), scalar(beta, sums, "beta")
        if c is not None:
            _check_array(c, "C", like=a)
            if c.shape != (m, n):
                raise ValueError(
                    f"C is {c.shape[0]:,} x {c.shape[1]:,}; "
                    f"with A {m:,} x {k:,} and B {k:,} x {n:,} it must be {m:,} x {n:,}"
                )
        elif beta != 0:
            raise ValueError(f"beta is {beta}, and there is no C to multiply; give c, or beta 0")
        ldc = max(n, 1) if c is None else leading_dimension(c, "C")
        return cls(
            m, n, k, a.dtype, alpha, beta, a, b, c,
            leading_dimension(a, "A"), leading_dimension(b, "B"), ldc,
        )  # fmt: skip


def leading_dimension(x: Matrix, what: str) -> int:
    """Return the elements from one row of the matrix ``x`` to the next; ``what`` is for messages.

    Raises
    ------
    ValueError
        If a row is not contiguous, or rows overlap or have a negative stride.
    """
    rows, width = x.shape
    advice = f"; pass numpy.ascontiguousarray of {what}"
    if x.size and x.ctypes.data % x.itemsize:
        raise ValueError(f"{what} does not start at a multiple of {x.itemsize} bytes{advice}")
    if x.size and width > 1 and x.strides[1] != x.itemsize:
        raise ValueError(
            f"{what}: a row must lie in one piece, and its elements are {x.strides[1]:,} bytes "
            f"apart, not {x.itemsize}{advice}"
        )
    if rows <= 1 or width == 0:  # the row stride of such an array has no meaning
        return int(max(width, 1))
    pitch, rest = divmod(x.strides[0], x.itemsize)
    if rest:
        raise ValueError(
            f"{what}: rows are {x.strides[0]:,} bytes apart, no multiple of {x.itemsize}{advice}"
        )
    if pitch < width:
        raise ValueError(
            f"{what}: the leading dimension is {pitch:,}; it must be at least the width, "
            f"{width:,}{advice}"
        )
    if pitch > LARGEST:
        raise ValueError(
            f"{what}: the leading dimension is {pitch:,}; at most {LARGEST:,} is possible"
        )
    return int(pitch)


def check_sizes(m: int, n: int, k: int) -> None:
    """Raise an error for a product that has no operation, or a size that no kernel takes.

    Raises
    ------
    TypeError
        If a size is not an integer.
    ValueError
        If a size is below 1 or over 2**31 - 1.
    """
    for name, size in (("m", m), ("n", n), ("k", k)):
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise TypeError(f"{name} is {size!r}; it must be an integer")
        if not 1 <= size <= LARGEST:
            why = ": an empty product has nothing to look at" if size == 0 else ""
            raise ValueError(f"{name} is {size:,}; it must be from 1 to {LARGEST:,}{why}")


def random_problem(
    m: int,
    n: int,
    k: int,
    dtype: npt.DTypeLike = "float32",
    seed: int = 0,
) -> tuple[Matrix, Matrix, Matrix]:
    """Return random normal matrices A, B and C, the same for the same arguments.

    Parameters
    ----------
    m, n, k : int
        The sizes, at least 0.
    dtype : dtype
        The dtype, one of :data:`tilewise.precision.DTYPES`. All have the same numbers, drawn in
        float64 and rounded.
    seed : int
        The seed, at least 0.

    Returns
    -------
    a, b, c : ndarray, (m, k), (k, n) and (m, n)

    Raises
    ------
    TypeError
        If a size or the seed is not an integer, or the dtype is not supported.
    ValueError
        If a size or the seed is negative, or a size is over 2**31 - 1.

    Examples
    --------
    >>> [x.shape for x in random_problem(3, 5, 4)]
    [(3, 4), (4, 5), (3, 5)]
    """
    for name, value in (("m", m), ("n", n), ("k", k), ("seed", seed)):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} is {value!r}; it must be an integer")
        if value < 0:
            raise ValueError(f"{name} is {value}; it must be at least 0")
        if value > LARGEST and name != "seed":
            raise ValueError(f"{name} is {value:,}; at most {LARGEST:,} is possible")
    kind = _supported(dtype)
    rng = np.random.default_rng(seed)
    shapes = (m, k), (k, n), (m, n)
    a, b, c = (rng.standard_normal(shape).astype(kind) for shape in shapes)
    return a, b, c


def _supported(dtype: npt.DTypeLike) -> np.dtype[Any]:
    kind = dtype_of(dtype)
    if kind.newbyteorder("=").name not in DTYPES:
        raise TypeError(f"dtype {kind.name} is not supported; there are {', '.join(DTYPES)}")
    return kind


def _check_array(x: object, what: str, like: Matrix | None = None) -> None:
    """Raise the errors of :meth:`Gemm.of` that are about one array."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{what} is {type(x).__name__}; it must be a NumPy array")
    if is_masked(x):
        raise TypeError(f"{what} is a masked array; pass {what}.filled(0), or {what}.data")
    try:
        kind = _supported(x.dtype)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    if not kind.isnative:
        raise TypeError(
            f"{what} has the other byte order, {kind.str!r}; pass {what}.astype({kind.name!r})"
        )
    if x.ndim != 2:
        raise ValueError(f"{what} has the shape {x.shape}; a matrix has 2 dimensions")
    if like is not None and x.dtype != like.dtype:
        raise TypeError(f"{what} is {x.dtype} and A is {like.dtype}; they must be the same")
    if max(x.shape) > LARGEST:
        raise ValueError(f"{what} has shape {x.shape}; a size is at most {LARGEST:,}")
