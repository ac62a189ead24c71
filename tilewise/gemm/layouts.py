"""Layouts of the structures that kernels take by value.

A structure is declared once, in the CUDA source of the kernel that takes it. This module reads that
declaration, computes the offset of each field (by C++'s rules, as the CUDA C++ Programming Guide
applies them to kernel parameters), and packs values by the fields' names into the bytes of a
launch. ``tests/gemm/test_layouts.py`` compares sizes and offsets with those of NVRTC.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tilewise.compiler import shipped
from tilewise.gemm.product import Operand
from tilewise.places import Packed, Place, TensorMap

# The format characters of ``struct`` for the scalar types; a field's alignment is its size.
_SCALARS = {
    "int": "i",
    "unsigned": "I",
    "unsigned int": "I",
    "unsigned short": "H",
    "long long": "q",
    "unsigned long long": "Q",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "float": "f",
    "double": "d",
}
TYPES = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float", "float64": "double"}
"""The kernels' names of the dtypes (convert.cuh), for the macros INPUT, OUTPUT and ACCUMULATE."""
_POINTER = "Q"
_TENSOR_MAP = "TensorMap"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Without ^ in front, it is tried only where there is a #, and not at every character.
_INCLUDE = re.compile(r'#\s*include\s*"([^"\n]+)"')
_FIRST = re.compile(r"(?:const\s+)?(.*?)\s*(\*?\s*\w+(?:\[\d+\])?)", re.ASCII)
_DECLARATOR = re.compile(r"\s*(\*?)\s*(\w+)(?:\[(\d+)\])?\s*", re.ASCII)
_DECLARED = re.compile(r"struct\s+(?:alignas\((\d+)\)\s*)?(\w+)\s*\{", re.ASCII)
_BRACE = re.compile(r"[{}]")
_TEMPLATE = re.compile(r"template\s*<([^<>]*)>\s*", re.ASCII)


@dataclass(frozen=True)
class Field:
    """A field of a structure.

    Attributes
    ----------
    name : str
    offset : int
        The bytes from the structure's beginning.
    format : str
        The character of Python's ``struct`` for a scalar or a pointer; empty for a structure.
    count : int
        The number of elements of an array; 0 if the field is not an array.
    is_pointer : bool
    size : int
        The bytes of the field, or of one element of an array.
    layout : Layout or None
        The layout of a field that is a structure itself.
    """

    name: str
    offset: int
    format: str
    count: int
    is_pointer: bool
    size: int
    layout: Layout | None


class _Run(NamedTuple):
    """Scalars that follow one another in a structure.

    Attributes
    ----------
    get : callable
        A function that returns their values in order.
    pointers : tuple of (str, int, int)
        The name, the index in the run, and the offset of each pointer.
    """

    get: Callable[[Mapping[str, Any]], Sequence[Any]]
    pointers: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Layout:
    """The offsets of a structure's fields, in the order of their declaration.

    Attributes
    ----------
    name : str
        The structure's name, without template arguments.
    size, alignment : int
        The size and the alignment, in bytes.
    fields : tuple of Field
        The fields; empty for a tensor map, whose bytes only the driver knows.
    """

    name: str
    size: int
    alignment: int
    fields: tuple[Field, ...]

    def pack(self, values: Mapping[str, Any]) -> Packed:
        """Return the structure's bytes with a value for each field.

        Parameters
        ----------
        values : mapping
            The values by the fields' names. A scalar takes a number; a pointer a :class:`Place`, or
            None for a null pointer; a tensor map a :class:`TensorMap` or None; a structure a
            mapping of its own, or None for zeros. An array, whose elements have to be structures,
            takes a sequence of up to as many values as it has elements; the other elements are
            zeros.

        Raises
        ------
        TypeError
            If a field has no value, or there are values for other fields.
        """
        numbers: list[int | float] = []
        places: list[tuple[int, Place]] = []
        maps: list[tuple[int, TensorMap]] = []
        self._collect(values, 0, numbers, places, maps)
        return Packed(self._bytes.pack(*numbers), tuple(places), tuple(maps))

    def _collect(
        self,
        values: Mapping[str, Any] | None,
        start: int,
        numbers: list[int | float],
        places: list[tuple[int, Place]],
        maps: list[tuple[int, TensorMap]],
    ) -> None:
        if values is None:
            numbers += [0] * self._count
            return
        if values.keys() != self._names:
            differing = sorted(values.keys() ^ self._names)
            raise TypeError(f"{self.name} has other fields than it is given: {differing}")
        for step in self._steps:
            if isinstance(step, _Run):
                first = len(numbers)
                numbers += step.get(values)
                for name, index, offset in step.pointers:
                    numbers[first + index] = 0
                    if values[name] is not None:
                        places.append((start + offset, values[name]))
                continue
            value, at, layout = values[step.name], start + step.offset, step.layout
            assert layout is not None
            for each in _elements(value, step.count) if step.count else (value,):
                if layout.name != _TENSOR_MAP:
                    layout._collect(each, at, numbers, places, maps)
                elif each is not None:
                    maps.append((at, each))
                at += step.size

    def scalars(self, start: int = 0) -> Iterator[tuple[str, int, str]]:
        """Yield the name of every scalar (as ``"copy[1].rows"``), its offset and its format."""
        for field in self.fields:
            for i in range(field.count or 1):
                name = f"{field.name}[{i}]" if field.count else field.name
                at = start + field.offset + i * field.size
                if field.layout is None:
                    yield name, at, field.format
                else:
                    for inner, offset, character in field.layout.scalars(at):
                        yield f"{name}.{inner}", offset, character

    @cached_property
    def _steps(self) -> tuple[_Run | Field, ...]:
        """The runs of scalars, and the structures and arrays, in the order of the fields.

        Only structures can be elements of arrays.
        """
        found: list[_Run | Field] = []
        run: list[Field] = []
        for field in self.fields:
            if field.layout is None:
                run.append(field)
                continue
            if run:
                found.append(_run(run))
                run = []
            found.append(field)
        return (*found, _run(run)) if run else tuple(found)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    @cached_property
    def _count(self) -> int:
        """The number of scalars in the structure."""
        return sum(1 for _ in self.scalars())

    @cached_property
    def _bytes(self) -> struct.Struct:
        format, end = "<", 0
        for _, offset, character in self.scalars():
            format += f"{offset - end}x{character}"
            end = offset + struct.calcsize(f"<{character}")
        return struct.Struct(f"{format}{self.size - end}x")


def _run(fields: Sequence[Field]) -> _Run:
    pointers = tuple((x.name, i, x.offset) for i, x in enumerate(fields) if x.is_pointer)
    first, *others = (x.name for x in fields)
    # For a single name, itemgetter returns no tuple.
    return _Run(itemgetter(first, *others) if others else lambda x: (x[first],), pointers)


def _elements(values: Any, count: int) -> list[Any]:
    if len(values) > count:
        raise TypeError(f"an array of {count} is given {len(values)} values")
    return [*values, *[None] * (count - len(values))]


def batched_matrix(x: Operand | None, place: Place | None) -> dict[str, Any] | None:
    """Return the fields of a BatchedMatrix (matrix.cuh); None, packed as zeros, for no matrix."""
    if x is None:
        return None
    return {
        "pointer": place, "row_stride": x.row_stride, "column_stride": x.column_stride,
        "batch_stride": x.batch_stride,
    }  # fmt: skip


@cache
def layout(file: Path, name: str, **types: str) -> Layout:
    """Return the layout of a structure that a CUDA source, or a header it includes, declares.

    Parameters
    ----------
    file : Path
    name : str
        The name of the structure.
    types : str
        C++ types, as in ``T="float"``, for the structure's template parameters and the macros in
        its declaration.

    Raises
    ------
    ValueError
        If there is no such structure, or this module can't read the declaration of a field.
    """
    return _layout(str(file), name, frozenset(types.items()))


class _Declaration(NamedTuple):
    """The declaration of a structure.

    Attributes
    ----------
    parameters : str
        The template's parameters; empty if it is no template.
    alignment : int
        The alignment by ``alignas``; 1 if there is none.
    source : str
        The text of the file, without comments.
    begin : int
        The index in ``source`` at which the text between the braces begins.
    """

    parameters: str
    alignment: int
    source: str
    begin: int

    @property
    def body(self) -> str:
        """The text between the braces, less inner ones."""
        return _body(self.source, self.begin)


def _declaration(path: str, name: str) -> _Declaration | None:
    """Return a structure's first declaration in a source and the headers that it includes.

    Return None if there is none. Headers that come later are not read.
    """
    seen: set[str] = set()
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            declared, headers = _read(each)
            if name in declared:
                return declared[name]
            waiting += reversed(headers)  # each with those that it includes, in their order
    return None


@cache
def _read(path: str) -> tuple[Mapping[str, _Declaration], list[str]]:
    """Return the structures that one file declares, and the paths of the headers it includes."""
    text = shipped.text(path)
    source = _COMMENT.sub(" ", Path(path).read_text(encoding="utf-8") if text is None else text)
    found: dict[str, _Declaration] = {}
    for each in _DECLARED.finditer(source):
        before = max(0, source.rfind("template", 0, each.start()))
        template = _TEMPLATE.fullmatch(source, before, each.start())
        parameters = template[1] if template else ""
        declared = _Declaration(parameters, int(each[1] or 1), source, each.end())
        found.setdefault(each[2], declared)
    # Not Path.resolve(), which asks the system about each folder of each path.
    folder = os.path.dirname(path)  # noqa: PTH120
    return found, [os.path.normpath(f"{folder}/{x}") for x in _INCLUDE.findall(source)]


@cache
def _layout(path: str, name: str, given: frozenset[tuple[str, str]]) -> Layout:
    declared, types = _declaration(path, name), dict(given)
    if declared is None:
        raise ValueError(f"no structure {name} is declared")
    if name == _TENSOR_MAP:
        ((_, _, _, count),) = _members(declared.body)
        return Layout(name, count, declared.alignment, ())
    fields: list[Field] = []
    end, alignment = 0, declared.alignment
    for type, pointer, member, count in _members(declared.body):
        format = _POINTER if pointer else _SCALARS.get(_resolved(type, types), "")
        inner = None if format else _structure(path, type, types)
        size = inner.size if inner else struct.calcsize(f"<{format}")
        own = inner.alignment if inner else size
        offset = -(-end // own) * own
        fields.append(Field(member, offset, format, count, pointer, size, inner))
        end, alignment = offset + size * (count or 1), max(alignment, own)
    return Layout(name, -(-end // alignment) * alignment, alignment, tuple(fields))


def _body(source: str, start: int) -> str:
    """Return the text from a brace, which ends at ``start``, to its partner, less inner braces."""
    depth, kept = 1, list[str]()
    for brace in _BRACE.finditer(source, start):
        if depth == 1:
            kept.append(source[start : brace.start()])
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return "".join(kept)
        if depth == 1:
            kept.append(";")
            start = brace.end()
    raise ValueError("a structure's declaration has no end")


def _members(body: str) -> Iterator[tuple[str, bool, str, int]]:
    """Yield the type, whether it is a pointer, the name and the array length of each field."""
    for statement in map(str.strip, body.split(";")):
        if not statement or "(" in statement or statement.startswith(("static", "using")):
            continue
        first, *others = statement.split(",")
        parts = _FIRST.fullmatch(first)
        found = [_DECLARATOR.fullmatch(each) for each in (parts[2] if parts else "", *others)]
        for each in found:
            if parts is None or each is None:
                raise ValueError(f"{statement!r} can't be read as fields")
            yield parts[1], bool(each[1]), each[2], int(each[3] or 0)


def _structure(path: str, type: str, types: Mapping[str, str]) -> Layout:
    """Return the layout of a field's type, which is no scalar."""
    name, _, arguments = type.partition("<")
    declared = _declaration(path, name)
    if declared is None:
        raise ValueError(f"{_resolved(type, types)!r} is a type of unknown size")
    given = [_resolved(each, types) for each in arguments.rstrip("> ").split(",") if each]
    parameters = [each.split()[-1] for each in declared.parameters.split(",") if each]
    return _layout(
        path, name, frozenset({**types, **dict(zip(parameters, given, strict=True))}.items())
    )


def _resolved(type: str, types: Mapping[str, str]) -> str:
    plain = type.replace("const", "").strip()
    return types.get(plain, plain)
