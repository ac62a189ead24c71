"""A plan for products that fit the GPU neither whole nor in strips of all of k: k is divided, too.

A tile of D stays on the GPU, and adds up the products of the pieces of A and B that pass by.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.gemm import blocking
from tilewise.gemm.blocking import BlockPlan, Problem
from tilewise.host.plan import (
    ONE,
    Compute,
    CopyIn,
    CopyOut,
    HostPlan,
    HostProblem,
    Region,
    Step,
    rounded,
)

MOST_PRODUCTS = 1 << 20
"""The most products, each of which takes the host some 50 µs, however small it is."""
SLOTS = 2
"""The number of slots for pieces of A and of B and for tiles of D: one in use, one on its way."""


class TooLittleError(ValueError):
    """The error that the memory is too small.

    Attributes
    ----------
    least : int
        The bytes that would be enough.
    """

    def __init__(self, least: int) -> None:
        super().__init__(f"the least that this product takes is {least:,} bytes")
        self.least = least


def plan(p: HostProblem, blocks: BlockPlan) -> HostPlan:
    """Return the plan with these blocks.

    Parameters
    ----------
    p : HostProblem
        The problem, with a batch of one matrix.
    blocks : BlockPlan
        The blocks, as :func:`choose` returns them.
    """
    words = (
        f"tiles of {blocks.block_m:,} x {blocks.block_n:,} of D ({blocks.tiles}), each a sum of "
        f"{blocks.pieces} products of depth {blocks.block_k:,}"
    )
    of_c = p.bytes_out if p.reads_c else 0
    return HostPlan(
        memory(p, blocks), blocks.bytes_read + of_c, blocks.bytes_written, words,
        lambda: _steps(p, blocks), _is_rounded(p, blocks),
    )  # fmt: skip


def choose(p: HostProblem, room: int) -> BlockPlan:
    """Return the blocks that copy the fewest bytes.

    Parameters
    ----------
    p : HostProblem
        The problem, with a batch of one matrix.
    room : int
        The bytes of the GPU's memory that the blocks may take.

    Raises
    ------
    TooLittleError
        If not even one element of each matrix fits, or if the blocks that fit are so small that
        there are too many products.
    """
    found = _choose(p, room)
    if found.tiles * found.pieces <= MOST_PRODUCTS:
        return found
    while found.tiles * found.pieces > MOST_PRODUCTS:
        room = 2 * room
        found = _choose(p, room)
    raise TooLittleError(room)


def _choose(p: HostProblem, room: int) -> BlockPlan:
    item = p.a.item
    of_blocks = Problem(p.m, p.n, p.k, item, p.sums, p.d.item, casts=item, copies=1)
    least = memory(p, BlockPlan(of_blocks, 1, 1, 1))
    wanted = room
    while room >= least:
        try:
            blocks = blocking.choose(of_blocks, wanted)
        except ValueError:  # if lines of aligned pitch take most of it
            return BlockPlan(of_blocks, 1, 1, 1)
        taken = memory(p, blocks)
        if taken <= room:
            return blocks
        # Aligned lines, and rounded tiles, take more than blocking.choose counts.
        wanted = min(wanted - 1, int(wanted * room / taken))
    raise TooLittleError(least)


def memory(p: HostProblem, blocks: BlockPlan) -> int:
    """Return the bytes of all regions."""
    return SLOTS * sum(_sizes(p, blocks))


def _sizes(p: HostProblem, blocks: BlockPlan) -> tuple[int, int, int, int]:
    """Return the bytes of a piece of A, of B, of a tile of sums, and of a rounded tile."""
    m, n, k = blocks.block_m, blocks.block_n, blocks.block_k
    is_rounded = _is_rounded(p, blocks)
    of_sums = p.d._replace(item=p.sums) if is_rounded else p.d
    return (
        rounded(p.a.size(m, k)), rounded(p.b.size(k, n)), rounded(of_sums.size(m, n)),
        rounded(p.d.size(m, n)) if is_rounded else 0,
    )  # fmt: skip


def _is_rounded(p: HostProblem, blocks: BlockPlan) -> bool:
    return blocks.is_divided and p.sums != p.d.item


def _steps(p: HostProblem, blocks: BlockPlan) -> Iterator[Step]:
    sizes = _sizes(p, blocks)
    is_rounded = _is_rounded(p, blocks)
    m, n, k = blocks.block_m, blocks.block_n, blocks.block_k
    of_sums = p.d._replace(item=p.sums) if is_rounded else p.d
    pitches = p.a.pitch(m, k), p.b.pitch(k, n), of_sums.pitch(m, n), p.d.pitch(m, n)
    counts = [0, 0, 0]

    def region(kind: int, count: int) -> Region:
        slot = count % SLOTS
        offset = SLOTS * sum(sizes[:kind]) + slot * sizes[kind]
        return Region((SLOTS * kind + slot,), offset, pitches[kind])

    held = [region(0, 0), region(1, 0)]
    done = 0
    for step in blocks.steps():
        if isinstance(step, blocking.Load):
            which = 0 if step.matrix == "A" else 1
            held[which] = region(which, counts[which])
            counts[which] += 1
            yield CopyIn(step.matrix, ONE, step.rows, step.columns, held[which])
        elif isinstance(step, blocking.Multiply):
            d, result = region(2, counts[2]), region(3, counts[2])
            done = 1 if step.is_first else done + 1
            is_last = done == blocks.pieces
            if p.reads_c and (is_last if is_rounded else step.is_first):
                yield CopyIn("C", ONE, step.rows, step.columns, result if is_rounded else d)
            yield Compute(
                1, step.rows.size, step.columns.size, step.depth.size, held[0], held[1], d,
                step.is_first, result if is_rounded and is_last else None,
            )  # fmt: skip
        else:
            yield CopyOut(
                ONE, step.rows, step.columns,
                region(3 if is_rounded else 2, counts[2]),
            )  # fmt: skip
            counts[2] += 1
