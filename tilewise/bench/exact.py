"""Measure the distance of a product from the exact one: by its error bound, and as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tilewise.precision import HALVES, limits_of, sums_of
from tilewise.roundoff import gamma, roundings

_CHECKED_FLOPS = 5e11  # operations in float64; a larger product is checked on random rows
_LEAST_ROWS = 256
_MANTISSA = 53  # bits of a float64
_KEPT = 60  # bits, below the largest element of a row or column, that slices hold

Tensor = Any


@dataclass(frozen=True)
class Distance:
    """The distance of a result from the exact product.

    Attributes
    ----------
    share : float
        The largest error, as a share of what rounding may make it there: at most 1 where the
        result is right. Infinity where an element is NaN or infinite.
    norm : float
        The Frobenius norm of the error by that of the product, over the rows that are looked at.
    """

    share: float
    norm: float

    @property
    def correct(self) -> bool:
        return self.share <= 1


class Exact:
    """A B, in more precision than a kernel of the same dtype has it.

    Parameters
    ----------
    a, b : torch.Tensor, (m, k) and (k, n)
        Both of the same dtype, of finite elements; k at least 1.

    Notes
    -----
    Of float32 and 16 bits every product is exact in float64, and their sums are rounded there. Of
    float64, A and B are cut into slices of so few bits that a product of two slices is exact in
    float64, sums and all (K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, *Error-free transformations of
    matrix multiplication by using fast routines of matrix multiplication and its applications*,
    Numerical Algorithms 59, 2012); these products are taken off a result one by one, the largest
    first. All rows of A are looked at, or where that takes long a random sample with the first and
    the last.

    The bound of an element is that of :mod:`tilewise.numbers`: gamma of k roundings in the dtype,
    relative to \\|A\\|\\|B\\|, and gamma of k + 2 in float64 for the comparison itself. Of
    16 bits it is float32's, and one rounding.
    """

    def __init__(self, a: Tensor, b: Tensor) -> None:
        (m, k), n = a.shape, b.shape[1]
        dtype = str(a.dtype).removeprefix("torch.")
        bits = _slice_bits(k) if dtype == "float64" else _MANTISSA
        count = math.ceil(_KEPT / bits) if dtype == "float64" else 1
        pairs = [(i, s - i) for s in range(count) for i in range(s + 1)]
        most = int(_CHECKED_FLOPS / (2 * (len(pairs) + 1) * n * k))
        self.rows = sample(m, max(_LEAST_ROWS, most), a.device)
        x, y = a[self.rows].double(), b.double()
        of_x, of_y = ([x], [y]) if count == 1 else (_slices(x, 1, bits, count),
                                                    _slices(y, 0, bits, count))  # fmt: skip
        self._products = [of_x[i] @ of_y[j] for i, j in pairs]
        operations = roundings(k, 1, 0)
        self._limit = x.abs() @ y.abs()
        sums = sums_of(dtype)
        self._limit *= gamma(operations, sums) + gamma(operations + 2, "float64")
        self._limit += (operations + 2) * limits_of(sums).subnormal
        self._norm = float(torch.linalg.norm(self._products[0]))
        if dtype in HALVES:
            out = limits_of(dtype)
            self._limit += out.unit * (self._products[0].abs() + self._limit) + out.subnormal / 2

    def distance(self, c: Tensor) -> Distance:
        """Return the distance of a result from the exact product.

        Parameters
        ----------
        c : torch.Tensor, (m, n)
        """
        if not bool(torch.isfinite(c).all()):
            return Distance(math.inf, math.inf)
        error = c[self.rows].double()
        for product in self._products:
            error -= product
        share = float((error.abs() / self._limit).max())
        return Distance(share, float(torch.linalg.norm(error)) / self._norm)


def sample(m: int, most: int, device: Any) -> Tensor:
    """Return at most ``most`` row numbers out of m, the first and the last among them."""
    if m <= most:
        return torch.arange(m, device=device)
    generator = torch.Generator().manual_seed(0)
    between = 1 + torch.randperm(m - 2, generator=generator)[: most - 2]
    return torch.cat([torch.tensor([0, m - 1]), between]).to(device)


def _slice_bits(k: int) -> int:
    """Return the bits a slice, so that k products of such numbers add without rounding."""
    return (_MANTISSA - math.ceil(math.log2(max(k, 2)))) // 2


def _slices(x: Tensor, dim: int, bits: int, count: int) -> list[Tensor]:
    """Return matrices of ``bits`` bits each that add up to ``x``, but for a rest below them all.

    Elements of one slice are multiples of one power of two in each row (``dim`` 1) or column.
    """
    found, rest = [], x
    for _ in range(count):
        largest = rest.abs().amax(dim, keepdim=True)
        _, exponent = torch.frexp(largest)  # largest < 2**exponent
        # A number added to this is rounded to a multiple of 2**(exponent + 1 - bits).
        shift = torch.ldexp(torch.ones_like(largest), exponent + _MANTISSA - bits)
        top = (rest + shift) - shift
        found.append(top)
        rest = rest - top
    return found
