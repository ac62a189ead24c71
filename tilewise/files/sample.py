"""Check a sample of a product in files against float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewise.files.npy import Array, MatrixFile
from tilewise.gemm.blocking import Span
from tilewise.numbers import Check, check

GROUPS, LINES = 4, 4
"""The number of groups of neighbouring rows, and of columns, that are checked, and the
lines of a group.
"""

_TAKEN = 24  # bytes of memory that the check takes for an element of A or B, and those of the file


def check_sample(a: MatrixFile, b: MatrixFile, c: MatrixFile, sums: str, memory: int) -> Check:
    """Return whether random rows and columns of C = A B are correct where they cross.

    Parameters
    ----------
    a, b, c : MatrixFile, (m, k), (k, n) and (m, n)
    sums : str
        The dtype of the sums.
    memory : int
        The bytes that the check may take; it checks fewer rows and columns if necessary, and at
        least one of each.

    Notes
    -----
    The bound is that of :func:`tilewise.numbers.check`, which does not know of a last rounding. Of
    float16 the element that is checked is the value nearest to the float64 product which rounds to
    what is in the file.
    """
    (m, k), n = a.header.shape, b.header.shape[1]
    most = max(1, memory // max(2 * k * (_TAKEN + np.dtype(a.header.dtype).itemsize), 1))
    drawn = np.random.default_rng()
    rows, columns = (_drawn(drawn, size, most) for size in (m, n))
    whole = Span(0, k)
    of_a = np.concatenate([_read(a, each, whole) for each in rows] or [np.empty((0, k))])
    of_b = np.concatenate([_read(b, whole, each) for each in columns] or [np.empty((k, 0))], axis=1)
    found = np.empty((of_a.shape[0], of_b.shape[1]), c.header.name)
    top = 0
    for i in rows:
        left = 0
        for j in columns:
            found[top : top + i.size, left : left + j.size] = _read(c, i, j)
            left += j.size
        top += i.size
    if c.header.name == sums:
        return check(found, of_a, of_b)
    return check(_before_rounding(found, of_a, of_b), of_a, of_b, dtype=sums)


def _drawn(drawn: np.random.Generator, size: int, most: int) -> Sequence[Span]:
    """Return spans of neighbouring lines, one in each of equal parts."""
    lines = min(LINES, most, size)
    groups = min(GROUPS, max(most // max(lines, 1), 1), size // lines if lines else 0)
    found = []
    for group in range(groups):
        begin, end = size * group // groups, size * (group + 1) // groups
        start = int(drawn.integers(begin, max(end - lines, begin) + 1))
        found.append(Span(start, start + lines))
    return found


def _read(file: MatrixFile, rows: Span, columns: Span) -> Array:
    return file.load(rows, columns, np.empty(rows.size * columns.size, file.header.name))


def _before_rounding(c: Array, a: Array, b: Array) -> Array:
    """Return the values nearest to A B that round to ``c``."""
    with np.errstate(all="ignore"):
        value = a.astype(np.float64) @ b.astype(np.float64)
        wide = c.astype(np.float64)
        below = np.nextafter(c, c.dtype.type(-np.inf)).astype(np.float64)
        above = np.nextafter(c, c.dtype.type(np.inf)).astype(np.float64)
        # Beyond the largest number the next would be as far away as the last one.
        largest = float(np.finfo(c.dtype).max)
        gap = largest - float(np.nextafter(c.dtype.type(largest), c.dtype.type(0)))
        edge = largest + gap / 2
        low = np.where(wide == largest, (wide + below) / 2, (wide + below) / 2)
        high = np.where(wide == largest, edge, (wide + above) / 2)
        low = np.where(wide == -largest, -edge, low)
        low = np.where(wide == np.inf, edge, np.where(wide == -np.inf, -np.inf, low))
        high = np.where(wide == -np.inf, -edge, np.where(wide == np.inf, np.inf, high))
        return np.where(np.isnan(wide), wide, np.clip(value, low, high))
