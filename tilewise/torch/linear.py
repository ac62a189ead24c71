"""Linear layers that multiply by :func:`tilewise.torch.matmul`."""

from __future__ import annotations

from typing import Any

import torch

from tilewise.arrays.dispatched import DIRECT, RECORDED, answer, route, seen_by
from tilewise.arrays.fusion import Asked
from tilewise.arrays.invariance import is_invariant
from tilewise.arrays.repeat import look
from tilewise.epilogue import Epilogue
from tilewise.torch.aligned import aligned
from tilewise.torch.column_sums import column_sums
from tilewise.torch.operator import check_tensors, matmul, overridden
from tilewise.torch.with_epilogue import is_under_autocast

Tensor = Any
_BIASED = Epilogue(lambda acc, bias: acc + bias)
_LINEAR, _INVARIANT = ("linear", False), ("linear", True)
"""The keys by which records of layers' calls are found, besides the tensors."""
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return X W^T + bias, as ``torch.nn.functional.linear`` does, with gradients.

    Parameters
    ----------
    x : Tensor, (..., k)
    weight : Tensor, (n, k)
    bias : Tensor, (n,), optional
        The bias, which is added before the result is rounded.

    Returns
    -------
    Tensor, (..., n)

    Raises
    ------
    TypeError, ValueError
        As in :func:`tilewise.torch.matmul`, and if ``weight`` or ``bias`` has another shape.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> tilewise.torch.linear(torch.ones(3), torch.ones(2, 3), torch.arange(2.0))  # doctest: +SKIP
    tensor([3., 4.])
    """
    # What ``route`` finds of plain tensors, in half of its time.
    if type(x) in _PLAIN and type(weight) in _PLAIN and seen_by(torch) is None:
        is_recorded = x.requires_grad or weight.requires_grad
        if bias is None:
            return _where_it_lies(x, weight, None, is_recorded and torch.is_grad_enabled())
        if type(bias) in _PLAIN:
            is_recorded = is_recorded or bias.requires_grad
            return _where_it_lies(x, weight, bias, is_recorded and torch.is_grad_enabled())
    if not isinstance(x, torch.Tensor) and (found := overridden(linear, (x, weight, bias))):
        return found[0]
    way = route(x, weight, bias)
    if way is DIRECT or way is RECORDED:
        return _where_it_lies(x, weight, bias, way is RECORDED)
    check(x, weight, bias, is_under_autocast(x))
    if bias is None:
        return matmul(x, weight, transpose_b=True)
    # The bias is added to the accumulators, so that 16-bit results are rounded once.
    return matmul(x, weight, transpose_b=True, epilogue=_BIASED, bias=bias)


def check(x: Tensor, weight: Tensor, bias: Tensor | None, is_cast: bool = False) -> None:
    """Raise an error for tensors that :func:`linear` does not take, though a product might.

    Parameters
    ----------
    x, weight, bias
        The arguments of :func:`linear`.
    is_cast : bool, optional
        Whether autocast gives the tensors one dtype.
    """
    for what, given in (("x", x), ("weight", weight)):
        if given is None:
            raise TypeError(f"{what} is None, not a torch.Tensor")
    check_tensors((("x", x), ("weight", weight), ("bias", bias)))
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; a linear layer's has (n, k)")
    if bias is None:
        return
    if bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias has shape {tuple(bias.shape)}; by weight it should be {tuple(weight.shape[:1])}"
        )
    if bias.device != x.device:
        raise ValueError(
            f"x is on {x.device} and bias on {bias.device}; they must lie in one place"
        )
    if bias.dtype != x.dtype and not is_cast:
        raise TypeError(f"x has dtype {x.dtype} and bias {bias.dtype}; they must be the same")


def _where_it_lies(x: Tensor, weight: Tensor, bias: Tensor | None, is_recorded: bool) -> Tensor:
    """Multiply by kernels, which add the bias, and let autograd record it if ``is_recorded``."""
    arrays = (x, weight) if bias is None else (x, weight, bias)
    key, again, addresses = look(_INVARIANT if is_invariant(None) else _LINEAR, arrays)
    result = None if again is None else again.run(addresses)
    if result is None:
        check(x, weight, bias)
        asked = None if bias is None else Asked(_BIASED.traced, (bias,))
        with torch.no_grad():
            result = answer(x, weight, transpose_b=True, asked=asked, key=key)
    if is_recorded:
        return _record(x, weight, bias, [result])
    return result


class _Layer(torch.autograd.Function):  # type: ignore[misc]
    """A layer that autograd records after its result was computed.

    If G is the gradient of the result, then that of X is G W, that of W is G^T X, and that of the
    bias is the sum of G's rows. For second derivatives autograd records these products, too.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, results: list[Tensor]
    ) -> Tensor:
        """Return the result. It comes in a list, in which autograd does not look for inputs."""
        # ``ctx.needs_input_grad`` says the same, in more time.
        ctx.save_for_backward(
            x if weight.requires_grad else None, weight if x.requires_grad else None
        )
        if weight.stride(0) == 1 != weight.stride(1):
            ctx.is_by_columns = True
        return results[0]

    @staticmethod
    def backward(ctx: Any, of_d: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of X, the weight and the bias; None for those not needed."""
        x, weight = ctx.saved_tensors
        needs_bias = ctx.needs_input_grad[2]
        of_bias = of_d if needs_bias else None
        if needs_bias and of_d.ndim > 1:
            of_bias = column_sums(of_d, of_d.dtype)
        if x is not None and weight is not None:
            of_d = aligned(of_d, weight.shape[1])
        of_x = None if weight is None else matmul(of_d, weight)
        of_weight = None
        if x is not None:
            g, rows = (
                each.unsqueeze(0) if each.ndim == 1 else each.flatten(0, -2) for each in (of_d, x)
            )
            # Column-major if the weight is, because autograd copies a gradient that has other
            # strides.
            if getattr(ctx, "is_by_columns", False):
                of_weight = matmul(rows, g, transpose_a=True).mT
            else:
                of_weight = matmul(g, rows, transpose_a=True)
        return of_x, of_weight, of_bias, None


# ``_Layer.apply`` without its test for wrappers of torch.func's, which ``route`` has excluded.
_record = super(torch.autograd.Function, _Layer).apply


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """A ``torch.nn.Linear`` that tilewise multiplies; arguments, parameters and state are the same.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> layer = tilewise.torch.Linear(3, 2)  # doctest: +SKIP
    >>> layer.load_state_dict(torch.nn.Linear(3, 2).state_dict())  # doctest: +SKIP
    <All keys matched successfully>
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return X W^T + bias for X of shape (..., in_features)."""
        return linear(input, self.weight, self.bias)
