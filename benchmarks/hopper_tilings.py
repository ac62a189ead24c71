"""Every tiling of the Hopper kernel that the model thinks of, measured, on a Hopper GPU.

    python benchmarks/hopper_tilings.py [MxNxK:LAYOUT ...] [--most N] [--rounds N] [--seconds S]
        [--json FILE]

benchmarks/fit_costs.py fits the model of the Hopper kernel's costs to what this measures. Its
regret is the time of the tiling that it chooses, by that of the fastest. The layout is A's letter
and B's, where T is stored transposed. All are bfloat16, repacked where the tiling needs it, checked
against float64, and timed in turn with PyTorch.
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

from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.suites import COLUMNS, ROWS, Shape, View, sets_to_rotate
from tilewise.bench.timing import in_turn
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices import get_device
from tilewise.gemm.families.hopper.costs import seconds
from tilewise.gemm.families.hopper.tilings import Tiling
from tilewise.gemm.plan import chip_of, choice, plan_on, ranked
from tilewise.gemm.product import ALIGNMENT, Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.provenance import write

SHAPES = (
    Shape(256, 256, 256), Shape(512, 512, 512), Shape(1024, 1024, 1024), Shape(2048, 2048, 2048),
    Shape(4096, 4096, 4096), Shape(8192, 8192, 8192), Shape(1000, 1000, 1000),
    Shape(3000, 3000, 3000), Shape(5000, 5000, 5000), Shape(2048, 2048, 2048, COLUMNS, COLUMNS),
    Shape(4096, 4096, 4096, COLUMNS, ROWS), Shape(1, 6144, 4096, ROWS, COLUMNS),
    Shape(16, 28672, 4096, ROWS, COLUMNS), Shape(64, 6144, 4096, ROWS, COLUMNS),
    Shape(128, 28672, 4096, ROWS, COLUMNS), Shape(512, 4096, 14336, ROWS, COLUMNS),
    Shape(2048, 6144, 4096, ROWS, COLUMNS), Shape(256, 256, 65536), Shape(8192, 64, 8192),
    Shape(65536, 16, 1024), Shape(8192, 8192, 16, ROWS, COLUMNS), Shape(3000, 5000, 1000),
    Shape(64, 64, 262144, ROWS, COLUMNS), Shape(512, 28672, 4096, ROWS, COLUMNS),
    Shape(8192, 6144, 4096, ROWS, COLUMNS), Shape(2048, 8192, 28672, ROWS, COLUMNS),
    Shape(1200, 3600, 1200), Shape(1536, 1536, 1536), Shape(1280, 2560, 1024, ROWS, COLUMNS),
    Shape(768, 3072, 768, ROWS, COLUMNS), Shape(640, 640, 5120), Shape(512, 512, 128, batch=64),
    Shape(127, 129, 131), Shape(300, 301, 1111, ROWS, COLUMNS),
    Shape(511, 511, 511, COLUMNS, COLUMNS), Shape(777, 333, 555), Shape(1001, 1001, 1001),
    Shape(1500, 1501, 1502), Shape(2047, 2049, 2051, COLUMNS, ROWS),
    Shape(2049, 2049, 513, COLUMNS, COLUMNS),
    Shape(3001, 3001, 3001), Shape(4095, 4097, 4099), Shape(257, 257, 65537),
    Shape(33, 33, 333333, ROWS, COLUMNS), Shape(65, 129, 100003, COLUMNS, ROWS),
    Shape(17, 8191, 4097, ROWS, COLUMNS), Shape(64, 12289, 4095, ROWS, COLUMNS),
    Shape(513, 12289, 2047, ROWS, COLUMNS), Shape(8191, 63, 8193), Shape(128, 50257, 768),
    Shape(16, 50257, 1024), Shape(100003, 65, 129), Shape(65537, 17, 1023, COLUMNS, ROWS),
    Shape(255, 257, 129, batch=32), Shape(65, 33, 127, ROWS, COLUMNS, batch=512),
    Shape(1, 28672, 4096, ROWS, COLUMNS), Shape(16, 8192, 28672, ROWS, COLUMNS),
    Shape(1, 8192, 8192), Shape(64, 10240, 8192, ROWS, COLUMNS),
    Shape(16, 4096, 14336, ROWS, COLUMNS), Shape(32, 5120, 13824, ROWS, COLUMNS),
    Shape(8, 7168, 2048, ROWS, COLUMNS), Shape(128, 10240, 8192, ROWS, COLUMNS),
    Shape(96, 18432, 7168), Shape(16, 32768, 2048),
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
    def operand(view: View) -> Operand:
        step = view.strides[0] if len(view.shape) == 3 else 0
        return Operand(view.strides[-2], view.strides[-1], step, 2 * view.offset % ALIGNMENT)

    a, b, d = map(operand, shape.views())
    return Product(
        shape.m, shape.n, shape.k, shape.batch, "bfloat16", "bfloat16", 1.0, 0.0, a, b, None, d
    )  # fmt: skip


def best_of_kinds(tilings: list[tuple[Tiling, float]], most: int) -> list[Tiling]:
    """Those first that differ by more than which way round they are."""
    kinds: dict[tuple[object, ...], Tiling] = {}
    for x, _ in tilings:
        shifted = x.a_shifted, x.b_shifted
        kind = (x.block_m, x.block_n, x.tiles, x.split, x.shared, shifted[:: -1 if x.turned else 1])
        kinds.setdefault(kind, x)
    return list(kinds.values())[:most]


def measure(shape: Shape, gpu: Any, most: int, rounds: int, least: float) -> dict[str, Any]:
    """One row: PyTorch's time, and each tiling's with what the model expects."""
    product, chip = product_of(shape), chip_of(gpu)
    assert chip is not None
    choices = []
    for tiling in best_of_kinds(ranked(product, chip), most):
        chosen = choice(product, chip, tiling)
        assert chosen is not None
        choices.append(chosen)
    plans = [plan_on(product, chip, chosen.tiling) for chosen in choices]
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
    # Longer where it is the power limit that rules, and not a burst.
    times = in_turn(contenders, rounds, least * (10 if choices[0].seconds > 1e-4 else 1)).seconds
    rows: list[dict[str, Any]] = []
    for name, chosen in enumerate(choices):
        problem = chosen.reading.problem
        of_kernel = seconds(chosen.tiling, problem, gpu.multiprocessors)
        rows.append(
            {
                "text": plans[name].chosen,
                "expected": chosen.seconds,
                "around": chosen.seconds - of_kernel,
                "seconds": median(times[str(name)]),
                "tiling": asdict(chosen.tiling),
                "problem": asdict(problem),
            }
        )
    of_model = rows[0]
    rows.sort(key=lambda row: row["seconds"])
    return {
        "name": shape.name, "m": shape.m, "n": shape.n, "k": shape.k, "batch": shape.batch,
        "layout": shape.layout, "torch": median(times["torch"]), "chosen": of_model["text"],
        "chosen_seconds": of_model["seconds"], "best": rows[0]["text"],
        "regret": of_model["seconds"] / rows[0]["seconds"], "tilings": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("shapes", nargs="*", type=shape_of, metavar="MxNxK:LAYOUT")
    parser.add_argument(
        "--most", type=int, default=24, help="tilings a product, best by the model, one of a kind"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.01,
        help="a round of one tiling; ten times that over 100 µs",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    gpu: Any = get_device("gpu")
    rows = []
    for shape in options.shapes or SHAPES:
        row = measure(shape, gpu, options.most, options.rounds, options.seconds)
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
        if options.json:  # after each, as the next may fail
            write(
                options.json,
                {
                    "rounds": options.rounds,
                    "seconds_a_round": options.seconds,
                    "multiprocessors": gpu.multiprocessors,
                    "regret": geometric_mean(row["regret"] for row in rows),
                    "rows": rows,
                },
            )
    regrets = [row["regret"] for row in rows]
    print(f"regret: geometric mean {geometric_mean(regrets):.3f}, worst {max(regrets):.3f}")


if __name__ == "__main__":
    main()
