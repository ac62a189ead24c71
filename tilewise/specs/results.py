"""The results of a launch in its arrays: how many elements changed, and their statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.shown import Record, number
from tilewise.specs.arrays import Array

FIRST = 4  # values that are shown of an array


@dataclass(frozen=True, repr=False)
class ArrayResult(Record):
    """An array after a launch.

    Attributes
    ----------
    name, dtype : str
    shape : tuple of int
    changed : int or None
        The number of elements whose bits changed; None for an array that was empty.
    unwritten : int or None
        The number of elements of an empty array that nothing wrote; None if that is not known.
    min, max, mean : float, int or None
        The statistics of the finite elements; None if there are none, or they are complex.
    nan, infinite : int
    first : tuple
        The first few elements in row-major order.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    changed: int | None
    unwritten: int | None
    min: float | int | None
    max: float | int | None
    mean: float | None
    nan: int
    infinite: int
    first: tuple[Any, ...]

    @classmethod
    def of(
        cls, name: str, before: Array | None, after: Array, unwritten: Array | None
    ) -> ArrayResult:
        """Return the result of an array.

        Parameters
        ----------
        name : str
        before : ndarray or None
            The array before the launch; None if it was empty.
        after : ndarray
        unwritten : ndarray of bool or None
            The elements that nothing wrote, which are left out of the statistics; None if that is
            not known.
        """
        changed = None if before is None else int(np.count_nonzero(_bits(before) != _bits(after)))
        kind, shape = after.dtype.kind, after.shape
        left = None if unwritten is None else int(unwritten.sum())
        if kind == "V" and after.dtype.name != "bfloat16":  # records have no statistics
            return cls(name, str(after.dtype), shape, changed, left, None, None, None, 0, 0, ())
        if unwritten is not None:
            after = after[~unwritten]
        wide = after.dtype if kind in "biu" else np.complex128 if kind == "c" else np.float64
        real = after.astype(wide, copy=False)
        odd, nan = ~np.isfinite(real), int(np.count_nonzero(np.isnan(real)))
        finite = real[~odd]
        low, high, mean = None, None, None
        if finite.size and kind != "c":
            low, high = finite.min().item(), finite.max().item()
            mean = float(finite.mean(dtype=np.float64))
        first = tuple(x.item() for x in real.reshape(-1)[:FIRST])
        return cls(
            name, after.dtype.name, shape, changed,
            left, low, high, mean, nan,
            int(np.count_nonzero(odd)) - nan, first,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by their names, for JSON; complex numbers as pairs."""
        first = [[x.real, x.imag] if isinstance(x, complex) else x for x in self.first]
        return {**super().to_dict(), "shape": list(self.shape), "first": first}

    def cells(self) -> tuple[str, ...]:
        """Return a table row: name, shape, dtype, changed, least, largest, mean, not finite."""
        if self.changed is not None:
            changed = number(self.changed)
        else:
            total = math.prod(self.shape)
            changed = "?" if self.unwritten is None else number(total - self.unwritten)
        odd = " ".join(
            f"{number(count)} {what}" for count, what in (
                (self.nan, "NaN"), (self.infinite, "inf"), (self.unwritten, "unwritten")
            ) if count
        )  # fmt: skip
        figures = (_short(x) for x in (self.min, self.max, self.mean))
        return (
            self.name,
            " x ".join(map(number, self.shape)) or "1",
            self.dtype,
            changed,
            *figures,
            odd,
        )

    @property
    def begins(self) -> str:
        """The first few elements in words."""
        more = ", ..." if math.prod(self.shape) > len(self.first) else ""
        return f"{', '.join(map(_short, self.first))}{more}"


HEAD = ("arrays", "shape", "dtype", "changed", "least", "largest", "mean", "")
"""The head of a table of :meth:`ArrayResult.cells`."""


def _bits(array: Array) -> Array:
    """Return elements as their bits, so that a NaN equals itself, and -0 differs from 0."""
    whole = np.ascontiguousarray(array)
    size = whole.itemsize
    if size in (1, 2, 4, 8):
        return whole.view(f"u{size}")
    return whole.view(f"V{size}")


def _short(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.4g}"
    return f"{value:.4g}"
