"""The tilings that the planner chooses from."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewise.gemm.families.hopper.tiling import Tiling

FILE = Path(__file__).parent / "tilings.json"
# The tilings for products that are not 16-byte aligned, whose tiles are realigned in shared memory.
UNALIGNED_KERNELS = tuple(
    (block_m, block_n, 1, 1, split, stream_k)
    for block_m, block_n in (
        (64, 16), (64, 32), (64, 64), (64, 128), (64, 192), (128, 64), (128, 128),
    )
    for split, stream_k in ((1, False), (1, True), (2, False))
)  # fmt: skip


class Kind(NamedTuple):
    """The properties of the problem that a kernel computes that decide on the tilings for it.

    Attributes
    ----------
    a_k_major, b_k_major, d_row_major, a_unaligned, b_unaligned : bool
        The fields of :class:`tilewise.gemm.families.hopper.tiling.Problem`.
    swapped : bool
        Whether it is a product's problem with A and B swapped.
    pairs, interleaved : bool
        The fields of :class:`tilewise.gemm.families.hopper.tiling.Problem`.
    """

    a_k_major: bool
    b_k_major: bool
    d_row_major: bool
    a_unaligned: bool = False
    b_unaligned: bool = False
    swapped: bool = False
    pairs: bool = False
    interleaved: bool = False

    @property
    def layout(self) -> str:
        """The layout, as ``"NT"``, of the product with a row-major D that the kernel computes."""
        n, t = self.a_k_major, self.b_k_major
        if not self.d_row_major:  # the kernel computes D's transpose
            n, t = t, n
        return ("N" if n else "T") + ("T" if t else "N")


def tilings(kind: Kind) -> list[Tiling]:
    """Return the tilings that the planner chooses from."""
    if kind.a_unaligned or kind.b_unaligned:
        more = kind.swapped, kind.a_unaligned, kind.b_unaligned
        return [Tiling(*sizes, *more) for sizes in UNALIGNED_KERNELS]
    swapped, is_row_major = kind.swapped, kind.d_row_major
    return [
        Tiling(m, n, cluster_m, cluster_n, split, bool(tail), swapped, ping_pong=bool(ping_pong))
        for m, n, cluster_m, cluster_n, split, tail, ping_pong, is_transposed in chosen(kind.layout)
        if is_transposed != is_row_major
    ]


@cache
def chosen(layout: str) -> list[tuple[int, ...]]:
    """Return the planner's tilings for a layout of aligned products with a row-major D.

    Each has BLOCK_M, BLOCK_N, CLUSTER_M, CLUSTER_N, SPLIT, whether the last wave is divided along
    k, PING_PONG, and whether D's transpose is computed, from A and B swapped.
    benchmarks/choose_kernels.py writes the file. The tiling of 64 x 64 without a cluster can
    compute every aligned product.
    """
    numbers = np.fromstring(" ".join(_record()[layout]), np.int64, sep=" ")
    return list(map(tuple, numbers.reshape(-1, 8).tolist()))


@cache
def _record() -> dict[str, list[str]]:
    """Return the file's tilings by layout, as text, which JSON reads faster than numbers."""
    found: dict[str, list[str]] = json.loads(FILE.read_bytes())["tilings"]
    return found
