"""Every kernel that the planner may ask for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product as combinations

from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import kernels_of
from tilewise.gemm.product import ACCUMULATORS, DTYPES, Operand, Product
from tilewise.kernel import Kernel

_SEED = 1
_SAMPLES = 60  # products of each dtype and layout
_LARGEST = 1 << 13
_LAYOUTS = ("NN", "NT", "TN", "TT")


def every_kernel(chip: Chip | None, dtypes: Sequence[str] = DTYPES) -> Iterator[Kernel]:
    """The kernels of a sample of products, each once.

    Parameters
    ----------
    chip : Chip or None
        As :func:`tilewise.gemm.plan.plan_on` takes it.
    dtypes : sequence of str
        Of A and B.
    """
    return kernels_of(chip, _sample(dtypes))


def _sample(dtypes: Sequence[str]) -> Iterator[Product]:
    draw = random.Random(_SEED)
    for dtype, layout, _ in combinations(dtypes, _LAYOUTS, range(_SAMPLES)):
        m, n, k = (round(_LARGEST ** draw.random()) for _ in range(3))
        if draw.random() < 0.5:
            m, n, k = (-(-size // 8) * 8 for size in (m, n, k))
        out_dtype = ACCUMULATORS[dtype] if draw.random() < 0.1 else dtype
        a = Operand(1, m) if layout[0] == "T" else Operand(k, 1)
        b = Operand(1, k) if layout[1] == "T" else Operand(n, 1)
        yield Product(m, n, k, 1, dtype, out_dtype, 1.0, 0.0, a, b, None, Operand(n, 1))
