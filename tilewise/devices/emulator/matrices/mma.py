"""Products of small matrices by a warp, and their way to and from shared memory
(PTX ISA 9.7.14: ``mma``, ``ldmatrix``, ``stmatrix``).

A product's sum over k is formed in double precision and rounded once, with the sum it is added to:
to float, or to half. Products of these numbers are exact there, so that this sum is at least as
accurate as a tensor core's, whose order and roundings are not documented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Shared
from tilewise.devices.emulator.matrices import mma_double as matrices_of_double
from tilewise.devices.emulator.matrices.fragments import (
    PIECE,
    Sum,
    half_matrix,
    tiles_of,
    words_of,
)
from tilewise.devices.emulator.matrices.numbers import BYTES, PRODUCTS, numbers_of
from tilewise.devices.emulator.matrices.warps import (
    elements,
    of_warps,
    read_all,
    readers_of,
    writers_of,
)
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address
from tilewise.devices.emulator.threads.lanes import WARP, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Values = npt.NDArray[Any]


def _multiply(machine: Machine, op: Op) -> None:
    """``mma.m16n8``, of A with 16 or 32 bytes a row; of double, other shapes too."""
    if "f64" in op.instruction.modifiers:
        matrices_of_double.multiply(machine, op)
        return
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned")
    shape = words.one_of(("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"))
    is_laid_out = words.flag("row") and words.flag("col")
    saturates = words.flag("satfinite")
    d_type = words.one_of(tuple(PRODUCTS))
    a_type, b_type = words.one_of(tuple(BYTES)), words.one_of(tuple(BYTES))
    c_type = words.one_of(tuple(PRODUCTS))
    words.done(
        is_whole and bool(shape) and is_laid_out and c_type == d_type
        and (a_type, b_type) in PRODUCTS.get(d_type, ()) and not (saturates and d_type != "s32")
        and int(shape[6:]) * BYTES[a_type] in (16, 32)
    )  # fmt: skip
    d, a, b, c = op.instruction.operands
    if d_type != "s32":
        op.flops_a_lane = 2 * 16 * 8 * int(shape[6:]) // WARP
    sum_ = Sum.of(machine, op, d_type, d, c, 1, saturates)
    read_a, read_b = readers_of(machine, op, a, "b32"), readers_of(machine, op, b, "b32")

    def run(lanes: Lanes) -> None:
        left = numbers_of(half_matrix(read_all(read_a, lanes), 1), a_type)
        # B's registers are those of its transpose, 8 x 8 halves of words each.
        right = tiles_of(read_all(read_b, lanes)).transpose(1, 2, 0, 3).reshape(len(left), 8, -1)
        sum_.store(lanes, left @ numbers_of(right, b_type).swapaxes(1, 2) + sum_.load(lanes))

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

        def registers_of(found: Values) -> Values:
            """The words of each register, from the rows that lanes read."""
            tiles = np.ascontiguousarray(found).view(np.uint16).reshape(-1, count, 8, 8)
            return words_of(turned(tiles.swapaxes(0, 1)))

        def load(lanes: Lanes) -> None:
            for write, value in zip(
                writers, registers_of(shared.load_at(*rows(lanes))), strict=True
            ):
                write(lanes, value)

        # Of each half of a word, the number that it has among those of all rows.
        halves = registers_of(np.arange(64 * count, dtype=np.uint16))
        number = halves.view(np.uint16).reshape(count, WARP, 2).repeat(2, axis=2).astype(np.intp)
        op.spread = np.stack((number // 8, number % 8 * 2 + np.arange(4) % 2), axis=1)

        of_warps(machine, op, load)
        return
    readers = readers_of(machine, op, registers, "b32")

    def store(lanes: Lanes) -> None:
        tiles = turned(tiles_of(read_all(readers, lanes))).swapaxes(0, 1)
        shared.store_at(*rows(lanes), np.ascontiguousarray(tiles).view(np.uint64).reshape(-1, 2))

    of_warps(machine, op, store)


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "mma": _multiply,
    "ldmatrix": _rows,
    "stmatrix": _rows,
}
