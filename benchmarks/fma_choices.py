"""How well the planner chooses without tensor cores, on a Hopper GPU.

    python benchmarks/fma_choices.py [--dtype float32] [--suite odd] [--json FILE]

Each product of the suites is timed in the way that the planner chose, in the next best ones by what
it expects, and by the vendor's library, all in turn. Prints what was expected and measured, and the
regret: the choice's time by that of the best.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from tilewise import fma, thin_fma
from tilewise.ahead import compile_ahead
from tilewise.bench.products import Operands, operands
from tilewise.bench.record import find_gpu
from tilewise.bench.suites import SUITES, Shape
from tilewise.bench.timing import Work, in_turn
from tilewise.call import check
from tilewise.devices.gpu import Gpu
from tilewise.explain import asked
from tilewise.product import REAL, Product
from tilewise.provenance import write
from tilewise.steps import Plan, execute

WAYS, PARTS = 6, 2  # beside each other; of those that differ in how many parts k has alone
ROUNDS, SECONDS = 3, 0.003
VENDOR = "vendor"


Way = tuple[float, Plan]
"""The seconds that it should take, and how."""


def best_ways(product: Product, multiprocessors: int) -> dict[str, Way]:
    """The ways that should take least, the planner's choice first, by what they are."""
    found: dict[str, Way] = {}
    ways: dict[tuple[str, bool], int] = {}
    is_turned = fma.turned(product) is not product
    choices = fma.choices(fma.turned(product), multiprocessors, True)
    for choice in sorted(choices, key=attrgetter("rank")):
        is_copied = bool(choice.reading.copies)
        kind = (str(choice.tiles), is_copied)
        ways[kind] = ways.get(kind, 0) + 1
        if ways[kind] <= PARTS:
            plan = fma.planned(choice, multiprocessors, True, is_turned)
            name = f"{choice.tiles}{', copied' * is_copied}, {choice.parts} parts"
            found[name] = choice.seconds, plan
        if len(found) == WAYS:
            break
    if view := thin_fma.thin(product):
        expected = thin_fma.seconds(product, view, multiprocessors)
        thin = {"thin": (expected, thin_fma.plan(product, view, multiprocessors, True))}
        is_first = expected < next(iter(found.values()))[0]
        found = thin | found if is_first else found | thin
    return found


def product_of(matrices: Operands) -> Product:
    call = check(matrices.a, matrices.b, None, 1, 0, False, False, matrices.d, None, "auto")
    return asked(call)[0]


def measure(shape: Shape, dtype: str, gpu: Gpu) -> dict[str, Any]:
    """A row of the record."""
    matrices = operands(shape, dtype, torch.Generator("cuda").manual_seed(0))
    product = product_of(matrices)
    ways = best_ways(product, gpu.multiprocessors)
    plans = {name: plan for name, (_, plan) in ways.items()}
    compile_ahead([step.kernel for plan in plans.values() for step in plan.steps], gpu.arch)
    most = max(plan.workspace for plan in plans.values())
    workspace = torch.empty(max(most, 1), dtype=torch.uint8, device="cuda")

    def run(plan: Plan) -> None:
        a, b, d = (x.data_ptr() for x in (matrices.a, matrices.b, matrices.d))
        stream = torch.cuda.current_stream().cuda_stream
        execute(plan, gpu, stream, (a, b, 0, d, workspace.data_ptr()))

    works: dict[str, Sequence[Work]] = {name: [partial(run, plan)] for name, plan in plans.items()}
    works[VENDOR] = [matrices.torch]
    for (work,) in works.values():
        work()
    timed = in_turn(works, ROUNDS, SECONDS)
    seconds = {name: median(each) for name, each in timed.seconds.items()}
    chosen, best = next(iter(ways)), min(ways, key=lambda name: seconds[name])
    return {
        "shape": f"{shape.name} {shape.layout}",
        "chosen": chosen,
        "best": best,
        "expected": {name: expected for name, (expected, _) in ways.items()},
        "seconds": seconds,
        "ratio": seconds[VENDOR] / seconds[chosen],
        "best_ratio": seconds[VENDOR] / seconds[best],
        "regret": seconds[chosen] / seconds[best],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=tuple(REAL), default="float32")
    parser.add_argument("--suite", choices=tuple(SUITES), action="append")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("highest")  # no TF32
    gpu = find_gpu()
    rows = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for suite in options.suite or ("square", "odd"):
            for shape in SUITES[suite]:
                if shape.is_wide and options.dtype == "float64":
                    continue
                rows.append(measure(shape, options.dtype, gpu))
                row = rows[-1]
                expected = row["expected"][row["chosen"]]
                print(
                    f"{row['shape']}: {row['chosen']}, {1e6 * expected:.1f} expected, "
                    f"{1e6 * row['seconds'][row['chosen']]:.1f} µs, {row['ratio']:.3f} of the "
                    f"vendor's speed; regret {row['regret']:.3f}, {row['best']}",
                    flush=True,
                )
    chosen, best = (geometric_mean(row[key] for row in rows) for key in ("ratio", "best_ratio"))
    print(f"mean {chosen:.3f} of the vendor's speed; {best:.3f} with the best of each")
    if options.json:
        write(options.json, {"dtype": options.dtype, "rows": rows})


if __name__ == "__main__":
    main()
