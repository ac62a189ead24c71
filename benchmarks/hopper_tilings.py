"""Every tiling of the Hopper kernel over a range of products, beside PyTorch's, on a Hopper GPU.

    python benchmarks/hopper_tilings.py [--seconds S] [--json FILE]

Each product is checked first. Ours and the rival's are timed in turn, for ``--seconds`` each,
steady state; those under 50 µs inside a CUDA graph. Figures are TFLOP/s.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from provenance import write

from tilewise import hopper
from tilewise.devices import get_device
from tilewise.product import Operand, Product

SHAPES = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
    (8192, 8192, 8192), (16384, 16384, 16384), (1000, 1000, 1000), (3000, 3000, 3000),
    (5000, 5000, 5000), (64, 6144, 4096), (128, 28672, 4096), (512, 4096, 14336),
    (2048, 6144, 4096), (8192, 8192, 512), (256, 256, 16384), (8192, 64, 8192),
)  # fmt: skip
ROUNDS = 5


def operand(x: Any) -> Operand:
    return Operand(x.data_ptr(), x.stride(0), x.stride(1))


def graph_of(work: Callable[[], object], times: int) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    replay: Callable[[], object] = graph.replay
    return replay


def seconds(work: Callable[[], object], least: float) -> float:
    """Seconds of one call, in the mean of as many as take ``least``."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(call: Callable[[], object], times: int) -> float:
        start.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / times

    work()
    once = timed(work, 3)
    inner = 20 if once < 50e-6 else 1
    if inner > 1:
        work = graph_of(work, inner)
        once = timed(work, 3)
    return timed(work, max(3, round(least / once))) / inner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.1, help="a round of one kernel")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    gpu: Any = get_device("gpu")
    torch.manual_seed(0)
    rows = []
    for m, n, k in SHAPES:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).T
        d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        expected = a.float() @ b.float() if m * n * k < 5e11 else None
        product = Product(
            m, n, k, 1, "bfloat16", "bfloat16", 1.0, 0.0, operand(a), operand(b), None, operand(d)
        )

        def ours(tiling: hopper.Tiling, product: Product = product) -> Callable[[], object]:
            return lambda: hopper.enqueue(
                product, gpu, torch.cuda.current_stream().cuda_stream, tiling
            )

        works: dict[str, Callable[[], object]] = {
            "torch": lambda a=a, b=b, d=d: torch.mm(a, b, out=d)  # type: ignore[misc]
        }
        for tiling in hopper.TILINGS:
            d.fill_(float("nan"))
            ours(tiling)()
            if expected is not None:
                error = float((d.float() - expected).norm() / expected.norm())
                assert error < 4e-3, (tiling, m, n, k, error)
            works[f"{tiling.block_m}x{tiling.block_n}"] = ours(tiling)
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, work in works.items():
                times[name].append(seconds(work, options.seconds / ROUNDS))
        speeds = {name: 2e-12 * m * n * k / median(each) for name, each in times.items()}
        chosen = hopper.choose(product, gpu.multiprocessors)
        name = f"{chosen.block_m}x{chosen.block_n}"
        row = {"m": m, "n": n, "k": k, "tflops": speeds, "chosen": name}
        rows.append(row)
        shown = "  ".join(f"{name} {speed:.0f}" for name, speed in speeds.items())
        best = max(speed for name, speed in speeds.items() if name != "torch")
        print(f"{m}x{n}x{k}  {shown}  chosen {name}: "
              f"{speeds[name] / best:.2f} of the best, "
              f"{speeds[name] / speeds['torch']:.2f} of torch", flush=True)  # fmt: skip
    if options.json:
        write(options.json, {"rounds": ROUNDS, "seconds": options.seconds, "rows": rows})


if __name__ == "__main__":
    main()
