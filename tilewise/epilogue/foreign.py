"""Functions of other libraries that are given as an epilogue, and what to write in their place."""

from __future__ import annotations

from typing import Any

OURS = {
    "silu": "silu", "relu": "relu", "gelu": "gelu", "sigmoid": "sigmoid", "tanh": "tanh",
    "leakyrelu": "leaky_relu", "leaky_relu": "leaky_relu", "softplus": "softplus", "exp": "exp",
    "log": "log", "log1p": "log1p", "erf": "erf", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "where": "where", "minimum": "minimum", "maximum": "maximum", "clamp": "clip", "clip": "clip",
}  # fmt: skip
"""By the names of other libraries' functions and modules, in small letters, tilewise's own."""
_MODULE = "torch.nn.modules.module"  # where PyTorch defines the base of its modules


def hint(name: str) -> str:
    """Return which of tilewise's functions can be traced in place of another library's."""
    own = OURS.get(name.lower())
    return f"tilewise.{own} can" if own else "tilewise has functions for epilogues"


def why_not(function: Any) -> str:
    """Return why a module of PyTorch is no epilogue, and what to write; empty for anything else."""
    kind = type(function)
    if not any(base.__module__ == _MODULE for base in kind.__mro__):
        return ""
    is_theirs = kind.__module__.startswith("torch.nn.")
    name = f"torch.nn.{kind.__name__}" if is_theirs else kind.__qualname__
    own = OURS.get(kind.__name__.lower()) if is_theirs else None
    if own == "softplus" and function.beta != 1:
        own = None
    if own is None:
        return (
            f"{name} is a module of PyTorch, which takes tensors, and can't be traced; give a "
            "function of the accumulator, as epilogue=lambda acc: tilewise.relu(acc)"
        )
    more = ""
    if own == "gelu" and getattr(function, "approximate", "none") != "none":
        more = f", {function.approximate!r}"
    if own == "leaky_relu":
        more = f", {function.negative_slope!r}"
    return (
        f"{name} is a module of PyTorch, which takes tensors, and can't be traced; write "
        f"epilogue=lambda acc: tilewise.{own}(acc{more})"
    )
