"""benchmarks/sanitize.py: its cases are products that the kernels it names can compute."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import script

from tilewise.gemm.chip import H200
from tilewise.gemm.product import Operand, Product

SCRIPT = script("sanitize.py")


def lying(shape: tuple[int, int], is_transposed: bool, pad: int, batch: int) -> Operand:
    lines, length = reversed(shape) if is_transposed else shape
    pitch = length + pad
    step = lines * pitch if batch > 1 else 0
    return Operand(1, pitch, step) if is_transposed else Operand(pitch, 1, step)


@pytest.mark.parametrize("case", SCRIPT["CASES"], ids=str)
def test_every_case_has_a_plan_by_the_kernel_it_names(case: Any) -> None:
    is_transposed = [x == "T" for x in case.layout]
    product = Product(
        case.m, case.n, case.k, case.batch, case.dtype, case.out, 1.0, 0.0,
        lying((case.m, case.k), is_transposed[0], case.pad[0], case.batch),
        lying((case.k, case.n), is_transposed[1], case.pad[1], case.batch),
        None, lying((case.m, case.n), False, case.pad[2], case.batch),
    )  # fmt: skip
    plan = SCRIPT["planned"](product, H200, case)
    assert plan.steps
    if case.tiling is not None:
        sizes = f"tiles of {case.tiling.block_m} x {case.tiling.block_n}"
        assert sizes in plan.chosen
