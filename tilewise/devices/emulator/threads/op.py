"""One instruction of a program, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.sources import SourceLine
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.threads.faults import IMMEDIATE, Place, Site
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.errors import UnsupportedInstructionError

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Value = Any
"""The value of a register: an array of shape (lanes,) or a NumPy scalar."""
Reader = Callable[[Lanes], Value]
Writer = Callable[[Lanes, Value], None]
Groups = list[tuple[int, Lanes]]
Reduce = Callable[[Lanes, npt.NDArray[Any], Index, Index], None]
"""A barrier's reduction: the lanes that take the result, what all lanes brought, their blocks,
and the blocks of the lanes that take it."""


class Store(Protocol):
    """The destination of an instruction's store."""

    def unwrite(
        self, lanes: Lanes, lacks: npt.NDArray[np.uint8], origin: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.bool_]:
        """Record that bits which were just stored are undefined.

        Parameters
        ----------
        lacks : ndarray of uint8, shape (lanes.count, bytes)
            The undefined bits of each byte.
        origin : ndarray of int32, shape (lanes.count,)
            The read that the undefined bits come from.

        Returns
        -------
        ndarray of bool, shape (lanes.count,)
            Which lanes stored to global memory, where nothing is remembered.
        """
        ...


class Tally:
    """The counts of an instruction's accesses to a memory.

    Attributes
    ----------
    space : str
        The name of the memory space, which the counters in :class:`tilewise.Counters` have before
        an underscore.
    requests, sectors, bytes, wavefronts, conflicts : int
    """

    space = ""
    requests = sectors = bytes = wavefronts = conflicts = 0

    def __init__(self, space: str) -> None:
        self.space = space


class Op(Tally):
    """One instruction, ready to run, with its counts.

    Attributes
    ----------
    run : callable
        The function that runs it for some lanes.
    control : callable or None
        The function that runs a branch, a barrier or the like, and returns where the lanes are
        then; None for any other instruction.
    copied : tuple of bool
        The elements of a load that are only stored again.
    is_needless : bool
        Whether its result is not needed, so that it need not be computed.
    spread : ndarray of intp, shape (registers, 2, 32, bytes), or None
        The lane that reads each byte that a lane gets in a register, and the number of the byte
        there, for a load that a warp's lanes make for one another.
    reached : callable or None
        The function that gives the bytes that are accessed from an address on, for some lanes; only
        for an instruction that accesses more than ``width``.
    access : Store or None
        The destination of a store.
    others : list of Tally
        The counts of accesses to a memory beside ``space``.
    held : callable or None
        The function that gives the elements that lanes hold, for an instruction on matrices.
    pieces : callable or None
        The function that gives the names of matrices in shared memory that a product reads, and the
        offsets of their 16-byte pieces in the block's memory, a row for each warpgroup of some
        lanes.
    accessed : callable or None
        The function to call while somebody records, for each access of an instruction that makes
        several, with the lanes, their addresses, bytes a lane, and the values loaded or stored.
    tensor_type : str
        The type of the factors by which the operations of tensor cores are counted; empty if they
        are counted only together with all others.
    """

    # Defaults are class attributes, because a launch makes an op for each instruction.
    control: Callable[[Lanes], Groups] | None = None
    width = element = 4
    copied: tuple[bool, ...] = ()
    spread: Index | None = None
    is_needless = False
    reached: Callable[[Lanes], int] | None = None
    access: Store | None = None
    flops_a_lane = 0
    tensor_type = ""
    held: Callable[[], tuple[Any, ...]] | None = None
    pieces: Callable[[Lanes], dict[str, npt.NDArray[np.int64]]] | None = None
    accessed: Callable[[Lanes, Any, int, Any], None] | None = None
    lanes_run = warps_run = 0
    lanes_off = 0  # the lanes of those that the instruction's guard turned off
    divergent = barriers = 0
    reduce: Reduce | None = None

    def __init__(self, machine: Machine, instruction: Instruction, index: int) -> None:
        self.machine, self.instruction, self.index = machine, instruction, index
        self.run: Callable[[Lanes], None] = _nothing
        self.others: list[Tally] = []

    @property
    def line(self) -> int:
        """The line of its source."""
        return self.instruction.line

    @cached_property
    def file(self) -> str:
        """The file that this line is of."""
        return self.machine.setup.sources.name(self.instruction)

    @cached_property
    def source(self) -> SourceLine:
        """The instruction's line, and the calls that were inlined there."""
        return self.machine.setup.sources.line(self.instruction)

    def fault(
        self,
        kind: str,
        message: str,
        lane: int,
        place: Place | None = None,
        others: int = 0,
        earlier: Op | None = None,
    ) -> None:
        """Report a fault of one lane at this instruction; ``earlier`` is the other one's of it."""
        machine = self.machine
        source = self.source
        if kind in IMMEDIATE and machine.program.has_calls:
            source = machine.calls.seen_from(self, lane)
        site = self._site(source, earlier)
        machine.faults.add(kind, site, message, machine.geometry, lane, place, others)

    def note(self, kind: str, message: str, lane: int, earlier: Op | None = None) -> None:
        """Report something that is no fault, or not surely one."""
        machine = self.machine
        site = self._site(self.source, earlier)
        machine.faults.note(kind, site, message, machine.geometry, lane)

    def _site(self, source: SourceLine, earlier: Op | None) -> Site:
        other = None if earlier is None else earlier.source
        return Site(self.index, self.instruction.opcode, source, other)

    def where(self, file: str) -> str:
        """Return the line, its file unless that is ``file``, and the calls that lead there."""
        return self.source.where(file)

    def unsupported(self, why: str = "") -> UnsupportedInstructionError:
        """Return the error that names this instruction."""
        tail = f": {why}" if why else ""
        return UnsupportedInstructionError(
            f"the emulator does not know the instruction {self.instruction} "
            f"(source {self.where(self.machine.setup.sources.own)}){tail}"
        )


def _nothing(lanes: Lanes) -> None:
    pass
