"""The macros of a text and their expansions, as far as a reader of declarations needs them.

Conditions are not evaluated: if a macro is defined in several places, all its bodies count when
names are searched for, and the first one when it is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewise.compiler.expressions import arguments_of
from tilewise.compiler.source.tree import Directive, Text

_DEFINE = re.compile(r"\s*#\s*define\s+([A-Za-z_]\w*)(\(([^)]*)\))?\s*(.*)", re.DOTALL)
_TOKEN = re.compile(
    r'[A-Za-z_]\w*|\.?\d(?:[\w.\']|[eEpP][+-])*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
    r"|\#\#|<<<|>>>|::|->|\S",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_MOST_TOKENS = 20_000
"""The most tokens of an expanded text; beyond it, macros stay as they are."""


@dataclass(frozen=True)
class Macro:
    """A definition of a macro; ``parameters`` is None if it takes no arguments."""

    parameters: tuple[str, ...] | None
    body: tuple[str, ...]

    @property
    def words(self) -> frozenset[str]:
        """The names in it."""
        return frozenset(filter(_WORD.fullmatch, self.body)) - set(self.parameters or ())


def defined_in(text: Text) -> dict[str, list[Macro]]:
    """Return the macros that a text defines."""
    found: dict[str, list[Macro]] = {}
    for directive in text.directives:
        if directive.word == "define" and (one := _defined(text, directive)):
            found.setdefault(one[0], []).append(one[1])
    return found


def _defined(text: Text, directive: Directive) -> tuple[str, Macro] | None:
    line = text.data[directive.start : directive.end].decode(errors="replace")
    line = re.sub(r"//[^\n]*|/\*.*?\*/", " ", line.replace("\\\n", " "), flags=re.DOTALL)
    match = _DEFINE.fullmatch(line)
    if match is None:
        return None
    parameters = (
        None if match[2] is None else tuple(filter(None, map(str.strip, match[3].split(","))))
    )
    return match[1], Macro(parameters, tokens_of(match[4]))


def words_asked(text: Text, directive: Directive) -> set[str]:
    """Return the names in a directive, its own word among them; those of its comments left out."""
    line = text.data[directive.start : directive.end].decode(errors="replace")
    return set(_WORD.findall(re.sub(r"//[^\n]*|/\*.*?\*/", " ", line.partition("#")[2])))


def defaults(text: Text) -> tuple[set[str], set[tuple[str, int]]]:
    """Return the macros that a text always defines, and those that it defines by default.

    Returns
    -------
    anyway : set of str
        The macros with a definition that is not within a condition on the macro itself; include
        guards too.
    asked : set of (str, int)
        The macros with a definition within a condition on the macro itself, such as
        ``#ifndef SCALE``, and the place of each directive of that condition.
    """
    anyway: set[str] = set()
    asked: set[tuple[str, int]] = set()
    groups: list[list[Directive]] = []  # the directives of each open condition so far
    for directive in text.directives:
        if directive.word in ("if", "ifdef", "ifndef"):
            groups.append([directive])
        elif directive.word.startswith("el") and groups:
            groups[-1].append(directive)
        elif directive.word == "endif" and groups:
            groups.pop()
        elif directive.word == "define" and (found := _defined(text, directive)):
            name = found[0]
            asking = [
                (name, each.start)
                for group in groups
                if any(name in words_asked(text, one) for one in group)
                for each in group
            ]
            if asking and not _is_guard(text, directive):
                asked.update(asking)
            else:
                anyway.add(name)
    return anyway, asked


def _is_guard(text: Text, directive: Directive) -> bool:
    """Return whether a definition is an include guard's: empty, in a condition around all."""
    first, *rest = (each for each in text.directives if each.word != "pragma")
    found, last = _defined(text, directive), text.directives[-1]
    return (
        found is not None
        and not found[1].body
        and first.word in ("if", "ifndef")
        and rest[0] == directive
        and last.word == "endif"
        and all(first.end <= token.start < last.start for token in text.tokens)
    )


def tokens_of(text: str) -> tuple[str, ...]:
    """Return the preprocessor's tokens of a text without comments."""
    return tuple(_TOKEN.findall(text))


def words_behind(words: Iterable[str], macros: Mapping[str, Sequence[Macro]]) -> set[str]:
    """Return names, and all names in the expansions of the macros among them."""
    seen: set[str] = set()
    waiting = list(words)
    while waiting:
        word = waiting.pop()
        if word not in seen:
            seen.add(word)
            waiting += (each for macro in macros.get(word, ()) for each in macro.words)
    return seen


def expanded(text: str, macros: Mapping[str, Sequence[Macro]]) -> str:
    """Return ``text`` with its macros expanded (ISO C++20 15.6), for reading its declarations."""
    budget = [_MOST_TOKENS]
    return " ".join(_expanded(list(tokens_of(text)), macros, frozenset(), budget))


def _expanded(
    tokens: list[str],
    macros: Mapping[str, Sequence[Macro]],
    hidden: frozenset[str],
    budget: list[int],
) -> list[str]:
    out: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        budget[0] -= 1
        macro = next(iter(macros.get(token, ())), None)
        if macro is None or token in hidden or budget[0] < 0 or len(hidden) > 30:
            out.append(token)
            continue
        arguments: list[list[str]] = []
        if macro.parameters is not None:
            if tokens[at : at + 1] != ["("]:
                out.append(token)
                continue
            arguments, end = arguments_of(tokens, at)
            at = len(tokens) if end is None else end
        inner = _pasted(_filled(macro, arguments, macros, hidden, budget))
        out += _expanded(inner, macros, hidden | {token}, budget)
    return out


def _filled(
    macro: Macro,
    arguments: list[list[str]],
    macros: Mapping[str, Sequence[Macro]],
    hidden: frozenset[str],
    budget: list[int],
) -> list[str]:
    """Return the body with arguments for parameters."""
    names = list(macro.parameters or ())
    given = dict(zip(names, arguments, strict=False))
    if names and names[-1].endswith("..."):
        rest = arguments[len(names) - 1 :]
        joined = [
            token for index, each in enumerate(rest) for token in ([","] * (index > 0) + each)
        ]
        given[names[-1].removesuffix("...").strip() or "__VA_ARGS__"] = joined
    out: list[str] = []
    body = macro.body
    for at, token in enumerate(body):
        budget[0] -= 1
        if budget[0] < 0:
            return list(body)
        if token in given:
            pastes = "##" in (*body[max(at - 1, 0) : at], *body[at + 1 : at + 2])
            out += given[token] if pastes else _expanded(given[token], macros, hidden, budget)
            budget[0] -= len(given[token])
        elif token == "#" and body[at + 1 : at + 2] and body[at + 1] in given:
            out.append('""')
        else:
            out.append(token)
    return out


def _pasted(tokens: list[str]) -> list[str]:
    out: list[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at] == "##" and out and at + 1 < len(tokens):
            out[-1] += tokens[at + 1]
            at += 1
        else:
            out.append(tokens[at])
        at += 1
    return out
