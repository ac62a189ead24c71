"""Check the products of a model's linear layers and MLPs against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from tilewise.arrays import dispatched, repeat
from tilewise.arrays.fusion import APART, Asked
from tilewise.arrays.own_product import parted
from tilewise.bench.epilogues import spread
from tilewise.bench.products import error_share
from tilewise.precision import limits_of, sums_of
from tilewise.roundoff import gamma, roundings

Tensor = Any
Module = Any
Row = dict[str, Any]
_CHECKED = 256  # rows, and columns, of a product with an epilogue


def linear_shares(model: Module, run: Callable[[], object]) -> dict[str, float]:
    """Return the largest error of each product of a model's linear layers, as a share of its bound.

    Parameters
    ----------
    model : torch.nn.Module
    run : callable
        Calls the model, and computes its gradients if those should be checked too.

    Returns
    -------
    dict of str to float
        By the layer's name, with ``gradient of x`` and ``gradient of weight`` behind it; each at
        most 1 where it is right, as :func:`tilewise.bench.products.error_share` has it.

    Notes
    -----
    Each product is held against float64 for the inputs that it was really given. A bias is one more
    term of the sum. The gradient of a weight that other modules use as well is left out: it is a
    sum of theirs.
    """
    layers = {name: x for name, x in model.named_modules() if isinstance(x, torch.nn.Linear)}
    users = [
        id(x) for module in model.modules() for x in module.parameters(recurse=False)
    ]  # a tied weight has several names
    found: dict[str, float] = {}
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    inputs: dict[str, Tensor] = {}

    def forward(name: str, layer: Module, given: Tensor, output: Tensor) -> None:
        x, w = _rows(given), layer.weight.detach().to(output.dtype)
        inputs[name], terms, factors = x, x.to(output.dtype), w.T
        if layer.bias is not None:
            bias = layer.bias.detach().to(output.dtype)[None]
            terms = torch.cat((terms, torch.ones_like(terms[:, :1])), 1)
            factors = torch.cat((factors, bias))
        found[name] = error_share(terms, factors, _rows(output))

    def backward(name: str, layer: Module, of_x: Tensor | None, of_y: Tensor) -> None:
        y = _rows(of_y)
        if of_x is not None:
            w = layer.weight.detach().to(y.dtype)
            found[f"{name}, gradient of x"] = error_share(y, w, _rows(of_x))
        seen[name] = inputs[name].to(y.dtype), y

    hooks = []
    for name, layer in layers.items():
        hooks.append(
            layer.register_forward_hook(
                lambda layer, given, output, name=name: forward(name, layer, given[0], output)
            )
        )
        hooks.append(
            layer.register_full_backward_hook(
                lambda layer, of_x, of_y, name=name: backward(name, layer, of_x[0], of_y[0])
            )
        )
    model.zero_grad(set_to_none=True)
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    for name, (x, y) in seen.items():
        weight = layers[name].weight
        if users.count(id(weight)) == 1:
            share = error_share(y.T, x, weight.grad.to(y.dtype))
            found[f"{name}, gradient of weight"] = share
    model.zero_grad(set_to_none=True)
    return found


def _rows(x: Tensor) -> Tensor:
    return x.detach().flatten(0, -2)


def worst_share(shares: Mapping[str, float]) -> Row:
    """Return the largest share, for a record: ``products``, ``error_share``, ``at``, ``wrong``."""
    at = max(shares, key=shares.__getitem__)
    value = shares[at]
    return {
        "products": len(shares), "error_share": value if math.isfinite(value) else None, "at": at,
        "wrong": [name for name, share in shares.items() if not share <= 1],
    }  # fmt: skip


def fused_shares(run: Callable[[], object]) -> dict[str, float]:
    """Return the largest error of each product with an epilogue that a call computes.

    Parameters
    ----------
    run : callable
        Calls a model, and computes its gradients if those should be checked too.

    Returns
    -------
    dict of str to float
        By a number and the function; each at most 1 where it is right.

    Notes
    -----
    Each is held against float64 for the inputs that it was really given: those of MLPs forward, and
    backward those whose epilogues are derivatives. Cached launches are forgotten, and none are
    cached meanwhile: a call that repeats them asks for no product that could be looked at.
    """
    found: dict[str, float] = {}
    before = list(dispatched._answers)
    (own,) = before

    def looked_at(
        a: Tensor, b: Any, c: Tensor | None = None, alpha: float = 1, beta: float = 0,
        transpose_a: bool = False, transpose_b: bool = False, *rest: Any, **options: Any,
    ) -> Any:  # fmt: skip
        options["key"] = None
        result = own(a, b, c, alpha, beta, transpose_a, transpose_b, *rest, **options)
        asked = options.get("asked", rest[4] if len(rest) > 4 else None)
        if asked is not None:
            a = a.mT if transpose_a else a
            of_b = [x.mT if transpose_b else x for x in (b if asked.pairs == APART else (b,))]
            results = result if asked.function.is_tuple else (result,)
            share = fused_share(a, of_b, c if beta else None, alpha, beta, asked, results)
            found[f"{len(found)}: {asked.function}"] = share
        return result

    dispatched._answers[:] = [looked_at]
    repeat.forget()
    try:
        run()
    finally:
        dispatched._answers[:] = before
    return found


def fused_share(
    a: Tensor,
    b: list[Tensor],
    c: Tensor | None,
    alpha: float,
    beta: float,
    asked: Asked,
    results: tuple[Tensor, ...],
) -> float:
    """Return the largest error of an epilogue's results, as a share of the allowed error.

    The bound is that of :func:`tilewise.bench.epilogues.enclosed_share`; A and the operands may
    have leading dimensions, and each B has two.
    """
    if not all(bool(torch.isfinite(x).all()) for x in results):
        return math.inf
    shape = results[0].shape
    whole = [x.reshape(-1, shape[-1]) for x in results]
    generator = torch.Generator().manual_seed(0)
    at = (spread(extent, _CHECKED, generator).to(a.device) for extent in whole[0].shape)
    rows, columns = at
    dtype = str(a.dtype).removeprefix("torch.")
    sums, k = sums_of(dtype), a.shape[-1]
    operations = roundings(k, alpha, beta)
    of_sums = gamma(operations, sums) + gamma(operations + 2, "float64")
    x = a.reshape(-1, k)[rows].double()

    def of(each: Tensor) -> Tensor:
        return each.expand(shape).reshape(-1, shape[-1])[rows][:, columns].double()

    lows, highs = [], []
    halves = list(parted(b[0], asked.pairs, shape[-1])) if asked.pairs and len(b) == 1 else b
    for each in halves:
        y = each[:, columns].double()
        exact, size = alpha * (x @ y), abs(alpha) * (x.abs() @ y.abs())
        if c is not None:
            exact, size = exact + beta * of(c), size + abs(beta) * of(c).abs()
        off = size * of_sums + (operations + 2) * limits_of(sums).subnormal
        lows.append((exact - off).cpu().numpy())
        highs.append((exact + off).cpu().numpy())
    low, high = (np.stack(v) if asked.pairs else v[0] for v in (lows, highs))
    values = [v if isinstance(v, float) else of(v).cpu().numpy() for v in asked.operands]
    share = 0.0
    bounds = asked.function.enclose(low, high, values, sums.name)
    for (least, most), found in zip(bounds, whole, strict=True):
        out = limits_of(str(found.dtype).removeprefix("torch."))
        least = least - (out.unit * np.abs(least) + out.subnormal / 2)
        most = most + (out.unit * np.abs(most) + out.subnormal / 2)
        got = found[rows][:, columns].double().cpu().numpy()
        middle, half = (least + most) / 2, (most - least) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(got == middle, 0.0, np.abs(got - middle) / half)
        share = max(share, float(np.max(shares, initial=0.0)))
    return share
