"""The Hopper kernel's free choices: what a tiling is, and which products it can compute.

Pure arithmetic: nothing here knows a GPU, an array or a kernel's source.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any

BLOCK_K = 64  # of 16 bits: 128 bytes, the width of the swizzle
SUM_COLUMNS = 8  # of a tile, a block of hopper_sum
MOST_STAGES = 16
ENOUGH_STAGES = 4  # more are worth less than wider copies of D
LOADERS = 2  # warpgroups that load unaligned operands
STREAMED_FLOPS = 150  # a byte; a product with fewer waits for memory
_SHARED_BYTES = 232448 - 1024  # dynamic shared memory that a block can have, beside its barriers


@dataclass(frozen=True)
class Problem:
    """What of a product decides how fast its tiles are.

    Attributes
    ----------
    m, n, k, batch : int
    a_k_major, b_k_major : bool
        Whether k is the contiguous dimension.
    a_alignment, b_alignment : int
        Bytes of which the beginnings of all rows (or columns) are multiples: 16, 32, 64 or 128.
    a_unaligned, b_unaligned : bool
        Whether not all begin at multiples of 16 bytes, so that tiles have to be shifted.
    d_row_major : bool
        Whether D's rows are contiguous, or its columns.
    d_copied : bool
        Whether bulk copies can store D.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    a_k_major: bool = True
    b_k_major: bool = True
    a_alignment: int = 128
    b_alignment: int = 128
    a_unaligned: bool = False
    b_unaligned: bool = False
    d_row_major: bool = True
    d_copied: bool = True

    @property
    def is_streamed(self) -> bool:
        """Whether it waits for memory more than for arithmetic."""
        m, n, k = self.m, self.n, self.k
        return m * n * k < STREAMED_FLOPS * (m * k + k * n + m * n)

    @property
    def swapped(self) -> Problem:
        """That of D's transpose."""
        return Problem(
            self.n, self.m, self.k, self.batch,
            self.b_k_major, self.a_k_major, self.b_alignment, self.a_alignment, self.b_unaligned,
            self.a_unaligned, not self.d_row_major, self.d_copied,
        )  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """The kernel's free choices.

    Attributes
    ----------
    block_m, block_n : int
        Of C's tile, which one block computes.
    cluster_m, cluster_n : int
        Blocks below one another, that share tiles of B, and beside one another, that share tiles
        of A.
    split : int
        Blocks that divide one tile's k among them.
    stream_k : bool
        Whether the tiles of the last wave are divided along k, where they leave blocks idle.
    swapped : bool
        Whether D's transpose is computed, as B's times A's.
    ping_pong : bool
        Whether two warpgroups take tiles in turn, so that one stores a tile while the other
        multiplies the next; otherwise they share each tile.
    a_unaligned, b_unaligned : bool
        Whether tiles are copied as they lie, and shifted to multiples of 16 bytes in shared
        memory: of what the kernel takes for A and B, which where it is swapped is B and A.
    """

    block_m: int
    block_n: int
    cluster_m: int = 1
    cluster_n: int = 1
    split: int = 1
    stream_k: bool = False
    swapped: bool = False
    a_unaligned: bool = False
    b_unaligned: bool = False
    ping_pong: bool = False

    @property
    def is_unaligned(self) -> bool:
        return self.a_unaligned or self.b_unaligned

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.ping_pong else _CONSUMERS[self.block_m]

    @property
    def sharers(self) -> int:
        """Warpgroups that share a tile."""
        return 1 if self.ping_pong else self.consumers

    @property
    def threads(self) -> int:
        return 128 * (1 + self.consumers + (LOADERS if self.is_unaligned else 0))

    @property
    def tiles(self) -> int:
        """That a cluster computes at a time."""
        return self.cluster_m * self.cluster_n

    @property
    def out_columns(self) -> int:
        """Of one bulk copy of D: as wide as can be with enough stages of the ring."""
        return self._rings[0]

    @property
    def out_bytes(self) -> int:
        """Of the consumers' buffers for D, two a warp."""
        return _out_bytes(self.consumers, self.out_columns)

    @property
    def stages(self) -> int:
        """Of the ring: as many as fit."""
        return self._rings[1]

    @property
    def _rings(self) -> tuple[int, int]:
        return _rings(
            self.block_m, self.block_n, self.consumers, self.a_unaligned, self.b_unaligned
        )

    @property
    def stage_bytes(self) -> int:
        return 2 * BLOCK_K * (self.block_m + self.block_n)

    def raw_bytes(self, view: Problem) -> int:
        """Of a stage of the ring that tiles which are shifted are copied to first.

        For a problem whose A and B are swapped already: where k is not contiguous, a line of a tile
        needs one more piece of 128 bytes than it is long.
        """
        a = self.a_unaligned * (self.block_m + (0 if view.a_k_major else BLOCK_K))
        b = self.b_unaligned * (self.block_n + (0 if view.b_k_major else BLOCK_K))
        return 2 * BLOCK_K * (a + b)

    def raw_stages(self, view: Problem) -> int:
        """Of that ring: as many as fit."""
        if not self.is_unaligned:
            return 0
        rest = _SHARED_BYTES - self.out_bytes - self.stages * self.stage_bytes
        return min(MOST_STAGES, rest // self.raw_bytes(view))

    def shared_bytes(self, view: Problem) -> int:
        """Dynamic shared memory of a block, for a problem whose A and B are swapped."""
        rings = self.stages * self.stage_bytes + self.raw_stages(view) * self.raw_bytes(view)
        return rings + self.out_bytes

    def a_rows(self, problem: Problem) -> int:
        """Of a tile of A, that are worth copying, for a problem whose A and B are swapped."""
        if not problem.a_k_major:
            return self.block_m
        rows = 8 * self.cluster_n
        while rows < min(problem.m, self.block_m):
            rows *= 2
        return min(rows, self.block_m)

    def objection(self, problem: Problem) -> str:
        """Why it can't be, for a problem whose A and B are swapped; empty if it can."""
        if self.block_m not in _CONSUMERS:
            return f"a tile's rows are one of {', '.join(map(str, _CONSUMERS))}"
        registers = self.block_m * self.block_n // (128 * self.sharers)
        if registers > _MOST_REGISTERS[self.is_unaligned][self.consumers]:
            return f"a sum of {registers} registers a thread"
        if self.block_n % 16 or not 16 <= self.block_n <= 256:
            return "a tile's columns are a multiple of 16, up to 256"
        if self.stages < 2 or (self.is_unaligned and self.raw_stages(problem) < 3):
            return "too few stages fit into shared memory"
        if (problem.a_unaligned, problem.b_unaligned) != (self.a_unaligned, self.b_unaligned):
            return "tiles are shifted where not all rows begin at multiples of 16 bytes"
        if self.is_unaligned and self.tiles > 1:
            return "a cluster's blocks do not share tiles that are shifted"
        if not problem.b_k_major and self.block_n % 64:
            return "columns of B that are contiguous are copied by 64"
        if self.block_n // self.cluster_m % 8:
            return "parts of a tile of B are whole groups of 8 columns"
        if self.split > 1 and (self.tiles > 1 or self.stream_k):
            return "k is divided in one way"
        if self.split * BLOCK_K > max(problem.k, BLOCK_K):
            return "k is divided into more parts than there are steps"
        if self.ping_pong and (self.split > 1 or self.is_unaligned):
            return "warpgroups take tiles in turn where none is shifted, nor divided by split-K"
        if (self.split - 1) * 4 * self.block_m * self.block_n > self.stages * self.stage_bytes:
            return "the sums do not fit into the ring"
        return ""

    @cached_property
    def choice(self) -> dict[str, Any]:
        """Its fields, as JSON has them."""
        return asdict(self)

    @cached_property
    def words(self) -> str:
        """The kernel and its tiles, for people."""
        return f"the Hopper kernel, {self}"

    def __str__(self) -> str:
        words = [f"tiles of {self.block_m} x {self.block_n}", f"{self.stages} stages"]
        if self.tiles > 1:
            words.append(f"clusters of {self.cluster_m} x {self.cluster_n}")
        if self.split > 1:
            words.append(f"split-K by {self.split}")
        if self.stream_k:
            words.append("stream-K tail")
        if self.ping_pong:
            words.append("ping-pong")
        if self.swapped:
            words.append("A and B swapped")
        if self.is_unaligned:
            names = (
                "A" * (self.b_unaligned if self.swapped else self.a_unaligned),
                "B" * (self.a_unaligned if self.swapped else self.b_unaligned),
            )
            words.append(f"{' and '.join(filter(None, names))} shifted in shared memory")
        return ", ".join(words)


_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
# Of sums, in a thread. Where tiles are shifted, there are more threads, of fewer registers each.
_MOST_REGISTERS = {False: {1: 192, 2: 192, 3: 96}, True: {1: 96, 2: 64, 3: 0}}


@cache
def _rings(
    block_m: int, block_n: int, consumers: int, a_unaligned: bool, b_unaligned: bool
) -> tuple[int, int]:
    """A tiling's ``out_columns`` and ``stages``."""
    tiling = Tiling(block_m, block_n, a_unaligned=a_unaligned, b_unaligned=b_unaligned)
    raw = tiling.raw_bytes(Problem(1, 1, 1, a_k_major=False, b_k_major=False))

    def stages(columns: int) -> int:
        rest = _SHARED_BYTES - _out_bytes(consumers, columns)
        if raw:  # about as many as of the other ring
            return max(2, min(4, rest // (tiling.stage_bytes + raw)))
        return min(MOST_STAGES, rest // tiling.stage_bytes)

    widths = [width for width in (64, 32, 16) if block_n % width == 0]
    columns = max(widths, key=lambda width: (min(stages(width), ENOUGH_STAGES), width))
    return columns, stages(columns)


def _out_bytes(consumers: int, columns: int) -> int:
    return 4 * consumers * 2 * (2 * 16 * columns)
