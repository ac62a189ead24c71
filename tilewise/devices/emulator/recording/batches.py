"""Choose which blocks of a launch run together if some of them are recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilewise.devices.emulator.threads.lanes import Geometry
from tilewise.launch import Launch
from tilewise.places import Dim3


def batches(
    launch: Launch, cluster: Dim3, blocks: Sequence[Dim3]
) -> Iterator[tuple[Geometry, dict[int, Dim3]]]:
    """The batches in which blocks run that are recorded, and in each the rows of those blocks.

    A block runs alone, or with the others of its cluster; in a cooperative launch with all.
    """
    grid, block = launch.grid, launch.block
    numbers = {x + grid[0] * (y + grid[1] * z): (x, y, z) for x, y, z in blocks}
    count = math.prod(grid) // math.prod(cluster)
    clusters = tuple(extent // size for extent, size in zip(grid, cluster, strict=True))
    of = {
        each: sum(
            i // size * step
            for i, size, step in zip(
                each, cluster, (1, clusters[0], clusters[0] * clusters[1]), strict=True
            )
        )
        for each in blocks
    }  # fmt: skip
    spans = [(0, count)] if launch.cooperative else [(x, 1) for x in dict.fromkeys(of.values())]
    for first, size in spans:
        geometry = Geometry(grid, block, first, size, cluster)
        rows = enumerate(geometry.blocks.tolist())
        yield geometry, {row: numbers[number] for row, number in rows if number in numbers}
