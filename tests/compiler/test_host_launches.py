"""The launches that host code makes, and the values of what stands in them."""

from __future__ import annotations

from typing import Any

import pytest

from tilewise.compiler.source.launches import is_of, launches
from tilewise.compiler.source.part import read


def launch(before: str, inside: str, configuration: str, **more: str) -> Any:
    text = (
        f"{before}\nvoid host(int unknown, float* p) {{\n{inside}\nk<<<{configuration}>>>(p);\n}}"
    )
    (found,) = launches(read({"k.cu": text, **more}))
    return found


@pytest.mark.parametrize(
    ("before", "inside", "configuration", "grid", "block"),
    [
        ("", "", "2, 64", (2, 1, 1), (64, 1, 1)),
        ("", "", "dim3(2, 3), dim3{8, 4, 2}", (2, 3, 1), (8, 4, 2)),
        ("#define B 32\n#define UP(a, b) (((a) + (b) - 1) / (b))", "", "UP(100, B), B",
         (4, 1, 1), (32, 1, 1)),
        ("const int B = 1 << 5;", "int n = 1000;", "(n + B - 1) / B, B", (32, 1, 1), (32, 1, 1)),
        ("", "dim3 b(8, 8), g;", "g, b", (1, 1, 1), (8, 8, 1)),
        ("#define T 8", "dim3 b(T, T);", "1, b", (1, 1, 1), (8, 8, 1)),
        ("", "dim3 b = dim3(8, 2); dim3 g = {5};", "g.x, b.x * b.y", (5, 1, 1), (16, 1, 1)),
        ("static int up(int a, int b) { return a % b ? a / b + 1 : a / b; }", "", "up(9, 4), 1",
         (3, 1, 1), (1, 1, 1)),
        ("", "", "(int)ceil(1000 / 256.0), min(256, 1024)", (4, 1, 1), (256, 1, 1)),
        ("", "", "static_cast<int>(7.9f), 0x40u", (7, 1, 1), (64, 1, 1)),
        ("", "size_t n = 3.7;", "n, 010", (3, 1, 1), (8, 1, 1)),
        # The nearest one counts.
        ("int b = 1;", "{ int b = 2; } int b = 3;", "b, 1", (3, 1, 1), (1, 1, 1)),
    ],
)  # fmt: skip
def test_what_is_known(before: str, inside: str, configuration: str, grid: Any, block: Any) -> None:
    found = launch(before, inside, configuration)
    assert (found.grid(), found.block()) == (grid, block)
    assert found.text == f"<<<{configuration}>>>"


@pytest.mark.parametrize(
    ("inside", "extent"),
    [
        ("", "unknown"),
        ("int b = 4; b = read();", "b"),
        ("int b = 4; if (p) ++b;", "b"),
        ("int b = 4; parse(&b);", "b"),
        ("int b; ", "b"),
        ("dim3 b(4); b.y = unknown;", "b"),
        ("for (int b = 1; b < 9; b *= 2)", "b"),
        ("int b[2] = {4, 4};", "b[0]"),
        ("", "1 / 0"),
        ("", "1 << 99"),
        ("", "0"),
        ("", "-4"),
        ("", "device.count * 2"),
        ("int a = b, b = a;", "a"),
        ("", "sizeof(other)"),
    ],
)
def test_what_is_not_known(inside: str, extent: str) -> None:
    found = launch("", inside, f"{extent}, {extent}")
    assert (found.grid(), found.block()) == (None, None)


@pytest.mark.parametrize(
    ("inside", "configuration", "why"),
    [
        ("", "-1, 0", "its grid is -1 and its block is 0, where each extent must be at least 1"),
        ("dim3 b(8, 0);", "1, b", "its block is 8 x 0, where each extent must be at least 1"),
        ("int n = 4;", "n - 4, unknown", "its grid is 0, where each extent must be at least 1"),
        ("", "unknown, unknown", ""),
        ("", "1, 1", ""),
    ],
)
def test_constants_that_cuda_refuses(inside: str, configuration: str, why: str) -> None:
    assert launch("", inside, configuration).refused() == why


def test_given_names_come_before_all_else() -> None:
    found = launch("", "const int n = 1 << 20;", "n / 32, 32, 4 * n")
    assert found.grid() == (1 << 15, 1, 1)
    assert found.grid({"n": 64}) == (2, 1, 1)
    assert (found.shared(), found.shared({"n": 64})) == (1 << 22, 256)


def test_many_launches_and_long_ones() -> None:
    rows = "".join(f"int a{i} = x + {i}; k<<<a{i}, x>>>(p);\n" for i in range(300))
    found = launches(read({"k.cu": f"void host(float* p) {{ int x = 1;\n{rows}}}"}))
    assert len(found) == 256
    assert [each.grid() for each in found] == [(1 + i, 1, 1) for i in range(256)]
    found = [launch("", "", f"{'(' * 900}1{')' * 900}, 32")]
    assert (len(found[0].text), found[0].block()) == (73, (32, 1, 1))


def test_constants_of_headers() -> None:
    found = launch('#include "b.h"', "", "1, B", **{"b.h": "constexpr unsigned B = 96;"})
    assert found.block() == (96, 1, 1)


def test_templates_around_a_launch() -> None:
    text = """
template <int B> void run(float* p) { k<B * 2, float><<<B, 2 * B>>>(p, 3 * B, 1.5f); }
void host() { run<4>(nullptr); run<8>(nullptr); }"""
    found = launches(read({"k.cu": text}))
    assert [each.kernel for each in found] == ["k<8, float>", "k<16, float>"]
    assert [each.block() for each in found] == [(8, 1, 1), (16, 1, 1)]
    assert [found[0].argument(at) for at in range(4)] == [None, 12, 1.5, None]


@pytest.mark.parametrize(
    ("launched", "name", "wanted"),
    [
        ("k", "k", True),
        ("k", "space::k", True),
        ("::space::k", "k", True),
        ("k", "kk", False),
        ("k<4>", "k< 4 >", True),
        ("k<4>", "k<8>", False),
        ("k", "k<8>", True),
        ("a::k", "b::k", False),
    ],
)
def test_whose_launch_it_is(launched: str, name: str, wanted: bool) -> None:
    assert is_of(launched, name) is wanted
