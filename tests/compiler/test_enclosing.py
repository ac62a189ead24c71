"""Shapes of shared arrays by the function that declares them, and by its template's arguments."""

from __future__ import annotations

import pytest

from tilewise.compiler.compiled import Shape
from tilewise.compiler.mangled import demangle, function_of, plain_name
from tilewise.compiler.shared_arrays import shape_of

FOUR_ROWS, EIGHT_ROWS, NOT_SURE = Shape(4, (4, 8), 1), Shape(4, (8, 4), 1), Shape(4, (), 1)
TWO = "__global__ void f() {{ __shared__ float s[4][8]; }} {} {{ __shared__ float s[8][4]; }}"
LOCAL = "void f() {{ {} __shared__ float s[T][32 / T]; }} void g() {{ {} }}"
ONE = "template <{}> __global__ void f(float* x) {{ __shared__ float s[T][32 / T]; }}"


@pytest.mark.parametrize(
    ("source", "function", "expected"),
    [
        (TWO.format("void g()"), "f", FOUR_ROWS), (TWO.format("void g()"), "g", EIGHT_ROWS),
        (TWO.format("void g()"), "", NOT_SURE), (TWO.format("void g()"), "h", NOT_SURE),
        (TWO.format("namespace f { struct S { void g() {} }; } void g(int f)"), "f", NOT_SURE),
        (TWO.format("void f(int)"), "f", NOT_SURE),  # an overload
        (TWO.format("void g() { if (1) {} for (;;) { } } void h()"), "h", EIGHT_ROWS),
        (TWO.format("template <int N> struct S { void g(); void g(float)"), "S<4>::g", EIGHT_ROWS),
        ("#define M(name) void name##0()\n" + TWO.format("M(g)"), "g0", EIGHT_ROWS),
        ("#define M(name) void name()\n" + TWO.format("M(g)"), "f", NOT_SURE),
        ("#define NAME f\n" + TWO.format("void NAME(int)"), "f", NOT_SURE),
        (TWO.format("\n#if __A\nvoid g() {\n#endif\nvoid h()"), "f", NOT_SURE),
        # Constants of the function, and of no function.
        (LOCAL.format("const int T = 4;", "const int T = 8;"), "f", FOUR_ROWS),
        (LOCAL.format("const int T = 4;", "const int T = 8;"), "", NOT_SURE),
        ("const int T = 8; " + LOCAL.format("const int T = 4;", ""), "f", NOT_SURE),
        ("struct alignas(8) S { static constexpr int T = 4; }; " + LOCAL.format("", ""), "f",
         FOUR_ROWS),
        # Arguments of templates.
        (ONE.format("int T"), "f<4>", FOUR_ROWS), (ONE.format("int T"), "ns::f<8>", EIGHT_ROWS),
        (ONE.format("int T = 4, bool B = (2 > 1)"), "f<8, true>", EIGHT_ROWS),
        (ONE.format("typename U, unsigned T"), "f<float, 4>", FOUR_ROWS),
        (ONE.format("const int T"), "f<4>", FOUR_ROWS),
        (ONE.format("int T"), "f<-8>", NOT_SURE), (ONE.format("int T"), "f", NOT_SURE),
        (ONE.format("auto T"), "f<4>", NOT_SURE), (ONE.format("int... T"), "f<4>", NOT_SURE),
        (ONE.format("int, int T"), "f<8, 4>", NOT_SURE), (ONE.format("Rows T"), "f<4>", NOT_SURE),
        (ONE.format("int T"), "f<4, 8>", NOT_SURE),
        (ONE.format("int T").replace("f(", "f<T, 4>("), "f<8>", NOT_SURE),
        ("const int T = 8; " + ONE.format("int T"), "f<4>", FOUR_ROWS),
        (ONE.format("int N").replace("{", "{ const int H = N / 2, T = 2 * H;"), "f<4>", FOUR_ROWS),
        ("template <int T> struct F { template <int U> void g() { __shared__ float s[T][U]; } };",
         "F<4>::g<8>", FOUR_ROWS),
        ("template <> void f<8>() { __shared__ float s[8][4]; } " + ONE.format("int T"), "f<8>",
         EIGHT_ROWS),
        ("template <> void f<8>() { __shared__ float s[4][8]; } " + ONE.format("int T"), "f<8>",
         NOT_SURE),
        ("template <typename T> void f() { __shared__ T s[8]; }", "f<float4>", Shape(16, (8,), 4)),
        ("template <class T> void f() { __shared__ T s[8]; }", "f<Pair>", Shape(16, (8,), 0)),
        ("template <bool B> void f() { __shared__ float s[B ? 4 : 8][B ? 8 : 4]; }", "f<true>",
         FOUR_ROWS),
    ],
)  # fmt: skip
def test_the_shape_of_an_array_of_128_bytes(
    source: str, function: str, expected: Shape | None
) -> None:
    assert shape_of(source, "s", 128, {}, function=function) == expected


@pytest.mark.parametrize(
    ("symbol", "function", "name"),
    [
        ("_ZZ1cE1s", "c", "s"), ("_ZZ4manyILi8EdLb0EEvPT0_E1s", "many<8, double, false>", "s"),
        ("_ZZN2ns1FILi4EE1gILi8EEEvPfE1s", "ns::F<4>::g<8>", "s"), ("tile", "", "tile"),
        ("_ZN2ns4tileE", "", "tile"), ("_ZZ1fvE1s_0", "f", "s"),
    ],
)  # fmt: skip
def test_the_function_of_a_variable(symbol: str, function: str, name: str) -> None:
    assert plain_name(symbol) == name
    assert demangle(function_of(symbol)) == function


def test_a_function_whose_name_is_not_read() -> None:
    for symbol in ("_ZZZ1kPfENKUlvE_clEvE1s", "_ZZN2ns4packIJLi1ELi2EEEEvPfE1s"):
        assert demangle(function_of(symbol)).startswith("_Z")
