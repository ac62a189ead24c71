"""Sizes of memory as people write them: ``4GB``, ``512MiB``, or bytes."""

from __future__ import annotations

import re
from operator import index
from typing import SupportsIndex

from tilewise.shown import plural

UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_FORM = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*")


def parse(given: int | str, what: str = "memory") -> int:
    """Return the bytes of a size.

    Parameters
    ----------
    given : int or str
        A whole number of bytes, or a number with a unit: kB, MB, GB and TB are powers of 1000, and
        KiB, MiB, GiB and TiB of 1024.
    what : str
        The name of the argument for messages.

    Raises
    ------
    TypeError
        If it is neither an integer nor a string.
    ValueError
        If it has another form, or is not above 0.
    """
    if isinstance(given, bool) or not isinstance(given, str | SupportsIndex):
        raise TypeError(f"{what} is {given!r}; it takes bytes, or a size as '4GB' or '512MiB'")
    if not isinstance(given, str):
        try:
            size = index(given)
        except TypeError:  # an array of several
            raise TypeError(f"{what} is {given!r}; it takes one integer") from None
    else:
        found = _FORM.fullmatch(given)
        unit = UNITS.get(found[2].upper()) if found else None
        if found is None or unit is None:
            raise ValueError(f"{what} is {given!r}; it takes a size as 4GB, 1.5GiB or 512MiB")
        size = int(float(found[1]) * unit)
    if size <= 0:
        raise ValueError(f"{what} is {given!r}; it must be above 0")
    return size


def shown(size: int) -> str:
    """Return a size as text, as in ``"4 GB"``."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= UNITS[unit.upper()]:
            return f"{size / UNITS[unit.upper()]:.3g} {unit}"
    return plural(size, "byte")
