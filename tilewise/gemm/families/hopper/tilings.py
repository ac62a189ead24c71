"""The tilings that the planner chooses from."""

from __future__ import annotations

from tilewise.gemm.families.hopper.tiling import Tiling

# What the planner chooses from: BLOCK_M, BLOCK_N, CLUSTER_M, CLUSTER_N, SPLIT, whether the last
# wave is divided along k, and PING_PONG. Of those that were timed often enough to be judged,
# benchmarks/choose_kernels.py chose them by what the planner makes of
# benchmarks/results/hopper_h200.json.
# 64 x 64 with no cluster can compute every aligned product.
KERNELS = (
    (64, 16, 1, 1, 1, False, False), (64, 16, 1, 1, 1, True, False),
    (64, 16, 1, 1, 2, False, False), (64, 16, 1, 1, 4, False, False),
    (64, 32, 1, 1, 1, False, False), (64, 32, 1, 1, 4, False, False),
    (64, 32, 1, 4, 1, False, False), (64, 32, 2, 4, 1, False, False),
    (64, 48, 1, 1, 1, False, False), (64, 48, 1, 1, 2, False, False),
    (64, 48, 2, 4, 1, False, False), (64, 64, 1, 1, 1, False, False),
    (64, 64, 1, 1, 2, False, False), (64, 64, 1, 2, 1, True, False),
    (64, 64, 1, 4, 1, False, False), (64, 64, 2, 2, 1, False, False),
    (64, 64, 2, 4, 1, False, False), (64, 64, 2, 4, 1, True, False),
    (64, 80, 1, 1, 1, False, False), (64, 80, 1, 1, 2, False, False),
    (64, 80, 1, 2, 1, True, False), (64, 80, 2, 2, 1, False, False),
    (64, 96, 4, 1, 1, False, False), (64, 96, 4, 1, 1, True, False),
    (64, 96, 4, 2, 1, False, False), (64, 112, 2, 4, 1, False, False),
    (64, 128, 1, 2, 1, True, False), (64, 128, 1, 4, 1, False, False),
    (64, 128, 2, 1, 1, False, False), (64, 128, 2, 4, 1, False, False),
    (64, 128, 2, 4, 1, False, True), (64, 128, 4, 1, 1, False, False),
    (64, 128, 4, 2, 1, False, False), (64, 128, 4, 2, 1, False, True),
    (64, 160, 2, 1, 1, False, False), (64, 192, 1, 2, 1, False, False),
    (64, 192, 2, 1, 1, False, False), (64, 192, 2, 1, 1, True, False),
    (64, 192, 2, 4, 1, False, False), (64, 192, 4, 1, 1, False, False),
    (64, 192, 4, 1, 1, False, True), (64, 192, 4, 1, 1, True, False),
    (128, 80, 2, 1, 1, True, False), (128, 80, 2, 4, 1, False, False),
    (128, 96, 4, 2, 1, False, False), (128, 128, 1, 2, 1, False, False),
    (128, 128, 1, 2, 1, False, True), (128, 128, 2, 1, 1, True, False),
    (128, 128, 2, 4, 1, False, True), (128, 128, 4, 2, 1, False, False),
    (128, 144, 2, 1, 1, True, False), (128, 160, 2, 1, 1, False, False),
    (128, 192, 1, 2, 1, False, False), (128, 192, 2, 1, 1, False, False),
    (128, 192, 2, 1, 1, False, True), (128, 192, 4, 1, 1, False, True),
    (128, 224, 1, 2, 1, False, False), (128, 224, 2, 1, 1, False, False),
    (128, 256, 1, 2, 1, False, False), (128, 256, 2, 1, 1, False, False),
    (192, 64, 1, 4, 1, False, True), (192, 80, 1, 2, 1, False, False),
    (192, 80, 1, 4, 1, False, False), (192, 96, 1, 2, 1, False, False),
    (192, 128, 1, 2, 1, True, False), (192, 192, 1, 2, 1, False, False),
    (256, 128, 1, 2, 1, True, False), (256, 160, 1, 2, 1, False, False),
)  # fmt: skip
# Of products that are not 16-byte aligned, whose tiles are realigned in shared memory.
UNALIGNED_KERNELS = tuple(
    (block_m, block_n, 1, 1, split, stream_k)
    for block_m, block_n in (
        (64, 16), (64, 32), (64, 64), (64, 128), (64, 192), (128, 64), (128, 128),
    )
    for split, stream_k in ((1, False), (1, True), (2, False))
)  # fmt: skip


def tilings(
    a_unaligned: bool = False, b_unaligned: bool = False, swapped: bool = False
) -> list[Tiling]:
    """Return the tilings that the planner chooses from."""
    if a_unaligned or b_unaligned:
        return [Tiling(*sizes, swapped, a_unaligned, b_unaligned) for sizes in UNALIGNED_KERNELS]
    return [Tiling(*sizes[:6], swapped, ping_pong=sizes[6]) for sizes in KERNELS]
