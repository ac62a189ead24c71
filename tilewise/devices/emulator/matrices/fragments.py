"""Map a thread's registers to elements of a matrix, for the products of warps (PTX ISA 9.7.14 and
9.7.15), and form the sums of such products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.matrices.warps import read_all, readers_of, writers_of
from tilewise.devices.emulator.ptx.syntax import Operand
from tilewise.devices.emulator.threads.lanes import WARP, Lanes
from tilewise.devices.emulator.threads.op import Op, Reader, Writer

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Values = npt.NDArray[Any]

PIECE = 16  # bytes: 8 elements of 16 bits, the unit of every layout
NAN = np.uint32(0x7FFFFFFF).view(np.float32)  # the one that tensor cores make


def tiles_of(words: Values) -> Values:
    """An 8 x 8 matrix a warp from a register each: lane l holds (l / 4, 2 (l % 4)) and the next.

    Parameters
    ----------
    words : ndarray of uint32, shape (..., warps * 32)

    Returns
    -------
    ndarray of uint16, shape (..., warps, 8, 8)
    """
    halves = np.ascontiguousarray(words).view(np.uint16)
    return halves.reshape(*words.shape[:-1], -1, 8, 8)


def words_of(tiles: Values) -> Values:
    """Return the registers of 8 x 8 matrices: the inverse of :func:`tiles_of`."""
    words = np.ascontiguousarray(tiles).view(np.uint32)
    return words.reshape(*tiles.shape[:-3], -1)


def float_matrix(registers: Values, warps: int) -> Values:
    """Return the matrix D of float held in registers; :func:`float_registers` is the inverse.

    Register 4 j + 2 h + c of lane l of warp w is row 16 w + 8 h + l / 4 and column
    8 j + 2 (l % 4) + c.

    Parameters
    ----------
    registers : ndarray, shape (registers, lanes)
    warps : int
        The warps that hold one D together, 16 rows each.

    Returns
    -------
    ndarray, shape (lanes / (32 * warps), 16 * warps, 2 * registers)
    """
    count = len(registers)
    d = registers.reshape(count // 4, 2, 2, -1, warps, 8, 4).transpose(3, 4, 1, 5, 0, 6, 2)
    return d.reshape(-1, 16 * warps, 2 * count)


def float_registers(d: Values) -> Values:
    """Return D's registers, of shape (registers, lanes): the inverse of :func:`float_matrix`."""
    groups, rows, columns = d.shape
    parts = d.reshape(groups, rows // 16, 2, 8, columns // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
    return np.ascontiguousarray(parts).reshape(columns // 2, -1)


def half_matrix(registers: Values, warps: int) -> Values:
    """A, or D of half, from its registers, of two elements each: shape as above, of uint16.

    Register 2 j + h of lane l of warp w is row 16 w + 8 h + l / 4, and columns 8 j + 2 (l % 4) and
    the next.
    """
    count = len(registers)
    tiles = tiles_of(registers).reshape(count // 2, 2, -1, warps, 8, 8)
    return tiles.transpose(2, 3, 1, 4, 0, 5).reshape(-1, 16 * warps, 4 * count)


def half_registers(d: Values) -> Values:
    groups, rows, columns = d.shape
    tiles = d.reshape(groups, rows // 16, 2, 8, columns // 8, 8).transpose(4, 2, 0, 1, 3, 5)
    return words_of(tiles.reshape(columns // 4, -1, 8, 8))


def numbers_of(bits: Values, type_: str) -> npt.NDArray[np.float64]:
    """Return 16-bit patterns as float64."""
    if type_ == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


@dataclass
class Sum:
    """The matrices C and D of a product, in registers: ``float``, ``int`` or two ``half`` each."""

    type: str
    read: list[Reader]
    write: list[Writer]
    warps: int
    saturates: bool = False

    @classmethod
    def of(
        cls, machine: Machine, op: Op, type_: str, d: Operand, c: Operand, warps: int,
        saturates: bool = False,
    ) -> Sum:  # fmt: skip
        kind = "f32" if type_ == "f32" else "b32"
        read, write = readers_of(machine, op, c, kind), writers_of(machine, op, d, kind)
        return cls(type_, read, write, warps, saturates)

    def held(self, name: str) -> Held:
        """Return which elements of D the lanes hold."""
        halves = self.type == "f16"
        matrix = half_matrix if halves else float_matrix
        count, lanes = len(self.write), WARP * self.warps
        return Held.found(name, self.type, lambda x: matrix(x, self.warps), count, lanes, halves)

    def load(self, lanes: Lanes) -> npt.NDArray[np.float64]:
        registers = read_all(self.read, lanes)
        if self.type == "f32":
            return float_matrix(registers, self.warps).astype(np.float64)
        if self.type == "s32":
            return float_matrix(registers.view(np.int32), self.warps).astype(np.float64)
        return numbers_of(half_matrix(registers, self.warps), "f16")

    def store(self, lanes: Lanes, values: npt.NDArray[np.float64]) -> None:
        if self.type == "f32":
            rounded = values.astype(np.float32)
            rounded[np.isnan(rounded)] = NAN
            registers = float_registers(rounded)
        elif self.type == "s32":
            whole = values.astype(np.int64)
            if self.saturates:
                whole = whole.clip(-(2**31), 2**31 - 1)
            registers = float_registers(whole.astype(np.uint32))
        else:
            halves = values.astype(np.float16)
            bits = halves.view(np.uint16)
            bits[np.isnan(halves)] = 0x7FFF
            registers = half_registers(bits)
        for write, value in zip(self.write, registers, strict=True):
            write(lanes, value)
