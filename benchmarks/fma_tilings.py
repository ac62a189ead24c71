"""How long a phase of each of the tiles of ``tilewise.fma_tiles`` takes, on a Hopper GPU.

    python benchmarks/fma_tilings.py [--json FILE]

The planner chooses tiles by these: tilewise/fma.json is what this wrote on an H200. A phase is
measured of 1, 2, ... blocks of each multiprocessor at once, as many as it holds in three waves.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import torch

from tilewise import fma
from tilewise.ahead import compile_ahead
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.fma_tiles import OFF, START, TILES, Tiles
from tilewise.product import Operand, Product, offset
from tilewise.provenance import write
from tilewise.steps import Plan, execute

K, WAVES = 2048, 3
ROUNDS, ROUND_SECONDS = 3, 0.01


def plan_of(tiles: Tiles, dtype: str, blocks: int, off: int = 0) -> tuple[Plan, Product]:
    """A product of that many blocks, in 11 rows where they divide into them.

    The first ``off`` of A and B have an element between their rows, and are off 16 bytes.
    """
    gap_a, gap_b = int(off > 0), int(off > 1)
    down = 11 if blocks % 11 == 0 else 1
    m, n = tiles.block_m * down, tiles.block_n * blocks // down
    # Some take A only where it is stored transposed.
    for a in (Operand(K + gap_a, 1), Operand(1, m)):
        product = Product(
            m, n, K, 1, dtype, dtype, 1.0, 0.0, a, Operand(n + gap_b, 1), None, Operand(n, 1),
        )  # fmt: skip
        reading = fma.readings(product)[0]
        if reading.fits(tiles):
            break
    choice = fma.Choice(0.0, reading, tiles, 1)
    return fma.planned(choice, get_gpu().multiprocessors, True, False), product


def get_gpu() -> Gpu:
    gpu = get_device("gpu")
    assert isinstance(gpu, Gpu)
    return gpu


def seconds(plan: Plan, product: Product) -> float:
    """Of one launch, the median of rounds so long that the clock settles."""
    gpu, dtype = get_gpu(), getattr(torch, product.dtype)
    a = torch.randn(product.m * (K + 1), device="cuda", dtype=dtype)
    b = torch.randn(product.b.row_stride * K, device="cuda", dtype=dtype)
    d = torch.empty(product.m * product.n, device="cuda", dtype=dtype)
    assert not any(offset(x.data_ptr()) for x in (a, b, d))
    addresses = (a.data_ptr(), b.data_ptr(), 0, d.data_ptr(), 0)
    stream = torch.cuda.current_stream().cuda_stream

    def of(launches: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(launches):
            execute(plan, gpu, stream, addresses)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / launches

    of(1)
    launches = max(1, round(ROUND_SECONDS / of(1)))
    return float(median(of(launches) for _ in range(ROUNDS)))


def measure(tiles: Tiles, dtype: str, off: int = 0) -> list[float]:
    """Seconds of a phase, of each number of blocks at once."""
    multiprocessors, phases = get_gpu().multiprocessors, K // tiles.block_k
    found = []
    for residents in range(1, tiles.residents + 1):
        waves = WAVES if residents == tiles.residents else 1
        plan, product = plan_of(tiles, dtype, waves * residents * multiprocessors, off)
        found.append((seconds(plan, product) - START) / (phases * waves))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    every = [
        (dtype, tiles, off)
        for dtype, many in TILES.items()
        for tiles in many
        for off in range(1 if tiles.bulk else len(OFF))
    ]
    plans = [plan_of(tiles, dtype, 1, off)[0] for dtype, tiles, off in every]
    compile_ahead([step.kernel for plan in plans for step in plan.steps], get_gpu().arch)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in OFF}
    for dtype, tiles, off in every:
        phases = found[OFF[off]][f"{dtype} {tiles}"] = measure(tiles, dtype, off)
        work = 2e-12 * tiles.block_m * tiles.block_n * tiles.block_k * get_gpu().multiprocessors
        rates = ", ".join(f"{(i + 1) * work / x:.1f}" for i, x in enumerate(phases))
        print(f"{dtype} {tiles}{('', ', A off', ', both off')[off]}: {rates} TFLOP/s")
    if options.json:
        write(options.json, found)


if __name__ == "__main__":
    main()
