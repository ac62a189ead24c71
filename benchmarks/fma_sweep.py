"""The sweep behind the tiles for float32 and float64: every order of the multiply-adds.

    python benchmarks/fma_sweep.py [--kernel tuned] [--dtype float32] [--size 4096] [--json FILE]

For each of the sizes below, the kernel without tensor cores, matmul's or the ladder's, is compiled
with every order in which a thread can go through its elements, by rectangles, with and without
reading ahead, at two levels of ptxas's optimization. Each variant's product is checked, the first
by a bound and the others by its bits, and timed beside the vendor's, m = n = k. Prints the best of
each size; the JSON has all.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product as combinations
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.progress import Progress

from tilewise.bench.exact import Exact
from tilewise.bench.record import find_gpu
from tilewise.bench.timing import Work, seconds_of
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.readings import readings
from tilewise.gemm.families.simt.tiles import Tiles
from tilewise.gemm.product import REAL, A, B, D, Operand, Product
from tilewise.gemm.steps import Plan, Step, execute
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import rung
from tilewise.launch import Launch, Place
from tilewise.provenance import write

LAUNCHES = 3
RECTANGLES = (1, 2, 4, 8)
LEVELS = (1, 3)
AHEAD = (False, True)
ANY = (1, 1, 0, 0)  # an order, to be swept

GEMM, RUNG = "gemm_simt", "tuned"

# A and B as they lie, N by rows and T by columns, and the sizes.
Sizes = dict[str, tuple[tuple[str, Tiles], ...]]
GEMM_SIZES: Sizes = {
    "float32": (
        ("NN", Tiles(64, 128, 16, 8, 8, 2, 3, False, ANY, 4)),
        ("NN", Tiles(128, 256, 8, 8, 16, 16, 3, False, ANY, 1)),
        ("NN", Tiles(64, 128, 16, 8, 8, 2, 3, False, ANY, 4, bulk=True)),
        ("NN", Tiles(64, 256, 16, 8, 16, 2, 3, False, ANY, 2, bulk=True)),
        ("NN", Tiles(128, 256, 16, 8, 16, 2, 3, False, ANY, 1, bulk=True)),
        ("TN", Tiles(64, 128, 16, 8, 8, 4, 3, False, ANY, 4, bulk=True)),
        ("TN", Tiles(128, 128, 16, 8, 8, 4, 3, False, ANY, 2, bulk=True)),
        ("TN", Tiles(128, 128, 16, 16, 8, 8, 3, False, ANY, 2, bulk=True)),
        ("TN", Tiles(128, 256, 16, 8, 16, 16, 3, False, ANY, 1, bulk=True)),
        ("NN", Tiles(96, 192, 8, 12, 12, 8, 3, False, ANY, 2)),
        ("NN", Tiles(192, 192, 8, 12, 12, 8, 3, False, ANY, 1)),
        ("NN", Tiles(96, 192, 16, 12, 12, 2, 3, False, ANY, 2, bulk=True)),
        ("NN", Tiles(192, 192, 16, 12, 12, 2, 3, False, ANY, 1, bulk=True)),
        ("TN", Tiles(192, 192, 16, 12, 12, 8, 3, False, ANY, 1, bulk=True)),
    ),
    "float64": (
        ("NN", Tiles(64, 128, 8, 8, 8, 8, 3, False, ANY, 2)),
        ("NN", Tiles(64, 64, 8, 8, 8, 8, 4, False, ANY, 4)),
        ("NN", Tiles(64, 64, 16, 8, 8, 8, 2, False, ANY, 4)),
        ("NN", Tiles(64, 128, 8, 8, 8, 2, 3, False, ANY, 2, bulk=True)),
        ("TN", Tiles(64, 128, 8, 8, 8, 8, 3, False, ANY, 2, bulk=True)),
        ("TN", Tiles(64, 64, 16, 8, 8, 8, 3, False, ANY, 4, bulk=True)),
    ),
}
RUNG_SIZES: Sizes = {
    "float32": (
        ("NN", Tiles(64, 128, 16, 8, 8, 2, 3, False, ANY, 4)),
        ("NN", Tiles(64, 256, 8, 8, 16, 8, 3, False, ANY, 2)),
        ("NN", Tiles(64, 256, 16, 8, 16, 8, 2, False, ANY, 2)),
        ("NN", Tiles(128, 128, 8, 8, 8, 4, 3, False, ANY, 2)),
        ("NN", Tiles(128, 128, 16, 8, 16, 8, 2, False, ANY, 2)),
        ("NN", Tiles(128, 256, 8, 8, 16, 16, 3, False, ANY, 1)),
        ("NN", Tiles(96, 192, 8, 12, 12, 8, 3, False, ANY, 2)),
        ("NN", Tiles(192, 192, 8, 12, 12, 8, 3, False, ANY, 1)),
        ("NN", Tiles(96, 128, 16, 12, 8, 4, 2, False, ANY, 2)),
    ),
    "float64": (
        ("NN", Tiles(64, 128, 8, 8, 8, 8, 3, False, ANY, 2)),
        ("NN", Tiles(64, 64, 8, 8, 8, 8, 4, False, ANY, 4)),
        ("NN", Tiles(64, 64, 16, 8, 8, 8, 2, False, ANY, 4)),
    ),
}
SIZES = {GEMM: GEMM_SIZES, RUNG: RUNG_SIZES}


def variants(tiles: Tiles) -> Iterator[Tiles]:
    """Every order, with and without reading ahead, at each level."""
    orders = list(combinations(RECTANGLES, RECTANGLES, (0, 1), (0, 1)))
    for level, ahead, order in combinations(LEVELS, AHEAD, orders):
        if not (tiles.thread_m % order[0] or tiles.thread_n % order[1]):
            yield replace(tiles, level=level, ahead=ahead, order=order)


def plan_of(kernel: str, tiles: Tiles, layout: str, n: int, dtype: str, gpu: Gpu) -> Plan:
    """A product of square matrices with these tiles, k undivided."""
    if kernel == RUNG:
        tuned = Kernel(rung(RUNG).path, RUNG, {"real": REAL[dtype], **tiles.macros}, tiles.options)
        grid = (-(-n // tiles.block_n), -(-n // tiles.block_m), 1)
        args = (n, n, n, 1.0, Place(A), n, Place(B), n, 0.0, Place(D), n)
        return Plan((Step(tuned, Launch(grid, (tiles.threads, 1, 1), args)),), 0, str(tiles), "")
    a, b = (Operand(n, 1) if each == "N" else Operand(1, n) for each in layout)
    product = Product(n, n, n, 1, dtype, dtype, 1.0, 0.0, a, b, None, Operand(n, 1))
    reading = readings(product)[0]
    assert reading.fits(tiles), (layout, tiles)
    return fma.planned(fma.Choice(0.0, reading, tiles, 1), gpu.multiprocessors, True, False)


def seconds(work: Work) -> float:
    """Of one launch, the median, after one that is not counted."""
    seconds_of(work)
    return median(seconds_of(work) for _ in range(LAUNCHES))


def measure(kernel: str, dtype: str, n: int, gpu: Gpu, progress: Progress) -> list[dict[str, Any]]:
    """A row a variant, and those of the vendor's product."""
    real = getattr(torch, dtype)
    a, b = (torch.randn(n, n, device="cuda", dtype=real) for _ in range(2))
    turned, d = a.t().contiguous(), torch.empty(n, n, device="cuda", dtype=real)
    exact = Exact(a, b)
    every = [
        (layout, each, plan_of(kernel, each, layout, n, dtype, gpu))
        for layout, tiles in SIZES[kernel][dtype]
        for each in variants(tiles)
    ]
    task = progress.add_task(f"compiling, {dtype}", total=len(every))
    kernels = [plan.steps[0].kernel for _, _, plan in every]
    compile_ahead(kernels, gpu.arch, lambda: progress.advance(task))
    task = progress.add_task(f"timing, {dtype}", total=len(every))
    stream = torch.cuda.current_stream().cuda_stream
    rows: list[dict[str, Any]] = []
    right: Any = None

    def vendor() -> None:
        taken = seconds(lambda: torch.mm(a, b, out=d))
        rows.append({"kernel": "vendor", "dtype": dtype, "n": n, "seconds": taken})

    vendor()
    for layout, tiles, plan in every:
        progress.advance(task)
        row: dict[str, Any] = {
            "kernel": str(tiles),
            "dtype": dtype,
            "n": n,
            "layout": layout,
            "tiles": tiles.to_dict(),
        }
        rows.append(row)
        try:
            resources = plan.steps[0].kernel.compile(gpu.arch).resources
            row |= {"registers": resources.registers, "spill_bytes": resources.spill_bytes}
            first = turned if layout[0] == "T" else a
            addresses = (first.data_ptr(), b.data_ptr(), 0, d.data_ptr(), 0)
            d.fill_(math.nan)
            execute(plan, gpu, stream, addresses)
            if right is None and exact.distance(d).correct:
                right = d.clone()
            # Whatever the order, an element's products are added along k.
            row["correct"] = right is not None and torch.equal(d, right)
            row["seconds"] = seconds(partial(execute, plan, gpu, stream, addresses))
        except (TilewiseError, ValueError) as failure:  # more registers than there are, say
            row["failure"] = str(failure).splitlines()[0]
    vendor()
    return rows


def compact(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same with each size once. Its variants are lists, each the text of one, for a line of its
    own in the file; ``variant`` names what is in them."""
    varied = ("level", "ahead", "order")
    sizes: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "tiles" not in row:
            continue
        own = {key: value for key, value in row["tiles"].items() if key not in varied}
        head = {"dtype": row["dtype"], "n": row["n"], "layout": row["layout"], "tiles": own}
        size = sizes.setdefault(json.dumps(head), {**head, "variants": []})
        found = [row["tiles"][key] for key in varied]
        found += [row.get(key) for key in ("registers", "spill_bytes", "correct", "seconds")]
        size["variants"].append(json.dumps(found))
    return {
        "vendor": [row for row in rows if row["kernel"] == "vendor"],
        "variant": [*varied, "registers", "spill_bytes", "correct", "seconds"],
        "sizes": list(sizes.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernel", choices=tuple(SIZES), default=GEMM)
    parser.add_argument("--dtype", choices=tuple(GEMM_SIZES), action="append")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("highest")  # no TF32
    gpu = find_gpu()
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        for dtype in options.dtype or SIZES[options.kernel]:
            rows += measure(options.kernel, dtype, options.size, gpu, progress)
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "seconds" not in row:
            continue
        name = " ".join((row["dtype"], row.get("layout", "NN"), row["kernel"]))
        if name not in best or row["seconds"] < best[name]["seconds"]:
            best[name] = row
    for name, row in sorted(best.items(), key=lambda item: item[1]["seconds"]):
        rate = 2e-12 * row["n"] ** 3 / row["seconds"]
        print(f"{name}: {1e3 * row['seconds']:.3f} ms, {rate:.2f} TFLOP/s {row.get('tiles', '')}")
    if options.json:
        write(options.json, compact(rows))
    return 0 if all(row.get("correct", True) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
