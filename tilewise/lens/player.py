"""The player: an HTML page that shows a kernel running, step by step, from a recorded trace.

The page contains its style, its program and the trace, both compressed. It makes no requests, and
opens from a file.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from tilewise.lens.costs import costs, fair, phase_ends, together
from tilewise.lens.tours.find import tour_of

FORMAT, VERSION = "tilewise trace", 1
# The programs, in the order in which their parts use one another.
_VIEWS = (
    "origins.js", "slides.js", "state.js", "conflicts.js", "sectors.js", "story.js", "beats.js",
    "faults.js", "grids.js", "sum.js", "arrays.js", "requests.js", "turns.js", "lanes.js",
    "pieces.js", "cost.js", "transport.js",
)  # fmt: skip
PROGRAM = (
    *_VIEWS, "arrivals.js", "fragments.js", "strips.js", "words.js", "details.js", "panels.js",
    "player.js", "tour.css", "cover.js", "tour.js", "opening.js",
)  # fmt: skip
BESIDE = (*_VIEWS, "beside.js")
_FOOT = re.compile(r"<!-- foot: (\w+) -->\n")
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_MARK = re.compile(r"\{\{(\w+)\}\}")


def page(trace: Mapping[str, Any]) -> str:
    """Return the player of a trace.

    Parameters
    ----------
    trace : Mapping
        A trace as plain data, as ``tilewise.lens.trace.Trace.to_dict`` returns it.

    Returns
    -------
    str
        A whole HTML document, which needs no network and no other file.

    Raises
    ------
    ValueError
        If it is not a trace, or has another version, or recorded no step, or contains a NaN or an
        infinity as a number (JSON has none: a trace writes them as text).
    """
    _check(trace)
    return _whole(
        "one.html", PROGRAM, _title(trace), _data(trace),
        _data([_costs(trace, number) for number in range(len(trace["blocks"]))]),
        _data(tour_of(trace).to_dict()),
    )  # fmt: skip


def page_of_two(
    one: Mapping[str, Any], other: Mapping[str, Any], told: Sequence[str] = ("", "")
) -> str:
    """Return a page of two traces side by side, in step by the share of work that each has done.

    The first recorded block of the one is shown beside the first of the other, and so on.

    Parameters
    ----------
    one, other : Mapping
        The traces, as in :func:`page`.
    told : sequence of str
        A sentence for each on its fault, or on whether its product is correct; empty if that is
        not known.

    Returns
    -------
    str
        A whole HTML document, as from :func:`page`.

    Raises
    ------
    ValueError
        As in :func:`page`.
    """
    traces = one, other
    pairs, spent = [], []
    for trace in traces:
        _check(trace)
    for number in range(min(len(trace["blocks"]) for trace in traces)):
        here, there = (costs(trace, number) for trace in traces)
        a, b = (trace["blocks"][number]["steps"] for trace in traces)
        pairs.append({
            "blocks": [number, number], "ticks": together(here.work, there.work, a, b),
            "fair": fair(here, there, phase_ends(a), phase_ends(b)),
        })  # fmt: skip
        spent.append([_costs(trace, number) for trace in traces])
    titles = [_title(trace) for trace in traces]
    data = {
        "traces": traces, "titles": titles, "costs": list(zip(*spent, strict=True)), "pairs": pairs,
        "told": list(told),
    }  # fmt: skip
    return _whole("beside.html", BESIDE, " beside ".join(titles), _data(data), "", "")


def _check(trace: Mapping[str, Any]) -> None:
    """Raise ValueError if a mapping is not a trace, or has no steps."""
    if trace.get("format") != FORMAT:
        raise ValueError(f"format is {trace.get('format')!r}; a trace's is {FORMAT!r}")
    if trace.get("version") != VERSION:
        raise ValueError(
            f"a trace of version {trace.get('version')!r}; this player reads {VERSION}"
        )
    blocks = trace.get("blocks") or []
    if not blocks or not all(block.get("steps") for block in blocks):
        raise ValueError("the trace has no block, or one with no step: there is nothing to show")


def _title(trace: Mapping[str, Any]) -> str:
    return str(trace.get("title") or trace.get("kernel", "kernel"))


def _costs(trace: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the costs of a block's steps, and the ends of its phases."""
    ends = phase_ends(trace["blocks"][number]["steps"])
    return {**costs(trace, number).to_dict(), "ends": ends}


def _data(value: Any) -> str:
    return _packed(json.dumps(value, separators=(",", ":"), allow_nan=False))


def _whole(
    body: str, program: Sequence[str], title: str, trace: str, spent: str, guide: str
) -> str:
    """Return the page with the body in a file."""
    parts = {
        "title": html.escape(f"{title} - tilewise"),
        "style": _text("player.css"),
        "program": _program(tuple(program)),
        "trace": trace, "costs": spent, "guide": guide,
    }  # fmt: skip
    # All at once, so that the inserted parts are not searched for marks.
    return _filled(_filled(_text("player.html"), {"body": _body(body)}), parts)


def _body(name: str) -> str:
    """Return a page's body, and below it the foot that all pages share, filled from its file."""
    body, *given = _FOOT.split(_text(name))
    return body + _filled(_text("foot.html"), dict(zip(given[::2], given[1::2], strict=True)))


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """Return a text with each mark that ``parts`` has replaced; other marks stay."""
    return _MARK.sub(lambda mark: parts.get(mark[1], mark[0]), text)


@cache
def _program(files: tuple[str, ...]) -> str:
    """Return the program of a page, compressed."""
    return _packed("\n".join(map(_part, files)))


def _part(name: str) -> str:
    """Return a part of the program. A style sheet becomes a statement that adds it to the page."""
    text = _text(name)
    if name.endswith(".js"):
        return _COMMENT.sub("", text)  # comments are for those who read the files
    made = 'Object.assign(document.createElement("style"), { textContent: '
    return f"document.head.append({made}{json.dumps(text)} }}));"


def _packed(text: str) -> str:
    # Without a time, so that one trace gives one page. Level 9 takes thrice the time of level 6 and
    # makes it 2 % smaller.
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")


def _text(name: str) -> str:
    folder = resources.files("tilewise.lens").joinpath("player")
    return folder.joinpath(name).read_text(encoding="utf-8")
