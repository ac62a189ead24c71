"""Which lines of a source the preprocessor keeps."""

from __future__ import annotations

from itertools import product

import pytest

from tilewise.compiler.conditions import CUT, choices, kept

pytestmark = pytest.mark.usefixtures("ptx_alone")


def lines(source: str, **given: str) -> list[str]:
    return kept(source, "x", given)[0].split()


CHAIN = """
#if {}
first
#elif {}
second
#elif {}
third
#else
last
#endif
"""


@pytest.mark.parametrize("sides", list(product(("0", "1", "__A"), repeat=3)))
def test_a_chain_of_conditions(sides: tuple[str, str, str]) -> None:
    found = [x for x in lines(CHAIN.format(*sides)) if x != CUT]
    names = ("first", "second", "third", "last")
    possible = set()
    for guess in product((0, 1), repeat=3):
        values = [g if s == "__A" else int(s) for s, g in zip(sides, guess, strict=True)]
        possible.add(names[next((i for i, x in enumerate(values) if x), 3)])
    assert found == [x for x in names if x in possible]


def test_a_cut_parts_only_what_is_not_certain() -> None:
    assert CUT not in lines(CHAIN.format("0", "1", "__A"))
    assert lines("#if __A\na\n#endif\nb") == [CUT, "a", CUT, "b"]
    assert lines("#if 0\n#if __A\na\n#else\nb\n#endif\n#endif\nc") == ["c"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#ifdef G\na\n#else\nb\n#endif", ["a"]), ("#ifndef G\na\n#else\nb\n#endif", ["b"]),
        ("#ifdef NO\na\n#elifdef G\nb\n#endif", ["b"]), (" #  if G == 3\na\n# endif", ["a"]),
        ("#undef G\n#ifdef G\na\n#endif", []), ("#define F(x) x\n#ifdef F\na\n#endif", ["a"]),
        ("#if 0\n#define NO\n#endif\n#ifdef NO\na\n#endif", []),
        ("#if G /* == 4\n */ == 3 // no\na\n#endif", ["a"]), ("#else\n#endif\n#elif\na", ["a"]),
        ("#if G \\\n == 4\na\n#endif\nb", ["b"]), ("#\n#pragma once\na", ["a"]),
        ('"// #if 0"\na', ['""', "a"]), ("#if 1\na", ["a"]),
        ('R"(\n#undef G\n#if 0\n)"\n#ifdef G\na\n#endif', ['""', "a"]),
        ("%:if 0\na\n%:else\nb\n%:endif", ["b"]), ("#define G$ 1\n#if G == 3\na\n#endif", ["a"]),
        ("#define N 4 \v + 4\n#if N == 8\na\n#endif", ["a"]),
    ],
)  # fmt: skip
def test_conditions_that_are_decided(source: str, expected: list[str]) -> None:
    assert lines(source, G="3") == expected


@pytest.mark.parametrize(
    "before",
    [
        "#include <a.h>", "#if __A\n#define NO\n#endif", "#if __A\n#else\n#define NO 2\n#endif",
        "#define NO\n#if __A\n#undef NO\n#endif", "#define NO\n#pragma push_macro(\"NO\")",
        "#if __A\n#define NO\n#elif __B\n#define NO\n#endif",
        "#if __A\n#define NO\n#undef NO\n#else\n#define NO\n#endif",
        "#if __A\n#define NO(x)\n#endif",
    ],
)  # fmt: skip
def test_what_may_be_defined(before: str) -> None:
    found = lines(f"{before}\n#ifdef NO\na\n#else\nb\n#endif")
    assert [x for x in found if x != CUT] == ["a", "b"]


@pytest.mark.parametrize(
    "name", ["CUDART_VERSION", "cudaStreamLegacy", "NULL", "INT_MAX", "CHAR_BIT", "M_PI", "assert"]
)
def test_nvrtc_may_define_names_itself(name: str) -> None:
    assert lines(f"#ifdef {name}\na\n#else\nb\n#endif") == [CUT, "a", CUT, "b", CUT]


def test_what_every_branch_defines_is_defined() -> None:
    inner = "#ifdef __B\n#define A 2\n#else\n#define A 3\n#endif\n"
    source = f"#ifdef __A\n#define A 1\n#else\n{inner}#endif\nx\n#ifdef A\na\n#endif"
    text, (macros,) = kept(source, "x", {})
    assert text.split()[-1] == "a"
    assert text.split()[-2] != CUT
    assert macros["A"] == ("1", "2", "3")
    _, (macros,) = kept(f"{inner.replace('#else', '#elif __C')}x", "x", {})
    assert macros["A"] == ("2", "3", None)
    assert choices(["A"], macros) == [{"A": "2"}, {"A": "3"}, {}]


def test_the_macros_at_each_place() -> None:
    source = "#define A 1\nx x\n#define A 2\n#if __B\n#define A 3\n#endif\nx\n#if 0\nx\n#endif"
    _, macros = kept(source, "x", {"G": "4", "H(x)": "x"})
    assert [found["A"] for found in macros] == [("1",), ("1",), ("2", "3")]
    assert macros[0]["G"] == ("4",)
    assert choices(["A + G"], macros[2]) == [{"A": "2", "G": "4"}, {"A": "3", "G": "4"}]
    assert choices(["C"], macros[2]) == [{}]
