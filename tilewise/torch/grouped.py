"""``tilewise::grouped_matmul``, an operator of PyTorch's with gradients, autocast and graphs.

References
----------
PyTorch, "The Custom Operators Manual"; ``torch.library``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tilewise.arrays import dispatched, fusion, grouped
from tilewise.arrays.call import dtypes
from tilewise.arrays.fusion import Asked
from tilewise.arrays.libraries import Array, dtype_name, library_of
from tilewise.devices import Device
from tilewise.gemm.product import ACCUMULATORS
from tilewise.torch.autocast import cast, is_under_autocast
from tilewise.torch.below_autograd import below_autograd
from tilewise.torch.operator import check_not_transformed, check_tensors

Tensor = Any


def grouped_matmul(
    x: Tensor,
    w: Tensor,
    offsets: Tensor,
    *,
    out: Array | Sequence[Array] | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    check_offsets: bool = False,
    epilogue: Callable[..., Any] | None = None,
    **operands: Any,
) -> Any:
    """Return :func:`tilewise.grouped_matmul` of tensors, with gradients.

    In a graph of ``torch.compile`` it is the operator ``torch.ops.tilewise.grouped_matmul``, whose
    gradients are grouped products by the same operator; nothing in it waits for the GPU. Under
    ``torch.autocast`` it multiplies in autocast's dtype.

    Parameters
    ----------
    x, w, offsets, out, out_dtype, device, check_offsets, epilogue, operands
        The arguments of :func:`tilewise.grouped_matmul`. Autograd does not record a product that is
        written to ``out``. An epilogue is part of the kernel unless autograd records it; then
        PyTorch computes it, in the dtype of the sums. With ``out``, ``check_offsets`` or an
        epilogue, ``torch.compile`` ends its graph and begins another after the call.

    Returns
    -------
    Tensor, (rows, n) or (groups, m, n)
        ``out``, or a contiguous tensor.

    Raises
    ------
    TypeError
        If an argument is not a tensor, and as in :func:`tilewise.grouped_matmul`.
    ValueError
        As in :func:`tilewise.grouped_matmul`; if ``out`` is given and a tensor requires a gradient,
        or within a transformation of ``torch.func`` or in forward-mode differentiation; or if
        ``device`` is given and PyTorch has to see the product.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> x, w = torch.ones(3, 2), torch.ones(2, 2, 4, requires_grad=True)  # doctest: +SKIP
    >>> offsets = torch.tensor([1, 3], dtype=torch.int32)  # doctest: +SKIP
    >>> tilewise.torch.grouped_matmul(x, w, offsets).sum().backward()  # doctest: +SKIP
    >>> w.grad[:, 0, 0]  # doctest: +SKIP
    tensor([1., 2.])
    """
    outs = out if isinstance(out, tuple | list) else (out,)
    given = [x for x in operands.values() if isinstance(x, torch.Tensor)]
    check_tensors([("x", x), ("w", w), ("offsets", offsets), *(("out", each) for each in outs)])
    is_more = out is not None or check_offsets or epilogue is not None or bool(operands)
    if torch.compiler.is_compiling() and is_more:
        return _outside_the_graph(
            x, w, offsets, out=out, out_dtype=out_dtype, device=device,
            check_offsets=check_offsets, epilogue=epilogue, **operands,
        )  # fmt: skip
    way = dispatched.route(x, w, offsets, *given)
    if out is not None:
        check_not_transformed(way)
        if torch.is_grad_enabled() and any(
            each is not None and each.requires_grad for each in (x, w, *outs, *given)
        ):
            raise ValueError(
                "autograd can't record a product that is written to out; leave out out=, or call "
                "it under torch.no_grad()"
            )
        way = dispatched.DIRECT
    function = grouped.traced(epilogue, operands) if is_more else None
    if way is dispatched.DIRECT:
        return dispatched.grouped_answer(
            x, w, offsets, out, out_dtype, device, check_offsets, function
        )
    if device != "auto":
        raise ValueError(
            "where PyTorch records a product, tensors are multiplied where they lie; leave out "
            "device"
        )
    if check_offsets:
        total, what = (x.shape[0], "the rows of x") if w.ndim == 3 else (x.shape[1], "its columns")
        grouped.check_ends(offsets.tolist(), total, what)
    kind = None if out_dtype is None else getattr(torch, dtype_name(out_dtype), None)
    if kind is None and out_dtype is not None:
        raise TypeError(f"out_dtype is {out_dtype!r}, which PyTorch has not")
    if function is None:
        return _operator(x, w, offsets, kind)
    return _with_epilogue(x, w, offsets, function, kind)


@torch._disable_dynamo  # type: ignore[untyped-decorator]
def _outside_the_graph(*args: Any, **options: Any) -> Any:
    """Break the graph, because an operator can't take these arguments."""
    return grouped_matmul(*args, **options)


def _with_epilogue(x: Tensor, w: Tensor, offsets: Tensor, asked: Asked, kind: Any) -> Any:
    """Apply an epilogue by PyTorch's functions, which have gradients, to sums in their dtype."""
    library = library_of(x)
    assert library is not None
    dtype = x.dtype
    if is_under_autocast(x) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
    wide = ACCUMULATORS[dtype_name(dtype)]
    found = fusion.fusion(library, asked, None, wide)
    assert found is not None
    acc = _operator(x, w, offsets, getattr(torch, wide))
    groups, values = offsets.shape[0], []
    for name, each in zip(asked.function.operands, found.operands, strict=True):
        value = each
        if not isinstance(each, float):
            if each.device != x.device:
                raise ValueError(f"x is on {x.device} and {name} on {each.device}")
            if w.ndim == 3 and tuple(each.shape) in ((groups, 1, w.shape[-1]), (groups, 1, 1)):
                rows = torch.arange(x.shape[0], device=x.device, dtype=offsets.dtype)
                # An offset smaller than the one before it counts as that one, as in the kernel.
                ends = offsets.cummax(0).values
                of_row = torch.searchsorted(ends, rows, right=True).clamp(max=groups - 1)
                value = each[:, 0][of_row]
            fusion.check_shape(name, value, tuple(acc.shape))
        values.append(value)
    evaluated = found._replace(operands=tuple(values)).evaluated(library, acc, wide)
    results = [each.expand(acc.shape).to(kind or dtype) for each in evaluated]
    return tuple(results) if asked.function.is_tuple else results[0]


_library = torch.library.Library("tilewise", "FRAGMENT")
_library.define(
    "grouped_matmul(Tensor x, Tensor w, Tensor offsets, ScalarType? out_dtype=None) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_operator = torch.ops.tilewise.grouped_matmul.default


def _kernel(x: Tensor, w: Tensor, offsets: Tensor, out_dtype: Any = None) -> Tensor:
    return dispatched.grouped_answer(x, w, offsets, out_dtype=out_dtype)


def _shaped(x: Tensor, w: Tensor, offsets: Tensor, out_dtype: Any = None) -> Tensor:
    """Return a result without values, for graphs; raise the errors of a call."""
    shape, kind = _result_of(x, w, offsets, out_dtype)
    return x.new_empty(shape, dtype=kind)


def _result_of(
    x: Tensor, w: Tensor, offsets: Tensor, out_dtype: Any
) -> tuple[tuple[int, ...], Any]:
    library = library_of(x)
    assert library is not None
    kind = dtypes(library, x, w, None, (), out_dtype, ("x", "w"))[1]
    *_, shape = grouped.shapes(tuple(x.shape), tuple(w.shape), tuple(offsets.shape))
    return shape, getattr(torch, kind)


def _recorded(keys: Any, x: Tensor, w: Tensor, offsets: Tensor, out_dtype: Any = None) -> Tensor:
    """Record the operator for autograd if needed, and call the operator below autograd."""
    if dispatched.is_transformed(torch):
        return _transformed(x, w, offsets, out_dtype)
    below = partial(below_autograd, keys, _operator, _kernel, x, w, offsets, out_dtype)
    if torch.is_grad_enabled() and torch._C._any_requires_grad(x, w):
        return _Grouped.apply(x, w, offsets, below)
    return below()


def _transformed(x: Tensor, w: Tensor, offsets: Tensor, out_dtype: Any = None) -> Tensor:
    """Compute the operator by PyTorch's own products, each group's of all rows.

    Sizes of groups are values, which transformations don't let one look at.
    """
    if is_under_autocast(x):  # within vmap, PyTorch asks for this before it asks autocast
        x, w, _ = cast(x, w, None, None)
    shape, kind = _result_of(x, w, offsets, out_dtype)
    sums = getattr(torch, ACCUMULATORS[dtype_name(x.dtype)])
    x, w = x.to(sums), w.to(sums)
    with torch._C._DisableAutocast():
        # What lies outside of a group may be NaN, and is replaced instead of multiplied by zero.
        if w.ndim == 2:
            each = [
                torch.where(is_in, x, 0) @ torch.where(is_in[:, None], w, 0)
                for is_in in _are_in(offsets, x.shape[1])
            ]
            return torch.stack(each).to(kind) if each else x.new_zeros(shape, dtype=kind)
        found = x.new_zeros(shape)
        for is_in, matrix in zip(_are_in(offsets, x.shape[0]), w, strict=True):
            rows = is_in[:, None]
            found = torch.where(rows, torch.where(rows, x, 0) @ matrix, found)
        return found.to(kind)


def _are_in(offsets: Tensor, count: int) -> Iterator[Tensor]:
    """Yield for each group which of ``count`` rows or columns are in it, as the kernels take them.

    An end that is less than the one before it counts as that one.
    """
    at = torch.arange(count, device=offsets.device)
    begin = offsets.new_zeros(())
    for end in offsets:
        end = torch.maximum(begin, end)
        yield (at >= begin) & (at < end)
        begin = end


class _Grouped(torch.autograd.Function):  # type: ignore[misc]
    """A grouped product that autograd records."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, offsets: Tensor, below: Callable[[], Tensor]
    ) -> Tensor:
        """Compute the result by ``below``."""
        result = below()  # first, because it raises the error if an input is wrong
        needs_x, needs_w = ctx.needs_input_grad[:2]
        ctx.save_for_backward(x if needs_w else None, w if needs_x else None, offsets)
        ctx.dtype, ctx.is_of_rows = x.dtype, w.ndim == 3
        ctx.by_columns = w.ndim == 3 and w.stride(-2) == 1 and w.stride(-1) != 1
        return result

    @staticmethod
    def backward(ctx: Any, of_d: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x and of w, grouped products of views, without copies."""
        x, w, offsets = ctx.saved_tensors
        g = of_d.to(ctx.dtype)
        of_x = of_w = None
        if w is not None:
            of_x = _operator(g, w.mT, offsets) if ctx.is_of_rows else _operator(w, g.mT, offsets).mT
        if x is not None:
            # The gradient has w's layout, because autograd copies a gradient that has another.
            turned = ctx.by_columns
            of_w = _operator(g.mT, x, offsets).mT if turned else _operator(x.mT, g, offsets)
        return of_x, of_w, None, None


def _under_autocast(device: str) -> Callable[..., Tensor]:
    key = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}

    def call(x: Tensor, w: Tensor, offsets: Tensor, out_dtype: Any = None) -> Tensor:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key[device])):
            x, w = (each if each.dtype == torch.float64 else each.to(dtype) for each in (x, w))
            return _operator(x, w, offsets, out_dtype)

    return call


for _key in ("CPU", "CUDA"):
    _library.impl("grouped_matmul", _kernel, _key)
    _library.impl("grouped_matmul", _under_autocast(_key.lower()), f"Autocast{_key}")
_library.impl("grouped_matmul", _recorded, "Autograd", with_keyset=True)
_library.impl("grouped_matmul", _transformed, "FuncTorchBatched")
torch.library.register_fake("tilewise::grouped_matmul", _shaped, lib=_library)


@register_flop_formula(torch.ops.tilewise.grouped_matmul)  # type: ignore[untyped-decorator]
def _operations(
    x: tuple[int, ...], w: tuple[int, ...], *_: Any, out_shape: Any = None, **options: Any
) -> int:
    """Return the number of operations, for ``FlopCounterMode``, which passes shapes."""
    return 2 * x[0] * x[1] * w[-1]
