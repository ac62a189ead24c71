"""Whether ``tilewise.matmul`` gives the same bits each time, launch after launch, on a GPU.

    python benchmarks/soak.py [--dtype float64] [--suite odd] [--only 2047] [--seconds 2]

The first result of each product is checked; every later one is compared with it on the GPU, while
what was launched before is still under way. Before each launch, in turn: nothing; D is filled with
NaN; the L2 cache is overwritten; another product is computed; A and B are written anew; the GPU is
left idle. Prints where the results differ, and exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tilewise.bench.products import Operands, differences, error_share, operands
from tilewise.bench.record import DTYPES, find_gpu
from tilewise.bench.suites import REAL_SUITES, SUITES, Shape
from tilewise.provenance import write

AT_ONCE = 66  # launches between two looks at what they gave
KEPT = 20  # results that differ, of one product
IDLE_SECONDS = 0.002


class Soak:
    """One product, again and again.

    Parameters
    ----------
    shape : Shape
    dtype : str
    other : Operands
        Of another product, which is computed ahead of some.
    flush : torch.Tensor
        As large as the L2 cache and more; it is overwritten ahead of some.
    """

    def __init__(self, shape: Shape, dtype: str, other: Operands, flush: torch.Tensor) -> None:
        self.matrices = operands(shape, dtype, torch.Generator(flush.device).manual_seed(0))
        a, b, d = self.matrices.a, self.matrices.b, self.matrices.d
        same_a, same_b = a.clone(), b.clone()

        def idle() -> None:
            if d.is_cuda:
                torch.cuda.synchronize()
            time.sleep(IDLE_SECONDS)

        self.before: list[Callable[[], object]] = [
            lambda: None,
            lambda: d.fill_(float("nan")),
            lambda: flush.fill_(1),
            other.ours,
            lambda: (a.copy_(same_a), b.copy_(same_b)),
            idle,
        ]
        self.launches = 0
        self.differing: list[str] = []

    def run(self, seconds: float) -> float:
        """The share of the bound that the first result's error takes; infinity if it is wrong."""
        ours, d = self.matrices.ours, self.matrices.d
        ours()
        error = error_share(self.matrices.a, self.matrices.b, d)
        right = d.clone()
        bad = torch.zeros((), dtype=torch.int64, device=d.device)
        kept = torch.empty_like(d)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and len(self.differing) < KEPT:
            bad.zero_()
            for i in range(AT_ONCE):
                self.before[i % len(self.before)]()
                ours()
                differs = (d != right).any()
                bad += differs
                torch.where(differs, d, kept, out=kept)
            self.launches += AT_ONCE
            if count := int(bad):
                self.differing.append(f"{count} of {AT_ONCE}; the last: {differences(kept, right)}")
        return error


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--suite", choices=tuple(SUITES), action="append")
    parser.add_argument("--only", default="", help="products that have this in their name")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each product")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    options = parser.parse_args()
    find_gpu()
    device = torch.device("cuda")
    flush = torch.empty(1 << 27, dtype=torch.uint8, device=device)
    rows: list[dict[str, Any]] = []
    for dtype in options.dtype or ("float32", "float64"):
        other = operands(Shape(300, 500, 700), dtype, torch.Generator(device).manual_seed(1))
        for suite in options.suite or REAL_SUITES:
            for shape in SUITES[suite]:
                name = f"{shape.name} {shape.layout}"
                if options.only not in name or (shape.is_wide and dtype == "float64"):
                    continue
                soak = Soak(shape, dtype, other, flush)
                error = soak.run(options.seconds)
                row = {
                    "dtype": dtype,
                    "product": name,
                    "launches": soak.launches,
                    "error": error,
                    "differing": soak.differing,
                }
                rows.append(row)
                verdict = "; ".join(soak.differing) or "the same bits each time"
                print(f"{dtype} {name}: {soak.launches} launches, {verdict}", flush=True)
                if not error <= 1:
                    print(f"{dtype} {name}: the first is wrong, by {error:.3g} of the bound")
    if options.json:
        write(options.json, {"rows": rows})
    sys.exit(any(row["differing"] or not row["error"] <= 1 for row in rows))


if __name__ == "__main__":
    main()
