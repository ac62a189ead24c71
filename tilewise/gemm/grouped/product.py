"""A grouped product: one product for each group, whose ends an array holds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

from tilewise.gemm.epilogue import Epilogue
from tilewise.gemm.product import A, B, D, Operand, Product
from tilewise.gemm.product import C as OFFSETS

__all__ = ["OFFSETS", "OFFSET_TYPES", "A", "AnyProduct", "B", "D", "Grouped"]

# Plans take the addresses of A, B, the offsets and D, nothing in the workspace's place, and then
# those of the epilogue's arrays (tilewise.gemm.product.FIRST_FUSED).
OFFSET_TYPES = {"int32": "int", "int64": "long long"}
"""The dtypes of offsets, and the kernels' names for them."""

_TRANSPOSED = {"m": "n", "n": "m", "k": "k"}


class Grouped(NamedTuple):
    """D = f(A B) for each group g, which reaches from ``offsets[g - 1]`` to ``offsets[g]``.

    Attributes
    ----------
    of : str
        The dimension that is in groups. For ``"m"`` these are rows of A and D, and each group has a
        B of its own; for ``"n"`` columns of B and D, and each group has an A of its own; for
        ``"k"`` each group has a D of its own.
    m, n, k : int
        The extents: A is m x k, B is k x n, D is m x n. The extent of the dimension in groups is
        that of all groups together.
    groups : int
    dtype, out_dtype : str
        The dtype of A and B, and that of D.
    offset_dtype : str
        The dtype of the offsets, one of :data:`OFFSET_TYPES`.
    a, b, d : Operand
        The layouts. If each group has a matrix of its own, the batch stride leads from group to
        group.
    epilogue : Epilogue or None
        The function f. The batch strides of its arrays lead from group to group; their rows and
        columns are D's.
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
        """None, since groups have no pairs of columns."""
        return

    @property
    def is_empty(self) -> bool:
        """Whether D has no elements."""
        return not (self.m and self.n and self.groups)

    @property
    def flops(self) -> float:
        """The multiplications and additions of all groups."""
        return 2.0 * self.m * self.n * self.k

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
        """The number of matrices of A, of B and of D."""
        g = self.groups
        return (g if self.of == "n" else 1, g if self.of == "m" else 1, g if self.of == "k" else 1)

    def of_mean(self, extent: float | None = None) -> Product:
        """Return the product whose batch has as many matrices as groups, all of the mean extent.

        Parameters
        ----------
        extent : float, optional
            Of a group, instead of the mean.
        """
        each = max(1, math.ceil(self.mean if extent is None else extent))
        sizes = {"m": self.m, "n": self.n, "k": self.k, self.of: each}

        def batched(x: Operand, rows: str, columns: str) -> Operand:
            along = {rows: x.row_stride, columns: x.column_stride}
            step = each * along[self.of] if self.of in along else x.batch_stride
            return x._replace(batch_stride=step)

        return Product(
            sizes["m"], sizes["n"], sizes["k"], max(1, min(self.groups, self.total)), self.dtype,
            self.out_dtype, 1.0, 0.0, batched(self.a, "m", "k"), batched(self.b, "k", "n"), None,
            batched(self.d, "m", "n"), self.epilogue,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {
            name: value._asdict() if isinstance(value, Operand) else value
            for name, value in self._asdict().items()
            if name != "epilogue"
        }
        if self.epilogue is not None:
            plain["epilogue"] = str(self.epilogue.function)
        return plain


AnyProduct: TypeAlias = Product | Grouped
