"""Products with an epilogue that autograd records, in eager mode and as an operator.

The forward pass is one product, which stores its results and the other values that the derivative
of the epilogue needs (:mod:`tilewise.epilogue.derivative`). The backward pass computes the
gradients of the sums and of the operands in one pass over the elements. The gradients of A and B
are products with the gradients of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tilewise.arrays.fusion import APART, Asked
from tilewise.epilogue import Traced
from tilewise.epilogue.derivative import Backward, Trained, trained
from tilewise.gemm.product import ACCUMULATORS
from tilewise.torch.column_sums import column_sums
from tilewise.torch.gradient import Again, Sides
from tilewise.torch.pointwise import pointwise, some_of
from tilewise.torch.transformed import is_batched, pytorch_matmul

Tensor = Any
Answer = Callable[[Asked], Any]
"""A function that computes the product, with an epilogue that returns a tuple."""


class Fusing(NamedTuple):
    """The arguments, other than tensors, of a product with an epilogue.

    Attributes
    ----------
    function : Traced
    pairs : str or None
        The layout of pairs, as in :class:`tilewise.arrays.fusion.Asked`.
    numbers : tuple of (float or None)
        The epilogue's operands in its order; None stands for an operand that is a tensor.
    has_c : bool
    alpha, beta : float
    transpose_a, transpose_b : bool
    """

    function: Traced
    pairs: str | None
    numbers: tuple[float | None, ...]
    has_c: bool
    alpha: float
    beta: float
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def matrices(self) -> int:
        """The number of tensors B."""
        return 2 if self.pairs == APART else 1

    def split(self, tensors: Sequence[Any]) -> tuple[Any, tuple[Any, ...], Any, tuple[Any, ...]]:
        """Split values, one for each tensor, into those of A, of each B, of C, and of the operands.

        The values of the operands include those that are numbers.
        """
        a, *rest = tensors
        b, rest = tuple(rest[: self.matrices]), rest[self.matrices :]
        c = rest.pop(0) if self.has_c else None
        return a, b, c, tuple(rest.pop(0) if x is None else x for x in self.numbers)

    def wanted(self, needs: Sequence[bool]) -> tuple[int, ...]:
        """Return which derivatives of the function are needed, as in :class:`Trained`.

        ``needs`` has for each tensor whether it needs a gradient.
        """
        of_a, of_b, of_c, of_operands = self.split(needs)
        sums = len(self.function.sums)
        found = [i for i in range(sums) if of_a or any(of_b) or of_c]
        return (*found, *(sums + i for i, x in enumerate(of_operands) if x is True))


class Fused(torch.autograd.Function):  # type: ignore[misc]
    """A product with an epilogue. It returns the results and the other values that it stored."""

    @staticmethod
    def forward(
        ctx: Any,
        asked: Fusing,
        wanted: tuple[int, ...],
        answer: Answer,
        again: Again,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Compute the results by ``answer``; the backward pass multiplies by ``again``.

        ``wanted`` holds the derivatives of the function that gradients may need.
        """
        needs = ctx.needs_input_grad[_BEFORE:]
        made = trained(asked.function, wanted)
        a, b, _, operands = asked.split(tensors)
        results = tuple(answer(Asked(made.forward, operands, asked.pairs)))
        needs_a, needs_b, _, _ = asked.split(needs)
        read = _operands_read(made)
        ctx.save_for_backward(
            a if any(needs_b) else None,
            *(x if needs_a else None for x in b),
            *(x if i in read and isinstance(x, torch.Tensor) else None
              for i, x in enumerate(operands)),
            *(results[i] for i in made.stored),
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.asked, ctx.made, ctx.again, ctx.dtype = asked, made, again, results[0].dtype
        ctx.sides = [Sides.of(a, x, asked.alpha, asked.transpose_a, asked.transpose_b) for x in b]
        ctx.of_operands = [
            (x.shape, x.dtype) if isinstance(x, torch.Tensor) else None for x in operands
        ]
        return results

    @staticmethod
    def backward(ctx: Any, *of_results: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tensors that need one; None for the others."""
        asked, made = ctx.asked, ctx.made
        needs = ctx.needs_input_grad[_BEFORE:]
        given = tuple(i for i, g in enumerate(of_results) if g is not None)
        if not given:
            return (None,) * len(ctx.needs_input_grad)
        needs_a, needs_b, needs_c, needs_operands = asked.split(needs)
        saved = list(ctx.saved_tensors)
        a, b = saved[0], saved[1 : 1 + asked.matrices]
        count = len(asked.numbers)
        kept = saved[1 + asked.matrices :]
        values = {
            "gradient": dict(enumerate(of_results)),
            "operand": dict(enumerate(x if n is None else n for x, n in
                                      zip(kept[:count], asked.numbers, strict=True))),
            "result": dict(zip(made.stored, kept[count:], strict=True)),
        }  # fmt: skip
        wanted = asked.wanted(needs)
        found = made.backward(given, wanted)
        sums = sum(i < len(asked.function.sums) for i in wanted)
        first = of_results[given[0]]
        again = pytorch_matmul if any(is_batched(of_results[i]) for i in given) else ctx.again
        operands = [values[kind][i] for kind, i in found.operands]
        of_operands = [ctx.of_operands[i - len(asked.function.sums)] for i in wanted[sums:]]
        parts = gradients(found, first, operands, sums, ctx.sides[0].dtype, of_operands)
        of_sums, each = parts[:sums], iter(parts[sums:])
        of_a, of_b = _of_matrices(asked, ctx.sides, of_sums, a, b, needs_a, needs_b, again)
        of_c = None
        if needs_c:
            of_c = of_sums[0].to(ctx.dtype)
            of_c = of_c if asked.beta == 1 else of_c * asked.beta
        every = [of_a, *of_b, *([of_c] if asked.has_c else [])]
        every += [
            next(each) if need else None
            for need, x in zip(needs_operands, asked.numbers, strict=True)
            if x is None
        ]
        return (*(None,) * _BEFORE, *every)


_BEFORE = 4  # arguments of Fused.forward before the tensors


def _operands_read(made: Trained) -> set[int]:
    """Return the indices of the operands that the backward pass may read."""
    every = made.backward(tuple(range(len(made.forward.results))))
    return {i for kind, i in every.operands if kind == "operand"}


def gradients(
    found: Backward,
    first: Tensor,
    operands: Sequence[Tensor | float],
    sums: int,
    dtype: Any,
    of_operands: Sequence[tuple[tuple[int, ...], Any]],
) -> list[Tensor]:
    """Return the gradients of a function's sums and operands.

    Parameters
    ----------
    found : Backward
    first : Tensor
        The gradient of the first result that has one.
    operands : sequence of Tensor or float
        The operands of ``found.function``.
    sums : int
        The number of gradients of sums, which come first.
    dtype : torch.dtype
        The dtype of the gradients of sums.
    of_operands : sequence of (tuple of int, torch.dtype)
        The shapes and dtypes of the operands; a gradient is summed over the dimensions along which
        its operand was broadcast.

    Notes
    -----
    The gradient of a bias, for one, is the gradient of a sum. It is then computed from the same
    tensor, which was rounded to ``dtype``, as in PyTorch.
    """
    values = found.function.values
    wide = getattr(torch, ACCUMULATORS[str(first.dtype).removeprefix("torch.")])
    kinds: list[tuple[int, Any]] = []
    at: list[int] = []
    made: dict[tuple[str, Any], int] = {}
    for i, value in enumerate(values):
        kind = dtype
        if i >= sums:
            shape, own = of_operands[i - sums]
            kind = own if tuple(shape) == tuple(first.shape) else wide
        if (value, dtype) in made:
            at.append(made[value, dtype])
            continue
        at.append(made.setdefault((value, kind), len(kinds)))
        if at[-1] == len(kinds):
            kinds.append((i, kind))
    results = pointwise(
        some_of(found.function, tuple(i for i, _ in kinds)), first, operands, [x for _, x in kinds]
    )
    each = [results[i] for i in at]
    for i, (shape, own) in enumerate(of_operands, start=sums):
        each[i] = reduced(each[i], shape, own)
    return each


def reduced(x: Tensor, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return an operand's gradient: ``x`` summed along what the operand was broadcast along."""
    if x.ndim > 1 and tuple(shape) == x.shape[-1:]:
        return column_sums(x, dtype)
    lead = x.ndim - len(shape)
    dims = [*range(lead)]
    dims += [lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1]
    if dims:
        wide = getattr(torch, ACCUMULATORS[str(x.dtype).removeprefix("torch.")])
        x = x.sum(dims, dtype=wide)
    return x.reshape(shape).to(dtype)


def _of_matrices(
    asked: Fusing,
    sides: Sequence[Sides],
    of_sums: Sequence[Tensor],
    a: Tensor,
    b: Sequence[Tensor],
    needs_a: bool,
    needs_b: Sequence[bool],
    again: Again,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Return the gradients of A and of each B from those of the sums; None if not needed."""
    of_b: list[Tensor | None] = [None] * asked.matrices
    if not needs_a and not any(needs_b):
        return None, of_b
    if asked.pairs is not None and asked.matrices == 1:
        of_sums = [_joined(of_sums, asked.pairs)]
    of_a = None
    for i, (side, g) in enumerate(zip(sides, of_sums, strict=True)):
        if needs_a and needs_b[i]:
            g = side.aligned(g)
        if needs_a:
            of_a = side.of_a(g, b[i], again, of_a)
        if needs_b[i]:
            of_b[i] = side.of_b(g, a, again)
    return of_a, of_b


def _joined(of_each: Sequence[Tensor], order: str) -> Tensor:
    """Return the columns of gate and of up in one tensor, in the order in which B has them."""
    if order == "halves":
        return torch.cat(tuple(of_each), -1)
    *lead, n = of_each[0].shape
    return torch.stack(tuple(of_each), -1).reshape(*lead, 2 * n)
