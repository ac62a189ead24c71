"""The page about kernels names every operator, function and constant of expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from tilewise.specs import expressions, formulas

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8")
X = ast.Name("x")


def words(begin: str, end: str) -> set[str]:
    """The words that are code on the page from one text up to another."""
    found = PAGE[PAGE.index(begin) :]
    found = found[: found.index(end)]
    return {word for code in re.findall(r"`([^`]+)`", found) for word in code.split()}


def written(
    operators: Iterable[type[ast.operator]],
    signs: Iterable[type[ast.unaryop]],
    comparisons: Iterable[type[ast.cmpop]] = (),
) -> set[str]:
    """Operators as they are written, by Python's own writer of syntax trees."""
    trees: list[ast.expr] = [ast.BinOp(X, of(), X) for of in operators]
    trees += [ast.UnaryOp(of(), X) for of in signs]
    trees += [ast.Compare(X, [of()], [X]) for of in comparisons]
    return {ast.unparse(tree).replace("x", "").strip() for tree in trees}


def test_what_is_expected() -> None:
    operators = written(formulas._OPERATORS, formulas._SIGNS, formulas._COMPARISONS)
    others = {".T", *formulas.FUNCTIONS, "axis", "keepdims", *expressions.CONSTANTS}
    assert words("The expression has NumPy's meaning", "Nothing else is executed") == {
        *operators, *others,
    }  # fmt: skip


def test_numbers() -> None:
    operators = written(expressions._OPERATORS, expressions._SIGNS)
    wanted = {*operators, *expressions.FUNCTIONS, *expressions.CONSTANTS}
    assert words("Numbers, extents and shapes are", "A quotient of integers") == wanted
