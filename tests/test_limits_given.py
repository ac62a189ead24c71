"""Limits themselves: which there can be."""

from __future__ import annotations

import math

import pytest

from tilewise.kernel import Kernel
from tilewise.limits import MOST, Limits


@pytest.mark.parametrize("value", [3e6, 10**400, math.inf, 1_000_001])
def test_seconds_that_no_system_can_wait(value: float) -> None:
    with pytest.raises(ValueError, match=r"^seconds is .*; it must be at most 1,000,000, or None"):
        Limits(seconds=value)


@pytest.mark.parametrize("name", ["instructions", "memory", "output"])
def test_numbers_that_no_system_can_count(name: str) -> None:
    for value in (1 << 63, 10**400):
        with pytest.raises(ValueError, match=rf"^{name} is .*; it must be at most .*None"):
            Limits(**{name: value})


def test_numbers_that_are_none() -> None:
    for value in (0, -1, math.nan, -math.inf):
        with pytest.raises(ValueError, match=r"seconds is .*; it must be above 0"):
            Limits(seconds=value)


def test_the_highest_limits_compile_and_launch() -> None:
    limits = Limits(**MOST)  # type: ignore[arg-type]
    kernel = Kernel('extern "C" __global__ void k() { } // the highest limits', "k", limits=limits)
    kernel.compile()
    for is_isolated in (False, True):
        kernel.launch(1, 1, (), device="emulator", isolated=is_isolated)
