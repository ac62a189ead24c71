"""``tilewise::fused_matmul``, an operator of PyTorch's for a product with an epilogue.

The operator takes the epilogue as the text of a traced function (:mod:`tilewise.epilogue.written`),
so a graph that is kept on disk, or compiled in another process, contains the whole function.

References
----------
PyTorch, "The Custom Operators Manual"; ``torch.library``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tilewise.arrays.call import dtypes, shapes
from tilewise.arrays.dispatched import answer, is_transformed
from tilewise.arrays.fusion import APART, Asked
from tilewise.arrays.libraries import dtype_name, library_of
from tilewise.epilogue import Epilogue, Traced
from tilewise.epilogue.derivative import trained
from tilewise.epilogue.written import KEPT, read
from tilewise.gemm.fused import MOST
from tilewise.gemm.product import ACCUMULATORS
from tilewise.shown import plural
from tilewise.torch.below_autograd import below_autograd
from tilewise.torch.by_pytorch import by_pytorch
from tilewise.torch.fused import Fused, Fusing
from tilewise.torch.transformed import pytorch_matmul

Tensor = Any

_library = torch.library.Library("tilewise", "FRAGMENT")
_library.define(
    "fused_matmul(Tensor a, Tensor[] b, Tensor? c, Tensor[] operands, str function, *, "
    "int[] wanted, int[] places, float[] numbers, float alpha=1, float beta=0, str? pairs=None, "
    "ScalarType? out_dtype=None) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
OPERATOR = torch.ops.tilewise.fused_matmul.default


def with_numbers(
    operands: Sequence[Tensor], places: Sequence[int], numbers: Sequence[float]
) -> tuple[Tensor | float, ...]:
    """Return an epilogue's operands in its order: numbers at ``places``, tensors elsewhere."""
    at, rest = dict(zip(places, numbers, strict=True)), iter(operands)
    return tuple(at[i] if i in at else next(rest) for i in range(len(operands) + len(at)))


def _kernel(
    a: Tensor,
    b: Sequence[Tensor],
    c: Tensor | None,
    operands: Sequence[Tensor],
    function: str,
    *,
    wanted: Sequence[int],
    places: Sequence[int],
    numbers: Sequence[float],
    alpha: float = 1.0,
    beta: float = 0.0,
    pairs: str | None = None,
    out_dtype: Any = None,
) -> list[Tensor]:
    of_b = tuple(b) if pairs == APART else b[0]
    every = with_numbers(operands, places, numbers) if places else tuple(operands)
    made, are_too_many = _stored(function, tuple(wanted), len(operands))
    if are_too_many:
        # A kernel can't store so many results, so it stores the sums, and PyTorch does the rest.
        wide = ACCUMULATORS[dtype_name(a.dtype)]
        kind = a.dtype if out_dtype is None else out_dtype
        of_c = None if c is None else c.to(getattr(torch, wide))
        sums = Asked(_SUMS[pairs is not None], (), pairs)
        acc = answer(a, of_b, of_c, alpha=alpha, beta=beta, out_dtype=wide, asked=sums)
        given = [x if isinstance(x, float) else x.to(acc[0].dtype) for x in every]
        found = made.evaluate(acc[0] if pairs is None else acc, given)
        return [x.expand(acc[0].shape).to(kind, copy=True) for x in found]
    asked = Asked(made, every, pairs)
    return list(answer(a, of_b, c, alpha=alpha, beta=beta, out_dtype=out_dtype, asked=asked))


@lru_cache(maxsize=KEPT)
def _stored(function: str, wanted: tuple[int, ...], arrays: int) -> tuple[Traced, bool]:
    """Return the function with the results that training needs, and whether these are too many.

    They are if a kernel can store the results of the function itself, but not the others as well.
    """
    traced = read(function)
    are_too_many = fits(traced, (), arrays) and not fits(traced, wanted, arrays)
    return trained(traced, wanted).forward, are_too_many


_SUMS = (
    Epilogue(lambda acc: (acc,)).traced,
    Epilogue(lambda gate, up: (gate, up), pairs=True).traced,
)


def fits(function: Traced, wanted: Sequence[int], arrays: int) -> bool:
    """Return whether a kernel can store what training needs besides ``arrays`` operands."""
    return arrays + len(trained(function, tuple(wanted)).forward.results) - 1 <= MOST


def _transformed(
    a: Tensor,
    b: Sequence[Tensor],
    c: Tensor | None,
    operands: Sequence[Tensor],
    function: str,
    *,
    wanted: Sequence[int],
    places: Sequence[int],
    numbers: Sequence[float],
    pairs: str | None = None,
    out_dtype: Any = None,
    **scalars: float,
) -> list[Tensor]:
    """Compute the operator by PyTorch's own functions."""
    made = trained(read(function), tuple(wanted)).forward
    asked = Asked(made, with_numbers(operands, places, numbers), pairs)
    sums = partial(pytorch_matmul, **scalars)
    with torch._C._DisableAutocast():
        of_b = tuple(b) if pairs == APART else b[0]
        found = by_pytorch(a, of_b, c, asked, sums, out_dtype)
    return list(found) if made.is_tuple else [found]


def result_of(
    a: Tensor, b: Sequence[Tensor], c: Tensor | None, pairs: str | None, out_dtype: Any
) -> tuple[tuple[int, ...], Any]:
    """Return the shape and dtype of the results, and raise as :func:`tilewise.matmul` does."""
    library = library_of(a)
    assert library is not None
    for x in b:
        _, name = dtypes(library, a, x, c, (), out_dtype)
        if x.shape != b[0].shape:
            raise ValueError(f"b[0] has shape {tuple(b[0].shape)} and b[1] {tuple(x.shape)}")
    shape = shapes(a.shape, b[0].shape, False, False)[-1]
    if pairs is not None and pairs != APART:
        columns = shape[-1] if b[0].ndim > 1 else 1
        if columns % 2:
            raise ValueError(f"op(B) has {plural(columns, 'column')}, which can't be pairs")
        shape = (*shape[:-1], columns // 2)
    if pairs is not None and c is not None:
        raise ValueError("a product with pairs takes no C; pass it as an operand of the epilogue")
    if c is not None and tuple(c.shape) != shape:
        raise ValueError(f"c has shape {tuple(c.shape)}; the result has {shape}")
    return shape, getattr(torch, name)


def check_operands(a: Tensor, shape: tuple[int, ...], named: Sequence[tuple[str, Tensor]]) -> None:
    """Raise ValueError if an operand is on another device or does not broadcast to the result."""
    for name, x in named:
        if x.device != a.device:
            raise ValueError(f"a is on {a.device} and {name} on {x.device}; pass them in one place")
        try:
            is_right = torch.broadcast_shapes(x.shape, shape) == shape
        except RuntimeError:
            is_right = False
        if not is_right:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}, which does not broadcast to the result's "
                f"{tuple(shape)}"
            )


def _shaped(
    a: Tensor,
    b: Sequence[Tensor],
    c: Tensor | None,
    operands: Sequence[Tensor],
    function: str,
    *,
    wanted: Sequence[int],
    places: Sequence[int],
    numbers: Sequence[float],
    alpha: float = 1.0,
    beta: float = 0.0,
    pairs: str | None = None,
    out_dtype: Any = None,
) -> list[Tensor]:
    """Return results without values, for ``torch.library.register_fake``."""
    shape, dtype = result_of(a, b, c, pairs, out_dtype)
    traced = read(function)
    every = with_numbers(operands, places, numbers)
    named = [
        (name, x)
        for name, x in zip(traced.operands, every, strict=True)
        if isinstance(x, torch.Tensor)
    ]
    for what, x in [
        *((f"b[{i}]", x) for i, x in enumerate(b)),
        *([("c", c)] if c is not None else []),
    ]:
        if x.device != a.device:
            raise ValueError(
                f"the arrays must lie in one place, not a on {a.device}, {what} on {x.device}"
            )
    if beta != 0 and c is None:
        raise ValueError(f"beta is {beta}, and there is no C to multiply; give c, or beta 0")
    check_operands(a, tuple(shape), named)
    results = trained(traced, tuple(wanted)).forward.results
    return [a.new_empty(shape, dtype=dtype) for _ in results]


def _recorded(
    keys: Any,
    a: Tensor,
    b: Sequence[Tensor],
    c: Tensor | None,
    operands: Sequence[Tensor],
    function: str,
    *,
    wanted: Sequence[int],
    places: Sequence[int],
    numbers: Sequence[float],
    alpha: float = 1.0,
    beta: float = 0.0,
    pairs: str | None = None,
    out_dtype: Any = None,
) -> list[Tensor]:
    """Record the operator for autograd if needed, and call the operator below autograd."""
    if is_transformed(torch):
        return _transformed(
            a, b, c, operands, function, wanted=wanted, places=places, numbers=numbers, alpha=alpha,
            beta=beta, pairs=pairs, out_dtype=out_dtype,
        )  # fmt: skip

    def below(_: Any) -> list[Tensor]:
        found: list[Tensor] = below_autograd(
            keys, OPERATOR, _kernel, a, b, c, operands, function, wanted=wanted, places=places,
            numbers=numbers, alpha=alpha, beta=beta, pairs=pairs, out_dtype=out_dtype,
        )  # fmt: skip
        return found

    if not torch.is_grad_enabled():
        return below(None)
    tensors = (a, *b, *(() if c is None else (c,)), *operands)
    if not any(x.requires_grad for x in tensors):
        return below(None)
    every = with_numbers([None] * len(operands), places, numbers)
    asked = Fusing(read(function), pairs, every, c is not None, alpha, beta)
    missing = set(asked.wanted([x.requires_grad for x in tensors])).difference(wanted)
    if missing:
        raise ValueError(
            f"tensors require gradients, for which derivatives {sorted(missing)} are needed; "
            f"wanted is {list(wanted)}"
        )
    return list(Fused.apply(asked, tuple(wanted), below, torch.ops.tilewise.matmul, *tensors))


for _key in ("CPU", "CUDA"):
    _library.impl("fused_matmul", _kernel, _key)
_library.impl("fused_matmul", _recorded, "Autograd", with_keyset=True)
_library.impl("fused_matmul", _transformed, "FuncTorchBatched")
torch.library.register_fake("tilewise::fused_matmul", _shaped, lib=_library)


@register_flop_formula(torch.ops.tilewise.fused_matmul)  # type: ignore[untyped-decorator]
def _operations(
    a: tuple[int, ...], b: Sequence[tuple[int, ...]], *_: Any, out_shape: Any = None, **options: Any
) -> int:
    """Return the number of operations, for ``FlopCounterMode``, which passes shapes."""
    m, n, k, batch, _shape = shapes(a, b[0], False, False)
    return 2 * m * n * k * math.prod(batch) * len(b)
