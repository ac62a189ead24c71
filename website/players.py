"""The players of the site: pages that ``tilewise watch`` writes, and the frames that show them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from html import escape

import tilewise
from tilewise.ladder.watched import sizes

CHOSEN = "TILEWISE_DOCS_PLAYERS"
"""The environment variable that names the rungs whose players are made, as ``"tiled naive"``;
without it, all are."""
MARK = re.compile(r"^<!-- player: (\w+) -->(?:\n!\[([^\]]*)\]\(([^)\s]+)\))?$", re.MULTILINE)
"""The mark of a player in a page, and the picture below it, which stands there without scripts."""


def chosen() -> list[str]:
    """The rungs whose players are made.

    Raises
    ------
    ValueError
        If the environment names one that there is not.
    """
    every = [rung.name for rung in tilewise.RUNGS]
    named = os.environ.get(CHOSEN)
    if named is None:
        return every
    if unknown := set(named.split()) - set(every):
        raise ValueError(f"{CHOSEN} names what is no rung: {', '.join(sorted(unknown))}")
    return [name for name in every if name in named.split()]


def uri(name: str) -> str:
    """Where the player of a rung is, below the site's root."""
    return f"players/{name}.html"


@cache
def page(name: str) -> str:
    """The player of a rung, run on the emulator at the sizes at which it is watched.

    Raises
    ------
    RuntimeError
        If the product was wrong.
    """
    watched = tilewise.watch(name)
    if not watched.correct:
        raise RuntimeError(f"{name} was wrong: {watched.verdict}")
    return watched.page


def figure(mark: re.Match[str], link: Callable[[str], str]) -> str:
    """The frame that shows a player, with what it shows in words, and a link that opens it alone.

    Parameters
    ----------
    mark : re.Match
        Of :data:`MARK`, which names a rung, and perhaps a picture.
    link : callable
        Gives the address of a file of the site, as seen from the page.
    """
    name, words, picture = mark.groups()
    rung, at = tilewise.rung(name), sizes(tilewise.rung(name))
    size = f"m = {at.m}, n = {at.n}, k = {at.k}" + ("" if at.tile is None else f", tile {at.tile}")
    told = f"<code>{name}</code> at {size}, as it ran on the emulator."
    if name not in chosen():
        return f'<p class="player-missing">{told} Its player was left out of this build.</p>'
    address = escape(link(uri(name)))
    still = f'<img class="still" alt="{escape(words)}" src="{escape(picture)}">' if picture else ""
    return (
        f'<figure class="player">\n'
        f'<iframe src="{address}" title="The player of {name}" loading="lazy"></iframe>\n'
        f'{still}<p class="still" data-search-exclude>The player needs JavaScript. What it shows: '
        f"{escape(rung.idea)} {escape(rung.lesson)}</p>\n"
        f"<figcaption>{told} "
        f'<a href="{address}" target="_blank">Open the player in a tab of its own</a>, '
        f"or write it yourself: <code>tilewise watch {name}</code></figcaption>\n"
        f"</figure>"
    )
