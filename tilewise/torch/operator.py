"""``tilewise::matmul``, an operator of PyTorch's with gradients, autocast and graphs.

References
----------
PyTorch, "The Custom Operators Manual"; ``torch.library``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch.overrides import handle_torch_function
from torch.utils.flop_counter import register_flop_formula

from tilewise.arrays import fusion
from tilewise.arrays.call import shapes
from tilewise.arrays.dispatched import (
    DIRECT,
    RECORDED,
    Route,
    answer,
    is_transformed,
    route,
    seen_by,
)
from tilewise.arrays.libraries import dtype_name
from tilewise.devices import Device
from tilewise.flags import check_flags
from tilewise.gemm.product import ACCUMULATORS
from tilewise.shown import named_type
from tilewise.torch import with_epilogue
from tilewise.torch.autocast import cast, is_under_autocast
from tilewise.torch.below_autograd import below_autograd
from tilewise.torch.gradient import Matmul
from tilewise.torch.transformed import PLAIN, pytorch_matmul, result_of

Tensor = Any

_library = torch.library.Library("tilewise", "DEF")
_library.define(
    "matmul(Tensor a, Tensor b, Tensor? c=None, *, float alpha=1, float beta=0, "
    "ScalarType? out_dtype=None) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_operator = torch.ops.tilewise.matmul.default


def matmul(
    a: Tensor,
    b: Any,
    c: Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Tensor | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    max_gpu_memory: int | str | None = None,
    epilogue: Callable[..., Any] | None = None,
    pairs: str | None = None,
    invariant: bool | None = None,
    **operands: Any,
) -> Any:
    """Return alpha op(A) op(B) + beta C of tensors, or a function of it, with gradients.

    :func:`tilewise.matmul` does the same for tensors. In a graph of ``torch.compile`` it is the
    operator ``torch.ops.tilewise.matmul``, whose gradients are products by the same operator;
    nothing in it waits for the GPU. Under ``torch.autocast`` it multiplies in autocast's dtype, as
    ``torch.matmul`` does.

    Parameters
    ----------
    a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, max_gpu_memory
    epilogue, pairs, invariant, operands
        The arguments of :func:`tilewise.matmul`. Autograd does not record a product that is written
        to ``out``. With ``out``, ``device``, ``max_gpu_memory`` or ``invariant``, ``torch.compile``
        ends its graph and begins another after the call. Under autocast ``device`` and
        ``max_gpu_memory`` can't be given. An epilogue is part of the kernel even if autograd
        records it: the kernel then also stores the values that the derivative needs, in the dtype
        of the results. In a graph it is the operator ``torch.ops.tilewise.fused_matmul``.

    Returns
    -------
    Tensor, (..., m, n)
        ``out``, or a contiguous tensor. The gradients of 16-bit A and B have 16 bits; over the
        dimensions that A or B was broadcast along, they are summed in float32.

    Raises
    ------
    TypeError
        If an argument is not a tensor, and as in :func:`tilewise.matmul`.
    ValueError
        As in :func:`tilewise.matmul`; if ``out`` is given, or ``invariant`` is True, and a tensor
        requires a gradient; if ``out`` is given within a transformation of ``torch.func`` or in
        forward-mode differentiation; or if ``device`` or ``max_gpu_memory`` is given under
        autocast.

    Examples
    --------
    >>> import torch, tilewise.torch  # doctest: +SKIP
    >>> x, w = torch.ones(2, 3), torch.ones(3, 4, requires_grad=True)  # doctest: +SKIP
    >>> tilewise.torch.matmul(x, w).sum().backward()  # doctest: +SKIP
    >>> w.grad  # doctest: +SKIP
    tensor([[2., 2., 2., 2.],
            [2., 2., 2., 2.],
            [2., 2., 2., 2.]])
    """
    way = None
    if out is None and epilogue is None and pairs is None and invariant is None and not operands:
        way = route_of_plain((a, b) if c is None else (a, b, c))
    if way is DIRECT:  # what follows, of a call that only multiplies, in less time
        return answer(
            a, b, c, alpha, beta, transpose_a, transpose_b, None, out_dtype, device, max_gpu_memory
        )  # fmt: skip
    outs = out if isinstance(out, tuple | list) else (out,)
    given = [(name, x) for name, x in operands.items() if isinstance(x, torch.Tensor)]
    are_two = type(b) is tuple
    of_b = [(f"b[{i}]", x) for i, x in enumerate(b)] if are_two else [("b", b)]
    tensors = [("a", a), *of_b, ("c", c), *(("out", x) for x in outs)]
    check_tensors(tensors)
    if type(transpose_a) is not bool or type(transpose_b) is not bool:
        check_flags(transpose_a=transpose_a, transpose_b=transpose_b)
    is_placed = device != "auto" or max_gpu_memory is not None
    is_more = epilogue is not None or bool(operands) or invariant is not None
    is_more = is_more or pairs is not None or are_two
    is_compiling = torch.compiler.is_compiling()
    if is_compiling and (out is not None or is_placed or invariant is not None):
        return _outside_the_graph(
            a, b, c, alpha=alpha, beta=beta, transpose_a=transpose_a, transpose_b=transpose_b,
            out=out, out_dtype=out_dtype, device=device, max_gpu_memory=max_gpu_memory,
            epilogue=epilogue, pairs=pairs, invariant=invariant, **operands,
        )  # fmt: skip
    if is_compiling and is_more:
        return with_epilogue.in_graph(
            a, b, c, alpha, beta, transpose_a, transpose_b, out_dtype, epilogue, pairs, operands
        )
    if way is None:
        way = route(a, b, c, *(x for _, x in given))
    if out is not None:
        check_not_transformed(way)
        _check_out([*tensors, *given])
        if is_under_autocast(a):
            _check_uncast(a, b if are_two else (b,), outs, out_dtype)
        way = DIRECT
    asked = fusion.asked(epilogue, operands, b, pairs) if is_more else None
    if way is DIRECT:
        return answer(
            a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, max_gpu_memory,
            asked, invariant,
        )  # fmt: skip
    if invariant:
        raise ValueError(
            "invariant=True is for products that autograd does not record, outside of autocast and "
            "of PyTorch's modes; call it under torch.no_grad(), with autocast disabled"
        )
    if asked is not None:
        return with_epilogue.recorded(
            way, a, b, c, asked, matmul, alpha, beta, transpose_a, transpose_b, out_dtype,
            {"device": device, "max_gpu_memory": max_gpu_memory},
        )  # fmt: skip
    if way is Route.GRADIENT:
        place = {"device": device, "max_gpu_memory": max_gpu_memory}
        direct = partial(
            answer, a, b, c, alpha, beta, transpose_a, transpose_b, out_dtype=out_dtype, **place
        )
        again: Callable[..., Tensor] = partial(matmul, **place)  # type: ignore[arg-type]
        return Matmul.apply(a, b, c, alpha, beta, transpose_a, transpose_b, direct, again)
    if is_placed:
        raise ValueError(
            "under autocast, in PyTorch's modes and in torch.func's transformations, tensors "
            "are multiplied where they lie; give neither device nor max_gpu_memory"
        )
    if transpose_a and a.ndim > 1:
        a = a.mT
    if transpose_b and b.ndim > 1:
        b = b.mT
    for what, value in (("alpha", alpha), ("beta", beta)):
        # The dispatcher would accept these, and wait for a tensor on a GPU.
        if isinstance(value, bool | torch.Tensor | str):
            raise TypeError(f"{what} is {value!r}; it must be a number")
    kind = None if out_dtype is None else getattr(torch, dtype_name(out_dtype), None)
    if kind is None and out_dtype is not None:
        raise TypeError(f"out_dtype is {out_dtype!r}, which PyTorch has not")
    return _operator(a, b, c, alpha=alpha, beta=beta, out_dtype=kind)


def route_of_plain(tensors: Sequence[Tensor]) -> Route | None:
    """Return what :func:`tilewise.arrays.dispatched.route` does, in half of its time.

    None if an argument is no plain tensor or parameter, or if PyTorch sees each call now.
    """
    if seen_by(torch) is not None or not PLAIN.issuperset(map(type, tensors)):
        return None
    for x in tensors:
        if x.requires_grad:
            return RECORDED if torch.is_grad_enabled() else DIRECT
    return DIRECT


def overridden(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Any] | None:
    """Return, as a tuple of one, what a type that is no tensor makes of a call with it.

    ``torch.fx`` records the calls of its proxies so. None if no argument has such a type.
    """
    given = [
        x for each in (*args, *options.values()) for x in (each if type(each) is tuple else (each,))
    ]
    others = [
        x
        for x in given
        if not isinstance(x, torch.Tensor) and hasattr(type(x), "__torch_function__")
    ]
    if not others:
        return None
    return (handle_torch_function(function, others, *args, **options),)


def check_tensors(tensors: Iterable[tuple[str, Any]]) -> None:
    """Raise TypeError for an argument that is not a tensor."""
    for what, x in tensors:
        if x is not None and not isinstance(x, torch.Tensor):
            raise TypeError(
                f"{what} is {named_type(x)}, not a torch.Tensor; tilewise.matmul takes the arrays "
                "of other libraries"
            )
        if x is not None and x.is_nested:
            raise TypeError(
                f"{what} is a nested tensor; multiply its values, which are one dense tensor"
            )


@torch._disable_dynamo  # type: ignore[untyped-decorator]
def _outside_the_graph(*args: Any, **options: Any) -> Tensor:
    """Break the graph, because an operator can't take these arguments."""
    return matmul(*args, **options)


def check_not_transformed(way: Route) -> None:
    """Raise ValueError if a transformation would have to see that ``out`` is written."""
    if way is Route.TRANSFORMED:
        raise ValueError(
            "torch.func's transformations and forward-mode differentiation don't see that out is "
            "written; leave out out="
        )


def _check_out(tensors: Iterable[tuple[str, Tensor | None]]) -> None:
    """Raise ValueError if autograd would have to record that ``out`` is written."""
    for what, x in tensors:
        if x is not None and x.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{what} requires a gradient, and autograd can't record a product that is written "
                "to out; leave out out=, or call it under torch.no_grad()"
            )


def _check_uncast(
    a: Tensor, b: Iterable[Tensor], outs: Iterable[Tensor | None], out_dtype: Any
) -> None:
    """Refuse, under autocast, an ``out`` that would be right if autocast cast A and B."""
    taken = {a.dtype, getattr(torch, ACCUMULATORS.get(dtype_name(a.dtype), "float32"))}
    fit = all(x.dtype == a.dtype for x in b)
    if not fit or any(x is not None and x.dtype not in taken for x in outs):
        kinds = ", ".join(str(x.dtype) for x in (a, *b))
        raise TypeError(
            f"with out, autocast casts nothing, as with the out of PyTorch's own products, and a "
            f"product of {kinds} can't be written to {_dtypes_of(outs)}; cast the tensors "
            "yourself, or leave out out="
        )


def _dtypes_of(tensors: Iterable[Tensor | None]) -> str:
    return ", ".join(str(x.dtype) for x in tensors if x is not None)


def _kernel(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: Any = None,
) -> Tensor:
    return answer(a, b, c, alpha=alpha, beta=beta, out_dtype=out_dtype)


def _shaped(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: Any = None,
) -> Tensor:
    """Return a result without values, for graphs."""
    shape, dtype = result_of(a, b, c, beta, out_dtype)
    return a.new_empty(shape, dtype=getattr(torch, dtype))


def _recorded(
    keys: Any,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: Any = None,
) -> Tensor:
    """Record the operator for autograd if needed, and call the operator below autograd."""
    if is_transformed(torch):
        return _transformed(a, b, c, alpha=alpha, beta=beta, out_dtype=out_dtype)
    below: Callable[[], Tensor] = partial(
        below_autograd, keys, _operator, _kernel, a, b, c, alpha=alpha, beta=beta,
        out_dtype=out_dtype,
    )  # fmt: skip
    if torch._C._any_requires_grad(a, b, c) and torch.is_grad_enabled():
        return Matmul.apply(a, b, c, alpha, beta, False, False, below, _operator)
    return below()


def _transformed(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, out_dtype: Any = None, **scalars: float
) -> Tensor:
    """Compute the operator by PyTorch's own products."""
    if is_under_autocast(a):  # within vmap, PyTorch asks for this before it asks autocast
        a, b, c = cast(a, b, c, out_dtype)
    with torch._C._DisableAutocast():
        return pytorch_matmul(a, b, c, out_dtype=out_dtype, **scalars)


def _under_autocast(
    device: str,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: Any = None,
) -> Tensor:
    """Cast the inputs as autocast does, and multiply them with autocast off."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST[device])):
        a, b, c = cast(a, b, c, out_dtype, device)
        return _operator(a, b, c, alpha=alpha, beta=beta, out_dtype=out_dtype)


_AUTOCAST = {
    "cpu": torch._C.DispatchKey.AutocastCPU,
    "cuda": torch._C.DispatchKey.AutocastCUDA,
}
for _key in ("CPU", "CUDA"):
    _library.impl("matmul", _kernel, _key)
    _library.impl("matmul", partial(_under_autocast, _key.lower()), f"Autocast{_key}")
_library.impl("matmul", _recorded, "Autograd", with_keyset=True)
_library.impl("matmul", _transformed, "FuncTorchBatched")
torch.library.register_fake("tilewise::matmul", _shaped, lib=_library)


@register_flop_formula(torch.ops.tilewise.matmul)  # type: ignore[untyped-decorator]
def _operations(
    a: tuple[int, ...], b: tuple[int, ...], *_: Any, out_shape: Any = None, **options: Any
) -> int:
    """Return the number of operations, for ``FlopCounterMode``, which passes shapes."""
    m, n, k, batch, _shape = shapes(a, b, False, False)
    return 2 * m * n * k * math.prod(batch)
