"""A model's linear layers, replaced by those of tilewise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilewise.gemm.product import DTYPES
from tilewise.shown import Part, Record, Table, plural
from tilewise.torch.linear import Linear

Module = Any
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Replaced(Record):
    """What :func:`replace_linears` did; ``print`` shows it module by module.

    Attributes
    ----------
    replaced : tuple of str
        The names of the modules that tilewise multiplies now.
    left : dict of str to str
        The names of the other linear layers, each with the reason.
    """

    replaced: tuple[str, ...]
    left: dict[str, str]

    def _summary(self) -> str:
        count = len(self.replaced) + len(self.left)
        return f"{len(self.replaced)} of {plural(count, 'linear layer')} replaced"

    def _parts(self) -> Sequence[Part]:
        rows = [(name or "the model itself", "replaced") for name in self.replaced]
        rows += [(name or "the model itself", f"left: {why}") for name, why in self.left.items()]
        return [self._summary(), *([Table(rows, left=2)] if rows else [])]


def replace_linears(model: Module, where: Callable[[str, Module], bool] | None = None) -> Replaced:
    """Have tilewise multiply in a model's ``torch.nn.Linear`` modules, in place.

    A module stays the object that it is, with its parameters and its place in the model, and
    becomes a :class:`Linear`: what is shared stays shared, and optimizers go on. What is more than
    a plain ``torch.nn.Linear`` is left as it is, and the result says why. To undo it, set
    ``module.__class__ = torch.nn.Linear``.

    Parameters
    ----------
    model : torch.nn.Module
        It may be a linear layer itself.
    where : callable, optional
        Called with a module's name and the module; only those for which it returns True are
        replaced.

    Returns
    -------
    Replaced

    Raises
    ------
    TypeError
        If ``model`` is no module.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())  # doctest: +SKIP
    >>> print(tilewise.torch.replace_linears(model))  # doctest: +SKIP
    1 of 1 linear layer replaced
    0  replaced
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model is a {type(model).__module__}.{type(model).__qualname__}, not a torch.nn.Module"
        )
    replaced, left = [], {}
    for name, module in model.named_modules():
        if not _is_linear(module):
            continue
        why = _why_not(module) or ("" if where is None or where(name, module) else "not asked for")
        if why:
            left[name] = why
        else:
            module.__class__ = Linear
            replaced.append(name)
    return Replaced(tuple(replaced), left)


def _is_linear(module: Module) -> bool:
    """Whether it is a linear layer, of PyTorch's or of a library's own, as quantised ones are."""
    return isinstance(module, torch.nn.Linear) or type(module).__name__.endswith("Linear")


def _why_not(module: Module) -> str:
    """Why a linear layer is left as it is; empty where it is not."""
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
    if any(getattr(module, hooks, None) for hooks in _HOOKS):
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
