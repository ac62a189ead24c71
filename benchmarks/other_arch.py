"""Check and time the kernels for older GPUs on a newer one, beside PyTorch's product.

    python benchmarks/other_arch.py [--arch sm_80] [--dtype float64] [--sizes 1024,4096]
        [--layouts NN,TN] [--random COUNT] [--ways N] [--seconds 0.03] [--json FILE]

Kernels are planned and compiled for the other architecture, and the driver makes machine code of
their PTX for the GPU at hand. First, every kernel with tensor cores for the dtype is checked in
every layout and alignment, with k undivided and in parts; then random products as they are planned,
with batches, strides, alpha and beta. Then products are timed: their times are those of the code on
the GPU at hand, not those on the other GPU. (In float64, a multiprocessor of a Hopper GPU does 64
multiply-adds a clock by an ``mma`` of 8 x 8 x 4, as that of an A100 does, and 128 by larger ones.)
With --ways, other ways to compute each product are timed beside the planned one. The exit code is 1
if any result is wrong.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from command_line import add_json, parser_of
from timed_products import kernels_of_plans

from tilewise.bench.suites import COLUMNS, ROWS, Random, Shape
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.devices.limits import compute_capability
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt import kernel as by_tiles
from tilewise.gemm.families.simt.readings import readings
from tilewise.gemm.families.simt.tiles import tiles_for
from tilewise.gemm.family import Offer
from tilewise.gemm.plan import best, chip_of, offers, plan_on
from tilewise.gemm.product import REAL, Operand, Product, offset
from tilewise.gemm.steps import Plan
from tilewise.numbers import check
from tilewise.provenance import write

SIZES, LAYOUTS = "1024,2048,4096,8192", "NN,NT,TN"
RANDOM = 40  # products that are checked as they are planned
LARGEST = 1500  # rows, columns or k of those
ROUNDS = 5
ORIGIN = 0x1000  # an address that is as aligned as that of new memory

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A product that is checked.

    Attributes
    ----------
    name : str
    product : Product
    plan : Plan
    flat, views : mapping of str to array
        Of A, B and D: the memory, and the matrices in it, (batch, rows, columns). C is D.
    """

    name: str
    product: Product
    plan: Plan
    flat: Mapping[str, Array]
    views: Mapping[str, Array]

    def wrong(self, device: Device, arch: str) -> str:
        """Launch the plan compiled for ``arch``; return what is wrong with D, or nothing."""
        there = {name: device.array(flat) for name, flat in self.flat.items()}
        at = {name: x.pointer + getattr(self.product, name).offset for name, x in there.items()}
        workspace = device.empty((max(self.plan.workspace, 1),), np.uint8)
        c = at["d"] if self.product.c is not None else 0
        launch(self.plan, device, arch, (at["a"], at["b"], c, at["d"], workspace.pointer))
        found = there["d"].to_numpy()
        before = self.views["d"]
        begin = self.product.d.offset // found.itemsize
        after = np.lib.stride_tricks.as_strided(found[begin:], before.shape, before.strides)
        x = self.product
        for a, b, old, new in zip(self.views["a"], self.views["b"], before, after, strict=True):
            verdict = check(new, a, b, old if x.beta else None, x.alpha, x.beta)
            if not verdict.correct:
                return f"{self.name}: {verdict}"
        after[...] = before
        return "" if np.array_equal(found, self.flat["d"]) else f"{self.name}: it wrote beyond D"


def launch(plan: Plan, device: Device, arch: str, addresses: Sequence[int]) -> None:
    """Launch a plan's kernels, compiled for another architecture, on the default stream."""
    for step in plan.steps:
        compiled = step.kernel.compile(arch, lines=not isinstance(device, Gpu))
        if isinstance(device, Gpu):
            device.enqueue(device.prepare(compiled, step.launch), 0, addresses)
        else:
            device.launch(compiled, replace(step.launch.filled(addresses, no_map), counts=False))


def no_map(*given: Any) -> Any:
    """Refuse a tensor map: only Hopper GPUs are given any."""
    raise TypeError(f"a launch for another GPU has a tensor map: {given}")


def made(
    sizes: tuple[int, int, int], batch: int, dtype: str, by_rows: Mapping[str, bool],
    gaps: Mapping[str, int], ahead: Mapping[str, int], seed: int,
) -> tuple[dict[str, Operand], dict[str, Array], dict[str, Array]]:  # fmt: skip
    """Return operands, memory and matrices of random normal numbers, among others."""
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    operands, flats, views = {}, {}, {}
    for name, (rows, columns) in {"a": (m, k), "b": (k, n), "d": (m, n)}.items():
        lines, width = (rows, columns) if by_rows[name] else (columns, rows)
        pitch = width + gaps[name]
        flat = rng.standard_normal(ahead[name] + batch * lines * pitch).astype(dtype)
        item = flat.itemsize
        strides = (pitch, 1) if by_rows[name] else (1, pitch)
        views[name] = np.lib.stride_tricks.as_strided(
            flat[ahead[name] :], (batch, rows, columns),
            (lines * pitch * item, strides[0] * item, strides[1] * item),
        )  # fmt: skip
        flats[name] = flat
        at = offset(ORIGIN + ahead[name] * item)
        operands[name] = Operand(*strides, lines * pitch if batch > 1 else 0, at)
    return operands, flats, views


def of_tiles(chip: Chip, dtype: str) -> Iterator[Case]:
    """Yield a case for each kernel with tensor cores, and each division of k."""
    if dtype != "float64" or not chip.has_float64_tensor_cores:
        return
    m, n, k = 202, 266, 149  # an MN-major matrix is copied by 16 bytes where its rows are even
    for tiles in tiles_for(dtype, chip):
        for a, b, gap_a, gap_b in combinations((True, False), (True, False), (0, 1), (0, 1)):
            if (a and gap_a) or (b and gap_b):  # K-major matrices are read in one way
                continue
            by_rows = {"a": a, "b": not b, "d": True}
            gaps = {"a": gap_a, "b": gap_b, "d": 0}
            operands, flat, views = made((m, n, k), 1, dtype, by_rows, gaps, _none(), 1)
            of_a, of_b, of_d = (operands[name] for name in "abd")
            product = Product(m, n, k, 1, dtype, dtype, 1.0, 0.0, of_a, of_b, None, of_d)
            reading, *_ = readings(product)
            for parts in (1, 2):
                choice = by_tiles.Choice(0.0, reading, tiles, parts)
                words = (
                    f"{tiles}, A {_major(a)}, B {_major(b)}, gaps {gap_a} {gap_b}, {parts} parts"
                )
                yield Case(words, product, by_tiles.plan(choice, chip, False), flat, views)


def _none() -> dict[str, int]:
    return dict.fromkeys("abd", 0)


def _major(is_k_major: bool) -> str:
    return "K-major" if is_k_major else "MN-major"


def planned(
    chip: Chip, dtype: str, count: int, seed: int = 0, largest: int = LARGEST
) -> Iterator[Case]:
    """Yield random products of sizes up to ``largest``, as they are planned for a GPU."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        m, n, k = (int(x) for x in np.exp(rng.uniform(0, np.log(largest), 3)))
        batch = int(rng.choice([1, 1, 3]))
        by_rows = {name: bool(rng.integers(2)) for name in "abd"}
        gaps = {name: int(rng.choice([0, 0, 1, 4])) for name in "abd"}
        ahead = {name: int(rng.choice([0, 0, 1])) for name in "abd"}
        operands, flat, views = made((m, n, k), batch, dtype, by_rows, gaps, ahead, index)
        alpha, beta = float(rng.choice([1.0, 1.0, -1.5, 0.0])), float(rng.choice([0.0, 0.5]))
        of_a, of_b, of_d = (operands[name] for name in "abd")
        product = Product(
            m, n, k, batch, dtype, dtype, alpha, beta, of_a, of_b, of_d if beta else None, of_d
        )
        plan = plan_on(product, chip)
        name = f"{batch} of {m} x {n} x {k}, alpha {alpha}, beta {beta}, by {plan.chosen}"
        yield Case(name, product, plan, flat, views)


def shapes_of(sizes: str, layouts: str, count: int) -> list[Shape]:
    """Return the products that are timed: squares, and random ones, half of them multiples of 8."""
    stored = {"N": ROWS, "T": COLUMNS}
    found = [
        Shape(int(n), int(n), int(n), *(stored[letter] for letter in layout))
        for n, layout in combinations(sizes.split(","), layouts.split(","))
    ]
    for multiple in (8, 1):
        if half := (count + (multiple == 8)) // 2:
            found += Random(half, 1, multiple).shapes()
    return found


def ways_of(product: Product, chip: Chip, most: int) -> list[Offer]:
    """Return the offer that is planned and up to ``most`` others, the best of other tiles first.

    Of those others that should take less than twice as long.
    """
    first, *others = [best(product, chip), *offers(product, chip)]
    near = [x for x in others if x.seconds < 2 * first.seconds]
    left = [x for x in near if (x.family, x.choice) != (first.family, first.choice)]
    by_tiles = {(x.family, x.choice.get("tiles")): x for x in reversed(left)}
    of_tiles = sorted(by_tiles.values(), key=lambda x: x.seconds)
    return [first, *of_tiles, *(x for x in left if x not in of_tiles)][: 1 + most]


def timed(
    gpu: Gpu, arch: str, chip: Chip, dtype: str, shape: Shape, ways: int, seconds: float
) -> dict[str, Any]:
    """Return a row: the other architecture's plan in turn with PyTorch's product and this GPU's.

    ``ways`` more ways to compute the product by the other architecture's code are timed too.
    """
    import torch

    from tilewise.bench.products import error_share, operands
    from tilewise.bench.record import product_of
    from tilewise.bench.timing import in_turn

    x = operands(shape, dtype, torch.Generator("cuda").manual_seed(shape.m))
    every = ways_of(product_of(shape, dtype), chip, ways)
    works: dict[str, list[Callable[[], None]]] = {}
    share = 0.0
    for index, offer in enumerate(every):
        plan = offer.make()
        prepared = [
            gpu.prepare(step.kernel.compile(arch, lines=False), step.launch) for step in plan.steps
        ]
        workspace = torch.empty(max(plan.workspace, 1), dtype=torch.uint8, device="cuda")

        def work(prepared: Any = prepared, workspace: Any = workspace) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            at = [x.a.data_ptr(), x.b.data_ptr(), 0, x.d.data_ptr(), workspace.data_ptr()]
            for each in prepared:
                gpu.enqueue(each, stream, at)

        x.d.fill_(float("nan"))
        work()
        if not index:
            share = error_share(x.a, x.b, x.d)
        works[f"way {index}"] = [work]
    x.torch()
    x.ours()
    found = in_turn({**works, "torch": [x.torch], "ours": [x.ours]}, ROUNDS, seconds).seconds
    times = {name: median(each) for name, each in found.items()}
    made = [
        {
            "family": offer.family, "choice": dict(offer.choice), "words": offer.words,
            "expected": offer.seconds, "seconds": times[name],
        }
        for offer, name in zip(every, works, strict=True)
    ]  # fmt: skip
    return {
        "name": shape.name, "layout": shape.layout, "dtype": dtype, "ways": made,
        "torch": times["torch"], "ours": times["ours"], "flops": shape.flops,
        "error_share": share,
    }  # fmt: skip


def told(row: Mapping[str, Any], arch: str) -> str:
    """Return a row in words."""
    chosen, *others = row["ways"]
    rate = 1e-12 * row["flops"] / chosen["seconds"]
    said = "WRONG" if row["error_share"] > 1 else f"{rate:.2f} TFLOP/s"
    ratio, own = (row[name] / chosen["seconds"] for name in ("torch", "ours"))
    lines = [
        f"{row['name']} {row['layout']}: {said} by {arch}'s code, {ratio:.3f} of PyTorch's speed, "
        f"{own:.3f} of this GPU's own; {_way(chosen)}"
    ]
    if others:
        regret = chosen["seconds"] / min(x["seconds"] for x in row["ways"])
        lines[0] += f"; regret {regret:.3f}"
    return "\n".join([*lines, *(f"    {_way(x)}" for x in others)])


def _way(x: Mapping[str, Any]) -> str:
    times = f"{1e6 * x['seconds']:.1f} µs where {1e6 * x['expected']:.1f} were expected"
    return f"{times}, {x['family']} {x['words']}"


def main() -> None:
    """Check, time and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--arch", default="sm_80", help="the architecture to compile for")
    parser.add_argument("--dtype", choices=tuple(REAL), default="float64")
    parser.add_argument("--sizes", default=SIZES, metavar="N,N", help="that are timed")
    parser.add_argument("--layouts", default=LAYOUTS, metavar="NN,NT")
    parser.add_argument(
        "--random", type=int, default=0, metavar="COUNT", help="random products to add"
    )
    parser.add_argument("--ways", type=int, default=0, help="other ways of each product to time")
    parser.add_argument("--seconds", type=float, default=0.03, help="of a round of one contender")
    add_json(parser)
    options = parser.parse_args()
    import torch

    from tilewise.bench.record import find_gpu
    from tilewise.bench.rungs import place

    start = time.perf_counter()
    gpu, arch, dtype = find_gpu(), options.arch, options.dtype
    own = chip_of(gpu)
    if own is None:
        parser.error(f"{gpu.description} is older than compute capability 8.0")
    if compute_capability(arch) >= own.capability:
        parser.error(f"--arch {arch} is not before this GPU's {gpu.arch}")
    chip = replace(own, name=f"{own.name}, as {arch}", capability=compute_capability(arch))
    cases = [*of_tiles(chip, dtype), *planned(chip, dtype, RANDOM)]
    kernels = kernels_of_plans(case.plan for case in cases)
    failures = compile_ahead(kernels, arch, lines=False)
    print(f"{len(kernels)} kernels for {arch}, {time.perf_counter() - start:.0f} s", *failures)
    wrong = [words for case in cases if (words := case.wrong(gpu, arch))]
    print("\n".join(wrong) or f"all of {len(cases)} products are right", flush=True)
    rows = []
    with place(gpu):
        for shape in shapes_of(options.sizes, options.layouts, options.random):
            rows.append(timed(gpu, arch, chip, dtype, shape, options.ways, options.seconds))
            print(told(rows[-1], arch), flush=True)
            torch.cuda.empty_cache()
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json:
        write(options.json, {"arch": arch, "wrong": wrong, "rows": rows})
    sys.exit(bool(wrong or failures) or any(row["error_share"] > 1 for row in rows))


if __name__ == "__main__":
    main()
