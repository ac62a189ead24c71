"""One division of k for all products with a weight: a row's bits do not depend on the batch.

A kernel sums in the order of k, whatever its tiles are; what changes the order is how k is divided.
Which division is fastest depends on m. Here it is chosen once for an (n, k), from what the models
expect over many m, and every product with it is computed so (:attr:`Product.parts`).
"""

from __future__ import annotations

import math
from functools import lru_cache

from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import best
from tilewise.gemm.product import Operand, Product
from tilewise.precision import HALVES

PARTS = (1, 2, 4, 8)
LEAST_K = 256  # elements of k that are worth a part
ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def fixed(product: Product, chip: Chip | None) -> Product:
    """Return the product with a division of k that depends on n, k, the dtypes and the GPU alone.

    Parameters
    ----------
    product : Product
        Whose rows of A are the batch.
    chip : Chip or None
        As :func:`tilewise.gemm.plan.plan_on` has it.
    """
    n = product.n if product.pairing is None else 2 * product.n
    return product._replace(parts=division(n, product.k, product.dtype, chip))


@lru_cache(maxsize=4096)
def division(n: int, k: int, dtype: str, chip: Chip | None) -> int:
    """Return the parts that k is divided into, whatever m is.

    Of 16-bit products those that cost the least, in the geometric mean over many m. float32 and
    float64 are not divided.
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
        except ValueError:  # no kernel divides k so
            return math.inf

    return min((x for x in PARTS if x == 1 or k >= x * LEAST_K), key=cost)
