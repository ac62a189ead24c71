"""Whole numbers of constant expressions."""

from __future__ import annotations

import pytest

from tilewise.compiler.expressions import value_of

MACROS = {
    "N": "2 + 2", "M": "(N)", "A": "B", "B": "A", "T": "unsigned short", "EMPTY": "",
    **{f"X{i}": f"X{i + 1} X{i + 1}" for i in range(40)},
    **{f"E{i}": f"E{i + 1} E{i + 1}" for i in range(40)}, "E40": "", "ZERO": "0u",
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7", 7), ("0x1Fu", 31), ("0b101", 5), ("017", 15), ("1'000ULL", 1000), ("0", 0),
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("10 - 3 - 2", 5), ("-7 / 2", -3), ("-7 % 2", -1),
        ("1 << 3 | 1", 9), ("6 & 3 ^ 1", 3), ("~0 + 2", 1), ("!0 + !5", 1), ("- - 3", 3),
        ("3 > 2 == 1", 1), ("2 <= 1", 0), ("1 ? 2 : 3", 2), ("0 ? 2 : 0 ? 4 : 5", 5),
        ("1 < 2 && 2 < 1 || 1", 1), ("N * 2", 6), ("M * 2", 8), ("sizeof(T)", 2),
        ("sizeof(double) * 2", 16), ("sizeof(float*)", 8), ("16 / (int)sizeof(float)", 4),
        ("(unsigned long)4 * 2", 8), ("(size_t)3", 3), ("true + false", 1), ("1 << 30", 1 << 30),
        ("x ? 4 : 4", 4), ("0 && x", 0), ("1 || x", 1),
        ("x", None), ("x + 1", None), ("x ? 4 : 5", None), ("1 && x", None), ("-x", None),
        ("", None), ("EMPTY", None), ("1 2", None), ("(1", None), ("1 +", None), ("1 ? 2", None),
        ("4 / 0", None), ("4 % 0", None), ("1 << 64", None), ("1 << -1", None), ("A", None),
        ("f(1)", None), ("1.5", None), ("sizeof(Tile)", None), ("sizeof 4", None), ("X0", None),
        # Of these the types would count, which are not known here.
        ("1 << 31", None), ("~0u", None), ("ZERO - 1 > 3", None), ("sizeof(int) - 8 > 0", None),
        ("(unsigned char)260", None), ("(char)127", 127), ("0xFFFFFFFF", None), ("-1 > 0u", None),
        ("65536 * 65536", None), ("4 E0", None),
        ("(" * 200 + "1" + ")" * 200, None), ("-" * 5000 + "1", None), ("09", None),
        (" * ".join(["9" * 18] * 9), None), ("9" * 9999, None), ("'a'", None), ("a::b", None),
    ],
)  # fmt: skip
def test_expressions(expression: str, expected: int | None) -> None:
    assert value_of(expression, MACROS) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("defined(N)", 1), ("defined N && N == 4", 1), ("defined(NO)", 0), ("!defined MAYBE", None),
        ("NO", 0), ("NO + 1", 1), ("MAYBE", None), ("defined(N) || MAYBE > 3", 1),
        ("NO && MAYBE", 0), ("F(3)", None), ("defined(", None), ("defined", None),
        ("__has_include(<a.h>)", None), ("defined(N", None),
    ],
)  # fmt: skip
def test_conditions(condition: str, expected: int | None) -> None:
    known = {"N": True, "NO": False}
    assert value_of(condition, MACROS, known.get) == expected
