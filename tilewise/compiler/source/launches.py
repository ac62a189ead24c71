"""The launches that host code makes of kernels: where they stand, and of what extents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tilewise.compiler.source.instances import Finder, split_list
from tilewise.compiler.source.part import Files
from tilewise.compiler.source.tree import Text, nodes
from tilewise.compiler.source.values import Dim, Number, Place, Value, Values

MOST = 256
"""No more launches than these are read."""
_LONGEST = 60
"""Characters of an extent that are shown."""
_PLAIN_AROUND = (
    "translation_unit", "declaration_list", "namespace_definition", "linkage_specification",
)  # fmt: skip
"""What may stand around a function that is compiled in any case."""


@dataclass(frozen=True)
class HostLaunch:
    """One launch in the text of a file.

    Attributes
    ----------
    kernel : str
        What it launches, as ``"sgemm"``, or of a template ``"sgemm<64, 8>"`` where its arguments
        are written there and known.
    file : str
    line : int
        From 1.
    configuration : tuple of str
        What stands between ``<<<`` and ``>>>``.
    arguments : tuple of str
        The kernel's.
    """

    kernel: str
    file: str
    line: int
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    _values: Values = field(repr=False)
    _place: Place = field(repr=False)
    _around: Mapping[str, Value] = field(repr=False)

    @property
    def text(self) -> str:
        """Return it as the file has it, ``"<<<grid, 256>>>"``, what is long cut short."""
        shown = (x if len(x) <= _LONGEST else f"{x[:_LONGEST]}..." for x in self.configuration)
        return f"<<<{', '.join(shown)}>>>"

    def grid(self, given: Mapping[str, Number] | None = None) -> Dim | None:
        """Return blocks a grid, x first; None where only running the host code would tell.

        Parameters
        ----------
        given : mapping of str to number, optional
            What names in the host code stand for, whatever it says of them.
        """
        return self._extents(0, given)

    def block(self, given: Mapping[str, Number] | None = None) -> Dim | None:
        """Return threads a block, as :meth:`grid`."""
        return self._extents(1, given)

    def shared(self, given: Mapping[str, Number] | None = None) -> int | None:
        """Return bytes of dynamic shared memory; None where they are not known."""
        if len(self.configuration) < 3:
            return 0
        found = self._values.of(
            self.configuration[2], self._place, {**self._around, **(given or {})}
        )
        return int(found) if isinstance(found, int | float) else None

    def argument(self, index: int) -> Number | None:
        """Return the number that the kernel is given; None where it is none, or not known."""
        if index >= len(self.arguments):
            return None
        found = self._values.of(self.arguments[index], self._place, self._around)
        return None if isinstance(found, tuple) else found

    def _extents(self, index: int, given: Mapping[str, Number] | None) -> Dim | None:
        if index >= len(self.configuration):
            return None
        named = {**self._around, **(given or {})}
        return self._values.extents(self.configuration[index], self._place, named)


def is_of(launched: str, name: str) -> bool:
    """Return whether a launch of one name may be of the kernel of another, as far as both tell."""
    mine, asked = (each.replace(" ", "").partition("<") for each in (launched, name))
    paths = [f"::{each[0].removeprefix('::')}" for each in (mine, asked)]
    is_same = paths[0].endswith(paths[1]) or paths[1].endswith(paths[0])
    return is_same and (not mine[2] or not asked[2] or mine[2] == asked[2])


def has_host_launch(text: Text) -> bool:
    """Return whether a function launches a kernel in a place that is compiled in any case.

    NVRTC takes no launch in a function, unless the code is to be linked. What stands in a
    condition, a template, a lambda, a type or a call (of a macro, it may be) does not count.
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
    """Return the launches of some texts, in their order; of a template's instances, one each."""
    finder, values = Finder(files), Values(files)
    names = {id(text): name for name, text in files.texts.items()}
    found: dict[tuple[str, str, int], HostLaunch] = {}
    every = (each for several in finder.launches.values() for each in several)
    for node, text in islice(every, MOST):
        for each in _launches(node, text, names[id(text)], finder, values):
            found.setdefault((each.kernel, each.file, node.start_byte), each)
    order = list(files.texts)
    return [found[key] for key in sorted(found, key=lambda key: (order.index(key[1]), key[2]))]


def _launches(
    node: Any, text: Text, file: str, finder: Finder, values: Values
) -> Iterator[HostLaunch]:
    function = node.child_by_field_name("function")
    syntax = next(child for child in node.children if child.type == "kernel_call_syntax")
    configuration = tuple(text.spelled(c) for c in _listed(syntax))
    arguments = tuple(text.spelled(c) for c in _listed(node.child_by_field_name("arguments")))
    place = Place(node, text)
    for around in finder.around(node, text, 0):
        named = {name: values.of(value, place, {}) for name, value in around.items() if value}
        name, _, listed = finder.instance(function, text, around).partition("<")
        numbers = ((each, values.of(each, place, named)) for each in split_list(listed[:-1]))
        given = [str(value) if isinstance(value, int) else each for each, value in numbers]
        yield HostLaunch(
            f"{name}<{', '.join(given)}>" if listed else name, file, text.line(node.start_byte),
            configuration, arguments, values, place, named,
        )  # fmt: skip


def _listed(node: Any) -> list[Any]:
    return [] if node is None else [c for c in node.named_children if c.type != "comment"]
