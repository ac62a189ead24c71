"""Linear layers by :func:`tilewise.torch.matmul`."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewise.arrays.dispatched import DIRECT, route
from tilewise.epilogue import Epilogue
from tilewise.torch.operator import check_tensors, matmul

Tensor = Any
_HALVES = (torch.float16, torch.bfloat16)
_BIASED = Epilogue(lambda acc, bias: acc + bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X W^T + bias, as ``torch.nn.functional.linear`` has it, with gradients.

    Parameters
    ----------
    x : Tensor, (..., k)
    weight : Tensor, (n, k)
    bias : Tensor, (n,), optional
        Added before the result is rounded.

    Returns
    -------
    Tensor, (..., n)

    Raises
    ------
    TypeError, ValueError
        As :func:`tilewise.torch.matmul`, and where ``weight`` or ``bias`` is of another shape.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> tilewise.torch.linear(torch.ones(3), torch.ones(2, 3), torch.arange(2.0))  # doctest: +SKIP
    tensor([3., 4.])
    """
    check_tensors((("x", x), ("weight", weight), ("bias", bias)))
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; a linear layer's has (n, k)")
    if bias is None:
        return matmul(x, weight, transpose_b=True)
    shape = (*x.shape[:-1], weight.shape[0])
    if tuple(bias.shape) != shape[-1:]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; by weight it should be {shape[-1:]}")
    if bias.device != x.device:
        raise ValueError(
            f"x is on {x.device} and bias on {bias.device}; they must lie in one place"
        )
    place = x.device.type
    is_cast = torch.is_autocast_enabled(place)
    if bias.dtype != x.dtype and not is_cast:
        raise TypeError(f"x has dtype {x.dtype} and bias {bias.dtype}; they must be the same")
    if route(x, weight, bias) is DIRECT:
        return matmul(x, weight, transpose_b=True, epilogue=_BIASED, bias=bias)
    if is_cast or x.dtype in _HALVES or math.prod(shape[:-1]) == 1:
        # As C, added to the accumulators: 16-bit results are rounded once.
        c = bias.expand(shape).contiguous()
        return matmul(x, weight, c, beta=1, transpose_b=True)
    product = matmul(x, weight, transpose_b=True)
    # float32 and float64 accumulators are of the result's dtype: adding to it rounds no more often.
    return product.add_(bias)


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """``torch.nn.Linear``, multiplied by tilewise: the same arguments, parameters and state.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> layer = tilewise.torch.Linear(3, 2)  # doctest: +SKIP
    >>> layer.load_state_dict(torch.nn.Linear(3, 2).state_dict())  # doctest: +SKIP
    <All keys matched successfully>
    """

    def forward(self, input: Tensor) -> Tensor:
        """X W^T + bias, of X with shape (..., in_features)."""
        return linear(input, self.weight, self.bias)
