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
from tilewise.fma_tiles import START, TILES, Tiles
from tilewise.product import Operand, Product, offset
from tilewise.provenance import write
from tilewise.steps import Plan, execute

K, ROUNDS, WAVES = 2048, 7, 3


def plan_of(tiles: Tiles, dtype: str, blocks: int) -> tuple[Plan, Product]:
    """A product of that many blocks, in 11 rows where they divide into them."""
    down = 11 if blocks % 11 == 0 else 1
    m, n = tiles.block_m * down, tiles.block_n * blocks // down
    product = Product(
        m, n, K, 1, dtype, dtype, 1.0, 0.0, Operand(K, 1), Operand(n, 1), None,
        Operand(n, 1),
    )  # fmt: skip
    reading = fma.readings(product)[0]
    choice = fma.Choice(0.0, reading, tiles, 1)
    return fma.planned(choice, get_gpu().multiprocessors, True, False), product


def get_gpu() -> Gpu:
    gpu = get_device("gpu")
    assert isinstance(gpu, Gpu)
    return gpu


def seconds(plan: Plan, product: Product) -> float:
    """Of one launch, the median."""
    gpu, dtype = get_gpu(), getattr(torch, product.dtype)
    a = torch.randn(product.m * K, device="cuda", dtype=dtype)
    b = torch.randn(product.b.row_stride * K, device="cuda", dtype=dtype)
    d = torch.empty(product.m * product.n, device="cuda", dtype=dtype)
    assert not any(offset(x.data_ptr()) for x in (a, b, d))
    addresses = (a.data_ptr(), b.data_ptr(), 0, d.data_ptr(), 0)
    stream = torch.cuda.current_stream().cuda_stream
    found = []
    for _ in range(3 + ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        execute(plan, gpu, stream, addresses)
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e-3)
    return float(median(found[3:]))


def measure(tiles: Tiles, dtype: str) -> list[float]:
    """Seconds of a phase, of each number of blocks at once."""
    multiprocessors, phases = get_gpu().multiprocessors, K // tiles.block_k
    found = []
    for residents in range(1, tiles.residents + 1):
        waves = WAVES if residents == tiles.residents else 1
        plan, product = plan_of(tiles, dtype, waves * residents * multiprocessors)
        found.append((seconds(plan, product) - START) / (phases * waves))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    every = [(dtype, tiles) for dtype, many in TILES.items() for tiles in many]
    plans = [plan_of(tiles, dtype, 1)[0] for dtype, tiles in every]
    compile_ahead([step.kernel for plan in plans for step in plan.steps], get_gpu().arch)
    found = {}
    for dtype, tiles in every:
        phases = found[f"{dtype} {tiles}"] = measure(tiles, dtype)
        work = 2e-12 * tiles.block_m * tiles.block_n * tiles.block_k * get_gpu().multiprocessors
        rates = ", ".join(f"{(i + 1) * work / x:.1f}" for i, x in enumerate(phases))
        print(f"{dtype} {tiles}: {rates} TFLOP/s")
    if options.json:
        write(options.json, {"seconds": found})


if __name__ == "__main__":
    main()
