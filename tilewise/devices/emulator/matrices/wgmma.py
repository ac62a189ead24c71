"""Multiply matrices by a warpgroup (PTX ISA 9.7.15: ``wgmma``), with A in registers or in shared
memory and B in shared memory, summed as in :mod:`tilewise.devices.emulator.matrices.fragments`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices import registers
from tilewise.devices.emulator.matrices.fragments import PIECE, Sum, half_matrix
from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.matrices.multiply import tensor_type
from tilewise.devices.emulator.matrices.warps import read_all, readers_of
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Immediate, Operand, Vector
from tilewise.devices.emulator.threads.lanes import WARPGROUP, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op
from tilewise.shown import plural

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}
"""The types of elements, and the bytes of one."""

_OF_FLOATS = tuple((a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
PRODUCTS = {
    "f32": (("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), *_OF_FLOATS),
    "f16": (("f16", "f16"), *_OF_FLOATS),
    "s32": tuple((a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
}
"""For each type of the sum, the types of the elements of A and B (PTX ISA 9.7.15.2)."""

Values = npt.NDArray[Any]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Descriptor:
    """Matrices in shared memory, one a warpgroup (PTX ISA 9.7.15.5.1.2.2).

    Attributes
    ----------
    start, leading, stride : ndarray of int64, shape (groups,)
        The start address and the two strides, in bytes.
    swizzle : ndarray of int64, shape (groups,)
        Bytes of a row of the swizzled pattern: 128, 64 or 32, or 16 for none.
    base : ndarray of int64, shape (groups,)
        The number of the 128-byte row, modulo 8, at which the pattern starts.
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
        """Return the byte offsets of the 16-byte pieces of ``rows`` rows (or columns) by 16 of k.

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
        self.read = machine.registers.reader(op, operand, "b64", picked=True)

    def offsets(self, lanes: Lanes) -> Offsets:
        """Return the offsets of each warpgroup's pieces, as :meth:`_Descriptor.pieces` does."""
        words = np.broadcast_to(self.read(lanes), lanes.count).reshape(-1, WARPGROUP)
        if (words != words[:, :1]).any():
            raise self.op.unsupported(
                f"the threads of a warpgroup give different descriptors of {self.name}"
            )
        return _Descriptor.decode(words[:, 0]).pieces(self.rows, self.by_k)

    def load(self, lanes: Lanes) -> npt.NDArray[np.float64]:
        """Return the numbers, of shape (groups, rows, k)."""
        at, written = self.check(lanes)
        halves = self.machine.shared.data.view(np.uint16).reshape(-1, 8)[at]
        numbers = _numbers_of(self._by_rows(halves), self.type)
        if written is not None:
            numbers[~_of_elements(written, numbers.shape[-1])] = np.nan
        return numbers

    def check(self, lanes: Lanes) -> tuple[Offsets, npt.NDArray[np.bool_] | None]:
        """Report faults at the places that are read.

        Returns
        -------
        places : ndarray of int64
            The numbers of the pieces in the batch's shared memory.
        written : ndarray of bool, shape (groups, rows, 16), or None
            Whether somebody wrote those 16 bits; None where nobody looks.
        """
        storage = self.machine.shared
        offsets = self.offsets(lanes)
        first = lanes.numbers[::WARPGROUP]
        outside = offsets + PIECE > storage.size
        if outside.any():
            self._report_outside(first, offsets, outside)
            offsets = np.where(outside, 0, offsets)
        block = self.machine.geometry.block_of[first]
        at = (offsets + block[:, None, None] * storage.pitch) // PIECE
        written = None
        if storage.written is not None:
            if storage.origin is not None:
                places = at.reshape(-1, 1) * PIECE + np.arange(PIECE)
                self.machine.undefined.check_taken(self.op, first, storage, places, "multiplies it")
            written = self._by_rows(storage.written.view(np.uint16).reshape(-1, 8)[at] == 0x0101)
            self._check_written(written, first)
        if (ordering := self.machine.ordering) is not None:
            members = lanes.numbers.reshape(-1, WARPGROUP)
            for group, row in enumerate(block):
                ordering.multiplied(
                    self.op, members[group], int(row), offsets[group].reshape(-1), PIECE
                )
        return at, written

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
            f"{plural(self.machine.shared.size, 'byte')} of shared memory",
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
                f"{np.count_nonzero(~written[groups[0]]):,} elements",
                int(first[groups[0]]),
            )


def _numbers_of(halves: Values, type_: str) -> npt.NDArray[np.float64]:
    """Return the elements in 16-bit pieces of rows, as numbers."""
    words = np.ascontiguousarray(halves).view(f"u{BYTES[type_]}")
    return registers.numbers(words, type_).astype(np.float64, copy=False)


def _of_elements(of_halves: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    """Return for each of ``count`` elements a row whether all its 16-bit pieces are flagged."""
    halves = of_halves.shape[-1]
    if count >= halves:
        return of_halves.repeat(count // halves, axis=-1)
    parts = of_halves.reshape(*of_halves.shape[:-1], count, -1)
    return np.asarray(np.logical_and.reduce(parts, axis=-1))


class _Registers:
    """A of a ``wgmma``, in registers."""

    def __init__(self, machine: Machine, op: Op, operand: Operand, type_: str) -> None:
        self.type, self.read = type_, readers_of(machine, op, operand, "b32")

    def load(self, lanes: Lanes) -> npt.NDArray[np.float64]:
        return _numbers_of(half_matrix(read_all(self.read, lanes), 4), self.type)

    def held(self) -> Held:
        """Return which elements of A the lanes hold."""
        halves = Held.found(
            "A", self.type, lambda x: half_matrix(x, 4), len(self.read), WARPGROUP, halves=True
        )
        return halves.of_bytes(BYTES[self.type])


def _multiply_asynchronously(machine: Machine, op: Op) -> None:
    """Build ``wgmma.mma_async``, which is done at once: a wait for it waits for nothing."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("mma_async") and words.flag("sync") and words.flag("aligned")
    shape = next((m for m in op.instruction.modifiers if re.fullmatch(r"m64n\d+k\d+", m)), "")
    words.flag(shape)
    saturates = words.flag("satfinite")
    d_type = words.one_of(tuple(PRODUCTS))
    a_type, b_type = words.one_of(tuple(BYTES)), words.one_of(tuple(BYTES))
    words.done(
        is_whole and bool(shape) and (a_type, b_type) in PRODUCTS.get(d_type, ())
        and not (saturates and d_type != "s32")
        and int(shape.partition("k")[2]) * BYTES[a_type] == 2 * PIECE
    )  # fmt: skip
    columns, depth = (int(extent) for extent in shape[4:].split("k"))
    d, a, b, scale_d, *rest = op.instruction.operands
    is_in_registers = isinstance(a, Vector)
    is_short = BYTES[a_type] == 2  # elements of other sizes follow one another along k
    signs = 0 if d_type == "s32" else 2
    transposes = (1 if is_in_registers else 2) if is_short else 0
    if columns % 8 or not 8 <= columns <= 256 or len(rest) != signs + transposes:
        raise op.unsupported("operands")
    constants = [_constant(op, x) for x in rest]
    sign = math.prod(constants[:signs])
    by_k = [constant == 0 for constant in constants[signs:]] or [True, True]
    sum_ = Sum.of(machine, op, d_type, d, d, 4, saturates)
    if 2 * len(sum_.write) * (2 if d_type == "f16" else 1) != columns:
        raise op.unsupported(f"{len(sum_.write)} registers of the sum")
    left: _Operand | _Registers
    if is_in_registers:
        left = _Registers(machine, op, a, a_type)
    else:
        left = _Operand(machine, op, "A", a, 64, by_k[0], a_type)
    right = _Operand(machine, op, "B", b, columns, by_k[-1], b_type)
    accumulates = machine.registers.reader(op, scale_d, "pred", picked=True)
    if d_type != "s32":
        op.flops_a_lane = 2 * 64 * columns * depth // WARPGROUP
        op.tensor_type = tensor_type(a_type, d_type)
    op.space = "wgmma"
    factors = left, right
    op.held = lambda: (
        sum_.held("D"), *(x.held() for x in factors if isinstance(x, _Registers))
    )  # fmt: skip
    op.pieces = lambda lanes: {
        x.name: x.offsets(lanes).reshape(lanes.count // WARPGROUP, -1)
        for x in factors if isinstance(x, _Operand)
    }  # fmt: skip
    rows_there = columns if is_in_registers else 64 + columns

    def meet(lanes: Lanes) -> None:
        op.bytes += lanes.count // WARPGROUP * rows_there * 2 * PIECE  # 32 bytes of k each
        if op.is_needless:
            for each in factors:
                if isinstance(each, _Operand):
                    each.check(lanes)
            return
        adds = np.broadcast_to(accumulates(lanes), lanes.count)[::WARPGROUP]
        product = sign * left.load(lanes) @ right.load(lanes).swapaxes(1, 2)
        if adds.any():
            product[adds] += sum_.load(lanes)[adds]
        sum_.store(lanes, product)

    def control(lanes: Lanes) -> Groups:
        op.requests += lanes.warps
        return machine.warpgroups.arrive(op, meet, lanes)

    op.control = control


def _constant(op: Op, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise op.unsupported("operands")
    return int(operand.value)


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {"wgmma.mma_async": _multiply_asynchronously}
