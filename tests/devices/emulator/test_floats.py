"""Floating point that IEEE 754 fixes, bit for bit, in every rounding mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from reference import FLOAT32, FLOAT64, Array, Format, Launcher, assert_same, rounded

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-40, -1e-45, 3e38, -3e38, math.inf, -math.inf]
SPECIAL += [math.nan, 8388609.0, -8388607.5, 2.0**31, 1.17549435e-38]


def triples(dtype: type[np.floating], n: int, seed: int) -> tuple[Array, Array, Array]:
    """All pairs of special values, then random ones over the whole range of exponents."""
    rng = np.random.default_rng(seed)
    wide = 30 if dtype is np.float32 else 300
    a, b, c = (rng.standard_normal(n) * 2.0 ** rng.uniform(-wide, wide, n) for _ in range(3))
    near = rng.standard_normal(n)
    special = np.array([(x, y) for x in SPECIAL for y in SPECIAL])
    with np.errstate(over="ignore"):
        return (
            np.concatenate([special[:, 0], a, near]).astype(dtype),
            np.concatenate([special[:, 1], b, near * rng.uniform(0.5, 2, n)]).astype(dtype),
            np.concatenate([special[::-1, 0], c, -near * near]).astype(dtype),
        )


def fused(a: Array, b: Array, c: Array, form: Format, mode: str = "rn") -> Array:
    """a·b + c, rounded once. Zero sums and what is not finite as the plain operations have it."""
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b
        out = product + c if form is FLOAT32 else a * b + c
    out = out.astype(a.dtype)
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        if math.isfinite(x) and math.isfinite(y) and math.isfinite(z):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            if exact:
                out[i] = rounded(exact, form, mode)
    return out


def half_away(a: Array) -> Array:
    """C's round()."""
    with np.errstate(all="ignore"):
        whole = np.trunc(a)
        away = np.where(np.abs(a - whole) >= 0.5, np.sign(a), 0)
        return np.asarray(np.copysign(whole + away, a))


def smallest(a: Array, b: Array) -> Array:
    """PTX's min: of a number and a NaN the number; -0 is below +0."""
    out = np.fmin(a, b)
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a) | np.signbit(b), -0.0, 0.0), out).astype(a.dtype)


def largest(a: Array, b: Array) -> Array:
    return -smallest(-a, -b)


def expected_exact(a: Array, b: Array, c: Array, form: Format) -> list[Array]:
    with np.errstate(all="ignore"):
        flags = (
            (a == b) + 2 * (a <= b) + 4 * (a != b) + 8 * (a >= b) + 16 * ~(a < b)
            + 32 * np.isnan(a) + 64 * np.isinf(b) + 128 * np.isfinite(c) + 256 * np.signbit(a)
        )  # fmt: skip
        fma = fused(a, b, c, form)
        return [
            a + b, a - b, a * b, a / b, np.sqrt(a), fma, smallest(a, b), largest(a, b),
            np.abs(a), -a, np.floor(a), np.ceil(a), np.trunc(a), np.rint(a), half_away(a),
            np.copysign(a, b), 1 / a, fma, np.where(a < b, a, c), flags.astype(a.dtype),
        ]  # fmt: skip


def launch_on(launch: Launcher, kernel: str, columns: int, *inputs: Array) -> Array:
    n = len(inputs[0])
    out = np.zeros((n, columns), inputs[0].dtype)
    launch("floating", kernel, -(-n // 128), 128, n, *inputs, out)
    return out


def test_exact32(launch: Launcher) -> None:
    a, b, c = triples(np.float32, 250, 1)
    out = launch_on(launch, "exact32", 24, a, b, c)
    expected = expected_exact(a, b, c, FLOAT32)
    with np.errstate(all="ignore"):
        clamped = np.where(np.isnan(a), 0, np.clip(a, 0, 1)) + np.float32(0)
        positive = np.where(a <= b, 0, a - b)
        expected += [clamped, positive, np.rint(a), np.fmod(a, b)]
    # A number past NaN's payload: which bits of the sign survive is not fixed for NaN.
    known = ~np.isnan(a)
    for column, values in enumerate(expected):
        rows = known if column == 19 else slice(None)
        assert_same(out[rows, column], values[rows].astype(np.float32))


def test_exact64(launch: Launcher) -> None:
    a, b, c = triples(np.float64, 150, 2)
    out = launch_on(launch, "exact64", 24, a, b, c)
    known = ~np.isnan(a)
    for column, values in enumerate(expected_exact(a, b, c, FLOAT64)):
        rows = known if column == 19 else slice(None)
        assert_same(out[rows, column], values[rows])
    with np.errstate(all="ignore"):
        assert_same(out[:, 23], np.fmod(a, b))
    for i in range(len(SPECIAL) ** 2, len(a)):
        x, y, z = (Fraction(v[i].item()) for v in (a, b, c))
        assert out[i, 20] == rounded(x + y, FLOAT64, "rz")
        assert out[i, 21] == rounded(x * y, FLOAT64, "ru")
        assert out[i, 22] == rounded(x * y + z, FLOAT64, "rd")


def square_root(value: Fraction, mode: str) -> float:
    """Rounded once: from enough digits that what is left out can only be told by a sign."""
    scale = 1 << 200
    root = math.isqrt(value.numerator * scale * scale // value.denominator)
    exact = Fraction(root, scale) ** 2 == value
    return rounded(Fraction(2 * root + (not exact), 2 * scale), FLOAT32, mode)


def test_rounded32(launch: Launcher) -> None:
    a, b, c = (x[len(SPECIAL) ** 2 :] for x in triples(np.float32, 150, 3))
    a = a.copy()
    a[::2] = np.abs(a[::2])
    out = launch_on(launch, "rounded32", 16, a, b, c)
    modes = ("rz", "ru", "rd")
    for i in range(len(a)):
        x, y, z = (Fraction(v[i].item()) for v in (a, b, c))
        row = [rounded(x + y, FLOAT32, mode) for mode in modes]
        row += [rounded(x * y, FLOAT32, mode) for mode in modes]
        row += [rounded(x * y + z, FLOAT32, mode) for mode in modes]
        row += [rounded(x / y, FLOAT32, mode) for mode in modes]
        row += [square_root(x, mode) if x >= 0 else math.nan for mode in modes]
        row += [rounded(x - y, FLOAT32, "rz")]
        assert_same(out[i], np.array(row, np.float32))


def test_saturation_and_flushing(launch: Launcher) -> None:
    a, b, _ = triples(np.float32, 200, 4)
    out = launch_on(launch, "saturate", 6, a, b)
    tiny = np.float32(2.0**-126)

    def flush(x: Array) -> Array:
        return np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x)

    def clamp(x: Array) -> Array:
        return np.where(np.isnan(x) | (x <= 0), np.float32(0), np.minimum(x, np.float32(1)))

    quarter = np.full_like(a, 0.25)
    nan = np.isnan(a) | np.isnan(b)
    with np.errstate(all="ignore"):
        expected = [
            clamp(a + b), clamp(fused(a, b, quarter, FLOAT32)), flush(flush(a) + flush(b)),
            flush(flush(a) * flush(b)), np.where(nan, np.nan, largest(a, b)),
            np.where(nan, np.nan, smallest(a, b)),
        ]  # fmt: skip
    assert_same(out, np.stack(expected, 1).astype(np.float32))


def clamp_to(values: list[float], low: int, high: int, round_to: str) -> list[int]:
    """PTX's cvt to an integer: rounds, saturates; NaN is 0 (the top bit for 64-bit results)."""
    ways: dict[str, Callable[[float], int]] = {
        "rz": math.trunc,
        "rn": round,
        "ru": math.ceil,
        "rd": math.floor,
    }
    how = ways[round_to]
    out = []
    for v in values:
        if math.isnan(v):
            out.append(0)
        elif math.isinf(v):
            out.append(high if v > 0 else low)
        else:
            out.append(min(max(how(v), low), high))
    return out


INT32, UINT32 = (-(2**31), 2**31 - 1), (0, 2**32 - 1)
INT64, UINT64 = (-(2**63), 2**63 - 1), (0, 2**64 - 1)


def numbers(dtype: type[np.floating], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    listed = [v for v in SPECIAL if not math.isnan(v)]
    listed += [2.5, 1.5, -0.5, 0.49999, 2.0**31 - 64, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63)]
    listed += [2.0**64, -(2.0**65), 1e10, -1e18, 1e19]
    return np.concatenate(
        [listed, rng.standard_normal(200) * 2.0 ** rng.uniform(-2, 66, 200)]
    ).astype(dtype)


def test_from_float(launch: Launcher) -> None:
    a = numbers(np.float32, 6)
    n = len(a)
    i32, u32 = np.zeros((n, 5), np.int32), np.zeros((n, 2), np.uint32)
    i64, u64, f64 = np.zeros((n, 2), np.int64), np.zeros((n, 2), np.uint64), np.zeros(n)
    launch("convert", "from_float", 2, 128, n, a, i32, u32, i64, u64, f64)
    values = a.tolist()
    for column, mode in enumerate(["rz", "rn", "ru", "rd"]):
        assert i32[:, column].tolist() == clamp_to(values, *INT32, mode)
    assert_same(i32[:, 4], a.view(np.int32))
    assert u32[:, 0].tolist() == clamp_to(values, *UINT32, "rz")
    assert u32[:, 1].tolist() == clamp_to(values, *UINT32, "rn")
    assert i64[:, 0].tolist() == clamp_to(values, *INT64, "rz")
    assert i64[:, 1].tolist() == clamp_to(values, *INT64, "rn")
    assert u64[:, 0].tolist() == clamp_to(values, *UINT64, "rz")
    assert u64[:, 1].tolist() == clamp_to(values, *UINT64, "ru")
    assert_same(f64, a.astype(np.float64))


def test_from_double(launch: Launcher) -> None:
    a = numbers(np.float64, 7)
    n = len(a)
    i32, i64 = np.zeros((n, 6), np.int32), np.zeros((n, 4), np.int64)
    f32 = np.zeros((n, 4), np.float32)
    launch("convert", "from_double", 2, 128, n, a, i32, i64, f32)
    values = a.tolist()
    assert i32[:, 0].tolist() == clamp_to(values, *INT32, "rz")
    assert i32[:, 1].tolist() == clamp_to(values, *INT32, "rn")
    assert i32[:, 2].view(np.uint32).tolist() == clamp_to(values, *UINT32, "ru")
    assert_same(i32[:, 3], (a.view(np.int64) >> 32).astype(np.int32))
    assert_same(i32[:, 4], a.view(np.int64).astype(np.int32))
    assert i64[:, 0].tolist() == clamp_to(values, *INT64, "rz")
    assert i64[:, 1].tolist() == clamp_to(values, *INT64, "rd")
    assert i64[:, 2].view(np.uint64).tolist() == clamp_to(values, *UINT64, "rz")
    assert_same(i64[:, 3], a.view(np.int64))
    with np.errstate(over="ignore"):
        assert_same(f32[:, 0], a.astype(np.float32))
    for column, mode in enumerate(["rz", "ru", "rd"], 1):
        wanted = [
            rounded(Fraction(v), FLOAT32, mode) if math.isfinite(v) and v else v for v in values
        ]
        assert_same(f32[:, column], np.array(wanted, np.float32))


def test_from_integer(launch: Launcher) -> None:
    rng = np.random.default_rng(8)
    sizes = rng.integers(1, 64, 200)
    a = (rng.integers(-(2**63), 2**63, 200) >> sizes).astype(np.int64)
    a[:6] = [0, -1, 2**63 - 1, -(2**63), 2**24 + 1, 2**53 + 1]
    n = len(a)
    f32, f64 = np.zeros((n, 8), np.float32), np.zeros((n, 5))
    launch("convert", "from_integer", 2, 128, n, a, f32, f64)

    def to(form: Format, values: Array, mode: str = "rn") -> list[float]:
        return [rounded(Fraction(v), form, mode) for v in values.tolist()]

    i32, u64 = a.astype(np.int32), a.view(np.uint64)
    columns = [
        to(FLOAT32, i32), to(FLOAT32, a.astype(np.uint32)), to(FLOAT32, a), to(FLOAT32, u64),
        to(FLOAT32, i32, "rz"), to(FLOAT32, a, "ru"), to(FLOAT32, a.astype(np.int16)),
        to(FLOAT32, a.astype(np.uint8)),
    ]  # fmt: skip
    assert_same(f32, np.array(columns, np.float32).T.copy())
    columns = [to(FLOAT64, x) for x in (i32, a.astype(np.uint32), a, u64)]
    columns += [to(FLOAT64, a, "rz")]
    assert_same(f64, np.array(columns).T.copy())


def test_to_narrow(launch: Launcher) -> None:
    rng = np.random.default_rng(9)
    a = (rng.standard_normal(150) * 2.0 ** rng.uniform(0, 20, 150)).astype(np.float32)
    a[:4] = [2.5, -0.5, 1e9, -1e9]
    b = (rng.integers(-(2**31), 2**31, 150) >> rng.integers(0, 32, 150)).astype(np.int32)
    outs = [np.zeros((150, 2), t) for t in (np.int8, np.uint8, np.int16, np.uint16)]
    launch("convert", "to_narrow", 2, 128, 150, a, b, *outs)
    values = a.tolist()
    saturated = [
        np.clip(b, -128, 127), np.clip(b, 0, 255),
        np.array(clamp_to(values, -(2**15), 2**15 - 1, "rz")),
        np.array(clamp_to(values, 0, 2**16 - 1, "rn")),
    ]  # fmt: skip
    for out, column in zip(outs, saturated, strict=True):
        assert_same(out[:, 0], b.astype(out.dtype))
        assert_same(out[:, 1], column.astype(out.dtype))


@pytest.mark.parametrize("mode", ["rn", "rz", "ru", "rd"])
def test_the_reference_rounds(mode: str) -> None:
    """The tests' own rounding, against numbers done by hand (unit 2^-23 in [1, 2))."""
    tie = Fraction(1) + Fraction(1, 2**24)
    assert rounded(tie, FLOAT32, mode) == (1 + 2.0**-23 if mode == "ru" else 1.0)
    assert rounded(-tie, FLOAT32, mode) == (-1 - 2.0**-23 if mode == "rd" else -1.0)
    big = Fraction(2) ** 128
    assert rounded(big, FLOAT32, mode) == (
        math.inf if mode in ("rn", "ru") else 3.4028234663852886e38
    )
    assert rounded(Fraction(2) ** -150, FLOAT32, mode) == (2.0**-149 if mode == "ru" else 0.0)
