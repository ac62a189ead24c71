"""Draw matrices for ``matmul``, and assert that its products are within their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.gemm.product import ACCUMULATORS
from tilewise.roundoff import gamma, roundings

Array = npt.NDArray[Any]
UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def normal(*shape: int, dtype: npt.DTypeLike = "float32", seed: int = 0) -> Array:
    """Return random normal numbers, the same ones for the same shape and seed."""
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(drawn).astype(dtype)


def assert_right(
    result: Any,
    a: Any,
    b: Any,
    dtype: str,
    alpha: float = 1,
    beta: float = 0,
    c: Any = 0,
    out_dtype: str = "",
) -> None:
    """Assert Higham's bound (:mod:`tilewise.numbers`), with one rounding to the result's dtype.

    ``out_dtype`` names that dtype if ``result`` was converted to a wider one.
    """
    x, y, old, got = (np.asarray(v).astype(np.float64) for v in (a, b, c, result))
    sums, out_dtype = ACCUMULATORS[dtype], out_dtype or result.dtype.name
    value, size = alpha * (x @ y) + beta * old, abs(alpha) * (abs(x) @ abs(y)) + abs(beta * old)
    n = roundings(x.shape[-1], alpha, beta)
    bound = (gamma(n, sums) + gamma(n + 2, np.float64)) * size
    if out_dtype != sums:
        bound = bound + UNIT_ROUNDOFF[out_dtype] * (abs(value) + bound)
        bound = bound + (2.0**-25 if out_dtype == "float16" else 0)  # half its last subnormal
    bound = bound + (n + 2) * float(np.finfo(np.dtype(sums)).smallest_subnormal)
    assert got.shape == value.shape
    assert (abs(got - value) <= bound).all()


def assert_tensors_right(
    result: Any, a: Any, b: Any, alpha: float = 1, beta: float = 0, c: Any | None = None
) -> None:
    """Assert the same bound of PyTorch's tensors, some of whose dtypes NumPy may not have."""
    x, y, got = (v.double().cpu().numpy() for v in (a, b, result))
    old = 0 if c is None else c.double().cpu().numpy()
    dtype, out_dtype = (str(v.dtype).removeprefix("torch.") for v in (a, result))
    assert_right(got, x, y, dtype, alpha, beta, old, out_dtype)
