"""The emulator's arithmetic against its definition in PTX, instruction by instruction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reference import examples, is_thorough

from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.errors import UnsupportedInstructionError


def call(instruction: str, *operands: Any) -> Any:
    """The instruction over lists of operands, as Python numbers."""
    opcode, *modifiers = instruction.split(".")
    semantics = resolve(opcode, tuple(modifiers))
    types = [*semantics.inputs, *(["u32"] * semantics.carry_in)]
    arrays = [np.array(x, DTYPES[type_]) for x, type_ in zip(operands, types, strict=True)]
    with np.errstate(all="ignore"):
        result = semantics.function(*arrays)
    if isinstance(result, tuple):
        return tuple(x.tolist() for x in result)
    return result.tolist()


def wrap(value: int, type_: str) -> int:
    """``value`` as the type's bits would be read."""
    width = int(type_[1:])
    value &= (1 << width) - 1
    return value - (1 << width) if type_[0] == "s" and value >> (width - 1) else value


def integers(type_: str) -> st.SearchStrategy[int]:
    width = int(type_[1:])
    edges = [0, 1, 2, 31, 32, 33, 63, 64, (1 << width) - 1, 1 << (width - 1), (1 << width - 1) - 1]
    bits = st.one_of(st.integers(0, (1 << width) - 1), st.sampled_from(edges), st.integers(0, 255))
    return bits.map(lambda x: wrap(x, type_))


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1


def remainder(a: int, b: int) -> int:
    return a - quotient(a, b) * b if b else -1


def low_24(x: int, type_: str) -> int:
    return wrap(x, type_[0] + "24")


def fields(x: int, width: int, count: int, signed: bool) -> list[int]:
    kind = ("s" if signed else "u") + str(width)
    return [wrap(x >> (width * i), kind) for i in range(count)]


TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
CASES: dict[str, tuple[tuple[str, ...], str, Callable[..., int]]] = {}


def case(name: str, inputs: tuple[str, ...], output: str, function: Callable[..., int]) -> None:
    CASES[name] = (inputs, output, function)


for _t in TYPES:
    _w = int(_t[1:])
    case(f"add.{_t}", (_t,) * 2, _t, lambda a, b: a + b)
    case(f"sub.{_t}", (_t,) * 2, _t, lambda a, b: a - b)
    case(f"mul.lo.{_t}", (_t,) * 2, _t, lambda a, b: a * b)
    case(f"mul.hi.{_t}", (_t,) * 2, _t, lambda a, b, w=_w: a * b >> w)
    case(f"mad.lo.{_t}", (_t,) * 3, _t, lambda a, b, c: a * b + c)
    case(f"mad.hi.{_t}", (_t,) * 3, _t, lambda a, b, c, w=_w: (a * b >> w) + c)
    case(f"div.{_t}", (_t,) * 2, _t, quotient)
    case(f"rem.{_t}", (_t,) * 2, _t, remainder)
    case(f"min.{_t}", (_t,) * 2, _t, min)
    case(f"max.{_t}", (_t,) * 2, _t, max)
    case(f"sad.{_t}", (_t,) * 3, _t, lambda a, b, c: c + abs(a - b))
    case(f"shr.{_t}", (_t, "u32"), _t, lambda a, n: a >> min(n, 64))
    if _w < 64:
        _x = _t[0] + str(2 * _w)
        case(f"mul.wide.{_t}", (_t,) * 2, _x, lambda a, b: a * b)
        case(f"mad.wide.{_t}", (_t, _t, _x), _x, lambda a, b, c: a * b + c)
for _t in ("s16", "s32", "s64"):
    case(f"abs.{_t}", (_t,), _t, abs)
    case(f"neg.{_t}", (_t,), _t, lambda a: -a)
for _t in ("u32", "s32"):
    for _part, _shift in (("lo", 0), ("hi", 16)):
        case(
            f"mul24.{_part}.{_t}",
            (_t,) * 2,
            _t,
            lambda a, b, t=_t, n=_shift: low_24(a, t) * low_24(b, t) >> n,
        )
    for _u in ("u32", "s32"):
        _out = "u32" if _t == _u == "u32" else "s32"
        case(
            f"dp4a.{_t}.{_u}",
            (_t, _u, _out),
            _out,
            lambda a, b, c, t=_t, u=_u: (
                c
                + sum(
                    x * y
                    for x, y in zip(
                        fields(a, 8, 4, t == "s32"), fields(b, 8, 4, u == "s32"), strict=True
                    )
                )
            ),
        )
        for _half, _first in (("lo", 0), ("hi", 2)):
            case(
                f"dp2a.{_half}.{_t}.{_u}",
                (_t, _u, _out),
                _out,
                lambda a, b, c, t=_t, u=_u, i=_first: (
                    c
                    + sum(
                        x * y
                        for x, y in zip(
                            fields(a, 16, 2, t == "s32"),
                            fields(b, 8, 4, u == "s32")[i : i + 2],
                            strict=True,
                        )
                    )
                ),
            )
for _t in ("b16", "b32", "b64"):
    _u = "u" + _t[1:]
    _w = int(_t[1:])
    case(f"shl.{_t}", (_u, "u32"), _u, lambda a, n: a << min(n, 64))
    case(f"and.{_t}", (_u,) * 2, _u, lambda a, b: a & b)
    case(f"or.{_t}", (_u,) * 2, _u, lambda a, b: a | b)
    case(f"xor.{_t}", (_u,) * 2, _u, lambda a, b: a ^ b)
    case(f"not.{_t}", (_u,), _u, lambda a: ~a)
    case(f"cnot.{_t}", (_u,), _u, lambda a: int(a == 0))


def extract(a: int, start: int, size: int, width: int, signed: bool) -> int:
    """``bfe`` as the PTX ISA writes it, bit by bit."""
    top = width - 1
    sign = (a >> min(start + size - 1, top)) & 1 if signed and size else 0
    bits = ((a >> (start + i)) & 1 if i < size and start + i <= top else sign for i in range(width))
    return sum(bit << i for i, bit in enumerate(bits))


def insert(a: int, b: int, start: int, size: int, width: int) -> int:
    """``bfi`` as the PTX ISA writes it, bit by bit."""
    for i in range(size):
        if start + i < width:
            b = b & ~(1 << (start + i)) | ((a >> i) & 1) << (start + i)
    return b


for _t in ("b32", "b64"):
    _u = "u" + _t[1:]
    _w = int(_t[1:])
    case(f"popc.{_t}", (_u,), "u32", lambda a: a.bit_count())
    case(f"clz.{_t}", (_u,), "u32", lambda a, w=_w: w - a.bit_length())
    case(f"brev.{_t}", (_u,), _u, lambda a, w=_w: int(f"{a:0{w}b}"[::-1], 2))
    for _k in "us":
        _t = f"{_k}{_w}"
        case(
            f"bfe.{_t}",
            (_t, "u8", "u8"),
            _t,
            lambda a, s, n, w=_w, k=_k: extract(a, s, n, w, k == "s"),
        )
        case(
            f"bfind.{_t}",
            (_t,),
            "u32",
            lambda a: (a if a >= 0 else ~a).bit_length() - 1,
        )
        case(
            f"bfind.shiftamt.{_t}",
            (_t,),
            "u32",
            lambda a, w=_w: w - x if (x := (a if a >= 0 else ~a).bit_length()) else -1,
        )
    case(
        f"bfi.b{_w}",
        (_u, _u, "u8", "u8"),
        _u,
        lambda a, b, s, n, w=_w: insert(a, b, s, n, w),
    )
for _mode in ("clamp", "wrap"):

    def _amount(n: int, mode: str = _mode) -> int:
        return min(n, 32) if mode == "clamp" else n & 31

    case(
        f"shf.l.{_mode}.b32",
        ("u32",) * 3,
        "u32",
        lambda a, b, n, f=_amount: (b << 32 | a) << f(n) >> 32,
    )
    case(
        f"shf.r.{_mode}.b32", ("u32",) * 3, "u32", lambda a, b, n, f=_amount: (b << 32 | a) >> f(n)
    )
    case(
        f"bmsk.{_mode}.b32",
        ("u32",) * 2,
        "u32",
        lambda a, b, f=_amount: ((1 << f(b)) - 1) << f(a),
    )
    for _k in "us":
        case(
            f"szext.{_mode}.{_k}32",
            (f"{_k}32", "u32"),
            f"{_k}32",
            lambda a, n, f=_amount, k=_k: wrap(a, f"{k}{f(n)}") if f(n) else 0,
        )


def permute(a: int, b: int, c: int) -> int:
    result = 0
    for i in range(4):
        selector = c >> (4 * i)
        byte = (b << 32 | a) >> (8 * (selector & 7)) & 255
        if selector & 8:
            byte = 255 * (byte >> 7)
        result |= byte << (8 * i)
    return result


MODES: dict[str, Callable[[int, int], int]] = {  # which byte stands at place i, for c
    "f4e": lambda i, c: (c + i) % 8,
    "b4e": lambda i, c: (c - i) % 8,
    "rc8": lambda i, c: c,
    "ecl": lambda i, c: max(i, c),
    "ecr": lambda i, c: min(i, c),
    "rc16": lambda i, c: 2 * (c & 1) + (i & 1),
}
case("prmt.b32", ("u32",) * 3, "u32", permute)
for _mode, _byte in MODES.items():
    case(
        f"prmt.b32.{_mode}",
        ("u32",) * 3,
        "u32",
        lambda a, b, c, f=_byte: permute(a, b, sum(f(i, c & 3) << (4 * i) for i in range(4))),
    )


@pytest.mark.parametrize("name", CASES)
def test_integer_instruction(name: str) -> None:
    inputs, output, function = CASES[name]
    least = 40 if is_thorough() else 5

    @settings(examples(3, quick=2), phases=[Phase.generate])
    @given(st.lists(st.tuples(*map(integers, inputs)), min_size=least, max_size=20 + least))
    def run(rows: list[tuple[int, ...]]) -> None:
        got = call(name, *zip(*rows, strict=True))
        for row, value in zip(rows, got, strict=True):
            want = wrap(function(*row), output)
            assert wrap(int(value), output) == want, (name, row, value, want)

    run()


@given(st.integers(0, 255), st.tuples(*[st.integers(0, 2**32 - 1)] * 3))
@settings(examples(300), phases=[Phase.generate])
def test_lop3(table: int, words: tuple[int, int, int]) -> None:
    a, b, c = words
    want = 0
    for i in range(32):
        place = 4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)
        want |= (table >> place & 1) << i
    assert call("lop3.b32", a, b, c, table) == want
    assert call("lop3.b32", [a], [b], [c], table) == [want]
    assert call("lop3.or.b32", a, b, c, table, False) == (want, want != 0)


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
@settings(max_examples=40, phases=[Phase.generate])
@given(data=st.data())
def test_carry_chains(type_: str, data: st.DataObject) -> None:
    """Two words of an addition, subtraction, multiplication make one of twice the width."""
    width = int(type_[1:])
    mask = (1 << width) - 1
    word = integers("u" + type_[1:])
    low_a, high_a, low_b, high_b = (data.draw(word) for _ in range(4))
    a, b = high_a << width | low_a, high_b << width | low_b

    def signed(x: int) -> int:
        return wrap(x, type_)

    for name, whole in (("add", a + b), ("sub", a - b)):
        low, carry = call(f"{name}.cc.{type_}", signed(low_a), signed(low_b))
        high = call(f"{name}c.{type_}", signed(high_a), signed(high_b), carry)
        assert (high & mask) << width | low & mask == whole & (mask << width | mask)
        again, _ = call(f"{name}c.cc.{type_}", signed(high_a), signed(high_b), carry)
        assert again == high
    if type_[0] == "u":
        low, carry = call(f"mad.lo.cc.{type_}", low_a, low_b, high_a)
        high = call(f"madc.hi.{type_}", low_a, low_b, high_b, carry)
        whole = low_a * low_b + (high_b << width | high_a)
        assert high << width | low == whole & (mask << width | mask)


@pytest.mark.parametrize(
    ("name", "operands", "want"),
    [
        ("add.sat.s32", (2**31 - 1, 1), 2**31 - 1),
        ("sub.sat.s32", (-(2**31), 1), -(2**31)),
        ("mad.hi.sat.s32", (2**31 - 1, 2**31 - 1, 2**31 - 1), 2**31 - 1),
        ("max.relu.s32", (-3, -5), 0),
        ("add.u16x2", (0xFFFF0001, 0x00010002), 0x00000003),
        ("min.s16x2", (0x8000_0005, 0x0001_FFFF), 0x8000_FFFF),
        ("max.relu.s16x2", (0x8000_0005, 0xFFFF_0001), 0x0000_0005),
        ("vabsdiff4.u32.u32.u32", (0x01FF_0203, 0x02FE_0205, 7), 0x0101_0002),
        ("vabsdiff4.u32.u32.u32.add", (0x01FF_0203, 0x02FE_0205, 7), 11),
        ("vabsdiff2.u32.u32.u32.add", (0xFFFF_0001, 0x0000_0003, 1), 0x10002),
        ("fns.b32", (0b101100, 0, 2), 3),
        ("fns.b32", (0b101100, 5, -2), 3),
        ("fns.b32", (0b101100, 3, 0), 3),
        ("fns.b32", (0b101100, 4, 0), 0xFFFFFFFF),
        ("fns.b32", (0b101100, 0, 4), 0xFFFFFFFF),
        ("cvt.u8.s32", (-1,), 255),
        ("cvt.s32.s8", (-1,), -1),
        ("cvt.sat.u8.s32", (-1,), 0),
        ("cvt.sat.s8.u64", (2**64 - 1,), 127),
        ("cvt.rzi.s32.f32", (-2.75,), -2),
        ("cvt.rni.s32.f32", (2.5,), 2),
        ("cvt.rmi.s32.f32", (-2.25,), -3),
        ("cvt.rpi.u32.f32", (2.25,), 3),
        ("cvt.rzi.s32.f32", (math.nan,), 0),
        ("cvt.rzi.s32.f32", (math.inf,), 2**31 - 1),
        ("cvt.rzi.u32.f32", (-5.0,), 0),
        ("cvt.rzi.s64.f32", (math.nan,), -(2**63)),
        ("cvt.rzi.u64.f64", (1e30,), 2**64 - 1),
        ("cvt.rzi.s64.f64", (-1e30,), -(2**63)),
        ("cvt.rzi.s64.f64", (2.0**63,), 2**63 - 1),
        ("cvt.rzi.u8.f16", (300.0,), 255),
        ("cvt.rn.f32.s32", (2**24 + 1,), 2.0**24),
        ("cvt.rp.f32.s32", (2**24 + 1,), 2.0**24 + 2),
        ("cvt.rz.f32.u64", (2**64 - 1,), 2.0**64 - 2.0**40),
        ("cvt.rn.f64.u64", (2**64 - 1,), 2.0**64),
        ("cvt.rm.f64.s64", (2**63 - 1,), 2.0**63 - 1024),
        ("cvt.rn.f16.s32", (65520,), math.inf),
        ("cvt.rz.f16.s32", (65520,), 65504.0),
        ("cvt.rn.bf16.u32", (257,), 0x4380),
        ("cvt.rn.f32.f64", (1 + 2.0**-24,), 1.0),
        ("cvt.rp.f32.f64", (1 + 2.0**-24,), 1 + 2.0**-23),
        ("cvt.rn.f16.f32", (2.0**-25,), 0.0),
        ("cvt.rn.f16.f32", (1.5 * 2.0**-24,), 2.0**-23),
        ("cvt.rn.bf16.f32", (1 + 2.0**-8,), 0x3F80),
        ("cvt.rn.bf16.f32", (3.4e38,), 0x7F80),
        ("cvt.rn.satfinite.bf16.f32", (3.4e38,), 0x7F7F),
        ("cvt.rn.relu.bf16.f32", (-1.0,), 0),
        ("cvt.rn.f16x2.f32", (1.0, 2.0), 0x3C004000),
        ("cvt.rn.relu.bf16x2.f32", (-1.0, 2.0), 0x00004000),
        ("cvt.f32.bf16", (0x3F80,), 1.0),
        ("cvt.rna.tf32.f32", (1 + 2.0**-11,), 0x3F802000),
        ("cvt.rn.tf32.f32", (1 + 2.0**-11,), 0x3F800000),
        ("cvt.sat.f32.f32", (7.0,), 1.0),
        ("cvt.sat.f32.f32", (math.nan,), 0.0),
        ("cvt.rni.f32.f32", (-2.5,), -2.0),
        ("min.f32", (math.nan, 1.0), 1.0),
        ("max.f64", (1.0, math.nan), 1.0),
        ("max.xorsign.abs.f32", (-3.0, 2.0), -3.0),
        ("copysign.f32", (-1.0, 2.0), -2.0),
        ("slct.u32.s32", (1, 2, -1), 2),
        ("slct.s32.f32", (1, 2, -0.0), 1),
        ("slct.s32.f32", (1, 2, math.nan), 2),
        ("slct.ftz.s32.f32", (1, 2, -1e-40), 1),
        ("selp.b64", (1, 2, True), 1),
        ("set.lt.u32.f32", (1.0, 2.0), 0xFFFFFFFF),
        ("set.lt.f32.f32", (1.0, 2.0), 1.0),
        ("set.lt.and.s32.s32", (1, 2, False), 0),
        ("testp.subnormal.f32", (1e-40,), True),
        ("add.f16", (2048.0, 1.0), 2048.0),
        ("fma.rn.f16", (2.0**-12, 2.0**-12, 1 + 2.0**-10), 1 + 2.0**-10),
        ("fma.rn.relu.f16", (1.0, -2.0, 1.0), 0.0),
        ("add.rn.bf16", (0x4380, 0x3F80), 0x4380),
        ("mul.rn.bf16x2", (0x4000_3F80, 0x4040_C000), 0x40C0_C000),
        ("neg.f16x2", (0x3C00_8000,), 0xBC00_0000),
        ("ex2.approx.ftz.f32", (3.0,), 8.0),
        ("lg2.approx.f32", (8.0,), 3.0),
        ("rcp.approx.ftz.f32", (4.0,), 0.25),
        ("rcp.approx.ftz.f64", (4.0,), 0.25),
        ("rsqrt.approx.f32", (4.0,), 0.5),
        ("sqrt.approx.ftz.f32", (9.0,), 3.0),
        ("sin.approx.f32", (0.0,), 0.0),
        ("cos.approx.f32", (0.0,), 1.0),
        ("tanh.approx.f32", (math.inf,), 1.0),
        ("tanh.approx.bf16x2", (0x7F80_FF80,), 0x3F80_BF80),
        ("ex2.approx.f16x2", (0x4000_3C00,), 0x4400_4000),
        ("ex2.approx.ftz.bf16", (0x4040,), 0x4100),
        ("div.full.f32", (1.0, 4.0), 0.25),
        ("add.sat.f32", (1.0, 4.0), 1.0),
        ("add.ftz.f32", (1e-40, 0.0), 0.0),
    ],
)
def test_example(name: str, operands: tuple[Any, ...], want: Any) -> None:
    assert call(name, *operands) == want
    assert call(name, *([x] for x in operands)) == [want]


def test_zeros_are_ordered() -> None:
    for type_ in ("f32", "f64", "f16"):
        for a, b in ((0.0, -0.0), (-0.0, 0.0)):
            assert math.copysign(1.0, call(f"min.{type_}", a, b)) == -1.0
            assert math.copysign(1.0, call(f"max.{type_}", a, b)) == 1.0
    assert math.isnan(call("min.NaN.f32", 1.0, math.nan))


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_setp_of_floats(type_: str) -> None:
    values = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    pairs = [(a, b) for a in values for b in values]
    a, b = zip(*pairs, strict=True)
    unordered = [math.isnan(x) or math.isnan(y) for x, y in pairs]
    for name, compare in COMPARISONS.items():
        plain = [compare(x, y) and not u for (x, y), u in zip(pairs, unordered, strict=True)]
        loose = [compare(x, y) or u for (x, y), u in zip(pairs, unordered, strict=True)]
        assert call(f"setp.{name}.{type_}", a, b) == (plain, [not p for p in plain])
        assert call(f"setp.{name}u.{type_}", a, b)[0] == loose
    assert call(f"setp.nan.{type_}", a, b) == (unordered, [not u for u in unordered])
    assert call(f"setp.num.{type_}", a, b)[0] == [not u for u in unordered]


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
def test_setp_combines_both(combine: str) -> None:
    join = {"and": lambda p, q: p and q, "or": lambda p, q: p or q, "xor": lambda p, q: p != q}
    for p in (False, True):
        for less in (False, True):
            got = call(f"setp.lt.{combine}.s32", 0, int(less), p)
            assert got == (join[combine](less, p), join[combine](not less, p))


def test_setp_of_pairs_and_unsigned() -> None:
    # 1.0 and 2.0 in the halves: low against low, high against high.
    assert call("setp.lt.f16x2", 0x4000_3C00, 0x3C00_4000) == (True, False)
    assert call("setp.lt.bf16x2", [0x4000_3F80], [0x3F80_4000]) == ([True], [False])
    assert call("setp.hi.u32", 2**31, 1) == (True, False)
    assert call("setp.gt.s32", -(2**31), 1) == (False, True)
    assert call("setp.eq.b64", 2**63, 2**63) == (True, False)


def test_flops() -> None:
    counts = {
        "add.f32": 1,
        "fma.rn.f32": 2,
        "fma.rn.f64": 2,
        "mul.f16x2": 2,
        "fma.rn.bf16x2": 4,
        "div.rn.f32": 1,
        "sqrt.rn.f64": 1,
        "fma.rn.f32x2": 4,
        "add.s32": 0,
        "mad.lo.s32": 0,
        "setp.lt.f32": 0,
        "min.f32": 0,
    }
    for name, count in counts.items():
        opcode, *modifiers = name.split(".")
        assert resolve(opcode, tuple(modifiers)).flops == count, name


@pytest.mark.parametrize(
    "name",
    [
        "mov.u32",
        "ld.global.f32",
        "nonsense",
        "add",
        "add.f32.f32.f32",
        "add.rn.s32",
        "add.cc.u16",
        "add.ftz.f64",
        "fma.f32",
        "mul.s32",
        "mul.lo.f32",
        "mul.wide.u64",
        "setp.lt.b32",
        "setp.s32",
        "setp.lo.s32",
        "setp.lt.ftz.s32",
        "min.NaN.s32",
        "shl.s32",
        "and.u32",
        "shf.l.b32",
        "cvt.f16.f32",
        "cvt.rni.f32.s32",
        "cvt.f32.s32",
        "cvt.s32.f32",
        "cvt.rn.s32.f32",
        "cvt.rn.satfinite.e2m1x2.f32",
        "cvt.rn.e4m3x2.f32",
        "cvt.rz.satfinite.e5m2x2.f32",
        "ex2.f32",
        "div.f32",
        "add.ftz.bf16",
        "popc.u32",
        "fma.rn.relu.f32",
    ],
)
def test_unknown_is_named(name: str) -> None:
    opcode, *modifiers = name.split(".")
    with pytest.raises(UnsupportedInstructionError, match=name.replace(".", r"\.")):
        resolve(opcode, tuple(modifiers))


def test_packed_singles() -> None:
    def pair(high: float, low: float) -> int:
        return int(np.array([low, high], np.float32).view(np.uint64)[0])

    got = call("fma.rn.f32x2", pair(2.0, 3.0), pair(5.0, 7.0), pair(1.0, -1.0))
    assert got == pair(11.0, 20.0)
    assert call("add.rn.ftz.f32x2", [pair(1.0, 1e-40)], [pair(2.0, 0.0)]) == [pair(3.0, 0.0)]
