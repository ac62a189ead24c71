"""The climb, a page for each rung: docs/climb.md in parts, with its player and its source."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import tilewise
from tilewise.ladder.rungs import Rung

FOLDER = "climb"
_HEADING = re.compile(r"^## (?:(\d+) )?(\w+)$", re.MULTILINE)


def uri(rung: Rung) -> str:
    """The page of a rung, below docs/."""
    return f"{FOLDER}/{rung.number:02}-{rung.name}.md"


def pages() -> list[tuple[str, str]]:
    """Each rung's page: its title and where it is."""
    return [(f"{rung.number} {rung.name}", uri(rung)) for rung in tilewise.RUNGS]


def split(page: Path) -> dict[str, str]:
    """``climb.md`` without the rungs' sections, and a page for each of them.

    Raises
    ------
    ValueError
        If the page has no section of a rung.
    """
    text = page.read_text(encoding="utf-8")
    sections = {}
    for rung in tilewise.RUNGS:
        section, text = _taken_out(text, f"{rung.number} {rung.name}")
        sections[rung.name] = section
    made = {uri(rung): _page(rung, sections[rung.name]) for rung in tilewise.RUNGS}
    head, picture, rest = text.partition("\n![")
    return {page.name: f"{head}\n{_contents()}\n## Measured\n{picture}{rest}", **made}


def _taken_out(text: str, title: str) -> tuple[str, str]:
    """A section's text, and the page without it."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"climb.md has no section {title!r}")
    return found[1].strip("\n"), text[: found.start()] + text[found.end() :]


def _contents() -> str:
    """The rungs, each with its idea and a link."""
    rows = [
        f"| [{rung.number} {rung.name}]({uri(rung)}) | {rung.idea} |" for rung in tilewise.RUNGS
    ]
    return "\n".join(["## The rungs\n", "| rung | its idea |", "| --- | --- |", *rows, ""])


def _page(rung: Rung, section: str) -> str:
    """A rung's page."""
    section = section.replace("](../", "](../../")  # one folder further down
    told, _, _ = section.partition("\n\n")
    rest = section[len(told) :].strip("\n")
    parts = [
        f"# {rung.number} {rung.name}",
        f"**{rung.idea}** {rung.lesson}",
        told,
        f"<!-- player: {rung.name} -->",
        f"At other sizes, with other tiles: [try it in the browser](../try.md?rung={rung.name}).",
        rest,
        "## The whole kernel",
        f"`tilewise/kernels/ladder/{rung.path.name}`:",
        _folded("cuda", f"The source of {rung.name}", rung.path.read_text(encoding="utf-8")),
    ]
    if rung.number > 1:
        before = tilewise.RUNGS[rung.number - 2]
        parts.append(
            _folded("diff", f"What changed since {before.name}", _difference(before, rung))
        )
    return "\n\n".join(parts) + "\n"


def _difference(before: Rung, rung: Rung) -> str:
    one, other = (each.path.read_text(encoding="utf-8").splitlines() for each in (before, rung))
    lines = difflib.unified_diff(one, other, before.path.name, rung.path.name, lineterm="")
    return "\n".join(lines)


def _folded(language: str, title: str, code: str) -> str:
    """A code block that opens by a click."""
    body = "\n".join(f"    {line}".rstrip() for line in code.rstrip("\n").splitlines())
    return f'??? note "{title}"\n\n    ```{language}\n{body}\n    ```'
