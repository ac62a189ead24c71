"""benchmarks/choices.py: what it writes of the ways to compute a product is JSON."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from scripts import script

from tilewise.gemm.chip import H200


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the script defines."""
    pytest.importorskip("torch", reason="the script needs PyTorch")
    return script("choices.py")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_row_is_json(names: dict[str, Any], dtype: str) -> None:
    shape = names["Random"](1, 0, 1).shapes()[0]
    every = names["offers"](names["product_of"](shape, dtype), H200)
    chosen = [next(iter(every)), *(x for x in every if x.family == "general")]
    row = names["row_of"](shape, chosen, [1.0] * len(chosen), 2.0)
    assert json.loads(json.dumps(row)) == row
    assert [way["family"] for way in row["ways"]] == [x.family for x in chosen]


def test_ways_of_one_family(names: dict[str, Any]) -> None:
    """However slow they are; and products of the depths that are asked for."""
    shapes = names["shapes_of"](names["Random"](5, 1, 1), [16, 256])
    assert [shape.k for shape in shapes] == [16, 256, 16, 256, 16]
    assert len({(shape.m, shape.n) for shape in shapes}) == 5
    assert names["shapes_of"](names["Random"](5, 1, 1), []) == list(
        names["Random"](5, 1, 1).shapes()
    )
    for dtype in ("bfloat16", "float64"):
        drawn = random.Random(1)
        for shape in shapes:
            (way,) = names["ways_of"](shape, dtype, H200, drawn, "general")
            assert way.family == "general"
            every = names["ways_of"](shape, dtype, H200, drawn)
            assert every[0].rank <= way.rank
    with pytest.raises(ValueError, match="the hopper family has no way to compute"):
        names["ways_of"](shapes[0], "float32", H200, random.Random(1), "hopper")


def test_ways_are_timed_again() -> None:
    """By benchmarks/measure_simt.py, which finds the ways of the record among the planner's."""
    pytest.importorskip("torch", reason="the script needs PyTorch")
    names = script("measure_simt.py")
    record = json.loads(names["RECORD"].read_text(encoding="utf-8"))
    for dtype in ("float32", "float64"):
        for row in record[dtype]["rows"][::20]:
            product = names["product_of"](names["shape_of"](row[1]), dtype)
            ways = names["ways_of"](row, record[dtype]["tiles"], names["all_in_one"](product, H200))
            asked = [way.rpartition(" ")[0] for way in row[5].split("; ")]
            assert ways
            assert set(ways) <= set(asked)
            times = {words: float(3 + i) for i, words in enumerate(ways)}
            measured = {"torch": 7.0, "ways": [{"us": time} for time in times.values()]}
            again = names["again"](row, ways, measured)
            assert again[:5] == [*row[:2], 7.0, 3.0, 3.0]
            assert again[5] == "; ".join(f"{words} {time:.5g}" for words, time in times.items())
