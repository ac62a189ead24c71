"""Launch the samples of 6_Performance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, Case, Draw
from projects.cuda_samples.shapes import floats, product, sample, written

FOLDER = "6_Performance"
TYPES = {
    "uint8": 1, "uint16": 2, "RGBA8_misaligned": 4, "LA32_misaligned": 8, "RGB32_misaligned": 12,
    "RGBA32_misaligned": 16, "RGBA8": 4, "I32": 4, "LA32": 8, "RGB32": 16, "RGBA32": 16,
    "RGBA32_2": 32,
}  # fmt: skip
"""Bytes of each of alignedTypes' elements."""
USED = {"RGB32": 12}
"""Bytes that are copied, where an element is padded."""

PLAIN: dict[str, type] = {"uint16": np.uint16, "I32": np.uint32}
"""Elements that are numbers, not structures of bytes."""


def transposed(kernel: str, what: Callable[[Array], Array], width: int, height: int) -> Case:
    """Return one of transpose's kernels on a matrix of ``height`` x ``width``."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        read = floats(rng, height, width)
        found = np.zeros(read.size, np.float32)
        return (found, read, width, height), found, what(read).ravel()

    return sample(f"{FOLDER}/transpose/transpose.cu", kernel, (width // 32, height // 32),
                  (32, 16), written(make))  # fmt: skip


def tiles_transposed(x: Array) -> Array:
    """Transpose each tile of 32 x 32, where it is."""
    rows, columns = (size // 32 for size in x.shape)
    return x.reshape(rows, 32, columns, 32).transpose(0, 3, 2, 1).reshape(x.shape)


def tiles_moved(x: Array) -> Array:
    """Transpose the tiles' places, each tile left as it is."""
    rows, columns = (size // 32 for size in x.shape)
    return x.reshape(rows, 32, columns, 32).transpose(2, 1, 0, 3).reshape(x.shape[::-1])


def copied(name: str) -> Draw:
    """Make (elements written, elements, how many) of bytes."""
    size, count = TYPES[name], 1000

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        read = rng.integers(1, 256, (count, size), dtype=np.uint8)
        found = np.zeros_like(read)
        used = USED.get(name, size)
        kind = np.dtype(PLAIN.get(name, np.uint8))
        return (found.view(kind), read.view(kind), count), found[:, :used], read[:, :used]

    return written(make)


def total(in_parameter: int, excess: Array | None) -> Draw:
    """Make (numbers in the parameters themselves, their sum)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
        held = rng.integers(-1000, 1000, in_parameter, dtype=np.int32)
        found = np.zeros(1, np.int32)
        more = 0 if excess is None else int(excess.sum())
        return (held.tobytes(), found), found, np.array([held.sum() + more])

    return written(make)


def latch(_: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make a latch that is open."""
    found = np.ones(1, np.uint32)
    return (found,), found, found.copy()


def timed_out(_: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
    """Make (nanoseconds, whether they went by, how many did, a latch that is shut)."""
    out, elapsed, shut = np.zeros(1, np.bool_), np.zeros(1, np.int64), np.zeros(1, np.int32)
    return (
        1000,
        out,
        elapsed,
        shut,
    ), lambda: "" if out[0] and elapsed[0] >= 1000 else f"{out[0]} after {elapsed[0]} ns of 1000"


def nothing(*args: int) -> Draw:
    """Make arguments of a kernel that returns nothing."""
    return lambda _: (args, lambda: "")


EXCESS = (np.arange(8000 - 1024) % 1009 - 500).astype(np.int32)
PERFORMANCE = (
    transposed("copy", lambda x: x, 96, 64),
    # Its bounds are right of squares alone.
    transposed("copySharedMem", lambda x: x, 64, 64),
    *(
        transposed(kernel, lambda x: x.T, 96, 64)
        for kernel in (
            "transposeNaive", "transposeCoalesced", "transposeNoBankConflicts",
            "transposeDiagonal",
        )
    ),
    transposed("transposeDiagonal", lambda x: x.T, 64, 64),
    transposed("transposeFineGrained", tiles_transposed, 64, 64),
    transposed("transposeCoarseGrained", tiles_moved, 96, 64),
    *(
        sample(f"{FOLDER}/alignedTypes/alignedTypes.cu", f"testKernel<{name}>", 2, 256,
               copied(name))
        for name in TYPES
    ),
    sample(f"{FOLDER}/LargeKernelParameter/LargeKernelParameter.cu", "kernelDefault", 1, 1,
           total(1024, EXCESS), variables={"excess_params": EXCESS}),
    sample(f"{FOLDER}/LargeKernelParameter/LargeKernelParameter.cu", "kernelLargeParam", 1, 1,
           total(8000, None)),
    sample(f"{FOLDER}/UnifiedMemoryPerf/matrixMultiplyPerf.cu", "matrixMultiplyKernel", (3, 3),
           (32, 32), product(96, 96, 96, dims=1)),
    sample(f"{FOLDER}/UnifiedMemoryPerf/commonKernels.cu", "spinWhileLessThanOne", 1, 1,
           written(latch)),
    sample(f"{FOLDER}/cudaGraphsPerfScaling/cudaGraphPerfScaling.cu", "delay", 1, 1,
           nothing(1000)),
    sample(f"{FOLDER}/cudaGraphsPerfScaling/cudaGraphPerfScaling.cu", "waitWithTimeout", 1, 1,
           timed_out),
    *(
        sample(f"{FOLDER}/cudaGraphsPerfScaling/cudaGraphPerfScaling.cu", kernel, 1, 1, nothing())
        for kernel in ("empty", "preUploadAnnotation", "postUploadAnnotation")
    ),
)  # fmt: skip
