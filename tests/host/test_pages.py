"""Huge pages for new arrays."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from tilewise.host.pages import LEAST, ask_for_huge_pages

SMAPS = Path("/proc/self/smaps")


def flags(address: int) -> list[str]:
    """What the kernel says of the mapping that an address lies in."""
    is_it = False
    for line in SMAPS.read_text().splitlines():
        first = line.split()[0]
        if first.count("-") == 1 and not first.endswith(":"):
            begin, end = (int(x, 16) for x in first.split("-"))
            is_it = begin <= address < end
        elif is_it and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError("no such mapping")


@pytest.mark.skipif(
    not (hasattr(mmap, "MADV_HUGEPAGE") and Path("/sys/kernel/mm/transparent_hugepage").exists()),
    reason="a system without huge pages",
)
def test_a_new_array_is_given_huge_pages() -> None:
    large, small = (
        np.frombuffer(mmap.mmap(-1, size + (1 << 20)), np.uint8)[100:size]
        for size in (2 * LEAST, LEAST)
    )
    for x in (large, small):
        ask_for_huge_pages(x)
    middle = large.ctypes.data + LEAST
    assert "hg" in flags(middle)
    assert "hg" not in flags(small.ctypes.data + LEAST // 2)
    large.flags.writeable = True
    large[:] = 1
    assert large.sum() == large.size
