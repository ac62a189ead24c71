"""Multiply small matrices by a warp, and move them to and from shared memory (PTX ISA 9.7.14:
``mma``, ``ldmatrix``, ``stmatrix``, ``movmatrix``).

Products of 16-bit numbers are formed here, all others by ``multiply`` beside it; ``products``
rounds the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Shared
from tilewise.devices.emulator.counting.transactions import matrix_wavefronts
from tilewise.devices.emulator.matrices.fragments import (
    PIECE,
    Sum,
    half_matrix,
    numbers_of,
    tiles_of,
    words_of,
)
from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.matrices.multiply import (
    ELEMENTS_OF_A_WORD,
    Multiplication,
    tensor_type,
    unit_of,
)
from tilewise.devices.emulator.matrices.warps import (
    elements,
    of_warps,
    read_all,
    readers_of,
    writers_of,
)
from tilewise.devices.emulator.memory.storage import SHARED_WINDOW
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address
from tilewise.devices.emulator.ptx.tiles import left, right, total
from tilewise.devices.emulator.ptx.wmma import sides
from tilewise.devices.emulator.threads.lanes import WARP, Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Values = npt.NDArray[Any]


_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "e4m3": ("m16n8k16", "m16n8k32"),
    "e5m2": ("m16n8k16", "m16n8k32"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "u4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
"""The shapes of a product, by the type of A."""
_TOGETHER = (("e4m3", "e5m2"), ("s8", "u8"), ("s4", "u4"))
"""The types that A and B may have together, although they differ."""
_SUMS = {"f16": ("f32", "f16"), "e4m3": ("f32", "f16"), "e5m2": ("f32", "f16"), "f64": ("f64",),
         "bf16": ("f32",), "tf32": ("f32",)}  # fmt: skip
_ALL_SHAPES = tuple(dict.fromkeys(each for shapes in _SHAPES.values() for each in shapes))


def _multiply(machine: Machine, op: Op) -> None:
    """Build ``mma.sync`` of dense matrices."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned")
    shape = words.one_of(_ALL_SHAPES)
    is_laid_out = words.flag("row") and words.flag("col")
    saturates, bitwise = words.flag("satfinite"), words.one_of(("and", "xor"))
    for word in ("popc", "rn"):
        words.flag(word)
    types = (*_SHAPES, "f32", "s32")
    d_type, a_type, b_type, c_type = (words.one_of(types) for _ in range(4))
    sums = _SUMS.get(a_type, ("s32",))
    is_paired = a_type == b_type or any({a_type, b_type} <= set(each) for each in _TOGETHER)
    words.done(
        is_whole and is_laid_out and shape in _SHAPES.get(a_type, ()) and is_paired
        and d_type in sums and c_type == d_type and (a_type == "b1") == bool(bitwise)
    )  # fmt: skip
    if a_type in ("f16", "bf16"):
        _multiply_halves(machine, op, shape, a_type, d_type)
        return
    m, n, k = sides(shape)
    depth = k // ELEMENTS_OF_A_WORD.get(a_type, 1)
    packed = max(1, 4 // unit_of(a_type))
    Multiplication(
        left(m, depth, packed), right(depth, n, packed), total(m, n),
        (d_type, a_type, b_type, c_type), 2 * m * n * k, saturates, bitwise,
    ).build(machine, op)  # fmt: skip


def _multiply_halves(machine: Machine, op: Op, shape: str, type_: str, d_type: str) -> None:
    """Build ``m16n8k8`` and ``k16`` of 16-bit numbers, in the quickest way: programs have many."""
    d, a, b, c = op.instruction.operands
    op.flops_a_lane = 2 * 16 * 8 * int(shape[6:]) // WARP
    op.tensor_type = tensor_type(type_, d_type)
    sum_ = Sum.of(machine, op, d_type, d, c, 1)
    read_a, read_b = readers_of(machine, op, a, "b32"), readers_of(machine, op, b, "b32")

    def run(lanes: Lanes) -> None:
        left = numbers_of(half_matrix(read_all(read_a, lanes), 1), type_)
        right = numbers_of(_right(read_all(read_b, lanes)), type_)
        sum_.store(lanes, left @ right + sum_.load(lanes))

    op.held = lambda: (
        sum_.held("D"),
        Held.found("A", type_, lambda x: half_matrix(x, 1), len(read_a), WARP, halves=True),
        Held.found("B", type_, _right, len(read_b), WARP, halves=True),
    )

    of_warps(machine, op, run)


def _right(registers: Values) -> Values:
    """Return B of 16 bits, (warps, k, 8): its registers are those of its transpose, 8 x 8 each."""
    tiles = tiles_of(registers)
    return tiles.transpose(1, 0, 3, 2).reshape(tiles.shape[1], -1, 8)


def _rows(machine: Machine, op: Op) -> None:
    """Build ``ldmatrix`` and ``stmatrix``: 1, 2 or 4 matrices of 8 x 8, a row a lane's address."""
    instruction = op.instruction
    words = Words(instruction.opcode, instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned") and words.flag("m8n8")
    count = {"x1": 1, "x2": 2, "x4": 4}.get(words.one_of(("x1", "x2", "x4")), 0)
    is_transposed = words.flag("trans")
    start = 0 if words.one_of(("shared", "shared::cta")) else SHARED_WINDOW
    words.type("b16")
    words.done(is_whole and count > 0)
    is_load = instruction.opcode == "ldmatrix"
    registers, address = instruction.operands if is_load else instruction.operands[::-1]
    if not isinstance(address, Address) or len(elements(op, registers)) != count:
        raise op.unsupported("operands")
    op.width, op.element, op.space = PIECE, 2, instruction.opcode
    where = Where(machine, op, address)
    shared = Shared(machine, op, where, np.dtype("u8"), 2, (PIECE, 0), rule=matrix_wavefronts)

    def rows(lanes: Lanes) -> tuple[Any, Lanes]:
        """Return the addresses of the matrices' rows, and the lanes that give them."""
        giving = lanes.where(lanes.pick(lanes.geometry.lane_id) < 8 * count)
        address = np.asarray(where(giving), np.int64) - start
        return np.broadcast_to(address, giving.count), giving

    def turned(tiles: Values) -> Values:
        return tiles.swapaxes(-1, -2) if is_transposed else tiles

    def rows_of(registers: Values) -> Values:
        """Return the rows that lanes address, (warps, rows, 8), from the words of registers."""
        tiles = turned(tiles_of(registers)).swapaxes(0, 1)
        return np.ascontiguousarray(tiles).reshape(len(tiles), -1, 8)

    op.held = lambda: (Held.found("rows", "b16", rows_of, count, WARP, halves=True),)
    if is_load:
        writers = writers_of(machine, op, registers, "b32")

        def registers_of(found: Values) -> Values:
            """Return the words of each register, from the rows that lanes read."""
            tiles = np.ascontiguousarray(found).view(np.uint16).reshape(-1, count, 8, 8)
            return words_of(turned(tiles.swapaxes(0, 1)))

        def load(lanes: Lanes) -> None:
            for write, value in zip(
                writers, registers_of(shared.load_at(*rows(lanes))), strict=True
            ):
                write(lanes, value)

        # The index of each half of a word among the halves of all rows.
        halves = registers_of(np.arange(64 * count, dtype=np.uint16))
        number = halves.view(np.uint16).reshape(count, WARP, 2).repeat(2, axis=2).astype(np.intp)
        op.spread = np.stack((number // 8, number % 8 * 2 + np.arange(4) % 2), axis=1)

        of_warps(machine, op, load)
        return
    readers = readers_of(machine, op, registers, "b32")

    def store(lanes: Lanes) -> None:
        shared.store_at(
            *rows(lanes), rows_of(read_all(readers, lanes)).view(np.uint64).reshape(-1, 2)
        )

    of_warps(machine, op, store)


def _turn(machine: Machine, op: Op) -> None:
    """Build ``movmatrix``: an 8 x 8 matrix transposed, from registers to registers."""
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    is_whole = words.flag("sync") and words.flag("aligned") and words.flag("m8n8")
    is_transposed = words.flag("trans")
    words.type("b16")
    words.done(is_whole and is_transposed)
    to, source = op.instruction.operands
    (write,) = writers_of(machine, op, to, "b32")
    (read,) = readers_of(machine, op, source, "b32")

    def run(lanes: Lanes) -> None:
        words = np.broadcast_to(read(lanes), lanes.count)
        write(lanes, words_of(tiles_of(words).swapaxes(-1, -2)))

    of_warps(machine, op, run)


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "mma": _multiply,
    "ldmatrix": _rows,
    "stmatrix": _rows,
    "movmatrix": _turn,
}
