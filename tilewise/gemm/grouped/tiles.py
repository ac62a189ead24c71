"""The free choices of the grouped Hopper kernel, and its objections to some of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tilewise.gemm.families.hopper.tiling import BLOCK_K

MOST_GROUPS = 1024  # as in groups.cuh
MOST_STAGES = 12
MOST_OUT_BUFFERS = 2  # of a warp, for D
FEW_GROUPS = 256  # for up to so many groups, groups.cuh is compiled with smaller tables
_SHARED_BYTES = 232448  # that a block can have
_ALIGNED = 1024  # bytes to which the ring is aligned, behind the groups' tables and the barriers
_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
_MOST_ACCUMULATORS = {1: 192, 2: 192, 3: 96}


@dataclass(frozen=True)
class Tiles:
    """A tile of D, and how the warps of a cluster share the work on it.

    Attributes
    ----------
    block_m, block_n : int
        The rows and columns of the tile of D, or if ``swapped`` of D's transpose, that one block
        computes.
    cluster_m, cluster_n : int
        Blocks of a cluster along M, which share tiles of B, and along N, which share tiles of A.
    ping_pong : bool
        Whether two warpgroups take tiles in turn, so that one stores a tile while the other
        multiplies the next; otherwise they share each tile.
    swapped : bool
        Whether the kernel computes D's transpose, from A and B swapped.
    turning : bool
        Whether a cluster of 2 x 1 blocks, at the odd last row of a group's tiles, computes two
        tiles of that row and multicasts A, where it else multicasts B.
    """

    block_m: int
    block_n: int
    cluster_m: int = 1
    cluster_n: int = 1
    ping_pong: bool = False
    swapped: bool = False
    turning: bool = False

    @cached_property
    def consumers(self) -> int:
        """The number of warpgroups that multiply."""
        return 2 if self.ping_pong else _CONSUMERS[self.block_m]

    @cached_property
    def choice(self) -> dict[str, Any]:
        """The choice, as JSON has it."""
        return asdict(self)

    @property
    def sharers(self) -> int:
        """The number of warpgroups that share a tile."""
        return 1 if self.ping_pong else self.consumers

    @property
    def threads(self) -> int:
        return 128 * (1 + self.consumers)

    @property
    def cluster(self) -> int:
        """The number of blocks of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def stage_bytes(self) -> int:
        return 2 * BLOCK_K * (self.block_m + self.block_n)

    @property
    def out_columns(self) -> int:
        """The columns of D that a warp stages at a time."""
        return next(width for width in (64, 32, 16) if self.block_n % width == 0)

    def out_bytes(self, buffers: int) -> int:
        """Return the bytes of the consumers' buffers for D, so many a warp."""
        return 4 * self.consumers * (2 * 16 * self.out_columns) * buffers

    def stages(self, most_groups: int, buffers: int) -> int:
        """Return the number of pipeline stages: as many as fit.

        Beside them are the tables of the groups, the barriers, and ``buffers`` buffers for D of
        each warp.
        """
        beside = 4 * (2 * most_groups + 1) + 8 * (2 * MOST_STAGES + 2)
        rest = _SHARED_BYTES - -(-beside // _ALIGNED) * _ALIGNED - self.out_bytes(buffers)
        return min(MOST_STAGES, rest // self.stage_bytes)

    def objection(self, of: str, b_k_major: bool) -> str:
        """Return why the kernel can't have such tiles; empty if it can.

        Parameters
        ----------
        of : str
            The dimension that is in groups, as the kernel sees it.
        b_k_major : bool
            Whether k is B's contiguous dimension.
        """
        if self.turning and (of != "m" or (self.cluster_m, self.cluster_n) != (2, 1)):
            return "only clusters of 2 x 1 turn, where rows are in groups"
        if self.block_m not in _CONSUMERS:
            return f"a tile's rows are one of {', '.join(map(str, _CONSUMERS))}"
        if self.block_m * self.block_n // (128 * self.sharers) > _MOST_ACCUMULATORS[self.consumers]:
            return "a thread has too few registers for its accumulators"
        if self.block_n % 16 or not 16 <= self.block_n <= 256:
            return "a tile's columns are a multiple of 16, up to 256"
        if not b_k_major and self.block_n % 32:
            return "MN-major tiles of B are copied by TMA by 32 columns"
        if b_k_major and self.block_n // self.cluster_m % 8:
            return "parts of a tile of B are whole groups of 8 columns"
        stages = self.stages(MOST_GROUPS, MOST_OUT_BUFFERS)
        return "" if stages >= 2 else "too few stages fit into shared memory"

    def __str__(self) -> str:
        words = [f"tiles of {self.block_m} x {self.block_n}"]
        if self.cluster > 1:
            turn = " that turn" if self.turning else ""
            words.append(f"clusters of {self.cluster_m} x {self.cluster_n}{turn}")
        if self.ping_pong:
            words.append("ping-pong")
        if self.swapped:
            words.append("A and B swapped")
        return ", ".join(words)
