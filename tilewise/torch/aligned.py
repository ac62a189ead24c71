"""Gradients whose rows are not 16-byte aligned, for the two products that read them.

The gradient of a layer's result is read by two products: those of the gradients of X and of the
weight. If its rows are not 16-byte aligned, as those of 50,257 logits, then each of the two would
begin with a copy whose rows are. Here one copy is made for both.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch

from tilewise.arrays import own_product
from tilewise.arrays.libraries import library_of
from tilewise.arrays.operands import gpu_of
from tilewise.errors import DeviceUnavailableError
from tilewise.gemm import pack
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper.readings import pack_seconds
from tilewise.gemm.plan import best, chip_of
from tilewise.gemm.product import A, D, Operand, Product, offset
from tilewise.gemm.steps import PREPARED, Plan, prepare
from tilewise.places import Place
from tilewise.precision import HALVES
from tilewise.torch.transformed import is_in_memory

Tensor = Any
LAUNCH = 10e-6
"""The host's time for one more launch, in seconds, for which short products wait. This is an
estimate that was not measured.
"""


def aligned(g: Tensor, k: int) -> Tensor:
    """Return ``g``, or a copy whose rows are 16-byte aligned if two products are faster with it.

    Parameters
    ----------
    g : Tensor, (..., n)
        The gradient of X W^T, for X of (..., k) and W of (n, k).
    k : int

    Notes
    -----
    In a graph the copy is that of :func:`padded`, and Inductor fuses it into the kernel that
    computes ``g``. Where autograd records the gradient, no copy is made.
    """
    n = g.shape[-1]
    if type(n) is not int or not n % pack.ALIGNED:  # with dynamic shapes, n is no int
        return g
    lead, index, name = g.shape[:-1], g.device.index, str(g.dtype).removeprefix("torch.")
    if not (g.is_cuda and lead and index is not None and name in HALVES):
        return g
    if not all(type(x) is int and x > 0 for x in (*lead, k)) or not g.is_contiguous():
        return g
    rows = math.prod(lead)
    is_traced = torch._C._len_torch_dispatch_stack() > 0
    if is_traced:
        if torch._guards.detect_fake_mode(g) is None:  # a mode that only looks on
            return g
    elif torch.is_grad_enabled() or not is_in_memory(g):
        return g
    try:
        if own_product.why_on_gpu(name, index):
            return g
    except DeviceUnavailableError:  # a graph that is traced where its GPU is not
        return g
    gpu = gpu_of(index)
    if not _is_worth(rows, n, k, name, chip_of(gpu)):
        return g
    if is_traced:
        return padded(g)
    address = g.data_ptr()
    copy = torch.empty((*lead, pitch_of(n)), dtype=g.dtype, device=g.device)
    library = library_of(g)
    assert library is not None
    stream = library.stream(gpu.context.ordinal)
    for launch in prepare(_plan(rows, n, offset(address)), gpu):
        gpu.enqueue(launch, stream, (address, 0, 0, copy.data_ptr(), 0))
    return copy.narrow(-1, 0, n)


def padded(g: Tensor) -> Tensor:
    """Return a copy with aligned rows by PyTorch's functions, for a graph."""
    # Inductor has the kernel that computes ``g`` store it with these strides. The result of
    # ``torch.nn.functional.pad`` would be computed by another kernel, because its rows are longer
    # than those whose sums ``g`` depends on.
    pitch, strides = pitch_of(g.shape[-1]), [1]
    for extent in (pitch, *g.shape[-2:0:-1]):
        strides.insert(0, strides[0] * extent)
    return torch.empty_strided(g.shape, strides, dtype=g.dtype, device=g.device).copy_(g)


def pitch_of(n: int) -> int:
    """Return the elements from one row of a copy to the next."""
    return -(-n // pack.PITCH) * pack.PITCH


@lru_cache(maxsize=PREPARED)
def _is_worth(rows: int, n: int, k: int, dtype: str, chip: Chip | None) -> bool:
    """Return whether two products and one copy should be faster than the products alone."""
    if chip is None or not chip.is_hopper:
        return False
    packing = pack.packed(Operand(n, 1), rows, n, 1)
    if packing.operand.column_stride != 1:  # of a column, whose elements become contiguous
        return False
    in_place, copied = (
        sum(best(x, chip).seconds for x in _products(rows, n, k, dtype, g))
        for g in (Operand(n, 1), packing.operand)
    )
    return copied + pack_seconds([packing]) + LAUNCH < in_place


def _products(rows: int, n: int, k: int, dtype: str, g: Operand) -> tuple[Product, Product]:
    """Return the products that are the gradients of X and of W, all but ``g`` contiguous."""
    along = Operand(k, 1)

    def product(m: int, inner: int, a: Operand) -> Product:
        return Product(m, k, inner, 1, dtype, dtype, 1.0, 0.0, a, along, None, along)

    return product(rows, n, g), product(n, rows, g.transposed)


@lru_cache(maxsize=PREPARED)
def _plan(rows: int, n: int, offset: int) -> Plan:
    packing = pack.packed(Operand(n, 1, 0, offset), rows, n, 1)
    step = pack.step([(packing, Place(A), Place(D))], overlap=True)
    return Plan((step,), 0, "pack", "a copy, not a product")
