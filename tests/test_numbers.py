"""The check of a product: what it must accept, and what it must not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise import numbers
from tilewise.numbers import Check, check, wrong_elements
from tilewise.precision import dtype_of, limits_of
from tilewise.roundoff import gamma, scalar, unit_roundoff

Array = npt.NDArray[Any]
DTYPES = ("float32", "float64")
NAN, INF = np.nan, np.inf


def plain(a: Array, b: Array, c0: Array | None = None, alpha: float = 1, beta: float = 0) -> Array:
    """alpha A B + beta C0, every operation rounded to A's dtype, added up from left to right."""
    kind = a.dtype.type
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    with np.errstate(all="ignore"):
        if alpha != 0:
            for p in range(a.shape[1]):
                total += a[:, p, None] * b[None, p]
            total = kind(alpha) * total
        if c0 is not None and beta != 0:
            total = total + kind(beta) * c0
    return total


def one(c: float, a: list[float], b: list[float], dtype: str = "float32", **kwargs: Any) -> Check:
    """The check of a 1 x 1 product of a row and a column."""
    kind = np.dtype(dtype)
    if "c0" in kwargs:
        kwargs["c0"] = np.array([[kwargs["c0"]]], kind)
    return check(
        np.array([[c]], kind), np.array([a], kind), np.array(b, kind).reshape(-1, 1), **kwargs
    )


@given(
    st.integers(0, 6), st.integers(0, 6), st.integers(0, 40), st.sampled_from(DTYPES),
    st.sampled_from([0.0, 1.0, -1.0, 0.1, -2.5]), st.sampled_from([0.0, 1.0, 0.3]),
    st.sampled_from([0, 0, -70, -540, 60, 505]), st.integers(0, 2**32),
)  # fmt: skip
def test_a_plain_loop_is_correct(
    m: int, n: int, k: int, dtype: str, alpha: float, beta: float, exponent: int, seed: int
) -> None:
    # The exponents reach into the subnormals of either dtype, and past its largest number.
    rng = np.random.default_rng(seed)
    scale = 2.0**exponent
    with np.errstate(all="ignore"):
        a, b, c0 = (
            (rng.standard_normal(shape) * scale).astype(dtype) for shape in ((m, k), (k, n), (m, n))
        )
    found = check(plain(a, b, c0, alpha, beta), a, b, c0, alpha, beta)
    assert found.correct, found
    assert found.max_error <= found.bound
    assert (found.worst is None) == (m * n == 0)


@given(
    st.integers(1, 60), st.sampled_from(DTYPES), st.sampled_from([1.0, -0.7]), st.integers(0, 2**32)
)
def test_max_error_is_the_exact_one(k: int, dtype: str, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((1, k)).astype(dtype), rng.standard_normal((k, 1)).astype(dtype)
    c = plain(a, b, alpha=alpha)
    alpha = scalar(alpha, dtype, "alpha")
    terms = [
        Fraction(alpha) * Fraction(float(x)) * Fraction(float(y))
        for x, y in zip(a[0], b[:, 0], strict=True)
    ]
    size = sum(map(abs, terms), Fraction(0))
    exact = float(abs(Fraction(float(c[0, 0])) - sum(terms, Fraction(0))) / size)
    found = check(c, a, b, alpha=alpha)
    # The float64 reference is itself within gamma of the exact value.
    assert abs(found.max_error - exact) <= gamma(k + 4, "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 7, 300])
def test_an_error_just_past_the_bound_is_found(dtype: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((9, k)).astype(dtype), rng.standard_normal((k, 11)).astype(dtype)
    c = plain(a, b)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    bound = check(c, a, b).bound
    c[4, 7] = (a.astype(np.float64) @ b)[4, 7] + (bound + 2 * unit_roundoff(dtype)) * size[4, 7]
    found = check(c, a, b)
    assert not found.correct
    assert found.worst == (4, 7)
    assert found.bound < found.max_error < 3 * found.bound + 4 * unit_roundoff(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_missing_product_is_found(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((20, 200)).astype(dtype),
        rng.standard_normal((200, 20)).astype(dtype),
    )
    found = check(a[:, :-1] @ b[:-1], a, b)
    assert not found.correct


def test_panels_are_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.numbers._PANEL", 0)  # then panels are 64 wide
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((150, 5), (5, 200)))
    c = plain(a, b)
    assert check(c, a, b).correct
    for place in ((0, 199), (149, 0), (70, 130), (149, 199)):
        wrong = c.copy()
        wrong[place] += 1
        found = check(wrong, a, b)
        assert not found.correct
        assert found.worst == place


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("a", "b", "right"),
    [
        ([NAN, 1], [1, 1], {NAN}),
        ([1, 1], [0, NAN], {NAN}),
        ([INF, 1], [0, 1], {NAN}),
        ([0, 1], [-INF, 1], {NAN}),
        ([INF, INF], [1, -1], {NAN}),
        ([INF, 1], [2, -INF], {NAN}),
        ([INF, 1], [2, 1], {INF}),
        ([INF, 1], [-2, 1], {-INF}),
        ([-INF, 1], [-INF, 1], {INF}),
        ([1, 5], [1, -INF], {-INF}),
        ([1, 2], [3, 4], {11}),
        ([], [], {0}),
    ],
)
def test_nan_and_infinity(dtype: str, a: list[float], b: list[float], right: set[float]) -> None:
    for c in (NAN, INF, -INF, 11, 0):
        found = one(c, a, b, dtype)
        wanted = any(c == r or (np.isnan(c) and np.isnan(r)) for r in right)
        assert found.correct == wanted, (c, found)
        assert found.correct or found.max_error > found.bound
        # alpha of either sign, and the same through the old C.
        turned = one(-2 * c, a, b, dtype, alpha=-2)
        assert turned.correct == wanted, (c, turned)
        whole = one(c, [0], [0], dtype, beta=1, c0=next(iter(right)))
        assert whole.correct == wanted, (c, whole)


@pytest.mark.parametrize("c", [NAN, INF, -INF, 3.0])
def test_infinity_against_infinity_in_the_old_c(c: float) -> None:
    assert one(c, [INF], [1], beta=1, c0=-INF).correct == np.isnan(c)
    assert one(c, [INF], [1], beta=-1, c0=-INF).correct == (c == INF)
    assert one(c, [INF], [1], beta=1, c0=NAN).correct == np.isnan(c)


def test_what_is_not_read_does_not_matter() -> None:
    assert one(2, [1], [2], beta=0, c0=NAN).correct
    assert one(6, [NAN], [INF], alpha=0, beta=2, c0=3).correct
    assert one(0, [NAN], [INF], alpha=0).correct
    assert not one(NAN, [NAN], [INF], alpha=0).correct


@pytest.mark.parametrize("dtype", DTYPES)
def test_overflow(dtype: str) -> None:
    large = float(np.finfo(dtype).max)
    # Terms of one sign: infinity of that sign and nothing else.
    for c, wanted in ((INF, True), (-INF, False), (NAN, False), (1.0, False)):
        assert one(c, [large, large], [1, 1], dtype).correct == wanted, c
        assert one(-c, [large, large], [1, -3], dtype, alpha=-1).correct == (
            wanted or -c in (INF, -INF) or np.isnan(c)
        ), c
    # Terms of both signs: a partial sum may overflow either way, or not at all.
    for c in (INF, -INF, NAN, 0.0):
        assert one(c, [large, large, large, large], [1, 1, -1, -1], dtype).correct, c
    assert not one(large / 2, [large, large, large, large], [1, 1, -1, -1], dtype).correct
    # The sum overflows although alpha would bring it back, and C64 with it.
    for c in (INF, large):
        assert one(c, [large, large], [1, 1], dtype, alpha=0.5).correct, c
    assert not one(large / 2, [large, large], [1, 1], dtype, alpha=0.5).correct
    # Too far from the edge to overflow.
    assert not one(INF, [large / 4], [1], dtype).correct


def test_underflow() -> None:
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    # 0.75 of the smallest subnormal twice: each rounds to a whole one.
    assert one(2 * tiny, [0.75, 0.75], [tiny, tiny]).correct
    assert one(0, [tiny], [tiny]).correct
    assert one(tiny, [tiny], [tiny]).correct
    assert not one(9 * tiny, [tiny, tiny], [1, 1]).correct


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_which_elements_are_wrong(dtype: str, beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those that ``check`` refuses one by one, and one panel finds all of them."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 needs ml_dtypes")
    rng = np.random.default_rng(5)
    kind = dtype_of(dtype)
    a, b, c0 = (rng.standard_normal(shape).astype(kind) for shape in ((9, 7), (7, 8), (9, 8)))
    a[2, 3], b[1, 4] = np.nan, np.inf
    wide = [x.astype(np.float64) for x in (a, b, c0)]
    with np.errstate(all="ignore"):
        c = plain(wide[0], wide[1], wide[2], beta=beta).astype(kind)
        c[:, 1] += kind.type(1)
        c[4, 5], c[5, 4], c[6, 6] = np.nan, 3, np.inf
    each = [
        [
            check(c[i : i + 1, j : j + 1], a[i : i + 1], b[:, j : j + 1],
                  c0[i : i + 1, j : j + 1], beta=beta).correct
            for j in range(8)
        ]
        for i in range(9)
    ]  # fmt: skip
    np.testing.assert_array_equal(wrong_elements(c, a, b, c0, beta=beta), ~np.array(each))
    assert 8 < np.count_nonzero(~np.array(each)) < 16
    monkeypatch.setattr(numbers, "_PANEL", 1)
    monkeypatch.setattr(numbers._Checker, "errors", counted := Mock(wraps=None))
    counted.side_effect = lambda c, *_: (np.ones(c.shape), np.zeros(c.shape))
    assert wrong_elements(np.zeros((64, 64)), np.zeros((64, 64)), np.zeros((64, 64))).all()
    assert counted.call_count == 1


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"c": np.zeros((3, 5), "f4")}, ValueError, r"\(3, 5\).*\(3, 4\)"),
        ({"b": np.zeros((3, 4), "f4")}, ValueError, "do not fit"),
        ({"a": np.zeros(2, "f4")}, ValueError, "do not fit"),
        ({"beta": 1.0}, ValueError, "before the kernel is needed"),
        ({"beta": 1.0, "c0": np.zeros((4, 3), "f4")}, ValueError, r"\(4, 3\)"),
        ({"alpha": NAN}, ValueError, "alpha is nan"),
        ({"beta": 1e39}, ValueError, "beta is 1e\\+39.*float32"),
        ({"alpha": "2"}, TypeError, "alpha is '2'"),
        ({"dtype": "int32"}, TypeError, "float32, float64"),
    ],
)
def test_bad_input(change: dict[str, Any], error: type[Exception], words: str) -> None:
    shapes = {"c": (3, 4), "a": (3, 2), "b": (2, 4)}
    given_arrays: dict[str, Any] = {name: np.zeros(s, "f4") for name, s in shapes.items()}
    with pytest.raises(error, match=words):
        check(**(given_arrays | change))


HALVES = ("float16", "bfloat16")


def half(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 needs ml_dtypes")
    return dtype_of(dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.1, 1.0), (-2.5, 0.3), (0.0, 0.3)])
def test_16_bits_are_sums_of_float32_rounded_once(dtype: str, alpha: float, beta: float) -> None:
    kind, rng = half(dtype), np.random.default_rng(1)
    a, b, c0 = (rng.standard_normal(s).astype(kind) for s in ((9, 40), (40, 7), (9, 7)))
    wide = [x.astype(np.float32) for x in (a, b, c0)]
    right = plain(wide[0], wide[1], wide[2], alpha, beta)
    found = check(right.astype(kind), a, b, c0, alpha, beta)
    assert found.correct
    assert 0 < found.max_error <= found.bound < limits_of(kind).unit * 1.1
    # A step further on is beyond the bound, wherever the element is not small beside its terms.
    i, j = map(int, np.unravel_index(int(np.argmax(np.abs(right))), right.shape))
    off = right.copy()
    off[i, j] *= 1 + 4 * limits_of(kind).unit
    assert not check(off.astype(kind), a, b, c0, alpha, beta).correct
    assert check(off.astype(kind), a, b, c0, alpha, beta).worst == (i, j)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_in_16_bits_is_found(dtype: str) -> None:
    kind = half(dtype)
    a = np.full((1, 3000), 0.125, kind)
    total = kind.type(0)
    for x in a[0]:
        total = kind.type(total + x * x)
    assert not check(np.array([[total]], kind), a, a.T).correct
    assert check(np.array([[3000 / 64]], np.float32).astype(kind), a, a.T).correct


def test_16_bits_overflow_where_the_sum_is_rounded() -> None:
    a, b = np.array([[256.0]], "f2"), np.array([[256.0]], "f2")  # 65,536: beyond 65,504
    assert check(np.array([[INF]], "f2"), a, b).correct
    assert not check(np.array([[-INF]], "f2"), a, b).correct
    assert not check(np.array([[NAN]], "f2"), a, b).correct
    assert not check(np.array([[INF]], "f2"), a / 2, b).correct
    assert check(np.array([[32768]], "f2"), a / 2, b).correct
    least = np.array([[2.0**-24]], "f2")  # its square is nothing in float16
    assert check(np.array([[0]], "f2"), least, least).correct


def test_dtypes_that_are_not_checked() -> None:
    with pytest.raises(TypeError, match="int8 can't be checked; there are float16, bfloat16, flo"):
        check(np.zeros((1, 1), "i1"), np.zeros((1, 1), "i1"), np.zeros((1, 1), "i1"))
