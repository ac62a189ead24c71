"""The launch that adds up the rows of a matrix: the gradient of a bias."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.product import A, D
from tilewise.gemm.steps import PREPARED, Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place

SOURCE = SOURCES / "gemm" / "column_sums.cu"
THREADS, AT_ONCE = 256, 8  # as in column_sums.cu
MOST_BLOCKS = 8
"""The most blocks of a cluster."""
DTYPES = ("float16", "bfloat16", "float32")
"""The dtypes of the matrix and of the sums, which are computed in float32."""
LARGEST = 2**31 - 2**16  # the kernel counts rows and columns by unsigned int, past the end too


class ColumnSums(NamedTuple):
    """D = the sums of the columns of a matrix.

    Attributes
    ----------
    m, n : int
        The extents of the matrix, from 1 to :data:`LARGEST`. D has n elements.
    pitch : int
        The elements from one row to the next.
    offset : int
        The bytes from the last multiple of 16 to the first element.
    dtype, out_dtype : str
        The dtypes of the matrix and of D, from :data:`DTYPES`.
    """

    m: int
    n: int
    pitch: int
    offset: int
    dtype: str
    out_dtype: str

    @property
    def width(self) -> int:
        """The elements that a thread loads at once: 16 bytes of them, or 1."""
        width = 16 // ITEM_SIZES[self.dtype]
        return 1 if self.offset or self.n % width or self.pitch % width else width

    @property
    def columns(self) -> int:
        """The columns that a cluster adds up."""
        return 32 if self.width == 1 else 8 * self.width

    @property
    def cluster(self) -> int:
        """The number of blocks that divide the rows; so many that each has as many as it loads."""
        lines = THREADS // (self.columns // self.width) * AT_ONCE
        blocks = 1
        while blocks < MOST_BLOCKS and blocks * lines < self.m:
            blocks *= 2
        return blocks


@lru_cache(maxsize=PREPARED)
def plan(asked: ColumnSums) -> Plan:
    """Return the plan. It takes the addresses of a product, and uses those of A and D.

    It needs compute capability 9.0 or above, for the clusters.
    """
    types = {"INPUT": TYPES[asked.dtype], "OUTPUT": TYPES[asked.out_dtype]}
    given = layout(SOURCE, "ColumnSums", **types).pack({
        "source": Place(A), "d": Place(D), "pitch": asked.pitch, "m": asked.m, "n": asked.n,
    })  # fmt: skip
    cluster = asked.cluster
    grid = -(-asked.n // asked.columns) * cluster, 1, 1
    launch = Launch(grid, (THREADS, 1, 1), (given,), overlap=True)
    kernel = _kernel(asked.dtype, asked.out_dtype, asked.width, cluster)
    return Plan((Step(kernel, launch),), 0, "column_sums", "sums, not a product")


@cache
def _kernel(dtype: str, out_dtype: str, width: int, cluster: int) -> Kernel:
    defines = {
        "INPUT": TYPES[dtype], "OUTPUT": TYPES[out_dtype], "WIDTH": width, "CLUSTER": cluster,
        "OVERLAP": 1,
    }  # fmt: skip
    return Kernel(SOURCE, "column_sums", defines)
