"""The mathematical functions, within the bounds that CUDA documents.

Source: CUDA C++ Programming Guide, "Mathematical Functions Appendix": the largest difference,
in ulp, from the correctly rounded result. The reference here is glibc's, in float64: for float
its own error vanishes; for double one ulp is added for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from reference import Array, Launcher, ulps

N = 400

# One row a column of functions32: name, reference, ulp.
Function = Callable[[float, float], float]
FLOAT: list[tuple[str, Function, float]] = [
    ("sinf", lambda x, y: math.sin(x), 2),
    ("cosf", lambda x, y: math.cos(x), 2),
    ("tanf", lambda x, y: math.tan(x), 4),
    ("expf", lambda x, y: math.exp(x), 2),
    ("exp2f", lambda x, y: math.exp2(x), 2),
    ("logf", lambda x, y: math.log(abs(x)), 1),
    ("log2f", lambda x, y: math.log2(abs(x)), 1),
    ("log10f", lambda x, y: math.log10(abs(x)), 2),
    ("powf", lambda x, y: abs(x) ** y, 4),
    ("rsqrtf", lambda x, y: 1 / math.sqrt(abs(x)), 2),
    ("cbrtf", lambda x, y: math.cbrt(x), 1),
    ("hypotf", math.hypot, 3),
    ("atanf", lambda x, y: math.atan(x), 2),
    ("atan2f", math.atan2, 3),
    ("sinhf", lambda x, y: math.sinh(x), 3),
    ("tanhf", lambda x, y: math.tanh(x), 2),
    ("erff", lambda x, y: math.erf(x), 2),
    ("erfcf", lambda x, y: math.erfc(x), 4),
    ("expm1f", lambda x, y: math.expm1(x), 1),
    ("log1pf", lambda x, y: math.log1p(abs(x)), 1),
    ("asinf", lambda x, y: math.asin(float(np.float32(x) / (1 + np.abs(np.float32(x))))), 2),
    ("sincosf, sine", lambda x, y: math.sin(x), 2),
    ("sincosf, cosine", lambda x, y: math.cos(x), 2),
    ("tgammaf", lambda x, y: math.gamma(float(np.abs(np.float32(y)) + np.float32(0.5))), 5),
]
DOUBLE: list[tuple[str, Function, float]] = [
    ("sin", lambda x, y: math.sin(x), 2),
    ("cos", lambda x, y: math.cos(x), 2),
    ("tan", lambda x, y: math.tan(x), 2),
    ("exp", lambda x, y: math.exp(x), 1),
    ("log", lambda x, y: math.log(abs(x)), 1),
    ("pow", lambda x, y: abs(x) ** y, 2),
    ("rsqrt", lambda x, y: 1 / math.sqrt(abs(x)), 1),
    ("cbrt", lambda x, y: math.cbrt(x), 1),
    ("atan2", math.atan2, 2),
    ("tanh", lambda x, y: math.tanh(x), 1),
    ("erf", lambda x, y: math.erf(x), 2),
    ("log2", lambda x, y: math.log2(abs(x)), 1),
    ("exp2", lambda x, y: math.exp2(x), 1),
    ("hypot", math.hypot, 2),
    ("asinh", lambda x, y: math.asinh(x), 3),
    ("sinh", lambda x, y: math.sinh(x), 2),
]


def points(dtype: type[np.floating], seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-6, 6, N // 2), rng.standard_normal(N // 2) * 20])
    y = rng.uniform(-4, 4, N)
    return x.astype(dtype), y.astype(dtype)


def column(function: Function, x: Array, y: Array) -> Array:
    return np.array([function(p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)])


@pytest.fixture
def results32(launch: Launcher) -> tuple[Array, Array, Array]:
    x, y = points(np.float32, 1)
    out = np.zeros((N, len(FLOAT)), np.float32)
    launch("mathematics", "functions32", 4, 128, N, x, y, out)
    return x, y, out


def test_functions32(results32: tuple[Array, Array, Array]) -> None:
    x, y, out = results32
    worst = {
        name: float(ulps(out[:, i], column(function, x, y)).max())
        for i, (name, function, _) in enumerate(FLOAT)
    }
    # Half an ulp: the reference is not rounded, the bounds are from the rounded result.
    beyond = {name: worst[name] for name, _, bound in FLOAT if worst[name] > bound + 0.5}
    assert not beyond


def test_functions64(launch: Launcher) -> None:
    x, y = points(np.float64, 2)
    out = np.zeros((N, len(DOUBLE)))
    launch("mathematics", "functions64", 4, 128, N, x, y, out)
    worst = {
        name: float(ulps(out[:, i], column(function, x, y)).max())
        for i, (name, function, _) in enumerate(DOUBLE)
    }
    beyond = {name: worst[name] for name, _, bound in DOUBLE if worst[name] > bound + 1}
    assert not beyond


def test_approximate32(launch: Launcher) -> None:
    """Bounds: the same appendix, "Intrinsic Functions", and PTX ISA (rcp, sqrt, tanh)."""
    x = np.random.default_rng(3).uniform(-3.1, 3.1, N).astype(np.float32)
    out = np.zeros((N, 9), np.float32)
    launch("mathematics", "approximate32", 4, 128, N, x, out)
    wide = x.astype(np.float64)
    size = np.abs(wide)
    got = out.astype(np.float64)
    assert np.abs(got[:, 0] - np.sin(wide)).max() <= 2**-21.41
    assert np.abs(got[:, 1] - np.cos(wide)).max() <= 2**-21.19
    assert (ulps(out[:, 2], np.exp(wide)) <= 2.5 + np.floor(np.abs(1.173 * wide))).all()
    central = (size >= 0.5) & (size <= 2)
    assert np.abs(got[:, 3] - np.log(size))[central].max() <= 2**-21.41
    assert ulps(out[:, 3], np.log(size))[~central].max() <= 3.5
    assert ulps(out[:, 4], 1.5 / wide).max() <= 2.5
    assert np.abs(got[:, 5] / size**1.25 - 1).max() <= 2**-20
    assert ulps(out[:, 6], 1 / wide).max() <= 1.5
    assert np.abs(got[:, 7] / np.tanh(wide) - 1).max() <= 2**-11
    assert np.abs(got[:, 8] / np.sqrt(size) - 1).max() <= 2**-23 + 2**-24


def test_far_sine(launch: Launcher) -> None:
    x = np.array([1e5, 105615.0, 123456.7, -1e8, 3e20, 1e38, -7.5, 0.0], np.float32)
    out = np.zeros_like(x)
    launch("mathematics", "far_sine", 1, 32, len(x), x, out)
    assert ulps(out, np.array([math.sin(v) for v in x.tolist()])).max() <= 2.5


def test_special_values(launch: Launcher) -> None:
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-42], np.float32)
    n = len(x)
    out = np.zeros((n, len(FLOAT)), np.float32)
    launch("mathematics", "functions32", 1, 32, n, x, np.ones(n, np.float32), out)
    at = {name: i for i, (name, _, _) in enumerate(FLOAT)}
    assert np.isnan(out[2:5, at["sinf"]]).all()
    assert out[:4, at["expf"]].tolist() == [1, 1, math.inf, 0]
    assert out[:4, at["logf"]].tolist() == [-math.inf, -math.inf, math.inf, math.inf]
    assert out[:4, at["tanhf"]].tolist() == [0, 0, 1, -1]
    assert out[:4, at["powf"]].tolist() == [0, 0, math.inf, math.inf]
    assert np.signbit(out[1, at["sinf"]])
    assert np.isnan(out[4]).sum() == len(FLOAT) - 1  # all but tgammaf, of y alone


def test_exponents(launch: Launcher) -> None:
    rng = np.random.default_rng(4)
    a = (rng.standard_normal(60) * 2.0 ** rng.integers(-140, 120, 60)).astype(np.float32)
    a[a == 0] = 1
    n = len(a)
    scaled, fraction = np.zeros_like(a), np.zeros_like(a)
    exponent, wide = np.zeros(n, np.int32), np.zeros(n)
    launch("mathematics", "exponents", 1, 64, n, a, scaled, fraction, exponent, wide)
    i = np.arange(n)
    mantissa, power = np.frexp(a)
    assert (fraction == mantissa).all()
    assert (exponent == power).all()
    assert (scaled == np.ldexp(a.astype(np.float64), 3 - i % 7).astype(np.float32)).all()
    assert (wide == np.ldexp(a.astype(np.float64), i % 11 - 5) + (power - 1)).all()
