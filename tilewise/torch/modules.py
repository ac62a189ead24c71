"""Modules that are multilayer perceptrons, which :func:`tilewise.torch.mlp` computes."""

from __future__ import annotations

from typing import Any

import torch

from tilewise.torch.activations import activation_of
from tilewise.torch.graphs import constant_in_graphs
from tilewise.torch.linear import Linear
from tilewise.torch.mlp import mlp
from tilewise.torch.patterns import (
    Pattern,
    has_global_hooks,
    has_hooks,
    is_called_as_written,
    names_activation,
    pattern_of,
)

Tensor = Any
Module = Any
_LINEAR = (torch.nn.Linear, Linear)


def is_plain(layer: Module) -> bool:
    """Return whether calling a linear layer computes one product, and nothing else."""
    return type(layer) in _LINEAR and "forward" not in vars(layer) and not has_hooks(layer)


def _are_plain(first: tuple[Module, ...], down: Module) -> bool:
    """Return whether linear layers can be called as one MLP."""
    if has_global_hooks() or not (all(map(is_plain, first)) and is_plain(down)):
        return False
    count = sum(layer.bias is not None for layer in first)
    return count in (0, len(first))


def _as_one(x: Tensor, first: tuple[Module, ...], activation: str, down: Module) -> Tensor:
    if len(first) == 1:
        layer = first[0]
        return mlp(
            x, layer.weight, down.weight, activation=activation, bias=layer.bias,
            down_bias=down.bias,
        )  # fmt: skip
    gate, up = first
    bias = None if gate.bias is None else (gate.bias, up.bias)
    return mlp(
        x, (gate.weight, up.weight), down.weight, activation=activation, bias=bias,
        down_bias=down.bias,
    )  # fmt: skip


class Sequential(torch.nn.Sequential):  # type: ignore[misc]
    """A ``torch.nn.Sequential`` that computes two linear layers around an activation as one MLP.

    Each call looks at the modules anew, so a layer that has got hooks, or was replaced by another
    module, is called by itself.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> layers = torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)  # doctest: +SKIP
    >>> model = tilewise.torch.Sequential(*layers)  # doctest: +SKIP
    >>> model(torch.ones(3)).shape  # doctest: +SKIP
    torch.Size([3])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the modules one after another; an MLP is one call."""
        modules, at = list(self._modules.values()), 0
        while at < len(modules):
            activation = activation_at(modules, at)
            if activation is not None and _are_plain((modules[at],), modules[at + 2]):
                input = _as_one(input, (modules[at],), activation, modules[at + 2])
                at += 3
            else:
                input = modules[at](input)
                at += 1
        return input


def activation_at(modules: list[Module], at: int) -> str | None:
    """Return the activation between two linear layers, the first of which is ``modules[at]``.

    Return None if the three modules there are not an MLP.
    """
    if at + 2 >= len(modules):
        return None
    first, activation, down = modules[at : at + 3]
    are_linear = isinstance(first, torch.nn.Linear) and isinstance(down, torch.nn.Linear)
    if not are_linear or first is down or has_hooks(activation):
        return None
    return activation_of(activation) if is_called_as_written(activation) else None


def made_one(module: Module, pattern: Pattern) -> None:
    """Change a module's class, so that its ``forward`` computes its MLP by one call."""
    module.__class__ = _class_of(type(module), pattern)


def _class_of(kind: Any, pattern: Pattern) -> Any:
    """Return a subclass of ``kind`` whose ``forward`` computes this MLP.

    A class holds its subclasses weakly, so these are freed with it.
    """
    for made in type.__subclasses__(kind):
        if vars(made).get("_tilewise_pattern") == pattern:
            return made
    written = kind.forward
    # A later version's ``forward``, which an unpickled module gets, may be no function.
    space = getattr(written, "__globals__", {})

    @constant_in_graphs
    def is_as_read() -> bool:
        """Return whether ``forward``, and the activation that it calls, are those once read."""
        return kind.forward is written and (
            not pattern.function or names_activation(pattern, space)
        )

    def forward(self: Module, x: Tensor) -> Tensor:
        """Compute the MLP; layer by layer if the modules have changed since."""
        if not is_as_read():
            return kind.forward(self, x)
        children = self._modules
        first = tuple([children[name] for name in pattern.first])
        down = children[pattern.down]
        is_same = True
        if pattern.module:
            activation = children[pattern.module]
            is_same = activation_of(activation) == pattern.activation
            is_same = is_same and not has_hooks(activation) and is_called_as_written(activation)
        if is_same and _are_plain(first, down):
            return _as_one(x, first, pattern.activation, down)
        return kind.forward(self, x)

    def reduced(self: Module, _: Any) -> Any:
        """Pickle the module by ``kind`` and the pattern, as its class has no name in any module."""
        return _again, (kind, pattern), self.__getstate__()

    def restored(self: Module, state: Any) -> None:
        """Set the state; in another process ``forward`` may be another, and then it is called."""
        kind.__setstate__(self, state)
        if pattern_of(self, kind) != pattern:
            self.__class__ = kind

    words = {
        "forward": forward, "__reduce_ex__": reduced, "__setstate__": restored,
        "__module__": kind.__module__, "__doc__": kind.__doc__, "_tilewise_pattern": pattern,
    }  # fmt: skip
    return type(kind.__name__, (kind,), words)


def _again(kind: Any, pattern: Pattern) -> Module:
    made = _class_of(kind, pattern)
    return made.__new__(made)
