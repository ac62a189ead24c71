"""The declarations of a text: where each stands, what it declares, and which names it mentions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewise.compiler.source import macros as preprocessor
from tilewise.compiler.source.macros import Macro
from tilewise.compiler.source.tree import Text, Token, parsed

DEVICE_WORDS = frozenset(
    ("__global__", "__device__", "__constant__", "__shared__", "__managed__", "__tile__")
)
_CONDITIONS = frozenset(
    ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef")
)
_TYPES = frozenset(("struct_specifier", "class_specifier", "union_specifier", "enum_specifier"))
_KINDS = {
    "function_definition": "function",
    "declaration": "variable",
    "type_definition": "type",
    "alias_declaration": "type",
    "concept_definition": "type",
    "using_declaration": "using",
    "namespace_alias_definition": "alias",
    "static_assert_declaration": "assertion",
    "template_instantiation": "instantiation",
    "expression_statement": "call",
    **dict.fromkeys(_TYPES, "type"),
}
_WRAPPERS = ("template_declaration", "linkage_specification", "friend_declaration")


@dataclass(frozen=True, eq=False)
class Declaration:
    """A declaration outside of functions, or a member function of a type.

    Attributes
    ----------
    file : str
    start, end : int
        The place in the text, in bytes.
    first_line, last_line : int
        The first and the last line, counted from 1.
    kind : str
        ``"function"``, ``"variable"``, ``"type"``, ``"using"``, ``"alias"``, ``"assertion"``,
        ``"instantiation"``, ``"call"`` of a macro, or ``"unknown"``.
    names : frozenset of str
        The names that it declares.
    with_names : frozenset of str
        Names with each of which it is needed: the types of an operator, the class of a member.
    words : frozenset of str
        Every name that it mentions.
    is_device : bool
        Whether it is declared for the device.
    is_always : bool
        Whether it is always needed.
    space : tuple of str
        The namespaces around it.
    is_c : bool
        Whether it has C linkage.
    is_kernel : bool
        Whether it is a ``__global__`` function.
    members : tuple of Declaration
        The member functions of a type.
    node : tree_sitter.Node
    expanded : Text or None
        The text with its macros expanded, if that differs.
    """

    file: str
    start: int
    end: int
    first_line: int
    last_line: int
    kind: str
    names: frozenset[str]
    with_names: frozenset[str]
    words: frozenset[str]
    is_device: bool
    is_always: bool
    space: tuple[str, ...]
    is_c: bool
    is_kernel: bool = False
    members: tuple[Declaration, ...] = ()
    node: Any = field(default=None, repr=False)
    expanded: Text | None = field(default=None, repr=False)

    @property
    def is_host(self) -> bool:
        """Whether it is, or has, code that is not declared for the device and may be the host's."""
        if self.kind == "variable":
            return not self.is_device and self.words.isdisjoint(("const", "constexpr"))
        is_code = self.kind in ("function", "call", "unknown", "instantiation")
        return (is_code and not self.is_device) or any(each.is_host for each in self.members)

    def has_line(self, line: int) -> bool:
        """Return whether a line is one of its own."""
        return self.first_line <= line <= self.last_line


def unwrapped(node: Any) -> Any:
    """Return the declaration after a template's head or ``extern "C"``."""
    while node.type in _WRAPPERS:
        inner = node.child_by_field_name("body") or next(
            (c for c in reversed(node.named_children) if c.type != "comment"), None
        )
        if inner is None or inner.type == "declaration_list":
            break
        node = inner
    return node


def declarator_of(node: Any) -> Any:
    """Return the name in a declarator: an identifier, qualified or not, or an operator's name."""
    while (inner := node.child_by_field_name("declarator")) is not None or node.type in (
        "parenthesized_declarator", "reference_declarator", "attributed_declarator",
    ):  # fmt: skip
        node = inner or next((c for c in node.named_children if c.type != "comment"), None)
        if node is None:
            return None
    return node


def function_of(node: Any) -> Any:
    """Return the function declarator in a declaration's declarator; None if there is none."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type in (
        "pointer_declarator", "reference_declarator", "init_declarator",
    ):  # fmt: skip
        declarator = declarator.child_by_field_name("declarator") or next(
            (c for c in declarator.named_children if c.type.endswith("declarator")), None
        )
    if declarator is None or declarator.type != "function_declarator":
        return None
    inner = declarator.child_by_field_name("declarator")
    return None if inner is not None and inner.type == "parenthesized_declarator" else declarator


class Reader:
    """A reader of the declarations of one text.

    Parameters
    ----------
    file : str
        The name of the text.
    text : Text
    macros : mapping of str to sequence of Macro
        The macros of all texts that are read together.
    """

    def __init__(self, file: str, text: Text, macros: Mapping[str, Sequence[Macro]]) -> None:
        self.file, self.text, self.macros = file, text, macros

    def declarations(self) -> tuple[Declaration, ...]:
        """Return all declarations, in order."""
        found = list(self._inside(self.text.root, (), False))
        found += (self._call(start, end) for start, end in self.text.calls)
        return tuple(self._joined(sorted(found, key=lambda each: each.start)))

    def _joined(self, found: Sequence[Declaration]) -> Iterator[Declaration]:
        """Yield declarations, with each call of a macro that begins one as a part of it."""
        begun: Declaration | None = None
        for each in found:
            if begun is not None:
                expanded = self._expanded(begun.start, each.end)
                made = Reader(self.file, expanded, {}).declarations()
                each = replace(
                    each, start=begun.start, first_line=begun.first_line,
                    words=each.words | begun.words, expanded=expanded,
                    is_device=each.is_device or begun.is_device,
                    is_kernel=each.is_kernel or any(one.is_kernel for one in made),
                )  # fmt: skip
                begun = None
            if each.kind == "call" and each.expanded is not None:
                last = each.expanded.tokens[-1:]
                if last and last[0].text not in (b";", b"}"):
                    begun = each
                    continue
            yield each
        if begun is not None:
            yield begun

    def _inside(self, parent: Any, space: tuple[str, ...], is_c: bool) -> Iterator[Declaration]:
        waiting: list[tuple[Any, tuple[str, ...], bool]] = [(parent, space, is_c)]
        while waiting:
            node, space, is_c = waiting.pop()
            stray: list[Any] = []
            children = node.children
            for at, child in enumerate(children):
                kind = child.type
                if not self.text.between(child.start_byte, child.end_byte):
                    continue  # a comment, a directive
                body = child.child_by_field_name("body")
                if kind == "namespace_definition" and body is not None:
                    name = child.child_by_field_name("name")
                    inner = () if name is None else tuple(self.text.spelled(name).split("::"))
                    waiting.append((body, (*space, *map(str.strip, inner)), is_c))
                elif kind == "linkage_specification" and body.type == "declaration_list":
                    waiting.append((body, space, True))
                elif kind in _CONDITIONS or kind == "declaration_list" or kind == "ERROR":
                    waiting.append((child, space, is_c))
                elif unwrapped(child).type in _KINDS:
                    after = children[at + 1] if at + 1 < len(children) else None
                    end = after.end_byte if after is not None and after.type == ";" else 0
                    linked = is_c or kind == "linkage_specification"
                    yield self._read(child, max(end, child.end_byte), space, linked)
                elif kind not in (";", "{", "}"):
                    stray.append(child)
            if stray and node.type == "ERROR":
                yield from self._unknown(stray, space)

    def _unknown(self, stray: Sequence[Any], space: tuple[str, ...]) -> Iterator[Declaration]:
        """Yield what the parser did not understand, as one declaration for each run of it."""
        begin = 0
        for at in range(1, len(stray) + 1):
            between = (stray[at - 1].end_byte, stray[at].start_byte) if at < len(stray) else None
            if between and not self.text.between(*between):
                continue
            start, end = stray[begin].start_byte, stray[at - 1].end_byte
            words = self._words(self.text.between(start, end))
            yield self._made(
                start, end, "unknown", words, frozenset(), words, False, False, space, False,
            )  # fmt: skip
            begin = at

    def _made(self, start: int, end: int, *rest: Any, **more: Any) -> Declaration:
        lines = self.text.line(start), self.text.line(max(start, end - 1))
        return Declaration(self.file, start, end, *lines, *rest, **more)

    def _words(self, tokens: Sequence[Token]) -> frozenset[str]:
        return frozenset(token.text.decode() for token in tokens if token.is_word)

    def _read(
        self, node: Any, end: int, space: tuple[str, ...], is_c: bool, *, is_member: bool = False
    ) -> Declaration:
        inner = unwrapped(node)
        kind = _KINDS[inner.type]
        tokens = self.text.between(node.start_byte, end)
        words = self._words(tokens)
        body = inner.child_by_field_name("body")
        head = self._words(
            self.text.between(node.start_byte, node.end_byte if body is None else body.start_byte)
        )
        meant = preprocessor.words_behind(head, self.macros)
        is_device = kind in ("function", "variable") and not DEVICE_WORDS.isdisjoint(meant)
        is_kernel = kind in ("function", "variable") and "__global__" in meant
        names, with_names = self._declared(inner)
        if kind == "variable" and function_of(inner) is not None:
            kind = "function"
        expanded = None
        if self._is_made_by_macros(inner, kind, head):
            expanded = self._expanded(node.start_byte, end)
            made = Reader(self.file, expanded, {}).declarations()
            names |= frozenset(name for each in made for name in each.names)
            words |= frozenset(name for each in made for name in each.words)
            is_device = is_device or any(each.is_device for each in made)
            is_kernel = is_kernel or any(each.is_kernel for each in made)
        members: tuple[Declaration, ...] = ()
        if kind == "type" and not is_member:
            members = tuple(self._members(inner))
        is_always = kind == "using" and b"namespace" in [token.text for token in tokens[:2]]
        return self._made(
            node.start_byte, end, kind, names, with_names, words, is_device, is_always, space,
            is_c, is_kernel=is_kernel, members=members, node=node, expanded=expanded,
        )  # fmt: skip

    def _is_made_by_macros(self, inner: Any, kind: str, head: frozenset[str]) -> bool:
        """Return whether the macros of a head may declare something that is not written there."""
        if kind not in ("call", "function") and inner.type != "declaration":
            return False
        return any(
            macro.parameters is not None or not DEVICE_WORDS.isdisjoint(macro.words)
            for word in head
            for macro in self.macros.get(word, ())
        )

    def _expanded(self, start: int, end: int) -> Text:
        text = self.text.data[start:end].decode(errors="replace")
        tokens = self.text.between(start, end)
        plain = " ".join(token.text.decode(errors="replace") for token in tokens)
        return parsed(preprocessor.expanded(plain if tokens else text, self.macros))

    def _call(self, start: int, end: int) -> Declaration:
        """Return a macro's call that ends without a semicolon."""
        words = self._words(self.text.between(start, end))
        made: tuple[Declaration, ...] = ()
        expanded = None
        if not words.isdisjoint(self.macros):
            expanded = self._expanded(start, end)
            made = Reader(self.file, expanded, {}).declarations()
        return self._made(
            start, end, "call", frozenset(name for each in made for name in each.names),
            frozenset(), words | frozenset(name for each in made for name in each.words),
            any(each.is_device for each in made), False, self._space(start), False,
            expanded=expanded, is_kernel=any(each.is_kernel for each in made),
        )  # fmt: skip

    def _space(self, place: int) -> tuple[str, ...]:
        """Return the namespaces around a place."""
        space: tuple[str, ...] = ()
        node = self.text.root.descendant_for_byte_range(place, place + 1)
        while node is not None:
            name = node.child_by_field_name("name")
            if node.type == "namespace_definition" and name is not None:
                space = (*map(str.strip, self.text.spelled(name).split("::")), *space)
            node = node.parent
        return space

    def _declared(self, inner: Any) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names that a declaration declares, and those that it goes with."""
        names: set[str] = set()
        with_names: set[str] = set()
        for declarator in inner.children_by_field_name("declarator"):
            found = declarator_of(declarator)
            if found is not None:
                self._name(found, declarator, names, with_names)
        kinds = [inner, *inner.children_by_field_name("type")]
        for each in kinds:
            if each.type not in _TYPES and each.type not in (
                "alias_declaration", "concept_definition", "namespace_alias_definition",
            ):  # fmt: skip
                continue
            name = each.child_by_field_name("name")
            if name is not None:
                found = name.child_by_field_name("name") or name
                names.add(self.text.spelled(found).rpartition("::")[2].strip())
            body = each.child_by_field_name("body")
            if each.type == "enum_specifier" and body is not None:
                for child in body.named_children:
                    if (own := child.child_by_field_name("name")) is not None:
                        names.add(self.text.spelled(own))
        if inner.type == "using_declaration":
            words = [t for t in self.text.between(inner.start_byte, inner.end_byte) if t.is_word]
            names.update(token.text.decode() for token in words[-1:])
        return frozenset(names), frozenset(with_names)

    def _name(self, found: Any, declarator: Any, names: set[str], with_names: set[str]) -> None:
        if found.type == "qualified_identifier":
            while found.type == "qualified_identifier":
                # Only the name of a template, since the arguments are its own parameters' names.
                scope = found.child_by_field_name("scope")
                if scope is not None:
                    with_names.add(self.text.spelled(scope.child_by_field_name("name") or scope))
                found = found.child_by_field_name("name")
                if found is None:
                    return
        if found.type in ("operator_name", "operator_cast", "literal_operator_name"):
            with_names |= self._words(self.text.between(declarator.start_byte, declarator.end_byte))
        elif found.type in ("template_function", "template_type"):
            own = found.child_by_field_name("name")
            names.add(self.text.spelled(own or found))
        else:
            names.add(self.text.spelled(found).lstrip("~").strip())

    def _members(self, inner: Any) -> Iterator[Declaration]:
        """Yield the member functions of the types in a declaration."""
        types = [n for n in (inner, *inner.children_by_field_name("type")) if n.type in _TYPES]
        waiting = [body for n in types if (body := n.child_by_field_name("body")) is not None]
        while waiting:
            node = waiting.pop()
            for child in node.named_children:
                member = unwrapped(child)
                if child.type in _CONDITIONS:
                    waiting.append(child)
                elif member.type == "field_declaration" and function_of(member) is None:
                    types = member.children_by_field_name("type")
                    bodies = (each.child_by_field_name("body") for each in types)
                    waiting.extend(body for body in bodies if body is not None)
                elif member.type in ("function_definition", "declaration", "field_declaration"):
                    tokens = self.text.between(child.start_byte, child.end_byte)
                    body = member.child_by_field_name("body")
                    stop = child.end_byte if body is None else body.start_byte
                    head = self._words(self.text.between(child.start_byte, stop))
                    meant = preprocessor.words_behind(head, self.macros)
                    yield self._made(
                        child.start_byte, child.end_byte, "function", self._declared(member)[0],
                        frozenset(), self._words(tokens), not DEVICE_WORDS.isdisjoint(meant),
                        False, (), False, node=child,
                    )  # fmt: skip


def by_name(declarations: Sequence[Declaration]) -> dict[str, list[Declaration]]:
    """Return declarations by the names that they declare."""
    found: dict[str, list[Declaration]] = {}
    for each in declarations:
        for name in each.names:
            found.setdefault(name, []).append(each)
    return found
