"""The scripts of benchmarks/, as tests use them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def script(name: str) -> dict[str, Any]:
    """Return what a script defines, which finds its siblings as when Python runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return runpy.run_path(str(BENCHMARKS / name))
