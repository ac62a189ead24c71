"""Compute products by PyTorch's own functions, for tensors that have no memory to launch with."""

from __future__ import annotations

from typing import Any

import torch

from tilewise.arrays.call import dtypes, shapes
from tilewise.arrays.libraries import dtype_name, library_of
from tilewise.gemm.product import ACCUMULATORS

Tensor = Any
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
"""The types of tensors that do not override PyTorch's functions (``__torch_function__``)."""


def is_batched(g: Tensor) -> bool:
    """Return whether a gradient stands for several that are computed at once.

    ``torch.autograd.grad(..., is_grads_batched=True)`` makes such gradients, and so do functions of
    ``torch.autograd.functional`` with ``vectorize=True``. They have no address. The ``vmap`` that
    makes them is older than that of ``torch.func``, and :func:`tilewise.arrays.dispatched.route`
    does not see it.
    """
    return not torch.compiler.is_compiling() and bool(is_legacy_batched(g))


is_legacy_batched = torch._C._functorch.is_legacy_batchedtensor
"""Return what :func:`is_batched` returns; PyTorch can't compile a call of it."""


def is_in_memory(x: Tensor) -> bool:
    """Return whether a tensor's memory holds its values, so that a kernel may read them."""
    return type(x) in PLAIN and not x.is_neg() and not is_batched(x)


def pytorch_matmul(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: Any = None,
) -> Tensor:
    """Compute the product by PyTorch's own products, summed and rounded as the kernels do it."""
    _, dtype = result_of(a, b, c, beta, out_dtype)
    sums = getattr(torch, ACCUMULATORS[dtype_name(a.dtype)])
    value = a.to(sums) @ b.to(sums)
    if alpha != 1:
        value = value * alpha if alpha else torch.zeros_like(value)
    if c is not None and beta:
        value = value + c.to(sums) * beta
    return value.to(getattr(torch, dtype))


def result_of(
    a: Tensor, b: Tensor, c: Tensor | None, beta: float, out_dtype: Any
) -> tuple[tuple[int, ...], str]:
    """Return a product's shape and dtype's name; raise the errors of :func:`tilewise.matmul`."""
    library = library_of(a)
    assert library is not None
    given = [("a", a), ("b", b), *([] if c is None else [("c", c)])]
    if any(x.device != a.device for _, x in given):
        where = ", ".join(f"{what} on {x.device}" for what, x in given)
        raise ValueError(f"the arrays must lie in one place, not {where}")
    _, dtype = dtypes(library, a, b, c, (), out_dtype)
    shape = shapes(a.shape, b.shape, False, False)[-1]
    if c is not None and tuple(c.shape) != shape:
        raise ValueError(f"c has shape {tuple(c.shape)}; the result has {shape}")
    if beta != 0 and c is None:
        raise ValueError(f"beta is {beta}, and there is no C to multiply; give c, or beta 0")
    return shape, dtype
