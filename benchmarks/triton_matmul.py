"""Multiply matrices by a Triton kernel in the form of Triton's tutorial."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, d, m, n, k, a_row, a_column, b_row, b_column, d_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """Compute D = A B, a tile of D in each program; GROUP rows of tiles are computed together.

    For rows and columns beyond the matrices, others within them are read, and nothing is stored.
    """
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    first = program // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    within = program % (GROUP * tiles_n)
    tile_m, tile_n = first + within % height, within // height
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    depth = tl.arange(0, BLOCK_K)
    at_a = a + row[:, None] * a_row + depth[None, :] * a_column
    at_b = b + depth[:, None] * b_row + column[None, :] * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        if EVEN_K:
            left, right = tl.load(at_a), tl.load(at_b)
        else:
            left = tl.load(at_a, mask=depth[None, :] < k - step * BLOCK_K, other=0.0)
            right = tl.load(at_b, mask=depth[:, None] < k - step * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total)
        at_a += BLOCK_K * a_column
        at_b += BLOCK_K * b_row
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    at_d = d + row[:, None] * d_row + column[None, :]
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(at_d, total.to(d.dtype.element_ty), mask=inside)
