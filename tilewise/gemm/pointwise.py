"""A launch that applies a traced function to a matrix in memory, element by element."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused
from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.product import ACCUMULATORS, REAL, A, D
from tilewise.gemm.steps import PREPARED, Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "pointwise.cu"
THREADS = 256  # as in pointwise.cu
MOST_COLUMNS = 4
"""The most elements of a row that a thread computes; their loads are in flight together."""


class Pointwise(NamedTuple):
    """D = f(A, operands) for row-major matrices A and D without gaps between rows.

    Attributes
    ----------
    m, n, batch : int
        The extents, at least 1 each.
    dtype, out_dtype : str
        The dtype of A and of D. The function is computed in the accumulator dtype of a product with
        such an A.
    epilogue : Epilogue
        The function, of one sum; its further results have dtypes of their own.
    """

    m: int
    n: int
    batch: int
    dtype: str
    out_dtype: str
    epilogue: Epilogue

    @property
    def pairing(self) -> None:
        """None, since a function of one matrix has no pairs."""
        return


@lru_cache(maxsize=PREPARED)
def plan(asked: Pointwise) -> Plan:
    """Return the plan. It takes the addresses of a product, and uses those of A and D."""
    columns = min(MOST_COLUMNS, -(-asked.n // THREADS))
    types = {"INPUT": TYPES[asked.dtype], "OUTPUT": TYPES[asked.out_dtype]}
    given = layout(SOURCE, "Pointwise", **types).pack({
        "acc": Place(A), "d": Place(D), "m": asked.m, "n": asked.n, "batch": asked.batch,
    })  # fmt: skip
    lines = min(asked.batch * asked.m, MAX_GRID[1])
    grid = -(-asked.n // (THREADS * columns)), lines, 1
    launch = Launch(grid, (THREADS, 1, 1), (given,))
    kernel = _kernel(asked.dtype, asked.out_dtype, columns)
    return Plan((fused.step(kernel, launch, asked),), 0, "pointwise", "a function, not a product")


@cache
def _kernel(dtype: str, out_dtype: str, columns: int) -> Kernel:
    defines = {
        "real": REAL[ACCUMULATORS[dtype]], "INPUT": TYPES[dtype], "OUTPUT": TYPES[out_dtype],
        "COLUMNS": columns,
    }  # fmt: skip
    return Kernel(SOURCE, "pointwise", defines)
