"""Explain matrix products, bulk copies and waits in a sentence each."""

from __future__ import annotations

from collections.abc import Callable

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.recording.events import Event

WARP, WARPGROUP = 32, 128
Words = tuple[str, str]
Verb = Callable[[Event, str, str], str]


def product(event: Event, who: str, verb: str) -> Words:
    """Explain a product of matrices."""
    held = {each.name: each for each in event.held}
    d = held["D"]
    if event.pieces is not None:
        groups = len(event.threads) // WARPGROUP
        names = " and ".join(event.pieces)
        one = "one product" if groups == 1 else f"a product for each of {groups} warpgroups"
        return (
            f"{who} {verb} matrices: D ({_size(d)}) += A · B, {one}; {names} lie in shared memory.",
            "The tensor cores go on by themselves: sums may be read, and what is multiplied "
            "overwritten, behind wgmma.wait_group. The emulator multiplies at once.",
        )
    a, b = (f"{name} ({_size(held[name])})" for name in "AB")
    warps = len(event.threads) // WARP
    each = "" if warps == 1 else ", one product for each warp"
    return (
        f"{who} {verb} matrices: D ({_size(d)}) += {a} · {b}{each}.",
        "Every lane holds some elements of each matrix in its registers.",
    )


def _size(held: Held) -> str:
    columns, rows = held.columns, held.rows
    if held.name == "B":
        rows *= held.depth
    else:
        columns *= held.depth if held.name == "A" else 1
    return f"{rows} x {columns}"


def rows(event: Event, who: str, verb: str, what: str) -> Words:
    """Explain ``ldmatrix`` or ``stmatrix``."""
    (held,) = event.held
    count = held.rows // 8
    matrices = f"{count} matrices" if count > 1 else "a matrix"
    each = "" if len(event.threads) == WARP else " a warp"
    if event.conflicts:
        tail = f"{event.conflicts:,} bank conflict{'' if event.conflicts == 1 else 's'}"
        why = (
            "Each matrix is served by itself. Some of its eight rows of 16 bytes lie in the same "
            "banks, and are served in turn."
        )
    else:
        tail = "no bank conflict"
        why = (
            "Each matrix is served by itself, at once where its eight rows of 16 bytes lie in "
            "different banks, as here."
        )
    return f"{who} {verb} {matrices} of 8 x 8{each}, {what}: {tail}.", why


def copy(event: Event, who: str, where: str, source: str, barrier: str) -> Words:
    """Explain a bulk copy to or from shared memory.

    Parameters
    ----------
    event : Event
    who : str
    where : str
        The place in shared memory.
    source : str
        The name of what is copied; empty if it is not known.
    barrier : str
        The mbarrier that is notified; empty for none.
    """
    move = event.move
    if move is None:
        return f"{who} begins a bulk copy that does not reach this block's shared memory.", ""
    starter = "Another block of the cluster" if move.is_from_outside else who
    if move.is_store:
        return (
            f"{starter} begins a bulk copy of {move.size:,} bytes from {where}.",
            "They may be overwritten behind cp.async.bulk.wait_group. The emulator copies at once.",
        )
    of = f" ({source})" if source else ""
    told = f" {barrier} counts them." if barrier else ""
    return (
        f"{starter} begins a bulk copy of {move.size:,} bytes to {where}{of}.{told}",
        "It goes on by itself until it is there, and then counts at its mbarrier. The emulator "
        "copies at once.",
    )


_GROUPS = {
    "cp.async": "their copies (cp.async)", "bulk": "their bulk copies", "wgmma": "their products",
}  # fmt: skip


def sync(event: Event, who: str, names: str, verb: Verb) -> Words:
    """Explain who waits for what, or notifies whom."""
    assert event.sync is not None
    it = event.sync
    waits = verb(event, "waits", "wait")
    if it.on == "mbarrier":
        where = " and ".join(filter(None, (names, "one of another block" * it.is_remote)))
        if it.action == "wait":
            if it.passes:
                return f"{who} {verb(event, 'asks', 'ask')} {where}, whose parity has flipped.", ""
            return (
                f"{who} {waits} at {where} until its parity flips.",
                "It flips when all arrivals, and all bytes that the mbarrier expects, are there.",
            )
        said = {
            "init": ("initialises", "initialise", ""), "inval": ("invalidates", "invalidate", ""),
            "arrive": ("arrives", "arrive", "at "),
            "expect": ("lets", "let", "more bytes be expected by "),
            "complete": ("counts", "count", "bytes at "),
        }[it.action]  # fmt: skip
        more = ", and it expects more bytes" if it.is_expecting else ""
        if it.is_of_copies:
            more = f", once {verb(event, 'its', 'their')} copies (cp.async) are there"
        return f"{who} {verb(event, *said[:2])} {said[2]}{where}{more}.", ""
    if it.on == "cluster":
        if it.action == "arrive":
            return f"{who} {verb(event, 'arrives', 'arrive')} at the cluster's barrier.", ""
        return f"{who} {waits} for all blocks of the cluster.", ""
    what = _GROUPS[it.on]
    if it.action == "commit":
        return f"{who} {verb(event, 'closes', 'close')} a group of {what}.", ""
    last = "" if not it.allowed else (
        " but the last group" if it.allowed == 1 else f" but the last {it.allowed} groups"
    )  # fmt: skip
    return f"{who} {waits} for all of {what}{last}.", ""
