"""Instructions on bits: logic, shifts, fields, permutations, counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tilewise.devices.emulator.arithmetic.semantics import Builder, Semantics
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.types import DTYPES

Function = Callable[..., Any]
U32, U64 = np.uint32, np.uint64


def logic(words: Words) -> Semantics:
    """Return the semantics of ``and``, ``or``, ``xor``, ``not`` and ``cnot``."""
    opcode = words.opcode
    type_ = words.type(*(("pred",) if opcode != "cnot" else ()), "b16", "b32", "b64")
    words.done()
    if opcode in _BINARY:
        return Semantics((type_, type_), (type_,), _BINARY[opcode])
    if opcode == "not":
        return Semantics((type_,), (type_,), np.invert)
    dtype = DTYPES[type_]
    return Semantics((type_,), (type_,), lambda a: (a == 0).astype(dtype))


_BINARY: dict[str, Function] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}

_PAIRS: tuple[Function | None, ...] = (  # by f(b, c) at (b, c) = 00, 01, 10, 11 from bit 0 on
    None,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    None,
)


@lru_cache(maxsize=256)
def truth_table(table: int) -> Function:
    """Return the bitwise function of three words whose value at (a, b, c) is bit 4a + 2b + c."""
    without, difference = table & 15, (table ^ (table >> 4)) & 15
    low, flip = _PAIRS[without], _PAIRS[difference]

    def run(a: Any, b: Any, c: Any) -> Any:
        # f = f(0, b, c) ^ (a & (f(0, b, c) ^ f(1, b, c)))
        if difference == 0:
            r = 0 if low is None else low(b, c)
        else:
            r = a if flip is None else a & flip(b, c)
            if low is not None:
                r = r ^ low(b, c)
        if without == 15:
            r = ~r if difference else U32(0xFFFFFFFF)
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
        return np.broadcast_to(U32(r) if isinstance(r, int) else r, shape)[()] + U32(0)

    return run


def lop3(words: Words) -> Semantics:
    """Return ``lop3``, whose last operand is its table, with or without a predicate."""
    combine = words.one_of(("or", "and"))
    type_ = words.type("b32")
    words.done()

    def run(a: Any, b: Any, c: Any, table: Any) -> Any:
        return truth_table(int(np.max(table)))(a, b, c)

    inputs = (type_,) * 4
    if not combine:
        return Semantics(inputs, (type_,), run)
    join = _BINARY[combine]

    def with_predicate(a: Any, b: Any, c: Any, table: Any, q: Any) -> Any:
        r = run(a, b, c, table)
        return r, join(r != 0, q)

    return Semantics((*inputs, "pred"), (type_, "pred"), with_predicate)


def shift(words: Words) -> Semantics:
    """Return the semantics of ``shl`` or ``shr``, whose amounts are clamped to the width."""
    left = words.opcode == "shl"
    types = (
        ("b16", "b32", "b64")
        if left
        else tuple(f"{kind}{width}" for kind in "bus" for width in (16, 32, 64))
    )
    type_ = words.type(*types)
    words.done()
    dtype = DTYPES[type_]
    # NumPy shifts by the width or more as PTX does: to zero, or to the sign.
    operation: Function = np.left_shift if left else np.right_shift
    width = U32(8 * dtype.itemsize)
    if type_ in ("b32", "u32"):
        return Semantics((type_, "u32"), (type_,), operation)

    def run(a: Any, amount: Any) -> Any:
        return operation(a, np.minimum(amount, width).astype(dtype))

    return Semantics((type_, "u32"), (type_,), run)


def funnel_shift(words: Words) -> Semantics:
    """Return ``shf``: the upper (``.l``) or lower (``.r``) word of a shifted pair (b, a)."""
    left, mode = words.one_of(("l", "r")), words.one_of(("clamp", "wrap"))
    words.type("b32")
    words.done(left != "" and mode != "")
    full = U32(32)

    def run(a: Any, b: Any, amount: Any) -> Any:
        n = np.minimum(amount, full) if mode == "clamp" else amount & U32(31)
        rest = full - n
        if left == "l":
            return (b << n) | (a >> rest)
        return (b << rest) | (a >> n)

    return Semantics(("b32", "b32", "u32"), ("b32",), run)


def _mode_table(name: str) -> Any:
    """Return the selectors of a mode of ``prmt``, by the low two bits of c."""
    rows = {
        "f4e": [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]],
        "b4e": [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]],
        "rc8": [[0] * 4, [1] * 4, [2] * 4, [3] * 4],
        "ecl": [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]],
        "ecr": [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]],
        "rc16": [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]],
    }[name]
    return np.array([sum(s << (12 - 4 * i) for i, s in enumerate(row)) for row in rows], U32)


def permute(words: Words) -> Semantics:
    """Return the semantics of ``prmt`` in any mode."""
    type_ = words.type("b32")
    mode = words.one_of(("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))
    words.done()

    def run(a: Any, b: Any, c: Any) -> Any:
        pair = (b.astype(U64) << U64(32)) | a
        r: Any = U32(0)
        for place in range(4):
            selector = (c >> U32(4 * place)) & U32(15)
            byte = (pair >> ((selector & U32(7)) << U32(3)).astype(U64)).astype(U32) & U32(255)
            spread = (selector >> U32(3)).astype(np.bool_)
            if spread.any():
                sign = (byte >> U32(7)) * U32(255)
                byte = np.where(spread, sign, byte)[()]
            r = r | (byte << U32(8 * place))
        return r

    if not mode:
        return Semantics((type_, type_, type_), (type_,), run)
    table = _mode_table(mode)
    return Semantics((type_, type_, type_), (type_,), lambda a, b, c: run(a, b, table[c & U32(3)]))


def _log2_u32(a: Any) -> Any:
    """Return the index of the highest bit, int64; -1023 for zero."""
    return (a.astype(np.float64).view(np.int64) >> 52) - 1023


def leading_zeros(a: Any) -> Any:
    """Return the number of zeros before the highest bit of uint32 or uint64, as uint32."""
    if a.dtype == np.uint32:
        return np.minimum(31 - _log2_u32(a), 32).astype(U32)
    upper = (a >> U64(32)).astype(U32)
    lower = leading_zeros(a.astype(U32)) + U32(32)
    return np.where(upper != 0, leading_zeros(upper), lower)[()]


def count(words: Words) -> Semantics:
    """Return the semantics of ``popc`` or ``clz``."""
    type_ = words.type("b32", "b64")
    words.done()
    if words.opcode == "clz":
        return Semantics((type_,), ("u32",), leading_zeros)
    return Semantics((type_,), ("u32",), lambda a: np.bitwise_count(a).astype(U32))


def find(words: Words) -> Semantics:
    """Return ``bfind``: the highest bit that is not a copy of the sign, or 0xffffffff."""
    amount = words.flag("shiftamt")
    type_ = words.type("u32", "s32", "u64", "s64")
    words.done()
    unsigned = DTYPES["u" + type_[1:]]
    width = 8 * unsigned.itemsize

    def run(a: Any) -> Any:
        if type_[0] == "s":
            a = a ^ (a >> (width - 1))
        a = a.view(unsigned)
        zeros = leading_zeros(a)
        place = zeros if amount else U32(width - 1) - zeros
        return np.where(a == 0, U32(0xFFFFFFFF), place)[()]

    return Semantics((type_,), ("u32",), run)


def find_nth(words: Words) -> Semantics:
    """Return ``fns``: the n-th set bit from a base, upwards or (n < 0) downwards."""
    words.type("b32")
    words.done()

    def run(mask: Any, base: Any, offset: Any) -> Any:
        shape = np.broadcast_shapes(mask.shape, base.shape, offset.shape)
        found = np.full(shape, 0xFFFFFFFF, U32)
        left = np.abs(offset.astype(np.int64)) + np.zeros(shape, np.int64)
        left = np.where(offset == 0, 1, left)
        direction = np.where(offset < 0, -1, 1)
        place = base.astype(np.int64) + np.zeros(shape, np.int64)
        place = np.where(place < 32, place, 64)
        for turn in range(32):
            inside = (place >= 0) & (place < 32)
            bit = (mask >> np.clip(place, 0, 31).astype(U32)) & U32(1)
            left = left - (inside & (bit == 1))
            hit = inside & (bit == 1) & (left == 0)
            found = np.where(hit, place.astype(U32), found)
            if turn == 0:
                left = np.where((offset == 0) & ~hit, -1, left)
            place = place + direction
        return found[()]

    return Semantics(("b32", "b32", "s32"), ("b32",), run)


def reverse(words: Words) -> Semantics:
    """Return the semantics of ``brev``."""
    type_ = words.type("b32", "b64")
    words.done()
    kind = DTYPES[type_].type
    full = int(np.iinfo(kind).max)
    steps = [(kind(n), kind(full // ((1 << n) + 1))) for n in (1, 2, 4)]

    def run(a: Any) -> Any:
        for n, mask in steps:
            a = ((a >> n) & mask) | ((a & mask) << n)
        return a.byteswap()

    return Semantics((type_,), (type_,), run)


def _limit(width: int) -> Function:
    """Return how hardware treats a position or length beyond 255, which PTX leaves open."""
    most = U32(255)
    return (lambda x: x & most) if width == 32 else (lambda x: np.minimum(x, most))


def extract(words: Words) -> Semantics:
    """Return the semantics of ``bfe``: a field of c bits from bit b on, extended."""
    type_ = words.type("u32", "s32", "u64", "s64")
    words.done()
    dtype = DTYPES[type_]
    width = 8 * dtype.itemsize
    limit = _limit(width)

    def run(a: Any, position: Any, length: Any) -> Any:
        start, size = (limit(x).astype(np.int64) for x in (position, length))
        left = width - np.minimum(start + size, width)
        if type_[0] == "u":
            right = np.minimum(left + start, width).astype(dtype)
        else:
            right = np.minimum(left + start, width - 1).astype(dtype)
        r = (a << left.astype(dtype)) >> right
        return np.where(size == 0, dtype.type(0), r)[()]

    return Semantics((type_, "u32", "u32"), (type_,), run)


def insert(words: Words) -> Semantics:
    """Return the semantics of ``bfi``: the low d bits of a, put into b at bit c."""
    type_ = words.type("b32", "b64")
    words.done()
    dtype = DTYPES[type_]
    kind = dtype.type
    ones = kind(np.iinfo(kind).max)
    limit = _limit(8 * dtype.itemsize)

    def run(a: Any, b: Any, position: Any, length: Any) -> Any:
        start, size = (limit(x).astype(dtype) for x in (position, length))
        mask = ~(ones << size) << start
        return (b & ~mask) | ((a << start) & mask)

    return Semantics((type_, type_, "u32", "u32"), (type_,), run)


def mask(words: Words) -> Semantics:
    """Return the semantics of ``bmsk``: b ones from bit a on."""
    mode = words.one_of(("clamp", "wrap"))
    words.type("b32")
    words.done(mode != "")

    def run(start: Any, size: Any) -> Any:
        if mode == "wrap":
            start, size = start & U32(31), size & U32(31)
        return ~(U32(0xFFFFFFFF) << size) << start

    return Semantics(("b32", "b32"), ("b32",), run)


def extend(words: Words) -> Semantics:
    """Return the semantics of ``szext``: the low b bits of a, extended."""
    mode = words.one_of(("clamp", "wrap"))
    type_ = words.type("u32", "s32")
    words.done(mode != "")
    dtype = DTYPES[type_]

    def run(a: Any, size: Any) -> Any:
        n = size & U32(31) if mode == "wrap" else np.minimum(size, U32(32))
        left = (U32(32) - n).astype(dtype)
        r = (a << left) >> left
        return np.where(n == 0, dtype.type(0), r)[()]

    return Semantics((type_, "u32"), (type_,), run)


OPERATIONS: dict[str, Builder] = {
    **dict.fromkeys(("and", "or", "xor", "not", "cnot"), logic),
    "lop3": lop3,
    **dict.fromkeys(("shl", "shr"), shift),
    "shf": funnel_shift,
    "prmt": permute,
    **dict.fromkeys(("popc", "clz"), count),
    "bfind": find,
    "fns": find_nth,
    "brev": reverse,
    "bfe": extract,
    "bfi": insert,
    "bmsk": mask,
    "szext": extend,
}
