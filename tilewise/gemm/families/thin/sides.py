"""The matrices of a product as the thin kernels see them: a large one, and one with few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewise.gemm.product import A, B, C, Operand, Product
from tilewise.places import Place
from tilewise.shown import expected_time


@dataclass(frozen=True)
class Sides:
    """The matrices of a product by their size.

    Attributes
    ----------
    many, few : Operand
        The large matrix and the thin one: A and B transposed, or the other way round. The columns
        of both are k.
    rows, few_rows : int
        The rows of the large and of the thin matrix.
    is_swapped : bool
        Whether the large matrix is B transposed, and the thin one A.
    is_k_major : bool
        Whether k is the contiguous dimension of the large matrix.
    """

    many: Operand
    few: Operand
    rows: int
    few_rows: int
    is_swapped: bool
    is_k_major: bool

    @property
    def names(self) -> tuple[str, str]:
        """The names of the large matrix and of the thin one, in words."""
        return ("B", "A") if self.is_swapped else ("A", "B")

    def of_few_rows(self, product: Product) -> Product:
        """Return the product as one whose A is the thin matrix."""
        return product if self.is_swapped else product.transposed

    def fields(self, product: Product) -> dict[str, Any]:
        """Return the fields for the large matrix, C and D, which the structs of both kernels share.

        Parameters
        ----------
        product : Product
            A product whose A is the thin matrix.
        """
        reads_c = product.c is not None and product.beta != 0
        c, d = product.c or product.d, product.d
        return {
            "many": Place(B if self.is_swapped else A), "c": Place(C) if reads_c else None,
            "many_pitch": self.many.row_stride if self.is_k_major else self.many.column_stride,
            "many_step": self.many.batch_stride,
            "c_many": c.column_stride, "c_few": c.row_stride, "c_step": c.batch_stride,
            "d_many": d.column_stride, "d_few": d.row_stride, "d_step": d.batch_stride,
            "rows": self.rows, "few_rows": self.few_rows, "k": product.k, "batch": product.batch,
            "alpha": product.alpha, "beta": product.beta,
        }  # fmt: skip

    def why(self, seconds: float) -> str:
        """Return why the thin kernel takes the product, in words."""
        time = expected_time(seconds)
        return f"{self.names[0]} is read once, where it lies: it should take {time}"


def sides_of(product: Product) -> Sides:
    """Return the sides of a product: B transposed is the large matrix unless A has more rows."""
    is_swapped = product.m <= product.n
    a, b, m, n = product.a, product.b.transposed, product.m, product.n
    many, few, rows, few_rows = (b, a, n, m) if is_swapped else (a, b, m, n)
    is_k_major = many.column_stride == 1 or product.k == 1
    return Sides(many, few, rows, few_rows, is_swapped, is_k_major)
