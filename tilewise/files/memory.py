"""The host memory that a product of files may take."""

from __future__ import annotations

from tilewise import sizes
from tilewise.host_memory import available, installed

RESERVE = 1 << 30
"""Bytes of the memory that is free which are left to everything else, or a quarter of it."""

_UNKNOWN = 1 << 30  # assumed if the system does not say how much is free


def parse(given: int | str) -> int:
    """Return the bytes of a size that this machine has, as :func:`tilewise.sizes.parse` takes it.

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
    """Return the bytes that are free, less a reserve."""
    free = available()
    return _UNKNOWN if free is None else max(free - min(RESERVE, free // 4), 1 << 20)
