"""How long a phase of each of the tiles for float32 and float64 takes, on a Hopper GPU.

    python benchmarks/fma_tilings.py [--json FILE]

The planner chooses tiles by these: tilewise/fma.json is what this wrote on an H200. A phase is
measured of 1, 2, ... blocks of each multiprocessor at once, as many as it holds in three waves.
A kernel's tiles are timed in turn, so that all have one clock. Where nothing is off 16 bytes, each
is also timed behind a while of its own, and has the clock that the power limit leaves it then.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from itertools import product as combinations
from operator import attrgetter
from pathlib import Path
from statistics import median

import torch
from rich.progress import Progress

from tilewise.bench.timing import seconds_of
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.readings import readings
from tilewise.gemm.families.simt.tiles import EVERY, AnyTiles
from tilewise.gemm.families.simt.timing import ALONE, START, kind
from tilewise.gemm.product import Operand, Product, offset
from tilewise.gemm.steps import Plan, execute
from tilewise.provenance import write

K, WAVES = 2048, 3
ROUNDS, ROUND_SECONDS = 5, 0.005
ALONE_K, ALONE_WAVES = 8192, 10
WARM_SECONDS, ALONE_SECONDS = 0.1, 0.05

# How A and B lie, and which are off 16 bytes.
KINDS = tuple(combinations((True, False), (True, False), (False, True), (False, True)))


def plan_of(
    tiles: AnyTiles, dtype: str, blocks: int, lying: tuple[bool, bool, bool, bool], k: int = K
) -> tuple[Plan, Product] | None:
    """A product of that many blocks, in a rectangle as near to a square as they divide into.

    None if these tiles can't take A and B so. What is to be off 16 bytes has an element between its
    rows.
    """
    a_along_k, b_along_k, a_is_off, b_is_off = lying
    down = max(x for x in range(1, math.isqrt(blocks) + 1) if blocks % x == 0)
    m, n = tiles.block_m * down, tiles.block_n * blocks // down
    a = Operand(k + a_is_off, 1) if a_along_k else Operand(1, m + a_is_off)
    b = Operand(1, k + b_is_off) if b_along_k else Operand(n + b_is_off, 1)
    product = Product(m, n, k, 1, dtype, dtype, 1.0, 0.0, a, b, None, Operand(n, 1))
    reading = readings(product)[0]
    assert (reading.a.along_k, reading.b.along_k) == (a_along_k, b_along_k)
    if not reading.fits(tiles):
        return None
    choice = fma.Choice(0.0, reading, tiles, 1)
    return fma.planned(choice, get_gpu().multiprocessors, True, False), product


def get_gpu() -> Gpu:
    gpu = get_device("gpu")
    assert isinstance(gpu, Gpu)
    return gpu


def works_of(planned: list[tuple[Plan, Product]], dtype: str) -> list[Callable[[], None]]:
    """What launches each."""
    gpu = get_gpu()
    kind = getattr(torch, dtype)
    of_a, of_b = (
        max((count(x) + 1) * (x.k + 1) for _, x in planned)
        for count in (attrgetter("m"), attrgetter("n"))
    )
    a, b = (torch.randn(elements, device="cuda", dtype=kind) for elements in (of_a, of_b))
    d = torch.empty(max(x.m * x.n for _, x in planned), device="cuda", dtype=kind)
    assert not any(offset(x.data_ptr()) for x in (a, b, d))
    stream = torch.cuda.current_stream().cuda_stream

    def work(plan: Plan) -> None:
        execute(plan, gpu, stream, (a.data_ptr(), b.data_ptr(), 0, d.data_ptr(), 0))

    return [partial(work, plan) for plan, _ in planned]


def in_turn(planned: list[tuple[Plan, Product]], dtype: str) -> list[float]:
    """Seconds of one launch of each: the medians of rounds, behind one that nobody counts."""
    works = works_of(planned, dtype)
    times = []
    for work in works:
        work()
        times.append(max(1, round(ROUND_SECONDS / seconds_of(work))))
    rounds = [
        [seconds_of(*each) for each in zip(works, times, strict=True)] for _ in range(1 + ROUNDS)
    ]
    return [float(median(each)) for each in zip(*rounds[1:], strict=True)]


def alone(
    many: list[AnyTiles], dtype: str, lying: tuple[bool, bool, bool, bool]
) -> dict[AnyTiles, float]:
    """Seconds of a phase of each, of as many blocks as there may be, behind a while of its own."""
    found = {}
    for tiles in many:
        blocks = ALONE_WAVES * tiles.residents * get_gpu().multiprocessors
        planned = plan_of(tiles, dtype, blocks, lying, ALONE_K)
        assert planned
        (work,) = works_of([planned], dtype)
        work()
        once = seconds_of(work)
        seconds_of(work, math.ceil(WARM_SECONDS / once))
        seconds = seconds_of(work, math.ceil(ALONE_SECONDS / once))
        found[tiles] = (seconds - START) / (ALONE_K // tiles.block_k * ALONE_WAVES)
    return found


def measure(
    many: list[AnyTiles], dtype: str, lying: tuple[bool, bool, bool, bool]
) -> dict[AnyTiles, list[float]]:
    """Seconds of a phase of each, of each number of blocks at once, all in turn.

    So they share what clock the power limit leaves them.
    """
    multiprocessors = get_gpu().multiprocessors
    asked, planned = [], []
    for tiles in many:
        for residents in range(1, tiles.residents + 1):
            waves = WAVES if residents == tiles.residents else 1
            each = plan_of(tiles, dtype, waves * residents * multiprocessors, lying)
            assert each
            asked.append((tiles, K // tiles.block_k * waves))
            planned.append(each)
    found: dict[AnyTiles, list[float]] = {tiles: [] for tiles in many}
    for (tiles, phases), seconds in zip(asked, in_turn(planned, dtype), strict=True):
        found[tiles].append((seconds - START) / phases)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    plans = {
        (dtype, tiles, lying): planned[0]
        for dtype, many in EVERY.items()
        for tiles in many
        for lying in KINDS
        if not (tiles.bulk and any(lying[2:])) and (planned := plan_of(tiles, dtype, 1, lying))
    }
    groups: dict[tuple[str, tuple[bool, bool, bool, bool], str], list[AnyTiles]] = {}
    for dtype, tiles, lying in plans:
        groups.setdefault((dtype, lying, tiles.words), []).append(tiles)
    found: dict[str, dict[str, str]] = {kind(*lying): {} for lying in KINDS}
    found |= {kind(*lying) + ALONE: {} for lying in KINDS if not any(lying[2:])}
    with Progress() as progress:
        task = progress.add_task("compiling", total=len(plans))
        kernels = [step.kernel for plan in plans.values() for step in plan.steps]
        compile_ahead(kernels, get_gpu().arch, lambda: progress.advance(task))
        task = progress.add_task("timing", total=len(plans))

        def rate(tiles: AnyTiles, blocks: int, seconds: float) -> str:
            flops = 2 * tiles.block_m * tiles.block_n * tiles.block_k
            return f"{1e-12 * blocks * flops * get_gpu().multiprocessors / seconds:.1f}"

        for (dtype, lying, _), many in groups.items():
            of_each = alone(many, dtype, lying) if not any(lying[2:]) else {}
            for tiles, phases in measure(many, dtype, lying).items():
                name = f"{dtype} {tiles}"
                found[kind(*lying)][name] = " ".join(f"{1e9 * x:.1f}" for x in phases)
                rates = ", ".join(rate(tiles, i + 1, x) for i, x in enumerate(phases))
                if tiles in of_each:
                    found[kind(*lying) + ALONE][name] = f"{1e9 * of_each[tiles]:.1f}"
                    rates += f"; alone {rate(tiles, tiles.residents, of_each[tiles])}"
                progress.advance(task)
                progress.console.print(f"{name}, {kind(*lying)}: {rates} TFLOP/s")
    if options.json:
        write(options.json, {"unit": "nanoseconds", **found})


if __name__ == "__main__":
    main()
