"""Numbers that are written as expressions, and what is said of those that are none."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from tilewise.specs.expressions import UnknownNameError, evaluate, extents, whole

NAMES = {"n": 1000, "m": 3, "a": 2.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024), ("1<<20", 1 << 20), ("0x10", 16), ("-3", -3), ("ceil(n/256)", 4),
        ("cdiv(n, 256)", 4), ("ceil(n, 256)", 4), ("(n + 255) // 256", 4), ("m*n", 3000),
        ("min(m, n)", 3), ("2**10", 1024), ("2.5", 2.5), ("a*2", 5.0), ("1e3", 1000.0),
        ("1/3", Fraction(1, 3)), ("6/3", 2), ("inf", float("inf")), ("n % 7", 6), ("True", True),
    ],
)  # fmt: skip
def test_values(text: str, value: object) -> None:
    assert evaluate(text, NAMES, "n") == value


def test_a_quotient_of_large_integers_is_exact() -> None:
    assert whole("ceil((2**53 + 1)/1)", {}, "n") == 2**53 + 1


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1024", (1024,)), ("4,4", (4, 4)), ("16x16", (16, 16)), ("16xn", (16, 1000)),
        ("mxn", (3, 1000)), ("mxnx4", (3, 1000, 4)), ("m,n", (3, 1000)), ("(m+1)x4", (4, 4)),
        ("4x(m+1)", (4, 4)), ("max(m,n),2", (1000, 2)), ("2x3x4", (2, 3, 4)), ("m*n", (3000,)),
        ("nxm", (1000, 3)), ("10x0x10", (10, 0, 10)),
    ],
)  # fmt: skip
def test_extents(text: str, shape: tuple[int, ...]) -> None:
    assert extents(text, NAMES, "--grid") == shape


def test_a_name_with_an_x_is_a_name() -> None:
    assert extents("nx,max_x", {"nx": 7, "max_x": 2}, "a shape") == (7, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n +", "which is no expression of numbers"),
        ("1/0", "which divides by 0"),
        ("__import__('os')", "there is no function __import__"),
        ("n.real", "it takes numbers, names"),
        ("[1]", "it takes numbers, names"),
        ("'a'", "it takes numbers, names"),
        ("(lambda: 1)()", "it takes numbers, names"),
        ("q", "q stands for no number; known are n, m, a"),
        ("9**9**9", "is too large"),
        ("1 << 10**9", "is too large"),
        ("sqrt(-1)", "math domain error"),
        ("(-8)**(1/3)", "no real number"),
        ("(" * 5000, "which is no expression of numbers"),
        ("1e400", "it has a number beyond the largest float64; inf is infinity"),
        ("-2 * 1e400", "it has a number beyond the largest float64; inf is infinity"),
        (f"1{'0' * 400}", "0', which is beyond the largest float64"),
        ("min()", "--grid is 'min()': "),
    ],
)
def test_what_is_no_number(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        evaluate(text, NAMES, "--grid")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n/256", "--grid is 'n/256' = 3.90625; it takes a whole number; ceil(n/256) rounds it up"),
        ("0x10", "is 0x10 one number or two? Write 16 or 0,10"),
        ("4,", "which is no expression of numbers"),
        ("", "--grid is empty"),
        ("qxn", "qxn stands for no number"),
        ("a", "it takes a whole number"),
    ],
)
def test_what_is_no_extent(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        extents(text, NAMES, "--grid")


def test_the_unknown_name_is_told_apart() -> None:
    with pytest.raises(UnknownNameError) as caught:
        evaluate("2*q", NAMES, "x")
    assert caught.value.name == "q"
