"""An epilogue's functions: in kernels as NumPy has them, to the accuracy that NVIDIA documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference import is_thorough

import tilewise as tw
from tilewise.devices import Device
from tilewise.epilogue import trace
from tilewise.epilogue.enclosure import GELU, ULPS
from tilewise.kernel import SOURCES, Kernel

pytestmark = pytest.mark.usefixtures("no_machine_code")

KINDS = {"float32": "float", "float64": "double"}
UNARY = ("sigmoid", "exp", "log", "log1p", "tanh", "erf", "sqrt", "rsqrt", "abs", "negative")


def special(dtype: str) -> Any:
    kind = np.finfo(dtype)
    ends = [
        0.0,
        kind.smallest_subnormal,
        kind.tiny,
        kind.eps,
        0.5,
        1.0,
        2.5,
        30.0,
        kind.max,
        np.inf,
    ]
    rng = np.random.default_rng(0)
    drawn = [*rng.standard_normal(40), *(10.0 ** rng.uniform(-30, 30, 40))]
    some = np.array([*ends, *drawn, np.nan], dtype)
    return np.concatenate([some, -some])


def computed(device: Device, function: Any, *given: Any) -> Any:
    """What a kernel of a traced function's statements makes of arrays."""
    traced = trace(function, tuple(f"x{i}" for i in range(1, len(given))))
    dtype = given[0].dtype.name
    loads = "".join(f"const real x{i} = x[{i + 1} * n + i];" for i in range(len(given) - 1))
    source = (
        f"typedef {KINDS[dtype]} real;\n"
        + (SOURCES / "gemm" / "functions.cuh")
        .read_text(encoding="utf-8")
        .replace("#pragma once", "")
        + 'extern "C" __global__ void apply(int n, const real* x, real* y) {\n'
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i >= n) return;\n"
        f"    const real acc = x[i]; {loads} {' '.join(traced.statements)}\n"
        f"    y[i] = {traced.values[0]};\n}}\n"
    )
    found = np.empty_like(given[0])
    n = found.size
    Kernel(source, "apply").launch(-(-n // 128), 128, (n, np.stack(given), found), device=device)
    return found


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", UNARY)
def test_functions_are_as_accurate_as_documented(device: Device, name: str, dtype: str) -> None:
    x = special(dtype)
    function = {"abs": abs, "negative": lambda v: -v}.get(name) or getattr(tw, name)
    found = computed(device, lambda acc: function(acc), x)
    with np.errstate(all="ignore"):
        exact = np.asarray(function(x.astype(np.longdouble if name != "erf" else np.float64)))
        want = exact.astype(dtype)
        off = np.abs(found.astype(np.longdouble) - exact) / np.spacing(np.abs(want))
    assert np.array_equal(np.isnan(found), np.isnan(want))
    same = (found == want) | np.isnan(want)
    assert np.all(same | (off <= ULPS.get(name, 0) + 0.51)), x[~(same | (off <= 2.51))]


@pytest.mark.parametrize("dtype", KINDS)
def test_choices_spread_nan_as_numpy_does(device: Device, dtype: str) -> None:
    x, y = (v.ravel() for v in np.meshgrid(special(dtype)[::7], special(dtype)[::5]))
    functions = (
        tw.minimum, tw.maximum, lambda a, b: tw.where((a < b) | ~(a != 1), a, b - a),
        lambda a, b: np.clip(a, None, b), lambda a, b: np.clip(a, b, None),
        lambda a, b: np.clip(a, 1, b), lambda a, b: np.clip(a, b, np.nan),
    )  # fmt: skip
    for function in functions:
        found = computed(device, lambda acc, x1, f=function: f(acc, x1), x, y)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, np.asarray(function(x, y), dtype))


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "gelu": tw.gelu,
    "gelu by tanh": lambda x: tw.gelu(x, "tanh"),
    "silu": tw.silu,
    "relu": tw.relu,
    "leaky_relu": lambda x: tw.leaky_relu(x, 0.1),
    "softplus": tw.softplus,
    "sigmoid": tw.sigmoid,
    "clip": lambda x: tw.clip(x, -1, 2.5),
    "powers": lambda x: x**3 - 2 * x**2 + (x * x) ** 0.5,
    "quotients": lambda x: (1 - x) / (x * x + 0.5),
    "chosen": lambda x: tw.where((x > 0) & (x <= 1), tw.exp(x), -x),
}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", COMPOSED)
def test_kernels_stay_within_the_bounds(device: Device, name: str, dtype: str) -> None:
    """And so does the same function of NumPy's arrays, in float64 and in the kernel's dtype."""
    x = np.random.default_rng(1).uniform(-6, 6, 300).astype(dtype)
    function = COMPOSED[name]
    traced = trace(lambda acc: function(acc), ())
    around = np.abs(x.astype(np.float64)) * 1e-6
    low, high = traced.enclose(x - around, x + around, (), dtype)[0]
    found = computed(device, lambda acc: function(acc), x)
    exact = np.asarray(function(x.astype(np.float64)))
    for each in (found, exact, traced.evaluate(x, ())[0]):
        assert np.all((low <= each) & (each <= high))
    moved = np.asarray(function((x + around).astype(np.float64)))
    assert np.all((low <= moved) & (moved <= high))
    assert np.all(high - low <= 1e-4 * (1 + np.abs(exact)) + 40 * around)
    assert traced.evaluate(x, ())[0].dtype == dtype


@pytest.mark.parametrize("dtype", KINDS)
def test_sigmoid_of_extremes(device: Device, dtype: str) -> None:
    """Where exp overflows, where the result is no normal number any more, and beyond."""
    x = np.array([*np.linspace(-110, -80, 200), -745, -708, -np.inf, np.inf, np.nan, 0, 90, 1e30])
    x = x.astype(dtype)
    wide = x.astype(np.float64)
    low, high = trace(tw.sigmoid, ()).enclose(wide, wide, (), dtype)[0]
    found = computed(device, lambda acc: tw.sigmoid(acc), x)
    assert np.all((low <= found) & (found <= high) | np.isnan(x) & np.isnan(found))
    with np.errstate(over="ignore"):
        exact = 1 / (1 + np.exp(-wide))
    assert np.all(np.isnan(x) | (high - exact <= 1e-5 * exact + 4 * np.finfo(dtype).tiny))


@pytest.mark.parametrize("dtype", KINDS)
def test_gelu_at_all_exponents(device: Device, dtype: str) -> None:
    """To the units of rounding of its argument that are told, and as its bounds say."""
    kind, rng = np.finfo(dtype), np.random.default_rng(3)
    exponents = np.arange(int(kind.minexp) - int(kind.nmant), int(kind.maxexp))
    inner, more = (20, 20000) if is_thorough() else (1, 1000)
    fractions = 1 + np.concatenate([[0, 1 - kind.eps], rng.random(inner)])
    x = np.ldexp(fractions[:, None].astype(dtype), exponents).ravel()
    x = np.concatenate([x, rng.uniform(0, 14, more).astype(dtype), [0, np.inf]])
    x = np.concatenate([x, -x, [np.nan]]).astype(dtype)
    found = computed(device, lambda acc: tw.gelu(acc), x)
    given = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = tw.gelu(given)
        off = np.abs(found - exact) / np.abs(given)
    assert np.array_equal(np.isnan(found), np.isnan(x))
    assert found[np.isposinf(x)] == np.inf
    assert found[np.isneginf(x)] == 0
    is_large = np.abs(given) > 2 * float(kind.tiny)
    is_large &= np.isfinite(given)
    assert np.max(off[is_large]) <= GELU * kind.eps / 2
    low, high = trace(tw.gelu, ()).enclose(given, given, (), dtype)[0]
    assert np.all(((low <= found) & (found <= high))[np.isfinite(given)])
    assert np.all((high - low <= 20 * kind.eps * np.abs(given) + 8 * kind.tiny)[np.abs(given) < 8])


def test_bounds_of_gelu_where_it_turns() -> None:
    low, high = trace(tw.gelu, ()).enclose(np.array([-1.0]), np.array([-0.5]), (), "float64")[0]
    inside = tw.gelu(np.linspace(-1.0, -0.5, 1001))
    assert low[0] <= inside.min() <= low[0] + 1e-7
    assert high[0] >= inside.max() >= high[0] - 1e-12


def test_bounds_say_what_is_not_known() -> None:
    def bounds(function: Any, low: float, high: float) -> tuple[float, float]:
        found = trace(function, ()).enclose(np.array([low]), np.array([high]), (), "float32")
        return float(found[0][0][0]), float(found[0][1][0])

    assert bounds(lambda acc: 1 / acc, -1.0, 1.0) == (-np.inf, np.inf)
    assert bounds(tw.log, -1.0, 1.0) == (-np.inf, np.inf)
    low, high = bounds(lambda acc: tw.where(acc > 0, 5, -7), -1.0, 1.0)
    assert (low, high) == (-7, 5)
    assert bounds(lambda acc: tw.where(acc > 0, 5, -7), 1.0, 2.0) == (5, 5)
    assert bounds(abs, -3.0, 1.0) == (0, 3)
    assert bounds(tw.exp, 100.0, 101.0)[1] == np.inf  # in float32
    assert all(np.isnan(bounds(lambda acc: acc + 1, np.nan, np.nan)))
