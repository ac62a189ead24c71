"""Where the source of a Python function is, and its text."""

from __future__ import annotations

import linecache
from pathlib import Path


def shown(file: str) -> str:
    """A file's name as a reader has it: from the working directory, where it lies below that."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def text(file: str) -> str:
    """The text of a Python file or of a notebook's cell; empty where it can't be read."""
    return "".join(linecache.getlines(file))
