"""How well the planner chooses without tensor cores, on a Hopper GPU.

    python benchmarks/fma_choices.py [--dtype float32] [--suite thin] [--json FILE]

Each product of the suites is timed in the way that the planner chose, in the next best ones by what
it expects, and by the vendor's library, all in turn. Prints what was expected and measured, and the
regret: the choice's time by that of the best.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from tilewise import fma, thin_fma
from tilewise.ahead import compile_ahead
from tilewise.bench.products import Operands, operands
from tilewise.bench.record import find_gpu
from tilewise.bench.suites import REAL_SUITES, SUITES, Shape, sets_to_rotate
from tilewise.bench.timing import Work, in_turn
from tilewise.call import check
from tilewise.devices.gpu import Gpu
from tilewise.explain import asked
from tilewise.pack import Packing
from tilewise.product import REAL, Product
from tilewise.provenance import write
from tilewise.steps import Plan, execute

WAYS, PARTS = 6, 2  # by tiles; of those that differ in how many parts k has alone
THIN_WAYS = 4  # of the thin kernel
ROUNDS, SECONDS = 3, 0.003
VENDOR = "vendor"

Way = tuple[float, Plan]
"""The seconds that it should take, and how."""


def best_ways(product: Product, multiprocessors: int) -> dict[str, Way]:
    """The ways that should take least, the planner's choice first, by what they are."""
    by_tiles = dict(islice(_by_tiles(product, multiprocessors), WAYS))
    thin = dict(islice(_thin(product, multiprocessors), THIN_WAYS))
    both = [by_tiles, thin] if thin else [by_tiles]
    first, *rest = sorted(both, key=lambda ways: next(iter(ways.values()))[0])
    return first | (rest[0] if rest else {})


def _by_tiles(product: Product, multiprocessors: int) -> Iterator[tuple[str, Way]]:
    kinds = Counter[str]()
    is_turned = fma.turned(product) is not product
    choices = fma.choices(fma.turned(product), multiprocessors, True)
    for choice in sorted(choices, key=attrgetter("rank")):
        kind = str(choice.tiles)
        for which, copy in choice.reading.copies:
            manner = "packed" if isinstance(copy, Packing) else "transposed"
            kind += f", {'BA'[which] if is_turned else 'AB'[which]} {manner}"
        kinds[kind] += 1
        if kinds[kind] <= PARTS:
            plan = fma.planned(choice, multiprocessors, True, is_turned)
            yield f"{kind}, {choice.parts} parts", (choice.seconds, plan)


def _thin(product: Product, multiprocessors: int) -> Iterator[tuple[str, Way]]:
    view = thin_fma.thin(product)
    if view is None:
        return
    divisions = thin_fma.divisions(product, view, multiprocessors)
    for each in sorted(divisions, key=attrgetter("seconds")):
        name = f"thin, {each.split} warps, {each.parts} parts"
        yield name, (each.seconds, thin_fma.planned(product, view, each, True))


def product_of(matrices: Operands) -> Product:
    call = check(matrices.a, matrices.b, None, 1, 0, False, False, matrices.d, None, "auto")
    return asked(call)[0]


def measure(shape: Shape, dtype: str, gpu: Gpu) -> dict[str, Any]:
    """A row of the record."""
    generator = torch.Generator("cuda").manual_seed(0)
    sets = [operands(shape, dtype, generator)]
    product = product_of(sets[0])
    nbytes = sum(x.numel() * x.element_size() for x in (sets[0].a, sets[0].b, sets[0].d))
    count = sets_to_rotate(nbytes, gpu.l2_bytes)
    sets += [operands(shape, dtype, generator) for _ in range(count - 1)]
    ways = best_ways(product, gpu.multiprocessors)
    plans = {name: plan for name, (_, plan) in ways.items()}
    compile_ahead([step.kernel for plan in plans.values() for step in plan.steps], gpu.arch)
    most = max(plan.workspace for plan in plans.values())
    workspace = torch.empty(max(most, 1), dtype=torch.uint8, device="cuda")

    def run(plan: Plan, matrices: Operands) -> None:
        a, b, d = (x.data_ptr() for x in (matrices.a, matrices.b, matrices.d))
        stream = torch.cuda.current_stream().cuda_stream
        execute(plan, gpu, stream, (a, b, 0, d, workspace.data_ptr()))

    works: dict[str, Sequence[Work]] = {
        name: [partial(run, plan, each) for each in sets] for name, plan in plans.items()
    }
    works[VENDOR] = [each.torch for each in sets]
    for work, *_ in works.values():
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
        for suite in options.suite or REAL_SUITES:
            of_suite = []
            for shape in SUITES[suite]:
                if shape.is_wide and options.dtype == "float64":
                    continue
                row = measure(shape, options.dtype, gpu)
                of_suite.append({"suite": suite, **row})
                expected = row["expected"][row["chosen"]]
                print(
                    f"{row['shape']}: {row['chosen']}, {1e6 * expected:.1f} expected, "
                    f"{1e6 * row['seconds'][row['chosen']]:.1f} µs, {row['ratio']:.3f} of the "
                    f"vendor's speed; regret {row['regret']:.3f}, {row['best']}",
                    flush=True,
                )
            mean = {
                key: geometric_mean(row[key] for row in of_suite)
                for key in ("ratio", "best_ratio", "regret")
            }
            print(
                f"{suite}: mean {mean['ratio']:.3f} of the vendor's speed, "
                f"{mean['best_ratio']:.3f} with the best of each; regret {mean['regret']:.3f}"
            )
            rows += of_suite
    if options.json:
        write(options.json, {"dtype": options.dtype, "rows": rows})


if __name__ == "__main__":
    main()
