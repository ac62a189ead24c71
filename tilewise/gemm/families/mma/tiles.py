"""The tiles of the ``mma.sync`` kernel."""

from __future__ import annotations

from dataclasses import dataclass

ITEM = 2  # bytes of an element of A and B


@dataclass(frozen=True)
class Tiles:
    """The sizes of a kernel: macros of ``mma.cu``.

    Attributes
    ----------
    block_m, block_n : int
        The tile of D that a block computes.
    block_k : int
        The depth of a k-step.
    warp_m, warp_n : int
        The tile of D that a warp computes.
    stages : int
        The pipeline stages in shared memory.
    residents : int
        The blocks of a multiprocessor at once, for which its registers suffice.
    """

    block_m: int
    block_n: int
    block_k: int
    warp_m: int
    warp_n: int
    stages: int
    residents: int

    def __str__(self) -> str:
        return f"{self.block_m}x{self.block_n}x{self.block_k}"

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * (self.block_m // self.warp_m) * (self.block_n // self.warp_n)

    @property
    def shared(self) -> int:
        """The bytes of a block's shared memory."""
        return self.stages * (self.block_m + self.block_n) * self.block_k * ITEM

    @property
    def macros(self) -> dict[str, int]:
        """The macros by which the kernel is compiled."""
        return {
            "BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "BLOCK_K": self.block_k,
            "WARP_M": self.warp_m, "WARP_N": self.warp_n, "STAGES": self.stages,
            "BLOCKS": self.residents,
        }  # fmt: skip


SHALLOW = (
    Tiles(128, 256, 32, 64, 64, 4, 1),
    Tiles(256, 128, 32, 64, 64, 4, 1),
    Tiles(128, 128, 32, 64, 64, 3, 2),
    Tiles(128, 64, 32, 64, 32, 4, 3),
    Tiles(64, 128, 32, 32, 64, 4, 3),
    Tiles(64, 64, 64, 32, 32, 3, 4),
    Tiles(32, 64, 64, 16, 32, 4, 4),
    Tiles(64, 32, 64, 16, 32, 4, 4),
    Tiles(16, 128, 64, 16, 32, 4, 3),
    Tiles(128, 32, 64, 32, 32, 3, 3),
)
"""Tiles of which a multiprocessor holds several blocks, or one that computes much of D."""
DEEP = (
    Tiles(16, 32, 64, 16, 16, 8, 4),
    Tiles(64, 64, 128, 32, 32, 3, 2),
    Tiles(64, 128, 64, 32, 64, 4, 2),
    Tiles(128, 64, 64, 64, 32, 4, 2),
)
"""Tiles of more bytes in flight per block, for products of so few tiles that a multiprocessor has
one or two of them: such a block has to hide the latency of memory by itself.
"""
TILES = (*SHALLOW, *DEEP)
"""The tiles that the planner chooses from. 99 KB of shared memory hold a block of each."""
