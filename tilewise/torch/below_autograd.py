"""The step of an operator's call from autograd to its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def below_autograd(
    keys: Any, operator: Any, kernel: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """Call an operator below autograd.

    Parameters
    ----------
    keys : DispatchKeySet
        The keys of the call, which autograd's kernel was given.
    operator : OpOverload
    kernel : callable
        The operator's kernel for tensors on a CPU and on a GPU. If the dispatcher would call it
        next, it is called directly, because the dispatcher would convert all arguments again.
    *args, **options
        The operator's arguments.
    """
    if are_kernels_next(keys):
        return kernel(*args, **options)
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keys & torch._C._after_autograd_keyset, *args, **options)


def are_kernels_next(keys: Any) -> bool:
    """Return whether the dispatcher would call the kernels next, below autograd."""
    name = keys.raw_repr()
    found = _kernels_next.get(name)
    if found is None:
        first = (keys & torch._C._after_autograd_keyset).highestPriorityTypeId()
        found = first in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
        _kernels_next[name] = found
    return found


_kernels_next: dict[int, bool] = {}
