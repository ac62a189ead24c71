"""Read the shapes of shared arrays from their declarations in a source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilewise.compiler.compiled import Compiled, Shape
from tilewise.compiler.conditions import CUT, Bodies, choices, kept
from tilewise.compiler.enclosing import Enclosing
from tilewise.compiler.expressions import replaced, value_of
from tilewise.compiler.mangled import demangle, function_of, plain_name
from tilewise.compiler.type_names import components_of, is_integer, size_of

_SHARED = "__shared__"
_NO_DECLARATION = ("return", "case", "else", "sizeof", "goto", "throw", "do", "and", "or", "not")
_ELEMENT_SIZES = (1, 2, 4, 8, 16)  # bytes that are taken to be possible of an unknown type
_CONSTANT = "constexpr|const"
_INITIALISED = re.compile(r"(?:^|,)([\w\s$]*?)\b([\w$]+)\s*=([^,]*)")
_LONGEST = 1000  # characters of a declaration of constants
_NO_TYPE = ("extern", "static", "inline", "const", "__device__")
_ALIAS = re.compile(r"\btypedef ([^;]*) ([\w$]+) ?;|\busing ([\w$]+) ?= ?([^;]*);")
_FIRST_NAME = re.compile(r"[\w$]+\s*(?:\[[^\]]*\]\s*)*$")
_HIDDEN = re.compile(rf"(?:#|%:)[ \t]*define\b[^\n]*\b{_SHARED}\b")


def shape_of(
    source: str,
    name: str,
    size: int,
    macros: Mapping[str, str],
    *,
    is_dynamic: bool = False,
    is_whole: bool = True,
    function: str = "",
) -> Shape | None:
    """Return the shape of the shared array ``name`` that has ``size`` bytes.

    All declarations of this name that may be compiled, in this function, and may have this size are
    compared: what they differ in is not certain.

    Parameters
    ----------
    source : str
        CUDA C++. An extent may contain what :func:`tilewise.compiler.expressions.value_of` takes,
        and constant integers that the source defines.
    name : str
    size : int
        The size of the whole array in bytes.
    macros : mapping of str to str
        The macros that are given to the compiler.
    is_dynamic : bool
        Whether it is dynamic shared memory, whose first extent follows from the size.
    is_whole : bool
        Whether no others were given to the compiler.
    function : str
        The function that declares the array, with the arguments of its template:
        ``"many<8>"``; empty if it is not known.

    Returns
    -------
    Shape or None
        None if the size of an element is not certain.

    Examples
    --------
    >>> shape_of("__shared__ double s[T], t[4][T];", "t", 4 * 8 * 8, {"T": "8"})
    Shape(element=8, extents=(4, 8), values=1)
    >>> shape_of("template <int N> void f() { __shared__ int s[N][4]; }", "s", 32, {},
    ...          function="f<2>")
    Shape(element=4, extents=(2, 4), values=1)
    """
    if _HIDDEN.search(re.sub(r"\\\r?\n", " ", source)) or _SHARED in " ".join(macros.values()):
        return None  # a macro may declare an array of this name, too
    found: set[Shape | None] = set()
    text, defined = kept(source, _SHARED, macros, is_whole=is_whole)
    # Dynamic shared memory is not checked by its size, so what another scope declares won't do.
    names: Bodies = {}
    around = Enclosing(text, source, "" if is_dynamic else function)
    if not is_dynamic:
        constants = _constants(*kept(source, _CONSTANT, macros, is_whole=is_whole), around)
        names = {**_aliases(text), **constants}
    declared = list(_declarations(text, name))
    inside = [each for each in declared if around.may_be_inside(each[3], defined[each[2]])]
    for kind, extents, number, place in inside or declared:
        if CUT in "".join([kind, *extents]):
            return None
        if (extents[:1] == [""]) != is_dynamic:
            continue
        given = _of_template(around, place)
        chosen = choices([kind, *extents], {**names, **given, **defined[number]})
        if chosen is None:
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
    compiled: Compiled, symbol: str, size: int, *, is_dynamic: bool = False
) -> Shape | None:
    """Return the :func:`shape_of` a shared array of a compiled kernel, by its symbol in PTX.

    A shape that the kernel's compiler gave is taken as it is.
    """
    given = (macro.partition("=") for macro in compiled.macros)
    macros = {each: value if mark else "1" for each, mark, value in given}
    if not compiled.is_ptx:
        architecture = re.search(r"\d+", compiled.arch)
        macros = {
            "__CUDACC__": "1", "__CUDACC_RTC__": "1",
            **({"__CUDA_ARCH__": f"{architecture[0]}0"} if architecture else {}), **macros,
        }  # fmt: skip
    for each, shape in compiled.shapes:
        if each == symbol:
            return replace(shape, extents=(size // shape.element,)) if is_dynamic else shape
    function = demangle(function_of(symbol))
    return shape_of(
        compiled.source, plain_name(symbol), size, macros, is_dynamic=is_dynamic,
        is_whole=not compiled.is_ptx, function="" if function.startswith("_Z") else function,
    )  # fmt: skip


def _declarations(text: str, name: str) -> Iterator[tuple[str, list[str], int, int]]:
    """Yield the type, the extents, the number and the place of each declaration of a variable.

    Type and extents are text; the first extent of dynamic shared memory is empty, and one that is
    :data:`CUT` stands for a declaration that is not read. The number is that of its ``__shared__``
    among all of the text, and the place is where that word ends.
    """
    own = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])\s*((?:\[[^\]]*\]\s*)*)([,=]|$)?")
    for number, found in enumerate(re.finditer(rf"\b{_SHARED}\b", text)):
        end = text.find(";", found.end())
        statement = text[found.end() : len(text) if end < 0 else end]
        if "{" in statement:
            yield "", [CUT], number, found.end()
        elif declared := own.search(statement):
            before = statement[: declared.start()]
            kind = _FIRST_NAME.sub("", before.partition(",")[0]) if "," in before else before
            kind += "*" * before.rstrip().endswith("*")
            extents = [each.strip() for each in re.findall(r"\[([^\]]*)\]", declared[1])]
            yield kind, extents if declared[2] is not None else [CUT], number, found.end()


def _fitting(
    kind: str, extents: list[str], values: Mapping[str, str], size: int, *, is_dynamic: bool
) -> Iterator[Shape | None]:
    """Yield the shape of a declaration if it has ``size`` bytes, or may have them.

    It is None if the declaration fits and the size of its elements is not known.
    """
    element, count = _plain_size(kind, values)
    known = [max(0, value_of(each, values) or 0) for each in extents[is_dynamic:]]
    each = math.prod(known)  # elements; of dynamic shared memory, of each of the first extent
    if each == 0:
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
    without_alignment = re.sub(r"\b\w+\s*\((?:[^()]|\([^()]*\))*\)", " ", kind)
    try:
        words = replaced(without_alignment, values)
    except ValueError:
        return None, 0
    type = " ".join(word for word in words if word not in _NO_TYPE).replace(" : : ", "::")
    element = size_of(type) if re.fullmatch(r"[\w :]+(?:\* ?)*", type) else None
    return element, 0 if element is None else components_of(type)


def _of_template(around: Enclosing, place: int) -> dict[str, tuple[str | None, ...]]:
    """Return the value of each template parameter at a place; None if it is not certain."""
    found: dict[str, tuple[str | None, ...]] = {}
    for name, (type, value) in around.arguments(place).items():
        if type in ("typename", "class"):
            found[name] = (value,)
        elif type == "bool":
            found[name] = (value if value in ("true", "false") else None,)
        else:
            number = int(value) if re.fullmatch(r"-?\d+", value) else None
            words = [word for word in type.split() if word != "const"]
            found[name] = (_as_constant(number, words),)
    return found


def _constants(
    text: str, macros: Sequence[Bodies], around: Enclosing
) -> dict[str, tuple[str | None, ...]]:
    """Return the values that each constant integer of a text may have; None if it is not certain.

    The constants of functions that do not enclose the array are left out.

    Parameters
    ----------
    text : str
    macros : sequence of mapping
        The macros at each ``constexpr`` and ``const``, as :func:`.kept` returns them.
    around : Enclosing
    """
    found: dict[str, tuple[str | None, ...]] = {}
    places: set[int] = set()
    for there, word in zip(macros, re.finditer(rf"\b(?:{_CONSTANT})\b", text), strict=True):
        statement = text[word.end() : word.end() + _LONGEST]
        type: list[str] = []
        is_outside = not around.may_be_inside(word.end(), there)
        given = _of_template(around, word.end())
        for each in _INITIALISED.finditer(re.split("[;{}]", statement, maxsplit=1)[0]):
            if is_outside:
                places.add(word.end() + each.start(2))
                continue
            type = [word for word in each[1].split() if word not in _NO_TYPE] or type
            every = choices([each[3]], {**found, **given, **there})
            values = [_as_constant(value_of(each[3], one), type) for one in every or ()]
            found[each[2]] = tuple(dict.fromkeys((*found.get(each[2], ()), *(values or [None]))))
            places.add(word.end() + each.start(2))
    for name in _declared_otherwise(text, places) & found.keys():
        found[name] = (*found[name], None)
    return found


def _as_constant(value: int | None, type: Sequence[str]) -> str | None:
    """Return the text of a value of an integer type; None if the type does not hold it."""
    if value is None or not (is_integer(type) or list(type) == ["size_t"]):
        return None
    bits = 8 * (size_of(" ".join(type)) or 0)
    if "unsigned" in type or "size_t" in type:
        return f"({value}u)" if 0 <= value < 1 << bits else None
    return f"({value})" if bits and -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _declared_otherwise(text: str, places: set[int]) -> set[str]:
    """Return the names that may be declared other than at some places: also as a parameter."""
    found = {
        match[2]
        for match in re.finditer(r"\b(\w+)\s+(?=([\w$]+))", text)
        if match[1] not in _NO_DECLARATION and match.start(2) not in places
    }
    for enumerators in re.finditer(r"\benum\b[^;{}]*\{([^}]*)", text):
        found |= set(re.findall(r"[\w$]+", enumerators[1]))
    return found


def _aliases(text: str) -> dict[str, tuple[str, ...]]:
    """Return the types that each name of a ``typedef`` or ``using`` may stand for."""
    found: dict[str, tuple[str, ...]] = {}
    for match in _ALIAS.finditer(" ".join(text.split())):
        name = match[2] or match[3]
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), match[1] or match[4])))
    return found
