"""Exact float64 arithmetic: directed roundings and the fused multiply-add.

NumPy has no wider format on all platforms, so errors are carried as a second float64; where a step
of that would under- or overflow, rational numbers decide, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic.ieee import (
    negative_zero,
    round_to_odd,
    step,
    two_product,
    two_sum,
)


def round_fraction(value: Fraction, rounding: str) -> float:
    """Return a nonzero fraction rounded once to float64."""
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = max(exponent - 52, -1074)
    scaled = magnitude / Fraction(2) ** quantum
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest - scaled.denominator
    negative = value < 0
    if rounding == "rn":
        up = twice > 0 or (twice == 0 and whole % 2 == 1)
    else:
        up = rest > 0 and rounding == ("rm" if negative else "rp")
    whole += up
    largest = (2**53 - 1) * 2**971
    if quantum >= 0 and whole << quantum > largest:
        to_infinity = rounding == "rn" or rounding == ("rm" if negative else "rp")
        result = math.inf if to_infinity else float(largest)
    else:
        result = math.ldexp(whole, quantum)
    return -result if negative else result


def _exact_lanes(
    lanes: Any, result: Any, rounding: str, value: Callable[..., Fraction], *operands: Any
) -> None:
    """Recompute the ``lanes`` of ``result`` with fractions, if all operands are finite."""
    shape = result.shape
    columns = [np.broadcast_to(operand, shape)[lanes].tolist() for operand in operands]
    for lane, row in zip(np.flatnonzero(lanes).tolist(), zip(*columns, strict=True), strict=True):
        exact = value(*map(Fraction, row))
        if exact:
            result[lane] = round_fraction(exact, rounding)


def _finite(*operands: Any) -> Any:
    result = np.isfinite(operands[0])
    for operand in operands[1:]:
        result = result & np.isfinite(operand)
    return result


def _moderate(*values: Any) -> Any:
    """Return where every magnitude is 0 or in 2**-400 .. 2**400: no exact step overflows there."""
    result: Any = np.True_
    for value in values:
        size = np.abs(value)
        result = result & ((size == 0) | ((size > 2.0**-400) & (size < 2.0**400)))
    return result


def _directed_f64(
    rounding: str,
    nearest: Callable[..., Any],
    error_sign: Callable[..., Any],
    value: Callable[..., Fraction],
    defined: Callable[..., Any],
) -> Callable[..., Any]:
    """Return a float64 operation in a directed rounding.

    Parameters
    ----------
    nearest : callable
        The operation, rounded to nearest.
    error_sign : callable
        A function of ``(r, *operands)`` whose result has the sign of the exact result minus ``r``,
        for operands and a result of moderate size.
    value : callable
        The operation on fractions, for the other sizes.
    defined : callable
        A function that says where the result of finite operands is a number.
    """

    def operation(*operands: Any) -> Any:
        operands = np.broadcast_arrays(*operands)
        shape = operands[0].shape
        flat = [operand.reshape(-1) for operand in operands]
        r = nearest(*flat)
        error = error_sign(r, *flat)
        moderate = _moderate(r, *flat)
        result = step(r, (error > 0) & moderate, (error < 0) & moderate, rounding)
        rest = ~moderate & _finite(*flat) & defined(*flat)
        if rest.any():
            _exact_lanes(rest, result, rounding, value, *flat)
        return result.reshape(shape)[()]

    return operation


def add_f64(rounding: str) -> Callable[[Any, Any], Any]:
    """Return the function a + b for float64 in the given rounding."""
    if rounding == "rn":
        return np.add
    directed = _directed_f64(
        rounding,
        np.add,
        lambda r, a, b: two_sum(a, b)[1],
        lambda a, b: a + b,
        lambda a, b: np.True_,
    )
    if rounding != "rm":
        return directed
    return lambda a, b: negative_zero(directed(a, b), a, b)


def mul_f64(rounding: str) -> Callable[[Any, Any], Any]:
    """Return the function a * b for float64 in the given rounding."""
    if rounding == "rn":
        return np.multiply
    return _directed_f64(
        rounding,
        np.multiply,
        lambda r, a, b: two_product(a, b)[1],
        lambda a, b: a * b,
        lambda a, b: np.True_,
    )


def div_f64(rounding: str) -> Callable[[Any, Any], Any]:
    """Return the function a / b for float64 in the given rounding."""
    if rounding == "rn":
        return np.divide

    def error_sign(r: Any, a: Any, b: Any) -> Any:
        p, error = two_product(r, b)
        return ((a - p) - error) * np.copysign(1.0, b)

    return _directed_f64(rounding, np.divide, error_sign, lambda a, b: a / b, lambda a, b: b != 0)


def sqrt_f64(rounding: str) -> Callable[[Any], Any]:
    """Return the square root for float64 in the given rounding."""
    if rounding == "rn":
        return np.sqrt

    def root(a: Any) -> Any:
        a = np.asarray(a)
        r = np.sqrt(a)
        # An even power of two brings any positive number to 1 <= x < 4, subnormals too.
        mantissa, exponent = np.frexp(a)
        half = exponent >> 1
        x = np.ldexp(mantissa, exponent - 2 * half)
        y = np.ldexp(r, -half)
        p, error = two_product(y, y)
        error = (x - p) - error
        return step(r, error > 0, error < 0, rounding)

    return root


def _fma_f64_value(a: Fraction, b: Fraction, c: Fraction) -> Fraction:
    return a * b + c


def _fma_f64_part(a: Any, b: Any, c: Any, rounding: str) -> Any:
    """Return a * b + c of one-dimensional float64 arrays (or scalars, not all), rounded once.

    With a * b = high + low and high + c = s + e exactly, s + z for z = e + low rounded to nearest
    is right unless s + z is a midpoint and z was rounded; those lanes round z to odd.
    """
    high, low = two_product(a, b)
    s, e = two_sum(high, c)
    z = e + low
    r = s + z
    f = z - (r - s)
    tie = ((f.view(np.uint64) << np.uint64(12)) == 0) & (f != 0)
    if rounding == "rn":
        if tie.any():
            r = np.where(tie, s + round_to_odd(*two_sum(e, low)), r)
    else:
        error = f + two_sum(e, low)[1]
        r = step(r, error > 0, error < 0, rounding)
    # Where the error of the product is not a float64, or a step overflowed, use integers.
    size = high.view(np.uint64) << np.uint64(1)
    if (
        np.minimum.reduce(size - np.uint64(1)) < _TINY
        or np.maximum.reduce(r.view(np.uint64) << np.uint64(1)) >= _INFINITE
        or np.count_nonzero(size) != size.size
    ):
        tiny = (size < _TINY) & (a != 0) & (b != 0)
        finite = _finite(a, b, c)
        rest = (tiny | ~np.isfinite(r)) & finite
        plain = ~finite
        if plain.any():
            # The product of finite numbers must not overflow against an infinite c.
            product = np.where(np.isfinite(a) & np.isfinite(b), 0.0, high)
            r = np.where(plain, product + c, r)
            # Of several NaNs, hardware keeps b's before c's before a's, and makes it quiet.
            nan = np.where(b != b, b, np.where(c != c, c, a))
            r = np.where(nan != nan, nan + nan, r)
        zero = (size == 0) & ~tiny
        if zero.any():  # the sum above has lost the sign of -0
            r = np.where(zero, high + c, r)
        if rounding == "rm":
            r = np.where(tiny, r, negative_zero(r, high, c))
        if rest.any():
            whole = high + c
            r[rest] = (negative_zero(whole, high, c) if rounding == "rm" else whole)[rest]
            _exact_lanes(rest, r, rounding, _fma_f64_value, a, b, c)
    elif rounding == "rm":
        r = negative_zero(r, high, c)
    return r


_TINY = np.uint64((1023 - 900) << 53)
_INFINITE = np.uint64(0x7FF << 53)
_ZERO = np.uint64(2**64 - 1)
_PART = 16384
_SPLITTER = np.float64(134217729)
_ONE, _SIGN_AND_EXPONENT = np.uint64(1), np.uint64(12)
_Buffers = tuple[Any, ...]
_buffers: list[_Buffers] = []  # a pool, as taking and giving back are atomic


def _new_buffers() -> _Buffers:
    return (*(np.empty(_PART) for _ in range(7)), np.empty(_PART, np.bool_))


def _split(x: Any, upper: Any, lower: Any, t: Any) -> None:
    """Split by Veltkamp's method, in place; scalars too."""
    np.multiply(x, _SPLITTER, out=t)
    np.subtract(t, x, out=upper)
    np.subtract(t, upper, out=upper)
    np.subtract(x, upper, out=lower)


def _fma_f64_chunk(a: Any, b: Any, c: Any, r: Any, buffers: _Buffers) -> None:
    """Compute ``_fma_f64_part`` to nearest, in place, over at most _PART lanes.

    The lanes that are not plain (a tie, a tiny product, a result that is not finite) are passed to
    that function.
    """
    ah, al, bh, bl, p, s, t, mask = (buffer[: r.shape[0]] for buffer in buffers)
    _split(a, ah, al, t)
    _split(b, bh, bl, t)
    np.multiply(a, b, out=p)
    np.multiply(ah, bh, out=t)
    np.subtract(p, t, out=t)
    np.multiply(bh, al, out=bh)
    np.subtract(t, bh, out=t)
    np.multiply(ah, bl, out=ah)
    np.subtract(t, ah, out=t)
    np.multiply(al, bl, out=al)
    low = np.subtract(al, t, out=al)
    np.add(p, c, out=s)
    np.subtract(s, p, out=t)
    np.subtract(s, t, out=ah)
    np.subtract(p, ah, out=ah)
    np.subtract(c, t, out=t)
    np.add(ah, t, out=t)
    z = np.add(t, low, out=t)
    np.add(s, z, out=r)
    np.subtract(r, s, out=ah)
    f = np.subtract(z, ah, out=ah)
    word = bl.view(np.uint64)
    np.left_shift(f.view(np.uint64), _SIGN_AND_EXPONENT, out=word)
    np.equal(word, 0, out=mask)
    np.logical_and(mask, f, out=mask)
    redo = bool(np.count_nonzero(mask))
    np.left_shift(r.view(np.uint64), _ONE, out=word)
    if np.maximum.reduce(word) >= _INFINITE:
        mask |= word >= _INFINITE
        redo = True
    np.left_shift(p.view(np.uint64), _ONE, out=word)
    np.subtract(word, _ONE, out=word)  # zero goes to the top
    if np.minimum.reduce(word) < _TINY:
        mask |= word < _TINY
        redo = True
    if np.maximum.reduce(word) == _ZERO:
        zero = word == _ZERO
        # A zero product: underflow, or exact and then without the sign of a zero sum.
        mask |= zero & (a != 0) & (b != 0)
        redo = True
        np.add(p, c, out=r, where=zero)
    if redo:
        index = np.flatnonzero(mask)
        if index.size:
            x, y, z = (np.broadcast_to(operand, r.shape)[index] for operand in (a, b, c))
            r[index] = _fma_f64_part(x, y, z, "rn")


def fma_f64(rounding: str) -> Callable[[Any, Any, Any], Any]:
    """Return a * b + c for float64, rounded once, for arrays of one dimension or scalars."""

    def fma(a: Any, b: Any, c: Any) -> Any:
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
        if rounding != "rn" or not shape:
            x, y, z = (np.broadcast_to(operand, shape or 1) for operand in (a, b, c))
            r = _fma_f64_part(x, y, z, rounding)
            return r if shape else r[0]
        r = np.empty(shape)
        try:
            buffers = _buffers.pop()
        except IndexError:
            buffers = _new_buffers()
        for start in range(0, shape[0], _PART):
            part = slice(start, start + _PART)
            x, y, z = (operand if operand.ndim == 0 else operand[part] for operand in (a, b, c))
            _fma_f64_chunk(x, y, z, r[part], buffers)
        _buffers.append(buffers)
        return r

    return fma
