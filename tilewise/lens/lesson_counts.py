"""Count what each rung of the ladder shows, on the emulator: the figures of its lesson.

Every rung of many blocks multiplies the same matrices in its own first dtype, with its own tile,
and is counted beside the previous rung, or the one that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.compiler import DEFAULT_ARCH
from tilewise.ladder.rungs import RUNGS, Rung
from tilewise.lens.profile import Profile
from tilewise.lens.profiling import profile as profile_product

SIZE = 512
LADDER = tuple(each for each in RUNGS if each.default_tile is not None)
# The counters that a rung can be about, those of data movement and of waiting first.
MOVED = (
    "global load requests", "global load sectors", "global store requests",
    "global store sectors", "shared load requests", "shared load wavefronts",
    "shared load bank conflicts", "shared store requests", "shared store wavefronts",
    "shared store bank conflicts", "barriers",
)  # fmt: skip
# Totals over all kinds of accesses, including ldmatrix and cp.async.
WHOLE = ("shared requests", "shared bank conflicts")
BULK = ("global bulk load requests", "global bulk load sectors")  # of a TMA, if there are any
COUNTERS = (
    *MOVED, *WHOLE, *BULK, "divergent branches", "registers a thread", "shared memory a block",
)  # fmt: skip


def count(rung: Rung, size: int = SIZE) -> dict[str, Any]:
    """Return the counters of ``rung``, named as in a profile."""
    found = profile_product(rung, size, size, size, tile=rung.default_tile)
    c = found.counters
    figures = named(found)
    figures |= dict(zip(WHOLE, (c.shared_requests, c.shared_bank_conflicts), strict=True))
    counters = {name: figures.get(name, 0) for name in COUNTERS}
    return {"dtype": rung.dtype(), "tile": rung.default_tile, "counters": counters}


def named(profile: Profile) -> dict[str, Any]:
    """Return a profile's figures by name, after the name of the memory if they are of one."""
    return {
        f"{each.group.removesuffix('memory')}{each.name}"
        if each.group.endswith(" memory")
        else each.name: each.value
        for each in profile.figures()
    }


def before(rung: Rung) -> str | None:
    """Return the rung that ``rung`` is counted beside; None for the first."""
    if rung.against:
        return rung.against
    place = LADDER.index(rung)
    return LADDER[place - 1].name if place else None


def chosen(rung: Rung, counted: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counter that ``rung`` is about, or if it names none, the one that falls most."""
    if rung.counter:
        return rung.counter
    other = before(rung)
    if other is None:
        return MOVED[0]
    mine, theirs = counted[rung.name]["counters"], counted[other]["counters"]
    return max(MOVED, key=lambda name: (theirs[name] + 1) / (mine[name] + 1))


def document() -> dict[str, Any]:
    """Return the contents of ``tilewise/ladder/lessons.json``, except for their provenance."""
    counted = {rung.name: count(rung) for rung in LADDER}
    rungs = {
        rung.name: {
            "against": before(rung), "counter": chosen(rung, counted), **counted[rung.name]
        }
        for rung in LADDER
    }  # fmt: skip
    sizes = {"m": SIZE, "n": SIZE, "k": SIZE}
    return {**sizes, "arch": DEFAULT_ARCH, "rungs": rungs}
