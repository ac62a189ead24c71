"""The names of a kernel's parameters, from its source."""

from __future__ import annotations

import pytest

from tilewise.compiler.names import declarations, parameter_names, signature
from tilewise.kernel import Kernel


def names(source: str, name: str = "k") -> list[str]:
    return parameter_names(Kernel(source, name).compile())


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("int n, const float* __restrict__ x", ["n", "x"]),
        ("int n /* rows, columns */, float *x // , y\n", ["n", "x"]),
        ("float (&x)[4], int n", ["x", "n"]),
        ("int, float*", ["argument 0", "argument 1"]),
        ("const float* const x, unsigned int n", ["x", "n"]),
        ("float x[4], int n", ["x", "n"]),
        ("", []),
    ],
)
def test_names(declared: str, wanted: list[str]) -> None:
    assert names(f'extern "C" __global__ void k({declared}) {{}}') == wanted


def test_a_type_with_commas_is_one_parameter() -> None:
    source = """
    template <int M, int N> struct Size { int m = M, n = N; };
    __global__ void k(Size<2, (3 > 2)> size, float* x) {}
    """
    assert names(source) == ["size", "x"]


def test_the_kernel_and_not_a_function_of_its_name() -> None:
    source = """
    namespace a { __device__ int k(int one, int two) { return one; } }
    __global__ void k(int n, float* x) { x[0] = a::k(n, n); }
    """
    assert names(source) == ["n", "x"]


def test_a_declaration_and_launch_bounds() -> None:
    source = """
    __global__ void __launch_bounds__(64) k(int n, float* x);
    __global__ void __launch_bounds__(64) k(int count, float* values) {}
    """
    assert names(source) in (["n", "x"], ["count", "values"])


def test_a_list_from_a_macro_is_not_known() -> None:
    source = "#define LIST int n, float* x\n__global__ void k(LIST) {}\n"
    assert names(source) == []
    assert signature(Kernel(source, "k").compile()) == "k(int, float*)"


def test_signatures_are_as_the_source_has_them() -> None:
    source = "__global__ void k(int n,\n    const float* __restrict__ x, void* y) { }"
    compiled = Kernel(source, "k").compile()
    assert declarations(compiled) == ["int n", "const float* __restrict__ x", "void* y"]
    assert signature(compiled) == "k(int n, const float* __restrict__ x, void* y)"
