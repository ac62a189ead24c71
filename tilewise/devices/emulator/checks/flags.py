"""Find the order that flags, tickets and locks give threads: atomics, volatile accesses, fences.

One thread passes a fence and then makes an atomic or a volatile write. Another makes an atomic or a
volatile read of the same place, later in this run. Then everything that the first did before its
fence is ordered before everything that the second does after its read (PTX ISA 8.8, release and
acquire patterns). The reader needs no fence here, and the scope of a fence is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.checks.log import (
    ACQUIRE,
    ADDRESS,
    FLAG,
    POLL,
    RELEASE,
    Access,
    Item,
    Names,
    Sync,
)
from tilewise.devices.emulator.ptx.flow import following
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Instruction

RELEASES = frozenset(("release", "acq_rel"))
MOST_TURNS = 256
"""The most atomics of one instruction on one place that are ordered one after another. If there are
more, only the last one is ordered after the others, which are not ordered among themselves.
"""
_NO_FENCES = frozenset(("proxy", "mbarrier_init"))
_ACTS = frozenset(
    ("st", "red", "bar", "barrier", "mbarrier", "cp", "call", "shfl", "vote", "match", "redux")
)


def is_fence(instruction: Instruction) -> bool:
    """Return whether an instruction orders a thread's accesses to memory."""
    return instruction.opcode == "membar" or (
        instruction.opcode == "fence" and _NO_FENCES.isdisjoint(instruction.modifiers)
    )


@lru_cache(maxsize=64)
def orders_by_flags(program: Program) -> bool:
    """Return whether a program has a fence or a release, which order threads by flags."""
    return any(is_fence(i) or not RELEASES.isdisjoint(i.modifiers) for i in program.instructions)


@lru_cache(maxsize=64)
def spins(program: Program) -> frozenset[int]:
    """Find the strong loads and atomics of loops that only wait by them."""
    found = set()
    after: list[list[int]] = []
    for at, instruction in enumerate(program.instructions):
        is_load = instruction.opcode == "ld" and instruction.is_strong
        if not is_load and instruction.opcode != "atom":
            continue
        after = after or following(program)
        queue, seen = list(after[at]), set()
        while queue:
            place = queue.pop()
            other = program.instructions[place]
            if place == at:
                found.add(at)
                break
            if place not in seen and other.opcode not in _ACTS and other.opcode != "atom":
                seen.add(place)
                queue += after[place]
    return frozenset(found)


def addresses(accesses: list[Access]) -> Names:
    """Return the addresses at which accesses begin, sorted, each once."""
    found = [access.units * access.width for access in accesses]
    return np.unique(np.concatenate(found)).astype(np.int64) if found else np.empty(0, np.int64)


def keys(accesses: list[Access]) -> npt.NDArray[Any]:
    """Return the pairs of a lane and an address of accesses, each as one complex number."""
    found = [access.units * access.width + 1j * access.lanes for access in accesses]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.complex128)


def as_polls(access: Access, swapped: npt.NDArray[Any]) -> list[Item]:
    """Split a plain read into the part that counts as a volatile read, and the rest.

    A lane that compares and swaps the same place checks the value that it read, so its read does
    not race with atomics. ``swapped`` has the :func:`keys` of all compare-and-swaps.
    """
    is_poll = np.isin(access.units * access.width + 1j * access.lanes, swapped)
    if not is_poll.any():
        return [access]
    rest = access.part(~is_poll)
    return [replace(access.part(is_poll), kind=POLL), *([rest] if len(rest.lanes) else [])]


def syncs(access: Access, shared: Names | None) -> list[Item]:
    """Return the order that a strong access gives lanes; only at ``shared`` places unless None."""
    place, lanes = (access.units * access.width).astype(np.int64), access.lanes
    if shared is not None:
        chosen = np.isin(place, shared)
        place, lanes = place[chosen], lanes[chosen]
    if not len(place):
        return []
    names = ADDRESS + place
    is_fenced = not RELEASES & set(access.op.instruction.modifiers)
    if access.kind == POLL:
        return [Sync(ACQUIRE, lanes, names)]
    if access.kind == FLAG:
        return [Sync(RELEASE, lanes, names, is_fenced)]
    order = np.argsort(place, kind="stable")
    first = np.searchsorted(place[order], place[order])
    turn = np.empty(len(place), np.intp)
    turn[order] = np.arange(len(place)) - first
    found: list[Item] = []
    if turn.max() >= MOST_TURNS:
        is_last = np.zeros(len(place), np.bool_)
        is_last[order[np.r_[place[order][1:] != place[order][:-1], True]]] = True
        found.append(Sync(ACQUIRE, lanes[~is_last], names[~is_last]))
        found.append(Sync(RELEASE, lanes[~is_last], names[~is_last], is_fenced))
        lanes, names, turn = lanes[is_last], names[is_last], np.zeros(int(is_last.sum()), np.intp)
    for now in range(int(turn.max()) + 1):
        mine = turn == now
        found.append(Sync(ACQUIRE, lanes[mine], names[mine]))
        found.append(Sync(RELEASE, lanes[mine], names[mine], is_fenced))
    return found
