"""How much of the host's memory a product of files may take."""

from __future__ import annotations

import re

from tilewise.host_memory import available, installed

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


def shown(size: int) -> str:
    """A size for people, as ``"4.00 GB"``."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= UNITS[unit.upper()]:
            return f"{size / UNITS[unit.upper()]:.3g} {unit}"
    return f"{size:,} bytes"
