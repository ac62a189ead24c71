"""Exact IEEE 754 arithmetic in NumPy: fused multiply-add and the directed roundings.

NumPy rounds to nearest, and rounds twice if a result is computed in a wider format and narrowed.
The other operations are built here from error-free transformations, in the names of Muller et al.,
*Handbook of Floating-Point Arithmetic* (2nd ed.), ch. 4 and 5: TwoSum (Knuth), TwoProduct with
Veltkamp's splitting (Dekker), and rounding to odd (Boldo and Melquiond, *Emulation of a FMA and
correctly rounded sums: proved algorithms using rounding to odd*, IEEE Trans. Comput. 57(4), 2008).

Every function takes arrays and NumPy scalars alike, broadcasts, and never writes to its
arguments. Call them inside ``np.errstate(all="ignore")``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
ROUNDINGS = ("rn", "rz", "rm", "rp")

CANONICAL_NAN: dict[np.dtype[Any], Any] = {
    F16: np.uint16(0x7FFF).view(np.float16),
    F32: np.uint32(0x7FFFFFFF).view(np.float32),
    F64: np.uint64(0x7FFFFFFFFFFFFFFF).view(np.float64),
}
BITS: dict[np.dtype[Any], Any] = {F16: np.uint16, F32: np.uint32, F64: np.uint64}
# The number of lanes that are processed at a time, so that the wide intermediates fit the L2 cache.
CHUNK = 16384


def canonical(x: Any) -> Any:
    """Return ``x`` with every NaN replaced by PTX's canonical one; writes to ``x``."""
    nan = x != x
    if nan.any():
        if x.ndim == 0:
            return CANONICAL_NAN[x.dtype]
        x[nan] = CANONICAL_NAN[x.dtype]
    return x


def flush(x: Any) -> Any:
    """Return ``x`` with every subnormal replaced by a zero of the same sign (PTX's ``.ftz``)."""
    normal = np.abs(x) >= np.finfo(x.dtype).tiny
    if normal.all():
        return x
    return x * normal


def saturate(x: Any) -> Any:
    """Return ``x`` clamped to [+0, 1], with NaN replaced by +0 (PTX's ``.sat``)."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.fmin(np.fmax(x, zero), one) + zero


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum and its exact error (NaN if the sum is not finite)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded product and its exact error, both float64.

    It is exact if |a|, |b| < 2**995 and the product is 0 or at least 2**-960.
    """
    p = a * b
    t = a * 134217729.0
    ah = t - (t - a)
    al = a - ah
    t = b * 134217729.0
    bh = t - (t - b)
    bl = b - bh
    return p, al * bl - (((p - ah * bh) - al * bh) - ah * bl)


def round_to_odd(s: Any, error: Any) -> Any:
    """Return a sum rounded to odd in float64, from the sum rounded to nearest and its error."""
    bits = np.asarray(s).view(np.int64)
    inexact = (np.abs(error) > 0) & ((bits & 1) == 0)
    away = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(inexact, bits + away, bits).view(np.float64)[()]


def step(r: Any, low: Any, high: Any, rounding: str) -> Any:
    """Return the neighbour of the exact value that ``rounding`` selects.

    Parameters
    ----------
    r : float array
        The exact value itself or one of the two floats around it.
    low, high : bool arrays
        Where ``r`` is below, and above, the exact value.
    rounding : {"rz", "rm", "rp"}
    """
    kind = r.dtype.type
    if rounding == "rp":
        return np.where(low, np.nextafter(r, kind(np.inf)), r)[()]
    if rounding == "rm":
        return np.where(high, np.nextafter(r, kind(-np.inf)), r)[()]
    beyond = (high & (r > 0)) | (low & (r < 0))
    return np.where(beyond, np.nextafter(r, kind(0)), r)[()]


def narrow(exact: Any, dtype: np.dtype[Any], rounding: str = "rn") -> Any:
    """Return float64, exact or rounded to odd, rounded once to float32 or float16."""
    r = exact.astype(dtype)
    if rounding == "rn":
        return r
    back = r.astype(np.float64)
    return step(r, back < exact, back > exact, rounding)


def negative_zero(r: Any, a: Any, b: Any) -> Any:
    """Return ``r`` = a + b with an exact zero as -0 unless both are +0, as in rounding down."""
    zero = (r == 0) & ~((a == 0) & (b == 0) & ~np.signbit(a) & ~np.signbit(b))
    return np.where(zero, r.dtype.type(-0.0), r)[()]


def sum_to_odd(a: Any, b: Any) -> Any:
    """Return a + b of float64 arrays, rounded to odd."""
    s, error = two_sum(a, b)
    if not (np.abs(error) > 0).any():
        return s
    return round_to_odd(s, error)


def add_f32(rounding: str) -> Callable[[Any, Any], Any]:
    """Return the function a + b for float32 in the given rounding."""
    if rounding == "rn":
        return np.add

    def add(a: Any, b: Any) -> Any:
        x, y = a.astype(np.float64), b.astype(np.float64)
        exact = sum_to_odd(x, y)
        if rounding == "rm":
            exact = negative_zero(exact, x, y)
        return narrow(exact, F32, rounding)

    return add


def mul_f32(rounding: str) -> Callable[[Any, Any], Any]:
    """Return the function a * b for float32 in the given rounding."""
    if rounding == "rn":
        return np.multiply
    return lambda a, b: narrow(np.multiply(a, b, dtype=np.float64), F32, rounding)


def div_f32(rounding: str) -> Callable[[Any, Any], Any]:
    """Return the function a / b for float32 in the given rounding."""
    if rounding == "rn":
        return np.divide

    def divide(a: Any, b: Any) -> Any:
        r = np.divide(a, b)
        back = np.multiply(r, b, dtype=np.float64)  # exact
        smaller, greater, negative = back < a, back > a, np.signbit(b)
        low = (smaller & ~negative) | (greater & negative)
        high = (greater & ~negative) | (smaller & negative)
        return step(r, low, high, rounding)

    return divide


def sqrt_f32(rounding: str) -> Callable[[Any], Any]:
    """Return the square root for float32 in the given rounding."""
    if rounding == "rn":
        return np.sqrt

    def root(a: Any) -> Any:
        r = np.sqrt(a)
        back = np.multiply(r, r, dtype=np.float64)  # exact
        return step(r, back < a, back > a, rounding)

    return root


_ODD_HALF = np.uint64(1 << 63)
_Buffers = tuple[Any, Any, Any, Any]
_buffers: list[_Buffers] = []  # a pool, as taking and giving back are atomic


def _fix_f32(lanes: Any, r: Any, a: Any, b: Any, c: Any) -> None:
    """Recompute the ``lanes`` of a fused multiply-add with one rounding."""
    index = np.flatnonzero(lanes)
    if index.size:
        a, b, c = (x if x.ndim == 0 else x[index] for x in (a, b, c))
        s, error = two_sum(np.multiply(a, b, dtype=np.float64), np.float64(1) * c)
        r[index] = round_to_odd(s, error).astype(np.float32)


def _fma_f32_chunk(a: Any, b: Any, c: Any, r: Any, buffers: _Buffers) -> None:
    """Compute r = a * b + c over at most CHUNK lanes, rounded once.

    The product is exact in float64. Rounding the sum to float64 and then to float32 fails only if
    the first rounding gives a midpoint of float32: its low 29 bits are then 10...0, or the result
    is subnormal or the least normal. Those lanes are recomputed.
    """
    n = r.shape[0]
    wide, odd, mask, word = (buffer[:n] for buffer in buffers)
    np.multiply(a, b, out=wide, dtype=np.float64)
    np.add(wide, c, out=wide, dtype=np.float64)
    np.copyto(r, wide, casting="unsafe")
    np.left_shift(wide.view(np.uint64), np.uint64(35), out=odd)
    np.equal(odd, _ODD_HALF, out=mask)
    if np.count_nonzero(mask):
        _fix_f32(mask, r, a, b, c)
    np.left_shift(r.view(np.uint32), np.uint32(1), out=word)
    if np.maximum.reduce(word) > 0xFF000000:
        r[word > 0xFF000000] = CANONICAL_NAN[F32]
    np.subtract(word, np.uint32(1), out=word)  # zero goes to the top
    if np.minimum.reduce(word) <= 0x00FFFFFF:
        _fix_f32(word <= 0x00FFFFFF, r, a, b, c)


def _fma_f32_nearest(a: Any, b: Any, c: Any) -> Any:
    # The shapes are mostly equal, and np.broadcast_shapes would take a tenth of the whole time.
    shape = a.shape
    if not shape == b.shape == c.shape:
        shape = np.broadcast_shapes(shape, b.shape, c.shape)
    r = np.empty(shape or 1, np.float32)
    try:
        buffers = _buffers.pop()
    except IndexError:
        buffers = (
            np.empty(CHUNK),
            np.empty(CHUNK, np.uint64),
            np.empty(CHUNK, np.bool_),
            np.empty(CHUNK, np.uint32),
        )
    n = r.shape[0]
    if n <= CHUNK:
        if n:
            _fma_f32_chunk(a, b, c, r, buffers)
    else:
        for start in range(0, n, CHUNK):
            part = slice(start, start + CHUNK)
            x, y, z = (operand if operand.ndim == 0 else operand[part] for operand in (a, b, c))
            _fma_f32_chunk(x, y, z, r[part], buffers)
    _buffers.append(buffers)
    return r if shape else r[0]


def fma_f32(rounding: str) -> Callable[[Any, Any, Any], Any]:
    """Return a * b + c for float32, rounded once, for arrays of one dimension or scalars."""
    if rounding == "rn":
        return _fma_f32_nearest

    def fma(a: Any, b: Any, c: Any) -> Any:
        product, wide = np.multiply(a, b, dtype=np.float64), c.astype(np.float64)
        exact = sum_to_odd(product, wide)
        if rounding == "rm":
            exact = negative_zero(exact, product, wide)
        return narrow(exact, F32, rounding)

    return fma
