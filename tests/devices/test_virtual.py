"""Arrays of zeros that take memory only where they are touched."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewise.devices import virtual


def resident() -> int:
    """Bytes of memory that this process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize("shape", [(), 0, 5, (3, 4), (0, 7), (2, 0), (3000, 2000)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_it_is_an_array_of_zeros(shape: int | tuple[int, ...], dtype: type) -> None:
    for is_written in (True, False):
        found = virtual.zeros(shape, dtype, is_written=is_written)
        plain: npt.NDArray[Any] = np.zeros(shape, dtype)
        assert found.shape == plain.shape
        assert found.dtype == plain.dtype
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert not found.any()
        found[...] = 3
        assert (found == 3).all()


def test_more_than_the_machine_has() -> None:
    side = 1_000_000  # 4 TB
    before = resident()
    found = virtual.zeros((side, side), np.float32)
    assert found[:: side // 10, :: side // 10].sum() == 0
    found[-1, -1] = 1
    assert found[-1, -1] == 1
    assert resident() - before < 1 << 25
    del found
    gc.collect()
    again = virtual.zeros((side, side), np.float32, is_written=False)
    assert again[-1, -1] == 0


def test_more_than_there_are_addresses() -> None:
    for shape in ((1 << 31, 1 << 28), (1 << 40, 1 << 40)):
        with pytest.raises(MemoryError, match=r"takes [\d,.]+ TiB of addresses"):
            virtual.zeros(shape, np.float32)
