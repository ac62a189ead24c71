"""``tilewise::mlp``, an operator of PyTorch's for a multilayer perceptron, with a gradient.

The operator takes the activation as the text of a traced function
(:mod:`tilewise.epilogue.written`).

References
----------
PyTorch, "The Custom Operators Manual"; ``torch.library``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tilewise.arrays.dispatched import is_transformed
from tilewise.arrays.fusion import APART, Asked
from tilewise.epilogue.derivative import Trained, trained
from tilewise.epilogue.written import KEPT, read
from tilewise.torch.below_autograd import below_autograd
from tilewise.torch.by_pytorch import by_pytorch
from tilewise.torch.call_cache import CallCache, with_cache
from tilewise.torch.fused_operator import result_of
from tilewise.torch.linear_operator import check_features, check_weight, transformed
from tilewise.torch.mlp_backward import OPERATOR as BACKWARD
from tilewise.torch.mlp_gradient import Layers, Matmuls, Mlp, facts_of, forward, wanted_of
from tilewise.torch.operator_cache import OperatorCaches
from tilewise.torch.transformed import pytorch_matmul
from tilewise.torch.with_epilogue import fused

Tensor = Any

_library = torch.library.Library("tilewise", "FRAGMENT")
_library.define(
    "mlp(Tensor x, Tensor[] weights, Tensor[] biases, Tensor down, Tensor? down_bias, "
    "str function, int[] wanted, bool stores) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
OPERATOR = torch.ops.tilewise.mlp.default


def _kernel(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    down: Tensor,
    down_bias: Tensor | None,
    function: str,
    wanted: Sequence[int],
    stores: bool,
) -> list[Tensor]:
    layers = Layers(x, tuple(weights), tuple(biases), down, down_bias)
    made = _made(function, tuple(wanted))
    cache = _caches.of((x.shape, down.shape, x.dtype, made))
    form = len(weights), len(biases)
    found: list[Tensor] = with_cache(cache, form, layers.tensors, partial(forward, layers, made))
    return found if stores else found[:1]


_caches = OperatorCaches()


@lru_cache(maxsize=KEPT)
def _made(function: str, wanted: tuple[int, ...]) -> Trained:
    return trained(read(function), wanted)


def fits(layers: Layers) -> bool:
    """Return whether shapes and dtypes fit one another: a fast test before :func:`check`."""
    x, weights, biases, down, down_bias = layers
    first, dtype = weights[0].shape, x.dtype
    return (
        len(first) == 2
        and x.ndim > 0
        and x.shape[-1] == first[1]
        and all(w.shape == first and w.dtype == dtype for w in weights)
        and all(b.shape == first[:1] for b in biases)
        and down.ndim == 2
        and down.shape[1] == first[0]
        and down.dtype == dtype
        and (down_bias is None or down_bias.shape == down.shape[:1])
    )


def check(layers: Layers) -> None:
    """Raise an error if the tensors' shapes, dtypes or devices don't fit one another.

    Raises
    ------
    TypeError, ValueError
    """
    x, weights, biases, down, down_bias = layers
    named = [("x", x), *((f"weight[{i}]", w) for i, w in enumerate(weights)), ("down", down)]
    of_biases = [*((f"bias[{i}]", b) for i, b in enumerate(biases))]
    of_biases += [] if down_bias is None else [("down_bias", down_bias)]
    for name, each in (*named, *of_biases):
        if each.device != x.device:
            raise ValueError(
                f"x is on {x.device} and {name} on {each.device}; they must be on one device"
            )
    for name, each in named[1:]:
        check_weight(name, each)
        if each.dtype != x.dtype:
            raise TypeError(f"x has dtype {x.dtype} and {name} {each.dtype}; they must be the same")
    check_features(x, "weight[0]", weights[0])
    if any(w.shape != weights[0].shape for w in weights):
        shapes = " and ".join(str(tuple(w.shape)) for w in weights)
        raise ValueError(f"the weights of gate and up have shapes {shapes}; they must be the same")
    hidden = weights[0].shape[0]
    if down.shape[1] != hidden:
        raise ValueError(
            f"down with shape {tuple(down.shape)}, that is (out features, in features), takes "
            f"{down.shape[1]} features; weight[0] gives {hidden}"
        )
    lengths = [hidden] * len(biases) + [down.shape[0]]
    for (name, each), n in zip(of_biases, lengths if down_bias is not None else lengths[:-1],
                               strict=True):  # fmt: skip
        if tuple(each.shape) != (n,):
            raise ValueError(f"{name} has shape {tuple(each.shape)}; it should have ({n},)")
    result_of(x, [w.mT for w in weights], None, None, None)


def _shaped(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    down: Tensor,
    down_bias: Tensor | None,
    function: str,
    wanted: Sequence[int],
    stores: bool,
) -> list[Tensor]:
    """Return results without values, for ``torch.library.register_fake``."""
    check(Layers(x, tuple(weights), tuple(biases), down, down_bias))
    lead = x.shape[:-1]
    found = [x.new_empty((*lead, down.shape[0]))]
    if stores:
        made = trained(read(function), tuple(wanted))
        found += [x.new_empty((*lead, down.shape[1])) for _ in made.forward.results]
    return found


def _recorded(
    keys: Any,
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    down: Tensor,
    down_bias: Tensor | None,
    function: str,
    wanted: Sequence[int],
    stores: bool,
) -> list[Tensor]:
    """Record the operator for autograd if needed, and call the operator below autograd."""
    if is_transformed(torch):
        return _transformed(x, weights, biases, down, down_bias, function, wanted, stores)
    below: Callable[[], list[Tensor]] = partial(
        below_autograd, keys, OPERATOR, _kernel, x, weights, biases, down, down_bias, function,
        wanted, stores,
    )  # fmt: skip
    if not torch.is_grad_enabled():
        return below()
    layers = Layers(x, tuple(weights), tuple(biases), down, down_bias)
    needs = [each.requires_grad for each in layers.tensors]
    if not any(needs):
        return below()
    needed = sorted({*wanted_of(layers, needs), *wanted})
    if len(needed) > len(set(wanted)) or not stores:
        raise ValueError(
            f"tensors require gradients, which need wanted={needed} and stores=True; they are "
            f"{list(wanted)} and {stores}"
        )
    matmuls = Matmuls(torch.ops.tilewise.matmul, fused, BACKWARD)
    made = trained(read(function), tuple(wanted))
    facts = facts_of(layers, made, matmuls, needs, CallCache())
    return list(Mlp.apply(facts, below, *layers.tensors))


def _transformed(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    down: Tensor,
    down_bias: Tensor | None,
    function: str,
    wanted: Sequence[int],
    stores: bool,
) -> list[Tensor]:
    """Compute the operator by PyTorch's own functions."""
    check(Layers(x, tuple(weights), tuple(biases), down, down_bias))
    b = tuple(each.mT for each in weights)
    is_gated = len(b) == 2
    made = _made(function, tuple(wanted)).forward
    asked = Asked(made, tuple(biases), APART if is_gated else None)
    with torch._C._DisableAutocast():
        hidden = by_pytorch(x, b if is_gated else b[0], None, asked, pytorch_matmul, None)
    result = transformed(hidden[0], down, down_bias)
    return [result, *hidden] if stores else [result]


for _key in ("CPU", "CUDA"):
    _library.impl("mlp", _kernel, _key)
_library.impl("mlp", _recorded, "Autograd", with_keyset=True)
_library.impl("mlp", _transformed, "FuncTorchBatched")
torch.library.register_fake("tilewise::mlp", _shaped, lib=_library)


@register_flop_formula(torch.ops.tilewise.mlp)  # type: ignore[untyped-decorator]
def _operations(
    x: tuple[int, ...],
    weights: Sequence[tuple[int, ...]],
    biases: Any,
    down: tuple[int, ...],
    *_: Any,
    out_shape: Any = None,
    **options: Any,
) -> int:
    """Return the number of operations of the products; ``FlopCounterMode`` passes shapes."""
    rows = math.prod(x[:-1])
    return 2 * rows * (len(weights) * math.prod(weights[0]) + math.prod(down))
