"""Sums of a matrix's columns: within the bound of a sum, and nothing is touched beside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import THOROUGH, examples, held

from tilewise.devices import Device
from tilewise.gemm.column_sums import DTYPES, ColumnSums, plan
from tilewise.gemm.product import offset
from tilewise.gemm.steps import execute
from tilewise.kernel import Kernel
from tilewise.precision import dtype_of
from tilewise.roundoff import unit_roundoff

MARK = -7.0  # where nobody may write


def check(
    device: Device, m: int, n: int, gap: int, skipped: int, dtype: str, out_dtype: str
) -> ColumnSums:
    """Add up the rows of a matrix whose rows lie ``gap`` elements apart, behind ``skipped``."""
    rng = np.random.default_rng(m + n)
    pitch = n + gap
    flat = rng.standard_normal(skipped + (m - 1) * pitch + n).astype(dtype_of(dtype))
    # The last element of the array is the matrix's last: nothing may be read behind it.
    there = device.array(flat)
    sums = device.array(np.full(n + 2, MARK, dtype_of(out_dtype)))
    item, out_item = flat.itemsize, sums.to_numpy().itemsize
    at = there.pointer + skipped * item
    asked = ColumnSums(m, n, pitch, offset(at), dtype, out_dtype)
    execute(plan(asked), device, 0, (at, 0, 0, sums.pointer + out_item, 0))
    after = sums.to_numpy().astype(np.float64)
    assert after[0] == after[-1] == MARK
    lines = [flat[skipped + i * pitch :][:n] for i in range(m)]
    source = np.array(lines).astype(np.float64)
    u = unit_roundoff("float32")
    bound = m * u / (1 - m * u) * np.abs(source).sum(0)
    exact = source.sum(0)
    bound += unit_roundoff(out_dtype) * (np.abs(exact) + bound)
    assert (np.abs(after[1:-1] - exact) <= bound).all()
    return asked


@pytest.mark.parametrize("dtype", held(DTYPES))
@pytest.mark.parametrize(
    ("m", "n", "cluster"), [(1, 64, 1), (256, 8, 1), (257, 136, 2), (600, 72, 4), (2100, 40, 8)]
)
def test_rows_of_whole_pieces(device: Device, dtype: str, m: int, n: int, cluster: int) -> None:
    asked = check(device, m, n, 8, 0, dtype, dtype)
    assert (asked.width, asked.cluster) == (16 // np.dtype(dtype_of(dtype)).itemsize, cluster)


@examples(THOROUGH, quick=4)
@given(st.data())
def test_sums_of_any_matrix(device: Device, data: st.DataObject) -> None:
    m = data.draw(st.sampled_from([1, 2, 31, 32, 33, 63, 65, 128, 300]))
    n = data.draw(st.integers(1, 140))
    gap, skipped = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    dtype, out_dtype = (data.draw(st.sampled_from(held(DTYPES))) for _ in range(2))
    check(device, m, n, gap, skipped, dtype, out_dtype)


def test_not_a_number_stays_in_its_column(device: Device) -> None:
    flat = np.ones((70, 16), np.float32)
    flat[69, 3], flat[2, 5] = np.nan, np.inf
    there, sums = device.array(flat), device.empty((16,), np.float32)
    asked = ColumnSums(70, 16, 16, 0, "float32", "float32")
    execute(plan(asked), device, 0, (there.pointer, 0, 0, sums.pointer, 0))
    wanted = np.full(16, 70.0)
    wanted[3], wanted[5] = np.nan, np.inf
    np.testing.assert_array_equal(sums.to_numpy(), wanted)


@pytest.mark.parametrize("n", [3072, 50257])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_without_spills(dtype: str, n: int) -> None:
    (step,) = plan(ColumnSums(4096, n, n, 0, dtype, dtype)).steps
    assert isinstance(step.kernel, Kernel)
    used = step.kernel.compile("sm_90a", lines=False).resources
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)
    assert used.registers <= 64  # 4 blocks of 256 threads a multiprocessor
