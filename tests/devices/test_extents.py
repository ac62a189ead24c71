"""Where the bytes of an array lie."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewise.devices.extents import extent, span


@given(st.data())
def test_a_span_covers_a_pitched_view_and_nothing_else(draw: st.DataObject) -> None:
    rows, pitch = (draw.draw(st.integers(1, 6)) for _ in range(2))
    whole = np.arange(rows * pitch, dtype=np.float64).reshape(rows, pitch)
    top = draw.draw(st.integers(0, rows - 1))
    left = draw.draw(st.integers(0, pitch - 1))
    view = whole[
        top : draw.draw(st.integers(top, rows)), left : draw.draw(st.integers(left, pitch))
    ]
    begin, end = extent(view)
    assert span(view).nbytes == end - begin
    if not view.size:
        assert end == begin
        return
    flat = whole.reshape(-1)
    first = top * pitch + left
    last = first + (view.shape[0] - 1) * pitch + view.shape[1]
    assert begin == whole.ctypes.data + 8 * first
    np.testing.assert_array_equal(span(view).view(np.float64), flat[first:last])
    span(view)[:] = 0
    assert not view.any()
    assert np.count_nonzero(flat[:first]) == np.count_nonzero(np.arange(first))
    np.testing.assert_array_equal(flat[last:], np.arange(last, flat.size))


def test_spans_of_odd_arrays() -> None:
    assert span(np.array(1.5)).tobytes() == struct.pack("<d", 1.5)
    row = np.arange(4, dtype=np.int32)
    assert span(np.broadcast_to(row, (1000, 4))).nbytes == 16
    fixed = np.arange(3)
    fixed.flags.writeable = False
    assert not span(fixed).flags.writeable
    column = np.arange(6.0).reshape(3, 2)[:, :1]
    assert span(column).nbytes == (2 * 2 + 1) * 8
    assert span(np.zeros((0, 5))).nbytes == 0
