"""Integer instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

Function = Callable[..., Any]
SIGNED = ("s16", "s32", "s64")
UNSIGNED = ("u16", "u32", "u64")
WIDE = {"u16": "u32", "u32": "u64", "s16": "s32", "s32": "s64"}
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def high_u64(a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a product of two uint64."""
    al, ah, bl, bh = a & _LOW, a >> _32, b & _LOW, b >> _32
    middle = ah * bl + ((al * bl) >> _32)
    other = al * bh + (middle & _LOW)
    return ah * bh + (middle >> _32) + (other >> _32)


def high_s64(a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a product of two int64."""
    x, y = a.view(np.uint64), b.view(np.uint64)
    correction = (y & (a >> 63).view(np.uint64)) + (x & (b >> 63).view(np.uint64))
    return (high_u64(x, y) - correction).view(np.int64)


def product(part: str, type_: str) -> Function:
    """Return the function of the low half, the high half or the whole of a product."""
    dtype = DTYPES[type_]
    if part == "lo":
        return np.multiply
    if type_ == "u64":
        return high_u64
    if type_ == "s64":
        return high_s64
    wide = DTYPES[WIDE[type_]]
    if part == "wide":
        return lambda a, b: np.multiply(a, b, dtype=wide)
    width = wide.type(8 * dtype.itemsize)
    return lambda a, b: (np.multiply(a, b, dtype=wide) >> width).astype(dtype)


def _saturating(function: Function) -> Function:
    """Return a clamped function of int32 operands."""
    info = np.iinfo(np.int32)

    def run(*operands: Any) -> Any:
        r = function(*(operand.astype(np.int64) for operand in operands))
        return np.clip(r, info.min, info.max).astype(np.int32)

    return run


def _halves(function: Function, dtype: Any) -> Function:
    """Return a 16-bit function for both halves of 32-bit registers."""

    def run(*operands: Any) -> Any:
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        parts = [np.ascontiguousarray(np.broadcast_to(x, shape or 1)).view(dtype) for x in operands]
        r = np.ascontiguousarray(function(*parts)).view(np.uint32)
        return r if shape else r[0]

    return run


def add(words: Words) -> Semantics:
    """Return the semantics of ``add`` or ``sub``, with saturation, carry and pairs of 16 bits."""
    subtract = words.opcode.startswith("sub")
    function: Function = np.subtract if subtract else np.add
    carry_in = words.opcode in ("addc", "subc")
    carry_out = words.flag("cc")
    if not carry_in and not carry_out:
        pair = words.one_of(("u16x2", "s16x2"))
        if pair:
            words.done()
            return Semantics(("b32", "b32"), ("b32",), _halves(function, DTYPES[pair[:3]]))
        if words.flag("sat"):
            words.type("s32")
            words.done()
            return Semantics(("s32", "s32"), ("s32",), _saturating(function))
        type_ = words.type(*SIGNED, *UNSIGNED)
        words.done()
        return Semantics((type_, type_), (type_,), function)
    type_ = words.type("s32", "u32", "s64", "u64")
    words.done()
    chain = _subtract_chain if subtract else _add_chain
    return _carrying(type_, 2, chain, carry_in, carry_out)


def _add_chain(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    r = a + b
    out = r < a
    if carry is not None:
        r = r + carry
        out = out | (r < carry)
    return r, out


def _subtract_chain(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    # The PTX ISA calls the flag a borrow. Hardware adds ~b, so its flag is set if there is no
    # borrow, which shows if subtraction and addition share a chain.
    if carry is None:
        return a - b, a >= b
    return _add_chain(a, ~b, carry)


def _carrying(
    type_: str, count: int, chain: Function, carry_in: bool, carry_out: bool
) -> Semantics:
    """Return the semantics of a carry chain on unsigned numbers, for any type."""
    dtype = DTYPES[type_]
    unsigned = DTYPES["u" + type_[1:]]

    def run(*operands: Any) -> Any:
        numbers = [operand.view(unsigned) for operand in operands[:count]]
        r, out = chain(*numbers, operands[count].astype(unsigned) if carry_in else None)
        r = r.view(dtype)
        return (r, out.astype(np.uint32)) if carry_out else r

    return Semantics((type_,) * count, (type_,), run, 0, carry_in, carry_out)


def multiply(words: Words) -> Semantics:
    """Return ``mul``, ``mad``, ``mad.cc`` or ``madc`` with ``.lo``, ``.hi`` or ``.wide``."""
    part = words.one_of(("lo", "hi", "wide"))
    sat, carry_out, carry_in = words.flag("sat"), words.flag("cc"), words.opcode == "madc"
    type_ = words.type(*SIGNED, *UNSIGNED)
    words.done(
        part != ""
        and (part != "wide" or type_ in WIDE)
        and (not sat or (words.opcode == "mad" and part == "hi" and type_ == "s32"))
        and not ((carry_in or carry_out) and (part == "wide" or type_.endswith("16") or sat))
    )
    times = product(part, type_)
    result = WIDE[type_] if part == "wide" else type_
    if words.opcode == "mul":
        words.done(not carry_out)
        return Semantics((type_, type_), (result,), times)
    inputs = (type_, type_, result)
    if carry_in or carry_out:
        unsigned = DTYPES["u" + type_[1:]]
        dtype = DTYPES[type_]

        def chain(a: Any, b: Any, c: Any, carry: Any) -> tuple[Any, Any]:
            whole = times(a.view(dtype), b.view(dtype)).view(unsigned)
            return _add_chain(whole, c, carry)

        return _carrying(type_, 3, chain, carry_in, carry_out)
    if sat:
        plus = _saturating(np.add)
        return Semantics(inputs, (result,), lambda a, b, c: plus(times(a, b), c))
    return Semantics(inputs, (result,), lambda a, b, c: times(a, b) + c)


def multiply_24(words: Words) -> Semantics:
    """Return ``mul24`` or ``mad24``: bits 47..16 or 31..0 of the product of the low 24 bits."""
    high = words.one_of(("lo", "hi"))
    sat = words.flag("sat")
    type_ = words.type("u32", "s32")
    words.done(high != "" and (not sat or (words.opcode, high, type_) == ("mad24", "hi", "s32")))
    dtype = DTYPES[type_]
    wide = DTYPES[WIDE[type_]]
    eight, shift = dtype.type(8), wide.type(16 if high == "hi" else 0)

    def times(a: Any, b: Any) -> Any:
        x, y = (a << eight) >> eight, (b << eight) >> eight
        return (np.multiply(x, y, dtype=wide) >> shift).astype(dtype)

    if words.opcode == "mul24":
        return Semantics((type_, type_), (type_,), times)
    plus = _saturating(np.add) if sat else np.add
    return Semantics((type_,) * 3, (type_,), lambda a, b, c: plus(times(a, b), c))


def difference(words: Words) -> Semantics:
    """Return the semantics of ``sad``: c + |a - b|."""
    type_ = words.type(*SIGNED, *UNSIGNED)
    words.done()
    return Semantics(
        (type_,) * 3, (type_,), lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b))
    )


def quotient(type_: str) -> Function:
    """Return a / b towards zero; for a division by zero all bits, as on hardware."""
    dtype = DTYPES[type_]
    if type_ in UNSIGNED:
        ones = dtype.type(np.iinfo(dtype).max)

        def unsigned(a: Any, b: Any) -> Any:
            r = np.floor_divide(a, b)
            zero = b == 0
            return np.where(zero, ones, r)[()] if zero.any() else r

        return unsigned
    if type_ == "s64":
        inner = quotient("u64")
        minus = dtype.type(-1)

        def signed(a: Any, b: Any) -> Any:
            r = inner(np.abs(a).view(np.uint64), np.abs(b).view(np.uint64)).view(np.int64)
            negative = ((a ^ b) < 0) & (b != 0)
            return np.where(negative, r * minus, r)[()]

        return signed

    def small(a: Any, b: Any) -> Any:
        # Both have at most 32 bits, so float64 can't round a quotient across an integer.
        r = np.trunc(np.divide(a, b, dtype=np.float64)).astype(np.int64).astype(dtype)
        zero = b == 0
        return np.where(zero, dtype.type(-1), r)[()] if zero.any() else r

    return small


def divide(words: Words) -> Semantics:
    """Return the semantics of ``div`` or ``rem``."""
    type_ = words.type(*SIGNED, *UNSIGNED)
    words.done()
    over = quotient(type_)
    if words.opcode == "div":
        return Semantics((type_, type_), (type_,), over)
    ones = ~DTYPES[type_].type(0)

    def remainder(a: Any, b: Any) -> Any:
        r = a - over(a, b) * b
        zero = b == 0
        return np.where(zero, ones, r)[()] if zero.any() else r

    return Semantics((type_, type_), (type_,), remainder)


def absolute(words: Words) -> Semantics:
    """Return the semantics of ``abs`` or ``neg``; the least number stays as it is."""
    type_ = words.type(*SIGNED)
    words.done()
    return Semantics((type_,), (type_,), np.negative if words.opcode == "neg" else np.absolute)


def minimum(words: Words) -> Semantics:
    """Return the semantics of ``min`` or ``max``, also with ``.relu`` and for pairs of 16 bits."""
    function: Function = np.minimum if words.opcode == "min" else np.maximum
    relu = words.flag("relu")
    pair = words.one_of(("u16x2", "s16x2"))
    type_ = pair[:3] if pair else words.type(*SIGNED, *UNSIGNED)
    words.done(not relu or pair == "s16x2" or type_ == "s32")
    if relu:
        inner, zero = function, DTYPES[type_].type(0)

        def function(a: Any, b: Any) -> Any:
            return np.maximum(inner(a, b), zero)

    if pair:
        return Semantics(("b32", "b32"), ("b32",), _halves(function, DTYPES[type_]))
    return Semantics((type_, type_), (type_,), function)


def dot_product(words: Words) -> Semantics:
    """Return ``dp4a`` or ``dp2a``: c + the dot product of small integers packed in a and b."""
    half = words.one_of(("lo", "hi")) if words.opcode == "dp2a" else ""
    a_type, b_type = words.type("u32", "s32"), words.type("u32", "s32")
    words.done(words.opcode == "dp4a" or half != "")
    result = "u32" if a_type == b_type == "u32" else "s32"
    dtype = DTYPES[result]
    if words.opcode == "dp4a":
        places = [(8 * i, 8 * i) for i in range(4)]
        a_left = 24
    else:
        places = [(16 * i, 8 * i + (16 if half == "hi" else 0)) for i in range(2)]
        a_left = 16

    def field(x: Any, place: int, left: int, kind: str) -> Any:
        bits = x.view(np.uint32) << np.uint32(left - place)
        return bits.view(DTYPES[kind]).astype(np.int64) >> left

    def run(a: Any, b: Any, c: Any) -> Any:
        r = c.astype(np.int64)
        for a_place, b_place in places:
            r = r + field(a, a_place, a_left, a_type) * field(b, b_place, 24, b_type)
        return r.astype(dtype)

    return Semantics((a_type, b_type, result), (result,), run)


def packed_difference(words: Words) -> Semantics:
    """Return ``vabsdiff2`` or ``vabsdiff4``: |a - b| of each part, or c + their sum (``.add``)."""
    width = 16 if words.opcode == "vabsdiff2" else 8
    for _ in range(3):
        words.type("u32")
    total = words.flag("add")
    words.done()
    mask = np.uint32((1 << width) - 1)

    def run(a: Any, b: Any, c: Any) -> Any:
        r: Any = c if total else np.uint32(0)
        for place in range(0, 32, width):
            shift = np.uint32(place)
            x, y = (a >> shift) & mask, (b >> shift) & mask
            part = np.maximum(x, y) - np.minimum(x, y)
            r = r + part if total else r | part << shift
        return r

    return Semantics(("u32",) * 3, ("u32",), run)


OPERATIONS: dict[str, Builder] = {
    **dict.fromkeys(("add", "sub", "addc", "subc"), add),
    **dict.fromkeys(("mul", "mad", "madc"), multiply),
    **dict.fromkeys(("mul24", "mad24"), multiply_24),
    "sad": difference,
    **dict.fromkeys(("div", "rem"), divide),
    **dict.fromkeys(("abs", "neg"), absolute),
    **dict.fromkeys(("min", "max"), minimum),
    **dict.fromkeys(("dp4a", "dp2a"), dot_product),
    **dict.fromkeys(("vabsdiff2", "vabsdiff4"), packed_difference),
}
