"""Multiply once by a warp: from the registers of A, B and C to those of D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.matrices import registers
from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.matrices.products import INTEGERS, product
from tilewise.devices.emulator.matrices.warps import of_warps, read_all, readers_of, writers_of
from tilewise.devices.emulator.ptx.tiles import WARP, Tile
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

ELEMENTS_OF_A_WORD = {"s4": 8, "u4": 8, "b1": 32}
"""The number of elements in a 32-bit word, for types of less than a byte."""
_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "f32": 4, "f64": 8, "s32": 4, "s4": 4, "u4": 4, "b1": 4}


def tensor_type(a_type: str, d_type: str) -> str:
    """Return the type by which a product's operations are counted; empty for the other types.

    Parameters
    ----------
    a_type, d_type : str
        The types of A and D, as the PTX writes them.
    """
    if d_type == "f32" and a_type in ("f16", "bf16"):
        return {"f16": "float16", "bf16": "bfloat16"}[a_type]
    return "float64" if a_type == "f64" else ""


@dataclass(frozen=True)
class Multiplication:
    """The layout and the types of one multiplication.

    Attributes
    ----------
    a, b, c : Tile
        The elements of each matrix that the lanes hold; D is held as C is. Elements of less than a
        byte are counted by words of 32 bits.
    types : (str, str, str, str)
        The types of D, A, B and C.
    flops : int
        The floating-point operations of the whole multiplication.
    saturates : bool
        Whether a sum of integers stays within 32 bits.
    bitwise : str
        The operation on single bits before they are counted: ``"and"``, ``"xor"`` or nothing.
    """

    a: Tile
    b: Tile
    c: Tile
    types: tuple[str, str, str, str]
    flops: int
    saturates: bool = False
    bitwise: str = ""

    def build(self, machine: Machine, op: Op) -> None:
        """Make an instruction runnable whose operands are D, A, B and C."""
        d_type, a_type, b_type, c_type = self.types
        d, a, b, c = op.instruction.operands
        read_a, read_b, read_c = (
            readers_of(machine, op, x, kind_of(type_))
            for x, type_ in ((a, a_type), (b, b_type), (c, c_type))
        )
        write_d = writers_of(machine, op, d, kind_of(d_type))
        for each, tile, type_ in ((read_c, self.c, c_type), (write_d, self.c, d_type)):
            if len(each) * width_of(type_) != tile.count * unit_of(type_):
                raise op.unsupported(f"{len(each)} registers of the sum")
        for read, tile, type_ in ((read_a, self.a, a_type), (read_b, self.b, b_type)):
            if len(read) * width_of(type_) % (tile.count * unit_of(type_)):
                raise op.unsupported(f"{len(read)} registers of a factor")
        op.flops_a_lane = 0 if a_type in INTEGERS else self.flops // WARP
        op.held = self.held
        op.tensor_type = tensor_type(a_type, d_type)

        def run(lanes: Lanes) -> None:
            if op.is_needless:
                return
            left, right, sums = (
                registers.matrix(tile, read_all(read, lanes), unit_of(type_))
                for tile, read, type_ in (
                    (self.a, read_a, a_type), (self.b, read_b, b_type), (self.c, read_c, c_type)
                )
            )  # fmt: skip
            # If words hold several elements of k, these have to be along the last axis.
            turned = np.ascontiguousarray(right.swapaxes(1, 2))
            found = product(
                registers.numbers(left, a_type),
                registers.numbers(turned, b_type).swapaxes(1, 2),
                registers.numbers(sums, c_type), a_type, self.saturates, self.bitwise,
            )  # fmt: skip
            bits = registers.bits(found, d_type)
            write_held(write_d, registers.held(self.c, bits, len(write_d), width_of(d_type)),
                       d_type, lanes)  # fmt: skip

        of_warps(machine, op, run)

    def held(self) -> tuple[Held, ...]:
        """Return which elements of A, B and D the lanes hold."""
        return tuple(
            Held.of_tile(
                name, type_, tile, width_of(type_) // unit_of(type_),
                ELEMENTS_OF_A_WORD.get(type_, 1),
            )
            for name, type_, tile in zip(
                "DAB", self.types[:3], (self.c, self.a, self.b), strict=True
            )
        )  # fmt: skip


def kind_of(type_: str) -> str:
    """Return the type of the registers that hold elements of a type."""
    return type_ if type_ in ("f32", "f64") else "b32"


def width_of(type_: str) -> int:
    """Return the bytes of a register that holds elements of a type."""
    return 8 if type_ == "f64" else 4


def unit_of(type_: str) -> int:
    """Return the bytes of an element; of those of less than a byte, of the word that holds them."""
    return _BYTES.get(type_, 1)


def write_held(
    writers: list[Callable[[Lanes, Any], None]], held: npt.NDArray[Any], type_: str, lanes: Lanes
) -> None:
    """Write registers, given as bits."""
    kind = {"f32": np.float32, "f64": np.float64}.get(type_, np.uint32)
    for write, value in zip(writers, held.view(kind), strict=True):
        write(lanes, value)
