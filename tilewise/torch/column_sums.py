"""The sums of a tensor over all dimensions but the last: the gradient of a bias."""

from __future__ import annotations

from typing import Any

import torch

from tilewise.arrays import own_product, repeat
from tilewise.arrays.libraries import dtype_name, library_of
from tilewise.arrays.operands import gpu_of
from tilewise.devices.limits import compute_capability
from tilewise.gemm.column_sums import DTYPES, LARGEST, ColumnSums, plan
from tilewise.gemm.product import ACCUMULATORS, offset
from tilewise.gemm.steps import prepare
from tilewise.torch.transformed import is_in_memory

Tensor = Any
_CLUSTERS = 90  # the least compute capability that has them


def column_sums(x: Tensor, dtype: Any, key: repeat.Key | None = None) -> Tensor:
    """Return the sums over all dimensions but the last, rounded once.

    Parameters
    ----------
    x : Tensor, (..., n)
        At least 2 dimensions.
    dtype : torch.dtype
        The dtype of the sums, which are computed in float32, or in float64 if ``x`` is float64.
    key : tuple, optional
        By which the launch is kept, to be repeated with the address of another ``x``.

    Returns
    -------
    Tensor, (n,)

    Notes
    -----
    On a GPU of compute capability 9.0 or above it is one launch, unless autograd or a mode of
    PyTorch's has to see it.
    """
    rows = _rows(x, dtype)
    if rows is None:
        wide = getattr(torch, ACCUMULATORS[dtype_name(x.dtype)])
        return x.sum(tuple(range(x.ndim - 1)), dtype=wide).to(dtype)
    gpu, library = gpu_of(x.device.index), library_of(x)
    assert library is not None
    m, n = rows.shape
    result = torch.empty(n, dtype=dtype, device=x.device)
    address, kinds = rows.data_ptr(), (dtype_name(x.dtype), dtype_name(dtype))
    asked = ColumnSums(m, n, rows.stride(0) if m > 1 else n, offset(address), *kinds)
    stream = library.stream(gpu.context.ordinal)
    launches = prepare(plan(asked), gpu)
    for launch in launches:
        gpu.enqueue(launch, stream, (address, 0, 0, result.data_ptr(), 0))
    if key is not None:
        record = repeat.record(
            library, gpu, launches, matrices=(x,), operands=(), results=[result], c=None,
            are_given=False, is_tuple=False,
        )  # fmt: skip
        repeat.remember(key, record)
    return result


def _rows(x: Tensor, dtype: Any) -> Tensor | None:
    """Return the matrix whose rows the kernel adds up; None if it can't."""
    # First what says nothing of the shape, which a graph would be guarded by.
    if torch._C._len_torch_dispatch_stack() or not is_in_memory(x):
        return None
    if torch.is_grad_enabled() or not (x.is_cuda and x.numel() and x.stride(-1) == 1):
        return None
    kinds = [str(kind).removeprefix("torch.") for kind in (x.dtype, dtype)]
    if any(kind not in DTYPES for kind in kinds):
        return None
    if own_product.why_on_gpu(kinds[0], x.device.index):
        return None
    if compute_capability(gpu_of(x.device.index).arch) < _CLUSTERS:
        return None
    try:
        rows = x.view(-1, x.shape[-1])
    except RuntimeError:  # no single distance leads from each row to the next
        return None
    return rows if max(rows.shape) <= LARGEST else None
