"""Comparison and selection: ``setp``, ``set``, ``selp``, ``slct``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic.halves import pairs, to_f32
from tilewise.devices.emulator.arithmetic.ieee import flush
from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

Function = Callable[..., Any]
_ORDERED: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_FLOAT: dict[str, Function] = {
    **_ORDERED,
    # NumPy's != holds for a NaN; PTX's ne does not.
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
_COMBINE: dict[str, Function] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_NAMES = (*_FLOAT, *_UNSIGNED_NAMES)
_INTEGERS = tuple(f"{kind}{width}" for kind in "bus" for width in (16, 32, 64))
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def comparison(words: Words, name: str, type_: str, ftz: bool) -> Function:
    """Return a comparison of two values of ``type_``."""
    if type_ in _INTEGERS:
        if type_[0] == "u":
            name = _UNSIGNED_NAMES.get(name, name)
        if ftz or name not in (("eq", "ne") if type_[0] == "b" else _ORDERED):
            raise words.unknown()
        return _ORDERED[name]
    if name not in _FLOAT or (ftz and type_ not in ("f32", "f16", "f16x2")):
        raise words.unknown()
    compare = _FLOAT[name]
    if type_.startswith("bf16"):
        inner = compare

        def compare(a: Any, b: Any) -> Any:
            return inner(to_f32(a), to_f32(b))

    if ftz:
        plain = compare

        def compare(a: Any, b: Any) -> Any:
            return plain(flush(a), flush(b))

    return compare


def set_predicate(words: Words) -> Semantics:
    """Return ``setp``: the comparison and its complement, each combined with a predicate if given.

    For packed halves it is the comparison of the low and of the high half.
    """
    name, combine = words.one_of(_NAMES), words.one_of(tuple(_COMBINE))
    ftz = words.flag("ftz")
    type_ = words.type(*_INTEGERS, *_HALVES, "f32", "f64")
    words.done()
    compare = comparison(words, name, type_, ftz)
    join = _COMBINE.get(combine)
    if type_.endswith("x2"):
        dtype = DTYPES[type_[:-2]]

        def both(a: Any, b: Any) -> tuple[Any, Any]:
            r = compare(pairs(a, dtype), pairs(b, dtype))
            lanes = 0 if a.ndim == b.ndim == 0 else slice(None)
            return r[lanes, 0], r[lanes, 1]

    else:

        def both(a: Any, b: Any) -> tuple[Any, Any]:
            r = compare(a, b)
            return r, np.logical_not(r)

    if join is None:
        return Semantics((type_, type_), ("pred", "pred"), both)

    def combined(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
        p, q = both(a, b)
        return join(p, c), join(q, c)

    return Semantics((type_, type_, "pred"), ("pred", "pred"), combined)


def set_value(words: Words) -> Semantics:
    """Return the semantics of ``set``: all bits, or 1.0, where the comparison holds."""
    name, combine = words.one_of(_NAMES), words.one_of(tuple(_COMBINE))
    ftz = words.flag("ftz")
    types = ("u16", "s16", "u32", "s32", "f32", *_HALVES)
    result = words.type(*types)
    type_ = words.type(*_INTEGERS, *_HALVES, "f32", "f64")
    words.done()
    compare = comparison(words, name, type_, ftz)
    join = _COMBINE.get(combine)
    if type_.endswith("x2"):
        dtype = DTYPES[type_[:-2]]
        if result not in ("f16x2", "bf16x2") and join is not None:
            raise words.unknown()
        ones = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(result, 0xFFFF)
        if result not in ("f16x2", "bf16x2", "u32", "s32"):
            raise words.unknown()

        inputs = (type_, type_) if join is None else (type_, type_, "pred")

        def packed(a: Any, b: Any, *c: Any) -> Any:
            r = compare(pairs(a, dtype), pairs(b, dtype))
            lanes = 0 if a.ndim == b.ndim == 0 else slice(None)
            low, high = r[lanes, 0], r[lanes, 1]
            if join is not None:
                low, high = join(low, c[0]), join(high, c[0])
            bits = low * np.uint32(ones) | high * np.uint32(ones << 16)
            return bits.view(DTYPES[result])

        return Semantics(inputs, (result,), packed)
    if result.endswith("x2"):
        raise words.unknown()
    true: Any
    if result == "bf16":
        true = np.uint16(0x3F80)
    else:
        true = DTYPES[result].type(1 if result[0] == "f" else 0)
        if result[0] != "f":
            true = ~true
    false = true.dtype.type(0)
    if join is None:
        return Semantics(
            (type_, type_), (result,), lambda a, b: np.where(compare(a, b), true, false)[()]
        )
    return Semantics(
        (type_, type_, "pred"),
        (result,),
        lambda a, b, c: np.where(join(compare(a, b), c), true, false)[()],
    )


def select(words: Words) -> Semantics:
    """Return the semantics of ``selp d, a, b, p``."""
    type_ = words.type(*_INTEGERS, "f32", "f64")
    words.done()

    def run(a: Any, b: Any, p: Any) -> Any:
        chosen: Any = np.where(p, a, b)
        return chosen[()]

    return Semantics((type_, type_, "pred"), (type_,), run)


def select_by_sign(words: Words) -> Semantics:
    """Return ``slct d, a, b, c``: a where c is at least zero, else b (also for a NaN)."""
    ftz = words.flag("ftz")
    type_ = words.type(*_INTEGERS, "f32", "f64")
    by = words.type("s32", "f32")
    words.done(not ftz or by == "f32")
    zero = DTYPES[by].type(0)

    def run(a: Any, b: Any, c: Any) -> Any:
        return np.where((flush(c) if ftz else c) >= zero, a, b)[()]

    return Semantics((type_, type_, by), (type_,), run)


OPERATIONS: dict[str, Builder] = {
    "setp": set_predicate,
    "set": set_value,
    "selp": select,
    "slct": select_by_sign,
}
