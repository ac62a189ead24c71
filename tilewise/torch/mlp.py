"""Multilayer perceptrons: two linear layers with an activation between them, or a gated unit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tilewise.arrays.dispatched import DIRECT, Route, answer, route
from tilewise.arrays.fusion import APART, Asked
from tilewise.epilogue import Traced
from tilewise.epilogue.derivative import trained
from tilewise.epilogue.written import written
from tilewise.torch.activations import epilogue_of
from tilewise.torch.linear import linear
from tilewise.torch.mlp_gradient import Layers, Mlp, Products, forward, wanted_of
from tilewise.torch.mlp_operator import OPERATOR, check, fits
from tilewise.torch.operator import check_tensors, matmul
from tilewise.torch.with_epilogue import by_pytorch, cast, constant_of, fused, given_as

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
    """f(X W^T + bias) D^T + down_bias, where f is an activation, in two launches.

    Of a gated unit W is two matrices, gate's and up's, and the hidden values are f(gate) up, as of
    SwiGLU and GeGLU.

    Parameters
    ----------
    x : Tensor, (..., k)
    weight : Tensor, (h, k), or tuple of two
        As ``torch.nn.Linear`` has it.
    down : Tensor, (n, h)
    activation : str or callable
        ``"gelu"``, ``"gelu_tanh"``, ``"leaky_relu"``, ``"relu"``, ``"sigmoid"``, ``"silu"``,
        ``"softplus"`` or ``"tanh"``, as PyTorch's functions have them with their defaults. Or a
        function that :func:`tilewise.matmul` takes as ``epilogue``, of acc, or of gate and up;
        traced at each call, unless it is a :class:`tilewise.Epilogue`.
    bias : Tensor, (h,), or tuple of two, optional
    down_bias : Tensor, (n,), optional
        Biases may have another dtype than the matrices.

    Returns
    -------
    Tensor, (..., n)
        Of the dtype of X; under autocast, of autocast's.

    Raises
    ------
    TypeError
        If an argument is no tensor, or the dtypes of X and the weights differ.
    ValueError
        If shapes don't fit, tensors lie in different places, one of two biases is missing, or
        there is no activation of that name.
    TraceError
        If the activation does what no kernel can.

    Notes
    -----
    With a gradient, the first launch stores besides the hidden values what the activation's
    derivative needs: nothing for relu, leaky relu, sigmoid and tanh, which have it of their
    results, and otherwise the values before the activation; both are rounded to the dtype of X, as
    PyTorch's are. The backward pass multiplies the derivative to the gradient of the hidden values
    in the kernel of the product that computes it, on its float32 sums.

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
            f"there are {len(weights)} weights and {len(biases)} biases; a gated unit has two "
            "weights, and of biases as many or none"
        )
    named = [("x", x), ("down", down), ("down_bias", down_bias)]
    check_tensors([*named, *(("weight", w) for w in weights), *(("bias", b) for b in biases)])
    if torch.compiler.is_compiling():
        text = _text(constant_of(activation), len(weights), len(biases) > 0)
        return _by_operator(_cast(Layers(x, weights, biases, down, down_bias)), text)
    function = epilogue_of(activation, len(weights), len(biases) > 0)
    layers = Layers(x, weights, biases, down, down_bias)
    if torch.is_autocast_enabled(x.device.type):
        layers = _cast(layers)
        with torch.autocast(x.device.type, enabled=False):
            return _mlp(layers, function)
    return _mlp(layers, function)


def _mlp(layers: Layers, function: Traced) -> Tensor:
    """The same outside of graphs and of autocast."""
    if not fits(layers):
        check(layers)
    way = route(*layers.tensors)
    if way is DIRECT:
        return forward(layers, trained(function, ()), answer)[0]
    if way is Route.OPERATOR:
        return _by_operator(layers, written(function))
    if way is Route.TRANSFORMED:
        return _by_pytorch(layers, function)
    wanted = wanted_of(layers, [each.requires_grad for each in layers.tensors])
    made = trained(function, wanted)

    def below() -> list[Tensor]:
        return forward(layers, made, answer)

    products = Products(matmul, fused)
    return Mlp.apply(function, wanted, layers, below, products, *layers.tensors)[0]


def _cast(layers: Layers) -> Layers:
    """Cast X and the weights as autocast does it; biases are added as they are."""
    x, weights, biases, down, down_bias = layers
    if not torch.is_autocast_enabled(x.device.type):
        return layers
    _, weights, _ = cast(x, weights, None, None)
    x, down, _ = cast(x, down, None, None)
    return Layers(x, weights, biases, down, down_bias)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _text(activation: Any, matrices: int, has_biases: bool) -> str:
    """Return what a graph has of an activation, with the biases."""
    return written(epilogue_of(given_as(activation), matrices, has_biases))


def _by_operator(layers: Layers, text: str) -> Tensor:
    x, weights, biases, down, down_bias = layers
    needs = [torch.is_grad_enabled() and each.requires_grad for each in layers.tensors]
    return OPERATOR(
        x, list(weights), list(biases), down, down_bias, text,
        wanted=list(wanted_of(layers, needs)), stores=any(needs),
    )[0]  # fmt: skip


def _by_pytorch(layers: Layers, function: Any) -> Tensor:
    """By products and functions that PyTorch's transformations know."""
    x, weights, biases, down, down_bias = layers
    asked = Asked(function, biases, APART if len(weights) == 2 else None)
    b = weights if len(weights) == 2 else weights[0]
    hidden = by_pytorch(x, b, None, asked, partial(matmul, transpose_b=True), None)
    return linear(hidden, down, down_bias)
