"""The ladder by itself over a range of sizes, for the figure of matmul."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewise.bench.products import error_share
from tilewise.devices.gpu import Gpu
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Geometry
from tilewise.ladder.rungs import RUNGS
from tilewise.launch import Launch

LONGEST = 2.0  # seconds of one launch; a rung goes no further
_LONG = 0.05  # seconds; a launch this long is timed well enough by itself


def climb(
    gpu: Gpu, sizes: Sequence[int], step: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Every rung in float32, at each size that it can do in less than two seconds.

    Parameters
    ----------
    gpu : Gpu
        PyTorch's current device.
    sizes : sequence of int
        Edges of square matrices, ascending.
    step : callable
        Called with the name of each rung before it runs.

    Returns
    -------
    list of dict
        A rung each: ``kernel``, ``number``, and ``points``, each with ``n``, ``seconds``,
        ``tflops`` and ``correct``.
    """
    found = []
    for rung in RUNGS:
        step(rung.name)
        points: list[dict[str, Any]] = []
        for n in sizes:
            if points and points[-1]["seconds"] * (n / points[-1]["n"]) ** 3 > LONGEST:
                break
            try:
                tile = rung.tile_for(n, n, n)
                launch_at = rung.geometry(n, n, tile)
            except ValueError:  # one block holds no such C
                break
            points.append(_point(gpu, rung.kernel("float32", tile), n, launch_at))
        found.append({"kernel": rung.name, "number": rung.number, "points": points})
    return found


def _point(gpu: Gpu, kernel: Kernel, n: int, geometry: Geometry) -> dict[str, Any]:
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn(n, n, device="cuda", generator=generator) for _ in range(2))
    c = torch.full((n, n), torch.nan, device="cuda")
    grid, block = geometry
    compiled = kernel.compile(gpu.arch)
    launch = Launch(grid, block, (n, n, n, 1.0, a, n, b, n, 0.0, c, n))
    seconds = gpu.launch(compiled, launch).seconds
    correct = error_share(a, b, c) <= 1
    if seconds < _LONG:
        seconds = gpu.measure(compiled, launch, rounds=3, minimum_seconds=_LONG / 3)
    return {"n": n, "seconds": seconds, "tflops": 2e-12 * n**3 / seconds, "correct": correct}
