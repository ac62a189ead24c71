"""What errors say, and what limits take."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tilewise.errors import LimitError, RaceError, TilewiseError
from tilewise.launch import Finding
from tilewise.limits import Limits


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("seconds", 0, ValueError),
        ("seconds", float("nan"), ValueError),
        ("seconds", "1", TypeError),
        ("seconds", float("inf"), ValueError),
        ("memory", 1.5, TypeError),
        ("output", -1, ValueError),
        ("instructions", True, TypeError),
    ],
)
def test_limits_are_numbers_above_zero(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        Limits(**{name: value})
    assert getattr(Limits(**{name: None}), name) is None


def test_what_an_error_says() -> None:
    for limit, value, said in (
        ("seconds", 1.5, "1.5 seconds"), ("memory", 4 << 30, "4 GiB of memory"),
        ("memory", 100 << 20, "100 MiB of memory"), ("output", 5000, "5,000 bytes of output"),
        ("instructions", 10**6, "1,000,000 instructions"), ("memory", 10, "10 bytes of memory"),
        ("seconds", 1, "1 second"), ("seconds", 1.0, "1 second"), ("output", 1, "1 byte of output"),
        ("instructions", 1, "1 instruction"),
    ):  # fmt: skip
        error = LimitError(limit, value, "the launch was stopped", "k.cu", 7)
        assert str(error) == f"k.cu:7: the launch was stopped: limit of {said}"


def test_errors_survive_pickling() -> None:
    findings = (Finding("race", "here", "k.cu", 3, (0, 0, 0), (1, 0, 0)),)
    errors: list[TilewiseError] = [
        LimitError("seconds", 2, "stopped", "k.cu", 3),
        RaceError(findings),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
