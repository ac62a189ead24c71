"""The lines of a source that the preprocessor keeps, and the macros that are defined at them.

Conditions are decided by the macros that are given to the compiler and those that the source
defines. Where they can't be decided, as by a macro that an included header may define, each branch
may be the one that is compiled.

Source: ISO C++20 15.2 (conditional inclusion), 15.6 (macro replacement).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tilewise.compiler.expressions import names_in, value_of

CUT = "\0"
"""Marks, in the text that :func:`kept` returns, a directive whose condition can't be decided."""
Bodies = Mapping[str, Sequence[str | None]]
"""The bodies that each macro may have, as :func:`.value_of` takes them; None if it has none."""
# Raw strings, comments, strings and character literals.
_LEFT_OUT = re.compile(
    r"R\"(\w*)\(.*?\)\1\"|//[^\n]*|/\*.*?(?:\*/|\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"\s*(?:#|%:)\s*(\w*)\s*(.*)")
# What NVRTC defines itself: names that begin with an underscore, and those of its own headers.
_OF_NVRTC = re.compile(
    r"_|cuda|CUDA|M_|NULL$|NAN$|INFINITY$|HUGE_VAL|EXIT_|RAND_MAX$|assert$|\w+_(?:BIT|MAX|MIN)$"
)
_MOST_CHOICES = 64  # combinations of the bodies that macros may have


def kept(
    source: str, pattern: str, given: Mapping[str, str], *, is_whole: bool = True
) -> tuple[str, list[Bodies]]:
    """Return the lines of a source that are compiled or may be, and the macros that hold there.

    Parameters
    ----------
    source : str
        CUDA C++.
    pattern : str
        The regular expression of the identifiers at which the macros are wanted, such as
        ``"__shared__"``.
    given : mapping of str to str
        The macros that are given to the compiler.
    is_whole : bool
        Whether no others were given to the compiler; if False, a name that the source does not
        define may be a macro.

    Returns
    -------
    text : str
        The lines without comments, strings and directives. A directive whose condition can't be
        decided is a :data:`CUT`.
    macros : list of mapping
        For each of these identifiers in the text, the bodies that macros may have there.
    """
    plain = _LEFT_OUT.sub(
        lambda found: '""' if found[0][0] in '"R' else " ", re.sub(r"\\\r?\n", "", source)
    )
    reader = _Preprocessor(given, is_whole)
    asked = re.compile(rf"\b(?:{pattern})\b")
    lines: list[str] = []
    macros: list[Bodies] = []
    for line in re.split(r"\r?\n", plain):
        if found := _DIRECTIVE.match(line):
            lines.append(CUT if reader.read(found[1], found[2].strip()) else "")
        elif reader.is_kept is not False:
            lines.append(line)
            if count := len(asked.findall(line)):
                macros += [reader.possible] * count
    return "\n".join(lines), macros


def choices(texts: Iterable[str], bodies: Bodies) -> list[dict[str, str]] | None:
    """Return each choice of a body for the macros that some texts name; None if there are too many.

    Several may be possible of a macro that is defined under a condition that can't be decided; a
    choice in which it is undefined is without it.
    """
    names = sorted(set().union(*(names_in(text, bodies) for text in texts)))
    if math.prod(len(bodies[name]) for name in names) > _MOST_CHOICES:
        return None
    found = product(*(bodies[name] for name in names))
    return [
        {name: body for name, body in zip(names, chosen, strict=True) if body is not None}
        for chosen in found
    ]


class _Level:
    """A condition that is open.

    Attributes
    ----------
    around : bool or None
        Whether the lines around it are kept; None if it is not known.
    is_kept, was_kept : bool or None
        Whether the present branch is kept if they are, and whether one was so far.
    defined : set of str
        The macros that the present branch has defined.
    """

    def __init__(self, around: bool | None, is_kept: bool | None) -> None:
        self.around = around
        self.is_kept = self.was_kept = is_kept
        self.defined: set[str] = set()
        self._in_each: set[str] | None = None  # the macros that each branch so far defined

    def next_branch(self, is_true: bool | None) -> None:
        """Enter the next branch; ``is_true`` is its own condition."""
        self._leave_branch()
        if self.was_kept is True or is_true is False:
            self.is_kept = False
            return
        self.is_kept = is_true if self.was_kept is False else None
        self.was_kept = True if is_true else None

    def end(self) -> set[str]:
        """Return the macros that are defined whichever branch is kept."""
        self._leave_branch()
        return (self._in_each or set()) if self.was_kept else set()

    def _leave_branch(self) -> None:
        if self.is_kept is not False:
            before = self.defined if self._in_each is None else self._in_each
            self._in_each = before & self.defined
        self.defined = set()


class _Preprocessor:
    """The preprocessor's state at a line.

    Attributes
    ----------
    bodies : dict of str to tuple of str
        The bodies that each macro may have; the key of one with parameters ends in a bracket.
    """

    def __init__(self, given: Mapping[str, str], is_whole: bool) -> None:
        self.bodies: dict[str, tuple[str, ...]] = {}
        for each, body in given.items():
            name, bracket, parameters = each.partition("(")
            self.bodies[name + bracket] = (f"{parameters} {body}" if bracket else body,)
        self._unsure: set[str] = set()  # macros that may be undefined
        self._is_whole = is_whole  # whether nothing else may have defined macros
        self._levels: list[_Level] = []

    @property
    def possible(self) -> Bodies:
        """The bodies of the macros here, and None for those that may be undefined."""
        return {
            key: (*bodies, None) if key.rstrip("(") in self._unsure else bodies
            for key, bodies in self.bodies.items()
        }

    @property
    def is_kept(self) -> bool | None:
        """Whether lines are kept here; None if that is not known."""
        if not self._levels:
            return True
        both = self._levels[-1].around, self._levels[-1].is_kept
        return False if False in both else None if None in both else True

    def read(self, word: str, rest: str) -> bool:
        """Read a directive; return whether a branch begins or ends that may not be compiled."""
        before = self.is_kept
        if word in ("if", "ifdef", "ifndef"):
            self._levels.append(_Level(before, before is not False and self._condition(word, rest)))
            return self.is_kept is None
        if word in ("elif", "elifdef", "elifndef", "else") and self._levels:
            is_true = True if word == "else" else self._condition(word.removeprefix("el"), rest)
            self._levels[-1].next_branch(is_true)
            return None in (before, self.is_kept)
        if word == "endif" and self._levels:
            self._define(self._levels.pop().end())
            return before is None
        if before is not False:
            self._change(word, rest)
        return False

    def _define(self, names: set[str]) -> None:
        """Note that macros are defined here, if the lines here are compiled."""
        if self.is_kept:
            self._unsure -= names
        elif self._levels:
            self._levels[-1].defined |= names

    def _condition(self, word: str, rest: str) -> bool | None:
        """Return whether a condition is true; None if it can't be decided."""
        if word != "if":
            name = re.match(r"[\w$]*", rest)
            known = self._is_defined(name[0] if name else "")
            return None if known is None else known == (word == "ifdef")
        if {key.rstrip("(") for key in names_in(rest, self.bodies)} & self._unsure:
            return None
        every = choices([rest], self.bodies)
        found = {value_of(rest, each, self._is_defined) for each in every or ()}
        truths = {None if value is None else bool(value) for value in found}
        return truths.pop() if len(truths) == 1 else None

    def _is_defined(self, name: str) -> bool | None:
        if name in self._unsure:
            return None
        if name in self.bodies or f"{name}(" in self.bodies:
            return True
        return False if self._is_whole and not _OF_NVRTC.match(name) else None

    def _change(self, word: str, rest: str) -> None:
        """Read a directive that changes macros."""
        is_kept = self.is_kept
        if word in ("include", "include_next", "import"):
            self._is_whole = False
        if word == "pragma" and "_macro" in rest:  # push_macro, pop_macro
            self._unsure |= {key.rstrip("(") for key in self.bodies}
        name, bracket, body = re.match(r"([\w$]*)(\(?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        if word == "undef":
            if is_kept:
                self._forget(name)
                self._unsure.discard(name)
            elif self._is_defined(name) is not False:
                self._unsure.add(name)
            for level in self._levels:
                level.defined.discard(name)
        if word != "define":
            return
        if self._is_defined(name) is not True:
            self._unsure.add(name)
        self._define({name})
        if is_kept:
            self._forget(name)
        key = name + bracket
        self.bodies[key] = tuple(dict.fromkeys((*self.bodies.get(key, ()), body.strip())))

    def _forget(self, name: str) -> None:
        for key in (name, f"{name}("):
            self.bodies.pop(key, None)
