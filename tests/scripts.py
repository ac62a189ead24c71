"""Load the scripts of benchmarks/ for tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def script(name: str, run_name: str = "<run_path>") -> dict[str, Any]:
    """Return the names that a script defines; it imports its siblings as if Python ran it.

    With the ``run_name`` ``"__main__"`` it does what it does when it is run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return runpy.run_path(str(BENCHMARKS / name), run_name=run_name)
