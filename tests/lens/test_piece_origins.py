"""Where pieces of shared memory come from: what is told, and what is not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from player import of_rung, recorded

from tilewise.kernel import Kernel

BYTES = 2  # of an element


def pieces(trace: dict[str, Any], number: int) -> dict[int, tuple[str, int]]:
    """Of each 16 bytes of shared memory, after a step: the array and the element of the first."""
    found: dict[int, tuple[str, int]] = {}
    for step in trace["blocks"][0]["steps"][: number + 1]:
        if step["kind"] == "copy" and not step["copy"]["store"]:
            copy = step["copy"]
            for i, apart in enumerate(trace["patterns"][copy["pattern"]]):
                if apart is not None:
                    found[copy["at"] + 16 * i] = copy["array"], copy["from"] + apart
        for name, pattern, first in step.get("origin", ()):
            for at, apart in zip(step["at"], trace["patterns"][pattern], strict=True):
                if apart is not None:
                    found[at] = name, first + apart
    return found


def place(row: int, column: int, length: int) -> int:
    """As the rungs have it: which of a row's 16-byte pieces lies where changes from row to row."""
    each, many = 8, length // 8
    share = max(8 // many, 1)
    return row * length + (column // each ^ row // share % (8 // share)) * each + column % each


@pytest.mark.parametrize("name", ["ldmatrix", "multistage"])
def test_a_swizzle(name: str) -> None:
    """Of the first phase: by loads and stores, and by copies."""
    trace = of_rung(name)
    steps = trace["blocks"][0]["steps"]
    first = next(i for i, step in enumerate(steps) if "layout" in step)
    found = pieces(trace, first)
    rows, columns = {"ldmatrix": (32, 32), "multistage": (64, 64)}[name]
    arrays = {each["name"]: each for each in trace["arrays"]}
    begin = {each["name"]: each["offset"] for each in trace["shared"]}
    of_a, of_b = (begin["sa"], begin["sb"]) if name == "ldmatrix" else (0, rows * 32 * BYTES)
    for down, across, length, at, array in (
        (rows, 32, 32, of_a, "a"), (32, columns, columns, of_b, "b")
    ):  # fmt: skip
        for row in range(down):
            for column in range(0, across, 8):
                where = at + place(row, column, length) * BYTES
                assert found[where] == (array, row * arrays[array]["leading"] + column)


def test_a_swizzled_box() -> None:
    """Of a tensor copy: piece i of row r is in the place of piece i ^ r % 8."""
    trace = of_rung("warpgroup")
    steps = trace["blocks"][0]["steps"]
    number, copy = next((i, s["copy"]) for i, s in enumerate(steps) if s["kind"] == "copy")
    found = pieces(trace, number)
    (a, *_) = trace["arrays"]
    assert copy["bytes"] == 128 * 128
    for row in range(128):
        for piece in range(8):
            at = copy["at"] + row * 128 + (piece ^ row % 8) * 16
            assert found[at] == ("a", row * a["leading"] + piece * 8)


STORED = """
extern "C" __global__ void stored(const uint4* x, const uint4* y, uint4* to) {
    __shared__ uint4 tile[2][32];
    int t = threadIdx.x;
    uint4 of_x = x[t], of_y = y[t];
    tile[0][t] = of_x;
    of_y.x += t & 1;
    tile[1][t] = of_y;
    __syncthreads();
    to[t] = tile[0][31 - t];
    to[32 + t] = tile[1][31 - t];
}"""


def test_what_is_changed_on_its_way_is_not_known() -> None:
    x, y = np.arange(128, dtype=np.uint32), np.arange(128, 256, dtype=np.uint32)
    found = Kernel(STORED, "stored").watch(1, 32, (x, y, np.zeros(256, np.uint32)))
    trace = found.trace.to_dict()
    known = pieces(trace, len(trace["blocks"][0]["steps"]) - 1)
    assert known == {
        **{16 * t: ("x", 4 * t) for t in range(32)},
        **{512 + 16 * t: ("y", 4 * t) for t in range(0, 32, 2)},
    }


def test_what_could_be_either_is_not_known() -> None:
    ones = np.ones(128, np.uint32)
    found = Kernel(STORED, "stored").watch(1, 32, (ones, ones.copy(), np.zeros(256, np.uint32)))
    trace = found.trace.to_dict()
    assert pieces(trace, len(trace["blocks"][0]["steps"]) - 1) == {}


def test_kernels_of_single_words_tell_nothing_of_pieces() -> None:
    trace = recorded("tiled", 8, 4)
    assert trace["patterns"] == trace["layouts"] == []
    assert not any("origin" in step for step in trace["blocks"][0]["steps"])
