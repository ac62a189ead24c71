"""Carry out a plan: load pieces, multiply them, store tiles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Protocol

import numpy as np

from tilewise.devices import Device
from tilewise.files.npy import Array, MatrixFile, Target
from tilewise.gemm.blocking import BlockPlan, Load, Multiply, Store
from tilewise.matmul import matmul

RECORDED = 1.0
"""The least seconds between entries in the journal, each of which waits for the disk."""


class Multiplier(Protocol):
    """The interface of what multiplies pieces in memory."""

    def __call__(self, a: Array, b: Array, sums: Array, is_first: bool) -> None:
        """Set ``sums`` to A B, or add to it."""
        ...


class OnHost:
    """NumPy's product on the host's cores.

    Parameters
    ----------
    plan : BlockPlan
    sums : dtype
    """

    def __init__(self, plan: BlockPlan, sums: np.dtype[Any]) -> None:
        self._rows = plan.strip
        self._strip = np.empty(plan.strip * plan.block_n if plan.is_divided else 0, sums)

    def __call__(self, a: Array, b: Array, sums: Array, is_first: bool) -> None:
        with np.errstate(all="ignore"):
            if is_first:
                np.matmul(a, b, out=sums)
                return
            for top in range(0, a.shape[0], self._rows):
                rows = slice(top, min(top + self._rows, a.shape[0]))
                height = rows.stop - top
                strip = self._strip[: height * b.shape[1]].reshape(height, b.shape[1])
                np.matmul(a[rows], b, out=strip)
                sums[rows] += strip


class OnDevice:
    """A piece's product by :func:`tilewise.matmul`: to the device and back.

    Parameters
    ----------
    device : Device
    max_gpu_memory : int, optional
        Bytes that it may take there.
    """

    def __init__(self, device: Device, max_gpu_memory: int | None = None) -> None:
        self._device, self._memory = device, max_gpu_memory

    def __call__(self, a: Array, b: Array, sums: Array, is_first: bool) -> None:
        c, beta = (None, 0) if is_first else (sums, 1)
        matmul(
            a, b, c, beta=beta, out=sums, device=self._device, max_gpu_memory=self._memory
        )  # fmt: skip


@dataclass
class Moved:
    """Bytes that really were read from A and B, and written to C."""

    read: int = 0
    written: int = 0


def execute(
    plan: BlockPlan,
    inputs: Mapping[str, MatrixFile],
    target: Target,
    dtypes: tuple[str, str],
    multiply: Multiplier,
    *,
    first: int,
    finished: Callable[[int], None],
    progress: Callable[[int, int], None],
) -> Moved:
    """Carry out the steps of a plan.

    Parameters
    ----------
    plan : BlockPlan
    inputs : mapping of str to MatrixFile
        A and B, by these names.
    target : Target
    dtypes : (str, str)
        The dtype of the sums, and that of A's and B's elements in the multiplication.
    multiply : Multiplier
    first : int
        The tile to begin with.
    finished : callable
        A function that is called with the number of finished tiles, when the disk holds them.
    progress : callable
        A function that is called with the multiply-adds that are done, and all of them.

    Raises
    ------
    OSError
        If a file can't be read or written.
    """
    of_sums, of_factors = map(np.dtype, dtypes)
    sizes = {"A": plan.block_m * plan.block_k, "B": plan.block_k * plan.block_n}
    names = {name: inputs[name].header.name for name in inputs}
    raw = {name: np.empty(size, names[name]) for name, size in sizes.items()}
    cast = {name: np.empty(sizes[name] if names[name] != of_factors.name else 0, of_factors)
            for name in inputs}  # fmt: skip
    space = np.empty(plan.block_m * plan.block_n, of_sums)
    held: dict[str, Array] = {}
    moved = Moved()
    p = plan.problem
    done = recorded = first
    work = p.m * p.n * max(p.k, 1)
    at = plan.done_before(first) * max(p.k, 1)
    last = time.monotonic()

    def record() -> None:
        nonlocal recorded, last
        if done > recorded:
            target.flush()
            finished(done)
        recorded, last = done, time.monotonic()

    sums = space[:0].reshape(0, 0)
    ahead = _Ahead(inputs)
    try:
        for step, following in pairwise(chain(plan.steps(first), [None])):
            if isinstance(following, Load):
                ahead.expect(following)
            if isinstance(step, Load):
                piece = inputs[step.matrix].load(step.rows, step.columns, raw[step.matrix])
                moved.read += piece.nbytes
                held[step.matrix] = _as(piece, cast[step.matrix])
            elif isinstance(step, Multiply):
                shape = step.rows.size, step.columns.size
                sums = space[: math.prod(shape)].reshape(shape)
                multiply(held["A"], held["B"], sums, step.is_first)
                at += math.prod(shape) * max(step.depth.size, 1)
                progress(at, work)
            elif step is not None:
                moved.written += _store(plan, target, step, sums)
                done = step.tile + 1
                if time.monotonic() - last >= RECORDED:
                    record()
    except BaseException:
        with suppress(OSError):  # the first error is the one to report
            record()
        raise
    finally:
        ahead.close()
    target.flush()  # the header too, where there are no tiles
    record()  # then a check that is interrupted is all that is left to do
    return moved


class _Ahead:
    """A request to the system to read the next piece while this one is multiplied."""

    def __init__(self, inputs: Mapping[str, MatrixFile]) -> None:
        self._inputs = inputs
        self._thread = ThreadPoolExecutor(1, "tilewise reads ahead")
        self._asked: Future[None] | None = None

    def expect(self, step: Load) -> None:
        """Ask for a piece; not where the system still takes in the last one."""
        if self._asked is None or self._asked.done():
            expect = self._inputs[step.matrix].expect
            self._asked = self._thread.submit(expect, step.rows, step.columns)

    def close(self) -> None:
        """Return when nothing is asked of the files any more."""
        self._thread.shutdown(cancel_futures=True)


def _as(piece: Array, space: Array) -> Array:
    """Return the piece in ``space``'s dtype, in the same order; itself if there is no room."""
    if not space.size:
        return piece
    if piece.flags.c_contiguous:
        found = space[: piece.size].reshape(piece.shape)
    else:
        found = space[: piece.size].reshape(piece.shape[::-1]).T
    found[...] = piece
    return found


def _store(plan: BlockPlan, target: Target, step: Store, sums: Array) -> int:
    """Write a tile, in strips if it has to be rounded; return the bytes."""
    if target.dtype == sums.dtype:
        target.store(step.rows, step.columns, sums)
        return sums.nbytes
    written = 0
    for top in range(0, step.rows.size, plan.strip):
        piece = sums[top : top + plan.strip]
        with np.errstate(all="ignore"):
            rounded = piece.astype(target.dtype)
        start = step.rows.start + top
        target.store(type(step.rows)(start, start + piece.shape[0]), step.columns, rounded)
        written += rounded.nbytes
    return written
