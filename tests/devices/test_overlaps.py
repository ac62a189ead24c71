"""Arguments that lie in one another's memory, on either device: views, and pointers into arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.devices import Device
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

# y[i] takes what stands before x[i], and x[i] becomes -1.
SHIFTED = """
extern "C" __global__ void shifted(int n, float* x, float* y) {
    int i = threadIdx.x;
    float before = x[i - 1];
    __syncthreads();
    if (i < n) { y[i] = before; x[i] = -1; }
}"""
BOTH = """
extern "C" __global__ void both(float* x, float* y) {
    int i = threadIdx.x;
    x[i] += 1;
    __syncthreads();
    y[i] *= 10;
}"""


def shift(device: Device, n: int, x: Any, y: Any, **how: Any) -> None:
    Kernel(SHIFTED, "shifted").launch(1, n, (n, x, y), device=device, **how)


def test_a_pointer_into_an_array(device: Device) -> None:
    x, y = np.arange(9, dtype=np.float32), np.zeros(8, np.float32)
    shift(device, 8, tilewise.pointer(x, 1), y)
    np.testing.assert_array_equal(y, np.arange(8))
    np.testing.assert_array_equal(x, [0] + 8 * [-1])


def test_a_pointer_into_an_array_on_the_device(device: Device) -> None:
    x, y = device.array(np.arange(9, dtype=np.float32)), np.zeros(8, np.float32)
    shift(device, 8, tilewise.pointer(x, 1), y)
    np.testing.assert_array_equal(y, np.arange(8))
    np.testing.assert_array_equal(x.to_numpy(), [0] + 8 * [-1])


def test_pointers_into_one_array(device: Device) -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    shift(device, 4, tilewise.pointer(x, (1, 2)), tilewise.pointer(x, (2, 4)))
    np.testing.assert_array_equal(x[2], [16, 17, 18, 19, 9, 10, 11, 12])
    np.testing.assert_array_equal(x[1], [8, 9, -1, -1, -1, -1, 14, 15])


def test_a_view_and_what_it_is_a_view_of(device: Device) -> None:
    x = np.arange(9, dtype=np.float32)
    shift(device, 4, x[5:], x)
    np.testing.assert_array_equal(x, [4, 5, 6, 7, 4, -1, -1, -1, -1])


def test_views_that_overlap(device: Device) -> None:
    x = np.arange(12, dtype=np.float32)
    Kernel(BOTH, "both").launch(1, 8, (x[:8], x[4:]), device=device)
    np.testing.assert_array_equal(x, [1, 2, 3, 4, 50, 60, 70, 80, 80, 90, 100, 110])


def test_isolated(emulator: Device) -> None:
    x, y = np.arange(9, dtype=np.float32), np.zeros(8, np.float32)
    shift(emulator, 8, tilewise.pointer(x, 1), y, isolated=True)
    np.testing.assert_array_equal(y, np.arange(8))


def test_findings_name_the_whole_array(emulator: Device) -> None:
    x, y = np.arange(9, dtype=np.float32), np.zeros(8, np.float32)
    with pytest.raises(MemoryAccessError, match=r"x\[-1\], outside it \(32 bytes\)"):
        shift(emulator, 8, x[1:], y)  # a view is an array of its own
    with pytest.raises(MemoryAccessError, match=r"x\[9\], outside it \(36 bytes\)"):
        shift(emulator, 8, tilewise.pointer(x, 3), y)
    matrix = np.zeros((4, 6), np.float32)
    with pytest.raises(MemoryAccessError, match=r"x\[0\]\[4\]"):
        # Neither lies in the other; what is in neither is outside.
        Kernel(BOTH, "both").launch(1, 5, (matrix[:3, :4], matrix[1:, :4]), device=emulator)


def test_what_overlaps_a_read_only_array(emulator: Device) -> None:
    x = np.arange(12, dtype=np.float32)
    whole = x.view()
    whole.flags.writeable = False
    Kernel(BOTH, "both").launch(1, 4, (x[4:8], x[8:]), device=emulator)
    kernel = Kernel(BOTH, "both")
    kernel.launch(1, 2, (x[4:8], x[2:6]), device=emulator)
    before = x.copy()
    with pytest.raises(ValueError, match="is written by the kernel but is read-only"):
        kernel.launch(1, 4, (x[4:8], whole), device=emulator)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    ("array", "index", "error", "words"),
    [
        (np.zeros(4), 5, ValueError, r"index is 5; the array's shape is \(4,\)"),
        (np.zeros(4), -1, ValueError, "index is -1"),
        (np.zeros((4, 2)), 1, ValueError, "has 2 axes"),
        (np.zeros((4, 2)), (1, 2), ValueError, r"shape is \(4, 2\)"),
        (np.zeros((4, 2)), (4, 1), ValueError, r"shape is \(4, 2\)"),
        (np.zeros(4), 1.0, TypeError, "takes an integer for each axis"),
        (np.zeros(4), "1", TypeError, "takes an integer for each axis"),
        ([1, 2], 1, TypeError, "array is a list; "),
    ],
)
def test_no_pointer(array: Any, index: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tilewise.pointer(array, index)


def test_a_pointer_past_the_end() -> None:
    assert tilewise.pointer(np.zeros(4, np.float32), 4).offset == 16
    assert tilewise.pointer(np.zeros((4, 2), np.float32), (4, 0)).offset == 32


def test_a_pointer_for_what_is_none(emulator: Device) -> None:
    at = tilewise.pointer(np.zeros(4, np.float32), 4)
    with pytest.raises(TypeError, match=r"argument 0 \(int\): takes a 32-bit integer"):
        Kernel(SHIFTED, "shifted").launch(1, 1, (at, at, at), device=emulator)
