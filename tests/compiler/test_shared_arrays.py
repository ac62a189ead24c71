"""Extents of shared arrays, as sources declare them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from reference import thorough

from tilewise.compiler.shared_arrays import element_size, extents, shape_of
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


CONDITION = """
#if WIDE
#define ROWS {0}
#define COLUMNS {1}
#else
#define ROWS {2}
#define COLUMNS {3}
#endif
__shared__ float s[ROWS][COLUMNS];
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__shared__ float s[4][8];", (4, (4, 8))),
        ("__shared__ float s[4][8]; extern __shared__ float s[];", (4, (4, 8))),
        ("__shared__ double other[8], s[2][8];", (8, (2, 8))),
        ("__shared__ alignas(16) real s[2][8];", (8, (2, 8))),
        ("__shared__ float s[4][8]; __shared__ double s[4][8];", (4, (4, 8))),
        ("__shared__ float s[4][8]; __shared__ float s[8][4];", None),
        ("__shared__ float s[4][8]; __shared__ float s[32];", None),
        # One of these may be the array, too, and then its elements have other indices.
        ("__shared__ float s[4][8]; __shared__ float s[2 * N][N];", None),
        ("__shared__ float s[4][8]; __shared__ Tile s;", None),
        ("__shared__ float s[4][8]; __shared__ Row s[8];", None),
        ("__shared__ float s[4][8]; __shared__ float s, t;", (4, (4, 8))),
        # Which side of a condition counts is not known, but the size may tell.
        (CONDITION.format(8, 4, 4, 8), None),
        (CONDITION.format(16, 8, 4, 8), (4, (4, 8))),
        (CONDITION.format(4, 8, 16, 8), (4, (4, 8))),
        ("#define R 4\n__shared__ float s[R][8];\n#undef R\n#define R 8\n", (4, (4, 8))),
        ("#define R 4\n__shared__ float s[R][32 / R];\n#undef R\n#define R 8\n", None),
        ("".join(f"#define M{i} 0\n#define M{i} 1\n" for i in range(9))
         + "__shared__ float s[4][8];", None),
    ],
)  # fmt: skip
def test_the_shape_of_an_array_of_128_bytes(source: str, expected: object) -> None:
    assert shape_of(source, "s", 128, {"real": "double"}) == expected
