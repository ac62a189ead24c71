"""The launches of kernels in a file's host code: their lines, grids, blocks and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from tilewise.compiler.source.declarations import declarator_of
from tilewise.compiler.source.instances import Finder, split_list
from tilewise.compiler.source.part import Files
from tilewise.compiler.source.scopes import visible
from tilewise.compiler.source.tree import Text, nodes
from tilewise.compiler.source.values import Dim, Number, Place, Value, Values

MOST = 256
"""The most launches that are read."""
_LONGEST = 60
"""The most characters of a grid or a block that are shown."""
_COOPERATIVE = "cudaLaunchCooperativeKernel"
_CASTS = (b"reinterpret_cast", b"static_cast", b"const_cast")
_PLAIN_AROUND = (
    "translation_unit", "declaration_list", "namespace_definition", "linkage_specification",
)  # fmt: skip
"""The nodes that may surround a function that is compiled in any case."""


@dataclass(frozen=True)
class HostLaunch:
    """A launch in the text of a file.

    Attributes
    ----------
    kernel : str
        The kernel's name, such as ``"sgemm"``; for a template ``"sgemm<64, 8>"``, if the launch
        names the arguments and their values are known.
    file : str
    line : int
        The line, counted from 1.
    configuration : tuple of str
        The text between ``<<<`` and ``>>>``.
    arguments : tuple of str
        The kernel's arguments; for a cooperative launch, if its array of them is written out.
    is_cooperative : bool
        Whether ``cudaLaunchCooperativeKernel`` launches it.
    """

    kernel: str
    file: str
    line: int
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    _values: Values = field(repr=False)
    _place: Place = field(repr=False)
    _around: Mapping[str, Value] = field(repr=False)
    is_cooperative: bool = False

    @property
    def text(self) -> str:
        """The configuration as in the file, ``"<<<grid, 256>>>"``, with long parts cut.

        For a cooperative launch it is ``"cudaLaunchCooperativeKernel(kernel, grid, 256, ...)"``.
        """
        shown = [x if len(x) <= _LONGEST else f"{x[:_LONGEST]}..." for x in self.configuration]
        if self.is_cooperative:
            return f"{_COOPERATIVE}({', '.join([self.kernel, *shown[:2]])}, ...)"
        return f"<<<{', '.join(shown)}>>>"

    def grid(self, given: Mapping[str, Number] | None = None) -> Dim | None:
        """Return the blocks of the grid, x first; None if not known, or if an extent is below 1.

        Parameters
        ----------
        given : mapping of str to number, optional
            Values of names in the host code, which take the place of the values found there.
        """
        return _if_possible(self._extents(0, given))

    def block(self, given: Mapping[str, Number] | None = None) -> Dim | None:
        """Return the threads of a block, x first, as :meth:`grid` does."""
        return _if_possible(self._extents(1, given))

    def refused(self) -> str:
        """Return why CUDA refuses the launch, from constants alone; empty if it may run."""
        each = (("grid", self._extents(0, None)), ("block", self._extents(1, None)))
        wrong = [
            f"its {what} is {re.sub('( x 1)+$', '', ' x '.join(map(str, extents)))}"
            for what, extents in each
            if extents is not None and min(extents) < 1
        ]
        return f"{' and '.join(wrong)}, where each extent must be at least 1" if wrong else ""

    def shared(self, given: Mapping[str, Number] | None = None) -> int | None:
        """Return bytes of dynamic shared memory; None where they are not known."""
        if len(self.configuration) < 3:
            return 0
        found = self._values.of(
            self.configuration[2], self._place, {**self._around, **(given or {})}
        )
        return int(found) if isinstance(found, int | float) else None

    def argument(self, index: int) -> Number | None:
        """Return an argument's number; None if it is not a number, or is not known."""
        if index >= len(self.arguments):
            return None
        found = self._values.of(self.arguments[index], self._place, self._around)
        return None if isinstance(found, tuple) else found

    def _extents(self, index: int, given: Mapping[str, Number] | None) -> Dim | None:
        if index >= len(self.configuration):
            return None
        named = {**self._around, **(given or {})}
        return self._values.extents(self.configuration[index], self._place, named)


def _if_possible(extents: Dim | None) -> Dim | None:
    return extents if extents is not None and min(extents) > 0 else None


def is_of(launched: str, name: str) -> bool:
    """Return whether a launch of ``launched`` may be one of the kernel ``name``.

    Either may lack its namespace, or its template's arguments.
    """
    mine, asked = (each.replace(" ", "").partition("<") for each in (launched, name))
    paths = [f"::{each[0].removeprefix('::')}" for each in (mine, asked)]
    is_same = paths[0].endswith(paths[1]) or paths[1].endswith(paths[0])
    return is_same and (not mine[2] or not asked[2] or mine[2] == asked[2])


def has_host_launch(text: Text) -> bool:
    """Return whether a function launches a kernel in code that is compiled in any case.

    NVRTC refuses a launch in a function, unless the code is to be linked. A launch in an ``#if``, a
    template, a lambda, a class or the arguments of a call (which may be a macro's) does not count.
    """
    return any(
        node.type == "kernel_call_syntax" and _is_compiled(node, text) for node in nodes(text.root)
    )


def _is_compiled(node: Any, text: Text) -> bool:
    before = [each.word for each in text.directives if each.start < node.start_byte]
    if sum((word.startswith("if")) - (word == "endif") for word in before):
        return False
    while node.type != "function_definition":
        node = node.parent
        if node is None or node.type in ("lambda_expression", "argument_list"):
            return False
    while (node := node.parent) is not None:
        if node.type not in _PLAIN_AROUND:
            return False
    return True


def launches(files: Files) -> list[HostLaunch]:
    """Return the launches in some texts, in their order; in a template, one for each instance."""
    finder, values = Finder(files), Values(files)
    names = {id(text): name for name, text in files.texts.items()}
    found: dict[tuple[str, str, int], HostLaunch] = {}
    every = chain(
        (_triple(*each) for several in finder.launches.values() for each in several),
        (each for text in files.texts.values() for each in _cooperative(text)),
    )
    for call in islice(every, MOST):
        node = call.place.node
        for each in _launches(call, names[id(call.place.text)], finder, values):
            found.setdefault((each.kernel, each.file, node.start_byte), each)
    order = list(files.texts)
    return [found[key] for key in sorted(found, key=lambda key: (order.index(key[1]), key[2]))]


@dataclass(frozen=True)
class _Call:
    """A launch as it is written: where, of what, and with what."""

    place: Place
    function: Any
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    is_cooperative: bool = False


def _triple(node: Any, text: Text) -> _Call:
    """Return a launch by ``<<<grid, block>>>``."""
    syntax = next(child for child in node.children if child.type == "kernel_call_syntax")
    configuration = tuple(text.spelled(c) for c in _listed(syntax))
    arguments = tuple(text.spelled(c) for c in _listed(node.child_by_field_name("arguments")))
    function = node.child_by_field_name("function")
    return _Call(Place(node, text), function, configuration, arguments)


def _cooperative(text: Text) -> Iterator[_Call]:
    """Yield launches by ``cudaLaunchCooperativeKernel(kernel, grid, block, args, shared, ...)``."""
    for node in nodes(text.root):
        if node.type != "call_expression" or _COOPERATIVE.encode() not in node.text:
            continue
        if text.spelled(node.child_by_field_name("function") or node) != _COOPERATIVE:
            continue
        given = _listed(node.child_by_field_name("arguments"))
        if len(given) < 3:
            continue
        function = _behind(given[0])
        if function.type not in ("identifier", "qualified_identifier", "template_function"):
            continue
        configuration = tuple(text.spelled(each) for each in (*given[1:3], *given[4:5]))
        arguments = _pointed_at(given[3], text) if len(given) > 3 else ()
        yield _Call(Place(node, text), function, configuration, arguments, is_cooperative=True)


def _behind(node: Any) -> Any:
    """Return what follows casts and ``&``: ``k`` in ``(void*)&k``."""
    while True:
        inner = None
        if node.type == "cast_expression":
            inner = node.child_by_field_name("value")
        elif node.type == "pointer_expression":
            inner = node.child_by_field_name("argument")
        elif node.type == "parenthesized_expression":
            inner = next(iter(_listed(node)), None)
        elif node.type == "call_expression":
            function = node.child_by_field_name("function")
            given = _listed(node.child_by_field_name("arguments"))
            if function.text.partition(b"<")[0] in _CASTS and len(given) == 1:
                inner = given[0]
        if inner is None:
            return node
        node = inner


def _pointed_at(node: Any, text: Text) -> tuple[str, ...]:
    """Return the arguments whose addresses an array holds; empty if it is not written out."""
    word = text.spelled(node)
    for declaration in visible(node, ("declaration",)):
        for declarator in declaration.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value")
            name = declarator_of(declarator)
            if name is None or text.spelled(name) != word:
                continue
            if value is None or value.type != "initializer_list":
                return ()
            return tuple(text.spelled(_behind(each)) for each in _listed(value))
    return ()


def _launches(call: _Call, file: str, finder: Finder, values: Values) -> Iterator[HostLaunch]:
    place, (node, text) = call.place, (call.place.node, call.place.text)
    for around in finder.around(node, text, 0):
        named = {name: values.of(value, place, {}) for name, value in around.items() if value}
        name, _, listed = finder.instance(call.function, text, around).partition("<")
        numbers = ((each, values.of(each, place, named)) for each in split_list(listed[:-1]))
        given = [str(value) if isinstance(value, int) else each for each, value in numbers]
        yield HostLaunch(
            f"{name}<{', '.join(given)}>" if listed else name, file, text.line(node.start_byte),
            call.configuration, call.arguments, values, place, named, call.is_cooperative,
        )  # fmt: skip


def _listed(node: Any) -> list[Any]:
    return [] if node is None else [c for c in node.named_children if c.type != "comment"]
