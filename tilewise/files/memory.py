"""How much of the host's memory a product of files may take."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tilewise import sizes

RESERVE = 1 << 30
"""Bytes of the memory that is free which are left to everything else, or a quarter of it."""

_UNKNOWN = 1 << 30  # what is taken where the system does not say what is free


def parse(given: int | str) -> int:
    """Bytes of a size that this machine has, as :func:`tilewise.sizes.parse` takes it.

    Raises
    ------
    TypeError
        If it is no size.
    ValueError
        If it has another form, is not above 0, or is more than this machine has.
    """
    size = sizes.parse(given)
    there = installed()
    if there is not None and size > there:
        raise ValueError(f"memory is {given!r}; this machine has {sizes.shown(there)}")
    return size


def default() -> int:
    """Bytes that are free, less a reserve."""
    free = available()
    return _UNKNOWN if free is None else max(free - min(RESERVE, free // 4), 1 << 20)


def installed() -> int | None:
    """Return the machine's memory in bytes, or None where the system does not say."""
    with suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def available() -> int | None:
    """Return what can be had without swapping, in bytes, or None where the system does not say."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # a container's own limit; "max" where it has none
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        found.append(max(limit - _taken(), 0))
    return min(found, default=None)


def _taken() -> int:
    """Bytes of this container's processes, without files that the system keeps for them."""
    folder = Path("/sys/fs/cgroup")
    taken = int((folder / "memory.current").read_text())
    for line in (folder / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            taken -= int(value)
    return taken
