"""The tiled kernel on Numba's CUDA simulator; one line of JSON. ``emulator.py`` runs it.

A file of its own: the simulator finds ``cuda`` among the kernel's module globals only, and is
chosen when Numba is imported (NUMBA_ENABLE_CUDASIM=1).
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from emulator import TILE, check, operands
from numba import cuda, float32


@cuda.jit  # type: ignore[untyped-decorator]
def tiled(n: int, a: Any, b: Any, c: Any) -> None:
    sa = cuda.shared.array((TILE, TILE), float32)
    sb = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx
    total = float32(0)
    for p in range(0, n, TILE):
        sa[ty, tx] = a[row, p + tx] if row < n and p + tx < n else 0
        sb[ty, tx] = b[p + ty, col] if col < n and p + ty < n else 0
        cuda.syncthreads()
        for i in range(TILE):
            total += sa[ty, i] * sb[i, tx]
        cuda.syncthreads()
    if row < n and col < n:
        c[row, col] = total


def main(n: int) -> None:
    a, b = operands(n)
    c = np.zeros((n, n), np.float32)
    blocks = -(-n // TILE)
    start = time.perf_counter()
    tiled[(blocks, blocks), (TILE, TILE)](n, a, b, c)
    seconds = time.perf_counter() - start
    check(c, a, b)
    print(json.dumps({"size": n, "seconds": seconds, "multiply_adds_per_second": n**3 / seconds}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
