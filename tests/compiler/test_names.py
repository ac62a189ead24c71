"""The names of a kernel's parameters, from its source."""

from __future__ import annotations

import re

import pytest

from tilewise.compiler.names import declarations, parameter_names, signature
from tilewise.errors import ParserMissingError
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("ptx_alone")


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


SEVERAL = """
namespace a { __global__ void k(const float* in, float* out) { out[0] = in[0]; } }
namespace b { __global__ void k(float* out, const float* in) { out[0] = in[0]; } }
__global__ void both(float* x, int n) { x[n] = 1; }
__global__ void both(int at, float* y);
__global__ void both(int m, float* y) { y[m] = 1; }
"""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a::k", "a::k(const float* in, float* out)"),
        ("b::k", "b::k(float* out, const float* in)"),
        ("both(float*, int)", "both(float* x, int n)"),
        ("both(int, float *)", "both(int m, float* y)"),
    ],
)
def test_kernels_of_one_name_have_their_own_parameters(name: str, shown: str) -> None:
    compiled = Kernel(SEVERAL, name).compile()
    assert signature(compiled) == shown
    assert parameter_names(compiled) == re.findall(r"(\w+)[,)]", shown)


SPECIAL = """
template <class T, int N = 2> __global__ void t(T* p, int n) { p[n] = N; }
template <> __global__ void t<int>(int* uno, int due) { uno[due] = 1; }
template<> __global__ void t<float, 3>(float* a, int b) { a[b] = 2; }
template <> __global__ void t(const double* d, int e) { if (d[e] > 0) __trap(); }
template __global__ void t<char>(char* unnamed, int);
"""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("t<int>", "int* uno, int due"),
        ("t<int, 2>", "int* uno, int due"),
        ("t<int, 3>", "T* p, int n"),
        ("t<float, 3>", "float* a, int b"),
        ("t<float,1 + 2>", "float* a, int b"),
        ("t<float>", "T* p, int n"),
        ("t<const double>", "const double* d, int e"),
        ("t<char>", "T* p, int n"),
        ("t<unsigned>", "T* p, int n"),
    ],
)
def test_an_explicit_specialization_has_its_own_parameters(name: str, shown: str) -> None:
    compiled = Kernel(SPECIAL, name).compile()
    assert signature(compiled) == f"{name}({shown})"
    assert parameter_names(compiled) == re.findall(r"(\w+)(?:,|$)", shown)


def test_without_a_parser_the_first_kernel_of_the_name_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object) -> None:
        raise ParserMissingError

    source = f"{SEVERAL}// without a parser"
    monkeypatch.setattr("tilewise.compiler.names.read", missing)
    assert signature(Kernel(source, "a::k").compile()) == "a::k(const float* in, float* out)"
