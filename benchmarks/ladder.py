"""Every rung of the ladder on one problem on the GPU, in float32 and float64.

    python benchmarks/ladder.py [--size N] [--json FILE]

Rungs that can't do the size are run at one they can; each row says which.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewise.ladder.climb import Climb
from tilewise.provenance import write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=4096, help="m, n and k")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    n = options.size
    results = [Climb(n, n, n, dtype, device="gpu").run() for dtype in ("float32", "float64")]
    for result in results:
        print(f"{result['dtype']}")
        for row in result["rungs"]:
            multiply_adds = row["m"] * row["n"] * row["k"]
            print(
                f"  {row['kernel']:18s} {row['m']}x{row['n']}x{row['k']:<6} "
                f"{'right' if row['correct'] else 'WRONG'}  {row['seconds'] * 1e3:9.3f} ms  "
                f"{2e-9 * multiply_adds / row['seconds']:8.1f} GFLOP/s  "
                f"{row['resources']['registers']} registers"
            )
    if options.json:
        write(options.json, {"results": results})
    if not all(result["correct"] for result in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
