"""Choose one division of k for a weight, so that a row's bits do not depend on the batch.

A kernel sums in the order of k, whatever its tiles are; only the division of k changes the order.
Which division is fastest depends on m. This module chooses it once for an (n, k), by the times that
the models expect for many m, and every product with that weight uses it (:attr:`Product.parts`).
"""

from __future__ import annotations

import math
from functools import lru_cache

from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import best
from tilewise.gemm.product import Operand, Product
from tilewise.precision import HALVES

PARTS = (1, 2, 4, 8)
LEAST_K = 256  # elements of k, the least size of a part
ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def fixed(product: Product, chip: Chip | None) -> Product:
    """Return the product with a division of k that depends on n, k, the dtypes and the GPU alone.

    Parameters
    ----------
    product : Product
        A product whose rows of A are the batch.
    chip : Chip or None
        The GPU, as in :func:`tilewise.gemm.plan.plan_on`.
    """
    n = product.n if product.pairing is None else 2 * product.n
    return product._replace(parts=division(n, product.k, product.dtype, chip))


@lru_cache(maxsize=4096)
def division(n: int, k: int, dtype: str, chip: Chip | None) -> int:
    """Return the number of parts that k is divided into, whatever m is.

    For 16-bit products it is the number with the least cost, by the geometric mean over many m. The
    k of float32 and float64 is not divided.
    """
    if chip is None or dtype not in HALVES or not n:
        return 1

    def product(m: int, parts: int) -> Product:
        return Product(
            m, n, k, 1, dtype, dtype, 1.0, 0.0, Operand(k, 1), Operand(1, k), None, Operand(n, 1),
            parts=parts,
        )  # fmt: skip

    def cost(parts: int) -> float:
        try:
            return sum(math.log(best(product(m, parts), chip).seconds) for m in ROWS)
        except ValueError:  # no kernel divides k into so many parts
            return math.inf

    return min((x for x in PARTS if x == 1 or k >= x * LEAST_K), key=cost)
