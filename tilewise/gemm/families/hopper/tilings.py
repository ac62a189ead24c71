"""The Hopper kernel's tilings: what they may be, and how they cover a product.

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
LOADERS = 2  # warpgroups that read what has to be shifted
_SHARED_BYTES = 232448 - 1024  # dynamic shared memory that a block can have, beside its barriers
LEAST_STEPS = 4  # that are worth a block's while
MOST_TILES = 2**31 - 512  # the kernel counts clusters of tiles by int
STREAMED_FLOPS = 150  # a byte; with fewer, it is memory that a product waits for


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
    a_shifted, b_shifted : bool
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
    a_shifted: bool = False
    b_shifted: bool = False
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
            self.b_k_major, self.a_k_major, self.b_alignment, self.a_alignment, self.b_shifted,
            self.a_shifted, not self.d_row_major, self.d_copied,
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
    shared : bool
        Whether the tiles of the last wave are divided along k, where they leave blocks idle.
    swapped : bool
        Whether D's transpose is computed, as B's times A's.
    ping_pong : bool
        Whether two warpgroups take tiles in turn, so that one stores a tile while the other
        multiplies the next; otherwise they share each tile.
    a_shifted, b_shifted : bool
        Whether tiles are copied as they lie, and shifted to multiples of 16 bytes in shared
        memory: of what the kernel takes for A and B, which where it is swapped is B and A.
    """

    block_m: int
    block_n: int
    cluster_m: int = 1
    cluster_n: int = 1
    split: int = 1
    shared: bool = False
    swapped: bool = False
    a_shifted: bool = False
    b_shifted: bool = False
    ping_pong: bool = False

    @property
    def shifted(self) -> bool:
        return self.a_shifted or self.b_shifted

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
        return 128 * (1 + self.consumers + (LOADERS if self.shifted else 0))

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
        return _rings(self.block_m, self.block_n, self.consumers, self.a_shifted, self.b_shifted)

    @property
    def stage_bytes(self) -> int:
        return 2 * BLOCK_K * (self.block_m + self.block_n)

    def raw_bytes(self, view: Problem) -> int:
        """Of a stage of the ring that tiles which are shifted are copied to first.

        For a problem whose A and B are swapped already: where k is not contiguous, a line of a tile
        needs one more piece of 128 bytes than it is long.
        """
        a = self.a_shifted * (self.block_m + (0 if view.a_k_major else BLOCK_K))
        b = self.b_shifted * (self.block_n + (0 if view.b_k_major else BLOCK_K))
        return 2 * BLOCK_K * (a + b)

    def raw_stages(self, view: Problem) -> int:
        """Of that ring: as many as fit."""
        if not self.shifted:
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
        if registers > _MOST_REGISTERS[self.shifted][self.consumers]:
            return f"a sum of {registers} registers a thread"
        if self.block_n % 16 or not 16 <= self.block_n <= 256:
            return "a tile's columns are a multiple of 16, up to 256"
        if self.stages < 2 or (self.shifted and self.raw_stages(problem) < 3):
            return "too few stages fit into shared memory"
        if (problem.a_shifted, problem.b_shifted) != (self.a_shifted, self.b_shifted):
            return "tiles are shifted where not all rows begin at multiples of 16 bytes"
        if self.shifted and self.tiles > 1:
            return "a cluster's blocks do not share tiles that are shifted"
        if not problem.b_k_major and self.block_n % 64:
            return "columns of B that are contiguous are copied by 64"
        if self.block_n // self.cluster_m % 8:
            return "parts of a tile of B are whole groups of 8 columns"
        if self.split > 1 and (self.tiles > 1 or self.shared):
            return "k is divided in one way"
        if self.split * BLOCK_K > max(problem.k, BLOCK_K):
            return "k is divided into more parts than there are steps"
        if self.ping_pong and (self.split > 1 or self.shifted):
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
        if self.shared:
            words.append("stream-K tail")
        if self.ping_pong:
            words.append("ping-pong")
        if self.swapped:
            words.append("A and B swapped")
        if self.shifted:
            names = (
                "A" * (self.b_shifted if self.swapped else self.a_shifted),
                "B" * (self.a_shifted if self.swapped else self.b_shifted),
            )
            words.append(f"{' and '.join(filter(None, names))} shifted in shared memory")
        return ", ".join(words)


_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
# Of sums, in a thread. Where tiles are shifted, there are more threads, of fewer registers each.
_MOST_REGISTERS = {False: {1: 192, 2: 192, 3: 96}, True: {1: 96, 2: 64, 3: 0}}


@cache
def _rings(
    block_m: int, block_n: int, consumers: int, a_shifted: bool, b_shifted: bool
) -> tuple[int, int]:
    """A tiling's ``out_columns`` and ``stages``."""
    tiling = Tiling(block_m, block_n, a_shifted=a_shifted, b_shifted=b_shifted)
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


@dataclass(frozen=True)
class Cover:
    """How tiles cover a product.

    Attributes
    ----------
    m_tiles, n_tiles : int
        Of the whole grid of tiles, multiples of the cluster's.
    tiles : int
        Of clusters, all batches together.
    whole, rest : int
        Those that are computed by one cluster each, and the others.
    parts : int
        Into which each of the others is divided along k.
    units : int
        Clusters that take them in turn.
    phases : int
        Steps of BLOCK_K along k.
    """

    m_tiles: int
    n_tiles: int
    tiles: int
    whole: int
    rest: int
    parts: int
    units: int
    phases: int


def cover(tiling: Tiling, m: int, n: int, k: int, batch: int, multiprocessors: int) -> Cover:
    """How a tiling covers a batch of m x n x k, as the kernel computes it: swapped already."""
    rows = -(-m // (tiling.block_m * tiling.cluster_m))
    columns = -(-n // (tiling.block_n * tiling.cluster_n))
    tiles, phases = rows * columns * batch, -(-k // BLOCK_K)
    whole, parts, units = tiles, 1, tiles
    if tiling.split == 1:
        units = max(1, clusters_at_once(tiling.tiles, multiprocessors))
        rest = tiles % units
        if tiling.shared and rest:
            parts = min(units // rest, max(1, phases // LEAST_STEPS))
        if parts > 1:
            whole = tiles - rest
        units = min(units, whole if parts == 1 else max(whole, rest * parts))
    return Cover(
        rows * tiling.cluster_m,
        columns * tiling.cluster_n,
        tiles,
        whole,
        tiles - whole,
        parts,
        units,
        phases,
    )


# What the planner chooses from: BLOCK_M, BLOCK_N, CLUSTER_M, CLUSTER_N, SPLIT, whether the last
# wave is divided along k, and PING_PONG. benchmarks/choose_kernels.py chose them by the model and
# by benchmarks/results/hopper_h200.json, and those that few products would take were left out.
# 64 x 64 with no cluster can compute every aligned product.
KERNELS = (
    (64, 16, 1, 1, 1, False, False), (64, 16, 1, 1, 1, True, False),
    (64, 16, 1, 1, 2, False, False), (64, 16, 1, 1, 4, False, False),
    (64, 32, 1, 1, 1, False, False), (64, 32, 1, 1, 2, False, False),
    (64, 32, 1, 1, 4, False, False), (64, 32, 1, 2, 1, False, False),
    (64, 32, 2, 4, 1, False, False), (64, 48, 1, 1, 1, False, False),
    (64, 48, 1, 1, 2, False, False), (64, 64, 1, 1, 1, False, False),
    (64, 64, 1, 1, 2, False, False), (64, 64, 1, 2, 1, True, False),
    (64, 64, 1, 4, 1, False, False), (64, 64, 2, 2, 1, False, False),
    (64, 64, 2, 4, 1, False, False), (64, 64, 2, 4, 1, True, False),
    (64, 80, 1, 1, 1, False, False), (64, 80, 1, 1, 2, False, False),
    (64, 80, 1, 2, 1, True, False), (64, 80, 2, 2, 1, False, False),
    (64, 96, 2, 2, 1, False, False), (64, 96, 4, 1, 1, False, False),
    (64, 96, 4, 1, 1, True, False), (64, 96, 4, 2, 1, False, False),
    (64, 112, 2, 4, 1, False, False), (64, 128, 1, 4, 1, False, False),
    (64, 128, 2, 1, 1, False, False), (64, 128, 2, 4, 1, False, False),
    (64, 128, 2, 4, 1, False, True), (64, 128, 2, 4, 1, True, False),
    (64, 128, 4, 2, 1, False, False), (64, 128, 4, 2, 1, False, True),
    (64, 192, 1, 2, 1, False, False), (64, 192, 2, 1, 1, False, False),
    (64, 192, 2, 1, 1, True, False), (64, 192, 2, 4, 1, False, False),
    (64, 192, 4, 1, 1, False, False), (64, 192, 4, 1, 1, False, True),
    (64, 192, 4, 1, 1, True, False), (128, 80, 2, 1, 1, True, False),
    (128, 80, 2, 4, 1, False, False), (128, 96, 4, 2, 1, False, False),
    (128, 128, 1, 2, 1, False, False), (128, 128, 1, 2, 1, False, True),
    (128, 128, 2, 1, 1, True, False), (128, 128, 2, 4, 1, False, True),
    (128, 128, 4, 2, 1, False, False), (128, 144, 2, 1, 1, True, False),
    (128, 160, 2, 1, 1, False, False), (128, 192, 1, 2, 1, False, False),
    (128, 192, 2, 1, 1, False, False), (128, 192, 2, 1, 1, False, True),
    (128, 224, 2, 1, 1, False, False), (128, 256, 1, 2, 1, False, False),
    (128, 256, 2, 1, 1, False, False), (192, 96, 1, 2, 1, False, False),
    (192, 128, 1, 2, 1, True, False), (192, 192, 1, 2, 1, False, False),
    (256, 128, 1, 2, 1, True, False), (256, 160, 1, 2, 1, False, False),
)  # fmt: skip
# Of products that are not 16-byte aligned, whose tiles are shifted.
SHIFTED_KERNELS = tuple(
    (block_m, block_n, 1, 1, split, stream_k)
    for block_m, block_n in (
        (64, 16), (64, 32), (64, 64), (64, 128), (64, 192), (128, 64), (128, 128),
    )
    for split, stream_k in ((1, False), (1, True), (2, False))
)  # fmt: skip


def tilings(
    a_shifted: bool = False, b_shifted: bool = False, swapped: bool = False
) -> list[Tiling]:
    """Return the tilings that the planner chooses from."""
    if a_shifted or b_shifted:
        return [Tiling(*sizes, swapped, a_shifted, b_shifted) for sizes in SHIFTED_KERNELS]
    return [Tiling(*sizes[:6], swapped, ping_pong=sizes[6]) for sizes in KERNELS]


def clusters_at_once(blocks: int, multiprocessors: int) -> int:
    """How many clusters run at a time.

    All blocks of one are in one GPC, of 14 to 18 multiprocessors: of more than two blocks, as
    many clusters as would fit evenly do not. An H200 takes 30 clusters of four blocks and 15 of
    eight (cuOccupancyMaxActiveClusters), but of eight the last one often waits for another to end.
    """
    if blocks <= 2:
        return multiprocessors // blocks
    fitting = multiprocessors * 10 // 11 // blocks
    return fitting - 1 if blocks > 4 and fitting > 1 else fitting


def fits(tiling: Tiling, multiprocessors: int) -> bool:
    """Return whether a GPU has the multiprocessors for one cluster of a tiling."""
    return clusters_at_once(tiling.tiles * tiling.split, multiprocessors) > 0


def is_filled(tiling: Tiling, m: int, n: int) -> bool:
    """Return whether D reaches into the last 64 rows of a tile, and over a whole cluster."""
    return (
        (tiling.block_m == 64 or m > tiling.block_m - 64)
        and (tiling.cluster_m == 1 or m > tiling.block_m)
        and (tiling.cluster_n == 1 or n > tiling.block_n)
    )
