"""The lines of a source that the preprocessor keeps, and the macros that hold there.

Conditions are decided by the macros that are given to the compiler and those that the source
defines. Where they can't be decided, as by a macro that an included header may define, each side
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
"""What stands in a text in place of a directive whose condition can't be decided."""
Bodies = Mapping[str, Sequence[str]]
"""The bodies that each macro without parameters may have."""
_LEFT_OUT = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'", re.DOTALL
)
_DIRECTIVE = re.compile(r"\s*#\s*(\w*)\s*(.*)")
_MOST_CHOICES = 64  # combinations of the bodies that macros may have


def kept(
    source: str, word: str, given: Mapping[str, str], *, is_whole: bool = True
) -> tuple[str, list[Bodies]]:
    """Return the lines of a source that are compiled or may be, and the macros that hold there.

    Parameters
    ----------
    source : str
        CUDA C++.
    word : str
        A word of C++, such as ``"__shared__"``.
    given : mapping of str to str
        The macros that are given to the compiler.
    is_whole : bool
        Whether ``given`` are all of them.

    Returns
    -------
    text : str
        The lines without comments, strings and directives. A directive whose condition can't be
        decided is a :data:`CUT`.
    macros : list of mapping
        For each occurrence of the word in the text, the bodies that macros may have there.
    """
    plain = _LEFT_OUT.sub(
        lambda found: '""' if found[0][0] == '"' else " ", re.sub(r"\\\r?\n", "", source)
    )
    reader = _Reader(given, is_whole)
    asked = re.compile(rf"\b{re.escape(word)}\b")
    lines: list[str] = []
    macros: list[Bodies] = []
    for line in plain.splitlines():
        if found := _DIRECTIVE.match(line):
            lines.append(CUT if reader.read(found[1], found[2].strip()) else "")
        elif reader.is_kept is not False:
            lines.append(line)
            macros += [dict(reader.bodies)] * len(asked.findall(line))
    return "\n".join(lines), macros


def choices(texts: Iterable[str], bodies: Bodies) -> list[dict[str, str]] | None:
    """Return each choice of a body for the macros that some texts name; None if there are too many.

    Several may be possible of a macro that is defined under a condition that can't be decided.
    """
    names = sorted(set().union(*(names_in(text, bodies) for text in texts)))
    if math.prod(len(bodies[name]) for name in names) > _MOST_CHOICES:
        return None
    found = product(*(bodies[name] for name in names))
    return [dict(zip(names, chosen, strict=True)) for chosen in found]


class _Level:
    """A condition that is open: whether its present side is kept, and whether an earlier one was.

    Both are None if they are not known.
    """

    def __init__(self, is_kept: bool | None) -> None:
        self.is_kept = self.was_kept = is_kept

    def turn(self, is_true: bool | None) -> None:
        """Go on to the next side, whose own condition is given."""
        if self.was_kept is True or is_true is False:
            self.is_kept = False
            return
        self.is_kept = is_true if self.was_kept is False else None
        self.was_kept = True if is_true else None


class _Reader:
    """The preprocessor's state at a line.

    Attributes
    ----------
    bodies : dict of str to tuple of str
        The bodies that each macro without parameters may have.
    """

    def __init__(self, given: Mapping[str, str], is_whole: bool) -> None:
        self.bodies: dict[str, tuple[str, ...]] = {
            name: (body,) for name, body in given.items() if "(" not in name
        }
        self._with_parameters = {name.partition("(")[0] for name in given if "(" in name}
        self._unsure: set[str] = set()  # macros that may be undefined
        self._is_whole = is_whole  # whether nothing else may have defined macros
        self._levels: list[_Level] = []

    @property
    def is_kept(self) -> bool | None:
        """Whether lines are kept here; None if that is not known."""
        sides = {level.is_kept for level in self._levels}
        return False if False in sides else None if None in sides else True

    def read(self, word: str, rest: str) -> bool:
        """Read a directive; return whether it parts lines of which either may be kept."""
        if word in ("if", "ifdef", "ifndef"):
            self._levels.append(_Level(self._condition(word, rest)))
            return self.is_kept is None
        if word in ("elif", "elifdef", "elifndef", "else") and self._levels:
            before = self.is_kept
            is_true = True if word == "else" else self._condition(word.removeprefix("el"), rest)
            self._levels[-1].turn(is_true)
            return None in (before, self.is_kept)
        if word == "endif" and self._levels:
            before = self.is_kept
            self._levels.pop()
            return before is None
        if self.is_kept is not False:
            self._change(word, rest)
        return False

    def _condition(self, word: str, rest: str) -> bool | None:
        """Return whether a condition is true; None if it can't be decided."""
        if word != "if":
            name = re.match(r"\w*", rest)
            known = self._is_defined(name[0] if name else "")
            return None if known is None else known == (word == "ifdef")
        if names_in(rest, self.bodies) & self._unsure:
            return None
        every = choices([rest], self.bodies)
        found = {value_of(rest, each, self._is_defined) for each in every or ()}
        truths = {None if value is None else bool(value) for value in found}
        return truths.pop() if len(truths) == 1 else None

    def _is_defined(self, name: str) -> bool | None:
        if name in self._unsure:
            return None
        if name in self.bodies or name in self._with_parameters:
            return True
        # The compiler's own macros begin with an underscore.
        return False if self._is_whole and not name.startswith("_") else None

    def _change(self, word: str, rest: str) -> None:
        """Read a directive that changes macros."""
        is_kept = self.is_kept
        if word in ("include", "include_next", "import"):
            self._is_whole = False
        name, arguments, body = re.match(r"(\w*)(\(?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        if word == "undef":
            if is_kept:
                self.bodies.pop(name, None)
                self._with_parameters.discard(name)
                self._unsure.discard(name)
            elif self._is_defined(name) is not False:
                self._unsure.add(name)
        if word != "define":
            return
        if is_kept:
            self._unsure.discard(name)
        elif self._is_defined(name) is not True:
            self._unsure.add(name)
        if arguments:
            self._with_parameters.add(name)
            return
        others = () if is_kept else self.bodies.get(name, ())
        self.bodies[name] = tuple(dict.fromkeys((*others, body.strip())))
