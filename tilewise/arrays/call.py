"""A call of :func:`tilewise.matmul`, checked before anything is allocated or launched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewise.arrays.fusion import APART, Asked, Fusion, check_shape, fusion
from tilewise.arrays.libraries import Array, Library, dtype_name, library_of
from tilewise.devices import Device, check_device
from tilewise.flags import check_flags
from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.product import ACCUMULATORS, DTYPES, Operand, Pairing, Product, paired
from tilewise.roundoff import scalar
from tilewise.shown import named_type, plural

_WORK = 10_000  # the most steps of numpy.may_share_memory, after which it says yes


class Call(NamedTuple):
    """A call that passed its checks, with the arguments of :func:`tilewise.matmul`.

    Attributes
    ----------
    c : array or None
        The matrix C; None if ``beta`` is 0.
    batch, shape : tuple of int
        The broadcast leading dimensions, and the shape of the result.
    dtype, out_dtype : str
        The dtype of A and B, and the dtype of C and the result.
    fusion : Fusion or None
        The function that is applied to the product before it is stored.
    invariant : bool
        Whether a row's bits must not depend on the other rows.
    pairs : str or None
        For a product of pairs, the layout of the columns of the two matrices B, as in
        :class:`tilewise.arrays.fusion.Asked`. ``n`` then counts the columns of the result, and B
        has twice as many if it holds both.
    up : array or None
        For a product of pairs, the second matrix B if it is an array of its own.
    """

    library: Library
    a: Array
    b: Array
    c: Array | None
    out: Array | None
    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    shape: tuple[int, ...]
    transpose_a: bool
    transpose_b: bool
    alpha: float
    beta: float
    dtype: str
    out_dtype: str
    fusion: Fusion | None = None
    invariant: bool = False
    pairs: str | None = None
    up: Array | None = None

    @property
    def outs(self) -> tuple[Array | None, ...]:
        """The arrays that the results are stored to; None for a new array."""
        return (self.out, *(() if self.fusion is None else self.fusion.outs))

    def returned(self, results: Sequence[Array]) -> Any:
        """Return what the caller gets: a tuple if the epilogue returns one, else one array."""
        is_tuple = self.fusion is not None and self.fusion.function.is_tuple
        return tuple(results) if is_tuple else results[0]

    @property
    def has_rows(self) -> bool:
        """Whether the result has a dimension of rows; it has none if A is a vector."""
        return bool(self.a.ndim > 1)

    @property
    def has_columns(self) -> bool:
        """Whether the result has a dimension of columns; it has none if B is a vector."""
        return bool(self.b.ndim > 1)

    def product(
        self, a: Operand, b: Operand, c: Operand | None, d: Operand,
        epilogue: Epilogue | None = None, up: Operand | None = None,
    ) -> Product:  # fmt: skip
        """Return the product that a device computes on operands with these layouts."""
        m, batch, pairing = self.m, math.prod(self.batch), None
        if self.pairs is not None:
            b, pairing = (b, Pairing(up)) if up else paired(b, self.pairs, self.n, self.dtype)
        # Matrices A that follow one another in memory, all times the same B, are one matrix.
        if batch > 1 and b.batch_stride == 0 and (up is None or up.batch_stride == 0):
            fused = () if epilogue is None else epilogue.arrays
            lying = (x for x in (a, c, d, *fused) if x is not None)
            if all(x.batch_stride == m * x.row_stride for x in lying):
                m, batch = m * batch, 1
        return Product(
            m, self.n, self.k, batch, self.dtype, self.out_dtype, self.alpha, self.beta, a, b, c, d,
            epilogue, pairing=pairing,
        )  # fmt: skip


def check(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None,
    alpha: float,
    beta: float,
    transpose_a: bool,
    transpose_b: bool,
    out: Array | Sequence[Array] | None,
    out_dtype: Any,
    device: str | Device,
    asked: Asked | None = None,
    invariant: bool = False,
) -> Call:
    """Return the call if everything in it is right; see :func:`tilewise.matmul` for errors."""
    check_device(device)
    check_flags(transpose_a=transpose_a, transpose_b=transpose_b)
    given = None if out is None else tuple(out) if isinstance(out, tuple | list) else (out,)
    outs = given or ()
    for x in outs:
        if x is None:
            raise TypeError("out has None among its arrays; give all of them, or none")
    out = outs[0] if outs else None
    pairs, up = None if asked is None else asked.pairs, None
    if pairs == APART:
        b, up = b
    arrays = [("a", a), ("b", b)] if up is None else [("a", a), ("b[0]", b), ("b[1]", up)]
    inputs = len(arrays)
    if c is not None:
        arrays.append(("c", c))
    arrays += [("out", x) for x in outs]
    library = one_library(arrays)
    dtype, result_dtype = dtypes(library, a, b, c, outs, out_dtype)
    if up is not None:
        dtypes(library, a, up, c, outs, out_dtype)
    fused = fusion(library, asked, given, ACCUMULATORS[dtype])
    operand_arrays = [] if fused is None else fused.arrays
    check_places(library, [*arrays, *operand_arrays], device)
    of_b = _of_result(b, up, pairs, transpose_b)
    m, n, k, batch, shape = shapes(a.shape, of_b, transpose_a, transpose_b)
    if pairs is not None and (c is not None or beta != 0):
        raise ValueError("a product with pairs takes no C; pass it as an operand of the epilogue")
    for what, x in arrays[inputs:]:
        if tuple(x.shape) != shape:
            raise ValueError(f"{what} has shape {tuple(x.shape)}; the result has {shape}")
    for what, x in operand_arrays:
        check_shape(what, x, shape)
    alpha = _scalar(alpha, ACCUMULATORS[dtype], "alpha")
    beta = _scalar(beta, ACCUMULATORS[dtype], "beta")
    if beta != 0 and c is None:
        raise ValueError(f"beta is {beta}, and there is no C to multiply; give c, or beta 0")
    if beta == 0:
        c = None
    for i, each in enumerate(outs):
        others = [*arrays[:inputs], *(("another result", x) for x in outs[:i])]
        check_out(library, each, others, [("c", c), *operand_arrays])
    return Call(
        library, a, b, c, out, m, n, k, batch, shape,
        transpose_a, transpose_b, alpha, beta, dtype, result_dtype, fused, invariant, pairs, up,
    )  # fmt: skip


def _of_result(b: Array, up: Array | None, pairs: str | None, transpose: bool) -> Sequence[int]:
    """Return the shape of one of the matrices B, which has as many columns as the result."""
    whole: Sequence[int] = b.shape
    if pairs is None:
        return whole
    shape = list(whole)
    if len(shape) < 2:
        raise ValueError(f"b has shape {tuple(shape)}; pairs are columns of a matrix")
    if up is not None:
        if tuple(up.shape) != tuple(shape):
            raise ValueError(f"b[0] has shape {tuple(shape)} and b[1] {tuple(up.shape)}")
        return shape
    columns = shape[-2 if transpose else -1]
    if columns % 2:
        raise ValueError(f"op(B) has {plural(columns, 'column')}, which can't be pairs")
    shape[-2 if transpose else -1] = columns // 2
    return shape


def one_library(arrays: Sequence[tuple[str, Array]]) -> Library:
    """Return the library of all arrays, which are given with their names.

    Raises
    ------
    TypeError
        If an array belongs to no supported library, or the arrays belong to several.
    """
    found: Library | None = None
    for what, x in arrays:
        library = library_of(x)
        if library is None:
            raise TypeError(
                f"{what} is {named_type(x)}; arrays of NumPy, CuPy and PyTorch are supported"
            )
        found = found or library
        if library is not found:
            raise TypeError(
                f"{arrays[0][0]} is {found.name}'s and {what} is {library.name}'s; pass arrays of "
                "one library"
            )
    assert found is not None
    return found


def dtypes(
    library: Library, a: Array, b: Array, c: Array | None, outs: Sequence[Array], asked: Any,
    names: tuple[str, str] = ("a", "b"),
) -> tuple[str, str]:  # fmt: skip
    """Return the dtypes of A and B and of the result; raise TypeError if they don't fit together.

    ``names`` are the names of A and B in the error's message.
    """
    dtype = library.dtype_of(a)
    if dtype not in DTYPES:
        raise TypeError(f"{names[0]} has dtype {dtype}; {', '.join(DTYPES)} are supported")
    if library.dtype_of(b) != dtype:
        raise TypeError(
            f"{names[0]} has dtype {dtype} and {names[1]} {library.dtype_of(b)}; they must be the "
            "same"
        )
    if asked is not None:
        result = dtype_name(asked)
    else:
        result = library.dtype_of(outs[0]) if outs else dtype
    possible = (dtype, ACCUMULATORS[dtype])
    if result not in possible:
        raise TypeError(
            f"the result of {dtype} arrays can't be {result}; it can be "
            + " or ".join(dict.fromkeys(possible))
        )
    for what, x in (("c", c), *(("out", x) for x in outs)):
        if x is not None and library.dtype_of(x) != result:
            raise TypeError(f"{what} has dtype {library.dtype_of(x)}; the result has {result}")
    return dtype, result


def shapes(
    a: Sequence[int], b: Sequence[int], transpose_a: bool, transpose_b: bool
) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Return m, n, k, the shape of the batch and the shape of the result."""
    if not a or not b:
        raise ValueError("a and b must have at least one dimension; multiply numbers by *")
    m, k = (1, a[0]) if len(a) == 1 else (a[-1], a[-2]) if transpose_a else (a[-2], a[-1])
    rows, n = (b[0], 1) if len(b) == 1 else (b[-1], b[-2]) if transpose_b else (b[-2], b[-1])
    if k != rows:
        raise ValueError(
            f"op(A) is {m:,} x {k:,} and op(B) is {rows:,} x {n:,}; "
            f"A must have as many columns as B has rows, and {k:,} is not {rows:,}"
        )
    batch = () if len(a) < 3 and len(b) < 3 else broadcast(tuple(a[:-2]), tuple(b[:-2]))
    shape = (*batch, *(() if len(a) == 1 else (m,)), *(() if len(b) == 1 else (n,)))
    return m, n, k, batch, shape


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast leading dimensions; extents may be the symbols of a graph of PyTorch's."""
    if not a or not b:
        return a or b
    size = max(len(a), len(b))
    pairs = zip((1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b, strict=True)
    out = []
    for x, y in pairs:
        if x != y and x != 1 and y != 1:
            raise ValueError(f"the leading dimensions of a, {a}, and of b, {b}, do not broadcast")
        out.append(y if x == 1 else x)
    return tuple(out)


def _scalar(value: float, dtype: str, what: str) -> float:
    if type(value) in (int, float) and value in (0, 1):
        return float(value) + 0.0  # -0 becomes 0, so that the two count as equal
    return scalar(value, dtype, what) + 0.0


META = "meta"


def check_places(
    library: Library, arrays: Sequence[tuple[str, Array]], device: str | Device
) -> None:
    """Raise if an array can't be used, or if the arrays do not all lie in the place asked for."""
    for what, x in arrays:
        library.check(x, what)
    places = [library.ordinal(x) if library.has_values(x) else META for _, x in arrays]
    if places.count(places[0]) != len(places):
        names: dict[int | str | None, str] = {None: "the host", META: "meta"}
        where = ", ".join(
            f"{what} on {names.get(i, f'GPU {i}')}"
            for (what, _), i in zip(arrays, places, strict=True)
        )
        raise ValueError(f"the arrays must lie in one place, not {where}")
    if places[0] == META and device != "auto":
        raise ValueError(
            "the tensors are on meta and have no values; leave out device, and the result has none"
        )
    name = device if isinstance(device, str) else device.name
    if name == "emulator" and places[0] is not None:
        raise ValueError("the emulator takes arrays on the host; these lie on a GPU")


def check_out(
    library: Library,
    out: Array,
    apart: Sequence[tuple[str, Array]],
    elementwise: Sequence[tuple[str, Array | None]],
) -> None:
    """Raise ValueError if a result overlaps arrays that it must not overlap.

    Parameters
    ----------
    library : Library
    out : array
    apart : sequence of (str, array)
        The arrays that it must not overlap.
    elementwise : sequence of (str, array or None)
        The arrays that may be the result itself, because each element is read before it is stored
        there.
    """
    if not math.prod(out.shape) or not library.has_values(out):
        return
    place = library.stand_in(out)
    reach = 0  # bytes from the first to the last element of the dimensions with smaller strides
    for stride, extent in sorted(
        (abs(stride), extent)
        for extent, stride in zip(place.shape, place.strides, strict=True)
        if extent > 1
    ):
        if stride < reach + place.itemsize:
            raise ValueError("out has elements that share memory, or interleave; pass another")
        reach += stride * (extent - 1)
    for what, x, may_be_out in (
        *((what, x, False) for what, x in apart),
        *((what, x, True) for what, x in elementwise if x is not None),
    ):
        there = library.stand_in(x)
        if not (may_be_out and _same(place, there)) and _overlap(place, there):
            raise ValueError(f"out overlaps {what}; pass another array, or {what}'s copy")


def _same(x: Any, y: Any) -> bool:
    return bool(x.ctypes.data == y.ctypes.data and x.strides == y.strides and x.shape == y.shape)


def _overlap(x: Any, y: Any) -> bool:
    """Return whether two arrays share memory; also True if that would take too long to find out."""
    # NumPy's annotations allow only two special values for max_work.
    return bool(np.may_share_memory(x, y, max_work=_WORK))  # type: ignore[arg-type]
