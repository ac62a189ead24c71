"""Check the rungs for 16-bit matrices on a GPU, and time them beside PyTorch's product.

    python benchmarks/tensor_core_rungs.py [--sizes 2048,4096,8192] [--rounds 5] [--sweep]
        [--only persistent] [--beside NAME=FILE.so:FUNCTION] [--json FILE]

Each rung, or those that --only names, is checked in each dtype with odd sizes and leading
dimensions and with whole tiles. Then every rung that the GPU can run is timed in bfloat16 in turn
with PyTorch's product, in another order each round; with --sweep the rung multistage is timed in
many tilings, too. Each is checked at the size before it is timed. A speed is in TFLOP/s, and a
share of the ceiling: of the rate that the tensor cores reach in a probe of the same run. The exit
code is 1 if any result is wrong.

--beside takes a function of a shared library, and times it at the largest size, at least 4096, in
turn with all rungs, on CUDA's default stream:

    extern "C" void FUNCTION(int m, int n, int k, const void* a, const void* b, void* c);

It is given A row by row, and B and C column by column.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from command_line import add_json, add_timing, parser_of
from timed_products import operand_sets

from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.record import find_gpu
from tilewise.bench.rungs import place
from tilewise.bench.suites import Shape
from tilewise.bench.timing import in_turn
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Macros, Sizes, by_tiles, ring_bytes
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import Rung, rung, rungs_of
from tilewise.launch import Launch
from tilewise.lens.tensor_cores import tensor_core_flops
from tilewise.places import Place
from tilewise.precision import HALVES
from tilewise.provenance import write

DTYPE = "bfloat16"
CHECKED = (
    (1, 1, 1), (129, 257, 65), (200, 136, 72), (333, 77, 1001), (512, 768, 256), (64, 64, 0),
    (513, 2049, 129), (2312, 1544, 328),  # the last: more tiles than clusters at once
)  # fmt: skip
# BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, STAGES, BLOCKS, and GROUP where it is not 8.
SWEEP = (
    (128, 128, 32, 64, 64, 3, 2),
    (128, 128, 32, 64, 64, 4, 2),
    (128, 128, 32, 64, 64, 5, 2),
    (128, 128, 64, 64, 64, 3, 2),
    (128, 256, 32, 64, 64, 3, 1),
    (128, 256, 32, 64, 64, 4, 1),
    (128, 256, 64, 64, 64, 3, 1),
    (128, 256, 64, 64, 64, 4, 1),
    (256, 128, 32, 64, 64, 4, 1),
    (256, 128, 64, 64, 64, 3, 1),
    (256, 128, 64, 64, 64, 4, 1),
    (128, 256, 32, 64, 64, 6, 1),
    (128, 256, 32, 64, 64, 4, 1, 4),
    (128, 256, 32, 64, 64, 4, 1, 16),
    (128, 128, 32, 64, 64, 4, 2, 16),
    (64, 64, 64, 32, 32, 4, 3),
)
FIELDS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "WARP_M", "WARP_N", "STAGES", "BLOCKS", "GROUP")

Call = Callable[[Operands], None]
Sweep = Sequence[tuple[int, ...]]
GRAPHS_UP_TO = 4096  # launches of smaller products may be timed in a graph, where theirs can't be


def checked(gpu: Gpu, rungs: Sequence[Rung]) -> Iterator[str]:
    """Check the rungs, and yield what is wrong with their results."""
    rng = np.random.default_rng(0)
    for each in rungs:
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
    """Return a function that enqueues a rung's product of size n, and the resources it takes."""
    tile = each.tile_for(n, n, n, DTYPE)
    kernel: Kernel = each.kernel(DTYPE, tile)
    if macros is None:
        grid, block = each.geometry(n, n, tile, DTYPE, gpu.multiprocessors)
        shared = each.shared(tile, DTYPE)
    else:
        kernel = kernel.with_macros(macros)
        grid, block = by_tiles(lambda tile, dtype: macros)(n, n, 1, DTYPE)
        shared = ring_bytes(macros)
    trailing = each.trailing(Sizes(n, n, n, n, n, n), tile, DTYPE)
    args = (n, n, n, 1.0, Place(0), n, Place(1), n, 0.0, Place(2), n, *trailing)
    compiled = kernel.compile(gpu.arch, lines=False)
    prepared = gpu.prepare(compiled, Launch(grid, block, args, shared))

    def call(x: Operands) -> None:
        stream = torch.cuda.current_stream().cuda_stream  # another one while a graph is captured
        gpu.enqueue(prepared, stream, [y.data_ptr() for y in (x.a, x.b, x.d)])

    return call, {**compiled.resources.to_dict(), "dynamic_bytes": shared, "threads": block[0]}


def contenders(
    gpu: Gpu, n: int, rungs: Sequence[Rung], sweep: Sweep
) -> Iterator[tuple[str, Call, dict[str, Any]]]:
    """Yield the rungs, and multistage with each tiling of the sweep: name, call, resources."""
    for each in rungs:
        if each.runs_on(gpu.arch):
            yield each.name, *call_of(gpu, each, n)
    for values in sweep:
        values = (*values, 8)[: len(FIELDS)]
        macros = dict(zip(FIELDS, values, strict=True))
        name = "multistage {}x{}x{} of {}x{}, {} stages, {} blocks, groups of {}".format(*values)
        try:
            yield name, *call_of(gpu, rung("multistage"), n, macros)
        except (TilewiseError, ValueError) as error:
            print(f"{name}: {error}")


class Beside:
    """A function of a shared library, as ``NAME=FILE.so:FUNCTION`` names it.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is named otherwise.
    OSError, AttributeError
        If the library can't be loaded, or has no such function.
    """

    def __init__(self, text: str) -> None:
        self.name, _, rest = text.partition("=")
        file, _, function = rest.rpartition(":")
        if not (self.name and file and function):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.so:FUNCTION")
        self.call = getattr(ctypes.CDLL(str(Path(file).resolve())), function)
        self.call.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 3
        self.call.restype = None

    def product(self, x: Operands) -> tuple[Callable[[], None], Any]:
        """Return a function that enqueues the product on the default stream, and its D."""
        b, d = x.b.T.contiguous(), torch.full_like(x.d, float("nan"))
        (m, k), n = x.a.shape, b.shape[0]

        def call() -> None:
            self.call(m, n, k, x.a.data_ptr(), b.data_ptr(), d.data_ptr())

        return call, d.view(n, m).T


def timed_beside(
    gpu: Gpu, n: int, rungs: Sequence[Rung], besides: Sequence[Beside], rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Time rungs, functions and PyTorch on the default stream, and yield a row for each."""
    with torch.cuda.stream(torch.cuda.default_stream()):
        x = operands(Shape(n, n, n), DTYPE, torch.Generator("cuda").manual_seed(n))
        products = {each.name: each.product(x) for each in besides}
        for name, call, _ in contenders(gpu, n, rungs, ()):
            products[name] = partial(call, x), x.d
        products["vendor"] = x.torch, x.d
        rows: dict[str, dict[str, Any]] = {}
        for name, (work, d) in products.items():
            d.fill_(float("nan"))
            work()
            torch.cuda.synchronize()
            share = error_share(x.a, x.b, d)
            rows[name] = {"kernel": name, "n": n, "dtype": DTYPE, "error_share": share}
        found = in_turn(
            {name: [work] for name, (work, _) in products.items()}, rounds, seconds, shuffled=True
        )
    yield from with_times(rows, found.seconds)


def timed(
    gpu: Gpu, n: int, rungs: Sequence[Rung], sweep: Sweep, rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Time the contenders at size n in turn, and yield a row for each, the fastest first."""
    sets = operand_sets(Shape(n, n, n), DTYPE, gpu, n)
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[str, Call] = {"vendor": Operands.torch}
    for name, call, taken in contenders(gpu, n, rungs, sweep):
        first = sets[0]
        first.d.fill_(float("nan"))
        call(first)
        share = error_share(first.a, first.b, first.d)
        rows[name] = {"kernel": name, "n": n, "dtype": DTYPE, "error_share": share, **taken}
        if share <= 1:
            calls[name] = call
    Operands.torch(sets[0])
    works = {name: [lambda call=call, x=x: call(x) for x in sets] for name, call in calls.items()}
    found = in_turn(works, rounds, seconds, shuffled=True)
    rows["vendor"] = {"kernel": "vendor", "n": n, "dtype": DTYPE, "error_share": 0.0}
    yield from with_times(rows, found.seconds)


def with_times(
    rows: dict[str, dict[str, Any]], seconds: dict[str, list[float]]
) -> list[dict[str, Any]]:
    """Return the rows with seconds, TFLOP/s and the ratio to PyTorch, the fastest first."""
    vendor = median(seconds["vendor"])
    for name, rounds in seconds.items():
        once, n = median(rounds), rows[name]["n"]
        rows[name] |= {
            "seconds": once, "seconds_of_rounds": rounds,
            "tflops": 2e-12 * n**3 / once, "ratio": vendor / once,
        }  # fmt: skip
    return sorted(rows.values(), key=lambda row: -row.get("tflops", 0.0))


def told(row: dict[str, Any], ceiling: float | None) -> str:
    """Return a row in words; ``ceiling`` is in FLOP/s."""
    said = "WRONG" if row["error_share"] > 1 else f"{row['tflops']:7.1f} TFLOP/s"
    if "tflops" in row:
        if ceiling:
            said += f", {1e12 * row['tflops'] / ceiling:.3f} of the ceiling"
        said += f", {row['ratio']:.3f} of the vendor's"
    taken = f", {row['registers']} registers" if "registers" in row else ""
    return f"{row['n']:6,} {said}{taken}  {row['kernel']}"


def main() -> None:
    """Check, time, print and write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="2048,4096,8192", metavar="N,N")
    parser.add_argument("--only", metavar="NAME,NAME", help="these rungs alone")
    parser.add_argument("--sweep", action="store_true", help="time many tilings of multistage too")
    parser.add_argument(
        "--beside", type=Beside, action="append", default=[], metavar="NAME=FILE.so:FUNCTION"
    )
    add_timing(parser, rounds=5, seconds=0.03)
    add_json(parser)
    options = parser.parse_args()
    sizes = sorted(map(int, options.sizes.split(",")))
    if options.beside and sizes[-1] < GRAPHS_UP_TO:
        parser.error(f"--beside takes a size of {GRAPHS_UP_TO:,} or more")
    rungs = rungs_of(DTYPE)
    if options.only is not None:
        names = options.only.split(",")
        if unknown := set(names).difference(each.name for each in rungs):
            known = ", ".join(each.name for each in rungs)
            parser.error(f"--only: no such rung as {min(unknown)!r}; there are {known}")
        rungs = tuple(each for each in rungs if each.name in names)
    gpu = find_gpu()
    start = time.perf_counter()
    wrong = list(checked(gpu, rungs))
    print("\n".join(wrong) or "every result on odd sizes is right", flush=True)
    rows: list[dict[str, Any]] = []
    with place(gpu):
        ceiling = tensor_core_flops(gpu, DTYPE, 0.5)
        times = options.rounds, options.seconds
        for n in sizes:
            for row in timed(gpu, n, rungs, SWEEP if options.sweep else (), *times):
                rows.append(row)
                print(told(row, ceiling), flush=True)
        beside = []
        if options.beside:
            print("on the default stream, beside others' kernels:")
            for row in timed_beside(gpu, sizes[-1], rungs, options.beside, *times):
                beside.append(row)
                print(told(row, ceiling), flush=True)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        write(options.json, {"wrong": wrong, "ceiling": ceiling, "rows": rows, "beside": beside})
    sys.exit(bool(wrong) or any(row["error_share"] > 1 for row in (*rows, *beside)))


if __name__ == "__main__":
    main()
