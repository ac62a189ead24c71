"""The launches whose counters are compared with hardware's, and the checks of their results.

They are every rung of the ladder, and kernels that are not matrix multiplications
(tilewise/kernels/counted). A case's arguments follow from its spec alone, so a case that was
measured once can be made again anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.ladder.problem import random_problem
from tilewise.ladder.rungs import rung, rungs_of
from tilewise.lens import instruction_cases
from tilewise.lens.case_spec import KERNELS, LANES, Spec
from tilewise.lens.nsight_child import Case
from tilewise.numbers import check

TRANSPOSES = ("transpose_padded", "transpose_unpadded")
THREADS = 256  # a block of the kernels with one dimension
BLOCK = (32, 8)  # a block of those with two
LADDER = tuple(each.name for each in rungs_of("float32"))
ITEMS = 512  # items of shared memory that lanes of shared_pattern access


def specs() -> Iterator[Spec]:
    """Yield the spec of every case, with tiles and pitches that fit and that don't."""
    # m, n, k, the elements of each leading dimension beyond the width, tile, alpha and beta.
    problems: tuple[tuple[tuple[int, ...], tuple[int, ...], int, tuple[float, float]], ...] = (
        ((128, 96, 80), (0, 0, 0), 32, (1, 0)),
        ((100, 70, 53), (3, 5, 1), 32, (1, 0)),
        ((1, 257, 100), (0, 0, 0), 32, (1, 0)),
        ((130, 65, 90), (6, 7, 31), 16, (2, 0.5)),
        ((96, 72, 104), (8, 0, 0), 8, (1, 0)),
        ((75, 59, 61), (1, 2, 3), 8, (1, 0)),
    )
    single: dict[str, tuple[tuple[int, ...], ...]] = {
        "single_thread": ((8, 8, 8), (5, 9, 7), (1, 16, 5), (7, 3, 11), (4, 8, 16), (3, 5, 9)),
        "single_block": (
            (32, 32, 32), (25, 40, 21), (1, 129, 40), (31, 33, 17), (16, 64, 24), (9, 27, 37),
        ),
    }  # fmt: skip
    # The rungs that take a few large tiles: the smallest tile with pitches of 16 bytes or a
    # multiple, and the largest with other pitches.
    large: tuple[tuple[tuple[int, ...], tuple[int, ...], int, tuple[float, float]], ...] = (
        ((72, 104, 40), (0, 8, 0), 0, (2, 0.5)),
        ((131, 261, 27), (0, 0, 0), -1, (1, 0)),
    )
    for dtype in ("float32", "float64"):
        for name in LADDER:
            tiles = rung(name).tiles
            if tiles and not isinstance(tiles, range):
                for index, ((m, n, k), more, place, scalars) in enumerate(large):
                    leading = tuple(x + y for x, y in zip((k, n, n), more, strict=True))
                    yield Spec(name, dtype, (m, n, k), leading, tiles[place], *scalars, seed=index)
                continue
            for index, (shape, more, tile, scalars) in enumerate(problems):
                m, n, k = single[name][index] if name in single else shape
                leading = tuple(x + y for x, y in zip((k, n, n), more, strict=True))
                edge = tile if tiles else None
                yield Spec(name, dtype, (m, n, k), leading, edge, *scalars, seed=index)
        for name in TRANSPOSES:
            yield Spec(name, dtype, (64, 96), (96, 64))
            yield Spec(name, dtype, (70, 45), (53, 77))
            yield Spec(name, dtype, (1, 131), (131, 1))
        for n, stride in ((1000, 1), (1001, 3), (777, 33)):
            yield Spec("strided_copy", dtype, (n,), (stride,))
    for n in (255, 1024, 5001):
        yield Spec("reduction", "float32", (n,))
    yield Spec("stencil", "float32", (64, 64), (64, 64))
    yield Spec("stencil", "float32", (45, 77), (80, 79))
    yield Spec("stencil", "float32", (3, 131), (131, 131))
    for n, bins in ((2048, 256), (3001, 100), (1000, 7)):
        yield Spec("histogram", "uint32", (n, bins))
    for width in (4, 8, 16):
        for stores in (0, 1):
            yield Spec("shared_pattern", "uint32", (width, stores))
    yield from instruction_cases.specs()


def make(spec: Spec) -> Case:
    """Return the launch of a spec; each call makes new arrays with the same numbers in them.

    Raises
    ------
    ValueError
        If there is no such kernel.
    """
    if spec.kernel in LADDER:
        return _product(spec)
    if spec.kernel in instruction_cases.KINDS:
        return instruction_cases.make(spec)
    path, rng, dtype = KERNELS / f"{spec.kernel}.cu", np.random.default_rng(spec.seed), spec.dtype

    def numbers(*shape: int, below: int = 100) -> npt.NDArray[Any]:
        return rng.integers(0, below, shape).astype(dtype)  # small, so sums are exact

    def case(
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *args: Any,
        real: str | None = None,
        shared: int = 0,
    ) -> Case:
        defines = {"real": real} if real else {}
        return Case(path, spec.kernel, grid, block, args, defines, shared)

    real = {"float32": "float", "float64": "double"}.get(dtype)
    if spec.kernel in (*TRANSPOSES, "stencil"):
        (rows, columns), (ldi, ldo) = spec.shape, spec.leading
        transposed = spec.kernel in TRANSPOSES
        source = pitched(numbers(rows, columns), ldi)
        out = pitched(np.zeros((columns, rows) if transposed else (rows, columns), dtype), ldo)
        grid = (blocks(columns, BLOCK[0]), blocks(rows, BLOCK[0] if transposed else BLOCK[1]))
        args = (rows, columns, source, ldi, out, ldo)
        return case(grid, BLOCK, *args, real=real if transposed else None)
    if spec.kernel == "shared_pattern":
        width, stores = spec.shape
        places = patterns(np.random.default_rng(width), 400)
        defines = {"WIDTH": width, "STORES": stores}
        arrays = places, np.zeros(places.shape, dtype)
        return Case(path, spec.kernel, (len(places),), (LANES,), (ITEMS, *arrays), defines,
                    ITEMS * width)  # fmt: skip
    n = spec.shape[0]
    if spec.kernel == "strided_copy":
        (stride,) = spec.leading
        source, out = numbers((n - 1) * stride + 1), np.zeros(n, dtype)
        return case((blocks(n, THREADS),), (THREADS,), n, stride, source, out, real=real)
    few = (min(blocks(n, THREADS), 4),)  # few blocks, so that a thread has several elements
    if spec.kernel == "reduction":
        return case(few, (THREADS,), n, numbers(n), np.zeros(1, dtype))
    if spec.kernel == "histogram":
        bins = spec.shape[1]
        values, out = numbers(n, below=bins), np.zeros(bins, dtype)
        return case(few, (THREADS,), n, bins, values, out, shared=4 * bins)
    raise ValueError(f"there is no kernel {spec.kernel!r} here")


def patterns(rng: np.random.Generator, warps: int) -> npt.NDArray[np.int32]:
    """Return which item each lane accesses, -1 for none, a row for each warp.

    The patterns go from all lanes at one item to each at its own, with pairs and fours that share
    one, whole and with a few exceptions; in some, lanes are idle.
    """
    rows = np.empty((warps, LANES), np.int32)
    for row in rows:
        pool = rng.integers(0, ITEMS, rng.integers(1, 2 * LANES))
        if rng.random() < 0.5:  # as many rows of banks apart as possible
            pool = pool // LANES * LANES + rng.integers(0, 8)
        together = rng.choice([1, 1, 2, 2, 4, 8, 16])
        row[:] = np.repeat(rng.choice(pool, LANES // together), together)
        if rng.random() < 0.3:
            row[rng.integers(0, LANES, rng.integers(1, 4))] = rng.integers(0, ITEMS)
        if rng.random() < 0.3:
            row[rng.random(LANES) < rng.random()] = -1
    return rows


def _product(spec: Spec) -> Case:
    (m, n, k), (lda, ldb, ldc) = spec.shape, spec.leading
    a, b, c = random_problem(m, n, k, spec.dtype, spec.seed)
    if spec.beta == 0:
        c[...] = np.nan  # it must not be read
    each = rung(spec.kernel)
    grid, block = each.geometry(m, n, spec.tile, spec.dtype)
    kernel = each.kernel(spec.dtype, spec.tile)
    args = (
        m, n, k, spec.alpha, pitched(a, lda), lda, pitched(b, ldb), ldb,
        spec.beta, pitched(c, ldc), ldc,
    )  # fmt: skip
    return Case(
        each.path, each.name, grid, block, args, kernel.defines, options=kernel.options
    )  # fmt: skip


def pitched(x: npt.NDArray[Any], leading: int) -> npt.NDArray[Any]:
    """Return a copy of a matrix with rows ``leading`` elements apart, and NaN between them."""
    rows, width = x.shape
    whole = np.full((rows, leading), np.nan, x.dtype)
    whole[:, :width] = x
    return whole[:, :width]


def blocks(size: int, edge: int) -> int:
    return -(-size // edge)


def is_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Return whether a kernel has correctly changed the arguments ``before`` to ``after``.

    Products are checked by their bound; the others to the last bit, since their numbers are small
    and whole.
    """
    if spec.kernel in LADDER:
        a, b, c = (before[place] for place in (4, 6, 9))
        return bool(check(after[9], a, b, c, spec.alpha, spec.beta).correct)
    if spec.kernel in instruction_cases.KINDS:
        return instruction_cases.is_right(spec, before, after)
    if spec.kernel in TRANSPOSES:
        return bool(np.array_equal(after[4], before[2].T))
    if spec.kernel == "strided_copy":
        return bool(np.array_equal(after[3], before[2][:: before[1]]))
    if spec.kernel == "reduction":
        return bool(after[2][0] == before[1].sum(dtype=np.float64))
    if spec.kernel == "stencil":
        x = np.pad(before[2], 1)
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return bool(np.array_equal(after[4], 0.5 * x[1:-1, 1:-1] + 0.125 * around))
    if spec.kernel == "shared_pattern":
        _, stores = spec.shape
        places = before[1]
        expected = np.where(places >= 0, places, 0)
        if stores:
            expected = np.broadcast_to(np.arange(LANES), places.shape)
        each = spec.shape[0] // 4
        return bool(np.array_equal(after[2].reshape(-1), each * expected.reshape(-1)))
    return bool(np.array_equal(after[3], np.bincount(before[2], minlength=before[1])))


CASES = tuple(specs())
