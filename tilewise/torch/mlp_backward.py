"""``tilewise::mlp_backward``, an operator of PyTorch's for the gradients of an MLP in a graph.

References
----------
PyTorch, "The Custom Operators Manual"; ``torch.library``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tilewise.arrays.dispatched import answer, is_transformed
from tilewise.arrays.fusion import Asked
from tilewise.arrays.repeat import Key
from tilewise.epilogue.written import read
from tilewise.gemm.pack import ALIGNED
from tilewise.torch.aligned import aligned
from tilewise.torch.below_autograd import below_autograd
from tilewise.torch.by_pytorch import by_pytorch
from tilewise.torch.call_cache import (
    Multiplier,
    gradient_of_weight,
    gradient_of_x,
    with_cache,
)
from tilewise.torch.gradient import Sides, empty_gradient, is_by_columns
from tilewise.torch.mlp_gradient import OF_SUMS
from tilewise.torch.operator_cache import OperatorCaches
from tilewise.torch.transformed import pytorch_matmul

Tensor = Any

_library = torch.library.Library("tilewise", "FRAGMENT")
_library.define(
    "mlp_backward(Tensor g, Tensor x, Tensor[] weights, Tensor down, Tensor hidden, "
    "Tensor[] operands, str function) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
OPERATOR = torch.ops.tilewise.mlp_backward.default
_caches = OperatorCaches()


def _kernel(
    g: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    down: Tensor,
    hidden: Tensor,
    operands: Sequence[Tensor],
    function: str,
) -> list[Tensor]:
    """Return the gradients of X, of down, of each weight, and of each weight's sums.

    These sums are what the activation is a function of: X times the weight, and the bias.

    ``g`` is the gradient of the result. ``function`` is the text of the epilogue by which the
    gradients of the hidden values become those of the sums; ``operands`` are its operands.
    """
    made = read(function)
    by_columns = tuple(map(is_by_columns, (*weights, down)))

    def gradient_of_sums(*_: Tensor, key: Key | None) -> Any:
        return answer(g, down, asked=Asked(made, tuple(operands)), key=key)

    def compute(product: Multiplier) -> list[Tensor]:
        of_down = gradient_of_weight(product, g, hidden, is_by_columns=by_columns[-1])
        of_sums = product((OF_SUMS, made), (g, down, *operands), gradient_of_sums)
        of_x, of_weights = None, []
        for sums, weight, is_turned in zip(of_sums, weights, by_columns[:-1], strict=True):
            if down.shape[1] % ALIGNED:
                sums = aligned(sums, weight.shape[1])
            of_x = gradient_of_x(product, sums, weight, of_x)
            of_weights.append(gradient_of_weight(product, sums, x, is_by_columns=is_turned))
        return [of_x, of_down, *of_weights, *of_sums]

    cache = _caches.of((x.shape, down.shape, x.dtype, made))
    if cache.cached is None:
        _check(g, x, weights, down, hidden, operands)
    # Each tensor is given once to a cached call, and the hidden values may be an operand as well.
    are_hidden = tuple(each is hidden for each in operands)
    others = [each for each in operands if each is not hidden]
    given = (g, x, *weights, down, hidden, *others)
    found: list[Tensor] = with_cache(cache, (by_columns, are_hidden), given, compute)
    return found


def _check(
    g: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    down: Tensor,
    hidden: Tensor,
    operands: Sequence[Tensor],
) -> None:
    """Raise an error if shapes don't fit one another."""
    lead, (n, h) = tuple(x.shape[:-1]), down.shape
    wanted = [("g", g, (*lead, n)), ("hidden", hidden, (*lead, h))]
    wanted += [("weight", w, (h, x.shape[-1])) for w in weights]
    wanted += [("operand", each, (*lead, h)) for each in operands]
    for name, each, shape in wanted:
        if tuple(each.shape) != tuple(shape):
            raise ValueError(f"{name} has shape {tuple(each.shape)}; it should have {shape}")


def _shaped(
    g: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    down: Tensor,
    hidden: Tensor,
    operands: Sequence[Tensor],
    function: str,
) -> list[Tensor]:
    """Return gradients without values, for graphs."""
    _check(g, x, weights, down, hidden, operands)
    of_sums = [x.new_empty(hidden.shape) for _ in read(function).results]
    of_weights = [empty_gradient(x, each) for each in (down, *weights)]
    return [x.new_empty(x.shape), *of_weights, *of_sums]


def _recorded(keys: Any, *args: Any) -> list[Tensor]:
    """Raise an error if autograd would record the operator, and else call it below autograd."""
    if is_transformed(torch):
        return _transformed(*args)
    if torch.is_grad_enabled():
        g, x, weights, down, hidden, operands, _ = args
        if any(each.requires_grad for each in (g, x, *weights, down, hidden, *operands)):
            raise NotImplementedError(
                "tilewise::mlp_backward has no gradient; call it under torch.no_grad()"
            )
    found: list[Tensor] = below_autograd(keys, OPERATOR, _kernel, *args)
    return found


def _transformed(
    g: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    down: Tensor,
    hidden: Tensor,
    operands: Sequence[Tensor],
    function: str,
) -> list[Tensor]:
    """Compute the operator by PyTorch's own functions."""
    _check(g, x, weights, down, hidden, operands)
    of_x, of_weights = None, []
    with torch._C._DisableAutocast():
        last = Sides.of(hidden, down, 1.0, False, True)
        of_down = last.of_b(g, hidden, pytorch_matmul)
        asked = Asked(read(function), tuple(operands))
        of_sums = by_pytorch(g, down, None, asked, pytorch_matmul, None)
        for sums, weight in zip(of_sums, weights, strict=True):
            sides = Sides.of(x, weight, 1.0, False, True)
            of_x = sides.of_a(sums, weight, pytorch_matmul, of_x)
            of_weights.append(sides.of_b(sums, x, pytorch_matmul))
    return [of_x, of_down, *of_weights, *of_sums]


for _key in ("CPU", "CUDA"):
    _library.impl("mlp_backward", _kernel, _key)
_library.impl("mlp_backward", _recorded, "Autograd", with_keyset=True)
_library.impl("mlp_backward", _transformed, "FuncTorchBatched")
torch.library.register_fake("tilewise::mlp_backward", _shaped, lib=_library)


@register_flop_formula(torch.ops.tilewise.mlp_backward)  # type: ignore[untyped-decorator]
def _operations(
    g: tuple[int, ...],
    x: Any,
    weights: Sequence[tuple[int, ...]],
    down: tuple[int, ...],
    *_: Any,
    out_shape: Any = None,
    **options: Any,
) -> int:
    """Return the number of operations of the products; ``FlopCounterMode`` passes shapes."""
    return 4 * math.prod(g[:-1]) * (len(weights) * math.prod(weights[0]) + math.prod(down))
