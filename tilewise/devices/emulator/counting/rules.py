"""The rules by which a program's accesses are counted, as far as its machine code decides that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.compiler import Compiled
from tilewise.devices.emulator.counting.confirming import Counted
from tilewise.devices.emulator.counting.elected import Elected, elected
from tilewise.devices.emulator.counting.joining import Joining, join
from tilewise.devices.emulator.ptx.program import Program


@dataclass(frozen=True)
class Rules:
    """The rules by which the accesses of one program are counted.

    Attributes
    ----------
    joining : Joining
        The rule for shared memory: which accesses ptxas joined.
    elected : Elected
        The rule for atomics: which ones a single lane of a warp executes.
    """

    joining: Joining
    elected: Elected

    @staticmethod
    def of(program: Program, compiled: Compiled) -> Rules:
        """Find the rules of a program; its machine code is read where they depend on it."""
        return Rules(join(program, compiled), elected(program, compiled))

    @property
    def accesses(self) -> Mapping[int, Counted]:
        """The widths at which shared accesses are counted, as :class:`Joining` gives them."""
        return self.joining.accesses

    @property
    def lanes(self) -> Mapping[int, str]:
        """The lanes that execute atomics, as :class:`Elected` gives them."""
        return self.elected.lanes

    def doubt(self) -> str:
        """Return why counts may differ from the machine code's; empty if they agree."""
        return "; ".join(dict.fromkeys(filter(None, (self.joining.reason, self.elected.reason))))
