"""Transposed copies: exact, nothing read beside the source or written beside the copy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tilewise.devices import Device
from tilewise.gemm.product import WORKSPACE, A, Operand
from tilewise.gemm.transpose import LARGEST, step, transposition
from tilewise.places import Place

MARK = -7.0  # where nobody may write
MARGIN = 32  # elements around the copy


def check(
    device: Device, rows: int, columns: int, batch: int, gap: int, dtype: str, is_shared: bool
) -> None:
    """Copy matrices whose rows lie ``gap`` elements apart, and matrices too."""
    pitch = columns + gap
    operand = Operand(pitch, 1, 0 if is_shared else rows * pitch + gap)
    made = transposition(operand, rows, columns, batch, dtype)
    assert made is not None
    item = np.dtype(dtype).itemsize
    assert made.bytes % 128 == 0
    assert not made.operand.column_stride * item % 128
    count = (made.batch - 1) * operand.batch_stride + (rows - 1) * pitch + columns
    flat = np.random.default_rng(rows).standard_normal(count).astype(dtype)
    of_source = tuple(item * x for x in (operand.batch_stride, pitch, 1))
    source = as_strided(flat, (batch, rows, columns), of_source)
    # The last element of the array is the last of the source: nothing may be read behind it.
    there = device.array(flat)
    copy = device.array(np.full(made.bytes // item + 2 * MARGIN, MARK, dtype))
    made_by = step(made, Place(A), Place(WORKSPACE, MARGIN * item))
    launch = made_by.launch.filled((there.pointer, 0, 0, 0, copy.pointer))
    device.launch(made_by.kernel.compile(device.arch), launch)
    after = copy.to_numpy()
    assert (after[:MARGIN] == MARK).all()
    assert (after[-MARGIN:] == MARK).all()
    inner = after[MARGIN:-MARGIN]
    strides = (made.operand.batch_stride, made.operand.row_stride, made.operand.column_stride)
    seen = as_strided(inner, (batch, rows, columns), tuple(item * x for x in strides))
    np.testing.assert_array_equal(seen, source)
    # Behind a row of the copy there are zeros to a whole piece of 16 bytes, and then nothing.
    lines = inner.reshape(made.batch, columns, -1)
    whole = -(-rows * item // 16) * 16 // item
    assert (lines[..., rows:whole] == 0).all()
    assert (lines[..., whole:] == MARK).all()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (64, 64), (65, 63), (3, 200), (200, 3), (128, 192)]
)
def test_copies(device: Device, rows: int, columns: int, dtype: str) -> None:
    for batch, gap, is_shared in ((1, 0, False), (3, 5, False), (3, 1, True)):
        check(device, rows, columns, batch, gap, dtype, is_shared)


@given(
    st.integers(1, 150), st.integers(1, 150), st.integers(1, 3), st.integers(0, 9),
    st.sampled_from(["float32", "float64"]), st.booleans(),
)  # fmt: skip
def test_any_copy(
    device: Device, rows: int, columns: int, batch: int, gap: int, dtype: str, is_shared: bool
) -> None:
    check(device, rows, columns, batch, gap, dtype, is_shared)


def test_nothing_lies_in_one_bank_twice(device: Device) -> None:
    if device.name != "emulator":
        pytest.skip("the emulator counts")
    for dtype in ("float32", "float64"):
        made = transposition(Operand(64, 1), 64, 64, 1, dtype)
        assert made is not None
        of_copy = step(made, Place(A), Place(WORKSPACE))
        there, copy = device.array(np.zeros(64 * 64, dtype)), device.empty((64 * 64,), dtype)
        launch = of_copy.launch.filled((there.pointer, 0, 0, 0, copy.pointer))
        counters = device.launch(of_copy.kernel.compile(device.arch), launch).counters
        assert counters is not None
        assert counters.shared_load_bank_conflicts == 0
        assert counters.shared_store_bank_conflicts == 0


@pytest.mark.parametrize(
    ("rows", "columns", "batch"), [(0, 5, 1), (5, 0, 1), (5, 5, 0), (LARGEST + 1, 1, 1)]
)
def test_what_can_not_be_copied(rows: int, columns: int, batch: int) -> None:
    assert transposition(Operand(columns, 1), rows, columns, batch, "float32") is None
