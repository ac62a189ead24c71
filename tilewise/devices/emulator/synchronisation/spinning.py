"""Let threads that poll memory take turns with the others, and notice those that poll forever.

A thread that reads a flag, or tries a lock, again and again waits for another thread. Nothing in
the program shows that. But if all threads have had a turn, and then every register is as before,
every thread is at the same instruction, and memory is not written, nothing will ever change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.devices.emulator.memory.storage import SHARED_WINDOW, WINDOW_BYTES
from tilewise.devices.emulator.threads.faults import Place
from tilewise.devices.emulator.threads.lanes import OFFSET_MASK, Lanes
from tilewise.devices.emulator.threads.op import Op, Value
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_CALM = 8
"""The rounds of turns before the first state is kept, to be compared with later ones."""
_WRITERS = frozenset(("st", "red", "cp", "stmatrix", "multimem", "wgmma", "wmma", "tensormap"))


@dataclass
class _State:
    """The state of a batch: it waits forever if a round of turns changes none of this."""

    groups: dict[int, Lanes]
    registers: list[Value]
    written: int

    def same(self, other: _State) -> bool:
        return (
            self.written == other.written
            and self.groups.keys() == other.groups.keys()
            and all(lanes.same(other.groups[at]) for at, lanes in self.groups.items())
            and all(
                mine is yours or np.array_equal(mine, yours)
                for mine, yours in zip(self.registers, other.registers, strict=True)
            )
        )


class Spinning:
    """The groups of a batch that poll memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._writers: list[Op] | None = None
        # For each instruction that polled lately: the lanes that did so last, and their addresses.
        self._polls: dict[Op, tuple[Lanes, Callable[[Lanes], Any]]] = {}
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self._polls.clear()
        self._last: int | None = None
        self._kept: _State | None = None
        self._round = self._kept_at = 0

    def polled(self, op: Op, lanes: Lanes, where: Callable[[Lanes], Any]) -> None:
        """Take note that lanes poll memory, at the addresses that ``where`` gives."""
        self.machine.patience -= 1
        self._polls[op] = lanes, where

    def next_turn(self, groups: Mapping[int, Lanes]) -> int | None:
        """Return the group that gets the next turn; None where there is no choice.

        It is the highest group, or the one below the group that only polled in its last turn.
        """
        if len(groups) < 2:
            return None
        below = [at for at in groups if self._last is not None and at < self._last]
        return max(below or groups)

    def had_turn(self, at: int, is_patient: bool) -> None:
        """Take note whether a group that had its turn did more than poll."""
        self._last = None if is_patient else at

    def is_forever(self) -> bool:
        """Return whether no later round of turns can change anything."""
        self._round += 1
        if self._round < _CALM:
            return False
        now = self._state()
        kept = self._kept
        if kept is not None and now.written == kept.written:
            passed = self._round - self._kept_at
            if passed > 2 * len(now.groups) + _CALM and now.same(kept):
                return True
            # A loop may take some rounds to return to an earlier state (R. P. Brent, 1980).
            if passed < self._kept_at:
                return False
        else:
            self._round = _CALM
        self._kept, self._kept_at = now, self._round
        self._polls.clear()
        return False

    def _state(self) -> _State:
        machine = self.machine
        if self._writers is None:
            self._writers = [op for op in machine.ops if _writes(op)]
        written = sum(op.lanes_run for op in self._writers) + machine.progress
        return _State(dict(machine.groups), list(machine.registers.values), written)

    def report(self) -> None:
        """Report which threads poll what, and how many blocks have not begun."""
        geometry = self.machine.geometry
        total = math.prod(geometry.grid)
        later = total - 1 - int(geometry.blocks.max())
        unbegun = (
            f"; {later:,} of the launch's {plural(total, 'block')} have not begun: if one of those "
            "should write it, launch with cooperative=True, so that all blocks run together"
            if later
            else ""
        )
        for op, (lanes, where) in self._polls.items():
            lane = int(lanes.numbers[0])
            first = Lanes(geometry, lanes.numbers[:1], False)
            place = self._place(op, int(np.ravel(where(first))[0]))
            op.fault(
                "barrier",
                f"waits forever: it reads {place} again and again, and no thread that can still "
                f"run writes it{unbegun}",
                lane,
                place,
                geometry.of_one_block(lanes.numbers) - 1,
            )

    def _place(self, op: Op, at: int) -> Place:
        """Return the place that an instruction accesses at an address."""
        machine = self.machine
        is_shared = any(m.startswith("shared") for m in op.instruction.modifiers)
        if not is_shared and SHARED_WINDOW <= at < SHARED_WINDOW + WINDOW_BYTES:
            is_shared, at = True, at - SHARED_WINDOW
        if is_shared:
            return machine.shared_place(at & OFFSET_MASK, op.element, op.width)
        return machine.global_place(machine.memory.find(at, at + op.element), at)


def _writes(op: Op) -> bool:
    """Return whether an instruction may change what another thread, or a later turn, reads.

    An atomic need not be counted: its result shows the change. A parameter is in registers.
    """
    opcode, modifiers = op.instruction.opcode, op.instruction.modifiers
    if opcode == "call":
        return op.control is None  # a system function, such as vprintf
    return opcode in _WRITERS and not any(word.startswith("param") for word in modifiers)
