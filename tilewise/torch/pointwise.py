"""Apply a traced function, such as the derivative of an epilogue, to the elements of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from tilewise.arrays import own_product
from tilewise.arrays.libraries import dtype_name, library_of
from tilewise.arrays.operands import batch_stride, gpu_of
from tilewise.epilogue import Traced
from tilewise.epilogue.derivative import KEPT
from tilewise.epilogue.traced import interned
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.fused import MOST
from tilewise.gemm.pointwise import Pointwise, plan
from tilewise.gemm.product import ACCUMULATORS
from tilewise.gemm.steps import prepare
from tilewise.places import ITEM_SIZES
from tilewise.torch.transformed import is_in_memory

Tensor = Any


def pointwise(
    function: Traced, acc: Tensor, operands: Sequence[Tensor | float], dtypes: Sequence[Any]
) -> list[Tensor]:
    """Apply a function element by element, in float32, or in float64 if ``acc`` is float64.

    Parameters
    ----------
    function : Traced
        The function, of one sum.
    acc : Tensor
        The values of the function's sum; the results have its shape.
    operands : sequence of Tensor or float
        The operands in the function's order; tensors broadcast to ``acc``.
    dtypes : sequence of torch.dtype
        The dtypes of the results.

    Returns
    -------
    list of Tensor

    Notes
    -----
    On a GPU it is one launch, unless autograd or a mode of PyTorch's has to see it: then PyTorch's
    functions compute it, as on a CPU. A result that is the sum itself is only cast.
    """
    computed = tuple(i for i, value in enumerate(function.values) if value != "acc")
    found: dict[int, Tensor] = {}
    if computed:
        some = some_of(function, computed)
        kinds = [dtypes[i] for i in computed]
        way = _by_kernel if _is_for_kernels(acc, operands, len(computed)) else _by_pytorch
        found = dict(zip(computed, way(some, acc, operands, kinds), strict=True))
    return [found[i] if i in found else acc.to(kind) for i, kind in enumerate(dtypes)]


@lru_cache(maxsize=KEPT)
def some_of(function: Traced, which: tuple[int, ...]) -> Traced:
    """Return a function that computes some of the results, and takes the same operands."""
    results = tuple(function.results[i] for i in which)
    return interned(function.sums, function.operands, results, True)


def _by_pytorch(
    function: Traced, acc: Tensor, operands: Sequence[Tensor | float], dtypes: Sequence[Any]
) -> list[Tensor]:
    wide = getattr(torch, ACCUMULATORS[dtype_name(acc.dtype)])
    given = [x if isinstance(x, float) else x.to(wide) for x in operands]
    found = function.evaluate(acc.to(wide), given)
    return [x.expand(acc.shape).to(dtype) for x, dtype in zip(found, dtypes, strict=True)]


def _is_for_kernels(acc: Tensor, operands: Sequence[Tensor | float], results: int) -> bool:
    tensors = [acc, *(x for x in operands if not isinstance(x, float))]
    if not (acc.is_cuda and acc.numel()) or torch.is_grad_enabled():
        return False
    if torch._C._len_torch_dispatch_stack() or len(tensors) + results - 2 > MOST:
        return False
    if not all(map(is_in_memory, tensors)):
        return False
    names = [str(x.dtype).removeprefix("torch.") for x in tensors]
    if any(name not in ITEM_SIZES for name in names):
        return False
    return not own_product.why_on_gpu(names[0], acc.device.index)


def _by_kernel(
    function: Traced, acc: Tensor, operands: Sequence[Tensor | float], dtypes: Sequence[Any]
) -> list[Tensor]:
    acc = acc.contiguous()
    results = [torch.empty(acc.shape, dtype=kind, device=acc.device) for kind in dtypes]
    asked, arrays = asked_of(function, acc, operands, results)
    library, gpu = library_of(acc), gpu_of(acc.device.index)
    assert library is not None
    addresses = (
        acc.data_ptr(), 0, 0, results[0].data_ptr(), 0, *(x.data_ptr() for x in arrays),
        *(x.data_ptr() for x in results[1:]),
    )  # fmt: skip
    stream = library.stream(gpu.context.ordinal)
    for launch in prepare(plan(asked), gpu):
        gpu.enqueue(launch, stream, addresses)
    return results


def asked_of(
    function: Traced, acc: Tensor, operands: Sequence[Tensor | float], results: Sequence[Tensor]
) -> tuple[Pointwise, list[Tensor]]:
    """Return the description of the launch, and the tensors that it reads, expanded to ``acc``.

    ``acc`` and the results are contiguous and have one shape. An operand whose batch has no single
    stride is copied.
    """
    shape = (*(1,) * (2 - acc.ndim), *acc.shape)
    *lead, m, n = shape
    inputs: list[Strided | float] = []
    arrays: list[Tensor] = []
    for x in operands:
        if isinstance(x, float):
            inputs.append(x)
            continue
        whole = x.expand(shape)
        step = batch_stride(lead, whole.stride()[:-2])
        if step is None:
            whole = whole.contiguous()
            step = m * n
        strides = whole.stride()
        row, column = (0 if size == 1 else v for size, v in zip((m, n), strides[-2:], strict=True))
        inputs.append(Strided(dtype_name(x.dtype), row, column, step))
        arrays.append(whole)
    batch = math.prod(lead)
    if all(x.batch_stride == m * x.row_stride for x in inputs if isinstance(x, Strided)):
        m, batch = m * batch, 1  # matrices below one another
    names = [dtype_name(x.dtype) for x in results]
    others = tuple(Strided(name, n, 1, m * n) for name in names[1:])
    epilogue = Epilogue(function, tuple(inputs), others)
    return Pointwise(m, n, batch, dtype_name(acc.dtype), names[0], epilogue), arrays
