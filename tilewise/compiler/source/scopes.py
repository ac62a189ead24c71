"""The declarations that are visible at a place in a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewise.compiler.source.tree import nodes

_SCOPES = (
    "compound_statement", "case_statement", "translation_unit", "declaration_list", "for_statement",
)  # fmt: skip


def visible(place: Any, kinds: tuple[str, ...]) -> Iterator[Any]:
    """Yield the declarations of some kinds that are visible at a node, the nearest ones first."""
    node = place
    while (parent := node.parent) is not None:
        if parent.type in _SCOPES or parent.type.startswith("preproc_"):
            for child in reversed(parent.named_children):
                if child.start_byte < node.start_byte and child.type in kinds:
                    yield child
        elif parent.type == "function_definition" and "parameter_declaration" in kinds:
            for child in nodes(parent.child_by_field_name("declarator")):
                if child.type == "parameter_declaration":
                    yield child
        node = parent
