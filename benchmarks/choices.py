"""Time many ways to compute random products, beside PyTorch, for the planner to be fitted to.

    python benchmarks/choices.py RECORD.json [--dtype bfloat16] [--count 100] [--seed 1]
    python benchmarks/choices.py RECORD.json --family general --k 16 64 256 1024 4096

``tilewise bench --random`` draws the same products by the same --seed and --multiple. For each
product, the ways that should be the fastest and some of the others are timed in turn, short ones in
CUDA graphs, with sets of operands that the L2 cache does not hold. The record has the family, the
choices and the time in µs of each way. With ``--family`` only the ways of that family are timed,
and with ``--k`` the products get these values of k in turn. With ``--capability 80`` the ways are
those of a GPU without Hopper's instructions, timed on the GPU at hand.

benchmarks/fit_hopper.py, fit_mma.py and fit_general.py fit their families' models to such records.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from command_line import parser_of
from timed_products import kernels_of_plans, operand_sets

from tilewise.bench.products import Operands
from tilewise.bench.record import DTYPES, find_gpu, product_of
from tilewise.bench.suites import Random, Shape
from tilewise.bench.timing import Work, in_turn
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices.gpu import Gpu
from tilewise.gemm.chip import Chip
from tilewise.gemm.family import Offer
from tilewise.gemm.plan import FAMILIES, chip_of, offers
from tilewise.gemm.steps import Plan, execute
from tilewise.provenance import write

FIRST, OTHERS = 20, 24  # ways of a product: the fastest by the model, and some drawn others
SLOWEST = 2.5  # the others' expected time is below so many times the fastest's
ROUNDS, SECONDS = 3, 0.0015  # rounds, and the seconds of a round of one way
TORCH = "torch"


def shapes_of(drawn: Random, depths: Sequence[int]) -> list[Shape]:
    """Return the products that are timed; their k are ``depths`` in turn if there are any."""
    shapes = drawn.shapes()
    if not depths:
        return list(shapes)
    return [replace(shape, k=depths[i % len(depths)]) for i, shape in enumerate(shapes)]


def ways_of(
    shape: Shape, dtype: str, chip: Chip | None, drawn: random.Random, family: str | None = None
) -> list[Offer]:
    """Return the ways that are timed, the one that the planner would choose of them first.

    Parameters
    ----------
    shape, dtype
        The product.
    chip : Chip or None
    drawn : random.Random
        Draws the ways that are timed besides those that should be fastest.
    family : str, optional
        The family whose ways are timed; by default all families'.

    Raises
    ------
    ValueError
        If the family does not take the product.
    """
    found = offers(product_of(shape, dtype), chip)
    every = [offer for offer in found if family in (None, offer.family)]
    if not every:
        raise ValueError(f"the {family} family has no way to compute {shape.name} of {dtype}")
    near = [offer for offer in every if offer.seconds < SLOWEST * every[0].seconds]
    others = near[FIRST:]
    return near[:FIRST] + drawn.sample(others, min(len(others), OTHERS))


def measure(shape: Shape, dtype: str, gpu: Gpu, ways: Sequence[Offer]) -> dict[str, Any]:
    """Time the ways to compute one product in turn with PyTorch, and return the record's row."""
    sets = operand_sets(shape, dtype, gpu)
    plans = [offer.make() for offer in ways]
    most = max(plan.workspace for plan in plans)
    workspace = torch.empty(max(most, 1), dtype=torch.uint8, device="cuda")

    def run(plan: Plan, matrices: Operands) -> None:
        a, b, d = (x.data_ptr() for x in (matrices.a, matrices.b, matrices.d))
        stream = torch.cuda.current_stream().cuda_stream
        execute(plan, gpu, stream, (a, b, 0, d, workspace.data_ptr()))

    works: dict[str, Sequence[Work]] = {
        str(index): [partial(run, plan, x) for x in sets] for index, plan in enumerate(plans)
    }
    works[TORCH] = [x.torch for x in sets]
    for work, *_ in works.values():
        work()
    timed = in_turn(works, ROUNDS, SECONDS).seconds
    times = [_microseconds(timed[str(index)]) for index in range(len(ways))]
    return row_of(shape, ways, times, _microseconds(timed[TORCH]))


def row_of(
    shape: Shape, ways: Sequence[Offer], times: Sequence[float], of_torch: float
) -> dict[str, Any]:
    """Return a row of the record; all times are in µs."""
    return {
        "m": shape.m, "n": shape.n, "k": shape.k, "layout": shape.layout, TORCH: of_torch,
        "ways": [
            {"family": offer.family, "choice": dict(offer.choice), "us": time}
            for offer, time in zip(ways, times, strict=True)
        ],
    }  # fmt: skip


def _microseconds(seconds: Sequence[float]) -> float:
    return round(1e6 * median(seconds), 3)


def main() -> None:
    """Measure, print the ratio and the regret of each product, and write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--multiple", type=int, default=8, help="sizes are multiples of it")
    names = [family.name for family in FAMILIES]
    parser.add_argument("--family", choices=names, help="time the ways of this one alone")
    parser.add_argument(
        "--k",
        type=int,
        nargs="+",
        default=[],
        help="values of k, in place of random ones",
    )
    parser.add_argument(
        "--capability", type=int, help="plan as for a GPU of this compute capability, 80 for 8.0"
    )
    options = parser.parse_args()
    if any(k < 1 for k in options.k):
        parser.error(f"--k is {min(options.k)}; it takes depths of at least 1")
    torch.set_float32_matmul_precision("highest")  # no TF32
    gpu, drawn = find_gpu(), random.Random(options.seed)
    shapes = shapes_of(Random(options.count, options.seed, options.multiple), options.k)
    chip = chip_of(gpu)
    if chip is not None and options.capability is not None:
        chip = replace(chip, capability=options.capability)
    ways = {x: ways_of(x, options.dtype, chip, drawn, options.family) for x in shapes}
    assert chip is not None
    plans = [offer.make() for each in ways.values() for offer in each]
    compile_ahead(kernels_of_plans(plans), gpu.arch, lines=False)
    rows = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for shape in shapes:
            row = measure(shape, options.dtype, gpu, ways[shape])
            times = [way["us"] for way in row["ways"]]
            regret, ratio = times[0] / min(times), row[TORCH] / times[0]
            print(f"{shape.name} {shape.layout}: {ratio:.3f} of torch's speed, regret {regret:.3f}")
            rows.append({**row, "regret": regret, "ratio": ratio})
            write(options.record, {"chip": asdict(chip), "dtype": options.dtype, "rows": rows})
    for name in ("ratio", "regret"):
        mean = math.exp(sum(math.log(row[name]) for row in rows) / len(rows))
        print(f"{name}: {mean:.4f} in the mean")


if __name__ == "__main__":
    main()
