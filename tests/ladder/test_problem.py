"""What is asked: arrays taken where they lie, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewise.ladder.problem import LARGEST, Gemm, leading_dimension, random_problem

Array = npt.NDArray[Any]


def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


def test_plain_arrays() -> None:
    a, b, c = zeros(3, 4), zeros(4, 5), zeros(3, 5)
    gemm = Gemm.of(a, b, c, alpha=2, beta=0.1)
    assert (gemm.m, gemm.n, gemm.k) == (3, 5, 4)
    assert (gemm.lda, gemm.ldb, gemm.ldc) == (4, 5, 5)
    assert gemm.a is a
    assert gemm.b is b
    assert gemm.c is c
    assert gemm.alpha == 2
    assert gemm.beta == float(np.float32(0.1)) != 0.1
    assert gemm.dtype == np.float32


def test_views_keep_their_pitch() -> None:
    wide = np.zeros((7, 30), "float64")
    gemm = Gemm.of(wide[:3, 1:5], wide[:4, 10:15], wide[::2, 20:25][:3], beta=1)
    assert (gemm.lda, gemm.ldb, gemm.ldc) == (30, 30, 60)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)])
def test_empty(m: int, n: int, k: int) -> None:
    gemm = Gemm.of(zeros(m, k), zeros(k, n))
    assert (gemm.m, gemm.n, gemm.k) == (m, n, k)
    assert (gemm.lda, gemm.ldb, gemm.ldc) == (max(k, 1), max(n, 1), max(n, 1))


def test_strides_that_mean_nothing() -> None:
    assert leading_dimension(np.zeros((5, 3), "f4")[::-1][:1], "A") == 3  # one row
    assert leading_dimension(np.zeros((4, 6), "f4")[:, ::-1][:, :1], "A") == 6  # one column
    assert leading_dimension(np.broadcast_to(np.float32(1), (1, 1)), "A") == 1


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (zeros(4, 5).T, "20 bytes apart, not 4"),
        (zeros(4, 10)[:, ::2], "8 bytes apart, not 4"),
        (zeros(4, 5)[:, ::-1], "-4 bytes apart"),
        (zeros(4, 5)[::-1], "leading dimension is -5; it must be at least the width, 5"),
        (np.broadcast_to(zeros(1, 5), (4, 5)), "leading dimension is 0"),
        (np.lib.stride_tricks.as_strided(zeros(20), (4, 5), (12, 4)), "leading dimension is 3"),
        (
            np.lib.stride_tricks.as_strided(zeros(50), (4, 5), (22, 4)),
            "22 bytes apart, no multiple",
        ),
        (np.zeros(81, "u1")[1:].view("f4").reshape(4, 5), "multiple of 4 bytes"),
    ],
)
def test_layouts_that_are_refused(x: Array, words: str) -> None:
    with pytest.raises(ValueError, match=f"^A.*{words}.*ascontiguousarray"):
        Gemm.of(x, zeros(x.shape[1], 2))
    dense = np.ascontiguousarray(x) if x.flags.aligned else x.copy()
    assert Gemm.of(dense, zeros(x.shape[1], 2)).lda == x.shape[1]


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "words"),
    [
        ((zeros(3, 4), zeros(5, 6)), {}, ValueError, "A is 3 x 4 and B is 5 x 6.*4 is not 5"),
        ((zeros(3, 4), zeros(4, 6), zeros(6, 3)), {}, ValueError, "C is 6 x 3.*must be 3 x 6"),
        ((zeros(3, 4), zeros(4, 6)), {"beta": 2}, ValueError, "beta is 2.*no C"),
        ((zeros(3), zeros(4, 6)), {}, ValueError, r"A has the shape \(3,\); a matrix has 2"),
        ((zeros(3, 4), zeros(1, 4, 6)), {}, ValueError, "a matrix has 2 dimensions"),
        (([[1.0]], zeros(1, 1)), {}, TypeError, "A is list"),
        ((zeros(3, 4, dtype="i4"), zeros(4, 6)), {}, TypeError, "A: dtype int32.*float32, float64"),
        ((zeros(3, 4, dtype="f2"), zeros(4, 6)), {}, TypeError, "B is float32 and A is float16"),
        ((zeros(3, 4, dtype="g"), zeros(4, 6)), {}, TypeError, "longdouble is not|float128 is not"),
        ((zeros(3, 4), zeros(4, 6, dtype="f8")), {}, TypeError, "B is float64 and A is float32"),
        ((zeros(3, 4, dtype=">f4"), zeros(4, 6)), {}, TypeError, "A has the other byte order"),
        ((zeros(3, 4), zeros(4, 6)), {"alpha": np.inf}, ValueError, "alpha is inf"),
        ((zeros(3, 4), zeros(4, 6)), {"alpha": 1e300}, ValueError, "alpha is 1e\\+300.*float32"),
        ((zeros(3, 4), zeros(4, 6)), {"alpha": None}, TypeError, "alpha is None"),
        ((zeros(3, 4), zeros(4, 6)), {"alpha": 10**400}, ValueError, "integer of 1,329 bits"),
        ((np.ma.ones((3, 4), "f4"), zeros(4, 6)), {}, TypeError, "A is a masked array"),
        ((zeros(3, 4), np.ma.ones((4, 6), "f4")), {}, TypeError, "B is a masked array"),
    ],
)
def test_bad_input(
    args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Gemm.of(*args, **kwargs)


def test_sizes_beyond_an_int() -> None:
    no_elements = np.zeros((LARGEST + 1, 0), "f4")
    with pytest.raises(ValueError, match=f"A has shape .*at most {LARGEST:,}"):
        Gemm.of(no_elements, zeros(0, 3))
    far = np.lib.stride_tricks.as_strided(zeros(4), (2, 2), (4 * (LARGEST + 1), 4))
    with pytest.raises(
        ValueError, match=f"leading dimension is {LARGEST + 1:,}; at most {LARGEST:,}"
    ):
        Gemm.of(far, zeros(2, 3))


def test_random_problem() -> None:
    a, b, c = random_problem(3, 5, 4, seed=7)
    assert [x.shape for x in (a, b, c)] == [(3, 4), (4, 5), (3, 5)]
    assert {x.dtype.name for x in (a, b, c)} == {"float32"}
    for x, y in zip((a, b, c), random_problem(3, 5, 4, "float64", seed=7), strict=True):
        np.testing.assert_array_equal(x, y.astype("float32"))
    assert not np.array_equal(a, random_problem(3, 5, 4, seed=8)[0])
    big = random_problem(300, 10, 300)[0]
    assert abs(big.mean()) < 0.02
    assert abs(big.std() - 1) < 0.02


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ((-1, 2, 3), ValueError, "m is -1"),
        ((1, 2, 3, "float32", -4), ValueError, "seed is -4"),
        ((1, 2, LARGEST + 1), ValueError, f"k is {LARGEST + 1:,}; at most"),
        ((1, 2.5, 3), TypeError, "n is 2.5"),
        ((1, 2, 3, "int8"), TypeError, "int8.*float32, float64"),
    ],
)
def test_random_problem_refuses(args: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        random_problem(*args)
