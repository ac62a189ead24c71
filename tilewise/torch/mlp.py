"""Multilayer perceptrons: two linear layers with an activation or a gated unit between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from tilewise.arrays.dispatched import RECORDED, Route, route
from tilewise.arrays.fusion import APART, Asked
from tilewise.epilogue import Traced
from tilewise.epilogue.derivative import trained
from tilewise.epilogue.written import written
from tilewise.torch.activations import epilogue_of
from tilewise.torch.autocast import any_autocast, cast, casts, is_under_autocast, without_autocast
from tilewise.torch.by_pytorch import by_pytorch
from tilewise.torch.call_cache import CachedCall, LayerCache, LayerCaches, LookedUp, may_be_cached
from tilewise.torch.graphs import constant_in_graphs
from tilewise.torch.linear import linear
from tilewise.torch.mlp_gradient import (
    Facts,
    Layers,
    Matmuls,
    Mlp,
    facts_of,
    forward,
    wanted_of,
)
from tilewise.torch.mlp_operator import OPERATOR, check, fits
from tilewise.torch.operator import check_tensors, matmul, overridden
from tilewise.torch.with_epilogue import constant_of, fused, given_as

Tensor = Any


def mlp(
    x: Tensor,
    weight: Tensor | tuple[Tensor, Tensor],
    down: Tensor,
    *,
    activation: str | Callable[..., Any],
    bias: Tensor | tuple[Tensor, Tensor] | None = None,
    down_bias: Tensor | None = None,
) -> Tensor:
    """Return f(X W^T + bias) D^T + down_bias, where f is an activation, in two launches.

    For a gated unit such as SwiGLU or GeGLU, ``weight`` is two matrices, and the hidden values are
    f(gate) * up, where gate = X W_gate^T + bias_gate and up = X W_up^T + bias_up.

    Parameters
    ----------
    x : Tensor, (..., k)
    weight : Tensor, (h, k), or tuple of two
        The weight, as in ``torch.nn.Linear``. Two matrices are those of gate and of up.
    down : Tensor, (n, h)
    activation : str or callable
        ``"gelu"``, ``"gelu_tanh"``, ``"leaky_relu"``, ``"relu"``, ``"sigmoid"``, ``"silu"``,
        ``"softplus"`` or ``"tanh"`` for PyTorch's function with its default arguments. Or a
        function of acc, or for a gated unit of gate and up, as in ``epilogue`` of
        :func:`tilewise.matmul`. A function is traced at each call, unless it is a
        :class:`tilewise.Epilogue`.
    bias : Tensor, (h,), or tuple of two, optional
    down_bias : Tensor, (n,), optional
        The bias of the second layer. Biases may have another dtype than the matrices.

    Returns
    -------
    Tensor, (..., n)
        The result, with the dtype of X, or under autocast with autocast's dtype.

    Raises
    ------
    TypeError
        If an argument is not a tensor, or the dtypes of X and the weights differ.
    ValueError
        If shapes don't fit, tensors are on different devices, one of two biases is missing, or
        there is no activation with that name.
    TraceError
        If the activation does something that a kernel can't do.

    Notes
    -----
    If a gradient is needed, the first launch stores the hidden values and what the derivative of
    the activation needs besides. For relu, leaky relu, sigmoid and tanh that is nothing, because
    their derivatives follow from their results; for others it is the values before the
    activation. What is stored is rounded to the dtype of X, as in PyTorch. In the backward pass,
    the product that computes the gradient of the hidden values multiplies its float32 sums by the
    derivative, in its epilogue.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> x, w1, w2 = torch.ones(1, 2), -torch.ones(3, 2), torch.ones(1, 3)  # doctest: +SKIP
    >>> tilewise.torch.mlp(x, w1, w2, activation="relu")  # doctest: +SKIP
    tensor([[0.]])
    """
    weights = weight if type(weight) is tuple else (weight,)
    biases = bias if type(bias) is tuple else () if bias is None else (bias,)
    if len(weights) > 2 or len(biases) not in (0, len(weights)) or any(x is None for x in biases):
        raise ValueError(
            f"weights: {len(weights)}, biases: {len(biases)}; give one weight, or two for a gated "
            "unit, and as many biases or none"
        )
    layers = Layers(x, weights, biases, down, down_bias)
    if any_autocast() and may_be_cached() and (found := casts((x, *weights, down))) is not None:
        place, (first, *others, last) = found
        layers = Layers(first, tuple(others), biases, last, down_bias)
        return without_autocast(place, _called, layers, activation, down)
    if not isinstance(x, torch.Tensor):
        options = {"activation": activation, "bias": bias, "down_bias": down_bias}
        if answered := overridden(mlp, (x, weight, down), options):
            return answered[0]
    return _called(layers, activation, down)


def _called(layers: Layers, activation: Any, parameter: Tensor) -> Tensor:
    """Compute :func:`mlp`; the cached call is found by ``parameter``, the given ``down``."""
    x, weights, biases, down, down_bias = layers
    function: Traced | None = None
    if may_be_cached():
        cache = _mlps.get(id(parameter))
        cached = None if cache is None else cache.cached
        if cached is not None:
            function = epilogue_of(activation, len(weights), len(biases) > 0)
            if cached.addresses(_form(layers, function), layers.tensors) is not None:
                return _again(layers, cached)
    named = [("x", x), ("down", down), ("down_bias", down_bias)]
    for what, value in (*named[:2], *(("weight", w) for w in weights)):
        if value is None:  # None is an error here, unlike for optional tensors
            raise TypeError(f"{what} is None, not a torch.Tensor")
    check_tensors([*named, *(("weight", w) for w in weights), *(("bias", b) for b in biases)])
    if torch.compiler.is_compiling():
        text = _text(constant_of(activation), len(weights), len(biases) > 0)
        return _by_operator(_cast(layers), text)
    if function is None:
        function = epilogue_of(activation, len(weights), len(biases) > 0)
    if is_under_autocast(x):
        place, layers = x.device.type, _cast(layers)
        return without_autocast(place, _mlp, layers, function, None)
    return _mlp(layers, function, parameter)


_mlps = LayerCaches()


def _form(layers: Layers, function: Traced) -> Hashable:
    """Return what decides the products besides the tensors."""
    return function, layers.down_bias is None, torch.is_grad_enabled()


def _mlp(layers: Layers, function: Traced, parameter: Tensor | None) -> Tensor:
    """Compute `mlp` outside of graphs and of autocast.

    ``parameter`` is that of :func:`_called`; None if no later call is like this one.
    """
    if not fits(layers):
        check(layers)
    way = route(*layers.tensors)
    if way is Route.OPERATOR:
        return _by_operator(layers, written(function))
    if way is Route.TRANSFORMED:
        return _by_pytorch(layers, function)
    tensors, is_recorded = layers.tensors, way is RECORDED
    needs = [is_recorded and each.requires_grad for each in tensors]
    made = trained(function, wanted_of(layers, needs))
    cache = LayerCache() if parameter is None else _mlps.of(parameter)
    facts = facts_of(layers, made, Matmuls(matmul, fused), needs, cache.backward)
    products = LookedUp()
    results = forward(layers, made, products)
    cache.learn(_form(layers, function), tensors, products.records, facts)
    return _recorded(facts, results, tensors) if is_recorded else results[0]


def _again(layers: Layers, cached: CachedCall) -> Tensor:
    """Compute an MLP as in an earlier call."""
    results = forward(layers, cached.facts.made, cached.products())
    if cached.requires_grad and torch.is_grad_enabled():
        return _recorded(cached.facts, results, layers.tensors)
    return results[0]


def _recorded(facts: Facts, results: Sequence[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """Return the result, after autograd has recorded it."""
    return _record(facts, lambda: results, *tensors)[0]


# ``Mlp.apply`` without its test for wrappers of torch.func's, which ``route`` has excluded.
_record = super(torch.autograd.Function, Mlp).apply


def _cast(layers: Layers) -> Layers:
    """Cast X and the weights if autocast is on; biases keep their dtypes."""
    x, weights, biases, down, down_bias = layers
    if not is_under_autocast(x):
        return layers
    _, weights, _ = cast(x, weights, None, None)
    x, down, _ = cast(x, down, None, None)
    return Layers(x, weights, biases, down, down_bias)


@constant_in_graphs
def _text(activation: Any, matrices: int, has_biases: bool) -> str:
    """Return the text of the first product's epilogue, which is a constant of a graph."""
    return written(epilogue_of(given_as(activation), matrices, has_biases))


def _by_operator(layers: Layers, text: str) -> Tensor:
    x, weights, biases, down, down_bias = layers
    needs = [torch.is_grad_enabled() and each.requires_grad for each in layers.tensors]
    return OPERATOR(
        x, list(weights), list(biases), down, down_bias, text, list(wanted_of(layers, needs)),
        any(needs),
    )[0]  # fmt: skip


def _by_pytorch(layers: Layers, function: Any) -> Tensor:
    """Compute the MLP by products and functions that ``torch.func`` can transform."""
    x, weights, biases, down, down_bias = layers
    asked = Asked(function, biases, APART if len(weights) == 2 else None)
    b = weights if len(weights) == 2 else weights[0]
    hidden = by_pytorch(x, b, None, asked, partial(matmul, transpose_b=True), None)
    return linear(hidden, down, down_bias)
