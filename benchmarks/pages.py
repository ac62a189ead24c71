"""Paragraphs and tables of the pages that are drawn from records."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence


def paragraph(text: str) -> str:
    """Return a text in lines of at most 99 characters."""
    lines = textwrap.wrap(text, 99, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{line}\n" for line in lines)


def table(heading: Sequence[str], lines: Sequence[Sequence[str]], sides: str) -> str:
    """Return a table in Markdown.

    Parameters
    ----------
    heading : sequence of str
    lines : sequence of sequences of str
    sides : str
        One letter a column: ``"l"`` or ``"r"``.
    """
    rules = ["---:" if side == "r" else "---" for side in sides]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heading, rules, *lines))
