"""The emulator's exact arithmetic against rational numbers, rounded by definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reference import examples

from tilewise.devices.emulator.arithmetic import double, halves, ieee

MODES = ("rn", "rz", "rm", "rp")
# Bits of precision, least exponent of a normal number, greatest exponent.
FORMATS = {"f64": (53, -1022, 1023), "f32": (24, -126, 127), "f16": (11, -14, 15)}
FORMATS["bf16"] = (8, -126, 127)
KINDS: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


def reference(value: Fraction, form: str, mode: str) -> float:
    """``value``, not zero, rounded by searching: IEEE 754-2019, section 4.3."""
    precision, least, greatest = FORMATS[form]
    size = abs(value)
    exponent = least
    while exponent <= greatest and size >= Fraction(2) ** (exponent + 1):
        exponent += 1 if size < Fraction(2) ** (exponent + 64) else 64
    unit = Fraction(2) ** (exponent - precision + 1)
    below = size // unit * unit
    above = below if below == size else below + unit
    if mode == "rn":
        middle = (below + above) / 2
        even = below if below / unit % 2 == 0 else above
        chosen = even if size == middle else (below if size < middle else above)
    elif mode == "rz" or mode == ("rp" if value < 0 else "rm"):
        chosen = below
    else:
        chosen = above
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** greatest
    if chosen > largest:
        outward = mode == "rn" or mode == ("rm" if value < 0 else "rp")
        result = math.inf if outward else float(largest)
    else:
        result = float(chosen)
    return -result if value < 0 else result


def special(operation: str, *x: float) -> float:
    """The result where an operand is not finite, or the exact result is zero, to nearest."""
    with np.errstate(all="ignore"):
        wide = [np.float64(v) for v in x]
        if operation == "fma":
            a, b, c = wide
            finite = np.isfinite(a) and np.isfinite(b)
            product = np.copysign(0.0, a) * np.copysign(1.0, b) if finite else a * b
            return float(product + c)
        functions: dict[str, Callable[..., Any]] = {
            "add": np.add,
            "mul": np.multiply,
            "div": np.divide,
            "sqrt": np.sqrt,
        }
        return float(functions[operation](*wide))


EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}


def expected(operation: str, form: str, mode: str, *x: float) -> float:
    if not all(map(math.isfinite, x)) or (operation == "div" and x[1] == 0):
        return special(operation, *x)
    if operation == "sqrt":
        return x[0] if x[0] == 0 else (root(x[0], form, mode) if x[0] > 0 else math.nan)
    value = EXACT[operation](*map(Fraction, x))
    if value:
        return reference(value, form, mode)
    if operation in ("mul", "div"):
        return special(operation, *x)
    terms = (x[0], x[1])
    if operation == "fma":
        terms = (math.copysign(1.0, x[0]) * math.copysign(1.0, x[1]), x[2])
    same = math.copysign(1.0, terms[0]) == math.copysign(1.0, terms[1])
    if same:
        return math.copysign(0.0, terms[0])
    return -0.0 if mode == "rm" else 0.0


def root(x: float, form: str, mode: str) -> float:
    """The square root, from an integer one with bits to spare and a sticky bit."""
    value = Fraction(x)
    scale = 2 ** (2 * (FORMATS[form][0] + 640))
    scaled = value * scale
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(whole) ** 2 == scaled
    near = Fraction(2 * whole + (0 if exact else 1), 2)
    return reference(near / math.isqrt(scale), form, mode)


def same(got: Any, want: float) -> bool:
    got = float(got)
    if math.isnan(want):
        return math.isnan(got)
    return got == want and math.copysign(1.0, got) == math.copysign(1.0, want)


def floats(form: str) -> st.SearchStrategy[float]:
    """Numbers of a format, its edges often: few bits set, and exponents that meet."""
    precision, least, greatest = FORMATS[form]
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0]
    for exponent in (least - precision + 1, least, greatest, 0, -precision, precision):
        for sign in (1.0, -1.0):
            edges += [sign * math.ldexp(1.0, exponent)]
    edges += [math.ldexp(2.0 - math.ldexp(1.0, 1 - precision), greatest)]
    significand = st.one_of(
        st.integers(1, 2**precision - 1),
        st.sampled_from([1, 2**precision - 1, 2 ** (precision - 1) + 1]),
        st.integers(0, precision - 2).map(lambda n: 2 ** (precision - 1) + 2**n),
    )
    exponents = st.one_of(
        st.integers(least - precision + 1, greatest - precision + 1),
        st.integers(-precision - 3, 3 - precision),
        st.integers(least - precision + 1, least - precision + 4),
        st.integers(least // 2 - precision, least // 2),
        st.integers(-2 * precision - 3, 3 - 2 * precision),
    ).filter(lambda e: least - precision + 1 <= e <= greatest - precision + 1)
    numbers = st.builds(
        lambda m, e, s: s * math.ldexp(m, e), significand, exponents, st.sampled_from([1.0, -1.0])
    )
    return st.one_of(numbers, numbers, numbers, st.sampled_from(edges))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add f32": ieee.add_f32,
    "mul f32": ieee.mul_f32,
    "div f32": ieee.div_f32,
    "sqrt f32": ieee.sqrt_f32,
    "fma f32": ieee.fma_f32,
    "add f64": double.add_f64,
    "mul f64": double.mul_f64,
    "div f64": double.div_f64,
    "sqrt f64": double.sqrt_f64,
    "fma f64": double.fma_f64,
}
COUNT = {"add": 2, "mul": 2, "div": 2, "sqrt": 1, "fma": 3}


def check(name: str, mode: str, rows: Iterable[tuple[float, ...]]) -> None:
    """One call over all rows; one more over each row's scalars would be the same code."""
    operation, form = name.split()
    rows = list(rows)
    columns = [np.array(column, KINDS[form]) for column in zip(*rows, strict=True)]
    with np.errstate(all="ignore"):
        got = FUNCTIONS[name](mode)(*columns)
    assert got.dtype == KINDS[form]
    for row, value in zip(rows, got, strict=True):
        want = expected(operation, form, mode, *row)
        assert same(value, want), (name, mode, [v.hex() for v in row], value, want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_fractions(name: str, mode: str) -> None:
    operation, form = name.split()
    values = floats(form)

    @settings(examples(8, quick=3), phases=[Phase.generate])
    @given(st.lists(st.tuples(*[values] * COUNT[operation]), min_size=20, max_size=60))
    def run(rows: list[tuple[float, ...]]) -> None:
        check(name, mode, rows)

    run()


def ties(form: str, count: int) -> list[tuple[float, float, float]]:
    """Triples whose a * b + c lies on, or a hair off, the middle of two neighbours."""
    generator = np.random.default_rng(7)
    precision, least, _ = FORMATS[form]
    kind = KINDS[form]
    rows = []
    for _ in range(count):
        low = int(generator.choice([0, least + 2, least // 2]))
        a = math.ldexp(2 ** (precision - 1) + int(generator.integers(1, 64)), low // 2)
        b = math.ldexp(2 ** (precision - 1) + int(generator.integers(0, 3)), low - low // 2)
        shift = int(generator.choice([precision, precision + 1, 2 * precision, 1, 0]))
        odd = 2 ** (precision - 1) + int(generator.integers(0, 4))
        for c in (math.ldexp(odd, low + precision - 1 + shift), math.ldexp(odd, low)):
            for factor in (1.0, -1.0):
                with np.errstate(all="ignore"):
                    row = tuple(float(kind(v)) for v in (a * 2.0**-precision, b, factor * c))
                rows.append((row[0], row[1], row[2]))
    return rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["f32", "f64"])
def test_fma_about_midpoints(form: str, mode: str) -> None:
    check(f"fma {form}", mode, ties(form, 60))


def test_double_rounding_is_really_met() -> None:
    """Rounding by way of float64 would be wrong here, so this is what the correction is for."""
    # The product is 2**-70 or 2**-196 short of half a unit in the last place of c, which is odd.
    above, below = 1 + 2.0**-23, 1 - 2.0**-23
    rows = [
        (2.0**-24 * above, below, above),
        (2.0**-75 * above, 2.0**-75 * below, 2.0**-128 + 2.0**-149),
    ]
    rows += [(-a, b, -c) for a, b, c in rows]
    for a, b, c in rows:
        assert np.float32(a * b + c) != expected("fma", "f32", "rn", a, b, c)
    for mode in MODES:
        check("fma f32", mode, rows)


def test_fma_at_the_ends_of_the_range() -> None:
    largest = float(np.finfo(np.float64).max)
    rows = [
        (largest, largest, -math.inf),
        (largest, -largest, math.inf),
        (math.inf, 0.0, 1.0),
        (math.inf, 1.0, -math.inf),
        (largest, 2.0, -largest),
        (1.0, 2.0**1023, -(2.0**1023)),
        (2.0**-500, 2.0**-574, -5e-324),
        (largest, 1.0, 2.0**969),
        (5e-324, 5e-324, 5e-324),
        (5e-324, 0.5, 5e-324),
        (5e-324, -0.5, 0.0),
        (-0.0, 1.0, -0.0),
        (0.0, 1.0, -0.0),
    ]
    for mode in MODES:
        check("fma f64", mode, rows)


@pytest.mark.parametrize("size", [1, ieee.CHUNK - 1, ieee.CHUNK, 2 * ieee.CHUNK + 5])
@pytest.mark.parametrize("form", ["f32", "f64"])
def test_fma_in_parts(form: str, size: int) -> None:
    """Any number of lanes, with any operand the same for all, is what one lane is."""
    generator = np.random.default_rng(size)
    kind = KINDS[form]
    operands = [generator.standard_normal(size).astype(kind) for _ in range(3)]
    operands[2] *= kind(1e-3)
    fma = FUNCTIONS[f"fma {form}"]("rn")
    lanes = sorted({0, size // 2, size - 1})
    for uniform in range(-1, 3):
        args = [x[0] if i == uniform else x for i, x in enumerate(operands)]
        before = [np.copy(x) for x in args]
        got = fma(*args)
        assert got.shape == (size,)
        for x, y in zip(args, before, strict=True):
            np.testing.assert_array_equal(x, y)
        for lane in lanes:
            row = [x if x.ndim == 0 else x[lane] for x in args]
            assert fma(*row) == got[lane]
            assert same(got[lane], expected("fma", form, "rn", *map(float, row)))


def test_integers_stay_exact() -> None:
    generator = np.random.default_rng(3)
    a, b, c = (generator.integers(-1000, 1000, 5000) for _ in range(3))
    for form in ("f32", "f64"):
        kind = KINDS[form]
        got = FUNCTIONS[f"fma {form}"]("rn")(a.astype(kind), b.astype(kind), c.astype(kind))
        np.testing.assert_array_equal(got, (a * b + c).astype(kind))


@pytest.mark.parametrize("mode", [*MODES])
@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
def test_narrowing(form: str, mode: str) -> None:
    @settings(examples(12, quick=4), phases=[Phase.generate])
    @given(st.lists(st.one_of(floats("f64"), floats(form), near(form)), min_size=20, max_size=60))
    def run(values: list[float]) -> None:
        x = np.array(values)
        with np.errstate(all="ignore"):
            if form == "bf16":
                got = halves.to_f32(halves.from_f64(x, "bf16", mode))
            else:
                got = ieee.narrow(x, np.dtype(KINDS[form]), mode)
        for value, result in zip(values, got, strict=True):
            plain = not math.isfinite(value) or value == 0
            want = value if plain else reference(Fraction(value), form, mode)
            assert same(result, want), (value.hex(), result, want)

    run()


def near(form: str) -> st.SearchStrategy[float]:
    """Float64 numbers on the middles of a narrower format, and their neighbours."""
    precision, least, _ = FORMATS[form]
    return st.builds(
        lambda m, e, n: (
            math.nextafter(math.ldexp(2 * m + 1, e), n * math.inf)
            if n
            else math.ldexp(2 * m + 1, e)
        ),
        st.integers(2 ** (precision - 2), 2**precision - 1),
        st.sampled_from([least - precision - 3, least - precision, least - precision + 1, 0]),
        st.sampled_from([-1, 0, 1]),
    )


def test_flush_and_saturate() -> None:
    x = np.array([1e-40, -1e-40, 0.0, -0.0, 2.0, -2.0, math.nan, math.inf, 0.25], np.float32)
    want = np.array([0.0, -0.0, 0.0, -0.0, 2.0, -2.0, math.nan, math.inf, 0.25], np.float32)
    with np.errstate(all="ignore"):
        flushed = ieee.flush(x)
        np.testing.assert_array_equal(flushed, want)
        np.testing.assert_array_equal(np.signbit(flushed), np.signbit(want))
        saturated = ieee.saturate(x)
    clamped = np.array([1e-40, 0, 0, 0, 1, 0, 0, 1, 0.25], np.float32)
    np.testing.assert_array_equal(saturated, clamped)
    assert not np.signbit(saturated).any()
    nan = ieee.canonical(np.array([math.nan, 1.0], np.float32))
    assert nan.view(np.uint32).tolist() == [0x7FFFFFFF, 0x3F800000]
