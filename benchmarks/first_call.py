"""Time first calls of ``tilewise.matmul`` with new shapes on the host, beside PyTorch's.

    python benchmarks/first_call.py [--seed N] [--json FILE]
    python benchmarks/first_call.py --profile RUN

Two runs: ``weight``, bfloat16 x W^T with a weight of 6144 x 4096 and 200 different numbers of rows
from 1 to 4096; and ``random``, 150 float32 products with each side from 1 to 2000. Each run is
timed call by call, tilewise's and PyTorch's, each in a process of its own, in four modes:

- ``empty``: no kernel is compiled yet.
- ``cached``: a new process, with all kernels in the cache on disk.
- ``others``: the same process, with as many other shapes.
- ``again``: the same process, with the first shapes once more.

Before, a product of float64 in an NN and an NT layout warms up imports, the CUDA context and the
libraries' handles; their times are printed apart.

With ``--profile``, one run's kernels are compiled into a cache, and then a new process prints by
cProfile where the time of ``others`` is spent.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from command_line import add_json, parser_of

from tilewise.bench import first_call
from tilewise.provenance import write


def main() -> int:
    """Measure or profile, print and write the record; return 1 if a result is wrong."""
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the sizes")
    add_json(parser)
    parser.add_argument(
        "--profile", choices=first_call.RUNS, metavar="RUN", help="weight or random"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        if options.profile:
            return _profile(options.profile, options.seed, cache)
        found = first_call.measure(
            options.seed, cache, lambda what: print(what, file=sys.stderr, flush=True)
        )
    for run in found.values():
        print(table(run))
    if options.json:
        write(options.json, {"seed": options.seed, "runs": found})
    return int(not all(run["correct"] for run in found.values()))


def _profile(name: str, seed: int, cache: Path) -> int:
    run = first_call.RUNS[name]
    first_call.in_a_process("ours", run, seed, cache)
    words = [sys.executable, "-m", first_call.__name__, "ours", name, str(seed), "profile"]
    done = subprocess.run(
        words, env=first_call.environment(cache), stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode


def table(run: Mapping[str, Any]) -> str:
    """Return a run as a table, a row a mode: the total in s, the median and the longest in ms."""
    count = len(run["sizes"]["first"])
    lines = [
        f"{count} products, {run['dtype']} {run['layout']}, {run['what']}: "
        + ("right" if run["correct"] else "WRONG"),
        f"  {'':8}{'tilewise':^33}{'PyTorch':^33}",
        f"  {'':8}" + 2 * f"{'total s':>11}{'median ms':>11}{'longest ms':>11}" + f"{'ratio':>8}",
    ]
    for mode, both in run["modes"].items():
        cells = "".join(
            f"{both[name]['total']:11.4f}{1e3 * both[name]['median']:11.4f}"
            f"{1e3 * both[name]['longest']:11.3f}"
            for name in first_call.CONTENDERS
        )
        ratio = both["ours"]["total"] / both["torch"]["total"]
        lines.append(f"  {mode:8}{cells}{ratio:8.2f}")
    for name, said in run["processes"].items():
        words = ", ".join(
            f"{what.removesuffix('_seconds')} of {part} {seconds:.2f} s"
            for what in ("import_seconds", "start_seconds")
            for part, seconds in said[what].items()
        )
        lines.append(f"  before, {name}: {words}")
    lines.append(f"  the cache has {run['files']} files, {run['bytes'] / 2**20:.1f} MiB")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
