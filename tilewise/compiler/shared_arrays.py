"""Read the shapes of shared arrays from their declarations in a source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilewise.compiler.compiled import Compiled
from tilewise.compiler.conditions import CUT, choices, kept
from tilewise.compiler.expressions import replaced, value_of
from tilewise.compiler.type_names import size_of

_SHARED = "__shared__"
_ELEMENT_SIZES = (1, 2, 4, 8, 16)  # bytes that a type which is not known here may have
_VECTOR = re.compile(r"(?:(?:float|double|int|half)([234])|bfloat16(2))$")
_ALIAS = re.compile(r"\btypedef\s+([\w\s]+?)\s+(\w+)\s*;|\busing\s+(\w+)\s*=\s*([\w\s]+?)\s*;")


@dataclass(frozen=True)
class Shape:
    """The shape of a shared array, as far as it is certain.

    Attributes
    ----------
    element : int
        The size of an element in bytes.
    extents : tuple of int
        The extent of each dimension; empty for a single value, and if they are not certain.
    values : int
        The number of values in an element: 1, or those of a vector type as ``float4``; 0 if the
        type is not one of CUDA C++'s own.
    """

    element: int
    extents: tuple[int, ...]
    values: int


def shape_of(
    source: str,
    name: str,
    size: int,
    macros: Mapping[str, str],
    *,
    is_dynamic: bool = False,
    is_whole: bool = True,
) -> Shape | None:
    """Return the shape of the shared array ``name`` that has ``size`` bytes.

    Of several declarations with this name, each that may be compiled and may have this size counts:
    what they differ in is not certain.

    Parameters
    ----------
    source : str
        CUDA C++. An extent may contain what :func:`tilewise.compiler.expressions.value_of` takes.
    name : str
    size : int
        The size of the whole array in bytes.
    macros : mapping of str to str
        The macros that are given to the compiler.
    is_dynamic : bool
        Whether it is dynamic shared memory, whose first extent follows from the size.
    is_whole : bool
        Whether ``macros`` are all that are given.

    Returns
    -------
    Shape or None
        None if the size of an element is not certain.

    Examples
    --------
    >>> shape_of("__shared__ double s[T], t[4][T];", "t", 4 * 8 * 8, {"T": "8"})
    Shape(element=8, extents=(4, 8), values=1)
    """
    found: set[Shape | None] = set()
    text, defined = kept(source, _SHARED, macros, is_whole=is_whole)
    aliases = _aliases(text)
    for kind, extents, place in _declarations(text, name):
        if (extents[:1] == [""]) != is_dynamic:
            continue
        chosen = choices([kind, *extents], {**aliases, **defined[place]})
        if chosen is None or CUT in "".join([kind, *extents]):
            return None
        for values in chosen:
            found |= set(_fitting(kind, extents, values, size, is_dynamic=is_dynamic))
    certain = [each for each in found if each is not None]
    if len(certain) < len(found) or not certain:
        return None
    if len(certain) > 1:
        certain = list({replace(each, extents=()) for each in certain})
    return certain[0] if len(certain) == 1 else None


def of_compiled(
    compiled: Compiled, name: str, size: int, *, is_dynamic: bool = False
) -> Shape | None:
    """Return the :func:`shape_of` a shared array of a compiled kernel."""
    given = (macro.partition("=") for macro in compiled.macros)
    macros = {each: value if mark else "1" for each, mark, value in given}
    if not compiled.is_ptx:
        architecture = re.search(r"\d+", compiled.arch)
        macros = {
            "__CUDACC__": "1", "__CUDACC_RTC__": "1",
            **({"__CUDA_ARCH__": f"{architecture[0]}0"} if architecture else {}), **macros,
        }  # fmt: skip
    return shape_of(
        compiled.source, name, size, macros, is_dynamic=is_dynamic, is_whole=not compiled.is_ptx
    )


def _declarations(text: str, name: str) -> Iterator[tuple[str, list[str], int]]:
    """Yield the type, the extents and the number of each declaration of a shared variable.

    Type and extents are text; the first extent of dynamic shared memory is empty. The declarations
    of all shared variables are numbered through.
    """
    own = re.compile(rf"\b{re.escape(name)}\s*((?:\[[^\]]*\]\s*)+|(?=,|$))")
    for place, found in enumerate(re.finditer(rf"\b{_SHARED}\b", text)):
        end = text.find(";", found.end())
        statement = text[found.end() : len(text) if end < 0 else end]
        if declared := own.search(statement):
            extents = [each.strip() for each in re.findall(r"\[([^\]]*)\]", declared[1])]
            yield statement[: declared.start()].partition(",")[0], extents, place


def _fitting(
    kind: str, extents: list[str], values: Mapping[str, str], size: int, *, is_dynamic: bool
) -> Iterator[Shape | None]:
    """Yield the shape of a declaration that has ``size`` bytes, or may have it.

    None is yielded if the size of its elements is not known.
    """
    element, count = _plain_size(kind, values)
    known = [value_of(each, values) or 0 for each in extents[is_dynamic:]]
    each = math.prod(known)  # elements; of dynamic shared memory, of each of the first extent
    if each <= 0:
        if element is None or size % element == 0:
            yield None if element is None else Shape(element, (), count)
    elif is_dynamic:
        rows = 0 if element is None else size // (element * each)
        yield None if element is None else Shape(element, (rows, *known) if rows else (), count)
    elif element is None and size % each == 0:
        is_usual = size // each in _ELEMENT_SIZES
        yield Shape(size // each, tuple(known), 0) if is_usual else None
    elif size == each * (element or 0):
        yield Shape(size // each, tuple(known), count)


def _plain_size(kind: str, values: Mapping[str, str]) -> tuple[int | None, int]:
    """Return the bytes of a type and the number of its values; None and 0 if it is not known."""
    without_alignment = re.sub(r"\w+\s*\((?:[^()]|\([^()]*\))*\)", " ", kind)
    try:
        words = replaced(without_alignment, values)
    except ValueError:
        return None, 0
    known = " ".join(word for word in words if size_of(word) is not None)
    element = None if {"<", "*", "&"} & set(words) else size_of(known)
    vector = _VECTOR.search(known)
    return element, 0 if element is None else int(vector[1] or vector[2]) if vector else 1


def _aliases(text: str) -> dict[str, tuple[str, ...]]:
    """Return the types that a text gives other names, by these."""
    found: dict[str, tuple[str, ...]] = {}
    for match in _ALIAS.finditer(text):
        name = match[2] or match[3]
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), match[1] or match[4])))
    return found
