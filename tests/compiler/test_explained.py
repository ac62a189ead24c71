"""What is said of a wrong name, and of what NVRTC and the emulator do not take."""

from __future__ import annotations

import numpy as np
import pytest

from tilewise import Kernel
from tilewise.errors import CompileError, UnsupportedInstructionError

TEMPLATE = """
template <typename T, int N> __global__ void scale(T* x, T a) {
    if (threadIdx.x < N) x[threadIdx.x] *= a;
}
"""
INNER = "namespace ns { __global__ void inner(int* x) { *x = 1; } }\n"


def refused(source: str, name: str) -> str:
    with pytest.raises(CompileError) as caught:
        Kernel(source, name).compile("sm_80")
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("scale<int>", "cannot determine which instance of function template"),
        ("scale<float, 8", 'expected a ">"'),
    ],
)
def test_a_wrong_instance_is_an_error_of_the_name(name: str, why: str) -> None:
    told = refused(TEMPLATE, name)
    assert f"error in the name {name!r}: {why}" in told
    assert "__nv_name_map" not in told
    assert "errors detected" not in told


def test_a_kernel_in_a_namespace_is_found_by_its_whole_name() -> None:
    told = refused("#include <iostream>\n" + INNER + "int main() { std::cout << 1; }", "inner")
    assert "no kernel called 'inner'" in told
    assert told.endswith("Did you mean ns::inner?")


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("texture<float, 1> t; __global__ void k(float* y) { *y = tex1Dfetch(t, 0); }", "texture"),
        ("__global__ void c() {} __global__ void k(int* x) { c<<<1, 1>>>(); }", "another"),
    ],
)  # fmt: skip
def test_a_note_says_what_is_not_possible(source: str, note: str) -> None:
    assert note in refused(source, "k").partition("\nnote: ")[2]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("/* größe */ int größe = 1;", "rename größe; comments and strings may have others"),
        ("int x = 2 \u2013 1;", "U+2013, EN DASH, is allowed only in comments and strings; was"),
        ("int x\u00a0= 2;", "U+00A0, NO-BREAK SPACE, is allowed only in comments"),
        ('printf("größe"); int x = @; // ö', ""),  # what is wrong is another character
    ],
)
def test_characters_beyond_ascii(line: str, note: str) -> None:
    told = refused(f"__global__ void k() {{\n    {line}\n}}\n", "k")
    assert note in told.partition("\nnote: ")[2]
    assert ("\nnote: " in told) is bool(note)


def test_a_kernel_whose_name_is_beyond_ascii() -> None:
    told = refused('extern "C" __global__ void größe(float* x) { *x = 1; }', "größe")
    assert told.endswith("rename größe; comments and strings may have others")


TEXTURE = """
extern "C" __global__ void k(cudaTextureObject_t t, float* y) { *y = tex2D<float>(t, 0, 0); }
"""
HEAP = 'extern "C" __global__ void k(int* x) { int* y = (int*)malloc(4); *y = *x; *x = *y + 1; }'


@pytest.mark.usefixtures("no_machine_code")
def test_the_emulator_says_what_it_has_not() -> None:
    y = np.zeros(1, np.float32)
    with pytest.raises(UnsupportedInstructionError, match="no textures and surfaces") as caught:
        Kernel(TEXTURE, "k").launch(1, 1, (0, y), device="emulator")
    assert "builtin_header" not in str(caught.value)
    with pytest.raises(UnsupportedInstructionError, match=r"malloc is called, .* have no heap"):
        Kernel(HEAP, "k").launch(1, 1, (y.view(np.int32),), device="emulator")
