"""Say which threads an instruction runs for, and their places in warps and blocks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.places import Dim3

Index = npt.NDArray[np.intp]
WARP = 32
WARPGROUP = 128
"""The number of threads of a warpgroup, which run ``wgmma`` together."""
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
"""An address in shared memory has the rank of its block in the cluster above these bits, which are
the offset there: machine code of compute capability 9.0 adds SR_CgaCtaId so to a variable's offset.
The blocks of a cluster have different addresses for one variable."""


class Geometry:
    """The threads of a batch of whole blocks: lane numbers to blocks, threads and warps.

    Parameters
    ----------
    grid, block : (int, int, int)
        The launch's grid and block.
    first, count : int
        The first cluster of the grid in this batch, numbered with x fastest, and their number.
    cluster : (int, int, int)
        The blocks of a cluster along each axis.

    Attributes
    ----------
    blocks : ndarray of int64, shape (block_count,)
        The linear numbers of the blocks in this batch. Those of a cluster are neighbours, in the
        order of their ranks.
    """

    def __init__(
        self, grid: Dim3, block: Dim3, first: int, count: int, cluster: Dim3 = (1, 1, 1)
    ) -> None:
        self.grid, self.block, self.cluster = grid, block, cluster
        self.cluster_size = cluster[0] * cluster[1] * cluster[2]
        self.blocks = self._numbers(np.arange(first, first + count, dtype=np.int64))
        self.threads = block[0] * block[1] * block[2]
        self.block_count = len(self.blocks)
        self.count = self.threads * self.block_count
        self.warps_per_block = -(-self.threads // WARP)
        self.warp_count = self.warps_per_block * self.block_count

    @property
    def clusters(self) -> Dim3:
        """The number of clusters of the grid along each axis."""
        (gx, gy, gz), (cx, cy, cz) = self.grid, self.cluster
        return gx // cx, gy // cy, gz // cz

    @property
    def places(self) -> list[Dim3]:
        """The indices of the blocks in this batch."""
        gx, gy, _ = self.grid
        return [(i % gx, i // gx % gy, i // (gx * gy)) for i in self.blocks.tolist()]

    def _numbers(self, clusters: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the linear numbers of the clusters' blocks."""
        if self.cluster_size == 1:
            return clusters
        (gx, gy, _), (cx, cy, _), (nx, ny, _) = self.grid, self.cluster, self.clusters
        number = clusters[:, None]
        rank = np.arange(self.cluster_size)
        x = number % nx * cx + rank % cx
        y = number // nx % ny * cy + rank // cx % cy
        z = number // (nx * ny) * self.cluster[2] + rank // (cx * cy)
        linear: npt.NDArray[np.int64] = x + gx * (y + gy * z)
        return linear.reshape(-1)

    @cached_property
    def everybody(self) -> Index:
        """The indices of all lanes."""
        found = np.arange(self.count, dtype=np.intp)
        found.flags.writeable = False
        return found

    @cached_property
    def thread_of(self) -> Index:
        """The linear number of each lane's thread in its block."""
        return np.tile(np.arange(self.threads, dtype=np.intp), self.block_count)

    @cached_property
    def block_of(self) -> Index:
        """The number of each lane's block in this batch."""
        return np.repeat(np.arange(self.block_count, dtype=np.intp), self.threads)

    @cached_property
    def cluster_of(self) -> Index:
        """The number of each lane's cluster in this batch."""
        return self.block_of // self.cluster_size

    @cached_property
    def rank_of(self) -> Index:
        """The rank of each lane's block in the cluster."""
        return self.block_of % self.cluster_size

    @cached_property
    def first_address_of(self) -> npt.NDArray[np.int64]:
        """The address of the first byte of the shared memory of each lane's block."""
        return self.rank_of.astype(np.int64) << RANK_SHIFT

    @cached_property
    def warp_of(self) -> Index:
        """The number of each lane's warp in this batch."""
        return self.block_of * self.warps_per_block + self.thread_of // WARP

    @cached_property
    def lane_id(self) -> npt.NDArray[np.uint32]:
        """The ``%laneid`` of each lane."""
        return (self.thread_of % WARP).astype(np.uint32)

    @cached_property
    def slot_of(self) -> Index:
        """Each lane's place if every warp has 32 places, the last warp of a block too."""
        return self.warp_of * WARP + self.thread_of % WARP

    def of_one_block(self, lanes: Index) -> int:
        """Return how many of some lanes are in the first one's block, that one included."""
        block = self.block_of[lanes]
        return int(np.count_nonzero(block == block[0]))

    def thread_index(self, lane: int) -> Dim3:
        """Return a lane's ``threadIdx``."""
        t, (bx, by, _) = int(lane) % self.threads, self.block
        return t % bx, t // bx % by, t // (bx * by)

    def block_index(self, lane: int) -> Dim3:
        """Return a lane's ``blockIdx``."""
        b, (gx, gy, _) = int(self.blocks[int(lane) // self.threads]), self.grid
        return b % gx, b // gx % gy, b // (gx * gy)


class Lanes:
    """A set of lanes that stand at one instruction.

    Attributes
    ----------
    index : ndarray of intp or None
        The lanes in ascending order; None for every lane of the batch.
    whole : bool
        Whether no lane outside the set can still use its registers, so that whole register
        arrays may be computed and replaced.
    """

    __slots__ = ("_warps", "count", "geometry", "index", "whole")

    def __init__(self, geometry: Geometry, index: Index | None, whole: bool) -> None:
        self.geometry, self.index, self.whole = geometry, index, whole
        self.count = geometry.count if index is None else len(index)
        self._warps = geometry.warp_count if index is None else -1

    @property
    def warps(self) -> int:
        """The number of warps with a lane in the set."""
        if self._warps < 0:
            warp = self.geometry.warp_of[self.index]
            self._warps = int(np.count_nonzero(warp[1:] != warp[:-1])) + (len(warp) > 0)
        return self._warps

    @property
    def numbers(self) -> Index:
        """The lanes, spelled out."""
        return self.geometry.everybody if self.index is None else self.index

    def pick(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the entries of a per-lane table that belong to this set."""
        return table if self.index is None else table[self.index]

    def in_own_block(self, address: Any) -> Any:
        """Return the offsets of addresses in the shared memory of the lanes' own blocks.

        Those of other blocks become offsets outside of it.
        """
        if self.geometry.cluster_size == 1:
            return address
        return address - self.pick(self.geometry.first_address_of)

    def of_own_block(self, offset: int) -> Any:
        """Return the addresses that an offset in shared memory has in the lanes' own blocks."""
        if self.geometry.cluster_size == 1:
            return offset
        return offset + self.pick(self.geometry.first_address_of)

    def same(self, other: Lanes) -> bool:
        """Return whether both sets have the same lanes."""
        if self is other:
            return True
        if self.index is None or other.index is None:
            return self.index is other.index
        return np.array_equal(self.index, other.index)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Lanes:
        """Return the lanes of this set for which ``chosen`` holds; it has one element for each."""
        return Lanes(self.geometry, self.numbers[chosen], False)
