"""Shapes of shared arrays, as sources declare them."""

from __future__ import annotations

import math
import re

import pytest
from reference import thorough

from tilewise.compiler.compiled import Shape
from tilewise.compiler.shared_arrays import of_compiled, shape_of
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import RUNGS, Rung
from tilewise.places import ITEM_SIZES
from tilewise.precision import HALVES

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
        ("__shared__ float s[2][3 * 4][EDGE + PAD];", {"WIDE": "1"}, (2, 12, 12)),
        ("__shared__ float s[EDGE][HALF];", {}, (8, 4)),
        ("__shared__ float s[EDGE];", {"EDGE": "20"}, (20,)),
        ("__shared__ float other[2], s[EDGE][EDGE] ;", {}, (8, 8)),
        ("__shared__ __align__(16) real s[EDGE + WIDTH];", {"real": "float"}, (12,)),
        ("__shared__ __align__(16) real s[EDGE + WIDTH];", {"real": "double"}, (10,)),
        ("__shared__ float s[EDGE /* of a tile */][4]; // s[9][9];", {}, (8, 4)),
        ("__shared__ float s[2][EDGE > 4 ? PAD : 4];", {}, (2, 1)),
        ("__shared__ float\n    s[EDGE]\n    [4]\n;", {}, (8, 4)),
        ("__shared__ float s[TWICE(2)][TWICE(TWICE(HALF) - PAD)];", {}, (4, 14)),
        (
            "#define LEAST(a, b) ((a) < (b) ? (a) : (b))\n__shared__ float s[LEAST(4, EDGE)][2];",
            {},
            (4, 2),
        ),
        ("#define EIGHT() 8\n__shared__ float s[EIGHT()][F(4, 2)];", {"F(a, b)": "a - b"}, (8, 2)),
        ("#define LINES EDGE \\\n + 1\n__shared__ float s[LINES][2];", {}, (9, 2)),
        ('extern const char* a; a = "/*"; __shared__ float s[4]; /* */', {}, (4,)),
    ],
)
def test_extents(declared: str, defines: dict[str, str], expected: tuple[int, ...]) -> None:
    size = (8 if defines.get("real") == "double" else 4) * math.prod(expected)
    found = shape_of(MACROS + declared, "s", size, defines)
    assert found is not None
    assert found.extents == expected


@pytest.mark.parametrize(
    "declared",
    [
        "__shared__ float s[N];", "__shared__ float s[TWICE(4, 4)];", "__shared__ float s[4 - 4];",
        "__shared__ float s[4 / 0];", "__shared__ float s[LOOP];", "__shared__ float s[1 << 64];",
        "__shared__ float s[4][4 4];",
    ],
)  # fmt: skip
def test_extents_that_can_not_be_computed(declared: str) -> None:
    assert shape_of(MACROS + declared, "s", 64, {"LOOP": "LOOP"}) == Shape(4, (), 1)


@pytest.mark.parametrize(
    "declared", ["float s[16];", "__shared__ float ss[16];", "extern __shared__ float s[];", ""]
)
def test_what_is_no_declaration_of_it(declared: str) -> None:
    assert shape_of(declared, "s", 64, {}) is None


@pytest.mark.parametrize(
    ("each", "tile", "dtype"),
    [
        pytest.param(
            each,
            tile,
            dtype,
            id=f"{each.name}-{tile}-{dtype}",
            # Two tiles of a rung tell whether an extent follows the tile; tiled_conflicts has
            # them, and double_buffered one, of the dtype in which test_ladder.py compiles it.
            marks=[thorough]
            * (
                dtype != each.dtypes[each.dtypes != HALVES and each.number % 2]
                or tile not in each.tiles[: {6: 2, 12: 1}.get(each.number, 0)]
            ),
        )
        for each in RUNGS[4:]
        for tile in each.tiles
        for dtype in each.dtypes
    ],
)
def test_of_every_rung_they_are_all_of_its_shared_memory(each: Rung, tile: int, dtype: str) -> None:
    kernel = each.kernel(dtype, tile)
    if not re.search(r"__shared__ (?:__align__\(\d+\) )?(?:real|half_t) sa", kernel.source):
        return
    compiled = kernel.compile()
    sizes = Program(parse(compiled.ptx), compiled.symbol).shared_sizes
    assert sum(sizes.values()) == compiled.resources.shared_bytes
    for name, size in sizes.items():
        shape = of_compiled(compiled, name, size)
        assert shape is not None
        assert len(shape.extents) > 1
        assert math.prod(shape.extents) * ITEM_SIZES[dtype] == size


@pytest.mark.parametrize(
    ("declared", "element", "values"),
    [
        ("float s[16]", 4, 1), ("double s[2][4]", 8, 1), ("unsigned long long s[8]", 8, 1),
        ("alignas(16) const float4 s[4]", 16, 4), ("half s[32]", 2, 1), ("half2 s[16]", 4, 2),
        ("alignas(sizeof(double)) Pair s[4]", 16, 0), ("nv_bfloat162 s[16]", 4, 2),
        ("nv_bfloat16 s[32]", 2, 1), ("Word s[8]", 8, 1), ("Count s[16]", 4, 1),
        ("double s[T][T]", 8, 1),
    ],
)  # fmt: skip
def test_the_element_of_an_array_of_64_bytes(declared: str, element: int, values: int) -> None:
    aliases = "typedef unsigned long long Word; using Count = whole;\n#define whole unsigned int\n"
    found = shape_of(f"{aliases}__shared__ {declared};", "s", 64, {})
    assert found is not None
    assert (found.element, found.values) == (element, values)


@pytest.mark.parametrize(
    "declared", ["Pair s[T]", "Pair s[2]", "Tile s", "float* s[T]", "Box<float> s[T]", "short s[T]"]
)
def test_an_element_that_is_not_known(declared: str) -> None:
    assert shape_of(f"__shared__ {declared};", "s", 65, {}) is None


@pytest.mark.parametrize(
    ("declared", "size", "expected"),
    [
        ("float s[]", 64, Shape(4, (16,), 1)), ("double s[][2][2]", 99, Shape(8, (3, 2, 2), 1)),
        ("unsigned char s[]", 64, Shape(1, (64,), 1)), ("Pair s[]", 64, None),
        ("float s[]", 0, Shape(4, (), 1)), ("float s[16]", 64, None),
        ("float s[][T]", 64, Shape(4, (), 1)), ("unsigned __int128 s[]", 64, None),
        ("real s[]; typedef float real;", 64, None),
        ("float s[]\n#if __A\n[8]\n#endif\n;", 64, None),
    ],
)  # fmt: skip
def test_dynamic_shared_memory(declared: str, size: int, expected: Shape | None) -> None:
    source = f"extern __shared__ {declared};"
    assert shape_of(source, "s", size, {}, is_dynamic=True) == expected


CONDITION = """
#if {0}
#define ROWS {1}
#define COLUMNS {2}
#else
#define ROWS {3}
#define COLUMNS {4}
#endif
__shared__ float s[ROWS][COLUMNS];
"""
IN_CONDITION = "#if {}\n__shared__ float s[4][8];\n#else\n__shared__ float s[8][4];\n#endif\n"
FOUR_ROWS, EIGHT_ROWS = Shape(4, (4, 8), 1), Shape(4, (8, 4), 1)
NOT_SURE = Shape(4, (), 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__shared__ float s[4][8];", FOUR_ROWS),
        ("__shared__ float s[4][8]; extern __shared__ float s[];", FOUR_ROWS),
        ("__shared__ double other[8], s[2][8];", Shape(8, (2, 8), 1)),
        ("__shared__ alignas(16) real s[2][8];", Shape(8, (2, 8), 1)),
        ("__shared__ float s[4][8]; __shared__ double s[4][8];", FOUR_ROWS),
        ("__shared__ float s[4][8]; __shared__ float s[8][4];", NOT_SURE),
        ("__shared__ float s[4][8]; __shared__ float s[32];", NOT_SURE),
        ("__shared__ float s[4][8]; __shared__ int s[4][8];", FOUR_ROWS),
        # One of these may be the array, too, and then its elements have other indices.
        ("__shared__ float s[4][8]; __shared__ float s[2 * N][N];", NOT_SURE),
        ("__shared__ float s[4][8]; __shared__ double s[2 * N][N];", None),
        ("__shared__ float s[4][8]; __shared__ Tile s;", None),
        ("__shared__ float s[4][8]; __shared__ Row s[8];", None),
        ("__shared__ float s[4][8]; __shared__ float s, t;", FOUR_ROWS),
        ("#define DECLARE(t) __shared__ t s[8][4]\n__shared__ float s[4][8];", None),
        ("#define SHARED \\\n __shared__\nSHARED float s[8][4]; __shared__ float s[4][8];", None),
        ("__shared__ float s[4][8]; __shared__ struct { float s[2][16]; } s;", None),
        ("__shared__ float s[4][8]; __shared__ Pair s[4]\n#if __A\n[2]\n#endif\n;", None),
        ("__shared__ float a, *s[4][8];", None),
        ("__shared__ float s[~3u % 233][~3u % 233];", NOT_SURE),
        ("__shared__ float s[-4][-8];", NOT_SURE),
        ("__shared__ float $s[8][4], s[4][8];", FOUR_ROWS),
        # These macros may be undefined, and the name then be something else.
        ("#if __A\n#define N 8\n#endif\n__shared__ float s[N][32 / N];", NOT_SURE),
        ("#define N 8\n#if __A\n#undef N\n#endif\n__shared__ float s[N][32 / N];", NOT_SURE),
        # A condition is decided by the macros that are given or defined.
        (IN_CONDITION.format("0"), EIGHT_ROWS),
        (IN_CONDITION.format("1"), FOUR_ROWS),
        (IN_CONDITION.format("WIDE"), EIGHT_ROWS),
        (IN_CONDITION.format("TALL == 2"), FOUR_ROWS),
        ("#define WIDE 2\n" + IN_CONDITION.format("WIDE > 1"), FOUR_ROWS),
        (CONDITION.format("defined(TALL)", 4, 8, 8, 4), FOUR_ROWS),
        (CONDITION.format("!defined TALL", 4, 8, 8, 4), EIGHT_ROWS),
        # Of these it is not known which side is compiled, but the size may tell.
        (IN_CONDITION.format("__GNUC__ > 4"), NOT_SURE),
        ('#include "a.h"\n' + IN_CONDITION.format("WIDE"), NOT_SURE),
        ('#include "a.h"\n' + IN_CONDITION.format("TALL == 2"), FOUR_ROWS),
        ("#ifdef __GNUC__\n#define WIDE 1\n#endif\n" + IN_CONDITION.format("WIDE"), NOT_SURE),
        (CONDITION.format("__GNUC__", 8, 4, 4, 8), NOT_SURE),
        (CONDITION.format("__GNUC__", 16, 8, 4, 8), FOUR_ROWS),
        (CONDITION.format("__GNUC__", 4, 8, 16, 8), FOUR_ROWS),
        ("__shared__ float s[4]\n#if __GNUC__\n[8]\n#else\n[8][1]\n#endif\n;", None),
        # The macros count that hold where the array is declared.
        ("#define R 4\n__shared__ float s[R][8];\n#undef R\n#define R 8\n", FOUR_ROWS),
        ("#define R 4\n__shared__ float s[R][32 / R];\n#undef R\n#define R 8\n", FOUR_ROWS),
        ("#define R 4\n#undef R\n#define R 8\n__shared__ float s[R][32 / R];\n", EIGHT_ROWS),
        ("#ifdef __A\n#undef R\n#define R 8\n#endif\n__shared__ float s[R][32 / R];", NOT_SURE),
        # Macros with parameters are macros.
        ("#define C(n) (32 / (n))\n__shared__ float s[4][C(4)];", FOUR_ROWS),
        ("#if __A\n#define C(n) 8\n#endif\n__shared__ float s[4][C(4)];", NOT_SURE),
        ("#if __A\n#define C(n) (n)\n#else\n#define C(n) 8\n#endif\n__shared__ float s[4][C(4)];",
         FOUR_ROWS),
        ("#define C(n) n##0\n__shared__ float s[4][C(1)];", NOT_SURE),
        ("#define C(n, ...) n\n__shared__ float s[4][C(8)];", NOT_SURE),
        ("#define C(n) 4\n#undef C\n#define C 8\n__shared__ float s[4][C];", FOUR_ROWS),
        ("#define C(n) C(n)\n__shared__ float s[4][C(8)];", NOT_SURE),
        ("#define C(n) (n)\n" + IN_CONDITION.format("C(C(2)) == 2"), FOUR_ROWS),
        # Of macros that the array does not name, the bodies don't count.
        ("".join(f"#if __A\n#define M{i} 0\n#else\n#define M{i} 1\n#endif\n" for i in range(9))
         + "__shared__ float s[4][8];", FOUR_ROWS),
        ("".join(f"#if __A\n#define M{i} 0\n#else\n#define M{i} 1\n#endif\n" for i in range(9))
         + f"__shared__ float s[4 + 0 * ({'+'.join(f'M{i}' for i in range(9))})][8];", None),
    ],
)  # fmt: skip
def test_the_shape_of_an_array_of_128_bytes(source: str, expected: Shape | None) -> None:
    given = {"real": "double", "TALL": "2", "R": "4"}
    assert shape_of(source, "s", 128, given) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("constexpr int T = 4, W = 2 * T;\n__shared__ float s[T][W];", (4, 8)),
        ("constexpr int T = 4;\nvoid f() { constexpr int W = T + T; __shared__ float s[T][W]; }",
         (4, 8)),
        ("static const unsigned long T = 4; __shared__ float s[T][T + 4];", (4, 8)),
        ("const int i = threadIdx.x, T = 4; __shared__ float s[T][8];", (4, 8)),
        ("#define N 4\nconstexpr int T = N;\n#undef N\n#define N 8\n__shared__ float s[T][N];",
         (4, 8)),
        ("void f() { constexpr int T = 2;} void g() { const int T = 4; __shared__ float s[T][8];}",
         (4, 8)),
        # Of these another of that name may be meant, or the type would count.
        ("template <int T> void f() { __shared__ float s[T][32 / T]; } constexpr int T = 4;", ()),
        ("void f(int a, int T) {} constexpr int T = 4; __shared__ float s[T][32 / T];", ()),
        ("constexpr int T = 4; enum { S, T = 8 }; __shared__ float s[T][32 / T];", ()),
        ("constexpr int T = 4;\n#if __A\nconstexpr int T = 8;\n#endif\n"
         "__shared__ float s[T][32 / T];", ()),
        ("constexpr int T = f(3, 4); __shared__ float s[T][8];", ()),
        ("constexpr unsigned T = 0; __shared__ float s[T - 1 > 3 ? 4 : 8][T - 1 > 3 ? 8 : 4];", ()),
        ("constexpr char T = 260; __shared__ float s[T][32 / T];", ()),
        ("constexpr float T = 4.5; __shared__ float s[T][8];", ()),
    ],
)  # fmt: skip
def test_constants(source: str, expected: tuple[int, ...]) -> None:
    assert shape_of(source, "s", 128, {}) == Shape(4, expected, 1)


def test_macros_of_given_ptx_are_not_known() -> None:
    source = IN_CONDITION.format("WIDE")
    assert shape_of(source, "s", 128, {}, is_whole=False) == NOT_SURE


@pytest.mark.parametrize(("arch", "expected"), [("sm_80", EIGHT_ROWS), ("sm_90a", FOUR_ROWS)])
def test_the_architecture_decides_conditions(arch: str, expected: Shape) -> None:
    condition = "__CUDA_ARCH__ >= 900 && defined(__CUDACC_RTC__) && defined(WIDE) && defined(F)"
    source = f"""
    extern "C" __global__ void k(float* x) {{
    {IN_CONDITION.format(condition)}
        s[threadIdx.x & 3][threadIdx.x & 1] = x[0];
        __syncthreads();
        x[threadIdx.x] = s[0][threadIdx.x & 3];
    }}"""
    kernel = Kernel(source, "k", {"WIDE": True}, ["-DF(x)=x"])
    assert of_compiled(kernel.compile(arch), "s", 128) == expected
    undefined = Kernel(source, "k", {"WIDE": True}, ["-DF(x)=x", "-UF"])
    assert of_compiled(undefined.compile(arch), "s", 128) == EIGHT_ROWS
