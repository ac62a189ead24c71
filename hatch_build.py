"""What hatchling asks when it builds the package: the README as a package index shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)([^)#\s]+)\)\n*")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


class Readme(MetadataHookInterface):
    """The README with links that lead somewhere from outside the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the project's readme."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": abroad(text, source)}


def abroad(text: str, source: str | None) -> str:
    """The README for a reader who has no repository around it.

    Parameters
    ----------
    text : str
    source : str, optional
        The repository's public address, ``Source`` of ``[project.urls]``. With one, relative links
        are below it; without one, pictures are left out, and links name files of the source
        distribution.
    """
    if source is not None:
        base = source.rstrip("/")
        text = re.sub(
            r"(!\[[^\]]*\]\()(?!https?:)([^)#\s]+\))", rf"\g<1>{base}/raw/HEAD/\g<2>", text
        )
        return LINK.sub(rf"[\g<1>]({base}/blob/HEAD/\g<2>)", text)
    return LINK.sub(_named, PICTURE.sub("", text))


def _named(found: re.Match[str]) -> str:
    """A link as words: the file that it leads to."""
    words, path = found[1], found[2].partition("#")[0]
    return f"`{path}`" if words == path else f"{words} (`{path}`)"
