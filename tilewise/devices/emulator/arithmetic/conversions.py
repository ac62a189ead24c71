"""The instruction ``cvt``: between integers and floats of 8 to 64 bits, one value or a pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic import float8
from tilewise.devices.emulator.arithmetic.halves import from_f64, round_bf16, to_f32
from tilewise.devices.emulator.arithmetic.ieee import (
    F32,
    ROUNDINGS,
    canonical,
    flush,
    narrow,
    round_to_odd,
    saturate,
    step,
    two_sum,
)
from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

Function = Callable[..., Any]
INTEGERS = tuple(f"{kind}{width}" for kind in "us" for width in (8, 16, 32, 64))
FLOATS = ("f16", "bf16", "f32", "f64")
_PRECISION = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
_TO_INTEGER: dict[str, Function] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_TO_FLOAT = (*ROUNDINGS, "rna")


def to_f64(x: Any, type_: str) -> Any:
    """Return a float of any type as float64, exactly, with quiet NaNs."""
    if type_ == "f16":
        x = x.astype(np.float32)
    return (to_f32(x) if type_ == "bf16" else x).astype(np.float64)


def _integer_to_integer(source: str, target: str, sat: bool) -> Function:
    dtype = DTYPES[target]
    if not sat:
        return lambda a: a.astype(dtype)
    low = max(int(np.iinfo(DTYPES[source]).min), int(np.iinfo(dtype).min))
    high = min(int(np.iinfo(DTYPES[source]).max), int(np.iinfo(dtype).max))
    kind = DTYPES[source].type
    least, most = kind(low), kind(high)
    return lambda a: np.minimum(np.maximum(a, least), most).astype(dtype)


def _integer_to_float(source: str, target: str, rounding: str) -> Function:
    dtype = DTYPES[target]
    small = source not in ("u64", "s64")
    if rounding == "rn" and target in ("f32", "f64"):
        return lambda a: a.astype(dtype)

    def to_odd(a: Any) -> tuple[Any, Any]:
        if small:
            return a.astype(np.float64), np.float64(0)
        upper = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
        lower = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
        return two_sum(upper, lower)

    if target == "f64":

        def directed(a: Any) -> Any:
            r, error = to_odd(a)
            return step(r, error > 0, error < 0, rounding)

        return directed

    def run(a: Any) -> Any:
        r, error = to_odd(a)
        exact = r if small else round_to_odd(r, error)
        if target == "f32":
            return narrow(exact, F32, rounding)
        return from_f64(exact, target, rounding)

    return run


def _float_to_integer(source: str, target: str, rounding: str, ftz: bool) -> Function:
    """Return the clamped conversion. A NaN becomes 0, or for 64 bits the top bit alone."""
    dtype = DTYPES[target]
    info = np.iinfo(dtype)
    top = dtype.itemsize == 8 or source == "f64"
    bits = 8 * dtype.itemsize
    missing = np.uint64(1 << (bits - 1) if top else 0).astype(dtype)
    to_integral = _TO_INTEGER[rounding]
    low = np.float64(info.min)
    high = np.float64(info.max)  # 2**63 or 2**64 for 64 bits: clamped below
    through = np.dtype(np.int64) if dtype.itemsize < 8 else dtype

    def run(a: Any) -> Any:
        if ftz:
            a = flush(a)
        x = to_integral(to_f64(a, source))
        r = np.clip(x, low, high).astype(through).astype(dtype)
        if dtype.itemsize == 8:
            r = np.where(x >= high, dtype.type(info.max), r)[()]
        nan = x != x
        return np.where(nan, missing, r)[()] if nan.any() else r

    return run


@dataclass(frozen=True)
class _Options:
    """The modifiers of a conversion to a float, except for its rounding."""

    ftz: bool = False
    sat: bool = False
    relu: bool = False
    satfinite: bool = False

    def apply(self, r: Any, type_: str) -> Any:
        """Apply the modifiers that follow the rounding."""
        if self.satfinite:
            r = _finite(r, type_)
        if self.sat:
            return round_bf16(saturate(to_f32(r))) if type_ == "bf16" else saturate(r)
        if self.relu:
            negative = (to_f32(r) if type_ == "bf16" else r) <= 0
            return np.where(negative, r.dtype.type(0), r)[()]
        return r


def _finite(r: Any, type_: str) -> Any:
    """Return ``r``, f16 or bf16, with the greatest numbers for infinities (``.satfinite``)."""
    infinity = np.uint16(0x7C00 if type_ == "f16" else 0x7F80)
    bits = np.asarray(r).view(np.uint16)
    infinite = (bits & np.uint16(0x7FFF)) == infinity
    return np.where(infinite, bits - np.uint16(1), bits).view(DTYPES[type_])[()]


def _narrowed(x: Any, source: str, target: str, rounding: str) -> Any:
    """Return a float64 that holds a value of ``source``, rounded to ``target``."""
    if target == "f64":
        return x
    if source == "f64":  # the only source whose NaNs keep the part of their payload that fits
        nan = x != x
        if nan.any():
            r = _narrowed(x, "", target, rounding)
            x = x + x  # quiet
            if target == "bf16":
                kept = (x.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
            else:
                kept = x.astype(r.dtype)
            return np.where(nan, kept, r)[()]
    return canonical(narrow(x, F32, rounding)) if target == "f32" else from_f64(x, target, rounding)


def _rounding(source: str, target: str, rounding: str) -> Function:
    """Return the rounding itself: ``run(a)`` from ``source`` to ``target``."""
    to_integral = _TO_INTEGER.get(rounding)
    if to_integral is not None:
        return lambda a: _narrowed(to_integral(to_f64(a, source)), source, target, "rn")
    if source == target:
        if target == "bf16":
            return lambda a: round_bf16(to_f32(a))
        return (lambda a: canonical(a.copy())) if target == "f16" else (lambda a: a)
    if target == "f64":
        return lambda a: to_f64(a, source)
    if target == "f32" and source == "bf16":
        return to_f32
    if target == "f32" and source == "f16":
        return lambda a: canonical(a.astype(np.float32))
    how = rounding or "rn"
    if source == "f32" and target == "bf16":
        return lambda a: round_bf16(a, how)
    if source == "f32" and target == "f16" and how == "rn":
        return lambda a: canonical(a.astype(np.float16))
    return lambda a: _narrowed(to_f64(a, source), source, target, how)


def _float_to_float(source: str, target: str, rounding: str, options: _Options) -> Function:
    round_once = _rounding(source, target, rounding)
    # Hardware does not flush before a directed rounding to f16; for the others it makes no
    # difference.
    flush_first = options.ftz and source == "f32" and target != "f16"
    if options == _Options():
        return round_once

    def run(a: Any) -> Any:
        if flush_first:
            a = canonical(flush(a) + np.float32(-0.0))
        r = round_once(a)
        if options.ftz and target == "f32":
            r = flush(r)
            if source != "f64":
                r = canonical(r + np.float32(-0.0))
        return options.apply(r, target)

    return run


def _pair(target: str, rounding: str, options: _Options) -> Semantics:
    """Return ``cvt.f16x2.f32 d, a, b``, with a in the high half and b in the low one."""
    one = _float_to_float("f32", target.removesuffix("x2"), rounding, options)
    sixteen = np.uint32(16)

    def run(a: Any, b: Any) -> Any:
        high, low = (one(x).view(np.uint16).astype(np.uint32) for x in (a, b))
        return (high << sixteen) | low

    return Semantics(("f32", "f32"), (target,), run)


def round_tf32(a: Any, rounding: str) -> Any:
    """Return float32 rounded to ten bits of fraction, as bits (uint32); other bits are zero."""
    bits = a.view(np.uint32)
    keep = np.uint32(0xFFFFE000)
    up: Any = np.uint32(0)
    missing: Any = np.uint32(0x7FFFE000)
    if rounding == "rna":
        up = np.uint32(0x1000)
        missing = bits & keep
    elif rounding == "rn":
        up = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.where(a != a, missing, (bits + up) & keep)[()]


def _tf32(words: Words, rounding: str, options: _Options) -> Semantics:
    words.type("f32")
    words.done(rounding in ("rn", "rz", "rna") and not (options.sat or options.ftz))
    words.done(not (options.relu and rounding == "rna") and not options.satfinite)

    def run(a: Any) -> Any:
        r = round_tf32(a, rounding)
        return np.where(a <= 0, np.uint32(0), r)[()] if options.relu else r

    return Semantics(("f32",), ("b32",), run)


def convert(words: Words) -> Semantics:
    """Return the semantics of any ``cvt``."""
    integral = words.one_of(tuple(_TO_INTEGER))
    rounding = words.one_of(_TO_FLOAT)
    ftz, sat, relu, satfinite = map(words.flag, ("ftz", "sat", "relu", "satfinite"))
    options = _Options(ftz, sat, relu, satfinite)
    how = integral or rounding
    words.check(not (integral and rounding) and not (sat and (relu or satfinite)))
    words.check(not (relu or satfinite) or rounding in ("rn", "rz"))
    if words.flag("tf32"):
        return _tf32(words, how, options)
    eights = words.one_of(float8.PAIRS)
    if eights:
        words.check(not (integral or ftz or sat))
        return float8.convert(words, eights, rounding, relu, satfinite)
    pair = words.one_of(("f16x2", "bf16x2"))
    if pair:
        words.type("f32")
        words.done(rounding in ("rn", "rz") and not (ftz or sat))
        return _pair(pair, rounding, options)
    target, source = words.type(*INTEGERS, *FLOATS), words.type(*INTEGERS, *FLOATS)
    words.done(not ftz or "f32" in (source, target))
    words.done(not (relu or satfinite) or (target in ("f16", "bf16") and source == "f32"))
    if target in INTEGERS:
        if source in INTEGERS:
            words.done(not (how or ftz))
            function = _integer_to_integer(source, target, sat)
        else:
            words.done(integral != "")
            function = _float_to_integer(source, target, integral, ftz)
    elif source in INTEGERS:
        exact = 8 * DTYPES[source].itemsize <= _PRECISION[target]
        words.done((rounding in ROUNDINGS or (exact and not how)) and not ftz)
        plain = _integer_to_float(source, target, rounding or "rn")
        function = (lambda a: options.apply(plain(a), target)) if sat else plain
    else:
        if {source, target} == {"f16", "bf16"}:
            words.done()
        elif _PRECISION[source] > _PRECISION[target]:
            words.done(rounding in ROUNDINGS)
        else:
            words.done(not rounding and (not integral or source == target))
        function = _float_to_float(source, target, how, options)
    return Semantics((source,), (target,), function)


OPERATIONS: dict[str, Builder] = {"cvt": convert}
