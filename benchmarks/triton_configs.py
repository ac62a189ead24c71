"""List the configurations in which Triton's matmul is timed."""

from __future__ import annotations

import re
from typing import NamedTuple

LEAST = 16  # rows, columns and depth of a tile


class Config(NamedTuple):
    """One configuration of the kernel.

    Attributes
    ----------
    m, n, k : int
        Of the tile.
    stages, warps : int
    """

    m: int
    n: int
    k: int
    stages: int
    warps: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}, {self.stages} stages, {self.warps} warps"

    @staticmethod
    def of(text: str) -> Config:
        """Return the configuration that is printed so.

        Raises
        ------
        ValueError
            If the text is not as ``str`` of a configuration.
        """
        found = re.fullmatch(r"(\d+)x(\d+)x(\d+), (\d+) stages, (\d+) warps", text)
        if found is None:
            raise ValueError(f"{text!r} is no configuration, as '128x64x32, 4 stages, 4 warps' is")
        return Config(*map(int, found.groups()))

    def for_sizes(self, m: int, n: int, k: int) -> Config:
        """Return it with a tile that is not far larger than the product, as TorchInductor does."""
        tile = [
            max(LEAST, min(block, 1 << (size - 1).bit_length()))
            for block, size in zip(self[:3], (m, n, k), strict=True)
        ]
        warps = max(1, min(self.warps, tile[0] * tile[1] // 256))
        return Config(tile[0], tile[1], tile[2], self.stages, warps)


# Those of Triton's tutorial of matrix multiplication, and of TorchInductor's template of it.
CONFIGS = tuple(
    Config(*each)
    for each in (
        (128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2),
        (256, 64, 128, 4, 4), (64, 256, 128, 4, 4), (128, 128, 128, 4, 4), (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4), (128, 32, 64, 4, 4),
        (32, 32, 16, 1, 2), (32, 32, 128, 2, 4), (32, 64, 32, 5, 8), (64, 32, 32, 5, 8),
        (64, 32, 128, 5, 4), (64, 64, 16, 2, 4), (64, 64, 32, 2, 4), (64, 64, 64, 3, 8),
        (64, 64, 128, 5, 4), (64, 128, 32, 3, 4), (64, 128, 32, 4, 8), (64, 128, 64, 3, 4),
        (64, 128, 128, 4, 4), (128, 64, 32, 3, 4), (128, 64, 32, 4, 8), (128, 128, 32, 2, 8),
        (128, 128, 32, 3, 4), (128, 128, 64, 3, 4), (128, 128, 64, 5, 8), (128, 128, 128, 4, 8),
        (128, 256, 64, 4, 8), (128, 128, 64, 3, 8), (128, 128, 64, 4, 8), (128, 128, 64, 5, 4),
        (256, 128, 64, 4, 8), (256, 128, 64, 3, 8), (128, 256, 32, 3, 8), (256, 128, 32, 3, 8),
        (128, 256, 32, 4, 8), (256, 128, 32, 4, 8), (256, 64, 32, 4, 4),
    )
)  # fmt: skip
