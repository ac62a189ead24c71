"""xGeMM (github.com/tgautam03/xGeMM): C = A B of float, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Case, right_product

M, N, K = 136, 200, 52  # whole tiles of none of the kernels; the last one takes multiples of 4


def draw(rng: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
    """Make (A, B, C, rows of C, columns of C, columns of A)."""
    a = rng.standard_normal((M, K)).astype(np.float32)
    b = rng.standard_normal((K, N)).astype(np.float32)
    c = rng.standard_normal((M, N)).astype(np.float32)
    return (a, b, c, M, N, K), lambda: right_product(c, a, b)


def tiles(size: int, tile: int) -> int:
    """Return how many tiles cover a size."""
    return -(-size // tile)


def case(number: str, grid: tuple[int, int], block: int | tuple[int, int]) -> Case:
    """Return a kernel, which is called as its file is."""
    name = number[3:]
    return Case(
        f"src/{number}_xgemm.cu", f"{name}_mat_mul_kernel", grid, block, draw, include=("include",)
    )


CASES = (
    case("01_naive", (tiles(M, 32), tiles(N, 32)), (32, 32)),
    case("02_coalesced", (tiles(N, 32), tiles(M, 32)), (32, 32)),
    case("03_tiled", (tiles(N, 32), tiles(M, 32)), (32, 32)),
    case("04_coarse_1d", (tiles(N, 64), tiles(M, 64)), 512),
    case("05_coarse_2d", (tiles(N, 128), tiles(M, 128)), 256),
    case("06_coarse_2d_vec", (tiles(N, 128), tiles(M, 128)), 256),
)
