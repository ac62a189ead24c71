"""The gradients of D = alpha A B + beta C, which are products themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tilewise.arrays.call import broadcast
from tilewise.gemm.product import ACCUMULATORS
from tilewise.torch.aligned import aligned
from tilewise.torch.transformed import is_batched, pytorch_matmul

Tensor = Any
Again = Callable[..., Tensor]
"""A product that autograd can record, called as ``again(x, y, alpha=..., out_dtype=...)``."""


class Sides(NamedTuple):
    """The facts of A and B that their gradients need beside the values; pairs are of A and B.

    Attributes
    ----------
    shapes : (tuple of int, tuple of int)
    dtype : torch.dtype
        The dtype of A and B.
    transposes : (bool, bool)
        Whether the product transposes A, and B.
    by_columns : (bool, bool)
        Whether A, and B, is column-major.
    alpha : float
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: Any
    transposes: tuple[bool, bool]
    by_columns: tuple[bool, bool]
    alpha: float

    @staticmethod
    def of(a: Tensor, b: Tensor, alpha: float, transpose_a: bool, transpose_b: bool) -> Sides:
        """Return the sides of a product of two operands. A vector is not transposed."""
        return Sides(
            (a.shape, b.shape), a.dtype, (transpose_a and a.ndim > 1, transpose_b and b.ndim > 1),
            (is_by_columns(a), is_by_columns(b)), alpha,
        )  # fmt: skip

    def aligned(self, g: Tensor) -> Tensor:
        """Return the gradient of D for both :meth:`of_a` and :meth:`of_b` to read."""
        a_shape, b_shape = self.shapes
        if len(a_shape) < 2 or len(b_shape) != 2 or g.dtype != self.dtype:
            return g
        return aligned(g, a_shape[-2 if self.transposes[0] else -1])

    def of_a(self, g: Tensor, b: Tensor, again: Again, onto: Tensor | None = None) -> Tensor:
        """Return the gradient of A: alpha G op(B)^T, plus ``onto``, that of A's other product."""
        transpose_a, transpose_b = self.transposes
        y = b.unsqueeze(-1) if len(self.shapes[1]) == 1 else b
        y = y if transpose_b else y.mT
        return self._product(self._whole(g), y, 0, transpose_a, again, onto)

    def of_b(self, g: Tensor, a: Tensor, again: Again) -> Tensor:
        """Return the gradient of B: alpha op(A)^T G."""
        transpose_a, transpose_b = self.transposes
        g = self._whole(g)
        x = a.unsqueeze(0) if len(self.shapes[0]) == 1 else a
        x = x.mT if transpose_a else x
        # If all matrices A share one B, its gradient is one product of A and G with their batches
        # flattened into rows. Batched gradients can't be flattened: a product for each A is summed.
        if len(self.shapes[1]) <= 2 < x.ndim and not is_batched(g):
            x, g = x.flatten(0, -2), g.flatten(0, -2)
        return self._product(x.mT, g, 1, transpose_b, again)

    def _whole(self, g: Tensor) -> Tensor:
        """Return the gradient of D in the operands' dtype, as a matrix even for vectors A or B."""
        # D may be float32 for 16-bit A and B, whose gradients have 16 bits, too.
        g = g if g.dtype == self.dtype else g.to(self.dtype)
        g = g.unsqueeze(-1) if len(self.shapes[1]) == 1 else g
        return g.unsqueeze(-2) if len(self.shapes[0]) == 1 else g

    def _product(
        self, x: Tensor, y: Tensor, side: int, is_transposed: bool, again: Again,
        onto: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return alpha X Y + ``onto``, the gradient of an operand or its transpose, in its shape.

        The gradient is summed over the dimensions along which the operand was broadcast. It is
        column-major if the operand is, because autograd copies a parameter's gradient that has
        other strides.
        """
        shape, by_columns = self.shapes[side], self.by_columns[side]
        if by_columns != is_transposed:
            x, y = y.mT, x.mT
        batch = tuple(shape[:-2])
        if broadcast(tuple(x.shape[:-2]), tuple(y.shape[:-2])) == batch:
            if onto is None:
                found = again(x, y, alpha=self.alpha)
            else:
                c = onto.mT if by_columns else onto.reshape(*batch, x.shape[-2], y.shape[-1])
                found = again(x, y, c, alpha=self.alpha, beta=1.0)
        else:  # 16-bit products are summed before they are rounded
            sums = getattr(torch, ACCUMULATORS[str(self.dtype).removeprefix("torch.")])
            parts = again(x, y, alpha=self.alpha, out_dtype=sums)
            found = parts.sum_to_size(*batch, *parts.shape[-2:])
            if onto is not None:
                found = found + (onto.mT if by_columns else onto.reshape(found.shape))
            found = found.to(self.dtype)
        if by_columns:
            return found.mT
        return found if found.ndim == len(shape) else found.reshape(shape)


class Matmul(torch.autograd.Function):  # type: ignore[misc]
    """A product that autograd records.

    If G is the gradient of D, then that of A is alpha G op(B)^T, that of B is alpha op(A)^T G, both
    from transposed views without copies, and that of C is beta G. For second derivatives autograd
    records these products in turn.
    """

    @staticmethod
    def forward(
        ctx: Any,  # no separate setup_context, for which PyTorch takes 15 µs a call
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        alpha: float,
        beta: float,
        transpose_a: bool,
        transpose_b: bool,
        answer: Callable[[], Tensor],
        again: Again,
    ) -> Tensor:
        """Compute D by ``answer``; the gradients use ``again``, which autograd can record."""
        result = answer()  # first, because it raises the error if an input is wrong
        needs_a, needs_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if needs_b else None, b if needs_a else None)
        ctx.sides = Sides.of(a, b, alpha, transpose_a, transpose_b)
        ctx.beta, ctx.again = beta, again
        return result

    @staticmethod
    def backward(ctx: Any, of_d: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of A, B and C; None for those that are not needed."""
        a, b = ctx.saved_tensors
        needs_a, needs_b, needs_c = ctx.needs_input_grad[:3]
        again = pytorch_matmul if is_batched(of_d) else ctx.again
        g = ctx.sides.aligned(of_d) if needs_a and needs_b else of_d
        of_a = ctx.sides.of_a(g, b, again) if needs_a else None
        of_b = ctx.sides.of_b(g, a, again) if needs_b else None
        of_c = None
        if needs_c:
            of_c = of_d if ctx.beta == 1 else of_d * ctx.beta
        return of_a, of_b, of_c, None, None, None, None, None, None


def empty_gradient(x: Tensor, weight: Tensor) -> Tensor:
    """Return a weight's gradient without values, like ``x``; column-major if the weight is."""
    n, k = weight.shape
    return x.new_empty((k, n)).mT if is_by_columns(weight) else x.new_empty((n, k))


def is_by_columns(x: Tensor) -> bool:
    """Return whether a tensor's matrices are column-major."""
    return bool(x.ndim > 1 and x.stride(-2) == 1 and x.stride(-1) != 1)
