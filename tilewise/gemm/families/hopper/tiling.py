"""The Hopper kernel's free choices: a tiling, and the products that it can compute.

This module is pure arithmetic, and does not depend on a GPU, an array or a kernel's source.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, NamedTuple

BLOCK_K = 64  # 16-bit elements: 128 bytes, the width of the swizzle
SUM_COLUMNS = 8  # columns of a tile that one block of hopper_sum reduces
MOST_STAGES = 16
ENOUGH_STAGES = 4  # from here on, wider TMA stores of D are worth more than another stage
LOADERS = 2  # warpgroups that load unaligned operands
STREAMED_FLOPS = 150  # per byte; a product with fewer waits for memory
_SHARED_BYTES = 232448 - 1024  # dynamic shared memory that a block can have beside its barriers


class Problem(NamedTuple):
    """The properties of a product that decide how fast its tiles are.

    Attributes
    ----------
    m, n, k, batch : int
    a_k_major, b_k_major : bool
        Whether k is the contiguous dimension.
    a_alignment, b_alignment : int
        The bytes to which all rows (or columns) are aligned: 16, 32, 64 or 128.
    a_unaligned, b_unaligned : bool
        Whether some rows (or columns) are not 16-byte aligned, so that TMA can't load them.
    d_row_major : bool
        Whether D's rows are contiguous; otherwise its columns are.
    d_by_tma : bool
        Whether TMA can store D.
    d_item : int
        Bytes of an element of C and D.
    reads_c : bool
        Whether C is read.
    pairs : bool
        Whether n counts the columns of two matrices B, so that D has half as many.
    interleaved : bool
        Whether one matrix holds the columns of both in turn.
    fused, moved : float
        The instructions of a thread for a caller's function, and the bytes that the function reads
        and stores besides D, for each of the m x n sums.
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
    d_by_tma: bool = True
    d_item: int = 2
    reads_c: bool = False
    pairs: bool = False
    interleaved: bool = False
    fused: float = 0.0
    moved: float = 0.0

    @property
    def stored(self) -> float:
        """The bytes of D for each of the m x n sums."""
        return self.d_item / (1 + self.pairs)

    @property
    def is_streamed(self) -> bool:
        """Whether the product waits for memory more than for arithmetic."""
        m, n, k = self.m, self.n, self.k
        of_d = m * n * self.stored / 2 * (1 + self.reads_c)  # in 16-bit elements
        return m * n * k < STREAMED_FLOPS * (m * k + k * n + of_d)

    @property
    def swapped(self) -> Problem:
        """The problem of D's transpose, with A and B swapped."""
        return Problem(
            self.n, self.m, self.k, self.batch,
            self.b_k_major, self.a_k_major, self.b_alignment, self.a_alignment, self.b_unaligned,
            self.a_unaligned, not self.d_row_major, self.d_by_tma, self.d_item, self.reads_c,
            self.pairs, self.interleaved, self.fused, self.moved,
        )  # fmt: skip


class _Choices(NamedTuple):
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


class Tiling(_Choices):
    """The free choices of one kernel.

    The methods that take a ``Problem`` take the one that the kernel computes: with A and B swapped
    if the tiling swaps them.

    It derives from a named tuple, which is made in little time: the first product of a layout makes
    one for each way to compute it. The named tuple itself could not keep cached properties.

    Attributes
    ----------
    block_m, block_n : int
        The rows and columns of the tile of D that one block computes.
    cluster_m, cluster_n : int
        The blocks of a cluster along M, which share tiles of B, and along N, which share tiles of
        A.
    split : int
        The number of blocks that divide one tile along k (split-K); 1 for no division.
    stream_k : bool
        Whether the tiles of the last wave are divided along k if they would leave blocks idle.
    swapped : bool
        Whether the kernel computes D's transpose, from A and B swapped.
    a_unaligned, b_unaligned : bool
        Whether threads load the kernel's A (B where swapped) and its B by cp.async, and realign
        their tiles in shared memory.
    ping_pong : bool
        Whether two warpgroups take tiles in turn, so that one stores a tile while the other
        multiplies the next; otherwise they share each tile.
    """

    @property
    def is_unaligned(self) -> bool:
        return self.a_unaligned or self.b_unaligned

    @property
    def consumers(self) -> int:
        """The number of warpgroups that multiply."""
        return 2 if self.ping_pong else _CONSUMERS[self.block_m]

    @property
    def sharers(self) -> int:
        """The number of warpgroups that share a tile."""
        return 1 if self.ping_pong else self.consumers

    @property
    def row_blocks(self) -> int:
        """The number of 64-row blocks of a tile that each sharing warpgroup has."""
        return self.block_m // (64 * self.sharers)

    @property
    def threads(self) -> int:
        return 128 * (1 + self.consumers + (LOADERS if self.is_unaligned else 0))

    @property
    def tiles(self) -> int:
        """The number of tiles that a cluster computes at a time."""
        return self.cluster_m * self.cluster_n

    @cached_property
    def out_columns(self) -> int:
        """The columns of one TMA store of D: the most that leave enough pipeline stages."""
        return self.rings[0]

    @property
    def out_bytes(self) -> int:
        """The bytes of the consumers' buffers for D, two a warp."""
        return _out_bytes(self.consumers, self.out_columns)

    @cached_property
    def stages(self) -> int:
        """The number of pipeline stages, as many as fit."""
        return self.rings[1]

    def staged_stages(self, pairs: bool) -> tuple[int, bool]:
        """Return the pipeline's stages beside a staged operand, and whether it is apart from them.

        A staged operand that does not have memory of its own comes through the stages. In either
        case D takes its place in shared memory, and needs no buffers (hopper_staged.cuh).
        """
        of_operand = self._staged_bytes(pairs)
        stages = min(MOST_STAGES, (_SHARED_BYTES - of_operand) // self.stage_bytes)
        if stages >= min(self.stages, ENOUGH_STAGES):
            return stages, True
        return min(MOST_STAGES, _SHARED_BYTES // self.stage_bytes), False

    def _staged_bytes(self, pairs: bool) -> int:
        """Return the bytes of a tile's elements of a staged operand, which have 16 bits."""
        return 2 * self.block_m * self.block_n // (1 + pairs)

    @property
    def rings(self) -> tuple[int, int]:
        """``out_columns`` and ``stages``."""
        return _rings(
            self.block_m, self.block_n, self.consumers, self.a_unaligned, self.b_unaligned
        )

    @property
    def stage_bytes(self) -> int:
        return _step_bytes(self.block_m, self.block_n)

    def raw_bytes(self, view: Problem) -> int:
        """Return the bytes of a stage of the raw ring, to which unaligned tiles are copied.

        If k is not contiguous, a line of a tile needs one more chunk of 128 bytes than its length.
        """
        a = self.a_unaligned * (self.block_m + (0 if view.a_k_major else BLOCK_K))
        b = self.b_unaligned * (self.block_n + (0 if view.b_k_major else BLOCK_K))
        return _step_bytes(a, b)

    def raw_stages(self, view: Problem) -> int:
        """Return the number of stages of the raw ring, as many as fit."""
        if not self.is_unaligned:
            return 0
        rest = _SHARED_BYTES - self.out_bytes - self.stages * self.stage_bytes
        return min(MOST_STAGES, rest // self.raw_bytes(view))

    def shared_bytes(self, view: Problem, is_staged: bool = False) -> int:
        """Return the dynamic shared memory of a block, in bytes.

        ``is_staged`` is whether a caller's function has a staged operand.
        """
        if is_staged:
            stages, is_apart = self.staged_stages(view.pairs)
            return stages * self.stage_bytes + is_apart * self._staged_bytes(view.pairs)
        rings = self.stages * self.stage_bytes + self.raw_stages(view) * self.raw_bytes(view)
        return rings + self.out_bytes

    def a_rows(self, problem: Problem) -> int:
        """Return the rows of a tile of A that are worth loading if D has few rows."""
        if not problem.a_k_major:
            return self.block_m
        rows = 8 * self.cluster_n
        while rows < min(problem.m, self.block_m):
            rows *= 2
        return min(rows, self.block_m)

    def objection(self, problem: Problem) -> str:
        """Return why the kernel can't compute the problem with this tiling; empty if it can."""
        if self.block_m not in _CONSUMERS:
            return f"a tile's rows are one of {', '.join(map(str, _CONSUMERS))}"
        registers = self.block_m * self.block_n // (128 * self.sharers)
        if registers > _MOST_REGISTERS[self.is_unaligned][self.consumers]:
            return f"the accumulators take {registers} registers a thread"
        if self.block_n % 16 or not 16 <= self.block_n <= 256:
            return "a tile's columns are a multiple of 16, up to 256"
        if self.stages < 2 or (self.is_unaligned and self.raw_stages(problem) < 3):
            return "too few stages fit into shared memory"
        if (problem.a_unaligned, problem.b_unaligned) != (self.a_unaligned, self.b_unaligned):
            return "the tiling and the operands differ in which are 16-byte aligned"
        if self.is_unaligned and self.tiles > 1:
            return "a cluster's blocks do not share tiles that are realigned"
        columns = 64 if self.b_unaligned else 32
        if not problem.b_k_major and self.block_n % columns:
            how = "realigned" if self.b_unaligned else "copied by TMA"
            return f"MN-major tiles of B are {how} by {columns} columns"
        if problem.b_k_major and self.block_n // self.cluster_m % 8:
            return "parts of a tile of B are whole groups of 8 columns"
        if problem.pairs and (words := self._objection_to_pairs(problem)):
            return words
        if self.split > 1 and (self.tiles > 1 or self.stream_k):
            return "k is divided by split-K or by stream-K, and split-K takes the whole cluster"
        if self.split > max(1, -(-problem.k // BLOCK_K)):
            return f"split-K needs a k-step, {BLOCK_K} of k or a rest, for each split"
        if self.ping_pong and (self.split > 1 or self.is_unaligned):
            return "ping-pong excludes unaligned operands and split-K"
        if (self.split - 1) * 4 * self.block_m * self.block_n > self.stages * self.stage_bytes:
            return "the other blocks' accumulators do not fit into the pipeline's stages"
        return ""

    def _objection_to_pairs(self, problem: Problem) -> str:
        """Return why a tile can't have pairs of columns; empty if it can."""
        if self.swapped:
            return "pairs are columns of a tile, and would be rows with A and B swapped"
        each = self.block_n // 2
        if each % 16:
            return "of pairs, a tile of D has a multiple of 16 columns, and is half as wide"
        if problem.interleaved:
            return ""
        if self.b_unaligned:
            return "two matrices B are copied by TMA, and are not 16-byte aligned"
        if each % 32 if not problem.b_k_major else each // self.cluster_m % 8:
            return "half of a tile of B is no whole TMA boxes"
        return ""

    def stored_columns(self, pairs: bool) -> int:
        """Return the columns of D that a warp stages and stores at a time."""
        columns, tile = self.out_columns, self.block_n // (1 + pairs)
        while tile % columns:
            columns //= 2
        return columns

    @cached_property
    def choice(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return self._asdict()

    @cached_property
    def words(self) -> str:
        """The kernel and its tiles in words."""
        return f"the Hopper kernel, {self}"

    def staged_words(self, pairs: bool) -> str:
        """Return the kernel and its tiles in words where it has a staged operand."""
        return f"the Hopper kernel, {self._text(self.staged_stages(pairs)[0])}"

    def __str__(self) -> str:
        return self._text(self.stages)

    def _text(self, stages: int) -> str:
        words = [f"tiles of {self.block_m} x {self.block_n}", f"{stages} stages"]
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
            words.append(f"{' and '.join(filter(None, names))} realigned in shared memory")
        return ", ".join(words)


_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
# The most accumulators of a thread, by whether operands are unaligned, which takes more threads
# with fewer registers each, and by the number of consumer warpgroups.
_MOST_REGISTERS = {False: {1: 192, 2: 192, 3: 96}, True: {1: 96, 2: 64, 3: 0}}


@cache
def _rings(
    block_m: int, block_n: int, consumers: int, a_unaligned: bool, b_unaligned: bool
) -> tuple[int, int]:
    """Return the ``out_columns`` and the ``stages`` of a tiling."""
    stage = _step_bytes(block_m, block_n)
    # The most that Tiling.raw_bytes says, where k is not contiguous.
    raw = _step_bytes(a_unaligned * (block_m + BLOCK_K), b_unaligned * (block_n + BLOCK_K))
    found = []
    for columns in (64, 32, 16):
        if block_n % columns:
            continue
        rest = _SHARED_BYTES - _out_bytes(consumers, columns)
        # With unaligned operands, about as many stages as the raw ring has.
        stages = max(2, min(4, rest // (stage + raw))) if raw else min(MOST_STAGES, rest // stage)
        found.append((min(stages, ENOUGH_STAGES), columns, stages))
    _, columns, stages = max(found)
    return columns, stages


def _step_bytes(of_a: int, of_b: int) -> int:
    """Return the bytes of so many lines of A and of B in a k-step."""
    return 2 * BLOCK_K * (of_a + of_b)


def _out_bytes(consumers: int, columns: int) -> int:
    return 4 * consumers * 2 * (2 * 16 * columns)
