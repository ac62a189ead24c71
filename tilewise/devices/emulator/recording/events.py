"""What a recording holds: the events of one block, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.program import Program
from tilewise.places import Dim3

MOST_EVENTS = 20_000
MOST_LANES = 1 << 20
"""Threads of a block's events, all events together."""


@dataclass
class Event:
    """One instruction, run by some threads of a block at once.

    Attributes
    ----------
    op : int
        Its number among the program's.
    line : int or None
        Of the kernel's own file; None for what is a header's, or nobody's.
    threads : ndarray of intp
        Which, by their linear number in the block.
    kind : str
        ``"load"``, ``"store"`` or ``"atomic"`` of memory, ``"compute"`` of floats, ``"barrier"``,
        ``"branch"``, ``"end"``, or ``"other"``.
    space : str
        Of memory: ``"global"``, ``"shared"`` or ``"local"``; else empty.
    address : ndarray of int64 or None
        Of memory, bytes, a thread: in the device's memory, or in the block's shared memory.
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
    requests, sectors, conflicts : int
        That this one time made.
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
    requests: int = 0
    sectors: int = 0
    conflicts: int = 0


@dataclass
class Recording:
    """One block's events, in order, of a program; cut short where there are too many."""

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
