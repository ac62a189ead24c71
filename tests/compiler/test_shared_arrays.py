"""Extents of shared arrays, as sources declare them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from reference import thorough

from tilewise.compiler.shared_arrays import element_size, extents
from tilewise.ladder.rungs import RUNGS, Rung
from tilewise.places import ITEM_SIZES

MACROS = """
#ifndef EDGE
#define EDGE 8  // by default
#define HALF (EDGE / 2)
#endif
#ifdef WIDE
#define PAD 4
#else
#define PAD 1
#endif
#define WIDTH (16 / (int)sizeof(real))
#define TWICE(x) (2 * (x))
"""


@pytest.mark.parametrize(
    ("declared", "defines", "expected"),
    [
        ("__shared__ float s[4];", {}, (4,)),
        ("__shared__ float s[2][3 * 4][EDGE + PAD];", {}, (2, 12, 9)),
        ("__shared__ float s[2][3 * 4][EDGE + PAD];", {"WIDE": True}, (2, 12, 12)),
        ("__shared__ float s[EDGE][HALF];", {}, (8, 4)),
        ("__shared__ float s[EDGE];", {"EDGE": 20}, (20,)),
        ("__shared__ float other[2], s[EDGE][EDGE] ;", {}, (8, 8)),
        ("__shared__ __align__(16) real s[EDGE + WIDTH];", {"real": "float"}, (12,)),
        ("__shared__ __align__(16) real s[EDGE + WIDTH];", {"real": "double"}, (10,)),
        ("__shared__ float s[EDGE /* of a tile */][4]; // s[9][9];", {}, (8, 4)),
        ("__shared__ float s[N];", {}, ()),
        ("__shared__ float s[TWICE(4)];", {}, ()),
        ("__shared__ float s[4 - 4];", {}, ()),
        ("__shared__ float s[4 / 0];", {}, ()),
        ("extern __shared__ float s[];", {}, ()),
        ("float s[4];", {}, ()),
        ("__shared__ float ss[4];", {}, ()),
        ("__shared__ float s[LOOP];", {"LOOP": "LOOP"}, ()),
    ],
)
def test_extents(declared: str, defines: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert extents(MACROS + declared, "s", defines) == expected


@pytest.mark.parametrize(
    ("each", "tile", "dtype"),
    [
        pytest.param(
            each,
            tile,
            dtype,
            id=f"{each.name}-{tile}-{dtype}",
            # Two tiles of each rung tell whether an extent follows the tile.
            marks=[thorough]
            * (dtype != each.dtypes[0] or tile not in (each.tiles[0], each.tiles[-1])),
        )
        for each in RUNGS[4:]
        for tile in each.tiles
        for dtype in each.dtypes
    ],
)
def test_of_every_rung_they_are_all_of_its_shared_memory(each: Rung, tile: int, dtype: str) -> None:
    kernel = each.kernel(dtype, tile)
    shapes = [extents(kernel.source, name, kernel.defines) for name in ("sa", "sb")]
    if () in shapes:
        assert not re.search(r"__shared__ (?:__align__\(\d+\) )?(?:real|half_t) sa", kernel.source)
        return
    size = ITEM_SIZES[dtype]
    count = sum(math.prod(shape) for shape in shapes)
    assert count * size == kernel.compile().resources.shared_bytes


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("float s[4]", 4), ("double s[2][16]", 8), ("unsigned long long s[4]", 8),
        ("alignas(16) const float4 s[4]", 16), ("half s[8]", 2), ("Pair s[4]", 4),
    ],
)  # fmt: skip
def test_the_size_of_an_element(declared: str, size: int) -> None:
    assert element_size(f"__shared__ {declared};", "s") == size
