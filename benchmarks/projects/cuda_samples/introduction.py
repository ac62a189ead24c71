"""Launch the samples of 0_Introduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, Case, Draw, near, same
from projects.cuda_samples.merge_sort import MERGE_SORT
from projects.cuda_samples.shapes import added, floats, product, rounded, sample, written

Drawn = tuple[Sequence[Any], Callable[[], str]]


def counted(n: int, what: Callable[[Array], Array], *more: int) -> Draw:
    """Make (numbers in place, more of the arguments) of int32."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        a = rng.integers(-1000, 1000, n, dtype=np.int32)
        return (a, *more), a, what(a)

    return written(make)


def from_to(what: Callable[[Array], Array], n: int, *more: int, dtype: type = np.float32) -> Draw:
    """Make (read, written, more of the arguments)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        read: Array = (rng.random(n) * 100).astype(dtype)
        found = np.zeros_like(read)
        return (read, found, *more), found, what(read)

    return written(make)


def reversed_arguments(draw: Draw) -> Draw:
    """Make the first two arguments in the other order."""

    def other(rng: np.random.Generator) -> Drawn:
        (first, second, *rest), wrong = draw(rng)
        return (second, first, *rest), wrong

    return other


def minimum(blocks: int, threads: int) -> Draw:
    """Make (numbers, a minimum a block, times), where every block reads the same numbers."""

    def draw(rng: np.random.Generator) -> Drawn:
        read, found = floats(rng, 2 * threads), np.zeros(blocks, np.float32)
        times = np.zeros(2 * blocks, np.int64)

        def wrong() -> str:
            late = times[blocks:] >= times[:blocks]
            return same(found, np.full(blocks, read.min())) or same(late, ~(late & ~late), "a time")

        return (read, found, times), wrong

    return draw


def half_products(blocks: int, threads: int, steps: int) -> Draw:
    """Make (a, b, a float for each block, length) of pairs of halves, the samples' indices kept.

    A thread of block ``b`` starts at ``threads + b``, so blocks read almost the same numbers.
    """

    def draw(rng: np.random.Generator) -> Drawn:
        size = blocks * threads * steps
        a, b = (rng.random((size, 2)).astype(np.float16) for _ in range(2))
        found = np.zeros(blocks, np.float32)
        both = (a.astype(np.float64) * b).sum(axis=1)
        wanted = np.array(
            [
                sum(
                    both[threads + block + step : threads + block + step + threads].sum()
                    for step in range(0, size, blocks * threads)
                )
                for block in range(blocks)
            ]
        )
        # A product and a sum a step, seven sums of the tree, the sum of a pair, and our own cast.
        return (a, b, found, size), lambda: near(found.astype(np.float16), wanted, 2 * steps + 9)

    return draw


def atomics(threads: int, times: int, has_subtraction: bool) -> Draw:
    """Make the eleven counters, or the ten without the difference, and what they may end as."""

    def draw(_: np.random.Generator) -> Drawn:
        start = [0, threads * times * 10, 0, -(2**31), 2**31 - 1, 0, 0, 0, 0xFF, 0, 0xFF]
        found = np.array(start, np.int32)
        if not has_subtraction:
            found = np.delete(found, 1)
        total = threads * times

        def wrong() -> str:
            got = [int(x) for x in (found if has_subtraction else np.insert(found, 1, 0))]
            down = 0
            for _ in range(total):
                down = 137 if down == 0 or down > 137 else down - 1
            ands, ors, xors = 0xFF, 0, 0xFF
            for thread in range(threads):
                ands &= 2 * thread + 7
                ors |= 1 << (thread % 32) if thread < 32 else 0
                xors ^= thread if times % 2 else 0
            right = {
                0: total * 10, 1: 0, 3: threads - 1, 4: 0, 5: total % 18, 6: down, 8: ands,
                9: ors - (1 << 32 if ors >> 31 else 0), 10: xors,
            }  # fmt: skip
            bad = {at: got[at] for at, value in right.items() if got[at] != value}
            if not 0 <= got[2] < threads or not 0 <= got[7] < threads:
                bad[2], bad[7] = got[2], got[7]
            return f"of the counters {bad} are wrong" if bad else ""

        return (found,), wrong

    return draw


def votes(all_of: bool) -> Draw:
    """Make (numbers, answers, their count) for a vote in each warp of 128 threads."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        read = rng.integers(0, 2, 128, dtype=np.uint32)
        read[:32], read[32:64] = 0, 7
        found = np.full(128, 9, np.uint32)
        warps = read.reshape(4, 32)
        said = warps.all(axis=1) if all_of else warps.any(axis=1)
        return (read, found, 128), found, np.repeat(said, 32).astype(np.uint32)

    return written(make)


def vote_in_three(_: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (3 answers a thread of three warps, the warp's size)."""
    found = np.zeros((96, 3), np.bool_)
    own = np.arange(96) >= 48
    warps = own.reshape(3, 32)
    answers = (np.repeat(warps.any(axis=1), 32), own, np.repeat(warps.all(axis=1), 32))
    return (found, 32), found, np.stack(answers, axis=1)


def sums_by_thread(n: int, threads: int) -> Draw:
    """Make (a sum a thread of the grid, numbers, n)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array, int]:
        read, found = floats(rng, n), np.zeros(threads, np.float32)
        size = -(-n // threads)
        each = np.pad(np.abs(read), (0, size * threads - n)).reshape(size, threads)
        return (found, np.abs(read), n), found, each.astype(np.float64).sum(axis=0), size

    return rounded(make)


def clocks(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (clocks, n): their sum comes first."""
    found = rng.integers(0, 1 << 40, 77, dtype=np.int64)
    wanted = found.copy()
    wanted[0] = found.sum()
    return (found, 77), found, wanted


def nothing(*args: int) -> Draw:
    """Make arguments of a kernel that returns nothing."""
    return lambda _: (args, lambda: "")


def waited(rng: np.random.Generator) -> Drawn:
    """Make (the time waited, the time to wait)."""
    found = np.zeros(1, np.int64)
    return (found, 500), lambda: "" if found[0] >= 500 else f"it waited {found[0]} cycles of 500"


def normalized(rng: np.random.Generator) -> Drawn:
    """Make (a, b, a sum a block, n): both are divided by the root of their scalar product."""
    a, b = (rng.random(1000).astype(np.float32) for _ in range(2))
    root = np.sqrt((a.astype(np.float64) * b).sum())
    wanted = a / root, b / root
    return (a, b, np.zeros(4), 1000), lambda: near(a, wanted[0], 4) or near(b, wanted[1], 4)


def hits(_: np.random.Generator) -> Drawn:
    """Make (numbers, how many, more of them, how many, how often): sums of zeros."""
    data, more = np.zeros(256, np.int32), np.zeros(512, np.int32)
    return (data, 256, more, 512, 200), lambda: same(data, data * 0) or same(more, more * 0)


def square(n: int) -> Case:
    """Return the kernel that squares n numbers."""
    return sample(
        "0_Introduction/simpleOccupancy/simpleOccupancy.cu", "square", -(-n // 128), 128,
        counted(n, lambda a: a * a, n),
    )  # fmt: skip


def filled(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (bytes, how many, the byte written)."""
    found = rng.integers(-100, 100, 1001, dtype=np.int8)
    return (found, 1000, 77), found, np.append(np.full(1000, 77, np.int8), found[-1])


def init_array(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (numbers, what is added to each, how often)."""
    found = rng.integers(-1000, 1000, 1024, dtype=np.int32)
    return (found, np.array([7], np.int32), 5), found, found + 35


ADDITIONS = tuple(
    sample(f"0_Introduction/{file}", kernel, -(-1000 // 256), 256, added(1000))
    for file, kernel in (
        ("vectorAdd/vectorAdd.cu", "vectorAdd"),
        ("vectorAdd_nvrtc/vectorAdd_kernel.cu", "vectorAdd"),
        ("vectorAddDrv/vectorAdd_kernel.cu", "VecAdd_kernel"),
        ("vectorAddMMAP/vectorAdd_kernel.cu", "VecAdd_kernel"),
        ("simpleDrvRuntime/vectorAdd_kernel.cu", "VecAdd_kernel"),
        ("simpleZeroCopy/simpleZeroCopy.cu", "vectorAddGPU"),
    )
)

PRODUCTS = tuple(
    sample(
        f"0_Introduction/{file}", kernel, (96 // tile, 64 // tile), (tile, tile),
        product(64, 96, 160),
    )
    for file, kernel, tile in (
        ("matrixMul/matrixMul.cu", "MatrixMulCUDA<16>", 16),
        ("matrixMul/matrixMul.cu", "MatrixMulCUDA<32>", 32),
        ("matrixMulDrv/matrixMul_kernel.cu", "matrixMul_bs8_64bit", 8),
        ("matrixMulDrv/matrixMul_kernel.cu", "matrixMul_bs16_64bit", 16),
        ("matrixMulDrv/matrixMul_kernel.cu", "matrixMul_bs32_64bit", 32),
        ("matrixMul_nvrtc/matrixMul_kernel.cu", "matrixMulCUDA_block16", 16),
        ("matrixMul_nvrtc/matrixMul_kernel.cu", "matrixMulCUDA_block32", 32),
    )
)  # fmt: skip

INTRODUCTION = (
    *ADDITIONS,
    *PRODUCTS,
    sample(
        "0_Introduction/asyncAPI/asyncAPI.cu", "increment_kernel", 4, 256,
        counted(1024, lambda a: a + 26, 26),
    ),
    sample("0_Introduction/clock/clock.cu", "timedReduction", 4, 256, minimum(4, 256), shared=2048),
    sample(
        "0_Introduction/clock_nvrtc/clock_kernel.cu", "timedReduction", 4, 256, minimum(4, 256),
        shared=2048,
    ),
    sample(
        "0_Introduction/cudaOpenMP/cudaOpenMP.cu", "kernelAddConstant", 4, 128,
        counted(512, lambda a: a + 3, 3),
    ),
    *(
        sample(
            "0_Introduction/fp16ScalarProduct/fp16ScalarProduct.cu", f"scalarProductKernel_{how}",
            8, 128, half_products(8, 128, 4),
        )
        for how in ("native", "intrinsics")
    ),
    *MERGE_SORT,
    sample("0_Introduction/simpleAssert/simpleAssert.cu", "testKernel", 2, 32, nothing(64)),
    sample(
        "0_Introduction/simpleAssert_nvrtc/simpleAssert_kernel.cu", "testKernel", 2, 32,
        nothing(64),
    ),
    *(
        sample(f"0_Introduction/{file}", "testKernel", 4, 64, atomics(256, 1, True))
        for file in (
            "simpleAtomicIntrinsics/simpleAtomicIntrinsics.cu",
            "simpleAtomicIntrinsics/simpleAtomicIntrinsics_kernel.cuh",
            "simpleAtomicIntrinsics_nvrtc/simpleAtomicIntrinsics_kernel.cuh",
        )
    ),
    sample(
        "0_Introduction/systemWideAtomics/systemWideAtomics.cu", "atomicKernel", 4, 64,
        atomics(256, 50, False),
    ),
    sample("0_Introduction/simpleAttributes/simpleAttributes.cu", "kernCacheSegmentTest", 1, 64,
           hits, fault="Its threads read a counter that others add to, with no barrier between."),
    sample("0_Introduction/simpleAWBarrier/simpleAWBarrier.cu", "normVecByDotProductAWBarrier", 4,
           128, normalized, shared=32, cooperative=True),
    sample("0_Introduction/simpleCallback/simpleCallback.cu", "incKernel", 4, 256,
           counted(1000, lambda a: a + 1, 1000)),
    sample("0_Introduction/simpleCooperativeGroups/simpleCooperativeGroups.cu", "cgkernel", 1, 64,
           nothing(), shared=256),
    sample("0_Introduction/simpleHyperQ/simpleHyperQ.cu", "kernel_A", 1, 1, waited),
    sample("0_Introduction/simpleHyperQ/simpleHyperQ.cu", "kernel_B", 1, 1, waited),
    sample("0_Introduction/simpleHyperQ/simpleHyperQ.cu", "sum", 1, 32, written(clocks)),
    sample("0_Introduction/simpleIPC/simpleIPC.cu", "simpleKernel", 3, 128, written(filled),
           defines={"__linux__": True}),
    sample("0_Introduction/simpleMPI/simpleMPI.cu", "simpleMPIKernel", 4, 256,
           from_to(np.sqrt, 1024)),
    sample("0_Introduction/simpleMultiCopy/simpleMultiCopy.cu", "incKernel", 4, 256,
           reversed_arguments(from_to(lambda a: a + 1, 1000, 1000, 3, dtype=np.int32))),
    sample("0_Introduction/simpleMultiGPU/simpleMultiGPU.cu", "reduceKernel", 2, 256,
           sums_by_thread(5000, 512)),
    square(1000),
    sample("0_Introduction/simpleP2P/simpleP2P.cu", "SimpleKernel", 4, 256,
           from_to(lambda a: a * 2, 1024)),
    sample("0_Introduction/simplePrintf/simplePrintf.cu", "testKernel", (2, 2), (2, 2, 2),
           nothing(10)),
    sample("0_Introduction/simpleStreams/simpleStreams.cu", "init_array", 4, 256,
           written(init_array)),
    sample("0_Introduction/simpleTemplates/simpleTemplates.cu", "testKernel<float>", 1, 32,
           from_to(lambda a: a * 32, 32), shared=128),
    sample("0_Introduction/simpleTemplates/simpleTemplates.cu", "testKernel<int>", 1, 64,
           from_to(lambda a: a * 64, 64, dtype=np.int32), shared=256),
    sample("0_Introduction/simpleVoteIntrinsics/simpleVoteIntrinsics.cu", "VoteAnyKernel1", 1, 128,
           votes(False)),
    sample("0_Introduction/simpleVoteIntrinsics/simpleVoteIntrinsics.cu", "VoteAllKernel2", 1, 128,
           votes(True)),
    sample("0_Introduction/simpleVoteIntrinsics/simpleVoteIntrinsics.cu", "VoteAnyKernel3", 1, 96,
           written(vote_in_three)),
    sample("0_Introduction/template/template.cu", "testKernel", 1, 32,
           from_to(lambda a: a * 32, 32), shared=128),
)  # fmt: skip
