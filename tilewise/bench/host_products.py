"""Measure products that begin in the host's memory, beside PyTorch's and the link itself."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from tilewise.arrays.call import check as check_call
from tilewise.compiler.ahead import cores
from tilewise.devices.gpu import Gpu
from tilewise.gemm.product import ACCUMULATORS
from tilewise.host.product import journey
from tilewise.host.staging import free_staging
from tilewise.matmul import matmul
from tilewise.numbers import check

ROUNDS = 7
_LINK = 1 << 30  # bytes that are copied to measure the link
_POOL = (1 << 24) + 12_345  # normal numbers that matrices are filled with, again and again
_BETWEEN = 0.02  # seconds from one look at the GPU's free memory to the next
_SAMPLE = 12  # rows and columns that are compared with float64


def link(gpu: Gpu, rounds: int = ROUNDS) -> dict[str, float]:
    """Return bytes a second between pinned memory and the GPU: each way alone, and both at once."""
    here, back = (torch.empty(_LINK, dtype=torch.uint8).pin_memory() for _ in range(2))
    there, other = (torch.ones(_LINK, dtype=torch.uint8, device="cuda") for _ in range(2))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def inward() -> None:
        with torch.cuda.stream(streams[0]):
            there.copy_(here, non_blocking=True)

    def outward() -> None:
        with torch.cuda.stream(streams[1]):
            back.copy_(other, non_blocking=True)

    def rate(*copies: Callable[[], None]) -> float:
        def run() -> None:
            for copy in copies:
                copy()
            torch.cuda.synchronize()

        return _LINK / min(_seconds(run) for _ in range(rounds))

    return {"in": rate(inward), "out": rate(outward), "both": rate(inward, outward)}


def resident(a: torch.Tensor, b: torch.Tensor, rounds: int = 3) -> float:
    """Return the seconds of a product whose matrices lie on the GPU."""
    out = matmul(a, b)

    def run() -> None:
        matmul(a, b, out=out)
        torch.cuda.synchronize()

    run()
    return median(_seconds(run) for _ in range(rounds))


def square(gpu: Gpu, size: int, dtype: str, rate: float, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure one square product: ours and PyTorch's in turn, from ordinary and pinned memory.

    Parameters
    ----------
    gpu : Gpu
    size : int
    dtype : str
    rate : float
        Bytes a second that the link copies each way, both at once.
    rounds : int
    """
    kind = getattr(torch, dtype)
    a, b, out = (torch.randn(size, size).to(kind) for _ in range(3))
    pinned = [x.pin_memory() for x in (a, b, out)]
    on_gpu = a.cuda(), b.cuda()
    kernel = resident(*on_gpu)
    alone = matmul(*on_gpu).cpu()
    del on_gpu
    runs: dict[str, Callable[[], Any]] = {
        "tilewise, out=": lambda: matmul(a, b, out=out),
        "tilewise": lambda: matmul(a, b),
        "tilewise, pinned": lambda: matmul(pinned[0], pinned[1], out=pinned[2]),
        "torch": lambda: (a.cuda() @ b.cuda()).cpu(),
        "torch, pinned": lambda: (pinned[0].cuda() @ pinned[1].cuda()).cpu(),
    }
    alone_runs: dict[str, Callable[[], Any]] = {}
    if dtype == "float32":
        x, y = a.numpy(), b.numpy()
        alone_runs["numpy"] = lambda: x @ y
        xt = _cublas_xt()
        if xt is not None:
            alone_runs["cublasXt"] = lambda: xt(x, y, out.numpy())
            alone_runs["cublasXt, pinned"] = lambda: xt(*(each.numpy() for each in pinned))
    # NumPy's threads spin for a while after its product, and the vendor's library keeps memory.
    seconds = {**_in_turn(runs, rounds), **_in_turn(alone_runs, 2)}
    item = a.element_size()
    least = max(2 * size * size * item / rate, size * size * item / rate, kernel)
    matmul(a, b, out=out)
    matmul(pinned[0], pinned[1], out=pinned[2])
    return {
        "size": size,
        "dtype": dtype,
        "resident_seconds": kernel,
        "least_seconds": least,
        "seconds": seconds,
        "equal_bits": bool(torch.equal(alone, out) and torch.equal(alone, pinned[2])),
        "correct": _is_right(a, b, out, dtype),
    }


def larger(
    gpu: Gpu, size: int, dtype: str, budget: int, *, is_resident: bool, is_warm: bool
) -> dict[str, Any]:
    """Measure a square product within a budget of the GPU's memory, and with all of it there.

    Parameters
    ----------
    gpu : Gpu
    size : int
    dtype : str
    budget : int
        Bytes.
    is_resident : bool
        Whether the GPU has room for all of it.
    is_warm : bool
        Whether it is computed once before, so that kernels are compiled and buffers are pinned.
    """
    kind = getattr(torch, dtype)
    began = time.perf_counter()
    a, b, out = (_filled(size, kind) for _ in range(3))
    filled = time.perf_counter() - began
    call = check_call(a, b, None, 1, 0, False, False, out, None, "gpu")
    asked = journey(call, gpu, budget)
    assert asked is not None
    free_staging()
    before = gpu.free_memory()
    if is_warm:
        matmul(a, b, out=out, max_gpu_memory=budget)
    with _least_free(gpu) as free:
        began = time.perf_counter()
        matmul(a, b, out=out, max_gpu_memory=budget)
        seconds = time.perf_counter() - began
    free_staging()
    found: dict[str, Any] = {
        "size": size,
        "dtype": dtype,
        "bytes_each": a.numel() * a.element_size(),
        "budget": budget,
        "is_warm": is_warm,
        "memory": before - min(free),
        "plan": asked.plan.words,
        "bytes_in": asked.plan.bytes_in,
        "bytes_out": asked.plan.bytes_out,
        "seconds": seconds,
        "flops": 2 * size**3 / seconds,
        "filled_seconds": filled,
        "correct": _is_right(a, b, out, dtype),
    }
    if is_resident:
        there = [torch.empty(size, size, dtype=kind, device="cuda") for _ in range(3)]
        for x in there[:2]:
            x.normal_()
        matmul(there[0][:4096], there[1], out=there[2][:4096])
        torch.cuda.synchronize()
        began = time.perf_counter()
        matmul(there[0], there[1], out=there[2])
        torch.cuda.synchronize()
        found["resident_seconds"] = time.perf_counter() - began
        found["share"] = found["resident_seconds"] / seconds
    return found


def batches(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Measure batches of small products, ours, PyTorch's and NumPy's in turn."""
    found = []
    for count, size in ((10_000, 16), (2_000, 64), (200, 256)):
        x, y = (np.random.default_rng(i).standard_normal((count, size, size), np.float32)
                for i in (0, 1))  # fmt: skip
        a, b = torch.from_numpy(x), torch.from_numpy(y)
        runs: dict[str, Callable[[], Any]] = {
            "tilewise": lambda x=x, y=y: matmul(x, y),  # type: ignore[misc]
            "torch": lambda a=a, b=b: (a.cuda() @ b.cuda()).cpu(),  # type: ignore[misc]
        }
        is_right = bool(check(matmul(x, y)[-1], x[-1], y[-1]).correct)
        found.append({
            "batch": count, "size": size, "correct": is_right,
            "seconds": {**_in_turn(runs, rounds), **_in_turn({"numpy": lambda x=x, y=y: x @ y}, 2)},  # type: ignore[misc]
        })  # fmt: skip
    return found


def singles(rounds: int = 4 * ROUNDS) -> list[dict[str, Any]]:
    """Measure small and middling products, ours, PyTorch's and NumPy's in turn."""
    found = []
    for size in (64, 256, 512, 1024, 2048, 4096):
        x, y = (np.random.default_rng(i).standard_normal((size, size), np.float32) for i in (0, 1))
        a, b = torch.from_numpy(x), torch.from_numpy(y)
        runs: dict[str, Callable[[], Any]] = {
            "tilewise": lambda x=x, y=y: matmul(x, y),  # type: ignore[misc]
            "torch": lambda a=a, b=b: (a.cuda() @ b.cuda()).cpu(),  # type: ignore[misc]
        }
        seconds = _in_turn(runs, rounds if size < 2048 else ROUNDS)
        seconds |= _in_turn({"numpy": lambda x=x, y=y: x @ y}, 2)  # type: ignore[misc]
        found.append({"size": size, "seconds": seconds})
    return found


_FIRST = """
import time, torch, numpy as np, tilewise
n = 4096
a = np.random.default_rng(0).standard_normal((n, n), np.float32)
x = torch.from_numpy(a).cuda()
tilewise.matmul(x, x)
torch.cuda.synchronize()
from tilewise.host.staging import free_staging
out = np.ones_like(a)
b = a.copy()
def call():
    began = time.perf_counter()
    tilewise.matmul(a, b, out=out)
    return time.perf_counter() - began
if {warm}:
    call()  # kernels are compiled, in another process's stead
times = [call() for _ in range(6)]
print(times[0], sorted(times[1:])[2])
"""


def first() -> dict[str, float]:
    """Return the seconds of a process's first product of the host's arrays, and of later ones."""

    def run(warm: bool) -> list[float]:
        done = subprocess.run(
            [sys.executable, "-c", _FIRST.format(warm=warm)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return [float(word) for word in done.stdout.split()]

    run(warm=True)
    begun, later = run(warm=False)
    return {"first": begun, "later": later, "pays": begun - later}


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - began
    del result
    return seconds


def _in_turn(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each, all of them in turn in every round."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            seconds = _seconds(run)
            if turn:
                found[name].append(seconds)
    return {name: median(times) for name, times in found.items()}


def _filled(size: int, kind: torch.dtype) -> torch.Tensor:
    """Return a matrix of normal numbers, filled by several threads."""
    pool = torch.randn(_POOL).to(kind)
    x = torch.empty(size * size, dtype=kind)
    step = -(-len(x) // (4 * cores()))

    def fill(first: int) -> None:
        part = x[first : first + step]
        for at in range(0, len(part), _POOL):
            piece = part[at : at + _POOL]
            piece.copy_(pool[: len(piece)])

    with ThreadPoolExecutor(cores()) as threads:
        list(threads.map(fill, range(0, len(x), step)))
    return x.view(size, size)


def _is_right(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, dtype: str) -> bool:
    """Return whether some rows and columns of the product are right, where they cross."""
    drawn = np.random.default_rng()
    rows = torch.from_numpy(drawn.integers(0, out.shape[0], _SAMPLE))
    columns = torch.from_numpy(drawn.integers(0, out.shape[1], _SAMPLE))
    x, y, z = a[rows].double(), b[:, columns].double(), out[rows][:, columns].double()
    wide = ACCUMULATORS[dtype]
    exact = x @ y
    bound = (x.abs() @ y.abs()) * (a.shape[1] + 2) * float(np.finfo(wide).eps)
    if dtype != wide:
        bound += exact.abs() * torch.finfo(getattr(torch, dtype)).eps
    return bool(((z - exact).abs() <= bound).all())


@contextmanager
def _least_free(gpu: Gpu) -> Iterator[list[int]]:
    """Note repeatedly how many bytes of the GPU's memory are free, as the driver reports them."""
    found = [gpu.free_memory()]
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(_BETWEEN):
            found.append(gpu.free_memory())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ends.set()
        thread.join()


def _cublas_xt() -> Callable[..., None] | None:
    """Return the vendor's product of the host's matrices, C = A B by rows; or None."""
    found = find_spec("nvidia")
    folders: Sequence[str] = [] if found is None else list(found.submodule_search_locations or [])
    names = [
        path for folder in folders for path in sorted(Path(folder).rglob("libcublas.so.*"))
    ]  # fmt: skip
    if not names:
        return None
    library = ctypes.CDLL(str(names[0]))
    handle = ctypes.c_void_p()
    devices = (ctypes.c_int * 1)(0)
    if library.cublasXtCreate(ctypes.byref(handle)):
        return None
    library.cublasXtDeviceSelect(handle, 1, devices)
    library.cublasXtSetBlockDim(handle, 2048)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def run(a: Any, b: Any, c: Any) -> None:
        (m, k), n = a.shape, b.shape[1]
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        # BLAS stores matrices by columns: C' = B' A'.
        status = library.cublasXtSgemm(
            handle, 0, 0, size(n), size(m), size(k), ctypes.byref(one), pointer(b.ctypes.data),
            size(n), pointer(a.ctypes.data), size(k), ctypes.byref(zero), pointer(c.ctypes.data),
            size(n),
        )  # fmt: skip
        if status:
            raise RuntimeError(f"cublasXtSgemm failed with status {status}")

    return run
