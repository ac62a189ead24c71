"""What arrays should be: expressions with their bounds, and files."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples

from tilewise.specs.bounds import ULPS, Bounded, Precision
from tilewise.specs.expected import Compared, compare, file_of, parse, wrong_elements
from tilewise.specs.formulas import FUNCTIONS, Unset

Array = np.ndarray[Any, Any]
DRAW = np.random.default_rng(7)
X = DRAW.standard_normal((6, 5)).astype(np.float32)
Y = DRAW.standard_normal((6, 5)).astype(np.float32)
VALUES = {"x": X, "y": Y, "a": np.float32(0.1), "n": 6, "i": np.arange(30).reshape(6, 5)}


def held(text: str, result: Array, **more: Any) -> Compared:
    values = {**VALUES, "out": result}
    return compare(parse(f"out = {text}", values), result, **more)


F = np.float32


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a*x + y", F(0.1) * X + Y),
        ("x / (y*y + 1)", X / (Y * Y + F(1))),
        ("x**3 - 2*x", X * X * X - 2 * X),
        ("exp(-x) + log(abs(y) + 0.1)", np.exp(-X) + np.log(np.abs(Y) + F(0.1))),
        ("sqrt(abs(x)) * tanh(y)", np.sqrt(np.abs(X)) * np.tanh(Y)),
        ("sin(x) + cos(y)", np.sin(X) + np.cos(Y)),
        ("x @ y.T", X @ Y.T),
        ("sum(x, axis=1, keepdims=True) + 0*x", X.sum(1, keepdims=True) + 0 * X),
        ("x - max(x, axis=0)", X - X.max(0)),
        ("mean(x) + 0*x", X.mean() + 0 * X),
        ("cumsum(x, 1)", X.cumsum(1)),
        ("where(x > 0, x, 0.1*x)", np.where(X > 0, X, F(0.1) * X)),
        ("maximum(x, 0)", np.maximum(X, 0)),
        ("exp(x) / sum(exp(x), 1, True)", np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        ("x[::-1, 1:] * 2", X[::-1, 1:] * 2),
        ("reshape(x, 5, n)", X.reshape(5, 6)),
        ("x[i[:, 0] // 5]", X[np.arange(6)]),
    ],
)  # fmt: skip
def test_what_a_right_kernel_computes_is_right_and_another_is_not(text: str, result: Array) -> None:
    result = result.astype(np.float32)
    found = held(text, result)
    assert found.correct, found
    assert found.elements == result.size
    wrong = result.copy()
    wrong.reshape(-1)[4] += 1e-3
    found = held(text, wrong)
    assert (found.correct, found.wrong) == (False, 1)
    assert found.worst == tuple(int(x) for x in np.unravel_index(4, wrong.shape))
    assert f"WRONG: out = {text}, in 1 of {result.size} elements" in found._summary()
    wrong.reshape(-1)[7] += 1
    found = held(text, wrong)
    assert found.first == tuple(int(x) for x in np.unravel_index(4, wrong.shape))
    if found.worst != found.first:  # a bound that is 0 at one and not at the other
        told = f"elements, the first out{''.join(f'[{i}]' for i in found.first or ())},"
        assert told in found._summary()
    else:
        assert text.startswith("where")


def test_a_copy_must_be_exact() -> None:
    nearly = np.nextafter(X, np.float32(9))
    assert held("x", X).rule == "exactly"
    assert not held("x", nearly).correct
    assert held("x * 1.5", X * F(1.5)).correct


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@examples(80)
@given(
    values=st.lists(st.integers(-(10**6), 10**6), min_size=3, max_size=12),
    scale=st.integers(-8, 8),
)
def test_the_bound_holds_and_is_not_far(dtype: str, values: list[int], scale: int) -> None:
    """Sums of products in any order lie within it, and what is off by more than n roundings of
    the sum of sizes does not."""
    kind = np.dtype(dtype)
    precision = Precision.of(kind)
    with np.errstate(over="ignore"):
        x = (np.array(values) / 1e5 * 2.0**scale).astype(kind)
    if not np.isfinite(x).all():
        return
    exact = sum(Fraction(float(v)) * Fraction(float(v)) for v in x)
    found = (Bounded(x.astype(np.float64), None, precision) ** 2).sum()
    total = kind.type(0)
    with np.errstate(over="ignore"):
        for value in DRAW.permutation(x):
            total = kind.type(total + kind.type(value * value))
    if not np.isfinite(total):
        return
    slack = float(found.error) * (1 + 2.0**-53 / precision.unit)
    assert abs(Fraction(float(total)) - exact) <= Fraction(slack)
    assert slack <= 6 * len(x) * (precision.unit * float(exact) + precision.least)


@pytest.mark.parametrize("name", ULPS)
def test_functions_within_their_ulps_are_right(name: str) -> None:
    x = np.abs(X) + F(0.5)
    exact = FUNCTIONS[name](Bounded(x.astype(np.float64), None, Precision.of("float32")))
    values = {"x": x, "out": exact.value.astype(np.float32)}
    assert compare(parse(f"out = {name}(x)", values), values["out"]).correct
    off = values["out"] * F(1 + 2e-6)  # 16 ulps and more
    assert not compare(parse(f"out = {name}(x)", values), off).correct


def test_which_elements_are_wrong_by_the_same_rule() -> None:
    right = F(0.1) * X + Y
    wanted = parse("out = a*x + y", {**VALUES, "out": right})
    assert not wrong_elements(wanted, right).any()
    other = right.copy()
    other[2, 3] += 1
    left = np.zeros(right.shape, bool)
    left[4, 4] = True
    assert np.argwhere(wrong_elements(wanted, other, left)).tolist() == [[2, 3], [4, 4]]
    assert compare(wanted, other, unwritten=left).wrong == 2


def test_integers_are_exact() -> None:
    i = VALUES["i"]
    assert isinstance(i, np.ndarray)
    for text, result in (
        ("i*2 + 1", i * 2 + 1), ("i // 4 * 4 + i % 4", i), ("(i << 2) & 12", (i << 2) & 12),
        ("i > 7", i > 7), ("sum(i) + 0*i", np.full((6, 5), 435)), ("floor(x)", np.floor(X)),
    ):  # fmt: skip
        assert held(text, result.astype(np.int32)).correct, text
        assert not held(text, result.astype(np.int32) + 1).correct, text
    wrapped = (np.zeros((6, 5), np.uint32) - 1).astype(np.uint32)
    assert held("0*i - 1", wrapped).correct


def test_nan_and_infinity_are_where_they_should_be() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1, 3e38], np.float32)
    values = {"x": x, "out": x}
    with np.errstate(over="ignore"):
        right = x * F(2)
    found = compare(parse("out = 2*x", values), right)
    assert found.correct, found  # 6e38 is no float32
    for place in range(4):
        wrong = right.copy()
        wrong[place] = -7
        assert not compare(parse("out = 2*x", values), wrong).correct
    wrong = right.copy()
    wrong[4] = -np.inf
    assert not compare(parse("out = 2*x", values), wrong).correct
    odd, finite = np.array([np.inf, np.nan], np.float32), np.ones(2, np.float32)
    for text in ("out = x*inf", "out = where(x < 1, inf, nan)"):
        asked = {"x": np.array([0.5, np.nan], np.float32), "out": odd}
        assert compare(parse(text, asked), odd).correct, text
        assert not compare(parse(text, asked), finite).correct, text


def test_a_tolerance_takes_the_place_of_the_bound() -> None:
    off = X * F(1.001)
    assert not held("x*1.0", off).correct
    found = held("x*1.0", off, rtol=2e-3)
    assert found.correct
    assert found.rule == "within rtol 0.002 and atol 0"
    assert held("x", X + F(0.01), atol=0.02).correct


def test_what_nobody_wrote_is_wrong(tmp_path: Path) -> None:
    out = np.zeros(3, np.float32)
    wanted = parse("out = 0*n + 0.0", {"out": Unset((3,), out.dtype), "n": 1})
    assert compare(wanted, out).correct
    found = compare(wanted, out, unwritten=np.array([False, True, False]))
    assert (found.wrong, found.worst, found.got) == (1, (1,), None)
    assert "out[1], which was never written and should be 0" in found._summary()


def test_a_bound_as_wide_as_the_value_is_told() -> None:
    x = DRAW.standard_normal(100_000).astype(np.float32)
    values = {"x": x, "out": np.zeros(1, np.float32)}
    wanted = parse("out = sum(x)", values)
    found = compare(wanted, np.array([x.sum()]))
    assert (found.correct, found.loose) == (True, 1)
    assert "in 1 of them the bound is as wide as the value: --rtol or --atol" in found._summary()
    half = np.array([x[:50_000].sum()])
    assert compare(wanted, half).correct  # by the bound, any order of rounding is right
    assert not compare(wanted, half, atol=0.1).correct
    assert compare(wanted, np.array([x.sum()]), atol=0.1).loose == 0


def test_integers_take_a_tolerance_too() -> None:
    i = np.arange(30).reshape(6, 5)
    assert not held("i", i + 1).correct
    assert held("i", i + 1, atol=1).correct


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "r.npy", X.astype(np.float64) + 1e-12)
    np.savez(tmp_path / "r.npz", x=X)
    for text in (f"{tmp_path / 'r.npy'}", f"{tmp_path / 'r.npz'}:x"):
        found = held(text, X)
        assert (found.correct, found.rule) == (True, "exactly"), text
        nearly = np.nextafter(X, np.float32(9))
        assert not held(text, nearly).correct
        assert held(text, nearly, rtol=1e-6).correct
        assert file_of(f"out={text}") == Path(text.removesuffix(":x"))
    assert file_of("out = x") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("out", "it takes NAME=EXPRESSION or NAME=FILE.npy"),
        ("out == x", "it takes NAME=EXPRESSION"),
        ("oot = x", "oot is no array; did you mean out? There are "),
        ("n = x", "n is no array; there are x, y, i, out"),
        ("out = x +", "is no expression"),
        ("out = z", "z is no argument; there are x, y"),
        ("out = __import__('os')", "there is no function __import__"),
        ("out = x.tofile('f')", "is nothing that it takes"),
        ("out = x.dtype", "'x.dtype' is nothing that it takes"),
        ("out = 'text'", "is nothing that it takes"),
        ("out = [x for x in y]", "is nothing that it takes"),
        ("out = x @ y", "matmul"),
        ("out = x[:3]", "it has shape (3, 5), and out has (6, 5)"),
        ("out = x % 2", "% is for integers"),
        ("out = x ** 0.5", "a power must be an integer from 0 to 64"),
        ("out = where(x*x > y*y, x, y)", None),
        ("out = where(x*1.1 > x*1.1, x, y)", "a comparison depends on roundings"),
        ("out = sum(x, axis=7)", "axis 7 is out of bounds"),
        ("out = sum(x, where=y)", "sum takes axis and keepdims by name"),
        ("out = e + x", "e is empty before the launch"),
        ("out = 1e39", "1e+39 is beyond the largest float32"),
        ("out = x - 1e39", "1e+39 is beyond the largest float32"),
        ("out = 1e400", "it has a number beyond the largest float64"),
        ("out = there/none.npy", "there is no file there/none.npy"),
    ],
)
def test_what_can_not_be_expected(text: str, told: str | None) -> None:
    values = {**VALUES, "out": X, "e": Unset((6, 5), X.dtype)}
    if told is None:
        parse(text, values)
        return
    if text == "n = x":
        told = "n is no array; there are x, y, i, out, e"
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(told)):
        parse(text, values)
