"""What is asked of a device: a product for each group of rows, or of k, whose ends it reads."""

from __future__ import annotations

from typing import NamedTuple

from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.product import A, B, D, Operand
from tilewise.gemm.product import C as OFFSETS

__all__ = ["OFFSETS", "OFFSET_TYPES", "A", "B", "D", "Grouped"]

# Plans take the addresses of A, B, the offsets and D, nothing in the workspace's place, and then
# those of the epilogue's arrays (tilewise.gemm.product.FIRST_FUSED).
OFFSET_TYPES = {"int32": "int", "int64": "long long"}
"""The dtypes of offsets, and what kernels call them."""

_TRANSPOSED = {"m": "n", "n": "m", "k": "k"}


class Grouped(NamedTuple):
    """D = f(A B) for each group g, which reaches from ``offsets[g - 1]`` to ``offsets[g]``.

    Attributes
    ----------
    of : str
        The dimension that is in groups. ``"m"``: rows of A and D; each group has a B of its own.
        ``"n"``: columns of B and D; each has an A. ``"k"``: each has a D.
    m, n, k : int
        A is m x k, B is k x n, D is m x n. The extent of the dimension in groups is that of all
        groups together.
    groups : int
    dtype, out_dtype : str
        Of A and B, and of D.
    offset_dtype : str
        One of :data:`OFFSET_TYPES`.
    a, b, d : Operand
        Where each group has a matrix of its own, the batch stride leads from group to group.
    epilogue : Epilogue or None
        f. Batch strides of its arrays lead from group to group, rows and columns are D's.
    """

    of: str
    m: int
    n: int
    k: int
    groups: int
    dtype: str
    out_dtype: str
    offset_dtype: str
    a: Operand
    b: Operand
    d: Operand
    epilogue: Epilogue | None = None

    @property
    def transposed(self) -> Grouped:
        """The same memory seen as D' = f(B' A'), with ' for transposed."""
        return Grouped(
            _TRANSPOSED[self.of], self.n, self.m, self.k, self.groups, self.dtype, self.out_dtype,
            self.offset_dtype, self.b.transposed, self.a.transposed, self.d.transposed,
            None if self.epilogue is None else self.epilogue.transposed,
        )  # fmt: skip

    @property
    def pairing(self) -> None:
        """How pairs of columns lie: groups have none."""
        return

    @property
    def total(self) -> int:
        """The extent of the dimension that is in groups."""
        return {"m": self.m, "n": self.n, "k": self.k}[self.of]

    @property
    def mean(self) -> float:
        """The mean extent of a group."""
        return self.total / max(self.groups, 1)

    @property
    def batches(self) -> tuple[int, int, int]:
        """The matrices of A, of B and of D."""
        g = self.groups
        return (g if self.of == "n" else 1, g if self.of == "m" else 1, g if self.of == "k" else 1)
