"""Define what a recording holds: the events of one block, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.ptx.program import Program
from tilewise.errors import CheckError
from tilewise.launch import Finding
from tilewise.places import Dim3

MOST_EVENTS = 20_000
MOST_LANES = 1 << 20
"""The most threads of a block's events, all events together."""


NOWHERE = int(np.iinfo(np.int64).min)
"""The address of a thread that gives none, where others of its warp give it theirs."""


@dataclass(frozen=True)
class Sync:
    """A synchronisation: what threads wait for, or what they tell others.

    Attributes
    ----------
    on : str
        ``"mbarrier"``; groups of ``"cp.async"``, of ``"bulk"`` copies or of ``"wgmma"``; or the
        barrier of a ``"cluster"``.
    action : str
        ``"wait"``, ``"arrive"``, ``"commit"``; of an mbarrier also ``"init"``, ``"inval"``,
        ``"expect"`` and ``"complete"``.
    at : tuple of int
        The mbarriers, as bytes of the block's shared memory.
    is_remote : bool
        Whether some are another block's of the cluster; those are not in ``at``.
    allowed : int or None
        The number of last groups that are not waited for.
    is_expecting : bool
        Whether an arrival lets the mbarrier expect more bytes.
    is_of_copies : bool
        Whether an arrival counts once the threads' ``cp.async`` are done.
    passes : bool
        Whether the threads of a wait continue at once.
    """

    on: str
    action: str
    at: tuple[int, ...] = ()
    is_remote: bool = False
    allowed: int | None = None
    is_expecting: bool = False
    is_of_copies: bool = False
    passes: bool = True


@dataclass(frozen=True)
class Move:
    """A bulk copy to or from the block's shared memory.

    Attributes
    ----------
    offset, size : int
        The place and the size in shared memory, in bytes.
    is_store : bool
        Whether it reads shared memory.
    barrier : int or None
        The mbarrier that is told, as a byte of the block's shared memory.
    origin : ndarray of int64 or None
        The place in global memory that each 16-byte piece comes from; -1 for one that is filled.
    is_from_outside : bool
        Whether a thread of another block started it.
    flips : int
        How often the mbarrier's parity flipped before.
    """

    offset: int
    size: int
    is_store: bool
    barrier: int | None
    origin: npt.NDArray[np.int64] | None
    is_from_outside: bool
    flips: int


@dataclass
class Event:
    """One instruction, run by some threads of a block at once.

    Attributes
    ----------
    op : int
        The instruction's number among the program's.
    line : int or None
        The line of the kernel's own file; None for a line of a header, or for none.
    threads : ndarray of intp
        The threads, by their linear numbers in the block.
    kind : str
        ``"load"``, ``"store"`` or ``"atomic"`` of memory, ``"compute"`` of floats, ``"matrix"``
        for a product of matrices, ``"copy"`` in bulk, ``"sync"``, ``"barrier"``, ``"branch"``,
        ``"end"``, or ``"other"``.
    space : str
        The memory space, ``"global"``, ``"shared"`` or ``"local"``; empty for no memory.
    address : ndarray of int64 or None
        The byte address of each thread, in the device's memory or in the block's shared memory. For
        ``ldmatrix`` and ``stmatrix``, it is the row whose address the thread gives, or ``NOWHERE``.
    width : int
        The bytes that each thread accesses.
    values : ndarray or None
        The values loaded or stored, those that an atomic found (None for a reduction, which returns
        none), or the result, of shape (threads,) or (threads, elements).
    left : ndarray or None
        The values in memory after an atomic: if several threads update one place they take turns,
        and each of them has the value that the last one left.
    scope : str
        The threads that a barrier holds: all of the ``"block"``; a ``"part"`` of it, as many
        threads as the barrier says; or each ``"warp"`` by itself.
    is_copy : bool
        Whether it is an asynchronous copy to shared memory: a load where it begins, a store where
        it arrives.
    target : (ndarray of intp, ndarray of int64) or None
        The threads of such copies that begin, also those whose copies read nothing and bring zeros,
        and the bytes in the block's shared memory that they write.
    requests, sectors, conflicts : int
        The requests, sectors and bank conflicts of this one execution.
    held : tuple of Held
        The elements that lanes hold, for an instruction on matrices.
    is_by_rows : bool
        Whether memory is accessed as by ``ldmatrix``: eight rows of 16 bytes are served at once.
    pieces : mapping of str to ndarray, or None
        The byte offsets in the block's memory of the 16-byte pieces, a row for each warpgroup, for
        a product that reads matrices in shared memory.
    sync : Sync or None
    move : Move or None
    """

    op: int
    line: int | None
    threads: npt.NDArray[np.intp]
    kind: str
    space: str = ""
    address: npt.NDArray[np.int64] | None = None
    width: int = 0
    values: npt.NDArray[Any] | None = None
    left: npt.NDArray[Any] | None = None
    scope: str = ""
    is_copy: bool = False
    target: tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]] | None = None
    requests: int = 0
    sectors: int = 0
    conflicts: int = 0
    held: tuple[Held, ...] = ()
    is_by_rows: bool = False
    pieces: Mapping[str, npt.NDArray[np.int64]] | None = None
    sync: Sync | None = None
    move: Move | None = None


@dataclass(frozen=True)
class Attempt:
    """An access that was not made, because a check found it faulty.

    Attributes
    ----------
    op : int
        The instruction.
    kind, space, width
        The kind, space and width, as in :class:`Event`.
    threads : ndarray of intp
        All threads that run the instruction, including those without a fault.
    address : ndarray of int64
        The address of each thread, as in :class:`Event`.
    """

    op: int
    kind: str
    space: str
    width: int
    threads: npt.NDArray[np.intp]
    address: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fault:
    """The fault that ended a block's run.

    Attributes
    ----------
    error : CheckError
    finding : Finding
        The finding, which names one thread.
    op : int
        The instruction that has the fault, which may have run before it was found.
    line : int or None
        The line of the instruction, as in :class:`Event`.
    thread : int
        The linear number of the thread in the block.
    space : str
        ``"global"`` or ``"shared"`` if the fault has a place; else empty.
    address : int
        The address of that place, as in :class:`Event`.
    width : int
        The bytes of an element there.
    attempt : Attempt or None
        The access that was not made; None if it was made before the fault was found.
    """

    error: CheckError
    finding: Finding
    op: int
    line: int | None
    thread: int
    space: str = ""
    address: int = 0
    width: int = 0
    attempt: Attempt | None = None


@dataclass
class Recording:
    """The events of one block, in order, with their program.

    Attributes
    ----------
    program : Program
    block : (int, int, int)
        The index of the block in the grid.
    events : list of Event
    is_cut : bool
        Whether there were too many events to keep all.
    fault : Fault or None
        The fault that ended the run.
    """

    program: Program
    block: Dim3 = (0, 0, 0)
    events: list[Event] = field(default_factory=list)
    is_cut: bool = False
    fault: Fault | None = None


def check_blocks(grid: Dim3, blocks: Sequence[Dim3]) -> None:
    """Refuse blocks that a grid has not.

    Raises
    ------
    ValueError
        If there is such a block.
    """
    for block in blocks:
        if not all(0 <= i < n for i, n in zip(block, grid, strict=True)):
            x, y, z = grid
            raise ValueError(f"there is no block {block}: the grid is {x:,} x {y:,} x {z:,}")
