"""Compute what the tests compare a device's results with: exact rounding, bits, ulp."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from tilewise.compiler import Compiled, machine_code
from tilewise.compiler.machine_code import Disassembly, disassemble
from tilewise.devices.emulator import programs
from tilewise.launch import LaunchReport
from tilewise.precision import dtype_of

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "tests" / "kernels"

Array = npt.NDArray[Any]
T = TypeVar("T")

thorough = pytest.mark.thorough
"""Marks a test that a plain run leaves out: see ``--thorough`` in conftest.py."""

QUICK, THOROUGH = 4, 40
"""The number of examples that Hypothesis draws in a plain run, and with ``--thorough``."""


def held(dtypes: Sequence[str]) -> list[str]:
    """Return the dtypes that NumPy has here: bfloat16 takes ml_dtypes, which is optional."""
    try:
        dtype_of("bfloat16")
    except TypeError:
        return [dtype for dtype in dtypes if dtype != "bfloat16"]
    return list(dtypes)


def is_thorough() -> bool:
    """Return whether everything runs: with ``--thorough``, and on a GPU."""
    return settings.default is not None and settings.default.max_examples == THOROUGH


def examples(count: int, quick: int | None = None) -> settings:
    """Return settings of ``count`` examples, or of ``quick`` in a plain run.

    By default, a plain run draws QUICK / THOROUGH of them.
    """
    if is_thorough():
        return settings(max_examples=count)
    return settings(max_examples=-(-count * QUICK // THOROUGH) if quick is None else quick)


def some(values: Sequence[T], count: int) -> list[T]:
    """Return all values; in a plain run ``count`` of them, from the first to the last."""
    if is_thorough() or count >= len(values):
        return list(values)
    apart = (len(values) - 1) / max(count - 1, 1)
    return [values[round(at * apart)] for at in range(count)]


@contextmanager
def disassembled_by(
    read: Callable[[Compiled], Disassembly] = disassemble,
) -> Iterator[None]:
    """Let the emulator read machine code by ``read``; by default as it does outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_code, "disassemble", read)
        patch.setattr(programs, "_known", OrderedDict())  # with how they are counted
        yield


class Launcher(Protocol):
    """The type of the fixture ``launch``, which launches a kernel of ``tests/kernels``."""

    def __call__(
        self,
        file: str,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *args: Any,
        shared: int = 0,
        checks: str = "raise",
        defines: dict[str, Any] | None = None,
        counts: bool = False,
    ) -> LaunchReport: ...


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: binary digits, and the exponents of its normal numbers."""

    precision: int
    lowest: int
    highest: int


FLOAT16 = Format(11, -14, 15)
BFLOAT16 = Format(8, -126, 127)
FLOAT32 = Format(24, -126, 127)
FLOAT64 = Format(53, -1022, 1023)


def rounded(value: Fraction, form: Format, mode: str = "rn") -> float:
    """Round once: ``rn`` to nearest, ties to even, ``rz`` to zero, ``ru`` up, ``rd`` down.

    An exact zero is +0. Source: IEEE 754-2019, 4.3.
    """
    if value == 0:
        return 0.0
    sign = -1 if value < 0 else 1
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, form.lowest) - form.precision + 1)
    whole, rest = divmod(magnitude, unit)
    away = mode == ("ru" if sign > 0 else "rd")
    if mode == "rn":
        up = rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
    else:
        up = away and rest > 0
    result = (whole + up) * unit
    largest = (2**form.precision - 1) * Fraction(2) ** (form.highest - form.precision + 1)
    if result > largest:
        return sign * (math.inf if mode == "rn" or away else float(largest))
    return math.copysign(float(result), sign)


def bits(array: Array) -> Array:
    """Return the bit patterns, with one pattern for all NaNs (a GPU's differs from a CPU's)."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind != "f":
        return array
    raw = array.view(f"u{array.itemsize}").copy()
    raw[np.isnan(array)] = np.iinfo(raw.dtype).max
    return raw


def assert_same(actual: Array, expected: Array) -> None:
    """Assert that two arrays are equal bit for bit, with the signs of zeros."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    wrong = np.argwhere(bits(actual) != bits(expected))
    if len(wrong):
        shown = [
            f"{tuple(int(i) for i in at)}: {actual[tuple(at)]!r}, not {expected[tuple(at)]!r}"
            for at in wrong[:8]
        ]
        raise AssertionError(f"{len(wrong)} of {actual.size} differ: " + "; ".join(shown))


def ulps(actual: Array, expected: Array) -> Array:
    """Return distances in units in the last place of ``actual``; 0 where both are NaN or equal.

    ``expected`` is float64, at least as precise as ``actual``.
    """
    with np.errstate(all="ignore"):
        nearest = expected.astype(actual.dtype)
        unit = np.spacing(np.abs(nearest)).astype(np.float64)
        distance = np.abs(actual.astype(np.float64) - expected) / unit
    same = (np.isnan(actual) & np.isnan(nearest)) | (actual == nearest)
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
