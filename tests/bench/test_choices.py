"""benchmarks/choices.py: what it writes of the ways to compute a product is JSON."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tilewise.gemm.chip import H200

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "choices.py"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_row_is_json(dtype: str) -> None:
    pytest.importorskip("torch", reason="the script needs PyTorch")
    names: dict[str, Any] = runpy.run_path(str(SCRIPT))
    shape = names["Random"](1, 0, 1).shapes()[0]
    every = names["offers"](names["product_of"](shape, dtype), H200)
    chosen = [next(iter(every)), *(x for x in every if x.family == "general")]
    row = names["row_of"](shape, chosen, [1.0] * len(chosen), 2.0)
    assert json.loads(json.dumps(row)) == row
    assert [way["family"] for way in row["ways"]] == [x.family for x in chosen]
