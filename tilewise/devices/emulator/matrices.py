"""Products of small matrices by a warp or a warpgroup, and their way to and from shared memory
(PTX ISA 9.7.14: ``mma``, ``ldmatrix``, ``stmatrix``; 9.7.15: ``wgmma``).

A product's sum over k is formed in double precision and rounded once, with the sum it is added to:
to float, or to half. Products of 16-bit numbers are exact there, so that this sum is at least as
accurate as a tensor core's, whose order and roundings are not documented.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator import matrices_of_double
from tilewise.devices.emulator.lanes import WARP, Lanes
from tilewise.devices.emulator.ptx import Address, Immediate, Operand, Vector
from tilewise.devices.emulator.semantics import Words
from tilewise.devices.emulator.spaces import Shared, Where
from tilewise.devices.emulator.warpgroups import WARPGROUP
from tilewise.devices.emulator.warps import (
    elements,
    of_warps,
    read_all,
    readers_of,
    writers_of,
)

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Groups, Machine, Op, Reader, Writer

Values = npt.NDArray[Any]
Offsets = npt.NDArray[np.int64]

PIECE = 16  # bytes: 8 elements of 16 bits, the unit of every layout
NAN = np.uint32(0x7FFFFFFF).view(np.float32)  # the one that tensor cores make


# Fragments: which elements of a matrix a thread's registers hold


def _tile(words: Values) -> Values:
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


def _words(tiles: Values) -> Values:
    """The registers of 8 x 8 matrices: the inverse of :func:`_tile`."""
    words = np.ascontiguousarray(tiles).view(np.uint32)
    return words.reshape(*tiles.shape[:-3], -1)


def _float_matrix(registers: Values, warps: int) -> Values:
    """D of float from its registers, and the way back by :func:`_float_registers`.

    Register 4 j + 2 h + c of lane l of warp w is row 16 w + 8 h + l / 4 and column
    8 j + 2 (l % 4) + c.

    Parameters
    ----------
    registers : ndarray, shape (registers, lanes)
    warps : int
        That hold one D together, 16 rows each.

    Returns
    -------
    ndarray, shape (lanes / (32 * warps), 16 * warps, 2 * registers)
    """
    count = len(registers)
    d = registers.reshape(count // 4, 2, 2, -1, warps, 8, 4).transpose(3, 4, 1, 5, 0, 6, 2)
    return d.reshape(-1, 16 * warps, 2 * count)


def _float_registers(d: Values) -> Values:
    """Registers of D, of shape (registers, lanes): the inverse of :func:`_float_matrix`."""
    groups, rows, columns = d.shape
    parts = d.reshape(groups, rows // 16, 2, 8, columns // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
    return np.ascontiguousarray(parts).reshape(columns // 2, -1)


def _half_matrix(registers: Values, warps: int) -> Values:
    """A, or D of half, from its registers, of two elements each: shape as above, of uint16.

    Register 2 j + h of lane l of warp w is row 16 w + 8 h + l / 4, and columns 8 j + 2 (l % 4) and
    the next.
    """
    count = len(registers)
    tiles = _tile(registers).reshape(count // 2, 2, -1, warps, 8, 8)
    return tiles.transpose(2, 3, 1, 4, 0, 5).reshape(-1, 16 * warps, 4 * count)


def _half_registers(d: Values) -> Values:
    groups, rows, columns = d.shape
    tiles = d.reshape(groups, rows // 16, 2, 8, columns // 8, 8).transpose(4, 2, 0, 1, 3, 5)
    return _words(tiles.reshape(columns // 4, -1, 8, 8))


def _numbers(bits: Values, type_: str) -> npt.NDArray[np.float64]:
    """16-bit patterns as double."""
    if type_ == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


@dataclass
class _Sum:
    """C and D of a product, in registers: ``float`` or two ``half`` each."""

    type: str
    read: list[Reader]
    write: list[Writer]
    warps: int

    @classmethod
    def of(cls, machine: Machine, op: Op, type_: str, d: Operand, c: Operand, warps: int) -> _Sum:
        kind = "f32" if type_ == "f32" else "b32"
        return cls(type_, readers_of(machine, op, c, kind), writers_of(machine, op, d, kind), warps)

    def load(self, lanes: Lanes) -> npt.NDArray[np.float64]:
        registers = read_all(self.read, lanes)
        if self.type == "f32":
            return _float_matrix(registers, self.warps).astype(np.float64)
        return _numbers(_half_matrix(registers, self.warps), "f16")

    def store(self, lanes: Lanes, values: npt.NDArray[np.float64]) -> None:
        if self.type == "f32":
            rounded = values.astype(np.float32)
            rounded[np.isnan(rounded)] = NAN
            registers = _float_registers(rounded)
        else:
            halves = values.astype(np.float16)
            bits = halves.view(np.uint16)
            bits[np.isnan(halves)] = 0x7FFF
            registers = _half_registers(bits)
        for write, value in zip(self.write, registers, strict=True):
            write(lanes, value)


# Instructions of a warp


def _multiply(machine: Machine, op: Op) -> None:
    """``mma.m16n8k8`` and ``k16``; of double, other shapes too."""
    if "f64" in op.instruction.modifiers:
        matrices_of_double.multiply(machine, op)
        return
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned")
    shape = words.one_of(("m16n8k8", "m16n8k16"))
    is_laid_out = words.flag("row") and words.flag("col")
    d_type = words.type("f32", "f16")
    a_type, b_type = words.type("f16", "bf16"), words.type("f16", "bf16")
    c_type = words.type("f32", "f16")
    words.done(
        is_whole and bool(shape) and is_laid_out and a_type == b_type and c_type == d_type
        and (d_type == "f32" or a_type == "f16")
    )  # fmt: skip
    d, a, b, c = op.instruction.operands
    op.flops_a_lane = 2 * 16 * 8 * int(shape[6:]) // WARP
    sum_ = _Sum.of(machine, op, d_type, d, c, 1)
    read_a, read_b = readers_of(machine, op, a, "b32"), readers_of(machine, op, b, "b32")

    def run(lanes: Lanes) -> None:
        left = _numbers(_half_matrix(read_all(read_a, lanes), 1), a_type)
        # B's registers are those of its transpose, 8 x 8 each.
        right = _tile(read_all(read_b, lanes)).transpose(1, 0, 3, 2).reshape(len(left), -1, 8)
        sum_.store(lanes, left @ _numbers(right, a_type) + sum_.load(lanes))

    of_warps(machine, op, run)


def _rows(machine: Machine, op: Op) -> None:
    """``ldmatrix`` and ``stmatrix``: one, two or four 8 x 8 matrices, a row a lane's address."""
    instruction = op.instruction
    words = Words(instruction.opcode, instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned") and words.flag("m8n8")
    count = {"x1": 1, "x2": 2, "x4": 4}.get(words.one_of(("x1", "x2", "x4")), 0)
    is_transposed = words.flag("trans")
    is_shared = words.one_of(("shared", "shared::cta")) != ""
    words.type("b16")
    words.done(is_whole and count > 0 and is_shared)
    is_load = instruction.opcode == "ldmatrix"
    registers, address = instruction.operands if is_load else instruction.operands[::-1]
    if not isinstance(address, Address) or len(elements(op, registers)) != count:
        raise op.unsupported("operands")
    op.width, op.element = PIECE, 2
    where = Where(machine, op, address)
    shared = Shared(machine, op, where, np.dtype("u8"), 2, None)

    def rows(lanes: Lanes) -> tuple[Any, Lanes]:
        """The addresses of the matrices' rows, and the lanes that give them."""
        giving = lanes.where(lanes.pick(lanes.geometry.lane_id) < 8 * count)
        return np.broadcast_to(np.asarray(where(giving), np.int64), giving.count), giving

    def turned(tiles: Values) -> Values:
        return tiles.swapaxes(-1, -2) if is_transposed else tiles

    if is_load:
        writers = writers_of(machine, op, registers, "b32")

        def load(lanes: Lanes) -> None:
            found = np.ascontiguousarray(shared.load_at(*rows(lanes)))
            tiles = found.view(np.uint16).reshape(-1, count, 8, 8).swapaxes(0, 1)
            for write, value in zip(writers, _words(turned(tiles)), strict=True):
                write(lanes, value)

        of_warps(machine, op, load)
        return
    readers = readers_of(machine, op, registers, "b32")

    def store(lanes: Lanes) -> None:
        tiles = turned(_tile(read_all(readers, lanes))).swapaxes(0, 1)
        shared.store_at(*rows(lanes), np.ascontiguousarray(tiles).view(np.uint64).reshape(-1, 2))

    of_warps(machine, op, store)


# Instructions of a warpgroup


@dataclass(frozen=True)
class _Descriptor:
    """Matrices in shared memory, one a warpgroup (PTX ISA 9.7.15.5.1.2.2).

    Attributes
    ----------
    start, leading, stride : ndarray of int64, shape (groups,)
        Bytes.
    swizzle : ndarray of int64, shape (groups,)
        Bytes of a row of the swizzled pattern: 128, 64 or 32, or 16 for none.
    base : ndarray of int64, shape (groups,)
        Number of the 128-byte row, modulo 8, at which the pattern starts.
    """

    start: Offsets
    leading: Offsets
    stride: Offsets
    swizzle: Offsets
    base: Offsets

    @classmethod
    def decode(cls, words: npt.NDArray[np.uint64]) -> _Descriptor:
        def bits(at: int, count: int) -> Offsets:
            mask = np.uint64((1 << count) - 1)
            return (words >> np.uint64(at) & mask).astype(np.int64)

        swizzle = np.array([16, 128, 64, 32])[bits(62, 2)]
        return cls(bits(0, 14) << 4, bits(16, 14) << 4, bits(32, 14) << 4, swizzle, bits(49, 3))

    def pieces(self, rows: int, by_k: bool) -> Offsets:
        """Byte offsets of the 16-byte pieces of ``rows`` rows (or columns) by 16 of k.

        Returns
        -------
        ndarray of int64
            Of shape (groups, rows, 2) where k is the contiguous dimension (``by_k``), else of
            shape (groups, rows / 8, 16).
        """
        start, leading, stride, swizzle, base = (
            x[:, None, None]
            for x in (self.start, self.leading, self.stride, self.swizzle, self.base)
        )
        is_plain = swizzle == PIECE
        if by_k:
            row, piece = np.arange(rows)[:, None], np.arange(2)
            at = row % 8 * swizzle + row // 8 * stride
            at = start + at + piece * np.where(is_plain, leading, PIECE)
        else:
            piece, k = np.arange(rows // 8)[:, None], np.arange(16)
            width = swizzle // PIECE
            across = piece % width * PIECE + piece // width * np.where(is_plain, stride, leading)
            at = start + across + k % 8 * swizzle + k // 8 * np.where(is_plain, leading, stride)
        swapped = (at >> 7) - base & swizzle // PIECE - 1
        return np.asarray(at ^ swapped << 4)


class _Operand:
    """A or B of a ``wgmma``, in shared memory."""

    def __init__(
        self, machine: Machine, op: Op, name: str, operand: Operand, rows: int, by_k: bool,
        type_: str,
    ) -> None:  # fmt: skip
        self.machine, self.op, self.name = machine, op, name
        self.rows, self.by_k, self.type = rows, by_k, type_
        self.read = machine.reader(op, operand, "b64", picked=True)

    def load(self, lanes: Lanes) -> npt.NDArray[np.float64]:
        """The numbers, of shape (groups, rows, 16)."""
        words = np.broadcast_to(self.read(lanes), lanes.count).reshape(-1, WARPGROUP)
        if (words != words[:, :1]).any():
            raise self.op.unsupported(
                f"the threads of a warpgroup give different descriptors of {self.name}"
            )
        storage = self.machine.shared
        offsets = _Descriptor.decode(words[:, 0]).pieces(self.rows, self.by_k)
        first = lanes.numbers[::WARPGROUP]
        outside = offsets + PIECE > storage.size
        if outside.any():
            self._report_outside(first, offsets, outside)
            offsets = np.where(outside, 0, offsets)
        block = self.machine.geometry.block_of[first]
        at = (offsets + block[:, None, None] * storage.pitch) // PIECE
        numbers = _numbers(
            self._by_rows(storage.data.view(np.uint16).reshape(-1, 8)[at]), self.type
        )
        if storage.written is not None:
            written = self._by_rows(storage.written.view(np.uint16).reshape(-1, 8)[at] == 0x0101)
            self._check_written(written, first)
            numbers[~written] = np.nan
        if (ordering := self.machine.ordering) is not None:
            members = lanes.numbers.reshape(-1, WARPGROUP)
            for group, row in enumerate(block):
                ordering.multiplied(
                    self.op, members[group], int(row), offsets[group].reshape(-1), PIECE
                )
        return numbers

    def _by_rows(self, pieces: Values) -> Values:
        if self.by_k:
            return pieces.reshape(len(pieces), self.rows, 16)
        return pieces.swapaxes(2, 3).reshape(len(pieces), self.rows, 16)

    def _report_outside(
        self, first: npt.NDArray[np.intp], offsets: Offsets, outside: npt.NDArray[np.bool_]
    ) -> None:
        group = int(np.flatnonzero(outside.any(axis=(1, 2)))[0])
        place = self.machine.shared_place(int(offsets[group].max()), 2)
        self.op.fault(
            "out of bounds",
            f"multiplies a matrix {self.name} that reaches {place}, outside the block's "
            f"{self.machine.shared.size} bytes of shared memory",
            int(first[group]),
            place,
        )

    def _check_written(self, written: npt.NDArray[np.bool_], first: npt.NDArray[np.intp]) -> None:
        """A row of A, or a column of B, of which nothing was written is no fault: its sums need
        not be used. They are NaN, should they be. But some column of B must be there."""
        row_has = np.logical_or.reduce(written, axis=2)
        is_whole = np.logical_and.reduce(written, axis=2)
        is_faulty = np.logical_or.reduce(row_has & ~is_whole, axis=1)
        if self.name == "B":
            is_faulty |= ~np.logical_or.reduce(row_has, axis=1)
        groups = np.flatnonzero(is_faulty)
        if len(groups):
            self.op.fault(
                "uninitialised",
                f"multiplies a matrix {self.name} in shared memory of which nobody wrote "
                f"{np.count_nonzero(~written[groups[0]])} elements",
                int(first[groups[0]]),
            )


class _Registers:
    """A of a ``wgmma``, in registers."""

    def __init__(self, machine: Machine, op: Op, operand: Operand, type_: str) -> None:
        self.type, self.read = type_, readers_of(machine, op, operand, "b32")

    def load(self, lanes: Lanes) -> npt.NDArray[np.float64]:
        return _numbers(_half_matrix(read_all(self.read, lanes), 4), self.type)


def _multiply_asynchronously(machine: Machine, op: Op) -> None:
    """``wgmma.mma_async``, which is done at once: a wait for it waits for nothing."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("mma_async") and words.flag("sync") and words.flag("aligned")
    shape = next((m for m in op.instruction.modifiers if re.fullmatch(r"m64n\d+k16", m)), "")
    words.flag(shape)
    d_type = words.type("f32", "f16")
    a_type, b_type = words.type("f16", "bf16"), words.type("f16", "bf16")
    words.done(
        is_whole and bool(shape) and a_type == b_type and (d_type == "f32" or a_type == "f16")
    )
    columns = int(shape[4:-3])
    d, a, b, scale_d, *rest = op.instruction.operands
    is_in_registers = isinstance(a, Vector)
    if columns % 8 or not 8 <= columns <= 256 or len(rest) != (3 if is_in_registers else 4):
        raise op.unsupported("operands")
    scale_a, scale_b, *transposes = (_constant(op, x) for x in rest)
    sign = scale_a * scale_b
    sum_ = _Sum.of(machine, op, d_type, d, d, 4)
    if 2 * len(sum_.write) * (1 if d_type == "f32" else 2) != columns:
        raise op.unsupported(f"{len(sum_.write)} registers of the sum")
    left: _Operand | _Registers
    if is_in_registers:
        left = _Registers(machine, op, a, a_type)
    else:
        left = _Operand(machine, op, "A", a, 64, transposes.pop(0) == 0, a_type)
    right = _Operand(machine, op, "B", b, columns, transposes.pop(0) == 0, a_type)
    accumulates = machine.reader(op, scale_d, "pred", picked=True)
    op.flops_a_lane = 2 * 64 * columns * 16 // WARPGROUP

    def meet(lanes: Lanes) -> None:
        adds = np.broadcast_to(accumulates(lanes), lanes.count)[::WARPGROUP]
        product = sign * left.load(lanes) @ right.load(lanes).swapaxes(1, 2)
        if adds.any():
            product[adds] += sum_.load(lanes)[adds]
        sum_.store(lanes, product)

    def control(lanes: Lanes) -> Groups:
        return machine.warpgroups.arrive(op, meet, lanes)

    op.control = control


def _constant(op: Op, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise op.unsupported("operands")
    return int(operand.value)


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "mma": _multiply,
    "ldmatrix": _rows,
    "stmatrix": _rows,
    "wgmma.mma_async": _multiply_asynchronously,
}
