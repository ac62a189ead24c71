"""The front door: arrays in, array out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from tilewise.call import Call, check
from tilewise.devices import Device, DeviceArray, get_device
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.libraries import Array, View
from tilewise.plan import launch_product
from tilewise.product import ACCUMULATORS, Operand


def matmul(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | None = None,
    out_dtype: Any = None,
    device: str = "auto",
) -> Any:
    """alpha op(A) op(B) + beta C, where op may transpose.

    Parameters
    ----------
    a, b : array, (..., m, k) and (..., k, n)
        Of one library: NumPy, CuPy or PyTorch; on one GPU, or on the host. float16, bfloat16,
        float32 or float64, both the same; 16-bit products are summed in float32. Leading
        dimensions broadcast, and one-dimensional arrays are taken, as in :func:`numpy.matmul`.
        Any view with strides of whole elements is read where it lies; one that runs backwards,
        or whose batch no single stride describes, is copied first.
    c : array, optional
        Of the result's shape and dtype; needed unless ``beta`` is 0, and then never read.
    alpha, beta : float
        Finite in the dtype of the sums. With ``alpha`` 0, A and B are not read.
    transpose_a, transpose_b : bool
        Swap the last two dimensions, of (..., k, m) and (..., n, k); of one dimension, nothing.
    out : array, optional
        Where the result goes; may be ``c``, must not overlap A or B.
    out_dtype : dtype, optional
        By default that of ``out``, or else of A and B. It may be float32 for 16-bit A and B.
    device : str
        ``"auto"``: where the arrays lie, on their library's current stream, not waited for. From
        the host they go to the GPU and back; with no GPU, to their own library's product.
        ``"gpu"``: the same, but a missing GPU is an error. ``"emulator"``: arrays on the host, by
        the general kernel on the emulator.

    Returns
    -------
    array, (..., m, n)
        ``out``, or a new array of the same library in the same place.

    Raises
    ------
    TypeError
        If the arrays are of different libraries or dtypes, or of a dtype that is not supported.
    ValueError
        If shapes don't fit, arrays lie in different places, a scalar is not finite, C is needed
        and missing, ``out`` overlaps an input, or a tensor requires a gradient.
    DeviceUnavailableError
        If a GPU was asked for and there is none, or in a process forked from one that used it.

    Notes
    -----
    Everything is checked before anything is allocated or launched. Infinity and NaN spread as
    IEEE 754 has it, with BLAS's exceptions above. On a device, two runs give the same bits.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> tilewise.matmul(a, a, transpose_b=True)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    call = check(a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device)
    ordinal = call.library.ordinal(a)
    if ordinal is not None:
        return _where_it_lies(call, _gpu(ordinal))
    place = get_device(device) if device != "auto" else _first_gpu()
    result = _by_library(call) if place is None else _from_host(call, place)
    # numpy.matmul gives a number, not an array, for two vectors.
    return (
        result[()] if out is None and result.ndim == 0 and call.library.name == "numpy" else result
    )


def _operand(
    view: View | None,
    batch: tuple[int, ...],
    *,
    has_rows: bool = True,
    has_columns: bool = True,
    transpose: bool = False,
) -> Operand | None:
    """The view as a batch of matrices; None where strides can't say it."""
    if view is None:
        return None
    extents, strides = list(view.shape), list(view.strides)
    columns, column = (extents.pop(), strides.pop()) if has_columns else (1, 0)
    rows, row = (extents.pop(), strides.pop()) if has_rows else (1, 0)
    # Over one element any stride will do: that of a matrix which lies in one piece.
    if rows <= 1:
        row = 1 if column > 1 else max(columns, 1)
    if columns <= 1:
        column = 1 if row > 1 else max(rows, 1)
    # Elements that share memory, or lines that interleave, only cost a copy; few kernels take them.
    small, large, extent = (row, column, rows) if row < column else (column, row, columns)
    if rows and columns and not (small and small * extent <= large):
        return None
    if transpose and has_rows and has_columns:
        row, column = column, row
    if not batch:
        return Operand(view.pointer, row, column, 0)
    own = [0] * (len(batch) - len(extents)) + [
        0 if extent == 1 else stride for extent, stride in zip(extents, strides, strict=True)
    ]
    steps = [(n, stride) for n, stride in zip(batch, own, strict=True) if n != 1]
    for (_, outer), (n, inner) in pairwise(steps):
        if outer != n * inner:
            return None
    return Operand(view.pointer, row, column, steps[-1][1] if steps else 0)


def _readable(
    call: Call, x: Array, *, has_rows: bool, has_columns: bool, transpose: bool = False
) -> tuple[Array, Operand]:
    """``x``, or its copy where its own strides can't be described; the caller keeps it alive."""

    def as_operand(view: View | None) -> Operand | None:
        return _operand(
            view, call.batch, has_rows=has_rows, has_columns=has_columns, transpose=transpose
        )

    view, operand = call.library.view(x), None
    if view is not None:
        # What goes to a device goes with all that lies between its elements.
        is_dense = call.library.ordinal(x) is not None or _span(view) <= 2 * math.prod(view.shape)
        operand = as_operand(view) if is_dense else None
    if operand is None:
        shape = tuple(x.shape)
        if as_operand(View(0, shape, _contiguous(shape))) is None:
            shape = (*call.batch, *shape[len(shape) - has_rows - has_columns :])
        x = call.library.contiguous(x, shape)
        operand = as_operand(call.library.view(x))
        assert operand is not None
    return x, operand


def _span(view: View) -> int:
    """Elements from the first to the last, both included."""
    if not all(view.shape):
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _where_it_lies(call: Call, gpu: Gpu) -> Array:
    """On the GPU that the arrays lie on, on their library's current stream."""
    library = call.library
    gpu.context.check_process()
    stream = library.stream(gpu.context.ordinal)
    # Copies are freed in the stream's order: not before the kernel has read them.
    _a, of_a, _b, of_b = _inputs(call)
    _c, of_c = _old(call)
    result = call.out
    if result is None:
        result = library.empty(call.shape, call.out_dtype, call.a)
    ends = {"has_rows": call.has_rows, "has_columns": call.has_columns}
    target, of_d = result, _operand(library.view(result), call.batch, **ends)
    if of_d is None:
        target = library.empty(call.shape, call.out_dtype, call.a)
        of_d = _operand(library.view(target), call.batch, **ends)
        assert of_d is not None
    launch_product(call.product(of_a, of_b, of_c, of_d), gpu, stream)
    if target is not result:
        result[...] = target
    return result


def _inputs(call: Call) -> tuple[Array, Operand, Array, Operand]:
    a, of_a = _readable(
        call, call.a, has_rows=call.has_rows, has_columns=True, transpose=call.transpose_a
    )
    b, of_b = _readable(
        call, call.b, has_rows=True, has_columns=call.has_columns, transpose=call.transpose_b
    )
    return a, of_a, b, of_b


def _old(call: Call) -> tuple[Array | None, Operand | None]:
    if call.c is None:
        return None, None
    return _readable(call, call.c, has_rows=call.has_rows, has_columns=call.has_columns)


def _from_host(call: Call, device: Device) -> Array:
    """To the device, and back."""
    library = call.library
    if isinstance(device, Gpu):
        device.context.check_process()
    a, of_a, b, of_b = _inputs(call)
    c, of_c = _old(call)
    there: list[DeviceArray] = []  # keeps them alive

    def placed(x: Array, operand: Operand) -> Operand:
        bits = library.bits(x)
        view = library.view(x)
        assert view is not None
        if not bits.size:
            return operand
        flat = np.lib.stride_tricks.as_strided(
            bits, (_span(view),), (bits.itemsize,), writeable=False
        )
        there.append(device.array(flat))
        return Operand(
            there[-1].pointer, operand.row_stride, operand.column_stride, operand.batch_stride
        )

    of_a, of_b = placed(a, of_a), placed(b, of_b)
    if of_c is not None:
        of_c = placed(c, of_c)
    result = call.out
    if result is None:
        result = library.empty(call.shape, call.out_dtype, call.a)
    target = library.bits(result)
    back = device.empty((target.size,), target.dtype)
    of_d = Operand(back.pointer, max(call.n, 1), 1, call.m * call.n)
    launch_product(call.product(of_a, of_b, of_c, of_d), device)
    target[...] = back.to_numpy().reshape(call.shape)
    return result


def _by_library(call: Call) -> Array:
    """By the arrays' own library, on the host, as the kernels do it."""
    library = call.library
    wide = ACCUMULATORS[call.dtype]
    with np.errstate(all="ignore"):
        if call.alpha == 0:
            value = library.empty(call.shape, wide, call.a)
            value[...] = 0
        else:
            a, b = library.cast(call.a, wide), library.cast(call.b, wide)
            if call.transpose_a and call.has_rows:
                a = a.swapaxes(-1, -2)
            if call.transpose_b and call.has_columns:
                b = b.swapaxes(-1, -2)
            value = a @ b
            if call.alpha != 1:
                value = value * call.alpha
        if call.c is not None:
            value = value + library.cast(call.c, wide) * call.beta
        result = call.out
        if result is None:
            result = library.empty(call.shape, call.out_dtype, call.a)
        result[...] = value
    return result


@cache
def _gpu(ordinal: int) -> Gpu:
    first = _first_gpu()
    return first if first is not None and first.context.ordinal == ordinal else Gpu(ordinal)


@cache
def _first_gpu() -> Gpu | None:
    try:
        found = get_device("gpu")
    except DeviceUnavailableError:
        return None
    return found if isinstance(found, Gpu) else None
