"""Whether an epilogue's results are right: by the bounds of their roundings, and no wider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise import notebook


def biased(acc: Any, bias: Any) -> Any:
    return tilewise.gelu(acc + bias)


def both(acc: Any, bias: Any) -> Any:
    return tilewise.silu(acc + bias), acc + bias


@given(
    m=st.integers(1, 9), n=st.integers(1, 9), k=st.integers(1, 40), seed=st.integers(0, 99),
    dtype=st.sampled_from(["float32", "float64"]), function=st.sampled_from([biased, both]),
)  # fmt: skip
def test_what_matmul_gives_is_within(
    m: int, n: int, k: int, seed: int, dtype: str, function: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    bias = rng.standard_normal(n).astype(dtype)
    got = tilewise.matmul(a, b, epilogue=function, bias=bias)
    assert notebook.within(got, a, b, function, bias=bias)
    # A sum that is off by a thousandth of what was added up is no rounding.
    first = got[0] if isinstance(got, tuple) else got
    first[m // 2, n // 2] += 1e-3 * (np.abs(a) @ np.abs(b)).max() + 1e-3
    assert not notebook.within(got, a, b, function, bias=bias)


def test_another_number_of_results_and_another_shape_are_wrong() -> None:
    a, b, bias = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.zeros(4, np.float32)
    one = tilewise.matmul(a, b, epilogue=biased, bias=bias)
    assert not notebook.within((one,), a, b, biased, bias=bias)
    assert not notebook.within((one, one), a, b, biased, bias=bias)
    assert not notebook.within(one, a, b, both, bias=bias)
    assert not notebook.within(one[:1], a, b, biased, bias=bias)
    assert not notebook.within(np.full_like(one, np.nan), a, b, biased, bias=bias)


def test_operands_are_those_of_the_function() -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(TypeError, match="the function takes bias, and is given none"):
        notebook.within(a, a, a, biased)
    with pytest.raises(TypeError, match="the function takes bias, and is given bias, up"):
        notebook.within(a, a, a, biased, bias=a, up=a)
