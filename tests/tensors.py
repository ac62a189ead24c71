"""Provide PyTorch and ``tilewise.torch`` to tests, which are skipped without PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def torch() -> Iterator[Any]:
    """Yield PyTorch with the same random numbers in each test; its compiler is reset afterwards."""
    found = pytest.importorskip("torch", reason="torch is not installed")
    found.manual_seed(0)
    yield found
    if "torch._dynamo" in sys.modules:
        found.compiler.reset()


@pytest.fixture
def tw(torch: Any) -> Any:
    """Return ``tilewise.torch``, whose import needs PyTorch."""
    import tilewise.torch

    return tilewise.torch
