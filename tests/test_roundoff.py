"""What roundings do to a sum, and numbers as they reach a kernel."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilewise.roundoff import gamma, roundings, scalar, unit_roundoff


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operations", [0, 1, 2, 100, 4097])
def test_gamma_is_between_nu_and_highams_bound(dtype: str, operations: int) -> None:
    u = Fraction(unit_roundoff(dtype))
    exact = (1 + u) ** operations - 1
    assert gamma(operations, dtype) == pytest.approx(float(exact), rel=1e-12)
    assert operations * u <= exact <= operations * u / (1 - operations * u)


def test_gamma_past_nu_of_one_still_grows() -> None:
    assert 1.7 < gamma(2**24, "float32") < gamma(2**25, "float32") < 7


def test_gamma_of_negative_operations() -> None:
    with pytest.raises(ValueError, match="-1"):
        gamma(-1, "float32")


def test_roundings() -> None:
    assert roundings(10, 1.0, 0.0) == 10
    assert roundings(10, -1.0, 0.0) == 10
    assert roundings(10, 0.5, 0.0) == 11
    assert roundings(10, 0.5, 3.0) == 12
    assert roundings(0, 1.0, 3.0) == 2
    assert roundings(10, 0.0, 1.0) == 1
    assert roundings(10, 0.0, 0.0) == 0


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (10**400, ValueError, "alpha is an integer of 1,329 bits; it must be finite as float32"),
        (-(10**5000), ValueError, "alpha is an integer of 16,610 bits"),
        (10**39, ValueError, "alpha is an integer of 130 bits"),
        (1e39, ValueError, "alpha is 1e.39; it must be finite as float32"),
        (np.complex64(1j), TypeError, "must be a number"),
        (1j, TypeError, "must be a number"),
        (True, TypeError, "must be a number"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_scalar_that_no_kernel_takes(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        scalar(value, "float32", "alpha")
