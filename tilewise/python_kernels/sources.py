"""The file of a Python function's source, and its text."""

from __future__ import annotations

import linecache
from pathlib import Path


def shown(file: str) -> str:
    """Return a file's name for readers: relative to the working directory if it is below it."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def text(file: str) -> str:
    """Return the text of a Python file or of a notebook's cell; empty if it can't be read."""
    return "".join(linecache.getlines(file))
