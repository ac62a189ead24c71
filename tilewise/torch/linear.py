"""Linear layers that multiply by :func:`tilewise.torch.matmul`."""

from __future__ import annotations

from typing import Any

import torch

from tilewise.arrays.dispatched import DIRECT, RECORDED, answer, route
from tilewise.arrays.fusion import Asked
from tilewise.arrays.repeat import Key
from tilewise.torch.aligned import aligned
from tilewise.torch.autocast import any_autocast, cast, casts, is_under_autocast, without_autocast
from tilewise.torch.call_cache import (
    CallCache,
    LayerCaches,
    LookedUp,
    Multiplier,
    gradient_of_bias,
    gradient_of_weight,
    gradient_of_x,
    is_unseen,
    may_be_cached,
    with_cache,
)
from tilewise.torch.column_sums import column_sums
from tilewise.torch.gradient import Sides
from tilewise.torch.linear_operator import (
    BIASED,
    OPERATOR,
    WITH_ANY_BIAS,
    check_features,
    check_weight,
)
from tilewise.torch.operator import check_tensors, matmul, overridden, route_of_plain
from tilewise.torch.transformed import is_batched, is_legacy_batched, pytorch_matmul

Tensor = Any
_LINEAR = ("linear",)


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
    if any_autocast() and may_be_cached() and (found := casts((x, weight))) is not None:
        place, given = found
        return without_autocast(place, _linear, *given, bias, weight, True)
    return _linear(x, weight, bias, weight, False)


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, parameter: Tensor, is_cast: bool
) -> Tensor:
    """Compute :func:`linear`.

    ``parameter`` is the weight that was given, by which the cached call is found. ``is_cast`` says
    whether autocast has cast X and the weight; then the bias may have another dtype.
    """
    way = None
    if may_be_cached():
        given = (x, weight) if bias is None else (x, weight, bias)
        cache = _layers.get(id(parameter))
        if cache is not None and (cached := cache.cached) is not None:
            addresses = cached.addresses(is_cast, given)
            result = None if addresses is None else cached.records[0].run(addresses)
            if result is not None:
                if cached.requires_grad and _is_grad_enabled():
                    return _record([result, cached.facts], *given)
                return result
        way = route_of_plain(given)
    if way is None:
        if not isinstance(x, torch.Tensor) and (found := overridden(linear, (x, weight, bias))):
            return found[0]
        way = route(x, weight, bias)
    if way is DIRECT or way is RECORDED:
        return _where_it_lies(x, weight, bias, parameter, is_cast, way is RECORDED)
    is_autocast = is_under_autocast(x)
    check(x, weight, bias, is_cast or is_autocast)
    if torch.compiler.is_compiling():
        if is_autocast:
            x, weight, _ = cast(x, weight, None, None)
        return OPERATOR(x, weight, bias)
    if bias is None:
        return matmul(x, weight, transpose_b=True)
    # The bias is added to the accumulators, so that 16-bit results are rounded once.
    return matmul(x, weight, transpose_b=True, epilogue=BIASED, bias=bias)


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
    check_weight("weight", weight)
    check_features(x, "weight", weight)
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


_layers = LayerCaches()


def _where_it_lies(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parameter: Tensor,
    is_cast: bool,
    is_recorded: bool,
) -> Tensor:
    """Multiply by kernels, which add the bias, and let autograd record it if ``is_recorded``."""
    given = (x, weight) if bias is None else (x, weight, bias)

    def multiply(*_: Tensor, key: Key | None) -> Tensor:
        check(x, weight, bias, is_cast)
        asked = None if bias is None else Asked(BIASED.traced, (bias,))
        with torch.no_grad():
            return answer(x, weight, transpose_b=True, asked=asked, key=key)

    products = LookedUp()
    result = products(WITH_ANY_BIAS if is_cast else _LINEAR, given, multiply)
    cache = _layers.of(parameter)
    is_by_columns = weight.stride(0) == 1 != weight.stride(1)
    facts = cache.backward, is_by_columns, None if bias is None else bias.dtype
    cache.learn(is_cast, given, products.records, facts)
    return _record([result, facts], *given) if is_recorded else result


class _Layer(torch.autograd.Function):  # type: ignore[misc]
    """A layer that autograd records after its result was computed.

    If G is the gradient of the result, then that of X is G W, that of W is G^T X, and that of the
    bias is the sum of G's rows. For second derivatives autograd records these products, too.
    """

    @staticmethod
    def forward(
        ctx: Any, made: list[Any], x: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """Return the result, which was computed before: ``made`` is the result and the facts.

        ``made`` is a list because autograd does not look for inputs in lists. The facts are the
        cache of the backward pass, whether the weight is column-major, and the dtype of the bias.
        """
        # ``ctx.save_for_backward`` only sets ``to_save``; to set it here saves the call. The
        # tensors' ``requires_grad`` says the same as ``ctx.needs_input_grad``, in less time.
        ctx.to_save = (x if weight.requires_grad else None, weight if x.requires_grad else None)
        result, ctx.facts = made
        return result

    @staticmethod
    def backward(ctx: Any, of_d: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of X, the weight and the bias; None for those not needed."""
        x, weight = ctx.saved_tensors
        _, needs_x, needs_weight, *needs_bias = ctx.needs_input_grad
        x, weight = x if needs_weight else None, weight if needs_x else None
        cache, is_by_columns, dtype = ctx.facts
        kind = dtype if needs_bias == [True] else None
        if may_be_cached() and not (_is_grad_enabled() or is_legacy_batched(of_d)):
            found = _gradients(cache, of_d, x, weight, kind, is_by_columns)
            if found is not None:
                return None, *found
        of_bias = None if kind is None else _of_bias(of_d, kind)
        if x is not None and weight is not None:
            of_d = aligned(of_d, weight.shape[1])
        again = pytorch_matmul if is_batched(of_d) else matmul
        of_x = None if weight is None else again(of_d, weight)
        of_weight = None
        if x is not None:
            shapes = x.shape, (of_d.shape[-1], x.shape[-1])
            sides = Sides(shapes, x.dtype, (False, True), (False, is_by_columns), 1.0)
            of_weight = sides.of_b(of_d, x, again)
        return None, of_x, of_weight, of_bias


def _gradients(
    cache: CallCache,
    of_d: Tensor,
    x: Tensor | None,
    weight: Tensor | None,
    kind: Any,
    is_by_columns: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None] | None:
    """Return the gradients of X, the weight and the bias, which autograd does not record.

    The result is None if something of PyTorch's sees the products (:func:`is_unseen`). ``kind`` is
    the dtype of the bias; None if its gradient is not needed.
    """
    g = of_d if x is None or weight is None else aligned(of_d, weight.shape[1])
    has_sums = kind is not None and g is of_d and g.ndim > 1
    of_bias = None if kind is None or has_sums else _of_bias(of_d, kind)
    given = [each for each in (g, x, weight) if each is not None]
    form, cached = (weight is None, x is None, not has_sums, is_by_columns, kind), cache.cached
    if cached is not None and cached.is_whole and (at := cached.addresses(form, given)) is not None:
        # This does what `with_cache` and `compute` do below, without calls and without looking at
        # the tensors again for each product, because short backward passes wait for the host.
        of_x = of_weight = of_sums = None
        records = iter(cached.records)
        if weight is not None:
            of_x = next(records).run([at[0], at[-1]])
        if x is not None:
            of_weight = next(records).run(at[1::-1] if is_by_columns else at[:2])
        if has_sums:
            of_sums = next(records).run(at[:1])
        if (of_x is None, of_weight is None, of_sums is None) == form[:3]:  # none is planned anew
            if is_by_columns and of_weight is not None:
                of_weight = of_weight.mT
            return of_x, of_weight, of_sums if has_sums else of_bias
    # This is asked only now, because a cached call fits no tensors whose products would be seen.
    if not is_unseen((of_d, x, weight)):
        return None

    def compute(product: Multiplier) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return (
            None if weight is None else gradient_of_x(product, g, weight),
            None if x is None else gradient_of_weight(product, g, x, is_by_columns=is_by_columns),
            gradient_of_bias(product, g, kind) if has_sums else of_bias,
        )

    found: tuple[Tensor | None, Tensor | None, Tensor | None] = with_cache(
        cache, form, given, compute
    )
    return found


def _of_bias(of_d: Tensor, kind: Any) -> Tensor:
    """Return the gradient of the bias from that of the result, in the dtype of the bias."""
    return column_sums(of_d, kind) if of_d.ndim > 1 else of_d.to(kind)


# ``_Layer.apply`` without its test for wrappers of torch.func's, which ``route`` has excluded.
_record = super(torch.autograd.Function, _Layer).apply
_is_grad_enabled = torch.is_grad_enabled


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
