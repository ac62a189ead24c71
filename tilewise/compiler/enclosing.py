"""What encloses a place of a source: a function, and the values of its template's parameters.

Functions and types are recognised by the text before their braces, without parsing C++. Where that
does not suffice, a place may be in any function, and no parameter has a value.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from tilewise.compiler.conditions import CUT

_BRACE = re.compile(r"[{};]")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_NO_FUNCTION = frozenset(("struct", "class", "union", "enum", "namespace"))
_TEMPLATE = re.compile(r"\btemplate\s*<")
_PART = re.compile(r"([\w$]+)(?:<([^<>]*)>)?")
_WITH_PARAMETERS = re.compile(r"(?:#|%:)[ \t]*define[ \t]+([\w$]+)\(")


class Enclosing:
    """What encloses the places of a text, by which those in one function are found.

    Parameters
    ----------
    text : str
        The lines that :func:`tilewise.compiler.conditions.kept` returns.
    source : str
        The whole source.
    function : str
        The function's name as :func:`tilewise.compiler.mangled.demangle` returns it, such as
        ``"ns::many<8>"``; empty if it is not known.
    """

    def __init__(self, text: str, source: str, function: str) -> None:
        # Where it is not known which branches are compiled, braces need not match.
        self._parts = _PART.findall(function) if CUT not in text else []
        self._macros = frozenset(_WITH_PARAMETERS.findall(source))
        self._begins: list[int] = []
        self._heads: list[tuple[str, ...]] = []
        if self._parts:
            for begin, heads in _opened(text):
                self._begins.append(begin)
                self._heads.append(heads)

    def may_be_inside(self, place: int, bodies: Mapping[str, Sequence[str | None]]) -> bool:
        """Return whether a place may be in the function, or in none.

        Parameters
        ----------
        place : int
        bodies : mapping
            The bodies that macros may have there.
        """
        heads = self._around(place)
        if not any("(" in head and _NO_FUNCTION.isdisjoint(_words(head)) for head in heads):
            return True
        words = {word for head in heads for word in _words(head)}
        for word in words & bodies.keys():
            words |= {each for body in bodies[word] if body for each in _words(body)}
        return self._parts[-1][0] in words or not words.isdisjoint(self._macros)

    def arguments(self, place: int) -> dict[str, tuple[str, str]]:
        """Return the type and the value of template parameters at a place, as they are written.

        The type of a parameter that is a type is ``"typename"`` or ``"class"``.
        """
        found: dict[str, tuple[str, str]] = {}
        for head in self._around(place):
            if (given := self._of_head(head)) is not None:
                found |= given
        return found

    def _around(self, place: int) -> tuple[str, ...]:
        at = bisect_right(self._begins, place)
        return self._heads[at - 1] if at else ()

    def _of_head(self, head: str) -> dict[str, tuple[str, str]] | None:
        """Return a head's template parameters; None if it has none, or they are not certain."""
        begun = list(_TEMPLATE.finditer(head))
        if len(begun) != 1:
            return None
        parameters, end = _listed(head, begun[0].end())
        rest = head[end:]
        fitting = [
            values
            for name, text in self._parts
            if text
            and len(values := text.split(", ")) == len(parameters)
            and re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$]|\s*<)", rest)
        ]
        if len(fitting) != 1:
            return None
        found = {}
        for parameter, value in zip(parameters, fitting[0], strict=True):
            *type, name = _WORD.findall(parameter.partition("=")[0]) or [""]
            if "..." in parameter or not type:
                return None
            found[name] = " ".join(type), value
        return found


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def _opened(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each place where a brace opens or closes, and the text before each open brace."""
    heads: tuple[str, ...] = ()
    last = 0
    for found in _BRACE.finditer(text):
        if found[0] == "{":
            heads = (*heads, text[last : found.start()])
        elif found[0] == "}":
            heads = heads[:-1]
        if found[0] != ";":
            yield found.end(), heads
        last = found.end()


def _listed(head: str, begin: int) -> tuple[list[str], int]:
    """Return the parameters of a template, whose list begins at a place, and where it ends."""
    found, depth = [""], 1
    for place in range(begin, len(head)):
        sign = head[place]
        depth += (sign in "<(") - (sign in ">)")
        if depth == 0:
            return found, place + 1
        if sign == "," and depth == 1:
            found.append("")
        else:
            found[-1] += sign
    return [], len(head)
