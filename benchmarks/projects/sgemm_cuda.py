"""SGEMM_CUDA (github.com/siboehm/SGEMM_CUDA): C = alpha A B + beta C of float, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Case, right_product

N = 256
ALPHA, BETA = 0.5, 3.0  # as the project's own main has them


def draw(rng: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
    """Make (M, N, K, alpha, A, B, beta, C)."""
    a, b, c = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(3))
    before = c.copy()
    args = (N, N, N, ALPHA, a, b, BETA, c)
    return args, lambda: right_product(c, a, b, before, ALPHA, BETA)


def tiled(file: str, kernel: str, tile: int, threads: int) -> Case:
    """Return a kernel whose blocks have square tiles of C."""
    return Case(f"src/kernels/{file}", kernel, (N // tile, N // tile), threads, draw)


CASES = (
    Case("src/kernels/1_naive.cuh", "sgemm_naive", (N // 32, N // 32), (32, 32), draw),
    tiled("2_kernel_global_mem_coalesce.cuh", "sgemm_global_mem_coalesce<32>", 32, 1024),
    tiled("3_kernel_shared_mem_blocking.cuh", "sgemm_shared_mem_block<32>", 32, 1024),
    tiled("4_kernel_1D_blocktiling.cuh", "sgemm1DBlocktiling<64, 64, 8, 8>", 64, 512),
    tiled("5_kernel_2D_blocktiling.cuh", "sgemm2DBlocktiling<128, 128, 8, 8, 8>", 128, 256),
    tiled("6_kernel_vectorize.cuh", "sgemmVectorize<128, 128, 8, 8, 8>", 128, 256),
    tiled(
        "7_kernel_resolve_bank_conflicts.cuh", "sgemmResolveBankConflicts<128, 128, 8, 8, 8>",
        128, 256,
    ),
    tiled(
        "8_kernel_bank_extra_col.cuh", "sgemmResolveBankExtraCol<128, 128, 8, 8, 8>", 128, 256
    ),
    tiled("9_kernel_autotuned.cuh", "sgemmAutotuned<128, 128, 16, 8, 8>", 128, 256),
    tiled(
        "10_kernel_warptiling.cuh", "sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128>", 128, 128
    ),
    # The last two take WARPSIZE from the tenth's file: they run as the runner includes them.
    Case(
        "src/runner.cu", "sgemmDoubleBuffering<128, 256, 16, 128, 32, 1, 8, 8, 256>",
        (N // 256, N // 128), 256, draw,
        fault="Half of a block waits at one `__syncthreads()` while the rest waits at another.",
    ),
    Case(
        "src/runner.cu", "runSgemmDoubleBuffering2<128, 128, 16, 64, 64, 4, 8, 4, 128>",
        (N // 128, N // 128), 128, draw,
        fault="A stage that threads have read is filled by a bulk copy without a proxy fence.",
    ),
)  # fmt: skip
