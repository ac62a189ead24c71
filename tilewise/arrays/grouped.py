"""A call of :func:`tilewise.grouped_matmul`, checked before anything is allocated or launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewise.arrays.call import check_out, check_places, dtypes, one_library
from tilewise.arrays.fusion import Asked, Fusion, asked, check_shape, fusion
from tilewise.arrays.libraries import Array, Library, View
from tilewise.arrays.operands import operand_of
from tilewise.devices import Device, check_device
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.grouped.product import OFFSET_TYPES, Grouped
from tilewise.gemm.product import ACCUMULATORS, Operand, offset
from tilewise.shown import plural

TAKEN = frozenset({"x", "w", "offsets", "out", "out_dtype", "device", "check_offsets", "epilogue"})
"""The names of the arguments of :func:`tilewise.grouped_matmul`, which no operand can have."""


class GroupedCall(NamedTuple):
    """A call that passed its checks, with the arguments of :func:`tilewise.grouped_matmul`.

    Attributes
    ----------
    m, n, k, groups : int
        The extents: x is m x k and w is k x n, where the dimension in groups counts in full, and
        the number of groups.
    of : str
        ``"m"`` if rows of x are in groups, ``"k"`` if columns of x and rows of w are.
    shape : tuple of int
        The shape of the result.
    """

    library: Library
    x: Array
    w: Array
    offsets: Array
    outs: tuple[Array | None, ...]
    m: int
    n: int
    k: int
    groups: int
    of: str
    shape: tuple[int, ...]
    dtype: str
    out_dtype: str
    offset_dtype: str
    fusion: Fusion | None

    def returned(self, results: Sequence[Array]) -> Any:
        """Return what the caller gets: a tuple if the epilogue returns one, else one array."""
        is_tuple = self.fusion is not None and self.fusion.function.is_tuple
        return tuple(results) if is_tuple else results[0]

    def product(
        self, x: Operand, w: Operand, d: Operand, epilogue: Epilogue | None = None
    ) -> Grouped:
        """Return the product that a device computes on operands with these layouts."""
        return Grouped(
            self.of, self.m, self.n, self.k, self.groups, self.dtype, self.out_dtype,
            self.offset_dtype, x, w, d, epilogue,
        )  # fmt: skip


def traced(
    epilogue: Callable[..., Any] | None,
    operands: Mapping[str, Any],
    caller: str = "grouped_matmul",
) -> Asked | None:
    """Trace a call's epilogue; return None if there is none. ``caller`` is for messages."""
    if epilogue is None and not operands:
        return None
    return asked(epilogue, operands, taken=TAKEN, caller=caller)


def check(
    x: Array,
    w: Array,
    offsets: Array,
    out: Array | Sequence[Array] | None,
    out_dtype: Any,
    device: str | Device,
    function: Asked | None,
) -> GroupedCall:
    """Return the call if everything is right that can be checked without the offsets' values.

    :func:`tilewise.grouped_matmul` lists what is raised.
    """
    check_device(device)
    outs = tuple(out) if isinstance(out, tuple | list) else None if out is None else (out,)
    if any(each is None for each in outs or ()):
        raise TypeError("out has None among its arrays; give all of them, or none")
    arrays = [("x", x), ("w", w), ("offsets", offsets), *(("out", each) for each in outs or ())]
    library = one_library(arrays)
    dtype, result_dtype = dtypes(library, x, w, None, outs or (), out_dtype, ("x", "w"))
    offset_dtype = library.dtype_of(offsets)
    if offset_dtype not in OFFSET_TYPES:
        raise TypeError(f"offsets has dtype {offset_dtype}; it takes int32 or int64")
    fused = fusion(library, function, outs, ACCUMULATORS[dtype])
    operands = [] if fused is None else fused.arrays
    check_places(library, [*arrays, *operands], device)
    m, n, k, groups, of, shape = shapes(tuple(x.shape), tuple(w.shape), tuple(offsets.shape))
    for each in outs or ():
        if tuple(each.shape) != shape:
            raise ValueError(f"out has shape {tuple(each.shape)}; the result has {shape}")
    for what, each in operands:
        if not (of == "m" and tuple(each.shape) in ((groups, 1, n), (groups, 1, 1))):
            check_shape(what, each, shape)
    for i, each in enumerate(outs or ()):
        apart = [("x", x), ("w", w), ("offsets", offsets)]
        apart += [("another result", other) for other in (outs or ())[:i]]
        check_out(library, each, apart, operands)
    return GroupedCall(
        library, x, w, offsets, outs or (None,) * (1 if fused is None else 1 + len(fused.outs)),
        m, n, k, groups, of, shape, dtype, result_dtype, offset_dtype, fused,
    )  # fmt: skip


def shapes(
    x: tuple[int, ...], w: tuple[int, ...], offsets: tuple[int, ...]
) -> tuple[int, int, int, int, str, tuple[int, ...]]:
    """Return m, n, k, the number of groups, the dimension in groups, and the result's shape."""
    if len(x) != 2 or len(w) not in (2, 3):
        raise ValueError(
            f"x has shape {x} and w {w}; x has two dimensions, and w three where each group has a "
            "matrix, or two where k is in groups"
        )
    if len(offsets) != 1:
        raise ValueError(
            f"offsets has shape {offsets}; it has one dimension, an end for each group"
        )
    groups, (m, k), n = offsets[0], x, w[-1]
    if len(w) == 3 and w[0] != groups:
        raise ValueError(
            f"w has {w[0]:,} matrices and offsets {plural(groups, 'end')}; give as many"
        )
    if w[-2] != k:
        raise ValueError(
            f"x is {m:,} x {k:,} and w has {plural(w[-2], 'row')}; x must have as many columns"
        )
    of = "m" if len(w) == 3 else "k"
    return m, n, k, groups, of, (m, n) if of == "m" else (groups, m, n)


def check_ends(ends: Sequence[int], total: int, what: str) -> None:
    """Raise ValueError if offsets are not the ends of groups that make up all of ``total``.

    Parameters
    ----------
    ends : sequence of int
    total : int
    what : str
        The name of what is in groups, for the message.
    """
    before = 0
    for i, end in enumerate(ends):
        if end < before:
            raise ValueError(
                f"offsets[{i}] is {end:,}, after {before:,}: ends of groups must not decrease, "
                "from 0 on"
            )
        before = end
    if before != total:
        raise ValueError(f"the last group ends at {before:,}; it must end at {total:,}, {what}")


def extent_in_groups(call: GroupedCall) -> tuple[int, str]:
    """Return the extent of the dimension in groups, and words for it."""
    return (call.m, "the rows of x") if call.of == "m" else (call.k, "the columns of x")


def input_operand(call: GroupedCall, view: View | None) -> Operand | None:
    """Return the layout of x or w for a kernel; None if strides can't describe it."""
    return operand_of(view, () if view is None else view.shape[:-2])


def result_operand(call: GroupedCall, view: View | None) -> Operand | None:
    """Return the layout of an array of the result's shape; None if strides can't describe it."""
    return operand_of(view, call.shape[:-2])


def lying(call: GroupedCall, view: View | None, dtype: str) -> Strided | None:
    """Return how an epilogue's array broadcasts over the result; None if strides can't describe it.

    The three dimensions are the group, the row and the column.
    """
    if view is None:
        return None
    own = [
        0 if extent == 1 else stride
        for extent, stride in zip(view.shape, view.strides, strict=True)
    ]
    batch, row, column = [0] * (3 - len(own)) + own
    return Strided(dtype, row, column, batch, offset(view.pointer))


def epilogue_of(
    call: GroupedCall, given: Sequence[Strided], others: Sequence[Strided]
) -> Epilogue | None:
    """Return the epilogue of a call; None if it has none.

    Parameters
    ----------
    call : GroupedCall
    given : sequence of Strided
        The arrays among its operands.
    others : sequence of Strided
        The arrays that the results besides the first are stored to.
    """
    if call.fusion is None:
        return None
    arrays = iter(given)
    operands = tuple(x if isinstance(x, float) else next(arrays) for x in call.fusion.operands)
    return Epilogue(call.fusion.function, operands, tuple(others))


def multiply(call: GroupedCall) -> Any:
    """Compute what a call returns by the arrays' own library, group by group."""
    library, wide = call.library, ACCUMULATORS[call.dtype]
    # The offsets are integers, so the dtypes that products support don't matter.
    ends = [int(end) for end in call.offsets.tolist()]
    total, what = extent_in_groups(call)
    check_ends(ends, total, what)
    results = [
        library.empty(call.shape, call.out_dtype, call.x) if out is None else out
        for out in call.outs
    ]
    begin = 0
    with np.errstate(all="ignore"), library.current(call.x):
        for group, end in enumerate(ends):
            rows, columns = (
                (slice(begin, end), slice(None))
                if call.of == "m"
                else (slice(None), slice(begin, end))
            )
            a = call.x[rows, columns]
            b = call.w[group] if call.of == "m" else call.w[begin:end]
            if a.shape[1]:
                value = library.product(a, b, wide)
            else:
                value = library.empty((a.shape[0], call.n), wide, call.x)
                value[...] = 0
            values: tuple[Array, ...] = (value,)
            if call.fusion is not None:
                own = [_of_group(call, each, group, rows) for each in call.fusion.operands]
                values = call.fusion._replace(operands=tuple(own)).evaluated(library, value, wide)
            for result, each in zip(results, values, strict=True):
                result[rows if call.of == "m" else group] = each
            begin = end
    return call.returned(results)


def _of_group(call: GroupedCall, x: Array | float, group: int, rows: slice) -> Array | float:
    """Return an operand as one group's product sees it."""
    if isinstance(x, float) or not x.ndim:
        return x
    if x.ndim == 3:
        return x[group if x.shape[0] > 1 else 0]
    if call.of == "m" and x.ndim == 2 and x.shape[0] > 1:
        return x[rows]
    return x
