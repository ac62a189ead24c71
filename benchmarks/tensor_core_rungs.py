"""Checks the rungs of 16-bit matrices on a GPU, and times them over tiles of ``multistage``.

    python benchmarks/tensor_core_rungs.py [--sizes 4096,8192] [--rounds 5] [--json FILE]

Each rung and dtype is checked on sizes and leading dimensions that are odd, and on whole tiles.
Then every rung that the GPU can run, and multistage with each tiling of a sweep, are timed in turn
with PyTorch's product, in bfloat16, each after it was checked at that size. Exits with 1 if any
result is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from tilewise.bench.ceilings import tensor_core_flops
from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.record import find_gpu
from tilewise.bench.rungs import place
from tilewise.bench.suites import Shape, sets_to_rotate
from tilewise.bench.timing import in_turn
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Macros, Sizes, by_tiles, ring_bytes
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import Rung, rung, rungs_of
from tilewise.launch import Launch
from tilewise.places import Place
from tilewise.precision import HALVES
from tilewise.provenance import write

DTYPE = "bfloat16"
CHECKED = (
    (1, 1, 1), (129, 257, 65), (200, 136, 72), (333, 77, 1001), (512, 768, 256), (64, 64, 0),
)  # fmt: skip
# BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, STAGES, BLOCKS.
SWEEP = (
    (128, 128, 32, 64, 64, 3, 2),
    (128, 128, 32, 64, 64, 4, 2),
    (128, 128, 32, 64, 64, 5, 2),
    (128, 128, 64, 64, 64, 3, 2),
    (128, 128, 32, 64, 32, 4, 2),
    (128, 256, 32, 64, 64, 3, 1),
    (128, 256, 32, 64, 64, 4, 1),
    (128, 256, 64, 64, 64, 3, 1),
    (128, 256, 64, 64, 64, 4, 1),
    (256, 128, 32, 64, 64, 4, 1),
    (256, 128, 64, 64, 64, 3, 1),
    (256, 128, 64, 64, 64, 4, 1),
    (64, 256, 32, 64, 64, 4, 2),
    (64, 64, 64, 32, 32, 4, 3),
)
FIELDS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "WARP_M", "WARP_N", "STAGES", "BLOCKS")

Call = Callable[[Operands], None]


def checked(gpu: Gpu) -> Iterator[str]:
    """What is wrong with the rungs' results."""
    rng = np.random.default_rng(0)
    for each in rungs_of(DTYPE):
        if not each.runs_on(gpu.arch):
            print(f"{each.name}: not on {gpu.arch}")
            continue
        for dtype in HALVES:
            for m, n, k in CHECKED:
                a, b, c = random_problem(m, n, k, dtype, 1)
                for pad in (0, 8, int(rng.integers(1, 8))):
                    wide = [np.pad(x, ((0, 0), (0, pad)))[:, : x.shape[1]] for x in (a, b, c)]
                    for alpha, beta in ((1.0, 0.0), (0.5, -2.0)):
                        what = f"{each.name} {m} x {n} x {k} {dtype}, {pad} between rows"
                        try:
                            old = wide[2] if beta else None
                            found = run(
                                each, wide[0], wide[1], old, alpha=alpha, beta=beta, device=gpu,
                                repeats=0,
                            )  # fmt: skip
                        except TilewiseError as error:
                            yield f"{what}: {error}"
                            continue
                        if not found.correct:
                            yield f"{what}, beta {beta}: {found.verdict.lines()[0]}"


def call_of(
    gpu: Gpu, each: Rung, n: int, macros: Macros | None = None
) -> tuple[Call, dict[str, Any]]:
    """What puts a rung's product of size n on the stream, and what it takes."""
    tile = each.tile_for(n, n, n, DTYPE)
    kernel: Kernel = each.kernel(DTYPE, tile)
    if macros is None:
        grid, block = each.geometry(n, n, tile, DTYPE)
        shared = each.shared(tile, DTYPE)
    else:
        kernel = kernel.with_macros(macros)
        grid, block = by_tiles(lambda tile, dtype: macros)(n, n, 1, DTYPE)
        shared = ring_bytes(macros)
    trailing = each.trailing(Sizes(n, n, n, n, n, n), tile, DTYPE)
    args = (n, n, n, 1.0, Place(0), n, Place(1), n, 0.0, Place(2), n, *trailing)
    compiled = kernel.compile(gpu.arch, lines=False)
    prepared = gpu.prepare(compiled, Launch(grid, block, args, shared))
    stream = int(torch.cuda.current_stream().cuda_stream)

    def call(x: Operands) -> None:
        gpu.enqueue(prepared, stream, [y.data_ptr() for y in (x.a, x.b, x.d)])

    return call, {**compiled.resources.to_dict(), "dynamic_bytes": shared, "threads": block[0]}


def contenders(gpu: Gpu, n: int) -> Iterator[tuple[str, Call, dict[str, Any]]]:
    """The rungs, and multistage with each tiling of the sweep."""
    for each in rungs_of(DTYPE):
        if each.runs_on(gpu.arch):
            yield each.name, *call_of(gpu, each, n)
    for values in SWEEP:
        macros = dict(zip(FIELDS, values, strict=True))
        name = "multistage {}x{}x{} of {}x{}, {} stages, {} blocks".format(*values)
        try:
            yield name, *call_of(gpu, rung("multistage"), n, macros)
        except (TilewiseError, ValueError) as error:
            print(f"{name}: {error}")


def timed(gpu: Gpu, n: int, rounds: int, seconds: float) -> Iterator[dict[str, Any]]:
    """A row a contender, the fastest first."""
    generator = torch.Generator("cuda").manual_seed(n)
    shape = Shape(n, n, n)
    sets = [operands(shape, DTYPE, generator)]
    sets += [
        operands(shape, DTYPE, generator)
        for _ in range(sets_to_rotate(3 * n * n * 2, gpu.l2_bytes) - 1)
    ]
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[str, Call] = {"vendor": Operands.torch}
    for name, call, taken in contenders(gpu, n):
        first = sets[0]
        first.d.fill_(float("nan"))
        call(first)
        share = error_share(first.a, first.b, first.d)
        rows[name] = {"kernel": name, "n": n, "dtype": DTYPE, "error_share": share, **taken}
        if share <= 1:
            calls[name] = call
    Operands.torch(sets[0])
    works = {name: [lambda call=call, x=x: call(x) for x in sets] for name, call in calls.items()}
    found = in_turn(works, rounds, seconds)
    vendor = median(found.seconds["vendor"])
    rows["vendor"] = {"kernel": "vendor", "n": n, "dtype": DTYPE, "error_share": 0.0}
    for name in calls:
        once = median(found.seconds[name])
        rows[name] |= {
            "seconds": once, "seconds_of_rounds": found.seconds[name],
            "tflops": 2e-12 * n**3 / once, "ratio": vendor / once,
        }  # fmt: skip
    yield from sorted(rows.values(), key=lambda row: -row.get("tflops", 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="4096,8192", metavar="N,N")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each, a size and round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    options = parser.parse_args()
    gpu = find_gpu()
    start = time.perf_counter()
    wrong = list(checked(gpu))
    print("\n".join(wrong) or "every result on odd sizes is right", flush=True)
    rows: list[dict[str, Any]] = []
    with place(gpu):
        ceiling = tensor_core_flops(gpu, DTYPE, 0.5)
        for n in map(int, options.sizes.split(",")):
            for row in timed(gpu, n, options.rounds, options.seconds):
                rows.append(row)
                said = "WRONG" if row["error_share"] > 1 else f"{row['tflops']:7.1f} TFLOP/s"
                share = (
                    f", {1e12 * row['tflops'] / ceiling:.3f} of the ceiling"
                    if (ceiling and "tflops" in row)
                    else ""
                )
                ratio = f", {row['ratio']:.3f} of the vendor's" if "ratio" in row else ""
                taken = f", {row['registers']} registers" if "registers" in row else ""
                print(f"{n:6,} {said}{share}{ratio}{taken}  {row['kernel']}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        write(options.json, {"wrong": wrong, "ceiling": ceiling, "rows": rows})
    sys.exit(bool(wrong) or any(row["error_share"] > 1 for row in rows))


if __name__ == "__main__":
    main()
