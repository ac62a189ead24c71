"""Load the scripts of benchmarks/ for tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def script(name: str) -> dict[str, Any]:
    """Return the names that a script defines; it imports its siblings as if Python ran it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return runpy.run_path(str(BENCHMARKS / name))
