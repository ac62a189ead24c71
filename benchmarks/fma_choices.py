"""How well the planner chooses for float32 and float64, on a Hopper GPU.

    python benchmarks/fma_choices.py [--dtype float32] [--suite thin] [--seconds 0.1] [--json FILE]
    python benchmarks/fma_choices.py --again FILE

Each product of the suites is timed in the way that the planner chose, in the next best ones by what
it expects, and by the vendor's library, all in turn. Prints what was expected and measured, and the
regret: the choice's time by that of the best. With a tenth of a second each has the clock that the
power limit leaves to what it does itself; with less, more or less the same as the others.

With ``--again`` nothing is timed: the planner of now chooses by what such a record has.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from tilewise.bench.products import Operands, operands
from tilewise.bench.record import find_gpu
from tilewise.bench.suites import REAL_SUITES, SUITES, Shape, View, sets_to_rotate
from tilewise.bench.timing import Work, in_turn
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices.gpu import Gpu
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt.plan import Way, cut, thin, tiled
from tilewise.gemm.families.thin import real as thin_fma
from tilewise.gemm.plan import chip_of
from tilewise.gemm.product import ITEM_SIZES, REAL, Operand, Product, offset
from tilewise.gemm.steps import Plan, execute
from tilewise.provenance import write

WAYS, PARTS = 6, 2  # by tiles; of those that differ in how many parts k has alone
THIN_WAYS = 4  # of the thin kernel
MORE = 8  # times as many, among which those of an earlier record are looked for
ROUNDS = 3
VENDOR = "vendor"
H200 = Chip("NVIDIA H200", 132, True)  # that records are of


def best_ways(product: Product, chip: Chip, count: int = WAYS) -> list[Way]:
    """The ways that should take least, the planner's choice first, each of another name."""
    by_tiles = list(islice(_by_tiles(product, chip), count))
    both = [by_tiles, list(islice(_thin(product, chip), THIN_WAYS))]
    found = [way for ways in sorted(filter(None, both), key=_first_rank) for way in ways]
    pieces = cut(product, chip, found[0])
    return found if pieces is None else [pieces, *found]


def _first_rank(ways: Sequence[Way]) -> float:
    return ways[0].rank


def _by_tiles(product: Product, chip: Chip) -> Iterator[Way]:
    kinds = Counter[str]()
    choices = fma.choices(fma.turned(product), chip.multiprocessors, chip.is_hopper)
    for choice in sorted(choices, key=attrgetter("rank")):
        way = tiled(product, choice, chip)
        kind, _, _ = way.name.rpartition(", ")
        kinds[kind] += 1
        if kinds[kind] <= PARTS:
            yield way


def _thin(product: Product, chip: Chip) -> Iterator[Way]:
    view = thin_fma.thin(product)
    if view is None:
        return
    divisions = thin_fma.divisions(product, view, chip.multiprocessors)
    for each in sorted(divisions, key=attrgetter("seconds")):
        yield thin(product, view, each, chip)


def product_of(shape: Shape, dtype: str) -> Product:
    """What ``matmul`` is asked for it."""

    def lying(view: View) -> Operand:
        *batch, rows, columns = view.strides
        at = offset(view.offset * ITEM_SIZES[dtype])
        return Operand(rows, columns, batch[0] if batch else 0, at)

    of_a, of_b, of_d = map(lying, shape.views())
    extents = shape.m, shape.n, shape.k, shape.batch
    return Product(*extents, dtype, dtype, 1.0, 0.0, of_a, of_b, None, of_d)


def measure(shape: Shape, dtype: str, gpu: Gpu, round_seconds: float) -> dict[str, Any]:
    """A row of the record."""
    generator = torch.Generator("cuda").manual_seed(0)
    sets = [operands(shape, dtype, generator)]
    product = product_of(shape, dtype)
    nbytes = sum(x.numel() * x.element_size() for x in (sets[0].a, sets[0].b, sets[0].d))
    count = sets_to_rotate(nbytes, gpu.l2_bytes)
    sets += [operands(shape, dtype, generator) for _ in range(count - 1)]
    chip = chip_of(gpu)
    assert chip is not None
    ways = best_ways(product, chip)
    plans = {way.name: way.plan() for way in ways}
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
    timed = in_turn(works, ROUNDS, round_seconds)
    expected = {way.name: way.seconds for way in ways}
    return row_of(shape, expected, {name: median(each) for name, each in timed.seconds.items()})


def row_of(shape: Shape, expected: dict[str, float], seconds: dict[str, float]) -> dict[str, Any]:
    """A row of the record; ``expected`` begins with what the planner chose."""
    chosen, best = next(iter(expected)), min(expected, key=lambda name: seconds[name])
    return {
        "shape": name_of(shape),
        "chosen": chosen,
        "best": best,
        "expected": expected,
        "seconds": seconds,
        "ratio": seconds[VENDOR] / seconds[chosen],
        "best_ratio": seconds[VENDOR] / seconds[best],
        "regret": seconds[chosen] / seconds[best],
    }


def name_of(shape: Shape) -> str:
    return f"{shape.name} {shape.layout}"


def again(shape: Shape, dtype: str, row: dict[str, Any]) -> dict[str, Any] | None:
    """A row of a record, with what the planner expects and chooses now, of the ways in it.

    None if what it chooses was not timed.
    """
    seconds = row["seconds"]
    every = best_ways(product_of(shape, dtype), H200, len(seconds) * MORE)
    if every[0].name not in seconds:
        print(f"{name_of(shape)}: {every[0].name}, which was not timed")
        return None
    expected = {way.name: way.seconds for way in every if way.name in seconds}
    return row_of(shape, expected, seconds)


def shapes(suite: str, dtype: str) -> list[Shape]:
    """The suite's products; float64 has no D of another dtype."""
    return [x for x in SUITES[suite] if not (x.is_wide and dtype == "float64")]


def show(suite: str, rows: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Prints what rows there are, as they come, and their means; the rows of the record."""
    shown = []
    for row in filter(None, rows):
        shown.append({"suite": suite, **row})
        expected = row["expected"][row["chosen"]]
        print(
            f"{row['shape']}: {row['chosen']}, {1e6 * expected:.1f} expected, "
            f"{1e6 * row['seconds'][row['chosen']]:.1f} µs, {row['ratio']:.3f} of the "
            f"vendor's speed; regret {row['regret']:.3f}, {row['best']}",
            flush=True,
        )
    if not shown:
        return []
    mean = {
        key: geometric_mean(row[key] for row in shown) for key in ("ratio", "best_ratio", "regret")
    }
    print(
        f"{suite}: mean {mean['ratio']:.3f} of the vendor's speed, "
        f"{mean['best_ratio']:.3f} with the best of each; regret {mean['regret']:.3f}"
    )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=tuple(REAL), default="float32")
    parser.add_argument("--suite", choices=tuple(SUITES), action="append")
    parser.add_argument("--seconds", type=float, default=0.003, help="of each way, in a round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="what such a record says of the planner of now"
    )
    options = parser.parse_args()
    if options.again:
        record = json.loads(options.again.read_text(encoding="utf-8"))
        dtype = record["dtype"]
        for suite in dict.fromkeys(row["suite"] for row in record["rows"]):
            of_name = {row["shape"]: row for row in record["rows"] if row["suite"] == suite}
            each = (
                again(shape, dtype, of_name[name_of(shape)])
                for shape in shapes(suite, dtype)
                if name_of(shape) in of_name
            )
            show(suite, each)
        return
    torch.set_float32_matmul_precision("highest")  # no TF32
    gpu, dtype = find_gpu(), options.dtype
    rows = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for suite in options.suite or REAL_SUITES:
            each = (measure(shape, dtype, gpu, options.seconds) for shape in shapes(suite, dtype))
            rows += show(suite, each)
    if options.json:
        write(options.json, {"dtype": dtype, "rows": rows})


if __name__ == "__main__":
    main()
