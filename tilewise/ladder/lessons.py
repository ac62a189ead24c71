"""The counters of a rung beside those of another, as the emulator counted them.

``benchmarks/lessons.py`` counts, and writes ``lessons.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

FILE = "lessons.json"


@cache
def known() -> Mapping[str, Any]:
    """Return what was counted: ``m``, ``n``, ``k``, ``arch``, and ``rungs`` by name.

    Each rung has its ``dtype``, its ``tile``, its ``counters``, the one ``counter`` to look at, and
    ``against``: the rung beside which it is counted, or None.
    """
    text = resources.files("tilewise.ladder").joinpath(FILE).read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def sentence(name: str) -> str:
    """Return a sentence on the counter of the rung ``name``, before and after; empty if none.

    Examples
    --------
    >>> sentence("tiled")
    'Global load requests fall from 8,388,608 to 262,144 (at 512 x 512 x 512).'
    """
    document = known()
    row = document["rungs"].get(name)
    if row is None:
        return ""
    counter, after = row["counter"], row["counters"][row["counter"]]
    what = counter[0].upper() + counter[1:]
    at = " x ".join(str(document[size]) for size in ("m", "n", "k"))
    if row["against"] is None:
        return f"{what}: {after:,} (at {at})."
    other = document["rungs"][row["against"]]
    before = other["counters"][counter]
    if other["dtype"] != row["dtype"]:
        at += f", of {other['dtype']} and of {row['dtype']}"
    if before == after:
        return f"{what} stay at {after:,} (at {at})."
    verb = "fall" if after < before else "rise"
    return f"{what} {verb} from {before:,} to {after:,} (at {at})."
