"""Autocast: whether it is on, and the casts that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewise.arrays.libraries import dtype_name
from tilewise.torch.transformed import PLAIN

Tensor = Any
AUTOCAST = ("cpu", "cuda")
"""The types of devices that have autocast."""


def is_under_autocast(x: Tensor) -> bool:
    """Return whether autocast is on for the device of ``x``."""
    place = x.device.type  # PyTorch raises an error for a device without autocast, such as meta
    return place in AUTOCAST and bool(torch.is_autocast_enabled(place))


def cast(
    a: Tensor, b: Any, c: Tensor | None, out_dtype: Any, device: str = ""
) -> tuple[Tensor, Any, Any]:
    """Cast a product's tensors as autocast casts those of ``torch.matmul``: all but float64.

    ``device`` is the device type whose autocast applies, by default that of ``a``.
    """
    place = device or a.device.type
    dtype = torch.get_autocast_dtype(place)
    of_c = dtype if out_dtype is None else getattr(torch, dtype_name(out_dtype))
    b = tuple([_cast(x, dtype, place) for x in b]) if type(b) is tuple else _cast(b, dtype, place)
    return _cast(a, dtype, place), b, None if c is None else _cast(c, of_c, place)


def _cast(x: Tensor, dtype: Any, place: str) -> Tensor:
    kind = x.dtype
    if kind is dtype or kind is torch.float64 or not kind.is_floating_point:
        return x
    return x.to(dtype) if x.device.type == place else x


def casts(tensors: Sequence[Any]) -> tuple[str, list[Tensor]] | None:
    """Return the type of the device whose autocast is on, and a layer's matrices as it casts them.

    The result is None if autocast is off for the first tensor's device. It is also None if a
    tensor's type, ``torch.jit.trace`` or a transformation of ``torch.func`` sees the calls, because
    it has to see the layer's call and not the casts. The caller has excluded modes and graphs.
    """
    if not PLAIN.issuperset(map(type, tensors)):
        return None
    if _tracing() is not None or _level() is not None or not is_under_autocast(tensors[0]):
        return None
    place = tensors[0].device.type
    dtype = torch.get_autocast_dtype(place)
    return place, [x if x.dtype is dtype else _cast(x, dtype, place) for x in tensors]


def without_autocast(place: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``, called with autocast off for a device type for which it is on.

    This does what ``with torch.autocast(place, enabled=False)`` does, in less time.
    """
    torch.set_autocast_enabled(place, False)
    try:
        return function(*args)
    finally:
        torch.set_autocast_enabled(place, True)


any_autocast = torch._C._is_any_autocast_enabled
_tracing, _level = torch._C._get_tracing_state, torch._C._functorch.maybe_current_level
