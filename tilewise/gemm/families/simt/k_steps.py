"""The times of k-steps measured on an H200, in which a block copies and multiplies tiles."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tilewise.gemm.families.simt.matrices import Access

FILE = Path(__file__).parent / "k_steps.json"
STEADY = ", steady state"  # ends a key for times after a while of the same kernel alone


@cache
def record() -> dict[str, Any]:
    """Return the record of what was measured, with the date and the machine."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def is_measured(dtype: str, tiles: str) -> bool:
    """Return whether the k-steps of these tiles were measured with A K-major and B MN-major."""
    return f"{dtype} {tiles}" in record()[_key(Access(True), Access(False))]


def seconds(dtype: str, tiles: str, a: Access, b: Access) -> tuple[float, ...]:
    """Return the seconds of a k-step with 1, 2, ... blocks on each multiprocessor at once."""
    return _seconds(_key(a, b), dtype, tiles)


def slowdown(dtype: str, tiles: str, a: Access, b: Access) -> float:
    """Return how many times longer a k-step takes in the steady state under the power limit."""
    aligned = _key(Access(a.is_k_major), Access(b.is_k_major))
    steady = record()[aligned + STEADY][f"{dtype} {tiles}"]
    return 1e-9 * float(steady) / _seconds(aligned, dtype, tiles)[-1]


@cache
def _seconds(key: str, dtype: str, tiles: str) -> tuple[float, ...]:
    return tuple(1e-9 * float(each) for each in record()[key][f"{dtype} {tiles}"].split())


@cache
def _key(a: Access, b: Access) -> str:
    """Return the record's key for how A and B are read."""
    return f"A {_words(a)}, B {_words(b)}"


def _words(x: Access) -> str:
    return f"{'K' if x.is_k_major else 'MN'}-major{' unaligned' * x.is_unaligned}"
