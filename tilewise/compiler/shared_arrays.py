"""Read the extents and element sizes of shared arrays from their declarations in a source."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from tilewise.compiler.type_names import size_of

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_CAST = re.compile(r"\(\s*(?:int|unsigned|long|size_t|unsigned\s+int)\s*\)")
_ELEMENT_SIZES = (1, 2, 4, 8, 16)  # bytes of a plain type, or of a vector type as float4
_DEEPEST = 16  # levels of macros in macros
_MOST_CHOICES = 64  # combinations of the values that macros may have
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def extents(source: str, name: str, defines: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the extents of the shared array ``name``, of which the last is that of a row.

    Parameters
    ----------
    source : str
        CUDA C++. An extent may contain numbers, macros, ``sizeof`` of a plain type, and
        ``+ - * / %``.
    name : str
    defines : mapping
        The macros that are given to the compiler.

    Returns
    -------
    tuple of int
        The extents; empty if there is no such array, or an extent can't be computed.

    Examples
    --------
    >>> extents("__shared__ float s[2][T][T + 1];", "s", {"T": 16})
    (2, 16, 17)
    """
    plain = _COMMENT.sub(" ", source)
    values = macros(plain, defines)
    for _, declared in _declarations(plain, name):
        if not declared:
            continue
        found = [value_of(each, values) for each in declared]
        known = tuple(each for each in found if each is not None and each > 0)
        return known if len(known) == len(found) else ()
    return ()


def shape_of(
    source: str, name: str, size: int, defines: Mapping[str, Any]
) -> tuple[int, tuple[int, ...]] | None:
    """Return the element size and the extents of the shared array ``name`` that has ``size`` bytes.

    Parameters
    ----------
    source, name, defines
        The arguments of :func:`extents`.
    size : int
        The size of the whole array in bytes.

    Returns
    -------
    (int, tuple of int) or None
        The element size in bytes, and the extents. None if no declaration of this name has ``size``
        bytes, or if several shapes are possible: by several declarations, by one whose extents
        can't be computed, or by a macro that may have several values.

    Examples
    --------
    >>> shape_of("__shared__ double s[T], t[4][T];", "t", 4 * 8 * 8, {"T": 8})
    (8, (4, 8))
    """
    plain = _COMMENT.sub(" ", source)
    found = set()
    for values in _possible_macros(plain, defines):
        for kind, each in _declarations(plain, name):
            known = tuple(value_of(extent, values) or 0 for extent in each)
            count = math.prod(known)
            if count <= 0:
                return None
            item = _plain_size(kind, values)
            if size % count == 0 if item is None else size == count * item:
                found.add((size // count, known))
    shape = found.pop() if len(found) == 1 else None
    return shape if shape is not None and shape[0] in _ELEMENT_SIZES else None


def _declarations(plain: str, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the text before the name, and the extents, of each declaration of a shared variable.

    The extents are text too. Dynamic shared memory, whose first extent is empty, is left out.
    """
    for statement in re.finditer(r"\b__shared__\b([^;]*);", plain):
        declared = re.search(
            rf"\b{re.escape(name)}\s*((?:\[[^\]]+\]\s*)+|(?=,|$))", statement[1]
        )  # fmt: skip
        if declared:
            yield statement[1][: declared.start()], re.findall(r"\[([^\]]+)\]", declared[1])


def _plain_size(before: str, values: Mapping[str, str]) -> int | None:
    """Return the size in bytes of the type in ``before``, the text before a variable's name.

    It is None if the type is not a plain one.
    """
    kind = before.partition(",")[0]
    words = [values.get(word, word) for word in _NAME.findall(kind)]
    is_plain = not re.search("[<*&]", kind)
    return size_of(" ".join(x for x in words if size_of(x) is not None)) if is_plain else None


def _possible_macros(plain: str, defines: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield each possible set of values of the macros without parameters.

    A macro has the value that is given or that the source defines. It may have several if it is
    defined again, or under a condition that can't be decided here. If there are more than
    ``_MOST_CHOICES`` sets, none is yielded.
    """
    bodies = {name: ["1" if value is True else str(value)] for name, value in defines.items()}
    taken: list[bool | None] = []  # whether the lines count; None if that is not known
    for line in plain.splitlines():
        found = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        word, rest = (found[1], found[2].strip()) if found else ("", "")
        if word in ("ifdef", "ifndef"):
            is_known = rest in bodies or not rest.startswith("__")
            taken.append((rest in bodies) == (word == "ifdef") if is_known else None)
        elif word == "if":
            taken.append(None)
        elif word == "elif" and taken:
            taken[-1] = None
        elif word == "else" and taken:
            taken[-1] = None if taken[-1] is None else not taken[-1]
        elif word == "endif" and taken:
            taken.pop()
        elif word == "define" and False not in taken:
            name, _, body = rest.partition(" ")
            if "(" not in name and body.strip() not in bodies.setdefault(name, []):
                bodies[name].append(body.strip())
    if math.prod(map(len, bodies.values())) <= _MOST_CHOICES:
        for chosen in product(*bodies.values()):
            yield dict(zip(bodies, chosen, strict=True))


def element_size(source: str, name: str) -> int:
    """Return the bytes of an element of the shared array ``name``: 4 if its type is not plain.

    Examples
    --------
    >>> element_size("__shared__ double s[2][16];", "s")
    8
    """
    for statement in re.finditer(r"\b__shared__\b([^;]*);", _COMMENT.sub(" ", source)):
        before, mark, _ = statement[1].partition(f" {name}")
        words = [word for word in _NAME.findall(before) if size_of(word) is not None]
        size = size_of(" ".join(words))
        if mark and size is not None:
            return size
    return 4


def macros(source: str, defines: Mapping[str, Any]) -> dict[str, str]:
    """Return the macros without parameters at the end of the source: those given, and its own.

    Of ``#ifdef`` and ``#ifndef`` the side that is compiled counts, and of any other condition the
    first side.
    """
    values = {name: "1" if value is True else str(value) for name, value in defines.items()}
    taken: list[bool] = []
    for line in source.splitlines():
        found = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        if not found:
            continue
        word, rest = found[1], found[2].strip()
        if word in ("ifdef", "ifndef"):
            taken.append((rest in values) == (word == "ifdef"))
        elif word == "if":
            taken.append(True)
        elif word == "else" and taken:
            taken[-1] = not taken[-1]
        elif word == "endif" and taken:
            taken.pop()
        elif word == "define" and all(taken):
            name, _, body = rest.partition(" ")
            if "(" not in name:
                values[name] = body.strip()
    return values


def value_of(expression: str, values: Mapping[str, str]) -> int | None:
    """Return the whole number of an expression with macros; None if it can't be computed."""
    text = expression
    for _ in range(_DEEPEST):
        replaced = _NAME.sub(
            lambda found: (
                values.get(found[0], found[0])
                if any(size_of(each) for each in (found[0], values.get(found[0], "")))
                else f"({values[found[0]]})"
                if found[0] in values
                else found[0]
            ),
            text,
        )
        if replaced == text:
            break
        text = replaced
    text = re.sub(r"\bsizeof\s*\(\s*(\w+)\s*\)", lambda x: str(size_of(x[1]) or x[1]), text)
    text = _CAST.sub("", text).replace("/", "//")
    try:
        return _number(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_number(node.left), _number(node.right))
    raise ValueError("no arithmetic of whole numbers")
