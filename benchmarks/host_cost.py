"""Time what a call of ``tilewise.matmul`` costs the host, beside PyTorch's, on a GPU.

    python benchmarks/host_cost.py [--json FILE]

First, µs a call: the median of rounds of calls in a row without a wait. They are so few that the
queue of launches never fills, so the kernels' own time is not included. Then the stages of such a
call in µs, each by itself. Then first calls in seconds, with their kernels, in a process in which
PyTorch has used the GPU: with no kernel compiled yet (cold), and with all kernels in the cache on
disk (warm).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from command_line import add_json, parser_of

import tilewise
from tilewise.arrays import repeat
from tilewise.arrays.dispatched import route
from tilewise.provenance import write

CALLS, ROUNDS = 250, 9
SHAPES = (
    (1024, 1024, 1024), (768, 768, 768), (512, 512, 512), (4096, 4096, 4096), (64, 6144, 4096),
    (1000, 1001, 1002), (999, 1001, 1003),
)  # fmt: skip


def microseconds(work: Callable[[], object]) -> float:
    """Return the µs of one call, the median of the rounds, the first calls not counted."""
    for _ in range(CALLS):
        work()
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            work()
        rounds.append((time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return 1e6 * median(rounds)


def matrices(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Return random A and B of bfloat16 on the GPU."""
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    return a.bfloat16(), b.bfloat16()


def calls() -> dict[str, float]:
    """Return the µs of each kind of call, tilewise's and PyTorch's."""
    out: dict[str, float] = {}
    for size in (256, 1024):
        a, b = matrices(size, size, size)
        d = torch.empty_like(a)
        works: dict[str, Callable[[], object]] = {
            "tilewise.matmul(a, b)": lambda a=a, b=b: tilewise.matmul(a, b),  # type: ignore[misc]
            "tilewise.matmul(a, b, out=d)": lambda a=a, b=b, d=d: tilewise.matmul(a, b, out=d),  # type: ignore[misc]
            "a @ b": lambda a=a, b=b: a @ b,  # type: ignore[misc]
            "torch.mm(a, b, out=d)": lambda a=a, b=b, d=d: torch.mm(a, b, out=d),  # type: ignore[misc]
        }
        biased, bias = tilewise.Epilogue(lambda acc, bias: acc + bias), d[0].clone()
        works |= {
            "tilewise.matmul(a, b, epilogue=acc + bias)": (
                lambda a=a, b=b, f=biased, x=bias: tilewise.matmul(a, b, epilogue=f, bias=x)  # type: ignore[misc]
            ),
            "the same, out=d": (
                lambda a=a, b=b, f=biased, x=bias, d=d: tilewise.matmul(  # type: ignore[misc]
                    a, b, epilogue=f, bias=x, out=d
                )
            ),
            "torch.addmm(bias, a, b)": lambda a=a, b=b, x=bias: torch.addmm(x, a, b),  # type: ignore[misc]
        }
        out |= {f"{name}, {size}^3": microseconds(work) for name, work in works.items()}
    x, w = matrices(512, 256, 256)
    w = torch.stack([w] * 4)
    ends = torch.tensor([100, 256, 256, 512], device="cuda", dtype=torch.int32)
    to = torch.empty(512, 256, device="cuda", dtype=torch.bfloat16)
    out["tilewise.grouped_matmul(x, w, ends)"] = microseconds(
        lambda: tilewise.grouped_matmul(x, w, ends)
    )
    out["tilewise.grouped_matmul(x, w, ends, out=d)"] = microseconds(
        lambda: tilewise.grouped_matmul(x, w, ends, out=to)
    )
    theirs = getattr(torch, "_grouped_mm", None)
    if theirs is not None:
        out["torch._grouped_mm(x, w, ends)"] = microseconds(lambda: theirs(x, w, offs=ends))
    out["torch.empty"] = microseconds(
        lambda: torch.empty(256, 256, dtype=torch.bfloat16, device="cuda")
    )
    return out


def stages() -> dict[str, float]:
    """Return the µs of each stage of a repeated call at 256^3; "the rest" contains all below it."""
    a, b = matrices(256, 256, 256)
    repeat.forget()
    d = tilewise.matmul(a, b)
    ((how, _), record), *_ = repeat._records.items()
    library, context = record.library, record.gpu.context
    stream = library.stream(context.ordinal)
    given = [x.data_ptr() for x in (a, b)]
    addresses = (*given, 0, d.data_ptr(), 0)
    (launch,) = record.launches
    works: dict[str, Callable[[], object]] = {
        "the way": lambda: route(a, b),
        "record": lambda: repeat.look(how, (a, b)),
        "the rest": lambda: record.run(given),
        "context": lambda: context.is_ready,
        "result": record.results[0],
        "stream": lambda: library.stream(context.ordinal),
        "launch": lambda: launch.enqueue(stream, addresses),
    }
    return {name: microseconds(work) for name, work in works.items()}


def first_calls() -> dict[str, float]:
    """Return the seconds of the first call of each shape, in this process."""
    torch.mm(*matrices(64, 64, 64))
    out = {}
    for m, n, k in SHAPES:
        a, b = matrices(m, n, k)
        torch.cuda.synchronize()
        start = time.perf_counter()
        tilewise.matmul(a, b)
        torch.cuda.synchronize()
        out[f"{m}x{n}x{k}"] = time.perf_counter() - start
    return out


def in_a_new_process(cache: str) -> dict[str, float]:
    """Return the seconds of first calls in a new process, with kernels cached in a folder."""
    answer = subprocess.run(
        [sys.executable, __file__, "--first-calls"],
        env={**os.environ, "TILEWISE_CACHE_DIR": cache},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: dict[str, float] = json.loads(answer)
    return found


def main() -> None:
    """Measure, print and write the record."""
    parser = parser_of(__doc__)
    add_json(parser)
    parser.add_argument("--first-calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.first_calls:
        print(json.dumps(first_calls()))
        return
    record: dict[str, dict[str, float]] = {"microseconds": calls(), "stages": stages()}
    with tempfile.TemporaryDirectory() as cache:
        record["first_seconds_cold"] = in_a_new_process(cache)
        record["first_seconds_warm"] = in_a_new_process(cache)
    for title, rows in record.items():
        print(title)
        for name, value in rows.items():
            print(f"  {name:36} {value:.3f}" if value >= 0.01 else f"  {name:36} {value:.5f}")
    if options.json:
        write(options.json, {"calls": CALLS, "rounds": ROUNDS, **record})


if __name__ == "__main__":
    main()
