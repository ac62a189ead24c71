"""Time 16-bit products by ``mma.sync``, beside Triton's and CUTLASS's kernels for sm_80.

    python benchmarks/mma_products.py [--sizes 4096,8192] [--layouts NN,NT] [--suite square llm]
        [--random 100 --seed 1 --multiple 1] [--dtype bfloat16] [--json FILE [--resume]]
        [--fastest-of RECORD ...]
    python benchmarks/mma_products.py ... --build [--cutlass FOLDER/include]

tilewise plans each product for a GPU of compute capability 8.0 with the size and the clock of the
GPU at hand. The rivals' kernels are compiled for 8.0 too: they use ``mma.sync`` and ``cp.async``.
For each product, all tilings of a rival are timed briefly, and the fastest one is timed in turn
with tilewise: half of the rounds in one order, the others in the reverse order. The vendor's
product, which uses all instructions of the GPU, is timed after them, because it heats the GPU more
and so slows the contender that follows. Each result is checked before it is timed.

If the rows of a matrix are not multiples of 16 bytes apart, Triton's product is also timed with
matrices that are padded by hand: "padded" by ``torch.nn.functional.pad``, and "copied" into zeros
that are kept. The result is copied back, and the time includes all copies.

With --fastest-of, Triton and CUTLASS are timed only in the ways that were the fastest of some
product of these records, padded or not, which takes less than half of the time. Otherwise Triton is
timed in all configurations of triton_configs.py, and CUTLASS in all tilings that are built.

With --resume, the products of FILE are not timed again: it continues a run that --budget ended,
also with other suites of the same dtype.

With --build, the rivals' kernels for these products are compiled, which takes no GPU, and nothing
is timed. Otherwise the kernels that the folder of --rivals lacks are compiled first: Triton's if it
is installed, CUTLASS's if --cutlass names the folder of its headers. The exit code is 1 if a result
of tilewise is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import cutlass_sm80
import torch
import triton_sm80
from command_line import add_json, add_timing, check_timing, parser_of, separated_by_commas
from padded_products import Call, is_aligned, padded, padding
from timed_products import operand_sets
from triton_configs import CONFIGS, Config

from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.record import find_gpu, product_of
from tilewise.bench.suites import COLUMNS, ROWS, SUITES, Random, Shape
from tilewise.bench.summary import geometric_mean
from tilewise.bench.timing import SHORT_SECONDS, Work, in_turn, seconds_of
from tilewise.compiler.ahead import WORKERS, compile_ahead, cores
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.explanation import LAYOUTS
from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import chip_of, kernels_of, plan_on
from tilewise.gemm.steps import execute
from tilewise.precision import HALVES
from tilewise.provenance import write

OURS, VENDOR = "tilewise", "vendor"
TRITON, PADDED, COPIED, CUTLASS = "triton", "triton padded", "triton copied", "cutlass"
RIVALS = TRITON, PADDED, COPIED, CUTLASS, VENDOR
FINALISTS = 10  # of a rival's ways, those that are timed in turn, in rounds of so many seconds
TUNING_ROUNDS, TUNING_SECONDS = 2, 0.002
CLEAR, NEAR, NOISE = 1.4, 1.15, 15e-6  # how much slower than the fastest, to be timed again
SEVERAL = 4  # launches of a short kernel that are timed together

Row = dict[str, Any]


class Contender:
    """One kernel, chosen, that computes a product.

    Parameters
    ----------
    way : str
        Its tiling, for people.
    call : callable
    tried : mapping, optional
        The seconds of the ways that it was chosen from.
    """

    def __init__(self, way: str, call: Call, tried: Mapping[str, float] | None = None) -> None:
        self.way, self.call, self.tried = way, call, dict(tried or {})


def ours(shape: Shape, dtype: str, gpu: Gpu, chip: Chip) -> Contender:
    """Return tilewise's product as it is planned for ``chip``."""
    plan = plan_on(product_of(shape, dtype), chip)
    workspace = torch.empty(max(plan.workspace, 1), dtype=torch.uint8, device="cuda")

    def call(x: Operands) -> None:
        addresses = (x.a.data_ptr(), x.b.data_ptr(), 0, x.d.data_ptr(), workspace.data_ptr())
        execute(plan, gpu, torch.cuda.current_stream().cuda_stream, addresses)

    return Contender(plan.chosen, call)


def fastest(ways: dict[str, Call], sets: Sequence[Operands]) -> Contender | None:
    """Return the fastest of a rival's ways by a short timing; None if there are none."""
    once: dict[str, float] = {}
    for name, call in ways.items():
        try:
            call(sets[0])
        except (TilewiseError, RuntimeError) as error:
            print(f"  {name}: {error}")
            continue
        once[name] = seconds_of(partial(call, sets[0]))
    if not once:
        return None
    # Again, one after another: the clock may have been lower for some than for others.
    for name in _near(once, CLEAR):
        times = SEVERAL if once[name] < SHORT_SECONDS else 1
        once[name] = min(once[name], seconds_of(partial(ways[name], sets[0]), times))
    near = _near(once, NEAR)
    works = {name: [partial(ways[name], x) for x in sets] for name in near[:FINALISTS]}
    found = in_turn(works, TUNING_ROUNDS, TUNING_SECONDS).seconds
    tried = {name: min(times) for name, times in found.items()}
    best = min(tried, key=tried.__getitem__)
    return Contender(best, ways[best], tried)


def _near(once: dict[str, float], factor: float) -> list[str]:
    """Return the ways that may be as fast as the fastest one, the fastest first."""
    limit = factor * min(once.values()) + NOISE
    return [name for name in sorted(once, key=once.__getitem__) if once[name] <= limit]


def fastest_of(records: Sequence[Mapping[str, Any]]) -> tuple[list[Config], list[str]]:
    """Return Triton's configurations, and CUTLASS's ways, that were the fastest of a product."""
    ways = [row["ways"] for record in records for row in record["rows"]]
    configs, tilings = (
        dict.fromkeys(each[name] for each in ways for name in names if name in each)
        for names in ((TRITON, PADDED), (CUTLASS,))
    )
    return [Config.of(way) for way in configs], list(tilings)


def by_triton(
    shape: Shape, dtype: str, gpu: Gpu, folder: Path, configs: Sequence[Config]
) -> dict[str, Call]:
    """Return Triton's ways to compute a product."""
    built = [triton_sm80.load(each, folder) for each in triton_sm80.variants(shape, dtype, configs)]
    return {
        str(each.variant.config): each.call(gpu, shape)
        for each in built
        if each is not None and each.shared <= gpu.max_shared
    }


def rivals(
    shape: Shape, dtype: str, gpu: Gpu, options: argparse.Namespace, sets: Sequence[Operands]
) -> Iterator[tuple[str, Contender]]:
    """Yield each rival that takes the product, by the fastest of its ways."""
    folder, configs = options.rivals, options.configs
    found = fastest(by_triton(shape, dtype, gpu, folder, configs), sets)
    if found:
        yield TRITON, found
    inner = padded(shape)
    if inner != shape:
        generator = torch.Generator("cuda").manual_seed(1)
        found = fastest(
            by_triton(inner, dtype, gpu, folder, configs),
            [operands(inner, dtype, generator) for _ in sets],
        )
        if found:
            for name, keeps in ((PADDED, False), (COPIED, True)):
                call = padding(shape, inner, found.call, keeps=keeps)
                yield name, Contender(found.way, call, found.tried)
    tilings = cutlass_sm80.ways(shape, dtype, folder, options.arch)
    named = options.tilings or tilings
    found = fastest({name: call for name, call in tilings.items() if name in named}, sets)
    if found:
        yield CUTLASS, found
    yield VENDOR, Contender("", Operands.torch)


def both_ways(
    works: dict[str, list[Work]], rounds: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Return the seconds of each contender's rounds, and the clocks after them, in MHz.

    Half of the rounds are in the reverse order. The vendor's are apart, after the others'. Where
    NVIDIA's management library is not installed, there are no clocks.
    """
    others = [name for name in works if name != VENDOR]
    found: dict[str, list[float]] = {name: [] for name in works}
    clocks: dict[str, list[int]] = {name: [] for name in works}

    def after(name: str, index: int) -> None:
        with suppress(Exception):  # NVML's own exceptions are many
            clocks[name].append(torch.cuda.clock_rate())

    back = rounds // 2
    for names, count in ((others, rounds - back), (others[::-1], back), ([VENDOR], rounds)):
        if names and count:
            timed = in_turn({name: works[name] for name in names}, count, seconds, after)
            for name, times in timed.seconds.items():
                found[name] += times
    return found, clocks


def measure(
    suite: str, shape: Shape, gpu: Gpu, chip: Chip, options: argparse.Namespace
) -> Row:  # fmt: skip
    """Time one product by all contenders, and return its row of the record."""
    dtype = options.dtype
    sets = operand_sets(shape, dtype, gpu)
    first = sets[0]
    contenders = {OURS: ours(shape, dtype, gpu, chip)}
    contenders |= rivals(shape, dtype, gpu, options, sets)
    errors = {}
    for name, each in contenders.items():
        first.d.fill_(math.nan)
        each.call(first)
        errors[name] = error_share(first.a, first.b, first.d)
    works: dict[str, list[Work]] = {
        name: [partial(each.call, x) for x in sets]
        for name, each in contenders.items()
        if errors[name] <= 1 or name == VENDOR
    }
    timed, clocks = both_ways(works, options.rounds, options.seconds)
    row = {
        "suite": suite, "name": shape.name, "layout": shape.layout,
        "m": shape.m, "n": shape.n, "k": shape.k, "is_aligned": is_aligned(shape),
        "error_share": {x: error if math.isfinite(error) else None for x, error in errors.items()},
        "wrong": [name for name, error in errors.items() if not error <= 1 and name != VENDOR],
        "ways": {name: each.way for name, each in contenders.items()},
        "tried": {name: each.tried for name, each in contenders.items() if each.tried},
        "seconds_of_rounds": timed, "clocks_of_rounds": clocks,
    }  # fmt: skip
    return row | with_times(shape.flops, timed)


def with_times(flops: int, timed: dict[str, list[float]]) -> Row:
    """Return a row's seconds, TFLOP/s, and ratios: each rival's time by tilewise's."""
    found = {name: median(rounds) for name, rounds in timed.items()}
    row: Row = {
        "seconds": found, "tflops": {name: 1e-12 * flops / once for name, once in found.items()}
    }  # fmt: skip
    if OURS in found:
        row["ratios"] = {name: found[name] / found[OURS] for name in RIVALS if name in found}
    return row


def told(row: Row) -> str:
    """Return a row in words, its speeds in TFLOP/s."""
    parts = [f"{row['suite']:8} {row['name']:18} {row['layout']}"]
    for name, speed in row["tflops"].items():
        ratio = "" if name == OURS else f" ({row['ratios'][name]:.3f})" if "ratios" in row else ""
        parts.append(f"{name} {speed:.1f}{ratio}")
    parts += [f"{name} WRONG" for name in row["wrong"]]
    ways = "; ".join(f"{name} by {way}" for name, way in row["ways"].items() if way)
    return "  ".join(parts) + f"\n    {ways}"


def summaries(rows: Sequence[Row]) -> list[Row]:
    """Return the geometric mean and the worst of each suite's ratios to each rival."""
    found = []
    for suite in dict.fromkeys(row["suite"] for row in rows):
        for rival in RIVALS:
            ratios = {
                f"{row['name']} {row['layout']}": row["ratios"][rival]
                for row in rows
                if row["suite"] == suite and rival in row.get("ratios", {})
            }
            if ratios:
                worst = min(ratios, key=ratios.__getitem__)
                found.append(
                    {
                        "suite": suite, "rival": rival, "products": len(ratios),
                        "mean": geometric_mean(ratios.values()),
                        "worst": ratios[worst], "name": worst,
                    }
                )  # fmt: skip
    return found


def products(options: argparse.Namespace) -> list[tuple[str, Shape]]:
    """Return the products that the options name, each with its suite."""
    storage = {"N": ROWS, "T": COLUMNS}
    found = [
        ("sizes", Shape(n, n, n, storage[layout[0]], storage[layout[1]]))
        for n in options.sizes
        for layout in options.layouts
    ]
    found += [(suite, shape) for suite in options.suite for shape in SUITES[suite]]
    if options.random:
        drawn = Random(options.random, options.seed, options.multiple)
        found += [(drawn.name, shape) for shape in drawn.shapes()]
    return found


def resumed(path: Path, dtype: str, chip: Chip) -> list[Row]:
    """Return the rows of a record that is to be continued; none if the file is missing.

    Raises
    ------
    ValueError
        If they are of another dtype or GPU.
    """
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    for name, asked in (("dtype", dtype), ("chip", asdict(chip))):
        if record[name] != asked:
            raise ValueError(f"{path} has products of {name} {record[name]}, not {asked}")
    return list(record["rows"])


def left(products: Sequence[tuple[str, Shape]], rows: Sequence[Row]) -> list[tuple[str, Shape]]:
    """Return the products that no row is of."""
    done = {(row["suite"], row["name"], row["layout"]) for row in rows}
    return [(suite, x) for suite, x in products if (suite, x.name, x.layout) not in done]


def build(shapes: Sequence[Shape], options: argparse.Namespace) -> list[str]:
    """Compile the rivals' kernels that are missing, and return what did not compile."""
    dtype, workers = options.dtype, min(WORKERS, cores())
    told = []
    configs = options.configs
    wanted = [x for shape in shapes for x in triton_sm80.variants(shape, dtype, configs)]
    wanted += [x for shape in shapes for x in triton_sm80.variants(padded(shape), dtype, configs)]
    if importlib.util.find_spec("triton") is None:
        told.append("Triton is not installed: only what was built is timed")
    else:
        told += triton_sm80.build(wanted, options.rivals, options.arch, workers)
    if options.cutlass is not None:
        kinds = [(dtype, shape.layout) for shape in shapes]
        told += cutlass_sm80.build(kinds, options.rivals, options.arch, options.cutlass, workers)
    return told


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=separated_by_commas(int), default=[], metavar="N,N")
    parser.add_argument(
        "--layouts",
        type=separated_by_commas(str, LAYOUTS),
        default=["NN"],
        help="of --sizes, as NN,NT",
    )
    parser.add_argument("--suite", nargs="+", choices=("square", "llm"), default=[])
    parser.add_argument("--random", type=int, default=0, metavar="N", help="add N random products")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--multiple", type=int, default=1, help="random sizes are multiples of it")
    parser.add_argument("--dtype", choices=HALVES, default="bfloat16")
    parser.add_argument("--capability", type=int, default=80, help="that tilewise plans for")
    parser.add_argument("--rivals", type=Path, default=Path(".dev/rivals"), metavar="FOLDER")
    parser.add_argument(
        "--fastest-of", type=Path, nargs="+", default=[], metavar="RECORD",
        help="time rivals in the ways that were the fastest of a product of these",
    )  # fmt: skip
    parser.add_argument("--cutlass", type=Path, metavar="FOLDER", help="CUTLASS's include")
    parser.add_argument("--arch", default="sm_90", help="of the rivals' machine code")
    parser.add_argument("--build", action="store_true", help="compile the rivals alone")
    add_timing(parser, rounds=5, seconds=0.03)
    parser.add_argument(
        "--budget", type=float, default=math.inf, help="seconds after which no product is begun"
    )
    add_json(parser)
    parser.add_argument("--resume", action="store_true", help="keep the rows that FILE has")
    options = parser.parse_args(arguments)
    try:
        options.products = products(options)
        records = [json.loads(path.read_text(encoding="utf-8")) for path in options.fastest_of]
        configs, options.tilings = fastest_of(records)
        options.configs = configs or CONFIGS
    except ValueError as error:
        parser.error(str(error))
    if options.resume and options.json is None:
        parser.error("--resume goes on with the FILE of --json, which is not given")
    if not options.products:
        parser.error("there is nothing to time; give --sizes, --suite or --random")
    check_timing(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the record."""
    options = parsed(arguments)
    start = time.perf_counter()
    if options.build:
        print("\n".join(build([shape for _, shape in options.products], options)))
        print(f"the rivals are built: {time.perf_counter() - start:.0f} s")
        return
    gpu = find_gpu()
    of_gpu = chip_of(gpu)
    assert of_gpu is not None
    chip = replace(of_gpu, capability=options.capability)
    rows = resumed(options.json, options.dtype, chip) if options.resume else []
    products = left(options.products, rows)
    print("\n".join(build([shape for _, shape in products], options)))
    print(f"the rivals are built: {time.perf_counter() - start:.0f} s", flush=True)
    asked = [product_of(shape, options.dtype) for _, shape in products]
    told_of = compile_ahead(list(kernels_of(chip, asked)), gpu.arch, lines=False)
    print("\n".join(told_of) or f"ours are compiled: {time.perf_counter() - start:.0f} s")

    def keep() -> None:
        found = {"dtype": options.dtype, "chip": asdict(chip), "summaries": summaries(rows)}
        if options.json:
            write(options.json, {**found, "rows": rows})

    with torch.cuda.device(gpu.context.ordinal), torch.cuda.stream(torch.cuda.Stream()):
        for suite, shape in products:
            if time.perf_counter() - start > options.budget:
                print(f"the time is up: {len(left(products, rows))} products were not timed")
                break
            rows.append(measure(suite, shape, gpu, chip, options))
            print(told(rows[-1]), flush=True)
            keep()
    for each in summaries(rows):
        print(
            f"{each['suite']}, {each['products']} products: {each['mean']:.3f} of the speed of "
            f"{each['rival']} in the mean, {each['worst']:.3f} at worst ({each['name']})"
        )
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(any(OURS in row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
