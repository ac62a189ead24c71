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

from tilewise.arrays.dispatched import answer
from tilewise.arrays.fusion import APART, Asked
from tilewise.arrays.repeat import Key
from tilewise.epilogue import Epilogue, Traced
from tilewise.epilogue.derivative import Trained
from tilewise.epilogue.written import written
from tilewise.gemm.pack import ALIGNED
from tilewise.torch.call_cache import (
    CallCache,
    Multiplier,
    gradient_of_bias,
    gradient_of_weight,
    gradient_of_x,
    is_unseen,
    with_cache,
)
from tilewise.torch.fused import gradients, reduced
from tilewise.torch.gradient import Sides, is_by_columns
from tilewise.torch.transformed import is_batched, pytorch_matmul

Tensor = Any
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


class Matmuls(NamedTuple):
    """The functions that compute a backward pass's products such that autograd can record them.

    Attributes
    ----------
    matmul : callable
        A function called as ``matmul(x, y, c, alpha=..., beta=..., out_dtype=...)``.
    fused : callable
        A function: ``fused(a, b, c, asked)`` is A B + C with an epilogue that returns a tuple.
    at_once : callable or None
        The operator that computes the products of all gradients in one call, in graphs. Autograd
        can't record it.
    """

    matmul: Callable[..., Tensor]
    fused: Callable[..., tuple[Tensor, ...]]
    at_once: Callable[..., Sequence[Tensor]] | None = None


def wanted_of(layers: Layers, needs: Sequence[bool]) -> tuple[int, ...]:
    """Return which of the first product's sums need gradients: all, or none.

    ``needs`` has for each tensor whether it needs a gradient.
    """
    of = layers.like(needs)
    is_wanted = of.x or any(of.weights) or any(of.biases)
    return tuple(range(len(layers.weights))) if is_wanted else ()


def forward(layers: Layers, made: Trained, product: Multiplier) -> list[Tensor]:
    """Return the result, the hidden values, and the other values for the backward pass."""
    x, weights, biases, down, down_bias = layers
    is_gated = len(weights) == 2

    def hidden_values(*_: Tensor, key: Key | None) -> Any:
        b = weights if is_gated else weights[0]
        asked = Asked(made.forward, biases, APART if is_gated else None)
        with torch.no_grad():
            return answer(x, b, transpose_b=True, asked=asked, key=key)

    hidden = product((HIDDEN, made.forward, is_gated), (x, *weights, *biases), hidden_values)
    first, last = hidden[0], () if down_bias is None else (down_bias,)

    def result(*_: Tensor, key: Key | None) -> Any:
        asked = Asked(_BIASED, last) if last else None
        with torch.no_grad():
            return answer(first, down, transpose_b=True, asked=asked, key=key)

    return [product((DOWN,), (first, down, *last), result), *hidden]


class Facts(NamedTuple):
    """What the backward pass of an MLP has to know besides values.

    Attributes
    ----------
    made : Trained
    matmuls : Matmuls
    layers : Layers
        The shapes and dtypes of the biases, in their places.
    first, last : Sides
        Of each first product, and of the last one.
    saved : tuple of (int or None)
        The indices of the tensors that are saved, in X, the weights, down, the hidden values and
        the stored values, among the MLP's tensors followed by its hidden and stored values; None
        for a tensor that no gradient needs.
    cache : CallCache
        The cache of the backward pass.
    """

    made: Trained
    matmuls: Matmuls
    layers: Layers
    first: tuple[Sides, ...]
    last: Sides
    saved: tuple[int | None, ...]
    cache: CallCache


def facts_of(
    layers: Layers, made: Trained, matmuls: Matmuls, needs: Sequence[bool], cache: CallCache
) -> Facts:
    """Return the facts of a call; ``needs`` has for each tensor whether it needs a gradient."""
    x, weights, biases, down, down_bias = layers
    of = layers.like(needs)
    places = layers.like(range(len(needs)))
    hidden = len(needs)
    saved = [
        places.x if any(of.weights) else None, *(i if of.x else None for i in places.weights),
        places.down if made.wanted else None, hidden if of.down else None,
        *(hidden + i for i in made.stored),
    ]  # fmt: skip
    of_biases = Layers(
        None, (None,) * len(weights), tuple((x.shape, x.dtype) for x in biases), None,
        None if down_bias is None else (down_bias.shape, down_bias.dtype),
    )  # fmt: skip
    first = tuple(Sides.of(x, w, 1.0, False, True) for w in weights)
    last = Sides(
        ((*x.shape[:-1], down.shape[1]), down.shape), x.dtype, (False, True),
        (False, is_by_columns(down)), 1.0,
    )  # fmt: skip
    return Facts(made, matmuls, of_biases, first, last, tuple(saved), cache)


class Mlp(torch.autograd.Function):  # type: ignore[misc]
    """An MLP that autograd records. It returns the result, hidden values and stored values.

    Hidden values and stored values are results, so that second derivatives reach them.
    """

    @staticmethod
    def forward(
        ctx: Any, facts: Facts, below: Callable[[], Sequence[Tensor]], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Compute all results by ``below``."""
        results = tuple(below())
        every = (*tensors, *results[1:])
        ctx.save_for_backward(*[None if i is None else every[i] for i in facts.saved])
        ctx.set_materialize_grads(False)
        ctx.facts = facts
        return results

    @staticmethod
    def backward(
        ctx: Any, of_y: Tensor | None, *of_hidden: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tensors that need one; None for the others."""
        facts = ctx.facts
        needs = facts.layers.like(ctx.needs_input_grad[_BEFORE:])
        count = len(facts.first)
        saved = ctx.saved_tensors
        x, *rest = saved
        weights, (down, hidden, *stored) = rest[:count], rest[count:]
        if (
            of_y is not None
            and of_y.dtype == facts.last.dtype
            and all(g is None for g in of_hidden)
            and is_unseen((of_y, *saved))
        ):
            found = _at_once(facts, needs, of_y, x, weights, down, hidden, stored)
            return (*(None,) * _BEFORE, *found)
        given = [g for g in (of_y, *of_hidden) if g is not None]
        again = pytorch_matmul if any(map(is_batched, given)) else facts.matmuls.matmul
        of_down = of_down_bias = of_x = None
        if of_y is not None and needs.down_bias:
            of_down_bias = reduced(of_y, *facts.layers.down_bias)
        if of_y is not None and needs.down and facts.made.wanted:
            of_y = facts.last.aligned(of_y)
        at_once = facts.matmuls.at_once
        if (
            at_once is not None
            and again is facts.matmuls.matmul
            and of_y is not None
            and of_y.dtype == facts.last.dtype
            and all(g is None for g in of_hidden)
            and all((needs.x, needs.down, *needs.weights))
            and not torch.is_grad_enabled()
        ):
            # One operator computes all products; here are the sums for the biases' gradients.
            function, operands = _derivative(facts.made, stored)
            text = written(function)
            of_x, of_down, *others = at_once(of_y, x, weights, down, hidden, operands, text)
            last = () if facts.layers.down_bias is None else (of_down_bias,)
            each = zip(needs.biases, others[count:], facts.layers.biases, strict=False)
            sums = [reduced(g, *bias) if is_needed else None for is_needed, g, bias in each]
            return (*(None,) * _BEFORE, of_x, *others[:count], *sums, of_down, *last)
        if of_y is not None and needs.down:
            of_down = facts.last.of_b(of_y, hidden, again)
        of_weights: list[Tensor | None] = [None] * count
        of_biases: list[Tensor | None] = [None] * len(needs.biases)
        of_sums = _of_sums(facts, of_y, of_hidden, down, stored) if facts.made.wanted else []
        for i, g in enumerate(of_sums):
            if needs.biases and needs.biases[i]:
                of_biases[i] = reduced(g, *facts.layers.biases[i])
            if needs.x and needs.weights[i]:
                g = facts.first[i].aligned(g)
            if needs.x:
                of_x = facts.first[i].of_a(g, weights[i], again, of_x)
            if needs.weights[i]:
                of_weights[i] = facts.first[i].of_b(g, x, again)
        last = () if facts.layers.down_bias is None else (of_down_bias,)
        return (*(None,) * _BEFORE, of_x, *of_weights, *of_biases, of_down, *last)


_BEFORE = 2  # arguments of Mlp.forward before the tensors
HIDDEN, DOWN, OF_SUMS = "hidden", "down", "of sums"


def _derivative(made: Trained, stored: Sequence[Tensor]) -> tuple[Traced, tuple[Tensor, ...]]:
    """Return the epilogue that makes gradients of the sums of those of the hidden values alone.

    Its operands come with it, from what the forward pass stored.
    """
    function, names = made.backward((0,))
    results = dict(zip(made.stored, stored, strict=True))
    return function, tuple(results[i] for _, i in names)


def _at_once(
    facts: Facts,
    needs: Layers,
    of_y: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    down: Tensor,
    hidden: Tensor,
    stored: Sequence[Tensor],
) -> list[Tensor | None]:
    """Return the gradients of the tensors by kernels, where autograd does not record them."""
    made, (n, h) = facts.made, facts.last.shapes[1]
    are_sums_needed = bool(needs.x or any(needs.weights) or any(needs.biases))
    function, operands = _derivative(made, stored)
    of_down_bias, g = None, of_y
    if n % ALIGNED and needs.down and are_sums_needed:
        g = facts.last.aligned(of_y)
    if needs.down_bias and facts.layers.down_bias is not None and (g is not of_y or g.ndim == 1):
        of_down_bias = reduced(of_y, *facts.layers.down_bias)

    def gradient_of_sums(*_: Tensor, key: Key | None) -> Any:
        return answer(g, down, asked=Asked(function, operands), key=key)

    def of_bias(product: Multiplier, g: Tensor, bias: Any) -> Tensor:
        return gradient_of_bias(product, g, bias[1]) if g.ndim > 1 else reduced(g, *bias)

    def compute(product: Multiplier) -> list[Tensor | None]:
        of_x = of_down = None
        of_weights: list[Tensor | None] = [None] * len(weights)
        of_biases: list[Tensor | None] = [None] * len(needs.biases)
        last: list[Tensor | None] = [] if facts.layers.down_bias is None else [of_down_bias]
        if needs.down:
            is_turned = facts.last.by_columns[1]
            of_down = gradient_of_weight(product, g, hidden, is_by_columns=is_turned)
        if needs.down_bias and of_down_bias is None:
            last = [of_bias(product, g, facts.layers.down_bias)]
        of_sums: Sequence[Tensor] = ()
        if are_sums_needed:
            of_sums = product((OF_SUMS, function), (g, down, *operands), gradient_of_sums)
        sums: Tensor
        for i, sums in enumerate(of_sums):
            if needs.biases and needs.biases[i]:
                of_biases[i] = of_bias(product, sums, facts.layers.biases[i])
            if h % ALIGNED and needs.x and needs.weights[i]:
                sums = facts.first[i].aligned(sums)
            if needs.x:
                of_x = gradient_of_x(product, sums, weights[i], of_x)
            if needs.weights[i]:
                is_turned = facts.first[i].by_columns[1]
                of_weights[i] = gradient_of_weight(product, sums, x, is_by_columns=is_turned)
        return [of_x, *of_weights, *of_biases, of_down, *last]

    # The tensors that no gradient needs were not saved.
    given = [g, *[each for each in (x, *weights, down, hidden, *stored) if each is not None]]
    form = (
        function, needs, facts.saved, facts.first, facts.last, facts.layers, of_down_bias is None
    )  # fmt: skip
    found: list[Tensor | None] = with_cache(facts.cache, form, given, compute)
    return found


def _of_sums(
    facts: Facts,
    of_y: Tensor | None,
    of_hidden: Sequence[Tensor | None],
    down: Tensor,
    stored: Sequence[Tensor],
) -> Sequence[Tensor]:
    """Return the gradients of the first product's sums, in the dtype of X."""
    made, kind = facts.made, facts.first[0].dtype
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
    results: tuple[Tensor, ...] = facts.matmuls.fused(of_y.to(kind), down, c, asked)
    return results
