"""Check that ``tilewise.matmul`` gives the same bits launch after launch, for seconds, on a GPU.

    python benchmarks/soak.py [--dtype float64] [--suite odd] [--only 2047] [--seconds 2]

tilewise/bench/soak.py says what is done between the launches. It prints where results differ. The
exit code is 1 if any result differs, or if the first result is wrong.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from command_line import add_json, parser_of

from tilewise.bench.products import operands
from tilewise.bench.record import DTYPES, find_gpu
from tilewise.bench.soak import Soak
from tilewise.bench.suites import REAL_SUITES, SUITES, Shape
from tilewise.provenance import write


def main() -> None:
    """Launch each product again and again, print what differs, and write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--suite", choices=tuple(SUITES), action="append")
    parser.add_argument("--only", default="", help="products that have this in their name")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each product")
    add_json(parser)
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
