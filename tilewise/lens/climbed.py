"""Reading what ``tilewise climb`` measured: a kernel's figures at a size, and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.ladder.rungs import RUNGS

OURS, VENDOR = "matmul", "vendor"
MAIN_SIZE = 4096  # of what is told of one size, where it was measured

Row = Mapping[str, Any]


def row_of(record: Mapping[str, Any], kernel: str, n: int, dtype: str) -> Row | None:
    """A kernel's figures at a size; None where it has none."""
    for row in record["rows"]:
        if (row["kernel"], row["n"], row["dtype"]) == (kernel, n, dtype) and "tflops" in row:
            found: Row = row
            return found
    return None


def names(record: Mapping[str, Any]) -> list[str]:
    """The kernels of a record, the rungs first and the vendor's last."""
    return list(dict.fromkeys(row["kernel"] for row in record["rows"]))


def main_size(record: Mapping[str, Any]) -> int:
    """The size that is told of where it is one: 4096, or the largest."""
    sizes: list[int] = record["sizes"]
    return MAIN_SIZE if MAIN_SIZE in sizes else sizes[-1]


def label(kernel: str) -> str:
    """How a kernel is called in a table: a rung with its number."""
    for each in RUNGS:
        if each.name == kernel:
            return f"{each.number} {each.name}"
    return kernel
