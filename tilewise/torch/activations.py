"""The activations of multilayer perceptrons: as names, as PyTorch's modules, and as epilogues."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from tilewise.epilogue import Epilogue, Traced, trace
from tilewise.epilogue.functions import (
    gelu,
    leaky_relu,
    relu,
    sigmoid,
    silu,
    softplus,
    tanh,
)

Module = Any
Function = Callable[..., Any]

ACTIVATIONS: dict[str, Function] = {
    "gelu": gelu, "gelu_tanh": lambda x: gelu(x, "tanh"), "leaky_relu": leaky_relu, "relu": relu,
    "sigmoid": sigmoid, "silu": silu, "softplus": softplus, "tanh": tanh,
}  # fmt: skip
"""The activations by name: PyTorch's functions with their default arguments."""


def activation_of(module: Module) -> str | None:
    """Return the name in :data:`ACTIVATIONS` of a module's function; None if it has none.

    Only PyTorch's own classes are recognized, not classes derived from them.
    """
    kind, nn = type(module), torch.nn
    if kind is nn.GELU:
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(module.approximate)
    if kind is nn.LeakyReLU:
        return "leaky_relu" if module.negative_slope == 0.01 else None
    if kind is nn.Softplus:
        return "softplus" if (module.beta, module.threshold) == (1, 20) else None
    names = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh"}
    return names.get(kind)


def epilogue_of(activation: str | Function, matrices: int, has_biases: bool) -> Traced:
    """Return the epilogue of an MLP's first product: the activation of the sums and the biases.

    Parameters
    ----------
    activation : str or callable
        A name in :data:`ACTIVATIONS`, or a function of acc. With two matrices, the named activation
        is applied to gate and the result multiplied by up; a function takes gate and up.
    matrices : int
        1 or 2.
    has_biases : bool
        Whether each matrix has a bias, which the epilogue adds.

    Raises
    ------
    ValueError
        If there is no activation with that name.
    TypeError
        If ``activation`` is neither a name nor a function.
    TraceError
        If the function does something that a kernel can't do.
    """
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            names = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(f"activation is {activation!r}; it takes {names}, or a function")
        return _named(activation, matrices, has_biases)
    if isinstance(activation, Epilogue):
        return _traced_once(activation, matrices, has_biases)
    if not callable(activation):
        raise TypeError(f"activation is {activation!r}; it takes a name or a function")
    return _traced(activation, matrices, has_biases)


@lru_cache
def _named(activation: str, matrices: int, has_biases: bool) -> Traced:
    function = ACTIVATIONS[activation]
    if matrices == 1:
        return _traced(function, matrices, has_biases)
    return _traced(lambda gate, up: function(gate) * up, matrices, has_biases)


@lru_cache
def _traced_once(activation: Epilogue, matrices: int, has_biases: bool) -> Traced:
    return _traced(activation.function, matrices, has_biases)


def _traced(function: Function, matrices: int, has_biases: bool) -> Traced:
    if matrices == 1:
        if has_biases:
            return trace(lambda acc, bias: function(acc + bias), ("bias",))
        return trace(lambda acc: function(acc), ())

    def biased(gate: Any, up: Any, gate_bias: Any, up_bias: Any) -> Any:
        return function(gate + gate_bias, up + up_bias)

    if has_biases:
        return trace(biased, ("gate_bias", "up_bias"), pairs=True)
    return trace(lambda gate, up: function(gate, up), (), pairs=True)
