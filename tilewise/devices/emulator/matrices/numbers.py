"""What the elements of matrices are that tensor cores multiply, packed in words of 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}
"""Types of elements, and bytes of one."""

_OF_FLOATS = tuple((a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
PRODUCTS = {
    "f32": (("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), *_OF_FLOATS),
    "f16": (("f16", "f16"), *_OF_FLOATS),
    "s32": tuple((a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
}
"""Of each type of the sum, the types of the elements of A and B (PTX ISA 9.7.14.5, 9.7.15.2)."""


def numbers_of(halves: Values, type_: str) -> npt.NDArray[np.float64]:
    """Return the numbers of packed elements.

    Parameters
    ----------
    halves : ndarray of uint16, shape (..., n)
        Contiguous where the elements are not of 16 bits.
    type_ : str
        One of :data:`BYTES`.

    Returns
    -------
    ndarray of float64, shape (..., 2 * n / bytes of an element)
    """
    if type_ == "f16":
        return halves.view(np.float16).astype(np.float64)
    if type_ == "bf16":
        return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    packed = np.ascontiguousarray(halves)
    if type_ == "tf32":
        # Tensor cores take no notice of the low 13 bits of a float.
        return (packed.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if type_ in _OF_EIGHT_BITS:
        return _OF_EIGHT_BITS[type_][packed.view(np.uint8)]
    return packed.view(np.int8 if type_ == "s8" else np.uint8).astype(np.float64)


def _eight_bits(exponent_bits: int, bias: int, has_infinities: bool) -> npt.NDArray[np.float64]:
    """The numbers of all patterns of 8 bits (PTX ISA 5.2.3, alternate floating-point formats)."""
    fraction_bits = 7 - exponent_bits
    pattern = np.arange(256)
    exponent = pattern >> fraction_bits & (1 << exponent_bits) - 1
    fraction = (pattern & (1 << fraction_bits) - 1) / (1 << fraction_bits)
    size = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias)
    )
    if has_infinities:
        largest = (1 << exponent_bits) - 1
        size = np.where(exponent == largest, np.where(fraction == 0, np.inf, np.nan), size)
    else:
        size = np.where(pattern & 0x7F == 0x7F, np.nan, size)
    return np.asarray(np.where(pattern < 128, size, -size), np.float64)


_OF_EIGHT_BITS = {"e4m3": _eight_bits(4, 7, False), "e5m2": _eight_bits(5, 15, True)}
