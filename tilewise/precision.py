"""The floating-point dtypes of matrices and their limits, including those that NumPy lacks.

NumPy has bfloat16 once ml_dtypes, which is optional, is imported.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HALVES = ("float16", "bfloat16")
"""The 16-bit dtypes, whose products are summed in float32."""
REALS = ("float32", "float64")
DTYPES = (*HALVES, *REALS)
NO_BFLOAT16 = "NumPy has no bfloat16 without ml_dtypes (pip install ml_dtypes)"


class Limits(NamedTuple):
    """The limits of the numbers of a dtype.

    Attributes
    ----------
    unit : float
        The unit roundoff: half the distance from 1 to the next number.
    largest : float
        The largest finite number.
    subnormal : float
        The smallest positive number.
    """

    unit: float
    largest: float
    subnormal: float


def dtype_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the NumPy dtype with a name, also bfloat16 if ml_dtypes is installed.

    Raises
    ------
    TypeError
        If there is no such dtype, or if it is bfloat16 and ml_dtypes is not installed.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        except ImportError:
            raise TypeError(f"{NO_BFLOAT16}; float16 needs nothing") from None
        return found
    return np.dtype(dtype)


def name_of(dtype: npt.DTypeLike) -> str:
    """Return a dtype's name; "bfloat16" is returned without asking NumPy, which may lack it."""
    return dtype if isinstance(dtype, str) and dtype in DTYPES else dtype_of(dtype).name


def sums_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype in which products of ``dtype`` are summed: itself, or float32 for 16 bits.

    Examples
    --------
    >>> sums_of("float16")
    dtype('float32')
    """
    return np.dtype(np.float32) if name_of(dtype) in HALVES else dtype_of(dtype)


def limits_of(dtype: npt.DTypeLike) -> Limits:
    """Return the limits of a dtype.

    Examples
    --------
    >>> limits_of("float16").largest
    65504.0
    """
    return _limits(name_of(dtype))


@cache
def _limits(name: str) -> Limits:
    if name == "bfloat16":  # the upper half of a float32
        return Limits(2.0**-8, (2 - 2.0**-7) * 2.0**127, 2.0**-133)
    info = np.finfo(name)
    return Limits(float(info.eps) / 2, float(info.max), float(info.smallest_subnormal))
