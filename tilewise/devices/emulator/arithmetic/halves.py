"""Half-precision instructions: f16, bf16, and pairs of them in 32 bits.

Every result is rounded once. Sums and products are computed in float64 (rounded to odd if a fused
multiply-add is inexact there), so that only the last rounding counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic.floats import TRANSCENDENTAL, extreme, signed_by_xor
from tilewise.devices.emulator.arithmetic.ieee import (
    F16,
    canonical,
    flush,
    narrow,
    saturate,
    sum_to_odd,
)
from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

Function = Callable[..., Any]
TYPES = ("f16", "bf16", "f16x2", "bf16x2")
_NAN = np.uint16(0x7FFF)
_INFINITY = {"f16": np.uint16(0x7C00), "bf16": np.uint16(0x7F80)}
_16 = np.uint32(16)


def to_f32(bits: Any) -> Any:
    """Return the float32 with the bits of a bfloat16 (uint16)."""
    return (bits.astype(np.uint32) << _16).view(np.float32)


def round_bf16(exact: Any, rounding: str = "rn") -> Any:
    """Return float32 rounded once to bfloat16 bits (uint16), with canonical NaNs.

    ``rna`` rounds to nearest with ties away from zero.
    """
    bits = exact.view(np.uint32)
    if rounding == "rn":
        up = np.uint32(0x7FFF) + ((bits >> _16) & np.uint32(1))
    elif rounding == "rna":
        up = np.uint32(0x8000)
    elif rounding == "rz":
        up = np.uint32(0)
    else:
        away = np.signbit(exact) == (rounding == "rm")
        up = away * np.uint32(0xFFFF)
        # Infinity must stay what it is.
        up = up * np.isfinite(exact)
    r = ((bits + up) >> _16).astype(np.uint16)
    nan = exact != exact
    if nan.any():
        return np.where(nan, _NAN, r)[()]
    return r


def odd_f32(exact: Any) -> Any:
    """Return float64 (exact or rounded to odd) rounded to odd in float32."""
    r = exact.astype(np.float32)
    back = r.astype(np.float64)
    low, high = back < exact, back > exact
    if not (low.any() or high.any()):
        return r
    even = (np.asarray(r).view(np.uint32) & np.uint32(1)) == 0
    r = np.where(low & even, np.nextafter(r, np.float32(np.inf)), r)
    return np.where(high & even, np.nextafter(r, np.float32(-np.inf)), r)[()]


def from_f64(exact: Any, type_: str, rounding: str = "rn") -> Any:
    """Return float64 (exact or rounded to odd) rounded once to f16 (float16) or bf16 (bits)."""
    if type_ == "f16":
        return canonical(narrow(exact, F16, rounding))
    return round_bf16(odd_f32(exact), rounding)


def pairs(x: Any, dtype: Any) -> Any:
    """Return registers of two halves as an array of shape (..., 2), the low half first."""
    x = np.ascontiguousarray(x)  # at least one dimension
    return x.view(dtype).reshape(*x.shape, 2)


def packed(function: Function, dtype: Any) -> Function:
    """Return a function of halves as one of registers that hold two."""

    def run(*operands: Any) -> Any:
        scalar = all(operand.ndim == 0 for operand in operands)
        r = np.ascontiguousarray(function(*(pairs(x, dtype) for x in operands)))
        r = r.view(np.uint32)[..., 0]
        return r[0] if scalar else r

    return run


def semantics(type_: str, count: int, function: Function, flops: int = 0) -> Semantics:
    """Return the semantics of a function of ``count`` halves, single or packed."""
    if type_.endswith("x2"):
        function = packed(function, DTYPES[type_[:-2]])
        flops *= 2
    return Semantics((type_,) * count, (type_,), function, flops)


def _values(type_: str) -> Function:
    """Return the function from registers' dtype to floats with the same values."""
    return (lambda x: x) if type_.startswith("f16") else to_f32


def _sum(a: Any, b: Any) -> Any:
    return a + b


def _difference(a: Any, b: Any) -> Any:
    return a - b


def _product(a: Any, b: Any) -> Any:
    return a * b


def _fused(a: Any, b: Any, c: Any) -> Any:
    return sum_to_odd(a * b, c)


_EXACT: dict[str, Function] = {
    "add": lambda a, b: sum_to_odd(a, b),
    "sub": lambda a, b: sum_to_odd(a, -b),
    "mul": _product,
    "fma": _fused,
}
# In float32, whose 24 bits suffice to round the sum or product of two float16 twice.
_SINGLE: dict[str, Function] = {"add": _sum, "sub": _difference, "mul": _product}


def arithmetic(words: Words) -> Semantics:
    """Return the semantics of ``add``, ``sub``, ``mul`` or ``fma``."""
    name = words.opcode
    rn, ftz, sat, relu = (words.flag(word) for word in ("rn", "ftz", "sat", "relu"))
    type_ = words.type(*TYPES)
    kind = type_.removesuffix("x2")
    words.done(
        (rn or name != "fma")
        and not (ftz and kind == "bf16")
        and not (sat and (kind == "bf16" or relu))
        and (not relu or name == "fma")
    )
    exact = _EXACT[name]
    single = _SINGLE.get(name)

    def run(*operands: Any) -> Any:
        if ftz:
            operands = tuple(map(flush, operands))
        if kind == "f16":
            if single is not None:
                r = single(*(x.astype(np.float32) for x in operands)).astype(np.float16)
            else:
                r = exact(*(x.astype(np.float64) for x in operands)).astype(np.float16)
            if ftz:
                r = flush(r)
            if sat:
                return saturate(r)
            return _relu(canonical(r), kind, relu)
        wide = (to_f32(x).astype(np.float64) for x in operands)
        return _relu(from_f64(exact(*wide), kind), kind, relu)

    return semantics(type_, 3 if name == "fma" else 2, run, 2 if name == "fma" else 1)


def _relu(r: Any, kind: str, relu: bool) -> Any:
    """Return numbers with negative ones replaced by +0; a NaN stays."""
    if not relu:
        return r
    bits = np.asarray(r).view(np.uint16)
    nan = (bits & np.uint16(0x7FFF)) > _INFINITY[kind]
    clamped = np.where((bits >> 15 != 0) & ~nan, np.uint16(0), bits)
    return clamped.view(DTYPES[kind])[()]


def sign(words: Words) -> Semantics:
    """Return the semantics of ``neg`` or ``abs``."""
    ftz = words.flag("ftz")
    type_ = words.type(*TYPES)
    kind = type_.removesuffix("x2")
    words.done(not ftz or kind == "f16")
    negate = words.opcode == "neg"
    infinity = _INFINITY[kind]

    def run(a: Any) -> Any:
        if ftz:
            a = flush(a)
        bits = np.asarray(a).view(np.uint16)
        size = bits & np.uint16(0x7FFF)
        r = bits ^ np.uint16(0x8000) if negate else size
        return np.where(size > infinity, _NAN, r).view(DTYPES[kind])[()]

    return semantics(type_, 1, run)


def minimum(words: Words) -> Semantics:
    """Return the semantics of ``min`` or ``max``."""
    ftz, propagate = words.flag("ftz"), words.flag("NaN")
    xorsign = words.flag("xorsign")
    xorsign_abs = xorsign and words.flag("abs")
    type_ = words.type(*TYPES)
    kind = type_.removesuffix("x2")
    words.done(xorsign == xorsign_abs and (not ftz or kind == "f16"))
    pick = extreme(words.opcode, propagate)
    if xorsign:
        pick = signed_by_xor(pick, "f16" if kind == "f16" else "f32")
    values = _values(kind)

    def run(a: Any, b: Any) -> Any:
        a, b = values(a), values(b)
        if ftz:
            a, b = flush(a), flush(b)
        r = pick(a, b)
        return r if kind == "f16" else round_bf16(r)

    return semantics(type_, 2, run)


def transcendental(words: Words) -> Semantics:
    """Return the semantics of ``ex2.approx`` or ``tanh.approx``."""
    approx, ftz = words.flag("approx"), words.flag("ftz")
    type_ = words.type(*TYPES)
    kind = type_.removesuffix("x2")
    # ex2 of bf16 is defined with .ftz only, ex2 of f16 and tanh without.
    words.done(approx and ftz == (words.opcode == "ex2" and kind == "bf16"))
    function = TRANSCENDENTAL[words.opcode]
    values = _values(kind)

    def run(a: Any) -> Any:
        x = values(a)
        if ftz:
            x = flush(x)
        r = from_f64(function(x.astype(np.float64)), kind)
        if not ftz:
            return r
        return np.where((r & np.uint16(0x7F80)) == 0, r & np.uint16(0x8000), r)[()]

    return semantics(type_, 1, run)


OPERATIONS: dict[str, Builder] = {
    **dict.fromkeys(("add", "sub", "mul", "fma"), arithmetic),
    **dict.fromkeys(("abs", "neg"), sign),
    **dict.fromkeys(("min", "max"), minimum),
    **dict.fromkeys(("ex2", "tanh"), transcendental),
}
