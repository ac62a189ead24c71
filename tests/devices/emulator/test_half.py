"""fp16 and bf16, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from reference import BFLOAT16, FLOAT16, Array, Format, Launcher, assert_same, rounded

N = 250


def half_to_float(raw: Array) -> Array:
    return raw.view(np.float16).astype(np.float64)


def bfloat_to_float(raw: Array) -> Array:
    return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def float_to_half(x: float) -> int:
    return int(np.float16(x).view(np.uint16))


def float_to_bfloat(x: float) -> int:
    return int(np.float32(x).view(np.uint32) >> 16)


def operands(bias: int, seed: int) -> tuple[Array, Array, Array]:
    """Finite patterns around one, of both signs, subnormals among the fp16 ones."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.integers(0, 0x10000, (3, N)).astype(np.uint16)
    if bias == 127:  # bf16: keep products in range
        a, b, c = ((x & 0x8FFF | 0x3800) for x in (a, b, c))
    else:
        a, b, c = ((x & 0xBFFF) for x in (a, b, c))
    return a, b, c


def encode(
    values: list[Fraction], form: Format, to_bits: Callable[[float], int], mode: str = "rn"
) -> Array:
    return np.array([to_bits(rounded(v, form, mode)) for v in values], np.uint16)


def exact(values: Array) -> list[Fraction]:
    return [Fraction(v) for v in values.tolist()]


def arithmetic(
    raw: tuple[Array, Array, Array],
    form: Format,
    to_float: Callable[[Array], Array],
    to_bits: Callable[[float], int],
) -> list[Array]:
    x, y, z = (exact(to_float(r)) for r in raw)
    a, b, _ = raw
    less = to_float(a) < to_float(b)
    rows = list(zip(x, y, z, strict=True))
    return [
        encode([p + q for p, q, _ in rows], form, to_bits),
        encode([p - q for p, q, _ in rows], form, to_bits),
        encode([p * q for p, q, _ in rows], form, to_bits),
        encode([p * q + r for p, q, r in rows], form, to_bits),
        np.where(less, a, b),
        np.where(less, b, a),
        a ^ 0x8000,
        a & 0x7FFF,
    ]


def without_zeros(*raw: Array) -> tuple[Array, ...]:
    """Zeros of either sign are left to test_emulator_floats."""
    return tuple(np.where(r & 0x7FFF, r, 0x3C01).astype(np.uint16) for r in raw)


def test_half_arithmetic(launch: Launcher) -> None:
    a, b, c = without_zeros(*operands(15, 1))
    out = np.zeros((N, 10), np.uint16)
    launch("half", "half_arithmetic", 2, 128, N, a, b, c, out)
    expected = arithmetic((a, b, c), FLOAT16, half_to_float, float_to_half)
    total = half_to_float(expected[0])
    expected += [expected[4], np.clip(total, 0, 1).astype(np.float16).view(np.uint16)]
    assert_same(out, np.stack(expected, 1))


def test_bfloat_arithmetic(launch: Launcher) -> None:
    a, b, c = operands(127, 2)
    out = np.zeros((N, 8), np.uint16)
    launch("half", "bfloat_arithmetic", 2, 128, N, a, b, c, out)
    expected = arithmetic((a, b, c), BFLOAT16, bfloat_to_float, float_to_bfloat)
    assert_same(out, np.stack(expected, 1))


def test_packed_arithmetic(launch: Launcher) -> None:
    raw = tuple(np.ascontiguousarray(x[: N // 2 * 2]) for x in operands(127, 3))
    a, b, c = raw
    n = len(a) // 2
    out = np.zeros((n, 6), np.uint32)
    launch("half", "packed_arithmetic", 1, 128, n, *(x.view(np.uint32) for x in raw), out)
    half = arithmetic((a, b, c), FLOAT16, half_to_float, float_to_half)
    bfloat = arithmetic((a, b, c), BFLOAT16, bfloat_to_float, float_to_bfloat)
    columns = [half[0], half[2], half[3], bfloat[0], bfloat[3], half[5]]
    assert_same(out, np.stack([x.view(np.uint32) for x in columns], 1))


def test_conversions(launch: Launcher) -> None:
    rng = np.random.default_rng(4)
    a = (rng.standard_normal(N) * 2.0 ** rng.uniform(-26, 17, N)).astype(np.float32)
    a[:6] = [65519.0, 65520.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-25, 1 + 2.0**-8]
    out, back = np.zeros((N, 8), np.uint16), np.zeros((N, 2), np.float32)
    packed = np.zeros((N, 2), np.uint32)
    launch("half", "half_conversions", 2, 128, N, a, out, back, packed)
    x = exact(a)

    def halves(mode: str) -> Array:
        return encode(x, FLOAT16, float_to_half, mode)

    def bfloats(mode: str) -> Array:
        return encode(x, BFLOAT16, float_to_bfloat, mode)

    integers = encode([Fraction(i * 37 - 2000) for i in range(N)], FLOAT16, float_to_half)
    positive = np.where(a < 0, 0, bfloats("rn")).astype(np.uint16)
    columns = [halves("rn"), halves("rz"), halves("rd"), halves("ru"), bfloats("rn")]
    columns += [bfloats("rz"), integers, positive]
    assert_same(out, np.stack(columns, 1))
    with np.errstate(over="ignore"):
        assert_same(out[:, 0], a.astype(np.float16).view(np.uint16))
    expected = np.stack([half_to_float(columns[0]), bfloat_to_float(columns[4])], 1)
    assert_same(back, expected.astype(np.float32))
    low = exact(a * np.float32(0.5))
    half_low = encode(low, FLOAT16, float_to_half).astype(np.uint32)
    bfloat_low = encode(low, BFLOAT16, float_to_bfloat).astype(np.uint32)
    high = np.stack([columns[0], columns[4]], 1).astype(np.uint32) << 16
    assert_same(packed, high | np.stack([half_low, bfloat_low], 1))


def test_infinity_is_beyond_the_largest_half() -> None:
    assert rounded(Fraction(65519), FLOAT16) == 65504
    assert rounded(Fraction(65520), FLOAT16) == math.inf
