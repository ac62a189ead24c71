"""The sizes and the usual names of CUDA C++'s types, and what the compiler says of them."""

from __future__ import annotations

import sys

import pytest

from tilewise import Kernel
from tilewise.compiler.type_names import (
    SIZES,
    TOLD,
    components_of,
    is_integer,
    size_of,
    usual,
    vector_of,
)

pytestmark = pytest.mark.usefixtures("ptx_alone")

SPELLED = (
    "unsigned", "const unsigned", "unsigned char", "signed", "long unsigned int", "short int",
    "int long long", "unsigned short int", "uint", "std::size_t", "size_t", "float*",
    "void const *", "uint8_t", "int64_t",
)  # fmt: skip


def test_sizes_are_the_compilers() -> None:
    names = [name for name in (*SIZES, *SPELLED) if not name.startswith("__")]
    asked = "".join(f'static_assert(sizeof({x}) == {size_of(x)}, "{x}");\n' for x in names)
    head = "#include <cstddef>\n#include <cstdint>\n"
    Kernel(f"{head}{asked}__global__ void k() {{}}", "k").compile()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("long unsigned int", "unsigned long"), ("int long long", "long long"),
        ("char signed", "signed char"), ("unsigned", "unsigned int"), ("half", "__half"),
        ("Pair", "Pair"), ("long double", "long double"), ("", ""),
    ],
)  # fmt: skip
def test_the_usual_name(words: str, wanted: str) -> None:
    assert usual(words.split()) == wanted
    assert is_integer(words.split()) is (wanted in SIZES and not wanted.startswith("__"))


@pytest.mark.parametrize(
    ("text", "size", "components"),
    [
        ("const uint4", 16, 4), ("short2", 4, 2), ("uchar3", 3, 3), ("ulonglong2", 16, 2),
        ("double4_16a", 32, 4), ("dim3", 12, 3), ("half2", 4, 2), ("nv_bfloat162", 4, 2),
        ("float1", 4, 1), ("float", 4, 1), ("float4*", 8, 1), ("bool2", None, 1),
        ("half4", None, 1), ("float5", None, 1), ("int4_16a", None, 1),
    ],
)  # fmt: skip
def test_vector_types(text: str, size: int | None, components: int) -> None:
    assert (size_of(text), components_of(text)) == (size, components)


@pytest.mark.parametrize(
    ("text", "scalar", "count"),
    [
        ("const unsigned", "unsigned int", 1), ("const uint4", "unsigned int", 4),
        ("half2", "__half", 2), ("double4_16a", "double", 4), ("float2*", "float2*", 1),
        ("Pair", "Pair", 1),
    ],
)  # fmt: skip
def test_what_a_vectors_components_are(text: str, scalar: str, count: int) -> None:
    assert vector_of(text) == (scalar, count)


@pytest.mark.parametrize("text", ["", "void", "Pair", "long double", "const"])
def test_a_size_that_is_not_known(text: str) -> None:
    assert size_of(text) is None


def test_what_is_told_has_a_size() -> None:
    assert [name for name in TOLD if size_of(name) is None] == ["void"]


@pytest.mark.parametrize(("system", "wanted"), [("linux", 8), ("win32", 4)])
def test_a_long_is_shorter_on_windows(
    monkeypatch: pytest.MonkeyPatch, system: str, wanted: int
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert (size_of("unsigned long"), size_of("size_t")) == (wanted, 8)
