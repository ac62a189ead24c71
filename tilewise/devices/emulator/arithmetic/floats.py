"""Float32 and float64 instructions.

Approximate instructions (``ex2.approx``, ``sin.approx``, ``rcp.approx``, ``div.full`` and so on)
are computed in float64 and rounded once. They are therefore more accurate than the hardware's,
which PTX bounds but does not define, and results may differ from a GPU's in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic import double, ieee
from tilewise.devices.emulator.arithmetic.ieee import BITS, ROUNDINGS, canonical, flush, saturate
from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

Function = Callable[..., Any]


def finished(function: Function, type_: str, ftz: bool, sat: bool) -> Function:
    """Return ``function`` with PTX's ``.ftz`` and ``.sat``, and float32's one NaN."""
    single = type_ == "f32"
    if not (single or ftz or sat):
        return function

    def run(*operands: Any) -> Any:
        if ftz:
            operands = tuple(map(flush, operands))
        result = function(*operands)
        if ftz:
            result = flush(result)
        if sat:
            return saturate(result)
        return canonical(result) if single else result

    return run


_PAIRS: dict[str, tuple[Callable[[str], Function], Callable[[str], Function]]] = {
    "add": (ieee.add_f32, double.add_f64),
    "mul": (ieee.mul_f32, double.mul_f64),
    "div": (ieee.div_f32, double.div_f64),
    "sqrt": (ieee.sqrt_f32, double.sqrt_f64),
    "fma": (ieee.fma_f32, double.fma_f64),
}


def rounded(name: str, type_: str, rounding: str) -> Function:
    """Return add, sub, mul, div, sqrt or fma for f32 or f64 with one rounding."""
    if name == "sub":
        if rounding == "rn":
            return np.subtract
        add = rounded("add", type_, rounding)

        def subtract(a: Any, b: Any) -> Any:
            r = add(a, -b)
            nan = r != r
            return np.where(nan, a - b, r)[()] if nan.any() else r

        return subtract
    single, double = _PAIRS[name]
    return (single if type_ == "f32" else double)(rounding)


def _paired(function: Function) -> Function:
    """Return a float32 function for packed pairs in 64 bits."""

    def run(*operands: Any) -> Any:
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        parts = [
            np.ascontiguousarray(np.broadcast_to(x, shape or 1)).view(np.float32) for x in operands
        ]
        result = np.ascontiguousarray(function(*parts)).view(np.uint64)
        return result if shape else result[0]

    return run


def arithmetic(words: Words) -> Semantics:
    """Return ``add``, ``sub``, ``mul``, ``fma`` or ``mad`` for f32, f64 or pairs of f32."""
    count = 3 if words.opcode in ("fma", "mad") else 2
    name = "fma" if count == 3 else words.opcode
    rounding = words.one_of(ROUNDINGS)
    ftz, sat, pair = words.flag("ftz"), words.flag("sat"), words.flag("f32x2")
    type_ = "f32" if pair else words.type("f32", "f64")
    words.done((type_ == "f32" or not (ftz or sat)) and (rounding != "" or name != "fma"))
    function = rounded(name, type_, rounding or "rn")
    if ftz or sat or name != "fma" or rounding != "rn":
        function = finished(function, type_, ftz, sat)
    flops = count - 1
    if pair:
        return Semantics(("b64",) * count, ("b64",), _paired(function), 2 * flops)
    return Semantics((type_,) * count, (type_,), function, flops)


def divide(words: Words) -> Semantics:
    """Return ``div`` for f32 or f64; ``.approx`` and ``.full`` are rounded to nearest."""
    how = words.one_of((*ROUNDINGS, "approx", "full"))
    ftz = words.flag("ftz")
    type_ = words.type("f32", "f64")
    exact = how in ROUNDINGS
    words.done(how != "" and (type_ == "f32" or (exact and not ftz)))
    function = rounded("div", type_, how if exact else "rn")
    return Semantics((type_, type_), (type_,), finished(function, type_, ftz, False), 1)


def root(words: Words) -> Semantics:
    """Return the semantics of ``sqrt`` for f32 or f64; ``.approx`` is rounded to nearest."""
    how = words.one_of((*ROUNDINGS, "approx"))
    ftz = words.flag("ftz")
    type_ = words.type("f32", "f64")
    words.done(how != "" and (type_ == "f32" or not (ftz or how == "approx")))
    function = rounded("sqrt", type_, how if how in ROUNDINGS else "rn")
    return Semantics((type_,), (type_,), finished(function, type_, ftz, False), 1)


def _gross(function: Function) -> Function:
    """Return ``rcp`` or ``rsqrt`` with ``.approx.ftz.f64``, which use only the upper 32 bits."""
    upper = np.uint64(0xFFFFFFFF00000000)
    half, missing = np.uint64(1 << 31), np.uint64(0x7FFFFFFF00000000)

    def run(a: Any) -> Any:
        cut = flush((a.view(np.uint64) & upper).view(np.float64))
        r = flush(function(cut))
        bits = (r.view(np.uint64) + half) & upper
        return np.where(r != r, missing, bits).view(np.float64)[()]

    return run


def _inverse_root(a: Any) -> Any:
    return 1.0 / np.sqrt(a)


def reciprocal(words: Words) -> Semantics:
    """Return the semantics of ``rcp`` or ``rsqrt`` for f32 or f64."""
    inverse_root = words.opcode == "rsqrt"
    how = words.one_of(("approx",) if inverse_root else (*ROUNDINGS, "approx"))
    ftz = words.flag("ftz")
    type_ = words.type("f32", "f64")
    words.done(how != "" and (type_ == "f32" or how == "approx" or not ftz))
    function: Function
    if type_ == "f64" and ftz:
        function = _gross(_inverse_root if inverse_root else np.reciprocal)
        return Semantics(("f64",), ("f64",), function, 1)
    if inverse_root:
        function = _in_double(_inverse_root) if type_ == "f32" else _inverse_root
    else:
        divided = rounded("div", type_, how if how in ROUNDINGS else "rn")
        one = DTYPES[type_].type(1)

        def function(a: Any) -> Any:
            return divided(one, a)

    return Semantics((type_,), (type_,), finished(function, type_, ftz, False), 1)


def _in_double(function: Function) -> Function:
    def run(a: Any) -> Any:
        return function(a.astype(np.float64)).astype(np.float32)

    return run


TRANSCENDENTAL: dict[str, Function] = {
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def transcendental(words: Words) -> Semantics:
    """Return ``sin``, ``cos``, ``lg2``, ``ex2`` or ``tanh`` with ``.approx.f32``."""
    approx, ftz = words.flag("approx"), words.flag("ftz")
    words.type("f32")
    words.done(approx and not (ftz and words.opcode == "tanh"))
    function = _in_double(TRANSCENDENTAL[words.opcode])
    return Semantics(("f32",), ("f32",), finished(function, "f32", ftz, False))


def _sign_bit(type_: str) -> Any:
    dtype = DTYPES[type_]
    return BITS[dtype](1 << (8 * dtype.itemsize - 1))


def absolute(words: Words) -> Semantics:
    """Return the semantics of ``abs`` or ``neg`` for f32 or f64."""
    ftz = words.flag("ftz")
    type_ = words.type("f32", "f64")
    words.done(type_ == "f32" or not ftz)
    operation: Function = np.negative if words.opcode == "neg" else np.absolute
    if type_ == "f64":

        def double(a: Any) -> Any:
            # A NaN is made quiet and keeps its sign under neg, as on hardware.
            nan = a != a
            r = operation(a)
            if nan.any():
                return np.where(nan, a + a if operation is np.negative else r + r, r)[()]
            return r

        return Semantics((type_,), (type_,), double)

    def single(a: Any) -> Any:
        return canonical(operation(flush(a) if ftz else a))

    return Semantics((type_,), (type_,), single)


def extreme(name: str, propagate: bool) -> Function:
    """Return min or max for floats of any width, -0 below +0; a NaN is missing, or propagates."""
    pick: Function
    join: Function
    if name == "min":
        pick, join = (np.minimum if propagate else np.fmin), np.bitwise_or
    else:
        pick, join = (np.maximum if propagate else np.fmax), np.bitwise_and

    def run(a: Any, b: Any) -> Any:
        r = pick(a, b)
        nan = r != r
        if nan.any():  # float64 keeps a payload, the others have one NaN
            kept = a + b if r.dtype == np.float64 else ieee.CANONICAL_NAN[r.dtype]
            r = np.where(nan, kept, r)[()]
        same = a == b
        if same.any():  # equal bits, or two zeros, whose signs decide
            bits = BITS[r.dtype]
            joined = join(np.asarray(a).view(bits), np.asarray(b).view(bits))
            r = np.where(same, joined.view(r.dtype), r)[()]
        return r

    return run


def minimum(words: Words) -> Semantics:
    """Return the semantics of ``min`` or ``max`` for f32 or f64."""
    ftz, propagate = words.flag("ftz"), words.flag("NaN")
    xorsign = words.flag("xorsign")
    xorsign_abs = xorsign and words.flag("abs")
    type_ = words.type("f32", "f64")
    words.done(xorsign == xorsign_abs and (type_ == "f32" or not (ftz or propagate or xorsign)))
    pick = extreme(words.opcode, propagate)
    function = pick
    if xorsign:
        function = signed_by_xor(pick, type_)
    if ftz:
        inner = function

        def function(a: Any, b: Any) -> Any:
            return inner(flush(a), flush(b))

    return Semantics((type_, type_), (type_,), function)


def signed_by_xor(pick: Function, type_: str) -> Function:
    """Return ``.xorsign.abs``: ``pick`` applied to magnitudes, with the sign of the product."""
    sign = _sign_bit(type_)
    dtype, bits = DTYPES[type_], BITS[DTYPES[type_]]

    def run(a: Any, b: Any) -> Any:
        r = pick(np.abs(a), np.abs(b))
        signs = (a.view(bits) ^ b.view(bits)) & sign
        signed = (r.view(bits) | signs).view(dtype)
        return np.where(r != r, r, signed)[()]

    return run


def copysign(words: Words) -> Semantics:
    """Return the semantics of ``copysign d, a, b``: the sign of a on the magnitude of b."""
    type_ = words.type("f32", "f64")
    words.done()
    return Semantics((type_, type_), (type_,), lambda a, b: np.copysign(b, a))


def _subnormal(a: Any) -> Any:
    return (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny)


_TESTS: dict[str, Function] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: a == a,
    "notanumber": lambda a: a != a,
    "normal": lambda a: np.isfinite(a) & ~_subnormal(a),  # PTX counts zero in
    "subnormal": _subnormal,
}


def test_property(words: Words) -> Semantics:
    """Return the semantics of ``testp``."""
    test = words.one_of(tuple(_TESTS))
    type_ = words.type("f32", "f64")
    words.done(test != "")
    return Semantics((type_,), ("pred",), _TESTS[test])


OPERATIONS: dict[str, Builder] = {
    **dict.fromkeys(("add", "sub", "mul", "fma", "mad"), arithmetic),
    "div": divide,
    "sqrt": root,
    "rcp": reciprocal,
    "rsqrt": reciprocal,
    **dict.fromkeys(TRANSCENDENTAL, transcendental),
    **dict.fromkeys(("abs", "neg"), absolute),
    **dict.fromkeys(("min", "max"), minimum),
    "copysign": copysign,
    "testp": test_property,
}
