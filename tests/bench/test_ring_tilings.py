"""The tilings of ``multistage`` that are timed on a GPU: each is right, and spills nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from reference import thorough

from tilewise.devices.emulator import Emulator
from tilewise.ladder.geometry import by_tiles, ring_bytes
from tilewise.ladder.problem import random_problem
from tilewise.ladder.rungs import rung
from tilewise.numbers import check

pytest.importorskip("torch", reason="torch is not installed")
from scripts import script

SCRIPT = script("tensor_core_rungs.py")


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(x, id="-".join(map(str, x)), marks=[thorough] * bool(place % 16))
        for place, x in enumerate(SCRIPT["SWEEP"])
    ],
)
def test_every_tiling(values: tuple[int, ...], emulator: Emulator) -> None:
    macros: dict[str, Any] = dict(zip(SCRIPT["FIELDS"], (*values, 8), strict=False))
    kernel = rung("multistage").kernel("float16").with_macros(macros)
    used = kernel.compile().resources
    assert used.spill_bytes == 0
    m, n, k = 300, 328, 136
    a, b, c = random_problem(m, n, k, "float16")
    grid, block = by_tiles(lambda tile, dtype: macros)(m, n, 1, "float16")
    before = c.copy()
    kernel.launch(
        grid, block, (m, n, k, 0.5, a, k, b, n, 2.0, c, n), ring_bytes(macros), emulator, "strict"
    )
    assert check(c, a, b, before, 0.5, 2.0).correct
    # So many blocks as it asks for fit a multiprocessor of an H200.
    assert macros["BLOCKS"] * (ring_bytes(macros) + 1024) <= 228 * 1024
    assert macros["BLOCKS"] * math.prod(block) * used.registers <= 65536
    assert np.isfinite(c.astype(np.float32)).all()
