"""The launch that rounds the sums of a product whose k was divided to the dtype of D."""

from __future__ import annotations

from functools import cache

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.product import C, D
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "round_sums.cu"
THREADS = 256  # as in round_sums.cu


def plan(lines: int, width: int, sums_pitch: int, d_pitch: int, dtype: str, beta: float) -> Plan:
    """Return the plan that rounds sums: D = sums + beta D, where D holds C on entry.

    The address of the sums takes the place of C's.

    Parameters
    ----------
    lines, width : int
        The number of lines, and the contiguous elements of each, both in the sums and in D.
    sums_pitch, d_pitch : int
        The elements from one line to the next, in the sums and in D.
    dtype : str
        The dtype of D; the sums are float32.
    beta : float
    """
    kernel = _kernel(dtype)
    given = layout(SOURCE, "Rounding", OUTPUT=TYPES[dtype]).pack({
        "sums": Place(C), "d": Place(D), "sums_pitch": sums_pitch, "d_pitch": d_pitch,
        "lines": lines, "width": width, "beta": beta,
    })  # fmt: skip
    grid = -(-width // THREADS), min(lines, MAX_GRID[1]), 1
    launch = Launch(grid, (THREADS, 1, 1), (given,))
    return Plan((Step(kernel, launch),), 0, "round_sums", "the sums are whole")


@cache
def _kernel(dtype: str) -> Kernel:
    return Kernel(SOURCE, "round_sums", {"OUTPUT": TYPES[dtype]})
