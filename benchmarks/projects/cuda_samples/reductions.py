"""Launch the reductions, histograms and scans of 2_Concepts_and_Techniques."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, Case, Draw, near, same
from projects.cuda_samples.shapes import rounded, sample, written

Drawn = tuple[Sequence[Any], Callable[[], str]]
FOLDER = "2_Concepts_and_Techniques"
N = 5000


def by_block(x: Array, blocks: int, width: int) -> Array:
    """Sum what each block reads: ``width`` elements, and again behind the whole grid."""
    size = -(-len(x) // (blocks * width))
    padded = np.pad(x, (0, size * blocks * width - len(x)))
    summed: Array = padded.reshape(size, blocks, width).sum(axis=(0, 2))
    return summed


def sums(kind: str, blocks: int, width: int, n: int = N) -> Draw:
    """Make (numbers, a sum a block, n) of ``int``, ``float`` or ``double``."""

    def draw(rng: np.random.Generator) -> Drawn:
        if kind == "int":
            read = rng.integers(-1000, 1000, n, dtype=np.int32)
            found = np.zeros(blocks, np.int32)
            return (read, found, n), lambda: same(found, by_block(read, blocks, width))
        values = rng.random(n).astype(np.float32 if kind == "float" else np.float64)
        result = np.zeros(blocks, values.dtype)
        # Every sum of a tree or a loop is a rounding, of numbers no larger than the last.
        wanted = by_block(values.astype(np.float64), blocks, width)
        return (values, result, n), lambda: near(result, wanted, 32)

    return draw


def reduction(
    number: int | str,
    kind: str,
    arguments: str,
    blocks: int,
    width: int,
    block: int = 256,
    n: int = N,
    fault: str = "",
) -> Case:
    """Return one of reduction's kernels, of ``width`` elements a block."""
    return sample(
        f"{FOLDER}/reduction/reduction_kernel.cu", f"{number}<{kind}{arguments}>", blocks, block,
        sums(kind, blocks, width, n), shared=8 * max(block, 64), fault=fault,
    )  # fmt: skip


HALF_A_WARP = "Its last step shuffles a whole warp, of a block that has 16 threads."
SHUFFLED = (
    "In NVIDIA's own header the last warp's lanes read what other warps wrote behind the first "
    "lane's acquire and a shuffle of its result, and a shuffle orders no memory."
)
OUTSIDE = "Its last shuffles name eight lanes, and take values of lanes that they do not name."
REDUCTION = (
    *(reduction(f"reduce{i}", kind, "", 20, 256) for i in range(3) for kind in ("int", "float")),
    reduction("reduce2", "double", "", 20, 256),
    reduction("reduce3", "int", "", 10, 512),
    reduction("reduce4", "float", ", 256", 10, 512),
    reduction("reduce4", "int", ", 32", 79, 64, 32),
    reduction("reduce5", "double", ", 256", 10, 512),
    reduction("reduce5", "int", ", 16", 157, 32, 16, fault=HALF_A_WARP),
    reduction("reduce6", "int", ", 256, false", 6, 256),
    reduction("reduce6", "float", ", 256, true", 6, 512, n=4096),
    reduction("reduce7", "int", ", 256, false", 6, 256),
    reduction("reduce7", "int", ", 16, false", 6, 16, 16, 500),
    reduction("reduce7", "float", ", 256, true", 6, 512, n=4096, fault=OUTSIDE),
    reduction("cg_reduce", "int", "", 6, 256),
    reduction("cg_reduce", "float", "", 6, 256),
    reduction("multi_warp_cg_reduce", "int", ", 256, 64", 6, 256),
    reduction("multi_warp_cg_reduce", "double", ", 256, 128", 6, 256, fault=SHUFFLED),
)  # fmt: skip


def single_pass(rng: np.random.Generator) -> Drawn:
    """Make (numbers, sums, n); the last block to end writes the whole sum to the first."""
    read, found = rng.random(N).astype(np.float32), np.zeros(8, np.float32)
    wanted = np.array([read.astype(np.float64).sum()])
    return (read, found, N), lambda: near(found[:1], wanted, 40)


def products(vectors: int, length: int) -> Draw:
    """Make (c, a, b, vectors, their length), for c the scalar product of each pair of vectors."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array, int]:
        a, b = (rng.random((vectors, length)).astype(np.float32) for _ in range(2))
        found = np.zeros(vectors, np.float32)
        wanted = (a.astype(np.float64) * b).sum(axis=1)
        return (found, a, b, vectors, length), found, wanted, 2 * -(-length // 1024) + 10

    return rounded(make)


def points(dtype: type, blocks: int, threads: int) -> Draw:
    """Make (points in the quarter circle a block, x then y, how many).

    The coordinates are multiples of 2^-10, so that the squares and their sum are exact.
    """

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        xy: Array = (rng.integers(0, 1024, (2, N)) / 1024).astype(dtype)
        inside = ((xy.astype(np.float64) ** 2).sum(axis=0) < 1).astype(np.uint32)
        found = np.zeros(blocks, np.uint32)
        return (found, xy, N), found, by_block(inside, blocks, threads)

    return written(make)


OPTION = ("spot", "strike", "r", "sigma", "tenor", "dt", "golden", "value")
"""The numbers of AsianOption, before its type: 0 is a call."""


def payoffs(dtype: type, blocks: int, threads: int, steps: int = 10) -> Draw:
    """Make (payoffs a block, paths, the option, how many paths, steps of a path)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array, int]:
        paths: Array = (rng.random((steps, N)) + 0.5).astype(dtype)
        numbers = [(name, dtype) for name in OPTION]
        option = np.zeros(1, np.dtype([*numbers, ("type", np.int32)], align=True))
        option["spot"], option["strike"] = 40, 35
        found: Array = np.zeros(blocks, dtype)
        each = np.maximum(0, paths.astype(np.float64).mean(axis=0) * 40 - 35)
        # A path's sum, its mean, the payoff, then the thread's paths and the tree.
        roundings = steps + 3 + -(-N // (blocks * threads)) + 8
        return (found, paths, option, N, steps), found, by_block(each, blocks, threads), roundings

    return rounded(make)


def scanned(segment: int) -> Draw:
    """Make (exclusive sums, numbers, a segment's length)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        read = rng.integers(0, 2**32, 3072, dtype=np.uint32)
        found = np.zeros_like(read)
        each = read.reshape(-1, segment)
        wanted = (np.cumsum(each, axis=1, dtype=np.uint32) - each).ravel()
        return (found, read, segment), found, wanted

    return written(make)


def scanned_ends(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (exclusive sums of the segments' ends, the segments' sums, numbers, ends, a row's)."""
    read = rng.integers(0, 2**32, (60, 1024), dtype=np.uint32)
    before = np.cumsum(read, axis=1, dtype=np.uint32) - read
    ends = (before[:, -1] + read[:, -1]).astype(np.uint32)
    rows = np.pad(ends, (0, 4)).reshape(4, 16)
    wanted = (np.cumsum(rows, axis=1, dtype=np.uint32) - rows).ravel()[:60]
    found = np.zeros(60, np.uint32)
    return (found, before, read, 60, 16), found, wanted


def updated(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (numbers, what is added to each 1024 of them)."""
    found = rng.integers(0, 2**32, (3, 1024), dtype=np.uint32)
    more = rng.integers(0, 2**32, 3, dtype=np.uint32)
    return (found, more), found, found + more[:, None]


def shuffled(rng: np.random.Generator) -> Drawn:
    """Make (numbers that become inclusive sums of each block, a warp's size, the blocks' sums)."""
    found = rng.integers(-1000, 1000, (4, 256), dtype=np.int32)
    ends, wanted = np.zeros(4, np.int32), np.cumsum(found, axis=1, dtype=np.int32)
    return (
        found,
        32,
        ends,
    ), lambda: same(found, wanted) or same(ends, wanted[:, -1].copy(), "the blocks' sums")


def uniform(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (numbers, what is added to each block's, how many)."""
    found = rng.integers(-1000, 1000, (4, 256), dtype=np.int32)
    more = rng.integers(-1000, 1000, 4, dtype=np.int32)
    return (found, more, found.size), found, found + more[:, None]


def image_rows(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (rows of 1920 bytes, their inclusive sums)."""
    read = rng.integers(0, 256, (3, 1920), dtype=np.uint8)
    found = np.zeros(read.shape, np.uint32)
    return (read, found), found, np.cumsum(read, axis=1, dtype=np.uint32)


def image_columns(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (1080 rows whose columns become inclusive sums, width, height)."""
    found = rng.integers(0, 1000, (1080, 64), dtype=np.uint32)
    return (found, 64, 1080), found, np.cumsum(found, axis=0, dtype=np.uint32)


def histograms(bins: int, blocks: int, threads: int) -> Draw:
    """Make (bins a block, words or groups of four words, how many): bytes, by their upper bits."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        count, size = blocks * threads * 5 + 7, 16 if bins == 64 else 4
        read = rng.integers(0, 256, (count, size), dtype=np.uint8)
        found = np.zeros((blocks, bins), np.uint32)
        block = np.arange(count) // threads % blocks
        wanted = np.zeros_like(found)
        np.add.at(wanted, (block[:, None], read >> (2 if bins == 64 else 0)), 1)
        return (found, read.view(np.uint32) if size == 4 else read, count), found, wanted

    return written(make)


def merged(bins: int) -> Draw:
    """Make (bins, bins of 300 blocks, 300)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        read = rng.integers(0, 2**32, (300, bins), dtype=np.uint32)
        found = np.zeros(bins, np.uint32)
        return (found, read, 300), found, read.sum(axis=0, dtype=np.uint32)

    return written(make)


FENCE = f"{FOLDER}/threadFenceReduction/threadFenceReduction_kernel.cuh"
SHFL = f"{FOLDER}/shfl_scan/shfl_scan.cu"
SCAN = f"{FOLDER}/scan/scan.cu"
REDUCTIONS = (
    *REDUCTION,
    sample(FENCE, "reduceMultiPass<128, false>", 8, 128, sums("float", 8, 256), shared=512),
    sample(FENCE, "reduceSinglePass<128, false>", 8, 128, single_pass, shared=512),
    sample(f"{FOLDER}/scalarProd/scalarProd.cu", "scalarProdGPU", 3, 256, products(5, 3000)),
    *(
        sample(f"{FOLDER}/MC_EstimatePi{kind}/src/piestimator.cu", f"computeValue<{real}>", 4, 128,
               points(dtype, 4, 128), shared=512)
        for kind in "PQ"
        for real, dtype in (("float", np.float32), ("double", np.float64))
    ),
    *(
        sample(f"{FOLDER}/MC_SingleAsianOptionP/src/pricingengine.cu", f"computeValue<{real}>", 4,
               128, payoffs(dtype, 4, 128), shared=1024)
        for real, dtype in (("float", np.float32), ("double", np.float64))
    ),
    sample(SCAN, "scanExclusiveShared", 3, 256, scanned(1024)),
    sample(SCAN, "scanExclusiveShared", 3, 256, scanned(64)),
    sample(SCAN, "scanExclusiveShared2", 1, 256, written(scanned_ends)),
    sample(SCAN, "uniformUpdate", 3, 256, written(updated)),
    sample(SHFL, "shfl_scan_test", 4, 256, shuffled, shared=32),
    sample(SHFL, "uniform_add", 4, 256, written(uniform)),
    sample(SHFL, "shfl_intimage_rows", 3, 120, written(image_rows)),
    sample(SHFL, "shfl_vertical_shfl", 2, (32, 8), written(image_columns)),
    sample(f"{FOLDER}/histogram/histogram64.cu", "histogram64Kernel", 3, 64,
           histograms(64, 3, 64)),
    sample(f"{FOLDER}/histogram/histogram64.cu", "mergeHistogram64Kernel", 64, 256, merged(64)),
    sample(f"{FOLDER}/histogram/histogram256.cu", "histogram256Kernel", 3, 192,
           histograms(256, 3, 192)),
    sample(f"{FOLDER}/histogram/histogram256.cu", "mergeHistogram256Kernel", 256, 256,
           merged(256)),
)  # fmt: skip
