"""Time grouped products beside PyTorch's, and beside one dense product of as many rows.

    python benchmarks/grouped.py [--form forward gradient] [--random 10 --seed 1] [--quick]
        [--variants] [--major nk kn] [--dtype bfloat16] [--json FILE]

The products are those of layers of real mixtures of experts, in decode and in prefill, with even
and skewed loads; --random adds products that are drawn, for each form. Each result is checked
against float64 before it is timed. tilewise and the rivals are timed in turn, with several sets of
operands in rotation, short ones in CUDA graphs. With --variants, every choice of tiles is timed
too, and the model's choice is compared with the fastest. With --quick, a third of the products is
timed in shorter rounds, which takes less than a minute.

A product that fails is recorded as failed, and the next one is timed. The exit code is 1 if one
failed or was wrong.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from command_line import add_json, check_timing, parser_of
from timed_products import kernels_of_plans

from tilewise.bench.grouped import (
    FORWARD,
    GRADIENT,
    MAJORS,
    Case,
    Operands,
    largest_error_share,
    layer_cases,
    operands,
    random_cases,
)
from tilewise.bench.record import find_gpu
from tilewise.bench.suites import sets_to_rotate
from tilewise.bench.summary import geometric_mean
from tilewise.bench.timing import Work, in_turn
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices.gpu import Gpu
from tilewise.gemm.chip import Chip
from tilewise.gemm.grouped import hopper, model
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.plan import chip_of, plan_on
from tilewise.gemm.product import Operand
from tilewise.gemm.steps import Plan, prepare
from tilewise.matmul import matmul
from tilewise.precision import HALVES
from tilewise.provenance import write

Row = dict[str, Any]
Call = Callable[[Operands], object]
OURS, TORCH, DENSE, OUR_DENSE = "tilewise", "torch", "torch dense", "tilewise dense"
MOST_CHECKED = {True: 4, False: 24}  # groups of a result, by whether it is --quick
LEAST_DENSE = 512  # rows of a group in the mean, from which on a dense product is timed beside


def product_of(case: Case, major: str, dtype: str) -> Grouped:
    """Return the grouped product that ``grouped_matmul`` is called for."""
    n, k, rows, groups = case.n, case.k, case.rows, len(case.sizes)
    if case.form == GRADIENT:
        return Grouped(
            "k", k, n, rows, groups, dtype, dtype, "int32", Operand(1, k), Operand(n, 1),
            Operand(n, 1, k * n),
        )  # fmt: skip
    w = Operand(1, k, n * k) if major == "nk" else Operand(n, 1, n * k)
    return Grouped("m", rows, n, k, groups, dtype, dtype, "int32", Operand(k, 1), w, Operand(n, 1))


def by_plan(plan: Plan, gpu: Gpu) -> Call:
    """Return a function that enqueues a plan's launches on PyTorch's current stream."""
    launches = prepare(plan, gpu)

    def call(x: Operands) -> None:
        stream = int(torch.cuda.current_stream().cuda_stream)
        at = [each.data_ptr() for each in (x.x, x.w, x.offsets, x.d)]
        for launch in launches:
            gpu.enqueue(launch, stream, (*at, 0))

    return call


def dense(case: Case, x: Operands) -> dict[str, Callable[[], object]]:
    """Return a dense product of as many rows with the first weights, by PyTorch and by tilewise."""
    if case.form == GRADIENT or case.rows < LEAST_DENSE * len(case.sizes):
        return {}
    return {
        DENSE: partial(torch.mm, x.x, x.w[0], out=x.d),
        OUR_DENSE: partial(matmul, x.x, x.w[0], out=x.d),
    }


def variants(product: Grouped, gpu: Gpu, chip: Chip) -> dict[str, Call]:
    """Return every choice of tiles by its name, the model's choice first."""
    return {
        str(each.tiles): by_plan(hopper.plan(product, each.tiles, chip.multiprocessors), gpu)
        for each in model.ranked(product, chip)
    }


def compile_all(cases: Sequence[tuple[Case, str]], gpu: Gpu, chip: Chip, options: Any) -> None:
    """Compile the kernels that are timed, several at a time."""
    plans = []
    for case, major in cases:
        product = product_of(case, major, options.dtype)
        plans.append(plan_on(product, chip))
        if options.variants:
            ranked = model.ranked(product, chip)
            plans += [hopper.plan(product, x.tiles, chip.multiprocessors) for x in ranked]
    kernels = kernels_of_plans(plans)
    start = time.perf_counter()
    print("\n".join(compile_ahead(kernels, gpu.arch, lines=False)))
    print(f"{len(kernels)} kernels are compiled: {time.perf_counter() - start:.0f} s", flush=True)


def measure(case: Case, major: str, gpu: Gpu, chip: Chip, options: Any) -> Row:
    """Time one product, and return its row of the record; times are in seconds."""
    generator = torch.Generator("cuda").manual_seed(0)
    first = operands(case, options.dtype, major, generator)
    count = sets_to_rotate(first.bytes, gpu.l2_bytes)
    sets = [first, *(operands(case, options.dtype, major, generator) for _ in range(count - 1))]
    product = product_of(case, major, options.dtype)
    plan = plan_on(product, chip)
    row: Row = {
        "name": case.name, "load": case.load, "form": case.form, "major": major,
        "groups": len(case.sizes), "rows": case.rows, "n": case.n, "k": case.k,
        "largest": max(case.sizes), "empty": case.sizes.count(0), "chosen": plan.chosen,
        "why": plan.why,
    }  # fmt: skip
    calls: dict[str, Call] = {OURS: Operands.ours}
    tried = variants(product, gpu, chip) if options.variants else {}
    most = MOST_CHECKED[options.quick]
    errors = {}
    for name, call in {**calls, **tried}.items():
        first.d.fill_(math.nan)
        call(first)
        errors[name] = largest_error_share(case, first, first.d, most if name == OURS else 2)
    row["error_share"] = {x: e if math.isfinite(e) else None for x, e in errors.items()}
    row["wrong"] = [name for name, error in errors.items() if not error <= 1]
    works: dict[str, list[Work]] = {
        name: [partial(call, x) for x in sets] for name, call in calls.items()
    }
    try:
        found = torch._grouped_mm(first.x, first.w, offs=first.offsets)
        row["torch_error_share"] = largest_error_share(case, first, found, 2)
        del found
        works[TORCH] = [x.torch for x in sets]
    except Exception as error:
        row["torch_failed"] = str(error)
    for x in sets:
        for name, work in dense(case, x).items():
            works.setdefault(name, []).append(work)
    for calls_of in works.values():
        calls_of[0]()
    timed = in_turn(works, options.rounds, options.seconds)
    row["seconds_of_rounds"], row["in_graph"] = timed.seconds, timed.in_graph
    once = {name: median(times) for name, times in timed.seconds.items()}
    row["seconds"] = once
    row["tflops"] = {
        name: 1e-12 * case.flops / seconds for name, seconds in once.items()
    }  # fmt: skip
    row["ratios"] = {name: seconds / once[OURS] for name, seconds in once.items() if name != OURS}
    row["bandwidth"] = 1e-12 * moved(case, first) / once[OURS]
    if tried:
        each = {name: [partial(call, x) for x in sets] for name, call in tried.items()}
        found_of = in_turn(each, options.variant_rounds, options.seconds / 4)
        times = {name: min(rounds) for name, rounds in found_of.seconds.items()}
        row["variants"] = dict(sorted(times.items(), key=lambda x: x[1]))
        row["modelled"] = {str(x.tiles): x.seconds for x in model.ranked(product, chip)}
    return row


def moved(case: Case, x: Operands) -> float:
    """Return the bytes of x, of the weights of groups that are not empty, and of the result."""
    active = sum(size > 0 for size in case.sizes)
    matrices = active * case.n * case.k * x.d.element_size()
    return float(case.rows * (case.n + case.k) * x.d.element_size() + matrices)


def told(row: Row) -> str:
    """Return a row in words: times in µs, rates in TFLOP/s and TB/s."""
    head = f"{row['form']} {row['name']}, {row['load']}, {row['major']}:"
    if "failed" in row:
        return f"{head} FAILED: {row['failed']}"
    speeds = ", ".join(
        f"{name} {speed:.0f} TFLOP/s"
        + (f" ({row['ratios'][name]:.3f})" if name in row["ratios"] else "")
        for name, speed in row["tflops"].items()
    )  # fmt: skip
    lines = [
        head,
        f"    {row['seconds'][OURS] * 1e6:.1f} µs, {row['bandwidth']:.2f} TB/s; {speeds}",
    ]
    lines.append(f"    by {row['chosen']}")
    lines += [f"    WRONG: {name}" for name in row["wrong"]]
    if "variants" in row:
        best = list(row["variants"].items())[:6]
        took = row["variants"].get(row["chosen"].removeprefix("the grouped Hopper kernel, "))
        ahead = (
            "" if took is None else f"; the chosen one takes {took / best[0][1]:.3f} of the best"
        )
        lines.append(
            "    " + "; ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in best) + ahead
        )
    return "\n".join(lines)


def summaries(rows: Sequence[Row]) -> list[Row]:
    """Return the geometric mean and the worst of the ratios to each rival, by the form."""
    found = []
    for form in (FORWARD, GRADIENT):
        for rival in (TORCH, DENSE, OUR_DENSE):
            ratios = {
                f"{row['name']}, {row['load']}, {row['major']}": row["ratios"][rival]
                for row in rows
                if row["form"] == form and rival in row.get("ratios", {})
            }
            if ratios:
                worst = min(ratios, key=ratios.__getitem__)
                found.append({
                    "form": form, "rival": rival, "products": len(ratios),
                    "geometric_mean": geometric_mean(ratios.values()), "worst": ratios[worst],
                    "worst_product": worst,
                })  # fmt: skip
    losses = [
        row["seconds"][OURS] / min(row["variants"].values()) for row in rows if "variants" in row
    ]
    if losses:
        found.append({
            "form": "all", "rival": "the best of all tiles", "products": len(losses),
            "geometric_mean": 1 / geometric_mean(losses), "worst": 1 / max(losses),
            "worst_product": "",
        })  # fmt: skip
    return found


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--form", nargs="+", choices=(FORWARD, GRADIENT), default=[FORWARD])
    parser.add_argument("--random", type=int, default=0, metavar="N", help="add N random products")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--major", nargs="+", choices=MAJORS, default=["nk"], help="of the weights")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name has it")
    parser.add_argument("--dtype", choices=HALVES, default="bfloat16")
    parser.add_argument("--quick", action="store_true", help="a third, in short rounds")
    parser.add_argument("--variants", action="store_true", help="time every choice of tiles too")
    parser.add_argument("--variant-rounds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="of a round of one contender")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for all of it")
    add_json(parser)
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.006 if options.quick else 0.03)
    check_timing(parser, options)
    return options


def asked(options: argparse.Namespace) -> list[tuple[Case, str]]:
    """Return the cases that the options name, each with the layout of its weights."""
    cases = [case for form in options.form for case in layer_cases(form)]
    if options.quick:  # every third, which are decode and prefill, even and skewed, in turn
        cases = [case for i, case in enumerate(cases) if i % 3 == i // 3 % 3]
    if options.random:
        drawn = [random_cases(options.random, options.seed, form) for form in options.form]
        cases += [case for of_form in drawn for case in of_form]
    cases = [case for case in cases if options.only in str(case)]
    return [
        (case, major)
        for case in cases
        for major in (options.major if case.form == FORWARD else options.major[:1])
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the record."""
    options = parsed(arguments)
    start = time.perf_counter()
    gpu = find_gpu()
    chip = chip_of(gpu)
    assert chip is not None
    cases = asked(options)
    rows: list[Row] = []
    with torch.cuda.device(gpu.context.ordinal), torch.cuda.stream(torch.cuda.Stream()):
        compile_all(cases, gpu, chip, options)
        for case, major in cases:
            if time.perf_counter() - start > options.budget:
                print(f"the time is up: {len(cases) - len(rows)} products were not timed")
                break
            try:
                row = measure(case, major, gpu, chip, options)
            except Exception as error:
                traceback.print_exc()
                row = {
                    "name": case.name, "load": case.load, "form": case.form, "major": major,
                    "failed": f"{type(error).__name__}: {error}",
                }  # fmt: skip
                torch.cuda.empty_cache()
            rows.append(row)
            print(told(row), flush=True)
            if options.json:
                write(options.json, {
                    "dtype": options.dtype, "summaries": summaries(rows), "rows": rows,
                })  # fmt: skip
    for each in summaries(rows):
        print(
            f"{each['form']}, {each['products']} products: {each['geometric_mean']:.3f} of the "
            f"speed of {each['rival']} in the geometric mean, {each['worst']:.3f} at worst "
            f"({each['worst_product']})"
        )
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(any("failed" in row or row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
