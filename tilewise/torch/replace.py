"""Replace a model's linear layers and multilayer perceptrons by those of tilewise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewise.gemm.product import DTYPES
from tilewise.shown import Part, Record, Table, named_type, plural
from tilewise.torch.linear import Linear
from tilewise.torch.modules import Sequential, activation_at, made_one
from tilewise.torch.patterns import has_hooks, is_called_as_written, pattern_of

Module = Any


@dataclass(frozen=True, repr=False)
class Replaced(Record):
    """The result of :func:`replace_linears`; ``print`` shows it module by module.

    Attributes
    ----------
    replaced : tuple of str
        The names of the modules that tilewise now multiplies.
    left : dict of str to str
        The names of the other linear layers, each with the reason.
    fused : dict of str to str
        The formula of each module that is computed as a multilayer perceptron, such as
        ``down(gelu(up))``, by the module's name.
    """

    replaced: tuple[str, ...]
    left: dict[str, str]
    fused: dict[str, str] = field(default_factory=dict)

    def _summary(self) -> str:
        count = len(self.replaced) + len(self.left)
        told = f"{len(self.replaced)} of {plural(count, 'linear layer')} replaced"
        return f"{told}, {plural(len(self.fused), 'MLP')} fused" if self.fused else told

    def _parts(self) -> Sequence[Part]:
        rows = [(name or "the model itself", "replaced") for name in self.replaced]
        rows += [(name or "the model itself", f"left: {why}") for name, why in self.left.items()]
        rows += [(name or "the model itself", f"fused: {x}") for name, x in self.fused.items()]
        return [self._summary(), *([Table(rows, left=2)] if rows else [])]


def replace_linears(
    model: Module, where: Callable[[str, Module], bool] | None = None, *, mlps: bool = True
) -> Replaced:
    """Make tilewise multiply in a model's ``torch.nn.Linear`` modules, in place.

    A module remains the same object, with its parameters and its place in the model, and becomes a
    :class:`Linear`: shared modules stay shared, and optimizers go on. A module that is more than a
    plain ``torch.nn.Linear`` is left as it is, and the result says why. To undo it, set
    ``module.__class__ = torch.nn.Linear``.

    Replaced layers around an activation are computed as one MLP (:func:`mlp`) if it is certain that
    they are one: in a ``torch.nn.Sequential``, and in a module whose ``forward`` only returns
    ``self.down(activation(self.up(x)))`` or, if gated,
    ``self.down(activation(self.gate(x)) * self.up(x))``, whatever the names. For that the module's
    source is read, which must compile to the code that ``forward`` has. Each call tests that the
    layers have not changed.

    Parameters
    ----------
    model : torch.nn.Module
        The model, which may itself be a linear layer.
    where : callable, optional
        A function that is called with a module's name and the module; only modules for which it
        returns True are replaced.
    mlps : bool, optional
        Whether to fuse MLPs.

    Returns
    -------
    Replaced

    Raises
    ------
    TypeError
        If ``model`` is not a module, or ``where`` is not a function.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())  # doctest: +SKIP
    >>> print(tilewise.torch.replace_linears(model))  # doctest: +SKIP
    1 of 1 linear layer replaced
    0  replaced
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is {named_type(model)}, not a torch.nn.Module")
    if where is not None and not callable(where):
        raise TypeError(
            f"where is {where!r}; it is a function of a module's name and the module, as "
            "lambda name, module: name != 'head'"
        )
    replaced, left = {}, {}
    for name, module in model.named_modules():
        if not _is_linear(module):
            continue
        why = _why_not(module) or ("" if where is None or where(name, module) else "not asked for")
        if why:
            left[name] = why
        else:
            replaced[name] = module
    for module in replaced.values():  # only now, because ``where`` may raise an error
        module.__class__ = Linear
    return Replaced(tuple(replaced), left, _fused(model) if mlps else {})


def _fused(model: Module) -> dict[str, str]:
    """Fuse a model's MLPs whose linear layers were replaced; return what each computes."""
    found = {}
    for name, module in list(model.named_modules()):
        if type(module) is torch.nn.Sequential and is_called_as_written(module):
            words = _of_sequential(list(module._modules.items()))
            if words:
                module.__class__ = Sequential
                found[name] = words
            continue
        pattern = pattern_of(module)
        if pattern is None or (pattern.module and has_hooks(module._modules[pattern.module])):
            continue
        layers = [module._modules[x] for x in (*pattern.first, pattern.down)]
        if (
            all(type(x) is Linear for x in layers)
            and len({x.bias is None for x in layers[:-1]}) == 1
        ):
            made_one(module, pattern)
            found[name] = str(pattern)
    return found


def _of_sequential(modules: Sequence[tuple[str, Module]]) -> str:
    """Return what the MLPs among a ``Sequential``'s modules compute; empty if there are none."""
    words, at = [], 0
    while at < len(modules):
        activation = activation_at([x for _, x in modules], at)
        if activation is not None and type(modules[at][1]) is type(modules[at + 2][1]) is Linear:
            words.append(f"{modules[at + 2][0]}({activation}({modules[at][0]}))")
            at += 3
        else:
            at += 1
    return ", ".join(words)


def _is_linear(module: Module) -> bool:
    """Return whether it is a linear layer, PyTorch's or a library's own, such as quantised ones."""
    return isinstance(module, torch.nn.Linear) or type(module).__name__.endswith("Linear")


def _why_not(module: Module) -> str:
    """Return why a linear layer is left as it is; empty if it is replaced."""
    kind = type(module)
    if kind is Linear:
        return "it is one of tilewise's already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its parameters are parametrized"
    if kind is not torch.nn.Linear:
        return f"it is a {kind.__module__}.{kind.__qualname__}"
    if getattr(module, "qconfig", None) is not None:
        return "it is to be quantised (qconfig)"
    if "forward" in vars(module):
        return "its forward was replaced"
    if has_hooks(module):
        return "it has hooks"
    weight = module.weight
    if type(weight) is not torch.nn.Parameter or type(weight.data) is not torch.Tensor:
        return f"its weight is a {type(weight.data).__name__}"
    dtype = str(weight.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        return f"its weight has dtype {dtype}"
    if weight.layout != torch.strided:
        return f"its weight is {str(weight.layout).removeprefix('torch.')}"
    return ""
