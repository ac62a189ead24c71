"""Limit a launch on the emulator: its time, instructions, memory and output."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.errors import LimitError
from tilewise.limits import Limits

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

STRETCH = 512
"""The most instructions that a group runs between two looks at the clock."""
_LOOKS = 16
"""The period of the looks: every 16th look reads the clock, and every 16th of those counts
instructions and memory.
"""
_STATM = Path("/proc/self/statm")


class Budget:
    """The limits of one launch, and how much of them it has taken.

    Parameters
    ----------
    limits : Limits
    file : str
        The kernel's source, for messages where no instruction is known.
    """

    def __init__(self, limits: Limits, file: str) -> None:
        self.limits = limits
        self.end = math.inf if limits.seconds is None else time.monotonic() + limits.seconds
        self._is_after_finding = False
        self.file, self.line = file, 0
        self._looks = self._printed = 0
        self._held = 0 if limits.memory is None else _held_bytes()

    def exceeded(self, limit: str) -> LimitError:
        """Return the error that names a limit, and the line that was run last."""
        what = "the launch was stopped"
        if self._is_after_finding and limit == "seconds":
            what += " after its first finding"
        return LimitError(limit, getattr(self.limits, limit), what, self.file, self.line)

    def end_after_finding(self, seconds: float) -> None:
        """Limit the rest of the launch to ``seconds``, unless its own limit ends it earlier."""
        end = time.monotonic() + seconds
        if end < self.end:
            self.end, self.limits = end, replace(self.limits, seconds=seconds)
            self._is_after_finding = True

    def look(self, machine: Machine, at: int) -> None:
        """Raise LimitError if the limits are reached, the instruction ``at`` being next."""
        self._looks += 1
        if self._looks % _LOOKS:
            return
        self._stand_at(machine, at)
        self.check_time()
        if self._looks % _LOOKS**2 == 0:
            self.count(machine)

    def count(self, machine: Machine) -> None:
        """Raise LimitError where too many instructions ran, or too much memory is held."""
        most = self.limits.instructions
        if most is not None and sum(op.warps_run for op in machine.ops) > most:
            raise self.exceeded("instructions")
        most = self.limits.memory
        if most is not None and _held_bytes() - self._held > most:
            raise self.exceeded("memory")

    def check_time(self) -> None:
        """Raise LimitError where the time is over."""
        if time.monotonic() > self.end:
            raise self.exceeded("seconds")

    def take(self, machine: Machine, size: int, at: int) -> None:
        """Raise LimitError where memory of ``size`` bytes is more than may be taken."""
        if self.limits.memory is not None and size > self.limits.memory:
            self._stand_at(machine, at)
            raise self.exceeded("memory")

    def room(self) -> int | None:
        """Return the bytes that may still be printed; None where there is no limit."""
        most = self.limits.output
        return None if most is None else most - self._printed

    def printed(self, machine: Machine, at: int, size: int) -> None:
        """Raise LimitError where ``size`` more bytes of output are too many."""
        self._printed += size
        if self.limits.output is not None and self._printed > self.limits.output:
            self._stand_at(machine, at)
            raise self.exceeded("output")
        if time.monotonic() > self.end:
            self._stand_at(machine, at)
            raise self.exceeded("seconds")

    def _stand_at(self, machine: Machine, at: int) -> None:
        op = machine.ops[at]
        if op.line:
            self.file, self.line = op.file, op.line


def _held_bytes() -> int:
    """Return the bytes that this process holds; 0 if the system does not say."""
    if sys.platform != "linux":
        return 0
    return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
