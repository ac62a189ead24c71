"""Time products with an epilogue, beside the plain product and beside ``torch.compile``.

    python benchmarks/epilogues.py [--products 6144x4096,4096x14336] [--rows 1,512]
        [--cases "bias + gelu"] [--compile 12] [--limit 500] [--json FILE]
    python benchmarks/epilogues.py --tiny

First, each case and the plain product are timed in turn, for the products of the suite llm. Then
each case is timed beside the same expression by ``torch.compile`` with
``mode="max-autotune-no-cudagraphs"``, which takes up to 20 s a product because it times many
kernels first. --compile is the number of products of this second part: a random sample of the
suite, the same one in every run.

Each result of tilewise is checked against float64 before it is timed. The record is written after
each product, so that nothing is lost if the process is ended. The exit code is 1 if a result of
tilewise is wrong or something failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from product_runs import (
    ProductRun,
    Row,
    checked,
    product_options,
    products_of,
    ratios_of,
    say,
)

from tilewise.bench import epilogues
from tilewise.bench.epilogues import CASES, Case
from tilewise.bench.record import product_of
from tilewise.bench.stand import Stand, stand
from tilewise.bench.suites import Shape
from tilewise.compiler.ahead import compile_ahead
from tilewise.gemm.plan import chip_of, kernels_of


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    found = product_options(__doc__)
    names = [case.name for case in CASES]
    found.add_argument("--cases", nargs="+", choices=names, default=names, metavar="CASE")
    found.add_argument(
        "--compile", type=int, default=0, metavar="N", help="time N products by torch.compile too"
    )
    found.add_argument("--backend", default="inductor", help="of torch.compile")
    options = checked(found, arguments)
    if options.compile < 0:
        found.error(f"--compile is {options.compile}; it must be at least 0")
    return options


def sample(shapes: Sequence[Shape], count: int) -> list[Shape]:
    """Return so many of the products; a larger count has those of a smaller one, in their order."""
    return random.Random(0).sample(list(shapes), len(shapes))[:count]


def compile_all(shapes: Sequence[Shape], cases: Sequence[Case], dtype: str, at: Stand) -> list[str]:
    """Compile the kernels of the products, and return what did not compile."""
    if at.gpu is None:
        return []
    asked = [product_of(shape, dtype) for shape in shapes]
    asked += [case.product(shape, dtype) for shape in shapes for case in cases]
    return compile_ahead(list(kernels_of(chip_of(at.gpu), asked)), at.gpu.arch, lines=False)


class Run(ProductRun):
    """Products that are timed beside the plain ones, and beside ``torch.compile``."""

    def __init__(self, options: argparse.Namespace, at: Stand) -> None:
        super().__init__(options, at)
        self.cases = [case for case in CASES if case.name in options.cases]
        self.rows: list[Row] = []
        self.beside: list[Row] = []

    def all(self, shapes: Sequence[Shape]) -> None:
        """Measure products, the plain ones and then those beside ``torch.compile``."""
        start = time.monotonic()
        for failure in compile_all(shapes, self.cases, self.options.dtype, self.at):
            say(failure)
        say(f"ours are compiled: {time.monotonic() - start:.0f} s")
        for shape in self.budget.take(shapes):
            with self.part(shape.name):
                self._beside_the_plain_product(shape)
            self.keep()
        compiler = epilogues.compiler_of(self.options.backend)
        chosen = sample(shapes, self.options.compile)
        for shape, case in self.budget.take([(x, case) for x in chosen for case in self.cases]):
            with self.part(f"{shape.name}, {case.name}"):
                self._beside_compile(shape, case, compiler)
            self.keep()

    def _beside_the_plain_product(self, shape: Shape) -> None:
        sets = epilogues.sets_of(shape, self.options.dtype, self.at, self.cases)
        row = epilogues.measure(shape, self.options.dtype, self.at, sets, self.cases)
        self.rows.append(row)
        say(f"{shape.name}: {ratios_of(row)}")

    def _beside_compile(self, shape: Shape, case: Case, compiler: Any) -> None:
        sets = epilogues.sets_of(shape, self.options.dtype, self.at, [case])
        row = epilogues.beside_compile(case, shape, self.options.dtype, self.at, sets, compiler)
        self.beside.append(row)
        say(
            f"{shape.name}, {case.name}: {ratios_of(row)}, "
            f"compiled in {row['compile_seconds']:.0f} s"
        )

    def record(self) -> Row:
        """Return what was measured until now, without its provenance."""
        return {
            "dtype": self.options.dtype, "mode": epilogues.MODE, "backend": self.options.backend,
            "method": self.at.method, "tiny": self.options.tiny, "not_measured": self.budget.left,
            "failures": self.failures, "cases": [self._case(case) for case in self.cases],
            "summaries": epilogues.summaries(self.rows, self.beside),
            "rows": self.rows, "beside": self.beside,
        }  # fmt: skip

    def _case(self, case: Case) -> Row:
        return {"name": case.name, "epilogue": str(case.epilogue)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the summaries and write the record."""
    options = parsed(arguments)
    with stand(options.rounds, options.seconds, on_cpu=options.tiny) as at:
        run = Run(options, at)
        run.all(products_of(options))
        run.keep()
    run.print_summaries()
    sys.exit(bool(run.failures) or any(row["wrong"] for row in (*run.rows, *run.beside)))


if __name__ == "__main__":
    main()
