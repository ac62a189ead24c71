"""The arrays of a call as a kernel sees them, and the copies that some of them need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from tilewise.arrays.call import Call
from tilewise.arrays.libraries import Array, View
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.product import ALIGNMENT, Operand, offset


class Seen(NamedTuple):
    """An array as a kernel sees it.

    Attributes
    ----------
    array : array
        The array that the caller gave.
    operand : Operand
        The layout of the array or of its copy, which is aligned as any new array is.
    copy : tuple of int or None
        The shape of the C-contiguous copy that is needed because strides can't describe the array;
        None if it is read in place.
    view : View or None
        The view of the array; None if it is copied.
    """

    array: Array
    operand: Operand
    copy: tuple[int, ...] | None
    view: View | None


def inputs(call: Call) -> tuple[Seen, Seen, Seen | None, Seen | None]:
    """Return A, B, C if it is read, and the second B of a product of pairs in two arrays."""
    rows, columns, transpose_b = call.has_rows, call.has_columns, call.transpose_b
    return (
        _seen(call, call.a, rows, True, call.transpose_a),
        _seen(call, call.b, True, columns, transpose_b),
        None if call.c is None else _seen(call, call.c, rows, columns),
        None if call.up is None else _seen(call, call.up, True, columns, transpose_b),
    )


def result_operand(call: Call, view: View | None) -> Operand | None:
    """Return the layout of an array of the result's shape; None if strides can't describe it."""
    return operand_of(view, call.batch, has_rows=call.has_rows, has_columns=call.has_columns)


def strided(call: Call, x: Array) -> tuple[Array, Strided]:
    """Return an array of a call's epilogue, or a copy that strides describe, and its layout.

    Parameters
    ----------
    call : Call
    x : array
        An array that broadcasts to the result's shape.
    """
    library, dtype = call.library, call.library.dtype_of(x)
    found = lying(call, library.view(x), dtype)
    if found is None:
        x = library.contiguous(x, tuple(x.shape))
        found = lying(call, library.view(x), dtype)
    if found is None:  # its leading dimensions must be broadcast, too
        of_matrix = x.shape[max(0, x.ndim - call.has_rows - call.has_columns) :]
        ahead = (1,) * (call.has_rows + call.has_columns - len(of_matrix))
        x = library.contiguous(x, (*call.batch, *ahead, *of_matrix))
        found = lying(call, library.view(x), dtype)
    assert found is not None
    return x, found


def epilogue_of(
    call: Call, given: Sequence[Strided], results: Sequence[View | None]
) -> Epilogue | None:
    """Return the epilogue of a call; None if it has none.

    Parameters
    ----------
    call : Call
    given : sequence of Strided
        The arrays among its operands.
    results : sequence of View
        The views that the results besides the first are stored to, as in :func:`lying`.
    """
    fusion = call.fusion
    if fusion is None:
        return None
    arrays = iter(given)
    operands = tuple(x if isinstance(x, float) else next(arrays) for x in fusion.operands)
    others = [lying(call, view, call.out_dtype) for view in results]
    return Epilogue(fusion.function, operands, tuple(x for x in others if x is not None))


def lying(call: Call, view: View | None, dtype: str) -> Strided | None:
    """Return how a view broadcasts over the result; None if strides can't describe it."""
    if view is None:
        return None
    own = [
        0 if extent == 1 else stride
        for extent, stride in zip(view.shape, view.strides, strict=True)
    ]
    strides = [0] * (len(call.shape) - len(own)) + own
    column = strides.pop() if call.has_columns else 0
    row = strides.pop() if call.has_rows else 0
    step = batch_stride(call.batch, strides)
    return None if step is None else Strided(dtype, row, column, step, offset(view.pointer))


def span(view: View) -> int:
    """Return the number of elements from the first to the last, both included."""
    elements = 1
    for extent, stride in zip(view.shape, view.strides, strict=True):
        if not extent:
            return 0
        elements += (extent - 1) * stride
    return elements


def batch_stride(batch: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the one stride that leads from matrix to matrix; None if there is none."""
    steps = [(n, stride) for n, stride in zip(batch, strides, strict=True) if n != 1]
    for (_, outer), (n, inner) in pairwise(steps):
        if outer != n * inner:
            return None
    return steps[-1][1] if steps else 0


def new(shape: Sequence[int]) -> View:
    """Return the view of an aligned C-contiguous array."""
    return View(0, tuple(shape), tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))))


@cache
def gpu_of(ordinal: int) -> Gpu:
    """Return the GPU with this number."""
    first = first_gpu()
    return first if first is not None and first.context.ordinal == ordinal else Gpu(ordinal)


@cache
def first_gpu() -> Gpu | None:
    """Return the GPU that computes products of arrays on the host; None if there is none."""
    try:
        found = get_device("gpu")
    except DeviceUnavailableError:
        return None
    return found if isinstance(found, Gpu) else None


def _seen(call: Call, x: Array, has_rows: bool, has_columns: bool, transpose: bool = False) -> Seen:
    library, batch = call.library, call.batch
    how = has_rows, has_columns, transpose
    view = library.view(x)
    # A transfer to a device also moves everything between the array's elements.
    if view is not None and (
        library.ordinal(x) is not None or span(view) <= 2 * math.prod(view.shape)
    ):
        operand = operand_of(view, batch, *how)
        if operand is not None:
            return Seen(x, operand, None, view)
    shape = tuple(x.shape)
    operand = operand_of(new(shape), batch, *how)
    if operand is None:  # its leading dimensions must be broadcast, too
        shape = (*batch, *shape[len(shape) - has_rows - has_columns :])
        operand = operand_of(new(shape), batch, *how)
    assert operand is not None
    return Seen(x, operand, shape, None)


def operand_of(
    view: View | None,
    batch: tuple[int, ...],
    has_rows: bool = True,
    has_columns: bool = True,
    transpose: bool = False,
) -> Operand | None:
    """Return the view as a batch of matrices; None if strides can't describe it."""
    if view is None:
        return None
    if has_rows and has_columns and len(view.shape) == 2:
        (rows, columns), (row, column) = view.shape, view.strides
        extents: Sequence[int] = ()
        strides: Sequence[int] = ()
    else:
        extents, strides = list(view.shape), list(view.strides)
        columns, column = (extents.pop(), strides.pop()) if has_columns else (1, 0)
        rows, row = (extents.pop(), strides.pop()) if has_rows else (1, 0)
    # Over a single element any stride will do; take that of a matrix without gaps.
    if rows <= 1:
        row = 1 if column > 1 else max(columns, 1)
    if columns <= 1:
        column = 1 if row > 1 else max(rows, 1)
    # A copy of elements that share memory, or of lines that interleave, costs little; few kernels
    # take them.
    small, large, extent = (row, column, rows) if row < column else (column, row, columns)
    if rows and columns and not (small and small * extent <= large):
        return None
    if transpose and has_rows and has_columns:
        row, column = column, row
    if not batch:
        return Operand(row, column, 0, view.pointer % ALIGNMENT)
    own = [0] * (len(batch) - len(extents)) + [
        0 if extent == 1 else stride for extent, stride in zip(extents, strides, strict=True)
    ]
    step = batch_stride(batch, own)
    return None if step is None else Operand(row, column, step, view.pointer % ALIGNMENT)
