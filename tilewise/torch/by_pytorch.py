"""Compute products with an epilogue by PyTorch's own functions, which its transformations know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewise.arrays import fusion, own_product
from tilewise.arrays.call import dtypes
from tilewise.arrays.fusion import APART, Asked
from tilewise.arrays.libraries import library_of
from tilewise.gemm.product import ACCUMULATORS
from tilewise.shown import plural
from tilewise.torch.autocast import cast, is_under_autocast

Tensor = Any


def by_pytorch(
    a: Tensor,
    b: Any,
    c: Tensor | None,
    asked: Asked,
    sums: Callable[..., Tensor],
    dtype: Any,
) -> Any:
    """Apply an epilogue to unrounded sums by PyTorch's functions, which have gradients."""
    of_b: Sequence[Tensor] = b if asked.pairs == APART else (b,)
    if len(of_b) == 2 and of_b[0].shape != of_b[1].shape:
        raise ValueError(f"b[0] has shape {tuple(of_b[0].shape)} and b[1] {tuple(of_b[1].shape)}")
    if asked.pairs is not None and c is not None:
        raise ValueError("a product with pairs takes no C; pass it as an operand of the epilogue")
    library = library_of(a)
    assert library is not None
    if is_under_autocast(a):
        a, b, c = cast(a, b, c, dtype)
        of_b = b if asked.pairs == APART else (b,)
    _, name = dtypes(library, a, of_b[-1], c, (), dtype)
    kind, wide = getattr(torch, name), ACCUMULATORS[name]
    found = fusion.fusion(library, asked, None, wide)
    assert found is not None
    c = None if c is None else c.to(getattr(torch, wide))
    of_each = [sums(a, x, c, out_dtype=wide) for x in of_b]
    acc, shape = of_each[0], of_each[0].shape
    if asked.pairs is not None:
        acc = tuple(of_each) if len(of_b) == 2 else _parted(acc, asked.pairs)
        shape = acc[0].shape
    for name, x in found.arrays:
        fusion.check_shape(name, x, tuple(shape))
        if x.device != a.device:
            raise ValueError(f"a is on {a.device} and {name} on {x.device}; pass them in one place")
    results = [x.expand(shape).to(kind) for x in found.evaluated(library, acc, wide)]
    return tuple(results) if asked.function.is_tuple else results[0]


def _parted(sums: Tensor, order: str) -> tuple[Tensor, Tensor]:
    """Return the columns of gate, and those of up, of a tensor that has both."""
    columns = sums.shape[-1] if sums.ndim else 1
    if columns % 2:
        raise ValueError(f"op(B) has {plural(columns, 'column')}, which can't be pairs")
    return own_product.parted(sums, order, columns // 2)
