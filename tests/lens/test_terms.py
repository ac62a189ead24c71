"""Where the numbers that a step works on come from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from player import of_rung, recorded
from reference import thorough

from tilewise.kernel import Kernel

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def value(steps: list[dict[str, Any]], term: Any, thread: int) -> float:
    """A term's, of a thread."""
    if not isinstance(term, list):
        return float(term)
    step, element = term
    place = 0
    for first, count in steps[step]["threads"]:
        if first <= thread < first + count:
            found = steps[step]["values"][place + thread - first]
            return float(found[element] if isinstance(found, list) else found)
        place += count
    raise AssertionError(f"thread {thread} has nothing of step {step}")


@pytest.mark.parametrize(
    "name",
    [
        "naive", "tiled", pytest.param("warp_tile", marks=thorough),
        pytest.param("thread_tile_2d", marks=thorough), pytest.param("tuned", marks=thorough),
        pytest.param("double_buffered", marks=thorough),
    ],
)  # fmt: skip
def test_a_sum_is_made_of_its_terms(name: str) -> None:
    """Each thread's a, b and sum give its result, as far as six digits tell."""
    trace = of_rung(name)
    steps = trace["blocks"][0]["steps"]
    seen = 0
    for step in steps:
        if step["kind"] != "compute" or not trace["instructions"][step["i"]]["text"].startswith(
            "fma"
        ):
            continue
        terms = step["terms"]
        assert all(term is not None for term in terms)
        threads = [t for first, count in step["threads"] for t in range(first, first + count)]
        for thread, result in list(zip(threads, step["values"], strict=True))[
            :: len(threads) // 5 or 1
        ]:
            a, b, before = (value(steps, term, thread) for term in terms)
            # Six digits are kept of each number: half a unit of the sixth.
            written = 5e-6 * (2 * abs(a * b) + abs(before) + abs(result))
            rounding = UNIT["float32"] * (abs(a * b) + abs(before)) * 2
            assert abs(a * b + before - result) <= written + rounding
            seen += 1
    assert seen > 20


def test_the_factors_lie_where_the_product_says() -> None:
    """Of C[row][column], the i-th factors are A[row][i] and B[i][column]."""
    trace = recorded("naive", 5, None)
    steps = trace["blocks"][0]["steps"]
    adds = [
        step for step in steps
        if step["kind"] == "compute" and len(step.get("terms", ())) == 3
        and all(isinstance(term, list) for term in step["terms"][:2])
    ]  # fmt: skip
    assert len(adds) == 5
    stored = next(step for step in steps if step["kind"] == "store")
    for i, step in enumerate(adds):
        (one, _), (other, _) = step["terms"][:2]
        places = {steps[number]["array"]: steps[number]["at"] for number in (one, other)}
        rows, columns = np.divmod(np.array(stored["at"]), 5)
        assert places["a"] == (5 * rows + i).tolist()
        assert places["b"] == (5 * i + columns).tolist()


def test_what_is_stored_to_shared_memory_was_loaded() -> None:
    steps = recorded("tiled", 8, 4)["blocks"][0]["steps"]
    stores = [s for s in steps if (s["kind"], s.get("space")) == ("store", "shared")]
    assert len(stores) == 4
    for step in stores:
        ((number, element),) = step["terms"]
        assert (steps[number]["kind"], steps[number]["space"], element) == ("load", "global", 0)
        assert steps[number]["values"] == step["values"]


BRANCHES = """
extern "C" __global__ void branches(const float* a, const float* b, float* c) {
    __shared__ float s[32];
    int t = threadIdx.x;
    float x;
    if (t % 2) asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(a + t));
    else asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(b + t));
    float y;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(y), "=f"(s[t]) : "l"(a + 2 * t));
    asm volatile("fma.rn.f32 %0, %1, 0f3FC00000, %2;" : "=f"(x) : "f"(x), "f"(y));
    c[t] = x + s[t];
}
"""


def test_a_term_that_threads_have_from_two_places_is_not_told() -> None:
    a = np.arange(64, dtype=np.float32)
    trace = Kernel(BRANCHES, "branches").watch(1, 32, (a, a + 1, np.zeros_like(a))).trace.to_dict()
    steps = trace["blocks"][0]["steps"]
    (step,) = (
        s for s in steps
        if s["kind"] == "compute" and trace["instructions"][s["i"]]["text"].startswith("fma")
    )  # fmt: skip
    unknown, constant, (number, element) = step["terms"]
    assert unknown is None
    assert math.isclose(constant, 1.5)
    assert (steps[number]["width"], element) == (8, 0)
    assert step["values"][3] == 3 * 1.5 + 6
    (stored,) = (s for s in steps if (s["kind"], s.get("space")) == ("store", "shared"))
    assert stored["terms"] == [[number, 1]]
