"""What can be seen from a place in a text: declarations, the nearest ones first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewise.compiler.source.tree import nodes

_SCOPES = (
    "compound_statement", "case_statement", "translation_unit", "declaration_list", "for_statement",
)  # fmt: skip


def visible(place: Any, kinds: tuple[str, ...]) -> Iterator[Any]:
    """Declarations of some kinds that can be seen from a node, the nearest ones first."""
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
