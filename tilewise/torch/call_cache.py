"""A cache of the launches of layers, so that a call like an earlier one only launches.

:mod:`tilewise.arrays.repeat` finds the launches of one product by a key, which is made of every
array's shape, strides and dtype. A layer is called with the same weight again and again, so its
cached call is found by the weight, and ``torch._C._dynamo.guards.TensorGuards``, by which Dynamo
checks its guards, compares all tensors with those of the cached call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from typing import Any

import torch

from tilewise.arrays.dispatched import answer, seen_by
from tilewise.arrays.invariance import Default, is_invariant
from tilewise.arrays.repeat import Key, Repeat, also_forgets, kept, look
from tilewise.gemm.product import ALIGNMENT
from tilewise.torch.column_sums import column_sums
from tilewise.torch.transformed import PLAIN, is_legacy_batched

Tensor = Any
Multiplier = Callable[[tuple[Hashable, ...], Sequence[Tensor], Callable[..., Any]], Any]
"""A function that returns the results of a product, called as ``product(how, tensors, multiply)``.

``how`` decides the launches together with the tensors. ``multiply(*tensors, key=key)`` computes the
product if no launches are cached for it, and keeps its launches by ``key``, unless that is None."""

LAYERS = 4096


class _Planned:
    """Stands for a product that has no record, because it must be planned at each call."""

    def run(self, addresses: Sequence[int]) -> None:
        """Launch nothing."""


PLANNED = _Planned()
Record = Repeat | _Planned
POINTER = torch.Tensor.data_ptr


class LookedUp:
    """Computes products, looks each one up by its own key, and collects their records.

    Attributes
    ----------
    records : list of (Repeat or _Planned)
        The record of each of them after the call, in order.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(
        self,
        how: tuple[Hashable, ...],
        tensors: Sequence[Tensor],
        multiply: Callable[..., Any],
    ) -> Any:
        """Return the results of a product.

        Parameters
        ----------
        how : tuple
            What decides the launches besides the tensors.
        tensors : sequence of Tensor
            In the order of :func:`tilewise.arrays.repeat.find`.
        multiply : callable
            Called as ``multiply(*tensors, key=key)`` if the product is not known; keeps its
            launches by the key, unless that is None.
        """
        key, again, addresses = look((*how, is_invariant(None)), tensors)
        result = None if again is None else again.run(addresses)
        if result is None:
            result = multiply(*tensors, key=key)
            again = None if key is None else kept(key)
        self.records.append(PLANNED if again is None else again)
        return result


class CachedCall:
    """The launches of a call, and guards that tell whether a later call can repeat them.

    It can't if ``form``, the setting of ``invariant`` or anything that :func:`recognizer` compares
    differs, or if a tensor is not aligned: :meth:`addresses` then returns None.

    Parameters
    ----------
    form : hashable
        What decides the products besides the tensors.
    tensors : sequence of Tensor
        The tensors from outside; the others that the products read are results of theirs.
    records : sequence of (Repeat or _Planned)
        The products, in the order in which they are computed.

    Attributes
    ----------
    requires_grad : bool
        Whether a tensor does.
    is_whole : bool
        Whether all products are launched again, and none is planned at each call.
    facts : object
        What else is the same in such a call.
    """

    __slots__ = (
        "count",
        "facts",
        "form",
        "is_invariant",
        "is_like",
        "is_whole",
        "records",
        "requires_grad",
    )

    def __init__(
        self, form: Hashable, tensors: Sequence[Tensor], records: Sequence[Record], facts: Any
    ) -> None:
        self.facts = facts
        self.count, self.form = len(tensors), form
        self.is_like = recognizer(tensors)
        self.is_invariant = is_invariant(None)
        self.records = tuple(records)
        self.is_whole = all(x is not PLANNED for x in records)
        self.requires_grad = any(x.requires_grad for x in tensors)

    def addresses(self, form: Hashable, tensors: Sequence[Tensor]) -> list[int] | None:
        """Return the tensors' addresses; None if other products are launched of them."""
        if len(tensors) != self.count or form != self.form:
            return None
        if Default.is_on is not self.is_invariant or not self.is_like(*tensors):
            return None
        found, bits = [*map(POINTER, tensors)], 0
        for each in found:
            bits |= each
        return None if bits % ALIGNMENT else found

    def products(self) -> Multiplier:
        """Return a function that launches the products again, one at each call."""
        records = iter(self.records)

        def again(_: Any, tensors: Sequence[Tensor], multiply: Callable[..., Any]) -> Any:
            found = next(records).run([*map(POINTER, tensors)])
            return multiply(*tensors, key=None) if found is None else found

        return again


class CallCache:
    """The cached call of one forward or backward pass: the latest that was launched twice in a row.

    It stays until another call is launched twice in a row. The products of any other call are
    looked up one by one.

    Attributes
    ----------
    cached : CachedCall or None
        None until a call was launched twice in a row.
    """

    __slots__ = ("_records", "cached")

    def __init__(self) -> None:
        self.cached: CachedCall | None = None
        self._records: tuple[Record, ...] = ()

    def learn(
        self,
        form: Hashable,
        tensors: Sequence[Tensor],
        records: Sequence[Record],
        facts: Any = None,
    ) -> None:
        """Record the products of a call that :attr:`cached` did not fit; cache it if it recurs."""
        before, self._records = self._records, tuple(records)
        if len(before) != len(records) or all(x is PLANNED for x in records):
            return
        if len({*map(id, tensors)}) < len(tensors):
            return  # guards take no tensor twice
        alike = all(x is y for x, y in zip(before, self._records, strict=True))
        if alike and not any(x.data_ptr() % ALIGNMENT for x in tensors):
            self.cached = CachedCall(form, tensors, records, facts)


class LayerCache(CallCache):
    """The cached call of a layer's forward pass, and that of its backward pass.

    Attributes
    ----------
    backward : CallCache
        The cache of the backward pass.
    """

    __slots__ = ("backward",)

    def __init__(self) -> None:
        super().__init__()
        self.backward = CallCache()


class LayerCaches(dict[int, LayerCache]):
    """The cache of each layer, by the ``id`` of its weight.

    :func:`tilewise.arrays.repeat.forget` drops all of them, because later calls are planned anew.
    An ``id`` may belong to a new tensor: :meth:`CachedCall.addresses` compares the tensors
    themselves, and ``form``, which has all else that decides the products.
    """

    def __init__(self) -> None:
        super().__init__()
        also_forgets(self.clear)

    def of(self, weight: Tensor) -> LayerCache:
        """Return the cache of the layer with a weight."""
        found = self.get(id(weight))
        if found is None:
            if len(self) >= LAYERS:
                self.clear()
            found = self.setdefault(id(weight), LayerCache())
        return found


def with_cache(
    cache: CallCache,
    form: Hashable,
    tensors: Sequence[Tensor],
    compute: Callable[[Multiplier], Any],
) -> Any:
    """Return ``compute(product)``, where ``product`` is a :data:`Multiplier`.

    If the cached call fits, ``product`` repeats its launches; otherwise it looks each product up.

    Parameters
    ----------
    cache : CallCache
    form, tensors
        What decides the products, as for :class:`CachedCall`.
    compute : callable
        Calls ``product`` once for each product, in the same order for the same form.
    """
    cached = cache.cached
    if cached is not None and cached.addresses(form, tensors) is not None:
        return compute(cached.products())
    products = LookedUp()
    result = compute(products)
    cache.learn(form, tensors, products.records)
    return result


def recognizer(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Return a function that tells whether tensors differ from these by their addresses alone.

    It compares their types, dtypes, devices, shapes, strides, whether they require a gradient, and
    whether they are lazily negated; and whether anything of PyTorch's sees calls with them. It
    keeps no tensor.
    """
    if _has_guards():
        return _guarding(tensors)
    wanted = _described(tensors)

    def is_like(*others: Any) -> bool:
        if seen_by(torch) is not None or not all(isinstance(x, torch.Tensor) for x in others):
            return False
        return _described(others) == wanted

    return is_like


def _described(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(
        (type(x), x.dtype, x.device, x.shape, x.stride(), x.requires_grad, x.is_neg())
        for x in tensors
    )


def _guarding(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    guards = torch._C._dynamo.guards.TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(x.shape) for x in tensors],
        dynamic_dims_strides=[list(x.stride()) for x in tensors],
    )
    found: Callable[..., bool] = guards.check
    return found


@cache
def _has_guards() -> bool:
    """Return whether PyTorch has these guards, and they tell what :func:`recognizer` has to."""
    try:
        with torch.enable_grad():
            x = torch.empty(2, 3, dtype=torch.float32, device="cpu")
            is_like = _guarding([x])
            others: list[Any] = [
                x[:1], x.new_empty(3, 2).mT, x.double(), x.to("meta"), x.clone().requires_grad_(),
                torch.nn.Parameter(x, requires_grad=False), torch._neg_view(x), None,
            ]  # fmt: skip
            with torch.autocast("cpu", torch.bfloat16):
                is_autocast_alike = is_like(x)
            is_right = is_like(x.clone()) and not any(is_like(each) for each in others)
            return is_right and not is_autocast_alike
    except Exception:  # another version of PyTorch has other ones, or none
        return False


def is_unseen(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether nothing of PyTorch's sees products of these tensors that are computed now.

    Neither autograd records them, nor a mode, a transformation or the type of a tensor sees them.
    The first tensor is a gradient, which may be batched; the others were saved by the forward pass.
    """
    if torch.is_grad_enabled() or not may_be_cached():
        return False
    if not _PLAIN_OR_NONE.issuperset(map(type, tensors)) or is_legacy_batched(tensors[0]):
        return False
    return not (_any_autocast() or _tracing() is not None or _level() is not None)


def may_be_cached() -> bool:
    """Return whether a cached call may be repeated, as far as that does not depend on the tensors.

    It may not while PyTorch compiles, in a mode that sees operators, and in forward-mode
    differentiation. Autocast, tracing and the transformations of ``torch.func`` change which
    dispatch keys tensors have, and these are compared by :meth:`CachedCall.addresses`.
    """
    # ``torch.compiler.is_compiling`` is true in a non-strict export too, but takes longer. Such an
    # export is seen here by its dispatch mode, which ``_modes`` counts.
    return not (_is_compiling() or _modes() or _forward_mode._current_level >= 0)


_PLAIN_OR_NONE = PLAIN | {type(None)}
_is_compiling = torch.compiler.is_dynamo_compiling
_modes, _forward_mode = torch._C._len_torch_dispatch_stack, torch.autograd.forward_ad
_any_autocast, _tracing = torch._C._is_any_autocast_enabled, torch._C._get_tracing_state
_level = torch._C._functorch.maybe_current_level

OF_X, OF_X_ADDED = ("of x",), ("of x, added",)
OF_WEIGHT, OF_WEIGHT_BY_COLUMNS = ("of weight",), ("of weight, by columns",)


def gradient_of_x(
    product: Multiplier, g: Tensor, weight: Tensor, onto: Tensor | None = None
) -> Tensor:
    """Return G W, the gradient of X by that of X W^T, plus ``onto``, X's other gradient."""
    if onto is None:
        return product(OF_X, (g, weight), answer)
    return product(OF_X_ADDED, (g, weight, onto), _added)


_added = partial(answer, beta=1.0)


def gradient_of_bias(product: Multiplier, g: Tensor, dtype: Any) -> Tensor:
    """Return the sums of the rows of G, the gradient of a bias by that of X W^T + bias."""
    return product(("column sums", dtype), (g,), partial(column_sums, dtype=dtype))


def gradient_of_weight(
    product: Multiplier, g: Tensor, x: Tensor, *, is_by_columns: bool = False
) -> Tensor:
    """Return G^T X, the gradient of a weight by that of X W^T; column-major if the weight is.

    Autograd copies a gradient that has other strides than its parameter.
    """
    if is_by_columns:
        return product(OF_WEIGHT_BY_COLUMNS, (x, g), _transposed).mT
    return product(OF_WEIGHT, (g, x), _transposed)


def _transposed(a: Tensor, b: Tensor, key: Key | None) -> Tensor:
    """Return A^T B, (m, n), of A, (..., m), and B, (..., n), as matrices of rows."""
    rows = [x.unsqueeze(0) if x.ndim == 1 else x.flatten(0, -2) for x in (a, b)]
    # A cached launch is given the addresses of A and B, and not that of a copy made here.
    if any(x.data_ptr() != y.data_ptr() for x, y in zip(rows, (a, b), strict=True)):
        key = None
    return answer(*rows, transpose_a=True, key=key)
