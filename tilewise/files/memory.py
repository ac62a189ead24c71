"""How much of the host's memory a product of files may take."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
RESERVE = 1 << 30
"""Bytes of the memory that is free which are left to everything else, or a quarter of it."""

_UNKNOWN = 1 << 30  # what is taken where the system does not say what is free
_FORM = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*")


def parse(given: int | str) -> int:
    """Bytes of a size.

    Parameters
    ----------
    given : int or str
        A whole number of bytes, or a number with a unit: kB, MB, GB and TB are powers of 1000, and
        KiB, MiB, GiB and TiB of 1024.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If it has another form, is not above 0, or is more than this machine has.
    """
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise TypeError(f"memory is {given!r}; it takes bytes, or a size as '4GB' or '512MiB'")
    if isinstance(given, int):
        size = given
    else:
        found = _FORM.fullmatch(given)
        unit = UNITS.get(found[2].upper()) if found else None
        if found is None or unit is None:
            raise ValueError(f"memory is {given!r}; it takes a size as 4GB, 1.5GiB or 512MiB")
        size = int(float(found[1]) * unit)
    if size <= 0:
        raise ValueError(f"memory is {given!r}; it must be above 0")
    there = installed()
    if there is not None and size > there:
        raise ValueError(f"memory is {given!r}; this machine has {shown(there)}")
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


def shown(size: int) -> str:
    """A size for people, as ``"4.00 GB"``."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= UNITS[unit.upper()]:
            return f"{size / UNITS[unit.upper()]:.3g} {unit}"
    return f"{size:,} bytes"
