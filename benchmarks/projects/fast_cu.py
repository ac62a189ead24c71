"""fast.cu (github.com/pranjalssh/fast.cu): C = A B of bfloat16 on Hopper, step by step, and sums.

A is M x K and B is N x K, both in rows (the first kernel alone has B as K x N), C is N x M: the
product's transpose. Elements are small integers, so that sums in float32 are exact whatever their
order, and C is the sum rounded once to bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewise
from projects.case import Array, Case, Draw, same

BK = 64
SPACE = 128  # tiles of the order that a cluster is given, at most
Made = tuple[Sequence[Any], Callable[[], str]]


def bfloat16(x: Array) -> Array:
    """Return the nearest bfloat16, ties to even, as uint16."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Make integers that bfloat16 holds."""
    return rng.integers(-9, 10, shape)


def flat(x: Array, rows: int) -> tilewise.MappedArray:
    """Map a matrix in two dimensions, in boxes of some rows and 64 columns."""
    return tilewise.tensor_map(x, (rows, 64), swizzle="128B", dtype="bfloat16", promotion=0)


def folded(
    x: Array, rows: int, columns: int, rank: int = 3, swizzle: str = "128B", width: int = 64
) -> tilewise.MappedArray:
    """Map a matrix with its columns folded: 64 of them, then rows, then the next 64 columns.

    Parameters
    ----------
    x : array, (m, n)
    rows, columns : int
        Of a box.
    rank : int
        Dimensions of the map, those beyond three of one element.
    swizzle : str
    width : int
        Elements of a box along the 64, which lie apart by as much in shared memory.
    """
    m, n = x.shape
    view = x.reshape(m, n // 64, 64).transpose(1, 0, 2)
    more = (1,) * (rank - 3)
    return tilewise.tensor_map(
        view.reshape(more + view.shape) if more else view, (*more, columns // 64, rows, width),
        swizzle=swizzle, dtype="bfloat16", promotion=0,
    )  # fmt: skip


def product(m: int, n: int, k: int, arguments: Callable[[Array, Array, Array], Any]) -> Draw:
    """Return what makes (M, N, K) and the other arguments of A, B (N x K) and C (N x M)."""

    def draw(rng: np.random.Generator) -> Made:
        a, b = integers(rng, m, k), integers(rng, n, k)
        c = bfloat16(integers(rng, n, m))
        args = (m, n, k, *arguments(bfloat16(a), bfloat16(b), c))
        return args, lambda: same(c, bfloat16(b @ a.T), "C")

    return draw


def first(rng: np.random.Generator) -> Made:
    """Make (M, N, K, A, B, C) with B as K x N and C as M x N."""
    m, n, k = 128, 256, 48
    a, b = integers(rng, m, k), integers(rng, k, n)
    c = bfloat16(integers(rng, m, n))
    return (m, n, k, bfloat16(a), bfloat16(b), c), lambda: same(c, bfloat16(a @ b), "C")


def total(items: int) -> Draw:
    """Return what makes (in, out, n) of a sum of integers, ``items`` of them a thread's load."""

    def draw(rng: np.random.Generator) -> Made:
        n = 512 * 20 + 300 if items == 1 else 1024 * 16 + 300  # a whole block, and a part of one
        x = rng.integers(0, 100, n * items, np.int32)
        out = np.full(1, -1, np.int32)
        return (x, out, n), lambda: same(out, x.sum(dtype=np.int32), "the sum")

    return draw


def hilbert(size: int) -> list[tuple[int, int]]:
    """Return the places of a square, its side a power of two, along Hilbert's curve."""
    if size == 1:
        return [(0, 0)]
    half = size // 2
    inner = hilbert(half)
    return (
        [(y, x) for x, y in inner]
        + [(x, y + half) for x, y in inner]
        + [(x + half, y + half) for x, y in inner]
        + [(size - 1 - y, half - 1 - x) for x, y in inner]
    )


def order(rows: int, columns: int, clusters: int) -> Array:
    """Deal tiles of C to clusters in turn, along Hilbert's curve; -1 ends a cluster's list."""
    found = np.full((clusters, SPACE), -1, np.int32)
    side = 1 << (max(rows, columns) - 1).bit_length()
    inside = [(x, y) for x, y in hilbert(side) if x < rows and y < columns]
    for i, (x, y) in enumerate(inside):
        found[i % clusters, i // clusters] = x << 16 | y
    return found


def matmul(number: int, template: str, grid: int, threads: int, shared: int, draw: Draw) -> Case:
    """Return one of the products, as the file that includes all of them has it."""
    return Case(
        "matmul.cu", f"M{number}::matmulKernel{number}<{template}>", grid, threads, draw,
        shared=shared, defines={"NDEBUG": 1},  # as the project's Makefile has it
        global_races=True,
    )  # fmt: skip


def ring(stages: int, bn: int = 256) -> int:
    """Return the bytes of a ring of tiles of A, 128 x 64, and of B, bn x 64."""
    return stages * (128 + bn) * BK * 2


def whole(x: int) -> int:
    """Return the size of a structure, which is a multiple of 128 bytes."""
    return -(-x // 128) * 128


BARRIERS = 2 * 3 * 8  # bytes of a ring's mbarriers
STAGED = 256 * 128 * 2  # bytes of a tile of C in shared memory
PADDED = 256 * (128 + 16) * 2

CASES = (
    Case(
        "matmul.cu", "sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128>", (2, 1), 128, first,
        defines={"NDEBUG": 1},
    ),
    matmul(
        2, "64, 64, 64, 64, 64, 16, 128", 6, 128, 0,
        product(128, 192, 192, lambda a, b, c: (c, flat(a, 64), flat(b, 64))),
    ),
    matmul(
        3, "128, 128, 64, 128, false", 2, 128, ring(1, 128),
        product(256, 128, 192, lambda a, b, c: (c, flat(a, 128), flat(b, 128), None)),
    ),
    matmul(  # which writes how long it took
        3, "128, 128, 64, 128, true", 2, 128, ring(1, 128),
        product(
            256, 128, 192,
            lambda a, b, c: (c, flat(a, 128), flat(b, 128), np.zeros(2 * 6, np.int32)),
        ),
    ),
    matmul(
        4, "128, 128, 64, 256, 5", 2, 256, ring(5, 128),
        product(128, 256, 448, lambda a, b, c: (c, flat(a, 128), flat(b, 128))),
    ),
    matmul(
        5, "128, 256, 64, 384, 3", 2, 384, ring(3),
        product(256, 256, 320, lambda a, b, c: (c, flat(a, 128), flat(b, 256))),
    ),
    # Persistent: eight tiles of C a row, as their schedules want it, and two or more a block.
    # From the seventh on, the last tiles reach over the edges of C.
    matmul(
        6, "128, 256, 64, 384, 3, 8", 8, 384, ring(3),
        product(256, 2048, 128, lambda a, b, c: (c, flat(a, 128), flat(b, 256))),
    ),
    matmul(
        7, "128, 256, 64, 384, 3, 8", 8, 384, ring(3),
        product(
            192, 1984, 128,
            lambda a, b, c: (c, folded(a, 128, 64, 5), folded(b, 256, 64, 5)),
        ),
    ),
    # From here on a block may end before the other of its cluster arrives at its mbarriers.
    *(
        matmul(
            number, "128, 256, 64, 384, 3, 8, 2, 1", 8, 384, ring(3),
            product(192, 1984, 128, lambda a, b, c: (c, folded(a, 128, 64), folded(b, 256, 64))),
        )
        for number in (8, 9)
    ),
    # The last three store C by TMA with no proxy fence behind the threads' writes, and one thread
    # waits for the store that others overwrite.
    matmul(
        10, "128, 256, 64, 384, 3, 8, 2, 1", 8, 384, whole(ring(3) + STAGED + BARRIERS),
        product(
            192, 1984, 128,
            lambda a, b, c: (
                folded(c, 256, 128, swizzle="none"), folded(a, 128, 64), folded(b, 256, 64),
            ),
        ),
    ),
    matmul(
        11, "128, 256, 64, 384, 3, 4, 2, 1", 4, 384,
        whole(ring(3) + STAGED + BARRIERS + 4 * SPACE),
        product(
            704, 448, 128,
            lambda a, b, c: (
                folded(c, 256, 128, swizzle="none"), folded(a, 128, 64), folded(b, 256, 64),
                order(3, 2, 2),
            ),
        ),
    ),
    matmul(
        12, "128, 256, 64, 384, 3, 4, 2, 1", 4, 384,
        whole(ring(3) + PADDED + BARRIERS + 4 * SPACE),
        product(
            704, 448, 128,
            lambda a, b, c: (
                folded(c, 256, 64, swizzle="none", width=72), folded(a, 128, 64),
                folded(b, 256, 64), order(3, 2, 2),
            ),
        ),
    ),
    # The first block clears the sum, and nothing orders the others behind that. The first kernel's
    # last warp has no __syncwarp; the last one's redux.sync has a mask of 8 lanes.
    *(
        Case("sum.cu", f"sumKernel{number}<{size}, {batch}>", 2, size, total(items),
             global_races=True)
        for number, size, batch, items in (
            (1, 512, 20, 1), (2, 1024, 16, 4), (3, 1024, 16, 4), (4, 1024, 16, 4),
        )
    ),
)  # fmt: skip
