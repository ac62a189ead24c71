"""The kernels of a text: their names, their template's parameters, and their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.compiler.source.declarations import (
    Declaration,
    Reader,
    declarator_of,
    function_of,
    unwrapped,
)
from tilewise.compiler.source.tree import Text, Token, closing, spelled


@dataclass(frozen=True)
class TemplateParameter:
    """A parameter of a template.

    Attributes
    ----------
    kind : str
        ``"typename"``, or the type of its value.
    name : str
    default : str
        The default; empty if it has none.
    """

    kind: str
    name: str
    default: str

    def __str__(self) -> str:
        text = f"{self.kind} {self.name}".strip()
        return f"{text} = {self.default}" if self.default else text


@dataclass(frozen=True)
class Named:
    """A parameter of a kernel, as the source declares it."""

    type: str
    name: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class KernelDeclaration:
    """A kernel, as a source declares it.

    Attributes
    ----------
    name : str
        The name with its namespaces, as in ``"space::kernel"``.
    file : str
    line : int
        The line of the declaration, from 1.
    template : tuple of TemplateParameter
        The template's parameters; empty if it is not a template.
    parameters : tuple of Named
    launch_bounds, cluster_dims : str
        The arguments of ``__launch_bounds__`` and of ``__cluster_dims__``; empty if it has none.
    has_body : bool
        Whether it is defined there, rather than only declared.
    is_special : bool
        Whether it is a template's specialization for some arguments.
    arguments : str
        The specialization's arguments as written, ``"<int, 4>"``; empty if they follow from its
        parameters.
    declaration : Declaration
    """

    name: str
    file: str
    line: int
    template: tuple[TemplateParameter, ...]
    parameters: tuple[Named, ...]
    launch_bounds: str
    cluster_dims: str
    has_body: bool
    is_special: bool
    arguments: str
    declaration: Declaration

    @property
    def base(self) -> str:
        """The name without namespaces."""
        return self.name.rpartition("::")[2]

    @property
    def types(self) -> tuple[str, ...]:
        """The types of its parameters, written alike."""
        return tuple(alike(each.type) for each in self.parameters)

    @property
    def signature(self) -> str:
        """The signature, as in ``"scale(float*, int)"``."""
        return f"{self.name}({', '.join(each.type for each in self.parameters)})"


def alike(kind: str) -> str:
    """Return a type's spelling without what does not tell overloads apart."""
    words = kind.replace("__restrict__", " ").replace("__restrict", " ")
    for mark in "*&,<>[]":
        words = words.replace(mark, f" {mark} ")
    parts = words.split()
    if "*" not in parts and "&" not in parts:  # for a value, const is not part of the signature
        parts = [part for part in parts if part != "const"]
    names = {"unsigned": "unsigned int", "uint": "unsigned int"}
    if "*" in parts and parts[-1] == "const":
        parts.pop()
    text = " ".join(parts)
    return names.get(text, text)


def kernels_of(
    declarations: Sequence[Declaration], texts: Mapping[str, Text]
) -> list[KernelDeclaration]:
    """Return the kernels among declarations, in order."""
    return [
        found
        for each in declarations
        if each.is_kernel and each.kind in ("function", "variable", "call", "unknown")
        for found in _kernels(each, texts[each.file])
    ]


def _kernels(declaration: Declaration, text: Text) -> Iterator[KernelDeclaration]:
    if declaration.expanded is None:
        yield from _kernel(declaration, declaration.node, text, declaration.first_line)
        return
    for each in Reader(declaration.file, declaration.expanded, {}).declarations():
        if each.is_kernel and each.node is not None:
            yield from _kernel(declaration, each.node, declaration.expanded, 0)


def _kernel(
    declaration: Declaration, node: Any, text: Text, line: int
) -> Iterator[KernelDeclaration]:
    inner = unwrapped(node)
    function = function_of(inner)
    found = None if function is None else declarator_of(function)
    if found is None:
        return
    template: tuple[TemplateParameter, ...] = ()
    outer = node
    is_special = False
    while outer is not None and outer.type in ("template_declaration", "linkage_specification"):
        listed = outer.child_by_field_name("parameters")
        if listed is not None:
            template += tuple(_template(listed, text))
            is_special = is_special or not listed.named_children
        outer = outer.named_children[-1] if outer.named_children else None
    body = inner.child_by_field_name("body")
    stop = inner.end_byte if body is None else body.start_byte
    head = text.between(node.start_byte, stop)
    own = found.child_by_field_name("name") if found.type == "template_function" else found
    given = found.child_by_field_name("arguments") if own is not found else None
    name = text.spelled(own or found)
    yield KernelDeclaration(
        "::".join((*declaration.space, name)),
        declaration.file,
        line and text.line(found.start_byte),
        () if is_special else template,
        tuple(_parameters(function, text)),
        _arguments(head, b"__launch_bounds__"),
        _arguments(head, b"__cluster_dims__"),
        body is not None,
        is_special or found.type == "template_function",
        "" if given is None else text.spelled(given),
        declaration,
    )


def _arguments(head: Sequence[Token], attribute: bytes) -> str:
    """Return the text in an attribute's brackets."""
    for at, token in enumerate(head[:-1]):
        if token.text == attribute and head[at + 1].text == b"(":
            return spelled(head[at + 2 : closing(head, at + 1)])
    return ""


def _template(listed: Any, text: Text) -> Iterator[TemplateParameter]:
    for each in listed.named_children:
        if each.type == "comment":
            continue
        tokens = text.between(each.start_byte, each.end_byte)
        equals = next((at for at, token in enumerate(tokens) if token.text == b"="), len(tokens))
        default = spelled(tokens[equals + 1 :])
        before = tokens[:equals]
        last = before[-1] if before else None
        if last is not None and last.is_word and len(before) > 1:
            yield TemplateParameter(spelled(before[:-1]), last.text.decode(), default)
        else:
            yield TemplateParameter(spelled(before), "", default)


def _parameters(function: Any, text: Text) -> Iterator[Named]:
    listed = function.child_by_field_name("parameters")
    for each in () if listed is None else listed.named_children:
        if not each.type.endswith("parameter_declaration") and each.type != "variadic_parameter":
            continue
        tokens = list(text.between(each.start_byte, each.end_byte))
        equals = next((at for at, token in enumerate(tokens) if token.text == b"="), len(tokens))
        tokens = [token for token in tokens[:equals] if token.text != b"__grid_constant__"]
        text_of = spelled(tokens)
        declarator = each.child_by_field_name("declarator")
        name = None if declarator is None else declarator_of(declarator)
        if name is not None and "identifier" in name.type:
            at = next((i for i, t in enumerate(tokens) if t.start == name.start_byte), None)
            if at is not None:
                token = tokens.pop(at)
                yield Named(spelled(tokens), token.text.decode(), text_of)
                continue
        kind = spelled(tokens)
        if kind != "void":
            yield Named(kind, "", text_of)
