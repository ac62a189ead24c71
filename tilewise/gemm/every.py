"""The kernels that are compiled before anybody waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewise.gemm.chip import Chip
from tilewise.gemm.plan import FAMILIES
from tilewise.gemm.product import DTYPES
from tilewise.kernel import Kernel

# Macros of kernels for 16-bit inputs whose rows do not all begin at multiples of 16 bytes.
_UNALIGNED = ("A_UNALIGNED", "B_UNALIGNED")


def every_kernel(chip: Chip | None, dtypes: Sequence[str] = DTYPES) -> Iterator[Kernel]:
    """Yield the kernels that the planner can ask for on a GPU, each once.

    All of them but the kernels for 16-bit inputs whose rows do not begin at multiples of 16 bytes:
    those are twice as many as all others, and seldom asked for.

    Parameters
    ----------
    chip : Chip or None
        As :func:`tilewise.gemm.plan.plan_on` takes it.
    dtypes : sequence of str
        Of A and B.
    """
    found: dict[str, Kernel] = {}
    for dtype in dtypes:
        for family in FAMILIES:
            for kernel in family.kernels(chip, dtype):
                if not any(kernel.defines.get(name) for name in _UNALIGNED):
                    found.setdefault(f"{kernel!r} {kernel.options}", kernel)
    yield from found.values()
