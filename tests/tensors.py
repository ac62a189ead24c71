"""What tests of ``tilewise.torch`` share; where PyTorch is not installed, they are skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def torch() -> Iterator[Any]:
    """PyTorch, with random numbers that are the same in each test, and no graphs left behind."""
    found = pytest.importorskip("torch", reason="torch is not installed")
    found.manual_seed(0)
    yield found
    if "torch._dynamo" in sys.modules:
        found.compiler.reset()


@pytest.fixture
def tw(torch: Any) -> Any:
    """``tilewise.torch``, which needs PyTorch to be imported."""
    import tilewise.torch

    return tilewise.torch
