"""Without Triton and Numba, an error names the command that installs them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import tilewise.numba
import tilewise.triton


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package of these is installed."""
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> Any:
        return None if name.startswith(("triton", "numba")) else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)


@pytest.mark.usefixtures("nothing")
def test_triton() -> None:
    with pytest.raises(
        ImportError, match=r"triton is not installed: pip install tilewise\[triton\]"
    ):
        tilewise.triton.launch(None, 1, device="emulator")


@pytest.mark.usefixtures("nothing")
def test_numba() -> None:
    with pytest.raises(ImportError, match=r"numba is not installed: pip install tilewise\[numba\]"):
        tilewise.numba.launch(None, device="emulator")
