"""What orders threads by flags, tickets and locks: atomics, volatile accesses and fences.

What a thread did before a fence, and then an atomic or a volatile write, is ordered before what
another does behind an atomic or a volatile read of the same place (PTX ISA 8.8, release and acquire
patterns). A reader's fence is not asked for, nor is a fence's scope looked at.
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
from tilewise.devices.emulator.threads.op import Op

STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
RELEASES = frozenset(("release", "acq_rel"))
MOST_TURNS = 256
"""Atomics of one instruction on one place that are taken one after another; of more, the last one
alone is ordered behind the others."""
_NO_FENCES = frozenset(("proxy", "mbarrier_init"))
_ACTS = frozenset(
    ("st", "red", "bar", "barrier", "mbarrier", "cp", "call", "shfl", "vote", "match", "redux")
)


def is_fence(instruction: Instruction) -> bool:
    """Whether an instruction orders a thread's accesses to memory."""
    return instruction.opcode == "membar" or (
        instruction.opcode == "fence" and _NO_FENCES.isdisjoint(instruction.modifiers)
    )


def is_strong(op: Op) -> bool:
    """Whether loads and stores are those of flags."""
    return bool(STRONG & set(op.instruction.modifiers))


@lru_cache(maxsize=64)
def orders_by_flags(program: Program) -> bool:
    """Whether a program has what orders its threads by flags."""
    return any(is_fence(i) or not RELEASES.isdisjoint(i.modifiers) for i in program.instructions)


@lru_cache(maxsize=64)
def spins(program: Program) -> frozenset[int]:
    """The loads and atomics that loops wait by, which do nothing else."""
    found = set()
    after: list[list[int]] = []
    for at, instruction in enumerate(program.instructions):
        is_load = instruction.opcode == "ld" and STRONG & set(instruction.modifiers)
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
    """Where accesses begin."""
    found = [access.units * access.width for access in accesses]
    return np.unique(np.concatenate(found)).astype(np.int64) if found else np.empty(0, np.int64)


def keys(accesses: list[Access]) -> npt.NDArray[Any]:
    """The lanes and the places of accesses, as one number each."""
    found = [access.units * access.width + 1j * access.lanes for access in accesses]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.complex128)


def as_polls(access: Access, swapped: npt.NDArray[Any]) -> list[Item]:
    """A read, as a volatile one where its lane compares and swaps the same place: what it found
    is then checked."""
    is_poll = np.isin(access.units * access.width + 1j * access.lanes, swapped)
    if not is_poll.any():
        return [access]
    rest = access.part(~is_poll)
    return [replace(access.part(is_poll), kind=POLL), *([rest] if len(rest.lanes) else [])]


def syncs(access: Access, shared: Names | None) -> list[Item]:
    """What orders the lanes of an atomic or a volatile access; at ``shared`` places only."""
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
