"""Multilayer perceptrons in training, with an activation or a gated unit.

The forward pass is two products, and the activation is the epilogue of the first. In the backward
pass, the product that computes the gradient of the hidden values has the derivative of the
activation as its epilogue, so its result is the gradient of the first product's sums. For a gated
unit, one launch computes the gradients of both sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tilewise.arrays.fusion import APART, Asked
from tilewise.epilogue import Epilogue, Traced
from tilewise.epilogue.derivative import Trained, trained
from tilewise.torch.fused import gradients, reduced
from tilewise.torch.gradient import Sides

Tensor = Any
Answer = Callable[..., Any]
_BIASED = Epilogue(lambda acc, bias: acc + bias).traced


class Layers(NamedTuple):
    """The tensors of an MLP.

    Attributes
    ----------
    x : Tensor, (..., k)
    weights : tuple of Tensor, (h, k)
        One weight, or for a gated unit two, of gate and of up.
    biases : tuple of Tensor, (h,)
        As many biases as weights, or none.
    down : Tensor, (n, h)
    down_bias : Tensor or None, (n,)
    """

    x: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    down: Tensor
    down_bias: Tensor | None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of the attributes."""
        last = () if self.down_bias is None else (self.down_bias,)
        return (self.x, *self.weights, *self.biases, self.down, *last)

    def like(self, values: Sequence[Any]) -> Layers:
        """Return values, one for each of `tensors`, in the places of the tensors."""
        to_biases = 1 + len(self.weights)
        to_down = to_biases + len(self.biases)
        last = None if self.down_bias is None else values[to_down + 1]
        return Layers(
            values[0], tuple(values[1:to_biases]), tuple(values[to_biases:to_down]),
            values[to_down], last,
        )  # fmt: skip


class Products(NamedTuple):
    """The products of a backward pass, which autograd can record.

    Attributes
    ----------
    matmul : callable
        A function called as ``matmul(x, y, c, alpha=..., beta=..., out_dtype=...)``.
    fused : callable
        A function: ``fused(a, b, c, asked)`` is A B + C with an epilogue that returns a tuple.
    """

    matmul: Callable[..., Tensor]
    fused: Callable[..., tuple[Tensor, ...]]


def wanted_of(layers: Layers, needs: Sequence[bool]) -> tuple[int, ...]:
    """Return which of the first product's sums need gradients: all, or none.

    ``needs`` has for each tensor whether it needs a gradient.
    """
    of = layers.like(needs)
    is_wanted = of.x or any(of.weights) or any(of.biases)
    return tuple(range(len(layers.weights))) if is_wanted else ()


def forward(layers: Layers, made: Trained, by: Answer) -> list[Tensor]:
    """Return the result, the hidden values, and the other values for the backward pass."""
    x, weights, biases, down, down_bias = layers
    is_gated = len(weights) == 2
    b = weights if is_gated else weights[0]
    asked = Asked(made.forward, biases, APART if is_gated else None)
    hidden = by(x, b, transpose_b=True, asked=asked)
    last = None if down_bias is None else Asked(_BIASED, (down_bias,))
    return [by(hidden[0], down, transpose_b=True, asked=last), *hidden]


class Mlp(torch.autograd.Function):  # type: ignore[misc]
    """An MLP that autograd records. It returns the result, hidden values and stored values.

    Hidden values and stored values are results, so that second derivatives reach them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        function: Traced,
        wanted: tuple[int, ...],
        layers: Layers,
        below: Callable[[], Sequence[Tensor]],
        products: Products,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Compute all results by ``below``; the backward pass multiplies by ``products``."""
        made = trained(function, wanted)
        results = tuple(below())
        needs = layers.like(ctx.needs_input_grad[_BEFORE:])
        x, weights, biases, down, down_bias = layers.like(tensors)
        hidden = results[1:]
        ctx.save_for_backward(
            x if any(needs.weights) else None, *(w if needs.x else None for w in weights),
            down if wanted else None, hidden[0] if needs.down else None,
            *(hidden[i] for i in made.stored),
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.made, ctx.products = made, products
        # The backward pass needs only the shapes and dtypes of the biases.
        ctx.layers = Layers(
            None, (None,) * len(weights), tuple((x.shape, x.dtype) for x in biases), None,
            None if down_bias is None else (down_bias.shape, down_bias.dtype),
        )  # fmt: skip
        ctx.first = [Sides.of(x, w, 1.0, False, True) for w in weights]
        ctx.last = Sides.of(hidden[0], down, 1.0, False, True)
        return results

    @staticmethod
    def backward(
        ctx: Any, of_y: Tensor | None, *of_hidden: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tensors that need one; None for the others."""
        needs = ctx.layers.like(ctx.needs_input_grad[_BEFORE:])
        count, again = len(ctx.first), ctx.products.matmul
        x, *rest = ctx.saved_tensors
        weights, (down, hidden, *stored) = rest[:count], rest[count:]
        of_down = of_down_bias = of_x = None
        if of_y is not None and needs.down_bias:
            of_down_bias = reduced(of_y, *ctx.layers.down_bias)
        if of_y is not None and needs.down and ctx.made.wanted:
            of_y = ctx.last.aligned(of_y)
        if of_y is not None and needs.down:
            of_down = ctx.last.of_b(of_y, hidden, again)
        of_weights: list[Tensor | None] = [None] * count
        of_biases: list[Tensor | None] = [None] * len(needs.biases)
        of_sums = _of_sums(ctx, of_y, of_hidden, down, stored) if ctx.made.wanted else []
        for i, g in enumerate(of_sums):
            if needs.biases and needs.biases[i]:
                of_biases[i] = reduced(g, *ctx.layers.biases[i])
            if needs.x and needs.weights[i]:
                g = ctx.first[i].aligned(g)
            if needs.x:
                of_x = ctx.first[i].of_a(g, weights[i], again, of_x)
            if needs.weights[i]:
                of_weights[i] = ctx.first[i].of_b(g, x, again)
        last = () if ctx.layers.down_bias is None else (of_down_bias,)
        return (*(None,) * _BEFORE, of_x, *of_weights, *of_biases, of_down, *last)


_BEFORE = 5  # arguments of Mlp.forward before the tensors


def _of_sums(
    ctx: Any,
    of_y: Tensor | None,
    of_hidden: Sequence[Tensor | None],
    down: Tensor,
    stored: Sequence[Tensor],
) -> Sequence[Tensor]:
    """Return the gradients of the first product's sums, in the dtype of X."""
    made, kind = ctx.made, ctx.first[0].dtype
    of_hidden = list(of_hidden)
    others = [i for i, g in enumerate(of_hidden) if g is not None and i]
    if of_y is None and of_hidden[0] is None and not others:
        return []
    given = (*([0] if of_y is not None or of_hidden[0] is not None else []), *others)
    found = made.backward(tuple(given))
    values = {
        "gradient": dict(enumerate(of_hidden)),
        "result": dict(zip(made.stored, stored, strict=True)),
    }
    operands = tuple(values[what][i] for what, i in found.operands)
    if of_y is None:  # in a second derivative only hidden or stored values have a gradient
        return gradients(found, of_hidden[given[0]], operands, len(made.wanted), kind, ())
    asked, c = Asked(found.function, operands), of_hidden[0]
    results: tuple[Tensor, ...] = ctx.products.fused(of_y.to(kind), down, c, asked)
    return results
