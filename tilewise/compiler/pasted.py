"""Names by which a source asks for files, and whether its macros can paste them from parts.

Nothing defines ``__has_include`` and its like anew, so where macros paste one of these names, NVRTC
looks for the file that it is asked for. A source that has a part which hardly serves anything else
is refused. One whose words could be put together to such a name is compiled where no file can be
opened.

Source: ISO C++20 15.6.4 (pasted tokens).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from tilewise.errors import CompileError

_ASKING = ("__has_include", "__has_include_next", "__has_embed")
_PIECE = re.compile(r"__(?:h|ha|has|has_[a-z]{,6}|has_include_[a-z]*)(?!\w)", re.ASCII)
_ASKED = re.compile(rf"{_PIECE.pattern}|__has_include(?!\w)", re.ASCII)
# A letter by its number, after which a name may follow.
_LETTER = re.compile(r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}")
_TOKEN = re.compile(r"\w+", re.ASCII)
_PASTE = re.compile(r"##|%:%:|\?\?=\?\?=|_NV_|__CUDA(?!CC)[A-Z]*_|__location__")
_TRIGRAPH = re.compile(r"\?\?[=/]")


def check_given(text: str, what: str) -> None:
    """Raise an error if a macro or a name given beside a source asks for files.

    Raises
    ------
    ValueError
        If it contains ``__has_include`` or its like, or a part that hardly serves anything else.
    """
    if found := _ASKED.search(text):
        raise ValueError(
            f"{what} has {found[0]} in it, by which files can be looked for; that takes "
            "trusted=True"
        )


def check_pieces(texts: Mapping[str, str]) -> None:
    """Raise where a text, by its file, has a part that hardly serves anything but asking for files.

    Raises
    ------
    CompileError
        If one has.
    """
    for name, text in texts.items():
        if piece := _PIECE.search(text):
            line = text.count("\n", 0, piece.start()) + 1
            raise CompileError(
                f"{name}:{line}: error: {piece[0]} may be pasted (##) to __has_include, which "
                "would look for any file; choose another name, or trust it with trusted=True"
            )


def check_trigraphs(texts: Mapping[str, str]) -> None:
    """Raise where a text, by its file, has a trigraph that hides a directive.

    Raises
    ------
    CompileError
        If one has.
    """
    for name, text in texts.items():
        if found := _TRIGRAPH.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise CompileError(
                f"{name}:{line}: error: trigraphs ({found[0]}) are not read of a source that is "
                "not trusted; compile it as --std=c++17, which has none"
            )


def pastes(text: str) -> bool:
    """Return whether a text pastes names, or uses a macro of NVRTC's own that does."""
    return _PASTE.search(text) is not None


def parts_of(names: Iterable[str] = ()) -> set[str]:
    """Return all parts of ``__has_include``, of its like, and of more names."""
    return {
        name[begin:end]
        for name in (*_ASKING, *names)
        for begin in range(len(name))
        for end in range(begin + 1, len(name) + 1)
    }


def words(texts: Iterable[str]) -> set[str]:
    """Return the words of texts."""
    there: set[str] = set()
    for text in texts:
        there.update(_TOKEN.findall(_LETTER.sub(" ", text)))
    return there


def can_be_pasted(texts: Sequence[str], names: Iterable[str] = ()) -> bool:
    """Return whether words of the texts, put together, give ``__has_include`` or its like.

    Or one of ``names``, macros that ask for files.
    """
    there = words(texts)
    # The whole name is no part of itself: wherever it stands, it was rewritten or refused.
    return any(is_made_of(asking, there - {asking}) for asking in (*_ASKING, *names))


def is_made_of(name: str, parts: Set[str]) -> bool:
    """Return whether parts, put together, give a name."""
    ends = {0}
    for at in range(len(name)):
        if at in ends:
            ends |= {end for end in range(at + 1, len(name) + 1) if name[at:end] in parts}
    return len(name) in ends
