"""Notebooks as pages: the cells and the outputs that they were saved with, nothing is executed."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDERS = ("docs/notebooks", "examples/notebooks")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Notebook:
    """One notebook of the repository."""

    path: Path

    @cached_property
    def _cells(self) -> list[dict[str, Any]]:
        cells: list[dict[str, Any]] = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
        return cells

    @property
    def uri(self) -> str:
        """The page, below docs/."""
        return f"notebooks/{self.path.stem}.md"

    @property
    def file_uri(self) -> str:
        """The notebook itself, to be downloaded."""
        return f"notebooks/{self.path.name}"

    @property
    def title(self) -> str:
        """The first heading, or the file's name."""
        for cell in self._cells:
            if cell["cell_type"] == "markdown" and (
                found := re.search(r"^# (.+)$", _text(cell["source"]), re.MULTILINE)
            ):
                return found[1].strip()
        return self.path.stem.replace("-", " ").replace("_", " ")

    def markdown(self) -> str:
        """The page."""
        parts = [part for cell in self._cells for part in _cell(cell)]
        download = f"[Download this notebook]({self.path.name}) and run it: it needs no GPU."
        at = next((i for i, part in enumerate(parts) if part.startswith("# ")), None)
        if at is None:
            parts.insert(0, f"# {self.title}")
            at = 0
        head, _, rest = parts[at].partition("\n")
        parts[at : at + 1] = [part for part in (head, download, rest.strip("\n")) if part]
        return "\n\n".join(parts) + "\n"


def found(root: Path) -> list[Notebook]:
    """The notebooks that there are, by their files' names."""
    files = [file for folder in FOLDERS for file in (root / folder).glob("*.ipynb")]
    return [Notebook(file) for file in sorted(files, key=lambda file: file.name)]


def _cell(cell: dict[str, Any]) -> list[str]:
    text = _text(cell["source"]).strip("\n")
    if cell["cell_type"] == "markdown":
        # As pages they are beside each other, one folder below those of docs/.
        text = re.sub(r"\]\(([\w-]+)\.ipynb([)#])", r"](\1.md\2", text)
        return [re.sub(r"\]\(\.\./\.\./docs/", "](../", text)]
    if cell["cell_type"] != "code" or not text:
        return []
    language = "cuda" if re.match(r"%%writefile \S+\.cu\b", text) else "python"
    return [_fenced(text, language), *(_output(each) for each in cell.get("outputs", ()))]


def _output(output: dict[str, Any]) -> str:
    """What a cell gave; HTML and pictures as they are, all else as text."""
    if output["output_type"] == "stream":
        return _fenced(_text(output["text"]), "text")
    if output["output_type"] == "error":
        return _fenced(_COLOURS.sub("", "\n".join(output["traceback"])), "text")
    data = output.get("data", {})
    if "image/png" in data:
        picture = base64.b64encode(base64.b64decode(_text(data["image/png"]))).decode()
        return f'<img alt="What the cell above draws" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        # In one line, and so one block of HTML to Markdown. Line breaks in a frame's page count.
        page = _text(data["text/html"]).strip().replace("\n", "&#10;" if "srcdoc" in data else " ")
        return f'<div class="output">{page}</div>'
    return _fenced(_text(data.get("text/plain", "")), "text")


def _fenced(text: str, language: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
