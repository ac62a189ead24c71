"""Define what a recording holds: the events of one block, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.ptx.program import Program
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
        How many of the last groups are not waited for.
    is_expecting : bool
        Of an arrival, whether it lets the mbarrier expect more bytes.
    is_of_copies : bool
        Of an arrival, whether it counts once the threads' ``cp.async`` are there.
    passes : bool
        Of a wait, whether the threads go on at once.
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
        Where each 16-byte piece comes from in global memory; -1 for one that is filled.
    is_from_outside : bool
        Whether a thread of another block started it.
    round : int
        Of the mbarrier, how many of its rounds ended before.
    """

    offset: int
    size: int
    is_store: bool
    barrier: int | None
    origin: npt.NDArray[np.int64] | None
    is_from_outside: bool
    round: int


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
        Of memory: ``"global"``, ``"shared"`` or ``"local"``; else empty.
    address : ndarray of int64 or None
        Of memory, bytes, a thread: in the device's memory, or in the block's shared memory. Of
        ``ldmatrix`` and ``stmatrix``, the row whose address the thread gives, or ``NOWHERE``.
    width : int
        Of memory, bytes a thread.
    values : ndarray or None
        What was loaded or stored, what an atomic found (None of a reduction, which is not told),
        or the result, of shape (threads,) or (threads, elements).
    left : ndarray or None
        Of an atomic, what stood in memory behind it: where several threads update one place they
        take turns, and for each of them it is what the last has left.
    scope : str
        Of a barrier, who waits for one another: all of the ``"block"``; a ``"part"`` of it, as
        many threads as the barrier says; or each ``"warp"`` by itself.
    is_copy : bool
        Of an asynchronous copy to shared memory: a load where it begins, a store where it arrives.
    target : (ndarray of intp, ndarray of int64) or None
        Of such copies that begin: all their threads, those too whose copies read nothing and bring
        zeros, and the bytes in the block's shared memory that they go to.
    requests, sectors, conflicts : int
        That this one time made.
    held : tuple of Held
        Of an instruction on matrices: which elements lanes hold.
    is_by_rows : bool
        Whether memory is reached as by ``ldmatrix``: eight rows of 16 bytes are served at once.
    pieces : mapping of str to ndarray, or None
        Of a product that reads matrices in shared memory: where their 16-byte pieces are, bytes of
        the block's, a row for each warpgroup.
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


@dataclass
class Recording:
    """The events of one block, in order, with their program; cut short if there are too many."""

    program: Program
    events: list[Event] = field(default_factory=list)
    is_cut: bool = False


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
