"""Products by the arrays' own library, if there is no GPU, or one too old for fast kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewise.arrays.call import Call
from tilewise.arrays.libraries import Array
from tilewise.arrays.operands import gpu_of
from tilewise.devices import Device
from tilewise.devices.limits import compute_capability
from tilewise.errors import GpuTooOldError
from tilewise.gemm.chip import OLDEST
from tilewise.gemm.product import ACCUMULATORS
from tilewise.places import ITEM_SIZES


def why_on_host(dtype: str, gpu: Device | None) -> str:
    """Return why the library computes products of arrays on the host; empty if ``gpu`` does."""
    if gpu is None:
        return "the arrays lie on the host, and there is no GPU"
    return _why(dtype, gpu)


def why_on_gpu(dtype: str, ordinal: int) -> str:
    """Return why the library computes products on a GPU, by its number; empty if kernels do.

    Raises
    ------
    DeviceUnavailableError
        If that GPU can't be used for another reason than its age.
    """
    return _no_kernel(ordinal) or _why(dtype, gpu_of(ordinal))


def _why(dtype: str, gpu: Device) -> str:
    capability = compute_capability(gpu.arch)
    if ITEM_SIZES[dtype] != 2 or capability >= OLDEST:
        return ""
    return (
        f"of 16 bits, tilewise has fast kernels for compute capability {OLDEST / 10:.1f} and "
        f"above, and this GPU's is {capability / 10:.1f}"
    )


@cache
def _no_kernel(ordinal: int) -> str:
    """Return why no kernel can be compiled for a GPU; empty if kernels can be compiled."""
    try:
        gpu_of(ordinal)
    except GpuTooOldError as error:
        return str(error)
    return ""


def multiply(call: Call) -> Any:
    """Compute what a call returns in place, summed and rounded as the kernels do it.

    Raises
    ------
    ValueError
        If the call is to be invariant, because a library's sums may depend on the batch.
    """
    library = call.library
    if call.invariant:
        raise ValueError(
            "an invariant product (invariant=True, set_invariant, or TILEWISE_INVARIANT=1) takes "
            "tilewise's own kernels, and here the arrays' own library would "
            "answer (tilewise.explain says why); compute on a GPU, or with device='emulator'"
        )
    with np.errstate(all="ignore"), library.current(call.a):
        found = [_sums(each) for each in unpaired(call)]
    return finished(call, in_pairs(call, found))


def _sums(call: Call) -> Array:
    """Return alpha A B + beta C in the dtype of the sums."""
    library, wide = call.library, ACCUMULATORS[call.dtype]
    if call.alpha == 0 or not call.k:
        value = library.empty(call.shape, wide, call.a)
        value[...] = 0
    else:
        a, b = call.a, call.b
        if call.transpose_a and call.has_rows:
            a = a.swapaxes(-1, -2)
        if call.transpose_b and call.has_columns:
            b = b.swapaxes(-1, -2)
        value = library.product(a, b, wide)
        if call.alpha != 1:
            value = value * call.alpha
    if call.c is not None:
        value = value + library.cast(call.c, wide) * call.beta
    return value


def unpaired(call: Call) -> list[Call]:
    """Return the calls without pairs for a call's sums: two for pairs in two arrays, else one."""
    if call.pairs is None:
        return [call]
    if call.up is not None:
        one = call._replace(pairs=None, up=None)
        return [one, one._replace(b=call.up)]
    shape = (*call.shape[:-1], 2 * call.n)
    return [call._replace(n=2 * call.n, shape=shape, pairs=None)]


def in_pairs(call: Call, sums: Sequence[Array]) -> Any:
    """Return a call's sums, for pairs a tuple of two, from the sums of :func:`unpaired`'s calls."""
    if call.pairs is None:
        return sums[0]
    return tuple(sums) if call.up is not None else parted(sums[0], call.pairs, call.n)


def parted(sums: Array, order: str, n: int) -> tuple[Array, Array]:
    """Return gate's columns, and up's, of an array that holds both (product.ORDERS)."""
    if order == "halves":
        return sums[..., :n], sums[..., n:]
    return sums[..., 0::2], sums[..., 1::2]


def finished(call: Call, value: Any) -> Any:
    """Return what a call returns, from alpha A B + beta C in the dtype of the sums.

    For pairs, ``value`` is a tuple of two arrays.
    """
    library = call.library
    with np.errstate(all="ignore"), library.current(call.a):
        values: tuple[Array, ...] = (value,)
        if call.fusion is not None:
            values = call.fusion.evaluated(library, value, ACCUMULATORS[call.dtype])
        results = []
        for out, each in zip(call.outs, values, strict=True):
            result = library.empty(call.shape, call.out_dtype, call.a) if out is None else out
            result[...] = each
            results.append(result)
    return call.returned(results)
