"""Environment variables for on and off: one rule for all, and an error for any other value."""

from __future__ import annotations

import numpy as np
import pytest

import tilewise
from tilewise import environment, tracebacks
from tilewise.arrays import invariance
from tilewise.compiler import ahead
from tilewise.errors import LaunchError
from tilewise.explanation import of_shape
from tilewise.gemm import beside
from tilewise.gemm.chip import H200

WRONG = "is 'maybe'; it takes 1, true, yes, on for on, and 0, false, no, off for off"
VALUES = [
    *((each, True) for each in ("1", "true", "True", "YES", " on ")),
    *((each, False) for each in ("0", "false", "FALSE", "no", "Off")),
    *((each, None) for each in ("", " ")),  # as if it were not set
]


@pytest.mark.parametrize(("given", "means"), VALUES)
def test_values(given: str, means: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_ODD", given)
    for default in (False, True):
        expected = default if means is None else means
        assert environment.is_on("TILEWISE_ODD", default=default) is expected


def test_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWISE_ODD", raising=False)
    assert environment.is_on("TILEWISE_ODD", default=True)
    assert not environment.is_on("TILEWISE_ODD", default=False)


@pytest.mark.parametrize("given", ["maybe", "2", "truee"])
def test_another_value_is_told(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_ODD", given)
    with pytest.raises(ValueError, match=f"variable TILEWISE_ODD is '{given}'; it takes 1, true"):
        environment.is_on("TILEWISE_ODD", default=False)


@pytest.mark.parametrize(("given", "means"), [("false", False), ("true", True)])
def test_invariant_products(given: str, means: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariance.Default, "is_on", None)  # as before the first product
    monkeypatch.setenv(invariance.VARIABLE, given)
    assert invariance.is_invariant(None) is means
    assert invariance.Default.is_on is means  # a product repeated later reads it there


def test_a_wrong_value_for_invariant_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariance.Default, "is_on", None)
    monkeypatch.setenv(invariance.VARIABLE, "maybe")
    x = np.ones((2, 2), np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match=WRONG):
            tilewise.matmul(x, x)
    assert tilewise.matmul(x, x, invariant=False)[0, 0] == 2  # the call says


def test_compiling_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    product = of_shape(96, 96, 96, "float32", "NN")
    monkeypatch.setenv(beside.VARIABLE, "False")
    assert not beside.expect(product, (), H200, "sm_90a")
    monkeypatch.setenv(beside.VARIABLE, "maybe")
    with pytest.raises(ValueError, match=WRONG):
        beside.expect(product, (), H200, "sm_90a")


def test_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    @tracebacks.front_door
    def fails() -> None:
        raise LaunchError("this failed")

    def frames(value: str) -> tuple[int, LaunchError]:
        monkeypatch.setenv(tracebacks.VARIABLE, value)
        with pytest.raises(LaunchError, match="this failed") as caught:
            fails()
        return len(caught.traceback), caught.value

    hidden, whole = frames("off")[0], frames("on")[0]
    assert hidden < whole
    shown, error = frames("maybe")
    assert shown == whole
    assert error.__notes__ == [f"the environment variable {tracebacks.VARIABLE} {WRONG}"]
