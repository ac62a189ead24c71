"""``tilewise::linear`` and ``tilewise::linear_backward``: a linear layer in a graph.

They are operators of PyTorch's. The latter computes the gradients of X and of the weight in one
call, because the host takes longer to call an operator than to launch a kernel. Where autograd
records its call, it records two calls of ``tilewise::matmul`` instead.

References
----------
PyTorch, "The Custom Operators Manual"; ``torch.library``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tilewise.arrays.dispatched import answer, is_transformed
from tilewise.arrays.fusion import Asked
from tilewise.arrays.repeat import Key
from tilewise.epilogue import Epilogue
from tilewise.torch.below_autograd import below_autograd
from tilewise.torch.by_pytorch import by_pytorch
from tilewise.torch.call_cache import (
    LookedUp,
    Multiplier,
    gradient_of_weight,
    gradient_of_x,
    with_cache,
)
from tilewise.torch.fused import reduced
from tilewise.torch.fused_operator import result_of
from tilewise.torch.gradient import Sides, empty_gradient, is_by_columns
from tilewise.torch.operator_cache import OperatorCaches
from tilewise.torch.transformed import is_batched, pytorch_matmul

Tensor = Any
BIASED = Epilogue(lambda acc, bias: acc + bias)
WITH_ANY_BIAS = ("linear, with a bias of any dtype",)
"""The key of a layer's product whose bias may have another dtype than X, in
:class:`~tilewise.torch.call_cache.LookedUp`.
"""

_library = torch.library.Library("tilewise", "FRAGMENT")
# Positional arguments without default values take the dispatcher the least time.
_library.define(
    "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)
_library.define(
    "linear_backward(Tensor g, Tensor x, Tensor weight) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
OPERATOR = torch.ops.tilewise.linear.default
BACKWARD = torch.ops.tilewise.linear_backward.default
_linears, _backwards = OperatorCaches(), OperatorCaches()


def _kernel(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    given = (x, weight) if bias is None else (x, weight, bias)
    cache = _linears.of((x.shape, weight.shape, x.dtype))
    cached = cache.cached
    if cached is not None and (addresses := cached.addresses(None, given)) is not None:
        result = cached.records[0].run(addresses)
        if result is not None:
            return result

    def multiply(*_: Tensor, key: Key | None) -> Tensor:
        _check(x, weight, bias)
        asked = None if bias is None else Asked(BIASED.traced, (bias,))
        return answer(x, weight, transpose_b=True, asked=asked, key=key)

    products = LookedUp()
    result = products(WITH_ANY_BIAS, given, multiply)
    cache.learn(None, given, products.records)
    return result


def check_weight(name: str, weight: Tensor) -> None:
    """Raise ValueError if a layer's weight is no matrix."""
    if weight.ndim != 2:
        raise ValueError(
            f"{name} has shape {tuple(weight.shape)}; a linear layer's is (out features, in "
            "features)"
        )


def check_features(x: Tensor, name: str, weight: Tensor) -> None:
    """Raise ValueError if X does not have the features that a layer's weight, a matrix, takes."""
    shape = tuple(weight.shape)
    if not x.ndim:
        raise ValueError(f"x has no dimension; {name} with shape {shape} takes {shape[1]} features")
    if x.shape[-1] != shape[1]:
        raise ValueError(
            f"x with shape {tuple(x.shape)} has {x.shape[-1]} features in its last dimension; "
            f"{name} with shape {shape}, that is (out features, in features), takes {shape[1]}"
        )


def _check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise an error if shapes, dtypes or devices don't fit a linear layer."""
    check_weight("weight", weight)
    check_features(x, "weight", weight)
    result_of(x, [weight.mT], None, None, None)
    for name, each in (("weight", weight), ("bias", bias)):
        if each is not None and each.device != x.device:
            raise ValueError(
                f"x is on {x.device} and {name} on {each.device}; they must be on one device"
            )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias has shape {tuple(bias.shape)}; by weight it should be {tuple(weight.shape[:1])}"
        )


def _shaped(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a result without values, for graphs."""
    _check(x, weight, bias)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _recorded(keys: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Record the operator for autograd if needed, and call the operator below autograd."""
    if is_transformed(torch):
        return transformed(x, weight, bias)
    if torch.is_grad_enabled() and torch._C._any_requires_grad(x, weight, bias):
        below = partial(below_autograd, keys, OPERATOR, _kernel, x, weight, bias)
        return _Linear.apply(x, weight, bias, below)
    return below_autograd(keys, OPERATOR, _kernel, x, weight, bias)


def transformed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute the operator by PyTorch's own functions."""
    _check(x, weight, bias)
    with torch._C._DisableAutocast():
        if bias is None:
            return pytorch_matmul(x, weight.mT)
        asked = Asked(BIASED.traced, (bias,))
        found: Tensor = by_pytorch(x, weight.mT, None, asked, pytorch_matmul, None)
        return found


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    """A linear layer that autograd records.

    If G is the gradient of the result, then that of X is G W, that of W is G^T X, and that of the
    bias is the sum of G's rows. For second derivatives autograd records these products, too.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, below: Callable[[], Tensor]
    ) -> Tensor:
        """Compute the result by ``below``."""
        result = below()  # first, because it raises the error if an input is wrong
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        ctx.sides = Sides.of(x, weight, 1.0, False, True)
        ctx.of_bias = None if bias is None else (bias.shape, bias.dtype)
        return result

    @staticmethod
    def backward(ctx: Any, of_d: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of X, the weight and the bias; None for those not needed."""
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        of_x = of_weight = None
        of_bias = reduced(of_d, *ctx.of_bias) if needs_bias else None
        has_batch = is_batched(of_d)
        if needs_x and needs_weight:
            g = ctx.sides.aligned(of_d)
            if not (has_batch or torch.is_grad_enabled()):
                of_x, of_weight = BACKWARD(g, x, weight)
                return of_x, of_weight, of_bias, None
        else:
            g = of_d
        again = pytorch_matmul if has_batch else torch.ops.tilewise.matmul
        if needs_x:
            of_x = ctx.sides.of_a(g, weight, again)
        if needs_weight:
            of_weight = ctx.sides.of_b(g, x, again)
        return of_x, of_weight, of_bias, None


def _backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of X and of the weight, the kernel of ``linear_backward``."""
    by_columns, given = is_by_columns(weight), (g, x, weight)
    cache = _backwards.of((x.shape, weight.shape, x.dtype))
    cached = cache.cached
    if (
        cached is not None
        and cached.is_whole
        and (at := cached.addresses(by_columns, given)) is not None
    ):
        # This does what `with_cache` and `compute` do below, in less time.
        first, last = cached.records
        of_x = first.run([at[0], at[2]])
        of_weight = last.run(at[1::-1] if by_columns else at[:2])
        if of_x is not None and of_weight is not None:
            return of_x, of_weight.mT if by_columns else of_weight

    def compute(product: Multiplier) -> tuple[Tensor, Tensor]:
        return (
            gradient_of_x(product, g, weight),
            gradient_of_weight(product, g, x, is_by_columns=by_columns),
        )

    _check_gradient(g, x, weight)
    found: tuple[Tensor, Tensor] = with_cache(cache, by_columns, given, compute)
    return found


def _check_gradient(g: Tensor, x: Tensor, weight: Tensor) -> None:
    _check(x, weight, None)
    shape = (*x.shape[:-1], weight.shape[0])
    if tuple(g.shape) != shape or g.dtype != x.dtype:
        raise ValueError(
            f"g has shape {tuple(g.shape)} and dtype {g.dtype}; by x and weight they should be "
            f"{tuple(shape)} and {x.dtype}"
        )


def _shaped_backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients without values, for graphs."""
    _check_gradient(g, x, weight)
    return x.new_empty(x.shape), empty_gradient(x, weight)


def _backward_recorded(keys: Any, g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradients, by products that autograd can record if it has to."""
    is_recorded = torch.is_grad_enabled() and torch._C._any_requires_grad(g, x, weight)
    if is_recorded or is_transformed(torch):
        return _by_products(g, x, weight)
    found: tuple[Tensor, Tensor] = below_autograd(keys, BACKWARD, _backward, g, x, weight)
    return found


def _by_products(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    _check_gradient(g, x, weight)
    sides, again = Sides.of(x, weight, 1.0, False, True), torch.ops.tilewise.matmul
    return sides.of_a(g, weight, again), sides.of_b(g, x, again)


for _key in ("CPU", "CUDA"):
    _library.impl("linear", _kernel, _key)
    _library.impl("linear_backward", _backward, _key)
_library.impl("linear", _recorded, "Autograd", with_keyset=True)
_library.impl("linear_backward", _backward_recorded, "Autograd", with_keyset=True)
_library.impl("linear", transformed, "FuncTorchBatched")
_library.impl("linear_backward", _by_products, "FuncTorchBatched")
torch.library.register_fake("tilewise::linear", _shaped, lib=_library)
torch.library.register_fake("tilewise::linear_backward", _shaped_backward, lib=_library)


@register_flop_formula(torch.ops.tilewise.linear)  # type: ignore[untyped-decorator]
def _operations(
    x: tuple[int, ...], weight: tuple[int, ...], *_: Any, out_shape: Any = None, **options: Any
) -> int:
    """Return the number of operations, for ``FlopCounterMode``, which passes shapes."""
    return 2 * math.prod(x[:-1]) * math.prod(weight)


@register_flop_formula(torch.ops.tilewise.linear_backward)  # type: ignore[untyped-decorator]
def _operations_of_gradients(
    g: tuple[int, ...], x: Any, weight: tuple[int, ...], *_: Any, out_shape: Any = None,
    **options: Any,
) -> int:  # fmt: skip
    return 4 * math.prod(g[:-1]) * math.prod(weight)
