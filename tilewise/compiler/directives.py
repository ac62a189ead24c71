"""Rewrite the directives of a source that name files, so that they name texts in memory.

Directives are found without telling what a comment, a string or a condition is: whatever looks like
a directive counts as one if it stands first on a line, or behind the end of a comment. Where that
is wrong, it stands in a comment, in a string or in text that a condition leaves out, and rewriting
it changes nothing that is executed.

Sources: ISO C++20 5.2 (phases of translation), 15.2, 15.3 (includes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tilewise.compiler.header_search import Search

_WS = r"[ \t\v\f\r]"
_NAME = r'(?:"(?P<quoted>[^"\n]*)"|<(?P<angled>[^>\n]*)>)'
_WORDS = r"include_next|include|import|embed"
_INCLUDE = re.compile(
    rf"(?:(?:^|\*/){_WS}*+(?:\#|%:|\?\?=)|\*/){_WS}*+(?P<word>{_WORDS})(?!\w)"
    rf"(?P<operand>{_WS}*+(?:{_NAME}|(?P<macro>[A-Za-z_]\w*)))?",
    re.MULTILINE | re.ASCII,
)
# In C++20, import names a header too, if it is the first word of a line.
_IMPORT = re.compile(
    rf"(?:^|\*/){_WS}*+(?:export{_WS}++)?(?P<word>import)(?!\w)", re.MULTILINE | re.ASCII
)
_HAS = re.compile(
    rf"(?P<asked>(?<!\w)(?:defined{_WS}*+\(?|(?:el)?ifn?def(?!\w)){_WS}*+)?"
    r"(?P<word>__has_include_next|__has_include|__has_embed)(?!\w)"
    rf"(?P<operand>{_WS}*+\({_WS}*+{_NAME}{_WS}*+\))?",
    re.ASCII,
)
ODD = (
    'only a plain #include "name" or <name> is read of a source that is not trusted with '
    "trusted=True"
)
"""Why an include in another form is not read."""
_UNANSWERED = "has_include_takes_a_plain_name_where_the_source_is_not_trusted"


def rewritten(text: str, folder: Path | None, search: Search) -> str:
    """Return ``text`` with every include rewritten to name a text in memory; lines keep
    their numbers.
    """
    # A backslash joins two lines to one. The places where lines were joined are kept, so that the
    # backslashes can be put back when the joined text has been changed.
    joins: list[int] = []
    parts = text.split("\\\n")
    joined = "".join(parts)
    at = 0
    for part in parts[:-1]:
        at += len(part)
        joins.append(at)
    out, begin, next_join = [], 0, 0
    search.check()
    for start, end, new in sorted(_changes(joined, folder, search)):
        if start < begin:
            continue  # it overlaps the change before it
        for stop, is_kept in ((start, True), (end, False)):
            while next_join < len(joins) and joins[next_join] < stop:
                if is_kept:
                    out.append(joined[begin : joins[next_join]])
                    begin = joins[next_join]
                out.append("\\\n")
                next_join += 1
            if is_kept:
                out.append(joined[begin:stop])
        out.append(new)
        begin = end
    for join in joins[next_join:]:
        out += (joined[begin:join], "\\\n")
        begin = join
    return "".join((*out, joined[begin:]))


def _changes(text: str, folder: Path | None, search: Search) -> Iterator[tuple[int, int, str]]:
    """Yield each change of ``text``: its beginning, its end, and the new text."""
    for match in _INCLUDE.finditer(text):
        name, places = match["quoted"], folder
        if match["angled"] is not None:
            name, places = match["angled"], None
        elif match["macro"] in search.macros:
            search.by_macro.add(match["macro"])
            value = re.fullmatch(_NAME, search.macros[match["macro"]])
            if value is not None:
                name = value["quoted"] if value["angled"] is None else value["angled"]
                places = folder if value["angled"] is None else None
        if name is None or match["word"] != "include":
            if search.is_trusted:
                search.is_whole = False
            else:
                yield (*match.span("word"), f"error {ODD}:")
            continue
        found, reason = search.find(name, places)
        if found is not None:
            yield (*match.span("operand"), f' "{found}"')
        elif reason and search.is_trusted and name not in search.library.lacks:
            search.is_whole = False
        elif reason:
            yield (*match.span("word"), f"error {reason}:")
    for match in () if search.is_trusted else _IMPORT.finditer(text):
        yield (*match.span("word"), "import_is_not_read")
    for match in _HAS.finditer(text):
        start, end = match.span("word")
        if match["asked"]:
            yield start, end, "__FILE__"  # a macro that is defined, as __has_include is
        elif match["operand"] is not None and match["word"] == "__has_include":
            name = match["quoted"] if match["angled"] is None else match["angled"]
            found, _ = search.find(name, folder if match["angled"] is None else None)
            yield start, match.end("operand"), f" {int(found is not None)} "
        elif search.is_trusted:
            search.is_whole = False
        else:
            yield start, end, _UNANSWERED


def defines(text: str, macro: str) -> bool:
    """Return whether a text seems to define a macro, or to undefine it."""
    again = re.compile(rf"(?:\b(?:define|undef)|\*/){_WS}*+{macro}(?!\w)", re.ASCII)
    return again.search(text) is not None


def without_words(text: str) -> str:
    """Return a text without the words ``include``, ``import``, ``embed`` of its directives."""
    return _INCLUDE.sub(lambda m: m[0].replace(m["word"], " ", 1), text)
