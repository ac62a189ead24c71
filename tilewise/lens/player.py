"""The player: one HTML page that shows a kernel running, step by step, from a recorded trace.

The page holds its style, its program and the trace, both compressed. It asks for nothing from
anywhere, and opens from a file.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from tilewise.lens.tours.find import tour_of

FORMAT, VERSION = "tilewise trace", 1
# The program, in the order in which its parts use one another.
PROGRAM = (
    "origins.js", "state.js", "conflicts.js", "sectors.js", "story.js", "grids.js", "arrays.js",
    "lanes.js", "pieces.js", "fragments.js", "strips.js", "words.js", "details.js", "player.js",
    "tour.css", "cover.js", "tour.js", "opening.js",
)  # fmt: skip


def page(trace: Mapping[str, Any]) -> str:
    """The player of a trace.

    Parameters
    ----------
    trace : Mapping
        A trace as plain data: what ``tilewise.lens.trace.Trace.to_dict`` gives.

    Returns
    -------
    str
        A whole HTML document. It needs no network and no other file.

    Raises
    ------
    ValueError
        If it is no trace, or of another version, or recorded no step, or holds a NaN or an
        infinity as a number (JSON has none: a trace writes them as text).
    """
    if trace.get("format") != FORMAT:
        raise ValueError(f"format is {trace.get('format')!r}; a trace's is {FORMAT!r}")
    if trace.get("version") != VERSION:
        raise ValueError(
            f"a trace of version {trace.get('version')!r}; this player reads {VERSION}"
        )
    blocks = trace.get("blocks") or []
    if not blocks or not all(block.get("steps") for block in blocks):
        raise ValueError("the trace has no block, or one with no step: there is nothing to show")
    data = json.dumps(trace, separators=(",", ":"), allow_nan=False)
    parts = {
        "title": html.escape(f"{trace.get('title') or trace.get('kernel', 'kernel')} - tilewise"),
        "style": _text("player.css"),
        "program": _packed("\n".join(map(_part, PROGRAM))),
        "trace": _packed(data),
        "guide": _packed(json.dumps(tour_of(trace).to_dict(), separators=(",", ":"))),
    }
    # All at once: what is put in is not looked through for marks.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _text("player.html"))


def _part(name: str) -> str:
    """A part of the program; of a style sheet what puts it into the page, so that it is packed."""
    text = _text(name)
    if name.endswith(".js"):
        return text
    made = 'Object.assign(document.createElement("style"), { textContent: '
    return f"document.head.append({made}{json.dumps(text)} }}));"


def _packed(text: str) -> str:
    # No time in it: of one trace there is one page.
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def _text(name: str) -> str:
    folder = resources.files("tilewise.lens").joinpath("player")
    return folder.joinpath(name).read_text(encoding="utf-8")
