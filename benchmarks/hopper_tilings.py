"""Every tiling of the Hopper kernel that the model thinks of, measured, on a Hopper GPU.

    python benchmarks/hopper_tilings.py [MxNxK:LAYOUT ...] [--rounds N] [--seconds S] [--json FILE]

The model of :mod:`tilewise.tilings` is fitted to what this measures. Its regret is the time of the
tiling that it chooses, by that of the fastest. The layout is A's letter and B's, where T is stored
transposed. All are bfloat16, checked against float64, and timed in turn with PyTorch.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from tilewise import hopper
from tilewise.ahead import compile_ahead
from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.suites import COLUMNS, ROWS, Shape, sets_to_rotate
from tilewise.bench.timing import in_turn
from tilewise.devices import get_device
from tilewise.product import Operand, Product
from tilewise.provenance import write
from tilewise.steps import Plan, execute
from tilewise.tilings import candidates, choose, seconds

SHAPES = (
    Shape(256, 256, 256), Shape(512, 512, 512), Shape(1024, 1024, 1024), Shape(2048, 2048, 2048),
    Shape(4096, 4096, 4096), Shape(8192, 8192, 8192), Shape(1000, 1000, 1000),
    Shape(3000, 3000, 3000), Shape(5000, 5000, 5000), Shape(2048, 2048, 2048, COLUMNS, COLUMNS),
    Shape(4096, 4096, 4096, COLUMNS, ROWS), Shape(1, 6144, 4096, ROWS, COLUMNS),
    Shape(16, 28672, 4096, ROWS, COLUMNS), Shape(64, 6144, 4096, ROWS, COLUMNS),
    Shape(128, 28672, 4096, ROWS, COLUMNS), Shape(512, 4096, 14336, ROWS, COLUMNS),
    Shape(2048, 6144, 4096, ROWS, COLUMNS), Shape(256, 256, 65536), Shape(8192, 64, 8192),
    Shape(65536, 16, 1024), Shape(8192, 8192, 16, ROWS, COLUMNS), Shape(3000, 5000, 1000),
)  # fmt: skip


def shape_of(text: str) -> Shape:
    """Of ``4096x4096x4096``, or with a layout, ``4096x4096x4096:NT``."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?::([NT])([NT]))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; it takes MxNxK or MxNxK:NT")
    *sizes, a, b = found.groups()
    m, n, k = map(int, sizes)
    return Shape(m, n, k, *(COLUMNS if letter == "T" else ROWS for letter in (a, b)))


def product_of(shape: Shape) -> Product:
    a, b, d = (Operand(*view.strides) for view in shape.views())
    return Product(
        shape.m, shape.n, shape.k, 1, "bfloat16", "bfloat16", 1.0, 0.0, a, b, None, d
    )  # fmt: skip


def measure(shape: Shape, gpu: Any, rounds: int, least: float) -> dict[str, Any]:
    """One row: PyTorch's time, and each tiling's with what the model expects."""
    product = product_of(shape)
    problem = hopper.problem(product)
    tilings = list(candidates(problem, gpu.multiprocessors))
    plans = [hopper.plan(product, gpu.multiprocessors, tiling) for tiling in tilings]
    kernels = {repr(step.kernel): step.kernel for plan in plans for step in plan.steps}
    compile_ahead(list(kernels.values()), gpu.arch)

    generator = torch.Generator("cuda").manual_seed(0)
    first = operands(shape, "bfloat16", generator)
    nbytes = sum(x.numel() * x.element_size() for x in (first.a, first.b, first.d))
    more = range(sets_to_rotate(nbytes, gpu.l2_bytes) - 1)
    sets = [first, *(operands(shape, "bfloat16", generator) for _ in more)]
    workspace = torch.empty(max(plan.workspace for plan in plans), dtype=torch.uint8, device="cuda")

    def work(plan: Plan, x: Operands) -> Callable[[], None]:
        addresses = (x.a.data_ptr(), x.b.data_ptr(), 0, x.d.data_ptr(), workspace.data_ptr())
        return lambda: execute(plan, gpu, torch.cuda.current_stream().cuda_stream, addresses)

    contenders = {"torch": [x.torch for x in sets]}
    first.torch()
    for name, plan in enumerate(plans):
        first.d.fill_(math.nan)
        work(plan, first)()
        if error_share(first.a, first.b, first.d) > 1:
            raise SystemExit(f"{shape.name} {shape.layout}: wrong by {plan.chosen}")
        contenders[str(name)] = [work(plan, x) for x in sets]
    times = in_turn(contenders, rounds, least).seconds
    chosen, _ = choose(problem, gpu.multiprocessors)
    rows = [
        {
            **asdict(tiling),
            "text": str(tiling),
            "expected": seconds(tiling, problem, gpu.multiprocessors),
            "seconds": median(times[str(name)]),
        }
        for name, tiling in enumerate(tilings)
    ]
    of_chosen = rows[tilings.index(chosen)]
    rows.sort(key=lambda row: row["seconds"])
    return {
        "m": shape.m, "n": shape.n, "k": shape.k, "layout": shape.layout,
        "torch": median(times["torch"]), "chosen": of_chosen["text"],
        "chosen_seconds": of_chosen["seconds"], "best": rows[0]["text"],
        "regret": of_chosen["seconds"] / rows[0]["seconds"], "tilings": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("shapes", nargs="*", type=shape_of, metavar="MxNxK:LAYOUT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.01, help="a round of one tiling")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    gpu: Any = get_device("gpu")
    rows = []
    for shape in options.shapes or SHAPES:
        row = measure(shape, gpu, options.rounds, options.seconds)
        rows.append(row)
        flops = shape.flops * 1e-12
        best = row["tilings"][0]["seconds"]
        print(
            f"{shape.name:18s} {shape.layout}  torch {flops / row['torch']:5.0f} TFLOP/s  "
            f"chosen {flops / row['chosen_seconds']:5.0f}  best of {len(row['tilings'])} "
            f"{flops / best:5.0f}  regret {row['regret']:.3f}\n"
            f"    chosen {row['chosen']}\n    best   {row['best']}",
            flush=True,
        )
    regrets = [row["regret"] for row in rows]
    print(f"regret: geometric mean {geometric_mean(regrets):.3f}, worst {max(regrets):.3f}")
    if options.json:
        method = {"rounds": options.rounds, "seconds_a_round": options.seconds}
        write(options.json, {**method, "regret": geometric_mean(regrets), "rows": rows})


if __name__ == "__main__":
    main()
