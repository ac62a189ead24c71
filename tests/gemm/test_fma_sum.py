"""The addition of what blocks have that divide k."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference import examples

from tilewise.devices import Device
from tilewise.gemm import splitk as fma_sum
from tilewise.gemm.product import WORKSPACE, Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.places import Place


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@examples(25, quick=1)
@example(batch=1, m=1, n=1, parts=501)
@example(batch=1, m=4, n=4, parts=245)
@example(batch=3, m=33, n=9, parts=127)
@given(
    batch=st.integers(1, 3), m=st.integers(1, 40), n=st.integers(1, 40), parts=st.integers(2, 140)
)
def test_the_sum_of_any_parts(
    device: Device, dtype: str, batch: int, m: int, n: int, parts: int
) -> None:
    """Of whole numbers, so that every order has the same sum."""
    c_lies, d_lies = Operand(n + 1, 1, m * (n + 1)), Operand(1, m + 2, n * (m + 2))
    unread = Operand(10, 1)
    asked = Product(m, n, 10, batch, dtype, dtype, 2.0, -3.0, unread, unread, c_lies, d_lies)
    rng = np.random.default_rng(0)
    width = fma_sum.pitch(asked)
    found = rng.integers(-99, 99, (parts, batch, m, width)).astype(dtype)
    found[..., n:] = np.nan
    c = rng.integers(-99, 99, (batch, m, n + 1)).astype(dtype)
    before = np.full((batch, n, m + 2), 7, dtype)
    held = [device.array(x) for x in (found, c, before)]
    step = fma_sum.step(asked, parts, Place(WORKSPACE), overlap=False)
    lanes = step.kernel.defines["LANES"]
    assert lanes == fma_sum.lanes(asked, parts)
    assert lanes & lanes - 1 == 0
    assert 1 <= lanes <= max(1, parts // fma_sum.LEAST_PARTS)
    of_parts, of_c, of_d = (x.pointer for x in held)
    execute(Plan((step,), found.nbytes, "", ""), device, 0, (0, 0, of_c, of_d, of_parts))
    after = held[2].to_numpy()
    right = 2 * found[..., :n].sum(axis=0) - 3 * c[..., :n]
    np.testing.assert_array_equal(after[..., :m], right.transpose(0, 2, 1))
    np.testing.assert_array_equal(after[..., m:], before[..., m:])


def test_few_elements_of_many_parts_are_shared_by_threads() -> None:
    def lanes(m: int, n: int, parts: int) -> int:
        lying = Operand(n, 1)
        product = Product(m, n, 10, 1, "float32", "float32", 1.0, 0.0, lying, lying, None, lying)
        return fma_sum.lanes(product, parts)

    assert lanes(1, 1, 500) == 32
    assert lanes(1, 1, 16) == 4
    assert lanes(1, 1, 7) == 1
    assert lanes(64, 64, 128) == 32
    assert lanes(512, 512, 32) == 2
    assert lanes(4096, 4096, 2) == 1
