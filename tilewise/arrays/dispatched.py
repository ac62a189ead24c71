"""Decide which calls with PyTorch's tensors go through PyTorch's dispatcher.

The dispatcher records operators for gradients and for graphs, and casts their inputs under
autocast. Going through it takes longer than a whole call, so only the calls that need it do. This
module also holds the functions that answer all other calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from tilewise.arrays.libraries import Array


class Route(Enum):
    """The ways to answer a call of :func:`tilewise.matmul`."""

    DIRECT = "by kernels, at once"
    GRADIENT = "by kernels, and autograd records it"
    OPERATOR = "by the operator tilewise::matmul, through PyTorch's dispatcher"
    TRANSFORMED = "by PyTorch's own products, which its transformations know"


# A look-up of a global takes less time than a look-up of an enumeration's attribute.
DIRECT, RECORDED = Route.DIRECT, Route.GRADIENT

_NUMBERS = (float, int, np.generic)


def route(a: Array, *others: Any) -> Route:
    """Return how a call is answered.

    Parameters
    ----------
    a : array
    others : array or None
        B, C, the results, and the operands of an epilogue, which may be numbers.

    Notes
    -----
    The operator computes products while PyTorch compiles, under autocast, under a mode that sees
    operators (``FakeTensorMode``), in ``torch.jit.trace``, and for subclasses of tensors. Within
    the transformations of ``torch.func`` and in forward-mode differentiation, PyTorch's own
    products compute them.
    """
    torch = sys.modules.get("torch")  # a library that was never imported has made no array
    if torch is None or not isinstance(a, torch.Tensor):
        return DIRECT
    seen = seen_by(torch)
    if seen is not None:
        return seen
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    is_recorded = False
    for x in (a, *others):
        kind = type(x)
        if kind is tensor or kind is parameter:
            if x.requires_grad:
                is_recorded = True
        elif x is None or kind is float or kind is int or isinstance(x, _NUMBERS):
            continue
        elif isinstance(x, tuple | list):  # several results
            is_recorded = is_recorded or any(getattr(y, "requires_grad", False) for y in x)
        else:
            # For arrays of other libraries, the check of the call raises the error.
            return Route.OPERATOR if isinstance(x, tensor) else DIRECT
    return RECORDED if is_recorded and torch._C.is_grad_enabled() else DIRECT


def seen_by(torch: Any) -> Route | None:
    """Return how every call with tensors is answered now; None where it is as the tensors say.

    Parameters
    ----------
    torch : module
    """
    inner = torch._C
    if torch.compiler.is_compiling():
        return Route.OPERATOR
    if is_transformed(torch):
        return Route.TRANSFORMED
    if (
        inner._is_any_autocast_enabled()
        or inner._len_torch_dispatch_stack()
        or inner._get_tracing_state() is not None
    ):
        return Route.OPERATOR
    return None


def is_transformed(torch: Any) -> bool:
    """Return whether a call is within a transformation that changes what it returns.

    These are the transformations of ``torch.func`` and forward-mode differentiation. A graph that
    ``torch.compile`` makes of one calls the operators within it, where only PyTorch's own functions
    are transformed.

    Parameters
    ----------
    torch : module
    """
    return (
        torch._C._functorch.maybe_current_level() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


_answers: list[Callable[..., Any]] = []


_grouped_answers: list[Callable[..., Any]] = []


def answered_by(function: Callable[..., Any]) -> None:
    """Set the function that multiplies arrays in place, which is that of :mod:`tilewise.matmul`."""
    _answers[:] = [function]


def answer(*args: Any, **options: Any) -> Any:
    """Multiply arrays in place, without PyTorch's dispatcher."""
    return _answers[0](*args, **options)


def grouped_answered_by(function: Callable[..., Any]) -> None:
    """Set the function that computes grouped products, which is that of :mod:`tilewise.grouped`."""
    _grouped_answers[:] = [function]


def grouped_answer(*args: Any, **options: Any) -> Any:
    """Compute a grouped product in place, without PyTorch's dispatcher."""
    return _grouped_answers[0](*args, **options)
