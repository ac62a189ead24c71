"""Write pages of docs/ from the records in benchmarks/results: paragraphs, tables, files.

A script that draws a page has ``PAGES``, which maps each file that it writes to the records that it
reads; benchmarks/readme.py lists them.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"


def read(path: Path) -> dict[str, Any]:
    """Return a record."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def gpu_of(record: Mapping[str, Any]) -> str:
    """Return the name of the GPU that a record was measured on, as ``"NVIDIA H200"``."""
    return str(record["machine"]["gpu"]).partition(",")[0]


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
        One letter a column: ``"l"`` aligns it at the left, and ``"r"`` at the right.
    """
    rules = ["---:" if side == "r" else "---" for side in sides]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heading, rules, *lines))
