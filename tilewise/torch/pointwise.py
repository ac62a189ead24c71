"""A traced function of tensors, element by element: the derivative of an epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewise.arrays.libraries import dtype_name
from tilewise.epilogue import Traced
from tilewise.gemm.product import ACCUMULATORS

Tensor = Any


def pointwise(
    function: Traced, acc: Tensor, operands: Sequence[Tensor | float], dtypes: Sequence[Any]
) -> list[Tensor]:
    """Return a function's results, computed in float32, or in float64 where ``acc`` is that.

    Parameters
    ----------
    function : Traced
        Of one sum.
    acc : Tensor
        What stands for the sum; the results have its shape.
    operands : sequence of Tensor or float
        In the function's order; tensors broadcast to ``acc``.
    dtypes : sequence of torch.dtype
        Of the results.
    """
    results: list[Tensor] = []
    wide = getattr(torch, ACCUMULATORS[dtype_name(acc.dtype)])
    given = [x if isinstance(x, float) else x.to(wide) for x in operands]
    found = function.evaluate(acc.to(wide), given)
    for value, x, dtype in zip(found, function.values, dtypes, strict=True):
        # The sum itself is not copied to another dtype and back.
        results.append((acc if x == "acc" else value.expand(acc.shape)).to(dtype))
    return results
