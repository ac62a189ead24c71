"""The ladder's rungs by tensor cores on a GPU: right at odd shapes, and timed beside PyTorch's.

    python benchmarks/tensor_cores.py [--sizes 2048,4096,8192] [--kernels warpgroup,persistent]
        [--dtype float16] [--rounds 5] [--seconds 0.1] [--no-check]
        [--beside NAME=FILE.so:FUNCTION] [--json FILE]

First every rung computes products of odd sizes, pitches and scalars, in both 16-bit types, each of
which is checked element by element. Then all rungs, tilewise.matmul and PyTorch's matmul are timed
in turn at each size, as `tilewise climb` times them, each result checked too. Prints TFLOP/s, the
share of the tensor cores' measured ceiling and of 880 TFLOP/s (that of an H200 in bfloat16, in the
steady state), and the speed by PyTorch's. Exits with 1 if a result is wrong.

With --beside, a shared library's function is timed at the largest size in turn with all of them, on
CUDA's default stream:

    extern "C" void FUNCTION(int m, int n, int k, const void* a, const void* b, void* c);

It is given A row by row and B and C column by column, and its result is checked too.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from tilewise.bench.ceilings import tensor_core_flops
from tilewise.bench.climb import OURS, Settings
from tilewise.bench.contenders import Contenders
from tilewise.bench.products import error_share
from tilewise.bench.record import find_gpu
from tilewise.bench.rungs import Bench, place
from tilewise.bench.timing import in_turn
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.ladder.run import run
from tilewise.ladder.rungs import RUNGS
from tilewise.precision import HALVES, dtype_of
from tilewise.provenance import write

RUNGS_16 = tuple(each.name for each in RUNGS if each.dtypes == HALVES)
ALL = (*RUNGS_16, OURS)
SIZES = "2048,4096,8192"
CEILING = 880.0  # TFLOP/s
CEILING_SECONDS = 0.5
# Sizes of less than a tile, whole ones, several, and rings that go round; then pitches beyond the
# width: 16-byte aligned, and not.
ODD = (
    (1, 1, 1), (1, 257, 8), (65, 31, 40), (127, 255, 63), (128, 256, 64), (129, 257, 65),
    (256, 512, 320), (257, 1000, 777), (1000, 264, 1032), (513, 2049, 129), (2048, 1536, 8),
)  # fmt: skip
PADS = ((0, 0, 0), (8, 16, 8), (1, 0, 0), (0, 3, 1))
SCALARS = ((1.0, 0.0), (-0.5, 2.0), (0.0, 0.5))

Product = Callable[[int, int, int, int, int, int], None]


class Beside(NamedTuple):
    """A function of a shared library."""

    name: str
    call: Product


def odd_products(kernels: Sequence[str]) -> Iterator[tuple[str, str, Any, Any, Any, float, float]]:
    """What is checked: a rung, what it is to say of it, A, B and C, alpha and beta."""
    rng = np.random.default_rng(0)
    scalars = itertools.cycle(SCALARS)
    for dtype, (m, n, k), pads in itertools.product(HALVES, ODD, PADS):
        kind = dtype_of(dtype)
        a, b, c = (
            rng.standard_normal((rows, width + pad)).astype(kind)[:, :width]
            for rows, width, pad in zip((m, k, m), (k, n, n), pads, strict=True)
        )
        alpha, beta = next(scalars)
        said = f"{m} x {n} x {k} {dtype}, pitches {pads} wider, alpha {alpha:g}, beta {beta:g}"
        for kernel in kernels:
            yield kernel, said, a, b, c if beta else None, alpha, beta


def check_odd(kernels: Sequence[str], device: Device) -> Iterator[str]:
    """Compute products of odd shapes; yield for each an empty text, or what is wrong with it."""
    for kernel, said, a, b, c, alpha, beta in odd_products(kernels):
        try:
            found = run(kernel, a, b, c, alpha=alpha, beta=beta, device=device, repeats=0)
        except TilewiseError as error:
            yield f"{kernel} {said}: {error}"
        else:
            yield "" if found.correct else f"{kernel} {said}: {found.check}"


def library(text: str) -> Beside:
    """Read what --beside takes."""
    name, _, rest = text.partition("=")
    file, _, function = rest.rpartition(":")
    if not (name and file and function):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.so:FUNCTION")
    call = getattr(ctypes.CDLL(str(Path(file).resolve())), function)
    call.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 3
    call.restype = None
    return Beside(name, call)


def timed_beside(
    besides: Sequence[Beside], settings: Settings, dtype: str, gpu: Gpu
) -> list[dict[str, Any]]:
    """Time all in turn at the largest size, on the default stream."""
    n = settings.sizes[-1]
    contenders = Contenders(gpu, dtype, settings)
    with torch.cuda.stream(torch.cuda.default_stream()):
        x = contenders.operands(n)[0]
        by_columns, d = x.b.T.contiguous(), torch.empty_like(x.d)
        works: dict[str, list[Callable[[], object]]] = {}
        rows: dict[str, dict[str, Any]] = {}
        for name, call, of_d in (
            *((name, partial(contenders.call(name, rung, n), x), x.d) for name, rung in contenders),
            *(
                (
                    each.name,
                    partial(each.call, n, n, n, *(y.data_ptr() for y in (x.a, by_columns, d))),
                    d.T,
                )
                for each in besides
            ),
        ):
            of_d.fill_(float("nan"))
            call()
            torch.cuda.synchronize()
            is_right = error_share(x.a, x.b, of_d) <= 1
            rows[name] = {"kernel": name, "n": n, "dtype": dtype, "correct": is_right}
            works[name] = [call]
        found = in_turn(works, settings.rounds, settings.seconds)
    for name, row in rows.items():
        row["tflops"] = 2e-12 * n**3 / median(found.seconds[name])
    return list(rows.values())


def told(row: dict[str, Any], ceiling: float | None, vendor: float | None) -> str:
    """One row in words."""
    start = f"{row['kernel']:14s} {row['n']:6,d}"
    if "tflops" not in row:
        return f"{start}  {row.get('skipped') or row.get('failure') or 'WRONG'}"
    speed = row["tflops"]
    shares = [f"{speed / CEILING:6.1%} of 880"]
    if ceiling:
        shares.append(f"{1e12 * speed / ceiling:6.1%} of the ceiling")
    if vendor:
        shares.append(f"{speed / vendor:6.3f} of PyTorch's")
    return (
        f"{start}  {speed:6.1f} TFLOP/s  {', '.join(shares)}{'' if row['correct'] else '  WRONG'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--kernels", default=",".join(ALL))
    parser.add_argument("--dtype", choices=HALVES, default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each, a size and round")
    parser.add_argument(
        "--beside", type=library, action="append", default=[], metavar="NAME=FILE.so:FUNCTION"
    )
    parser.add_argument("--no-check", action="store_true", help="leave the odd shapes out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.sizes.split(","))
    kernels = tuple(options.kernels.split(","))
    settings = Settings(sizes, kernels, (options.dtype,), options.rounds, options.seconds)
    gpu = find_gpu()
    print(gpu.description, flush=True)
    wrong: list[str] = []
    if not options.no_check:
        rungs = [each.name for each in settings.rungs(options.dtype) if each.runs_on(gpu.arch)]
        checked = list(check_odd(rungs, gpu))
        wrong = [line for line in checked if line]
        print("".join(f"WRONG: {line}\n" for line in wrong), end="")
        print(
            f"{len(checked) - len(wrong):,} of {len(checked):,} odd products are right", flush=True
        )
    with place(gpu):
        ceiling = tensor_core_flops(gpu, options.dtype, CEILING_SECONDS)
        bench = Bench(gpu, options.dtype, settings, ceiling, lambda _: None)
        rows: list[dict[str, Any]] = []
        for size in settings.sizes:
            found = bench.size(size)
            vendor = found[-1].get("tflops")
            for row in found:
                print(told(row, ceiling, vendor), flush=True)
            rows += found
        beside: list[dict[str, Any]] = []
        if options.beside:
            print("on the default stream, beside others' kernels:")
            beside = timed_beside(options.beside, settings, options.dtype, gpu)
            for row in beside:
                print(told(row, ceiling, None), flush=True)
    if options.json:
        found_all = {"ceiling": ceiling, "wrong": wrong, "rows": rows, "beside": beside}
        write(options.json, {"gpu": gpu.description, **found_all})
    sys.exit(bool(wrong) or not all(row.get("correct", True) for row in (*rows, *beside)))


if __name__ == "__main__":
    main()
