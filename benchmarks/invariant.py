"""Time products with ``invariant=True`` beside the default and PyTorch's, k divided or not.

    python benchmarks/invariant.py [--products 6144x4096,4096x14336] [--rows 1,512]
        [--limit 300] [--json FILE]
    python benchmarks/invariant.py --tiny

The products are those of the suite llm, and all contenders of a product are timed in turn. For few
rows, PyTorch's product by cuBLASLt without split-K is timed too. Each result of tilewise is checked
against float64 before it is timed. The record is written after each product. The exit code is 1 if
a result of tilewise is wrong or something failed. ``pytest --device gpu
tests/gemm/test_invariant_gpu.py`` tests that a row has the same bits in any batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from product_runs import (
    ProductRun,
    Row,
    checked,
    product_options,
    products_of,
    ratios_of,
    say,
)

from tilewise.bench import invariant
from tilewise.bench.record import product_of
from tilewise.bench.stand import Stand, stand
from tilewise.bench.suites import Shape
from tilewise.compiler.ahead import compile_ahead
from tilewise.gemm.invariant import fixed
from tilewise.gemm.plan import chip_of, kernels_of


def compile_all(shapes: Sequence[Shape], dtype: str, at: Stand) -> list[str]:
    """Compile the kernels of the products, and return what did not compile."""
    if at.gpu is None:
        return []
    chip = chip_of(at.gpu)
    asked = [product_of(shape, dtype) for shape in shapes]
    asked += [fixed(each, chip) for each in asked]
    return compile_ahead(list(kernels_of(chip, asked)), at.gpu.arch, lines=False)


class Run(ProductRun):
    """Products that are timed with ``invariant=True``, by default, and by PyTorch."""

    def __init__(self, options: argparse.Namespace, at: Stand) -> None:
        super().__init__(options, at)
        self.rows: list[Row] = []

    def all(self, shapes: Sequence[Shape]) -> None:
        """Measure the products one by one, until the time is up."""
        start = time.monotonic()
        for failure in compile_all(shapes, self.options.dtype, self.at):
            say(failure)
        say(f"ours are compiled: {time.monotonic() - start:.0f} s")
        for shape in self.budget.take(shapes):
            with self.part(shape.name):
                row = invariant.measure(shape, self.options.dtype, self.at)
                self.rows.append(row)
                say(f"{shape.name}: {ratios_of(row)}")
            self.keep()

    def record(self) -> Row:
        """Return what was measured until now, without its provenance."""
        return {
            "dtype": self.options.dtype, "method": self.at.method, "tiny": self.options.tiny,
            "not_measured": self.budget.left, "failures": self.failures,
            "summaries": invariant.summaries(self.rows), "rows": self.rows,
        }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the summaries and write the record."""
    options = checked(product_options(__doc__), arguments)
    with stand(options.rounds, options.seconds, on_cpu=options.tiny) as at:
        run = Run(options, at)
        run.all(products_of(options))
        run.keep()
    run.print_summaries()
    sys.exit(bool(run.failures) or any(row["wrong"] for row in run.rows))


if __name__ == "__main__":
    main()
