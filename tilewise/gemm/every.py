"""The kernels that can be compiled before any product needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewise.gemm.chip import Chip
from tilewise.gemm.grouped.tiles import FEW_GROUPS, MOST_GROUPS
from tilewise.gemm.layouts import TYPES
from tilewise.gemm.plan import FAMILIES, OF_GROUPS
from tilewise.gemm.product import DTYPES, REAL
from tilewise.kernel import Kernel

# The macros of a 16-bit product's kernel in the usual case: all rows begin at multiples of 16
# bytes, C is not read, and D has the inputs' dtype. The kernels of all other cases are over ten
# times as many.
_USUAL = {
    "READ_C": 0, "TMA_OUT": 1, "A_UNALIGNED": 0, "B_UNALIGNED": 0, "D_UNALIGNED": 0,
    "A_WIDTH": 8, "B_WIDTH": 8, "A_PARTIAL": 0, "B_PARTIAL": 0, "STORE_PIECES": 1,
}  # fmt: skip


def every_kernel(chip: Chip | None, dtypes: Sequence[str] = DTYPES) -> Iterator[Kernel]:
    """Yield the kernels that the planner can choose on a GPU, each once.

    For float32 and float64 these are all kernels; for 16-bit products those of the usual case,
    where all rows begin at multiples of 16 bytes, C is not read, and D has the dtype of A and B.

    Parameters
    ----------
    chip : Chip or None
        The GPU, as in :func:`tilewise.gemm.plan.plan_on`.
    dtypes : sequence of str
        The dtypes of A and B.
    """
    found: dict[str, Kernel] = {}
    for dtype in dtypes:
        for family in FAMILIES:
            for kernel in family.kernels(chip, dtype):
                if dtype in REAL or _is_usual(kernel, dtype):
                    found.setdefault(f"{kernel!r} {kernel.options}", kernel)
    yield from found.values()


def every_grouped_kernel(
    chip: Chip | None, groups: Sequence[int], dtypes: Sequence[str] = DTYPES
) -> Iterator[Kernel]:
    """Yield the kernels that the planner can choose for grouped products, each once.

    For float32 and float64 these are all kernels; for 16-bit products those of the usual case,
    where all rows begin at multiples of 16 bytes, and D has the dtype of A and B. On a Hopper GPU
    the grouped Hopper kernel takes these.

    Parameters
    ----------
    chip : Chip or None
        The GPU, as in :func:`tilewise.gemm.plan.plan_on`.
    groups : sequence of int
        The number of groups of each product.
    dtypes : sequence of str
        The dtypes of A and B.
    """
    tables = {FEW_GROUPS if x <= FEW_GROUPS else MOST_GROUPS for x in groups if x <= MOST_GROUPS}
    is_of_many = max(groups) > MOST_GROUPS
    hopper, *others, general = OF_GROUPS
    fast = [hopper] if chip is not None and chip.is_hopper else others
    found: dict[str, Kernel] = {}
    for dtype in dtypes:
        for family in fast:
            for kernel in family.kernels(chip, dtype):
                if kernel.defines["MOST_GROUPS"] in tables and _is_usual(kernel, dtype):
                    found.setdefault(f"{kernel!r} {kernel.options}", kernel)
        if dtype in REAL or is_of_many or chip is None:
            for kernel in general.kernels(chip, dtype):
                if dtype in REAL or _is_usual(kernel, dtype):
                    found.setdefault(f"{kernel!r} {kernel.options}", kernel)
    yield from found.values()


def _is_usual(kernel: Kernel, dtype: str) -> bool:
    given = kernel.defines
    usual = {**_USUAL, "OUTPUT": TYPES[dtype]}
    return all(given.get(name, value) == value for name, value in usual.items())
