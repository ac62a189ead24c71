"""A parsed text: its tokens, its directives, and a tree of what stands between them.

The grammar knows no macros and no branches of conditions. So what is parsed is a view of the text
in which attributes that the grammar lacks, and calls of macros at the level of declarations, are
spaces. Where a condition cuts a declaration in two, so are the directives, or all branches but the
first, whichever the parser understands best. A view has the text's length, so every place in it is
the same place in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from tilewise.errors import ParserMissingError

INSTALL_HINT = 'pip install "tree-sitter>=0.23" "tree-sitter-cuda>=0.21"'
# The nodes that are one token each, whatever they contain.
_OPAQUE = frozenset(
    ("string_literal", "raw_string_literal", "char_literal", "comment", "system_lib_string",
     "preproc_arg", "operator_name")
)  # fmt: skip
_ATTRIBUTES = frozenset(
    (b"__align__", b"__builtin_align__", b"alignas", b"__cluster_dims__", b"__block_size__",
     b"__maxnreg__", b"__grid_constant__", b"__declspec", b"__attribute__", b"__nv_pure__",
     b"CUDART_CB", b"CUDAAPI", b"CUDARTAPI", b"__tile_builtin__")
)  # fmt: skip
_NO_CALLS = _ATTRIBUTES | {
    b"static_assert", b"_Static_assert", b"decltype", b"typeof", b"__typeof__", b"asm", b"__asm__",
    b"requires", b"explicit", b"_Pragma", b"__pragma", b"__launch_bounds__", b"extern",
}  # fmt: skip
_DIRECTIVE = re.compile(rb"^[ \t\v\f]*#[ \t\v\f]*(\w*)", re.MULTILINE)
_WORD = re.compile(rb"[A-Za-z_]\w*")
_OPENING, _CLOSING = (b"(", b"[", b"{"), (b")", b"]", b"}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its node's type, its place in bytes, and its text."""

    kind: str
    start: int
    end: int
    text: bytes

    @property
    def is_word(self) -> bool:
        """Whether it is a name or a keyword."""
        return self.kind not in _OPAQUE and _WORD.fullmatch(self.text) is not None


@dataclass(frozen=True, slots=True)
class Directive:
    """A line of the preprocessor, with those that a backslash joins to it."""

    word: str
    start: int
    end: int


@dataclass(frozen=True)
class Text:
    """A text with its tokens and its tree.

    Attributes
    ----------
    data : bytes
        The text as UTF-8.
    tokens : tuple of Token
        The tokens, without those of directives and comments.
    directives : tuple of Directive
        The directives, in order.
    calls : tuple of (int, int)
        The places outside of functions and types where macros are called without a semicolon.
    root : tree_sitter.Node
        The root of the view's tree.
    """

    data: bytes
    tokens: tuple[Token, ...]
    directives: tuple[Directive, ...]
    calls: tuple[tuple[int, int], ...]
    root: Any
    starts: tuple[int, ...]
    lines: tuple[int, ...]

    def between(self, start: int, end: int) -> Sequence[Token]:
        """Return the tokens from one place to another."""
        return self.tokens[bisect_left(self.starts, start) : bisect_left(self.starts, end)]

    def line(self, place: int) -> int:
        """Return the line of a place, from 1."""
        return bisect_right(self.lines, place)

    def spelled(self, node: Any) -> str:
        """Return a node's text in one line, without comments, but with what the view leaves out."""
        return spelled(self.between(node.start_byte, node.end_byte))


def spelled(tokens: Sequence[Token]) -> str:
    """Return tokens as text, with one space for several spaces or a new line."""
    out = b""
    for before, token in zip((None, *tokens), tokens, strict=False):
        out += b" " * (before is not None and before.end < token.start) + token.text
    return out.decode(errors="replace")


@lru_cache(maxsize=1)
def _parser() -> Any:
    try:
        # Imported here, so that ``import tilewise`` does not wait for them.
        tree_sitter, grammar = map(import_module, ("tree_sitter", "tree_sitter_cuda"))
        return tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    except (ImportError, ValueError, TypeError) as error:
        raise ParserMissingError(
            f"the parser of CUDA C++ can't be loaded ({error}): {INSTALL_HINT}"
        ) from error


@lru_cache(maxsize=64)
def parsed(text: str) -> Text:
    """Parse a text.

    Raises
    ------
    ParserMissingError
        If tree-sitter or its grammar is not installed.
    """
    data = text.encode()
    every = tuple(_leaves(_parser().parse(data).root_node, data))
    directives = tuple(_directives(data, every))
    tokens = tuple(_outside(directives, every))
    calls = tuple(_calls(tokens))
    view = bytearray(data)
    for start, end in (*_attributes(tokens), *calls):
        blank(view, start, end)
    root = _parser().parse(bytes(view)).root_node
    if root.has_error:
        # A condition may cut a declaration in two, as extern "C" { is cut from its end.
        flat = bytearray(view)
        for directive in directives:
            blank(flat, directive.start, directive.end)
        others = (bytes(flat), _first_branches(bytes(view), directives))
        root = min(root, *(_parser().parse(each).root_node for each in others), key=_damage)
    lines = (0, *(match.end() for match in re.finditer(rb"\n", data)))
    return Text(data, tokens, directives, calls, root, tuple(t.start for t in tokens), lines)


def blank(data: bytearray, start: int, end: int) -> None:
    """Turn what stands between two places to spaces; lines stay lines."""
    data[start:end] = re.sub(rb"[^\n]", b" ", bytes(data[start:end]))


def nodes(root: Any) -> Iterator[Any]:
    """Yield each node of a tree, its parent first, at any depth."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def _leaves(root: Any, data: bytes) -> Iterator[Token]:
    cursor = root.walk()
    while True:
        node = cursor.node
        if node.type in _OPAQUE or not cursor.goto_first_child():
            start, end = node.start_byte, node.end_byte
            if start < end and node.type != "comment" and not data[start:end].isspace():
                yield Token(node.type, start, end, data[start:end])
            elif node.type == "comment":
                yield Token("comment", start, end, b"")
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return


def _directives(data: bytes, tokens: Sequence[Token]) -> Iterator[Directive]:
    opaque = [t for t in tokens if t.kind in ("comment", "raw_string_literal")]
    starts = [token.start for token in opaque]

    def inside(place: int) -> Token | None:
        at = bisect_right(starts, place) - 1
        return opaque[at] if at >= 0 and place < opaque[at].end else None

    at = 0
    while (match := _DIRECTIVE.search(data, at)) is not None:
        at = match.end()
        if inside(match.start(0)) or inside(at - 1):
            continue
        while True:
            at = data.find(b"\n", at)
            at = len(data) if at < 0 else at
            comment = inside(at)
            if comment is not None and comment.end > at:
                at = comment.end
            elif data[:at].endswith((b"\\", b"\\\r")) and at < len(data):
                at += 1
            else:
                break
        yield Directive(match[1].decode(), match.start(), at)


def _outside(directives: Sequence[Directive], tokens: Sequence[Token]) -> Iterator[Token]:
    starts = [directive.start for directive in directives]
    for token in tokens:
        at = bisect_right(starts, token.start) - 1
        if token.kind != "comment" and (at < 0 or token.start >= directives[at].end):
            yield token


def closing(tokens: Sequence[Token], at: int, most: int | None = None) -> int:
    """Return the place of the bracket that closes the one at ``at``; else the last token.

    At most ``most`` tokens are searched.
    """
    depth = 0
    stop = len(tokens) if most is None else min(len(tokens), at + most)
    for place in range(at, stop):
        depth += (tokens[place].text in _OPENING) - (tokens[place].text in _CLOSING)
        if depth == 0:
            return place
    return stop - 1


def _attributes(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    for at, token in enumerate(tokens):
        if token.text in _ATTRIBUTES:
            has_arguments = at + 1 < len(tokens) and tokens[at + 1].text == b"("
            yield token.start, tokens[closing(tokens, at + 1, 100) if has_arguments else at].end


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield calls outside of functions and types that a declaration and no semicolon follows."""
    at, is_start = 0, True
    while at < len(tokens):
        text = tokens[at].text
        if text == b"{" and not _is_of_a_space(tokens, at):
            at, is_start = closing(tokens, at), True
        elif text in (b"(", b"["):
            at, is_start = closing(tokens, at), False
        elif text in (b"{", b"}", b";"):
            is_start = True
        else:
            is_call = is_start and tokens[at].is_word and tokens[at + 1 : at + 2]
            if is_call and tokens[at + 1].text == b"(" and text not in _NO_CALLS:
                end = closing(tokens, at + 1)
                after = tokens[end + 1] if end + 1 < len(tokens) else None
                if after is None or after.is_word or after.text in (b"}", b";"):
                    ended = after is not None and after.text == b";"
                    yield tokens[at].start, tokens[end + ended].end
                    at = end + 1 + ended
                    continue
            is_start = False
        at += 1


def _is_of_a_space(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a brace opens a namespace, or declarations for the linker."""
    back = at - 1
    while back >= 0 and (tokens[back].text == b"::" or tokens[back].kind.endswith("identifier")):
        back -= 1
    if back >= 0 and tokens[back].kind == "string_literal":
        back -= 1
    return back >= 0 and tokens[back].text in (b"namespace", b"extern", b"inline")


def _first_branches(data: bytes, directives: Sequence[Directive]) -> bytes:
    """Return ``data`` without directives, and with only the first branch of each condition."""
    out = bytearray(data)
    stack: list[bool] = []  # whether what stands here is left
    taken: list[bool] = []
    at = 0
    for directive in directives:
        if not all(stack):
            blank(out, at, directive.start)
        at = directive.end
        line = data[directive.start : directive.end].split()
        blank(out, directive.start, directive.end)
        if directive.word in ("if", "ifdef", "ifndef"):
            stack.append(line[-1:] != [b"0"])
            taken.append(stack[-1])
        elif directive.word.startswith("el") and stack:
            stack[-1] = not taken[-1]
            taken[-1] = True
        elif directive.word == "endif" and stack:
            stack.pop()
            taken.pop()
    return bytes(out)


def _damage(root: Any) -> int:
    """Return the bytes that the parser did not understand, with those inside of bodies
    counted less.
    """
    total = 0
    waiting = [(root, 16)]
    while waiting:
        node, weight = waiting.pop()
        if node.type == "ERROR" or node.is_missing:
            total += weight * (node.end_byte - node.start_byte + 1)
        elif node.has_error:
            weight = 1 if node.type in ("compound_statement", "parameter_list") else weight
            waiting += ((child, weight) for child in node.children)
    return total
