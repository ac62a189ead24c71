"""The memory of this machine, and how much of it is free."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def installed() -> int | None:
    """Return the machine's memory in bytes, or None if the system does not say."""
    with suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        pages, bytes_a_page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if pages > 0 and bytes_a_page > 0:  # -1 means that there is no such value
            return pages * bytes_a_page
    return None


def available() -> int | None:
    """Return the bytes that are available without swapping, or None if the system does not say."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # a container's own limit; "max" if it has none
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        found.append(max(limit - _taken(), 0))
    return min(found, default=None)


def _taken() -> int:
    """Return the bytes of this container's processes, without the files cached for them."""
    folder = Path("/sys/fs/cgroup")
    taken = int((folder / "memory.current").read_text())
    for line in (folder / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            taken -= int(value)
    return taken
