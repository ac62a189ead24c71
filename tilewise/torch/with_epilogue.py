"""Products with an epilogue that PyTorch's autograd, autocast, modes or graphs have to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from tilewise.arrays import fusion, own_product
from tilewise.arrays.call import dtypes
from tilewise.arrays.dispatched import DIRECT, Route, answer, route
from tilewise.arrays.fusion import APART, Asked
from tilewise.arrays.libraries import dtype_name, library_of
from tilewise.epilogue import Epilogue
from tilewise.epilogue.traced import registered
from tilewise.epilogue.written import written
from tilewise.gemm.product import ACCUMULATORS
from tilewise.shown import plural
from tilewise.torch.autocast import cast, is_under_autocast
from tilewise.torch.fused import Fused, Fusing
from tilewise.torch.fused_operator import OPERATOR, fits
from tilewise.torch.graphs import constant_in_graphs
from tilewise.torch.transformed import is_batched, pytorch_matmul

Tensor = Any


def recorded(
    way: Route,
    a: Tensor,
    b: Any,
    c: Tensor | None,
    asked: Asked,
    matmul: Callable[..., Tensor],
    alpha: float,
    beta: float,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: Any,
    place: Mapping[str, Any],
) -> Any:
    """Compute a product with an epilogue by the route that PyTorch's state requires.

    Parameters
    ----------
    way : Route
    a, b, c, alpha, beta, transpose_a, transpose_b, out_dtype
        The arguments of :func:`tilewise.matmul`.
    asked : Asked
        The epilogue.
    matmul : callable
        :func:`tilewise.torch.matmul`, for the products of the gradients.
    place : mapping
        The caller's ``device`` and ``max_gpu_memory``.
    """
    if way is Route.TRANSFORMED:
        sums = partial(
            matmul, alpha=alpha, beta=beta, transpose_a=transpose_a, transpose_b=transpose_b,
            **place,
        )  # fmt: skip
        return by_pytorch(a, b, c, asked, sums, out_dtype)
    if is_under_autocast(a):
        _check_place(place)
        a, b, c = cast(a, b, c, out_dtype)
        with torch.autocast(a.device.type, enabled=False):
            way = route(a, b, c, *asked.operands)
            return recorded(
                way, a, b, c, asked, matmul, alpha, beta, transpose_a, transpose_b, out_dtype, place
            )  # fmt: skip
    if way is DIRECT:
        return answer(
            a, b, c, alpha, beta, transpose_a, transpose_b, out_dtype=out_dtype, asked=asked
        )
    of_b = b if asked.pairs == APART else (b,)
    tensors = [a, *of_b, *(() if c is None else (c,))]
    tensors += [x for x in asked.operands if isinstance(x, torch.Tensor)]
    fusing = Fusing(
        asked.function, asked.pairs, tuple(map(_number, asked.operands)), c is not None, alpha,
        beta, transpose_a, transpose_b,
    )  # fmt: skip
    is_recorded = torch.is_grad_enabled()
    wanted = fusing.wanted([is_recorded and x.requires_grad for x in tensors])
    if way is Route.GRADIENT and not fits(asked.function, wanted, fusing.numbers.count(None)):
        return recorded(
            Route.TRANSFORMED, a, b, c, asked, matmul, alpha, beta, transpose_a, transpose_b,
            out_dtype, place,
        )  # fmt: skip
    if way is Route.OPERATOR:
        _check_place(place)
        library = library_of(a)
        assert library is not None
        # This raises an error if an operand is wrong, and rounds numbers.
        found = fusion.fusion(library, asked, None, ACCUMULATORS[dtype_name(a.dtype)])
        assert found is not None
        results = _by_operator(
            a, of_b, c, written(asked.function), found.operands, asked.pairs, wanted, alpha, beta,
            transpose_a, transpose_b, out_dtype,
        )  # fmt: skip
        return returned(results, len(asked.function.results), asked.function.is_tuple)

    def direct(made: Asked) -> Any:
        return answer(
            a, b, c, alpha, beta, transpose_a, transpose_b, out_dtype=out_dtype, asked=made, **place
        )

    results = Fused.apply(fusing, wanted, direct, partial(matmul, **place), *tensors)
    return returned(results, len(asked.function.results), asked.function.is_tuple)


def in_graph(
    a: Tensor,
    b: Any,
    c: Tensor | None,
    alpha: float,
    beta: float,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: Any,
    epilogue: Any,
    pairs: str | None,
    operands: Mapping[str, Any],
) -> Any:
    """Compute a product with an epilogue in a graph of ``torch.compile``, by the operator.

    The epilogue is traced when the graph is made, and its text is a constant of the graph.
    """
    of_b = b if type(b) is tuple else (b,)
    made = constants(
        constant_of(epilogue), tuple(operands), len(of_b) if type(b) is tuple else 0, pairs
    )
    text, names, pairs, count, is_tuple, sums = made
    every = [operands[name] for name in names]
    is_recorded = torch.is_grad_enabled()
    if is_under_autocast(a):
        a, b, c = cast(a, b, c, out_dtype)
        of_b = b if type(b) is tuple else (b,)
    matrices = [a, *of_b, *([] if c is None else [c])]
    wanted = list(range(sums)) if is_recorded and any(x.requires_grad for x in matrices) else []
    wanted += [
        sums + i
        for i, x in enumerate(every)
        if is_recorded and isinstance(x, torch.Tensor) and x.requires_grad
    ]
    results = _by_operator(
        a, of_b, c, text, every, pairs, wanted, alpha, beta, transpose_a, transpose_b, out_dtype
    )
    return returned(results, count, is_tuple)


def constant_of(function: Any) -> Any:
    """Return the constant that represents a function in a graph.

    The constant is the function itself, or the key of an Epilogue, because before PyTorch 2.13
    ``torch.compile`` does not take objects of other classes as constants.
    """
    return function.key if isinstance(function, Epilogue) else function


def given_as(constant: Any) -> Any:
    """Return the function, or the activation's name, that was given to :func:`constant_of`."""
    return registered.get(constant, constant) if isinstance(constant, str) else constant


@constant_in_graphs
def constants(epilogue: Any, names: tuple[str, ...], matrices: int, pairs: str | None) -> Any:
    """Return the data that a graph needs about an epilogue whose operands have these names.

    They are the text, the operands' names in the epilogue's order, the pairs, the number of
    results, whether they are a tuple, and the number of sums.
    """
    asked = fusion.asked(
        given_as(epilogue),
        dict.fromkeys(names, 0.0),
        (...,) * matrices if matrices else None,
        pairs,
    )
    assert asked is not None
    function = asked.function
    return (
        written(function), function.operands, asked.pairs, len(function.results),
        function.is_tuple, len(function.sums),
    )  # fmt: skip


def fused(a: Tensor, b: Tensor, c: Tensor | None, asked: Asked) -> tuple[Tensor, ...]:
    """Return A B + C with a traced epilogue that returns a tuple.

    Autograd records it if needed.
    """
    beta = 0.0 if c is None else 1.0
    given = [x for x in (a, c, *asked.operands) if isinstance(x, torch.Tensor)]
    is_transformed = any(map(is_batched, given))
    way = Route.TRANSFORMED if is_transformed else route(a, b, c, *asked.operands)
    place = {"device": "auto", "max_gpu_memory": None}
    found: tuple[Tensor, ...] = recorded(
        way, a, b, c, asked, _product, 1.0, beta, False, False, None, place
    )
    return found


def _product(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0,
    out_dtype: Any = None, **_: Any,
) -> Tensor:  # fmt: skip
    kind = None if out_dtype is None else getattr(torch, dtype_name(out_dtype))
    has_batched = is_batched(a) or (c is not None and is_batched(c))
    again = pytorch_matmul if has_batched else torch.ops.tilewise.matmul
    return again(a, b, c, alpha=alpha, beta=beta, out_dtype=kind)


def returned(results: Sequence[Tensor], count: int, is_tuple: bool) -> Any:
    """Return an epilogue's own results, which are the first ``count`` of ``results``."""
    return tuple(results[:count]) if is_tuple else results[0]


def _by_operator(
    a: Tensor,
    b: Sequence[Tensor],
    c: Tensor | None,
    text: str,
    operands: Sequence[Any],
    pairs: str | None,
    wanted: Sequence[int],
    alpha: float,
    beta: float,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: Any,
) -> Any:
    if transpose_a and a.ndim > 1:
        a = a.mT
    if transpose_b and b[0].ndim > 1:
        b = [x.mT for x in b]
    arrays = [x for x in operands if isinstance(x, torch.Tensor)]
    places = [i for i, x in enumerate(operands) if not isinstance(x, torch.Tensor)]
    numbers = [float(operands[i]) for i in places]
    kind = None if out_dtype is None else getattr(torch, dtype_name(out_dtype))
    return OPERATOR(
        a, list(b), c, arrays, text, wanted=list(wanted), places=places, numbers=numbers,
        alpha=alpha, beta=beta, pairs=pairs, out_dtype=kind,
    )  # fmt: skip


def _number(x: Any) -> Any:
    """Return an operand that is a number as a float; None for a tensor."""
    if isinstance(x, torch.Tensor):
        return None
    is_number = isinstance(x, int | float | np.number) and not isinstance(x, bool)
    return float(x) if is_number else x  # other objects are refused with the other operands


def _check_place(place: Mapping[str, Any]) -> None:
    if place["device"] != "auto" or place["max_gpu_memory"] is not None:
        raise ValueError(
            "under autocast, in PyTorch's modes and in torch.func's transformations, tensors "
            "are multiplied where they lie; give neither device nor max_gpu_memory"
        )


def by_pytorch(
    a: Tensor,
    b: Any,
    c: Tensor | None,
    asked: Asked,
    sums: Callable[..., Tensor],
    dtype: Any,
) -> Any:
    """Apply an epilogue to unrounded sums by PyTorch's functions, which have gradients."""
    of_b: Sequence[Tensor] = b if asked.pairs == APART else (b,)
    if len(of_b) == 2 and of_b[0].shape != of_b[1].shape:
        raise ValueError(f"b[0] has shape {tuple(of_b[0].shape)} and b[1] {tuple(of_b[1].shape)}")
    if asked.pairs is not None and c is not None:
        raise ValueError("a product with pairs takes no C; pass it as an operand of the epilogue")
    library = library_of(a)
    assert library is not None
    if is_under_autocast(a):
        a, b, c = cast(a, b, c, dtype)
        of_b = b if asked.pairs == APART else (b,)
    _, name = dtypes(library, a, of_b[-1], c, (), dtype)
    kind, wide = getattr(torch, name), ACCUMULATORS[name]
    found = fusion.fusion(library, asked, None, wide)
    assert found is not None
    c = None if c is None else c.to(getattr(torch, wide))
    of_each = [sums(a, x, c, out_dtype=wide) for x in of_b]
    acc, shape = of_each[0], of_each[0].shape
    if asked.pairs is not None:
        acc = tuple(of_each) if len(of_b) == 2 else _parted(acc, asked.pairs)
        shape = acc[0].shape
    for name, x in found.arrays:
        fusion.check_shape(name, x, tuple(shape))
        if x.device != a.device:
            raise ValueError(f"a is on {a.device} and {name} on {x.device}; pass them in one place")
    results = [x.expand(shape).to(kind) for x in found.evaluated(library, acc, wide)]
    return tuple(results) if asked.function.is_tuple else results[0]


def _parted(sums: Tensor, order: str) -> tuple[Tensor, Tensor]:
    """Return the columns of gate, and those of up, of a tensor that has both."""
    columns = sums.shape[-1] if sums.ndim else 1
    if columns % 2:
        raise ValueError(f"op(B) has {plural(columns, 'column')}, which can't be pairs")
    return own_product.parted(sums, order, columns // 2)
