"""The two matrices of a product, as the thin kernels see them: the large one and the thin one."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.gemm.product import Operand, Product


@dataclass(frozen=True)
class Sides:
    """A product's matrices by their size.

    Attributes
    ----------
    many, few : Operand
        The large matrix and the thin one: their rows are D's rows and columns, or the other way
        round; their columns are k.
    rows, few_rows : int
    swapped : bool
        Whether ``many`` is B's transpose, and ``few`` A.
    """

    many: Operand
    few: Operand
    rows: int
    few_rows: int
    swapped: bool


def sides(product: Product) -> Sides:
    """Of A and B's transpose the one with more rows, and the other; B's where they have as many."""
    if product.m <= product.n:
        return Sides(product.b.transposed, product.a, product.n, product.m, swapped=True)
    return Sides(product.a, product.b.transposed, product.m, product.n, swapped=False)
