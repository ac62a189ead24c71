"""A product on the GPU: its matrices, the two that compute it, and whether it is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilewise.bench.exact import Exact, sample
from tilewise.bench.suites import Shape, View
from tilewise.matmul import matmul
from tilewise.roundoff import gamma, roundings

UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
# Half the last subnormal; float32's, and bfloat16's, are those of the sums.
UNDERFLOW = {"float16": 2.0**-25, "bfloat16": 0.0, "float32": 0.0}

_CHECKED_FLOPS = 1e12  # operations in float64; a larger product is checked on random rows
_LEAST_ROWS = 256
_PANEL = 8192  # columns that are checked together

Tensor = Any


@dataclass(frozen=True)
class Operands:
    """The matrices of one product; ``d`` is what both write to."""

    a: Tensor
    b: Tensor
    d: Tensor

    def ours(self) -> None:
        matmul(self.a, self.b, out=self.d)

    def torch(self) -> None:
        # Only mm writes float32 for 16-bit inputs.
        if self.d.dtype == self.a.dtype:
            torch.matmul(self.a, self.b, out=self.d)
        else:
            torch.mm(self.a, self.b, out_dtype=self.d.dtype, out=self.d)


def operands(shape: Shape, dtype: str, generator: Any) -> Operands:
    """Return new matrices of random normal numbers, where ``generator`` is.

    Gaps and the elements ahead of an offset are random too; D is NaN.
    """

    def filled(view: View, kind: Any) -> Tensor:
        flat = torch.empty(view.elements, dtype=kind, device=generator.device)
        return flat.normal_(generator=generator).as_strided(view.shape, view.strides, view.offset)

    of_a, of_b, of_d = shape.views()
    kind = getattr(torch, dtype)
    a, b = filled(of_a, kind), filled(of_b, kind)
    d = filled(of_d, torch.float32 if shape.is_wide else kind)
    return Operands(a, b, d.fill_(math.nan))


def differences(found: Tensor, right: Tensor) -> str:
    """Return in words which elements of two results of one shape differ; ``""`` if none does."""
    differ = found != right
    places = differ.nonzero()
    if not len(places):
        return ""
    ends = zip(places.amin(0).tolist(), places.amax(0).tolist(), strict=True)
    spans = ", ".join(f"{first} to {last}" for first, last in ends)
    largest = float((found - right).abs()[differ].max())
    return f"{len(places)} elements, at {spans}, by {largest:.3g} at most"


def error_share(a: Tensor, b: Tensor, d: Tensor) -> float:
    """Return the largest error of D, as a share of what a correct kernel may make there.

    Parameters
    ----------
    a, b, d : torch.Tensor, (..., m, k), (..., k, n) and (..., m, n)
        A and B of 16 bits or float32, which are summed in float32, or of float64. With three
        dimensions in D, A or B may have two: the same matrix for all.

    Returns
    -------
    float
        At most 1 where D is right; infinity where an element of D is NaN or infinite.

    Notes
    -----
    The bound is that of :mod:`tilewise.numbers` with k roundings in float32, and one rounding to
    D's dtype. The reference and \\|A\\|\\|B\\| are computed in float64, of all rows, or where that
    takes long of a random sample with the first and the last; each element must be finite. Of
    float64, A and B are compared with the product in more precision: :class:`Exact`.
    """
    if not bool(torch.isfinite(d).all()):
        return math.inf
    *batch, m, n = d.shape
    k = a.shape[-1]
    if not d.numel():
        return 0.0
    batches = math.prod(batch)
    a, b = a.expand(batches, -1, -1), b.expand(batches, -1, -1)
    each = list(zip(a, b, d.reshape(batches, m, n), strict=True))
    if d.dtype == torch.float64:
        return max(Exact(left, right).distance(found).share for left, right, found in each)
    rows = sample(m, max(_LEAST_ROWS, int(_CHECKED_FLOPS / (4 * batches * n * k))), d.device)
    operations = roundings(k, 1, 0)
    of_sums = gamma(operations, "float32") + gamma(operations + 2, "float64")
    out = str(d.dtype).removeprefix("torch.")
    underflow = (operations + 2) * float(np.finfo(np.float32).smallest_subnormal) + UNDERFLOW[out]
    largest = torch.zeros((), dtype=torch.float64, device=d.device)
    for left, right, found in each:
        x = left[rows].double()
        for start in range(0, n, _PANEL):
            y = right[:, start : start + _PANEL].double()
            value = x @ y
            limit = of_sums * (x.abs() @ y.abs())
            if out != "float32":
                limit += UNIT_ROUNDOFF[out] * (value.abs() + limit)
            value -= found[rows, start : start + _PANEL]
            largest = torch.maximum(largest, (value.abs() / (limit + underflow)).max())
    return float(largest)
