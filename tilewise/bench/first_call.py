"""Measure the host's cost of the first call with a new shape, beside PyTorch's first call.

A run is a series of products that all differ. A process of its own computes them one after
another, and each call is timed on the host alone: the queue of launches never fills, and nothing
waits for the GPU but the end of a pass. What a process pays once (imports, the CUDA context, the
libraries' handles, memory from the driver) it pays before, by a product of float64, and is reported
apart. Garbage is collected before each pass: what the imports left behind is no part of it.
"""

from __future__ import annotations

import cProfile
import gc
import json
import os
import pstats
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

CONTENDERS = ("ours", "torch")
PASSES = ("first", "others", "again")
"""The passes of a process, in turn: a run's products, as many others, and the first ones again."""

PROCESSES = ("empty", "torch", "cached")

MODES = {
    "empty": ("empty", "first"),
    "cached": ("cached", "first"),
    "others": ("cached", "others"),
    "again": ("cached", "again"),
}
"""What is reported: of which process, which pass. In the process called empty the cache of
compiled kernels is an empty folder to begin with; the one called cached begins with what that left
there. PyTorch keeps no such cache, so that it has one process for both, between them."""

_ARENA = 1 << 30  # bytes that PyTorch's allocator has at hand for the results
_WARM = 64  # sizes of the product that everything is warmed up by

Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class Run:
    """A series of products.

    Attributes
    ----------
    name : str
    dtype : str
    count : int
        The number of products in a pass.
    layout : str
        The layout: ``"NN"``, or ``"NT"`` if B is stored transposed.
    what : str
        A description for people.
    """

    name: str
    dtype: str
    count: int
    layout: str
    what: str

    def passes(self, seed: int) -> dict[str, list[Sizes]]:
        """Return m, n and k of every product, by the passes' names; all of the first two differ."""
        draw = random.Random(seed)
        found: dict[Sizes, None] = {}
        while len(found) < 2 * self.count:
            found[self._draw(draw)] = None
        sizes = list(found)
        first, others = sizes[: self.count], sizes[self.count :]
        return {"first": first, "others": others, "again": first}

    def _draw(self, draw: random.Random) -> Sizes:
        if self.name == "weight":
            return draw.randint(1, 4096), 6144, 4096
        return draw.randint(1, 2000), draw.randint(1, 2000), draw.randint(1, 2000)


RUNS = {
    run.name: run
    for run in (
        Run("weight", "bfloat16", 200, "NT", "x W^T, W 6144 x 4096, x of 1 to 4096 rows"),
        Run("random", "float32", 150, "NN", "each side from 1 to 2000"),
    )
}


def measure(
    seed: int, cache: Path, step: Callable[[str], None] = lambda _: None
) -> dict[str, dict[str, Any]]:
    """Measure every run, ours and PyTorch's in turn, each in a process of its own.

    Parameters
    ----------
    seed : int
        The seed of the sizes.
    cache : Path
        An empty folder for the cache of compiled kernels.
    step : callable
        Called with what comes next, before it begins.

    Returns
    -------
    dict
        By the runs' names: ``modes``, each with both contenders' :func:`summary`; ``processes``,
        what each said; ``correct``; ``kernels``, how many our cache holds then, and ``bytes``.
    """
    out = {}
    for run in RUNS.values():
        folder = cache / run.name
        folder.mkdir()
        said: dict[str, dict[str, Any]] = {}
        for process in PROCESSES:
            step(f"{run.name}, {process}")
            contender = "torch" if process == "torch" else "ours"
            said[process] = in_a_process(contender, run, seed, folder)
        files = [file for file in folder.rglob("*") if file.is_file()]
        out[run.name] = {
            "what": run.what,
            "dtype": run.dtype,
            "layout": run.layout,
            "modes": {
                mode: {
                    "ours": summary(said[process]["seconds"][which]),
                    "torch": summary(said["torch"]["seconds"][which]),
                }
                for mode, (process, which) in MODES.items()
            },
            "correct": all(each["correct"] for each in said.values()),
            "files": len(files),
            "bytes": sum(file.stat().st_size for file in files),
            "sizes": run.passes(seed),
            "processes": said,
        }
    return out


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the total, median and longest of the calls of one pass, in seconds."""
    return {"total": sum(seconds), "median": median(seconds), "longest": max(seconds)}


def in_a_process(contender: str, run: Run, seed: int, cache: Path) -> dict[str, Any]:
    """Run one contender's passes in a process of its own; return what :func:`here` returns."""
    answer = subprocess.run(
        [sys.executable, "-m", __name__, contender, run.name, str(seed)],
        env=environment(cache),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return found


def environment(cache: Path) -> Mapping[str, str]:
    """Return the environment of a process with this one's packages, and a cache of its own."""
    path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    return {**os.environ, "PYTHONPATH": path, "TILEWISE_CACHE_DIR": str(cache)}


def here(
    contender: str, run: Run, seed: int, profile: bool = False, device: str = "cuda"
) -> dict[str, Any]:
    """Run one contender's passes in this process.

    Parameters
    ----------
    contender : str
        One of :data:`CONTENDERS`.
    run : Run
    seed : int
    profile : bool
        Print where the time of the pass called others goes, on standard error.
    device : str
        PyTorch's name of where the matrices lie.

    Returns
    -------
    dict
        ``seconds`` of every call, by the passes' names; ``waited``, seconds after each pass until
        the GPU was done; ``import_seconds`` and ``start_seconds``, what came before; ``correct``.
    """
    begun = time.perf_counter()
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize
    imported = time.perf_counter()
    torch.empty(_ARENA, dtype=torch.uint8, device=device)
    torch.empty(1, device=device)
    wait()
    started = time.perf_counter()
    multiply, of_tilewise = _multiply(contender), time.perf_counter()
    warm = torch.randn(_WARM, _WARM, dtype=torch.float64, device=device)
    for transpose in (False, True):
        multiply(warm, warm, transpose)
    wait()
    begun_with = {
        "import_seconds": {"torch": imported - begun, "contender": of_tilewise - started},
        "start_seconds": {
            "torch": started - imported,
            "contender": time.perf_counter() - of_tilewise,
        },
    }
    passes = run.passes(seed)
    # All matrices lie in two arrays: none is made while calls are timed.
    largest = [
        max(f(*sizes) for which in passes.values() for sizes in which) for f in (_of_a, _of_b)
    ]
    kind = getattr(torch, run.dtype)
    of_a, of_b = (torch.randn(size, device=device).to(kind) for size in largest)
    transposed = run.layout == "NT"

    def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
        b = of_b[: n * k]
        return of_a[: m * k].view(m, k), b.view(n, k) if transposed else b.view(k, n)

    seconds: dict[str, list[float]] = {}
    waited: dict[str, float] = {}
    for name, which in passes.items():
        matrices = [operands(*sizes) for sizes in which]
        times = seconds[name] = []
        gc.collect()
        wait()
        profiler = cProfile.Profile() if profile and name == "others" else None
        if profiler:
            profiler.enable()
        for a, b in matrices:
            start = time.perf_counter()
            multiply(a, b, transposed)
            times.append(time.perf_counter() - start)
        if profiler:
            profiler.disable()
            for order in ("tottime", "cumulative"):
                pstats.Stats(profiler, stream=sys.stderr).sort_stats(order).print_stats(45)
        start = time.perf_counter()
        wait()
        waited[name] = time.perf_counter() - start
    return {
        **begun_with,
        "seconds": seconds,
        "waited": waited,
        "correct": contender != "ours" or _are_right(operands, passes["first"], transposed),
    }


def _of_a(m: int, n: int, k: int) -> int:
    return m * k


def _of_b(m: int, n: int, k: int) -> int:
    return n * k


def _multiply(contender: str) -> Callable[[Any, Any, bool], Any]:
    """Return the contender's product of A and of B, or of B transposed."""
    if contender == "torch":
        import torch

        return lambda a, b, transposed: torch.mm(a, b.t() if transposed else b)
    from tilewise.matmul import matmul

    return lambda a, b, transposed: matmul(a, b, transpose_b=transposed)


def _are_right(
    operands: Callable[[int, int, int], tuple[Any, Any]], sizes: list[Sizes], transposed: bool
) -> bool:
    """Return whether our results of these products are within the bound of what rounding may do."""
    from tilewise.bench.products import error_share
    from tilewise.matmul import matmul

    for a, b in (operands(*each) for each in sizes):
        d = matmul(a, b, transpose_b=transposed)
        if error_share(a, b.t() if transposed else b, d) > 1:
            return False
    return True


if __name__ == "__main__":
    _contender, _run, _seed, *_more = sys.argv[1:]
    print(json.dumps(here(_contender, RUNS[_run], int(_seed), bool(_more))))
