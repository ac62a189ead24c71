"""Floats of eight bits, e4m3 and e5m2: their values, and ``cvt`` from and to pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.halves import from_f64
from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.ptx.modifiers import Words

Values = npt.NDArray[Any]

TYPES = {"e4m3": (4, 3), "e5m2": (5, 2)}  # bits of the exponent, and of the fraction
PAIRS = tuple(f"{type_}x2" for type_ in TYPES)
_NAN = np.uint8(0x7F)


@cache
def table(type_: str) -> Values:
    """Return the values of all bit patterns (PTX ISA 5.2.3)."""
    exponents, digits = TYPES[type_]
    pattern = np.arange(256)
    fraction = pattern & (1 << digits) - 1
    exponent = pattern >> digits & (1 << exponents) - 1
    bias = (1 << exponents - 1) - 1
    scale = np.exp2(np.maximum(exponent, 1) - bias - digits)
    found = (fraction + np.where(exponent > 0, 1 << digits, 0)) * scale
    if type_ == "e5m2":
        top = exponent == (1 << exponents) - 1
        found = np.where(top, np.where(fraction == 0, np.inf, np.nan), found)
    else:
        found = np.where(pattern & 127 == 127, np.nan, found)
    return np.where(pattern >> 7, -found, found)


def rounded(values: Any, type_: str, relu: bool) -> Any:
    """Return floats rounded to nearest, as bits; values past the largest number become that one."""
    exponents, digits = TYPES[type_]
    positive = table(type_)[:128]
    numbers = positive[np.isfinite(positive)]
    value = np.asarray(values, np.float64)
    size = np.minimum(np.abs(value), numbers[-1])
    lowest = 2 - (1 << exponents - 1)  # the least exponent of a normal number
    exponent = np.maximum(np.frexp(size)[1] - 1, lowest)
    unit = np.exp2(exponent - digits)
    nearest = np.minimum(np.rint(size / unit) * unit, numbers[-1])
    code = np.searchsorted(numbers, nearest).astype(np.uint8)
    sign = np.signbit(value)
    found = np.where(sign, np.uint8(0) if relu else code | np.uint8(0x80), code)
    return np.where(np.isnan(value), _NAN, found)


def convert(words: Words, pair: str, rounding: str, relu: bool, satfinite: bool) -> Semantics:
    """Return a ``cvt`` whose target or source is a pair of these floats.

    Parameters
    ----------
    words : Words
        The remaining words of the instruction.
    pair : str
        ``"e4m3x2"`` or ``"e5m2x2"``.
    rounding : str
    relu, satfinite : bool
    """
    type_ = pair.removesuffix("x2")
    words.check(rounding == "rn")
    source = words.one_of(("f16x2", "f32"))
    words.done(source != "")
    if satfinite:
        return Semantics(*_narrowing(type_, source, relu))
    words.check(source == "f16x2")
    return Semantics(("b16",), ("f16x2",), _widening(type_, relu))


def _narrowing(
    type_: str, source: str, relu: bool
) -> tuple[tuple[str, ...], tuple[str, ...], Callable[..., Any]]:
    """Return the operands' types, the result's, and the function of a ``cvt`` to a pair."""
    eight = np.uint16(8)

    def joined(high: Any, low: Any) -> Any:
        upper, lower = (rounded(x, type_, relu).astype(np.uint16) for x in (high, low))
        return (upper << eight) | lower

    def of_pair(a: Any) -> Any:
        high, low = ((a >> np.uint32(shift)).astype(np.uint16) for shift in (16, 0))
        return joined(high.view(np.float16), low.view(np.float16))

    if source == "f32":
        return ("f32", "f32"), ("b16",), joined
    return ("f16x2",), ("b16",), of_pair


def _widening(type_: str, relu: bool) -> Callable[..., Any]:
    """Return the function of a ``cvt`` from a pair to two halves, which have all its values."""
    numbers = table(type_)
    halves = from_f64(np.where(numbers <= 0, 0, numbers) if relu else numbers, "f16", "rn")
    bits = halves.view(np.uint16).astype(np.uint32)

    def run(a: Any) -> Any:
        return (bits[a >> np.uint16(8)] << np.uint32(16)) | bits[a & np.uint16(0xFF)]

    return run
