"""Convert elements of matrices in a warp's registers, of any type, to numbers and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic import float8
from tilewise.devices.emulator.matrices.fragments import NAN
from tilewise.devices.emulator.ptx.tiles import Tile

Values = npt.NDArray[Any]

_TF32 = np.uint32(0xFFFF_E000)
"""A tensor core reads no more of a float than these bits."""
_BYTES = {"s8": np.int8, "u8": np.uint8}


def words_held(registers: Values, unit: int) -> Values:
    """Return the elements of ``unit`` bytes that lanes hold, of shape (lanes, elements)."""
    each = np.ascontiguousarray(registers.T)
    return each.view(f"u{unit}")


def registers_held(elements: Values, width: int) -> Values:
    """Return registers of ``width`` bytes: the inverse of :func:`words_held`."""
    packed = np.ascontiguousarray(elements).view(f"u{width}")
    return np.ascontiguousarray(packed.T)


def numbers(words: Values, type_: str) -> Values:
    """Return elements as numbers: float64, or int64 for integers.

    Parameters
    ----------
    words : ndarray, shape (..., elements)
        The elements' bits; those of less than a byte by their 32-bit words, along the last axis.
    """
    if type_ in _BYTES:
        return words.view(_BYTES[type_]).astype(np.int64)
    if type_ in ("s4", "u4"):
        shifts = np.arange(0, 32, 4).astype(np.uint32)
        nibbles = (words[..., None] >> shifts & np.uint32(15)).astype(np.int64)
        if type_ == "s4":
            nibbles = (nibbles ^ 8) - 8
        return np.asarray(nibbles.reshape(*words.shape[:-1], -1))
    if type_ == "b1":
        bits = words[..., None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
        return np.asarray(bits.astype(np.int64).reshape(*words.shape[:-1], -1))
    if type_ == "s32":
        return words.view(np.int32).astype(np.int64)
    if type_ == "bf16":
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if type_ == "tf32":
        return (words & _TF32).view(np.float32).astype(np.float64)
    if type_ in float8.TYPES:
        return float8.table(type_)[words]
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[type_]
    return words.view(kind).astype(np.float64)


def bits(values: Values, type_: str) -> Values:
    """Return numbers rounded once to a sum's type, as bits; every NaN is the tensor cores' NaN."""
    if type_ == "s32":
        return values.astype(np.int64).astype(np.uint32)
    if type_ == "f64":
        return np.ascontiguousarray(values).view(np.uint64)
    rounded = values.astype(np.float16 if type_ == "f16" else np.float32)
    is_nan = np.isnan(rounded)
    found = rounded.view(f"u{rounded.itemsize}")
    found[is_nan] = 0x7FFF if type_ == "f16" else NAN.view(np.uint32)
    return found


def matrix(tile: Tile, registers: Values, unit: int) -> Values:
    """Return matrices of bits, (warps, rows, columns); registers that are copies are left out."""
    return tile.matrix(words_held(registers, unit)[:, : tile.count])


def held(tile: Tile, matrices: Values, count: int, width: int) -> Values:
    """Return the ``count`` registers of ``width`` bytes of matrices; copies fill the last."""
    found = registers_held(tile.held(matrices), width)
    return found if len(found) == count else np.tile(found, (count // len(found), 1))
