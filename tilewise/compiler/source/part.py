"""The part of a source that one kernel needs; the rest is left out, and lines keep their numbers.

From the kernel's own text on, each declaration is needed whose name stands in what is needed
already, in the names that macros stand for, too. That a name is the same does not make it the same
thing: what is needed by its name alone and does not compile may be left out after all
(:mod:`tilewise.compiler.extract`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tilewise.compiler.source import macros as preprocessor
from tilewise.compiler.source.declarations import Declaration, Reader, by_name
from tilewise.compiler.source.kernels import KernelDeclaration, kernels_of
from tilewise.compiler.source.macros import Macro
from tilewise.compiler.source.tree import Directive, Text, blank, parsed

_CONDITIONS = ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef")
# A macro that no header of the project defines.
_USUAL = frozenset(
    (*_CONDITIONS, "defined", "true", "false", "and", "or", "not", "NDEBUG", "WIN32", "WIN64",
     "MACOSX", "L", "UL", "LL", "ULL", "U")
)  # fmt: skip
MARK = b"#warning"
"""The replacement of an include that is left out, by which NVRTC's log shows whether it reached
that line. It is not longer than ``#include``, so the text keeps its length.
"""
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Files:
    """The texts that are read together: a source and its own headers.

    Attributes
    ----------
    texts : mapping of str to Text
        The texts, by their names in messages.
    macros : mapping of str to list of Macro
    declarations : tuple of Declaration
    """

    texts: Mapping[str, Text]
    macros: Mapping[str, Sequence[Macro]]
    declarations: tuple[Declaration, ...]

    @cached_property
    def by_name(self) -> dict[str, list[Declaration]]:
        """The declarations by the names that they declare."""
        return by_name(self.declarations)

    @cached_property
    def kernels(self) -> list[KernelDeclaration]:
        """The kernels, in the order of the texts."""
        return kernels_of(self.declarations, self.texts)


def read(texts: Mapping[str, str]) -> Files:
    """Read the declarations of texts.

    Raises
    ------
    ParserMissingError
        If the parser is not installed.
    """
    trees = {name: parsed(text) for name, text in texts.items()}
    macros: dict[str, list[Macro]] = {}
    for tree in trees.values():
        for name, found in preprocessor.defined_in(tree).items():
            macros.setdefault(name, []).extend(found)
    readers = (Reader(name, tree, macros) for name, tree in trees.items())
    return Files(trees, macros, tuple(each for one in readers for each in one.declarations()))


class Condition(NamedTuple):
    """A line on which a macro, which may have a default, decides what is compiled."""

    file: str
    line: int
    macro: str
    has_default: bool

    def may_follow(self, file: str, line: int) -> bool:
        """Whether an include there can decide it: a default before it holds whatever it defines."""
        return not (self.has_default and self.file == file and self.line < line)


@dataclass
class Part:
    """The part of some files that is kept for kernels.

    Attributes
    ----------
    files : Files
    kernels : sequence of KernelDeclaration
        The kernels that are asked for.
    words : set of str
        The names that are needed besides theirs.
    left_out : set of Declaration
        The declarations that are left out though their names are needed.
    needed : set of Declaration
        The declarations that are never left out again.
    refused : mapping of (str, int) to str
        Why an include is not read and is left out, by its text and line.
    """

    files: Files
    kernels: Sequence[KernelDeclaration]
    words: set[str]
    refused: Mapping[tuple[str, int], str] = field(default_factory=dict)
    left_out: set[Declaration] = field(default_factory=set)
    needed: set[Declaration] = field(default_factory=set)

    def kept(self) -> set[Declaration]:
        """Return the declarations that are needed."""
        own = [kernel.declaration for kernel in self.kernels]
        kept = {*own, *(each for each in self.files.declarations if each.is_always)} - self.left_out
        names = {name for each in kept for name in each.words} | self.words
        while True:
            names = preprocessor.words_behind(names, self.files.macros)
            more = {each for each in self.files.declarations
                    if each not in kept and self._is_needed(each, names)}  # fmt: skip
            if not more:
                return kept
            kept |= more
            names |= {name for each in more for name in each.words}

    def _is_needed(self, declaration: Declaration, names: set[str]) -> bool:
        if declaration in self.left_out or declaration.kind == "instantiation":
            return False
        if declaration.kind == "assertion":
            said = [name for name in declaration.words if name in self.files.by_name]
            return names.issuperset(said)
        return not (
            names.isdisjoint(declaration.names) and names.isdisjoint(declaration.with_names)
        )

    def texts(self) -> dict[str, str]:
        """Return the texts, with spaces for what is left out."""
        kept = self.kept()
        found = {}
        for name, text in self.files.texts.items():
            out = bytearray(text.data)
            gone = [e for e in self.files.declarations if e.file == name and e not in kept]
            gone += [m for e in kept if e.file == name for m in e.members if m in self.left_out]
            for each in gone:
                blank(out, each.start, each.end)
            for directive in text.directives:
                inside = any(e.start <= directive.start < e.end for e in gone)
                self._directive(out, directive, name, text, inside)
            found[name] = out.decode()
        return found

    def _directive(
        self, out: bytearray, directive: Directive, name: str, text: Text, is_inside: bool
    ) -> None:
        """Keep a directive, unless it includes what is not read, or is inside of what is
        left out.
        """
        if directive.word == "include" and (name, text.line(directive.start)) in self.refused:
            blank(out, directive.start, directive.end)
            out[directive.start : directive.start + len(MARK)] = MARK
        elif directive.word != "include" or not is_inside:
            out[directive.start : directive.end] = text.data[directive.start : directive.end]

    def conditions(self) -> Iterator[Condition]:
        """Yield where what is kept depends on a macro that no text defines, or only by default.

        A macro with a default counts if what is kept uses it, or if another condition tests it.
        """
        kept = self.kept()
        words = {name for each in kept for name in each.words} | self.words
        used = preprocessor.words_behind(words, self.files.macros)
        found = {name: preprocessor.defaults(text) for name, text in self.files.texts.items()}
        anyway = set[str]().union(*(names for names, _ in found.values()))
        for name, text in self.files.texts.items():
            gone = [e for e in self.files.declarations if e.file == name and e not in kept]
            for directive in text.directives:
                if directive.word not in _CONDITIONS:
                    continue
                if any(e.start <= directive.start < e.end for e in gone):
                    continue
                asked = preprocessor.words_asked(text, directive)
                for word in sorted(asked - _USUAL - anyway):
                    is_own = (word, directive.start) in found[name][1] and word not in used
                    if not word.startswith("_") and not is_own:
                        line = text.line(directive.start)
                        yield Condition(name, line, word, word in self.files.macros)

    def names_own_header(self, file: str, line: int) -> bool:
        """Return whether an include has its name in quotation marks."""
        return b'"' in self.files.texts[file].data.split(b"\n")[line - 1]

    def droppable(self, file: str, line: int) -> Iterable[Declaration]:
        """Return the declarations at a line that are needed only by name, and are not for
        the device.
        """
        for each in self.kept():
            if each.file != file or not each.has_line(line):
                continue
            members = [m for m in each.members if m.has_line(line) and not m.is_device]
            for found in members or [each]:
                if not (found.is_device or found in self.needed or found in self.left_out):
                    yield found


def words_of(text: str) -> set[str]:
    """Return the names in a text."""
    return set(_WORD.findall(text))
