"""The gradients of D = alpha A B + beta C, which are products too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewise.arrays.call import broadcast
from tilewise.gemm.product import ACCUMULATORS

Tensor = Any


class Product(torch.autograd.Function):  # type: ignore[misc]
    """A product that autograd records.

    With G the gradient of D, that of A is alpha G op(B), that of B alpha op(A) G, by transposed
    views and no copies, and that of C is beta G. Autograd records these products in turn where a
    gradient of the gradient is asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,  # not set up apart, for which PyTorch takes 15 µs a call
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        alpha: float,
        beta: float,
        transpose_a: bool,
        transpose_b: bool,
        answer: Callable[[], Tensor],
        again: Callable[..., Tensor],
    ) -> Tensor:
        """D by ``answer``; the gradients by ``again``, which autograd can record."""
        result = answer()  # first, for it says what is wrong with an input
        needs_a, needs_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        ctx.shapes, ctx.dtype = (a.shape, b.shape), a.dtype
        ctx.transposes = transpose_a and a.ndim > 1, transpose_b and b.ndim > 1
        ctx.by_columns = _is_by_columns(a), _is_by_columns(b)
        ctx.alpha, ctx.beta, ctx.again = alpha, beta, again
        return result

    @staticmethod
    def backward(ctx: Any, of_d: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of A, B and C, as far as they are asked for."""
        a, b = ctx.saved_tensors
        shape_a, shape_b = ctx.shapes
        transpose_a, transpose_b = ctx.transposes
        needs_a, needs_b, needs_c = ctx.needs_input_grad[:3]
        of_a = of_b = of_c = None
        if needs_c:
            of_c = of_d if ctx.beta == 1 else of_d * ctx.beta
        # A float32 result of 16-bit matrices: their gradients have 16 bits all the same.
        g = of_d if of_d.dtype == ctx.dtype else of_d.to(ctx.dtype)
        if len(shape_b) == 1:
            g = g.unsqueeze(-1)
        if len(shape_a) == 1:
            g = g.unsqueeze(-2)
        if needs_a:
            y = b.unsqueeze(-1) if len(shape_b) == 1 else b
            y = y if transpose_b else y.mT
            of_a = _product(ctx, g, y, shape_a, ctx.by_columns[0], transpose_a)
        if needs_b:
            x = a.unsqueeze(0) if len(shape_a) == 1 else a
            x = x.mT if transpose_a else x
            if len(shape_b) <= 2 < x.ndim:  # one B for all: matrices A below one another
                x, g = x.flatten(0, -2), g.flatten(0, -2)
            of_b = _product(ctx, x.mT, g, shape_b, ctx.by_columns[1], transpose_b)
        return of_a, of_b, of_c, None, None, None, None, None, None


def _is_by_columns(x: Tensor) -> bool:
    return bool(x.ndim > 1 and x.stride(-2) == 1 and x.stride(-1) != 1)


def _product(
    ctx: Any, x: Tensor, y: Tensor, shape: tuple[int, ...], by_columns: bool, is_transposed: bool
) -> Tensor:
    """alpha X Y, the gradient of an operand, or of its transpose, in the operand's shape.

    It is summed over what the operand was broadcast to, and lies as the operand does: autograd
    copies a parameter's gradient that does not.
    """
    if by_columns != is_transposed:
        x, y = y.mT, x.mT
    batch = tuple(shape[:-2])
    if broadcast(tuple(x.shape[:-2]), tuple(y.shape[:-2])) == batch:
        found = ctx.again(x, y, alpha=ctx.alpha)
    else:  # products of 16 bits are summed before they are rounded
        sums = getattr(torch, ACCUMULATORS[str(ctx.dtype).removeprefix("torch.")])
        parts = ctx.again(x, y, alpha=ctx.alpha, out_dtype=sums)
        found = parts.sum_to_size(*batch, *parts.shape[-2:]).to(ctx.dtype)
    if by_columns:
        return found.mT
    return found if found.ndim == len(shape) else found.reshape(shape)
