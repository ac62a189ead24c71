"""How fast the emulator is: lanes x instructions a second, beside Numba's CUDA simulator.

    python benchmarks/emulator.py [--large] [--json FILE] [--no-numba]

Both run the tiled kernel, a tile of 16, float: the emulator at 256 (or 512) cubed, every block
run, checked and counted; the simulator, which gives each CUDA thread a thread of the host, at a
smaller size, its time scaled by the number of multiply-adds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.devices import get_device
from tilewise.kernel import Kernel
from tilewise.provenance import write

TILE = 16
NUMBA_SIZE = 32
SOURCE = r"""
extern "C" __global__ void tiled(int n, const float* a, const float* b, float* c) {
    __shared__ float sa[TILE][TILE], sb[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int p = 0; p < n; p += TILE) {
        sa[ty][tx] = row < n && p + tx < n ? a[row * n + p + tx] : 0;
        sb[ty][tx] = col < n && p + ty < n ? b[(p + ty) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += sa[ty][i] * sb[i][tx];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
"""


def operands(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    return a, b


def check(c: Any, a: Any, b: Any) -> None:
    """The design's componentwise bound (Higham, ch. 3), with gamma for n products and sums."""
    n = len(a)
    unit = 2.0**-24
    a, b = a.astype(np.float64), b.astype(np.float64)
    bound = n * unit / (1 - n * unit) * (np.abs(a) @ np.abs(b))
    if not (np.abs(c - a @ b) <= bound).all():
        raise SystemExit(f"the product at {n} is wrong: nothing was measured")


def emulated(n: int, rounds: int) -> dict[str, Any]:
    """Seconds of the best launch, and what it executed."""
    kernel = Kernel(SOURCE, "tiled", {"TILE": TILE})
    emulator = get_device("emulator")
    a, b = operands(n)
    grid = (-(-n // TILE), -(-n // TILE))
    kernel.compile(emulator.arch)
    seconds = []
    for _ in range(rounds):
        c = np.zeros((n, n), np.float32)
        start = time.perf_counter()
        report = kernel.launch(grid, (TILE, TILE), (n, a, b, c), device=emulator)
        seconds.append(time.perf_counter() - start)
    check(c, a, b)
    counters = report.counters
    assert counters is not None
    best = min(seconds)
    return {
        "size": n,
        "seconds": seconds,
        "best_seconds": best,
        "thread_instructions": counters.thread_instructions,
        "lane_instructions_per_second": counters.thread_instructions / best,
        "multiply_adds_per_second": n**3 / best,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def rival(n: int) -> dict[str, Any] | str:
    """Numba's simulator, in a process of its own; in words why not, where it can't be timed."""
    try:
        importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        return "Numba is not installed: pip install numba"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, str(Path(__file__).with_name("numba_simulator.py")), str(n)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return f"Numba's simulator failed: {lines[-1]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="512 cubed in place of 256")
    parser.add_argument("--rounds", type=int, default=3, help="launches, of which the best counts")
    parser.add_argument("--no-numba", action="store_true", help="the emulator alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()

    ours = emulated(512 if options.large else 256, options.rounds)
    print(f"tiled, tile {TILE}, float, {ours['size']}^3, every block run, checked and counted")
    print(f"  emulator   {ours['best_seconds']:8.2f} s, best of {options.rounds}")
    print(f"             {ours['lane_instructions_per_second'] / 1e6:8.1f} million lanes x "
          "instructions a second")  # fmt: skip
    print(f"             {ours['peak_memory_bytes'] / 2**20:8.0f} MiB peak memory")
    theirs = None if options.no_numba else rival(NUMBA_SIZE)
    if isinstance(theirs, dict):
        scaled = theirs["seconds"] * (ours["size"] / theirs["size"]) ** 3
        theirs["scaled_seconds"] = scaled
        ratio = scaled / ours["best_seconds"]
        print(f"  Numba      {theirs['seconds']:8.2f} s at {theirs['size']}^3, scaled "
              f"{scaled:.0f} s: {ratio:.0f} times the emulator's")  # fmt: skip
    elif theirs:
        print(f"  Numba      not timed. {theirs}")
    if options.json:
        write(options.json, {"emulator": ours, "numba_simulator": theirs})


if __name__ == "__main__":
    main()
