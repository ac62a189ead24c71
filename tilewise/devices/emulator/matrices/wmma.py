"""Load, multiply and store matrices of a warp whole, as ``nvcuda::wmma`` does (PTX ISA 9.7.14.4,
``wmma``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.access.addresses import Where
from tilewise.devices.emulator.access.spaces import Generic, Global, Shared
from tilewise.devices.emulator.counting.transactions import matrix_wavefronts
from tilewise.devices.emulator.matrices import registers
from tilewise.devices.emulator.matrices.held import Held
from tilewise.devices.emulator.matrices.multiply import (
    ELEMENTS_OF_A_WORD,
    Multiplication,
    kind_of,
    width_of,
    write_held,
)
from tilewise.devices.emulator.matrices.warps import of_warps, read_all, readers_of, writers_of
from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Address
from tilewise.devices.emulator.ptx.tiles import WARP
from tilewise.devices.emulator.ptx.wmma import (
    BITS,
    SHAPES,
    TYPES,
    Matrix,
    Transfer,
    is_product,
    plain,
    sides,
    tile,
)
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Values = npt.NDArray[Any]


class _Memory:
    """The place of a matrix in memory, and the accesses to it."""

    def __init__(self, machine: Machine, op: Op, address: Address, stride: Any) -> None:
        self.machine, self.op = machine, op
        self.matrix = matrix = Matrix.of(op.instruction)
        self.tile, self.unit = matrix.tile, matrix.unit
        bits = BITS[plain(matrix.type)]
        self.default = matrix.width * self.unit
        self.scale = bits / 8
        self.where = Where(machine, op, address)
        self.stride = None
        if stride is not None:
            self.stride = machine.registers.reader(op, stride, "u32", picked=True)
        op.element = self.unit
        is_store = "store" in op.instruction.modifiers
        space = matrix.space or "global"
        op.space = "ldmatrix" if matrix.is_by_rows else f"{space}_{'store' if is_store else 'load'}"
        op.reached = self._reached
        self.spaces = {each.count: self._space(each) for each in matrix.transfers}
        op.held = self._held

    def _held(self) -> tuple[Held, ...]:
        """Return which elements of the matrix the lanes hold."""
        type_ = plain(self.matrix.type)
        name = "D" if "store" in self.op.instruction.modifiers else self.matrix.role.upper()
        depth = ELEMENTS_OF_A_WORD.get(type_, 1)
        packed = width_of(type_) // self.unit
        return (Held.of_tile(name, self.matrix.type, self.tile, packed, depth),)

    def _space(self, transfer: Transfer) -> Generic | Global | Shared:
        """Return the object that makes the accesses of one transfer."""
        machine, op = self.machine, self.op
        width = transfer.count * self.unit
        dtype, count = np.dtype(f"u{min(width, 8)}"), max(1, width // 8)
        op.width = width
        if self.matrix.space == "shared":
            rule = matrix_wavefronts if self.matrix.is_by_rows else None
            return Shared(machine, op, self.where, dtype, count, (width, 0), rule=rule)
        if self.matrix.space == "global":
            return Global(machine, op, self.where, dtype, count)
        return Generic(machine, op, self.where, dtype, count)

    def _pitch(self, lanes: Lanes) -> Values:
        """Return the bytes from one line to the next, of each lane's matrix."""
        if self.stride is None:
            return np.full(lanes.count, self.default, np.int64)
        given = np.broadcast_to(self.stride(lanes), lanes.count).astype(np.int64)
        return (given * self.scale).astype(np.int64)

    def _reached(self, lanes: Lanes) -> int:
        """Return the bytes from a matrix's first to behind its last, for the widest stride."""
        lines = self.tile.rows * self.tile.columns // self.matrix.width
        return int(self._pitch(lanes).max()) * (lines - 1) + self.default

    def _begins(self, lanes: Lanes) -> tuple[Lanes, Values, Values]:
        """Return the warps with reachable matrices, their begins, and strides in bytes."""
        address: Values = np.broadcast_to(np.asarray(self.where(lanes), np.int64), lanes.count)
        pitch = self._pitch(lanes)
        address, pitch = address.reshape(-1, WARP), pitch.reshape(-1, WARP)
        wrong = np.zeros(len(address), np.bool_)
        for values, words in ((address, "address"), (pitch, "stride")):
            differs = (values != values[:, :1]) & ~wrong[:, None]
            self._report("barrier", lanes, differs, f"gives another {words} of its matrix than the "
                         "first thread of its warp", wrong)  # fmt: skip
        for values, words in ((address, "begins {} bytes past a multiple"),
                              (pitch, "has a stride {} bytes past a multiple")):  # fmt: skip
            rest = values[:, :1] % self.matrix.alignment
            where = (rest != 0) & ~wrong[:, None]
            if where.any():
                words = words.format(int(rest[where][0]))
                self._report("misaligned", lanes, where, f"{self._verb()} a matrix that {words} of "
                             f"{self.matrix.alignment} bytes", wrong)  # fmt: skip
        loose = np.flatnonzero((address[:, 0] % self.matrix.fragment != 0) & ~wrong)
        if len(loose) and self.machine.is_checking:
            words = (
                f"{self._verb()} a matrix whose address is no multiple of {self.matrix.fragment} "
            )
            lane = int(lanes.numbers[WARP * loose[0]])
            self.op.note("misaligned", f"{words}bytes, which PTX asks for", lane)
        right = ~wrong
        if wrong.any():
            lanes = lanes.where(np.repeat(right, WARP))
        return lanes, address[right, 0], pitch[right, 0]

    def _verb(self) -> str:
        return "stores" if "store" in self.op.instruction.modifiers else "loads"

    def _report(self, kind: str, lanes: Lanes, where: Values, words: str, wrong: Values) -> None:
        """Report the threads of warps that do what they may not, and mark those warps."""
        found = np.argwhere(where)
        if len(found):
            warp, lane = found[0]
            self.op.fault(kind, words, int(lanes.numbers[WARP * warp + lane]), None, len(found) - 1)
            wrong |= where.any(axis=1)

    def _each(self, lanes: Lanes) -> Any:
        """Return the lanes; and for each access its maker, lanes, addresses and transfer."""
        lanes, begin, pitch = self._begins(lanes)
        lane_id = lanes.pick(lanes.geometry.lane_id)
        parts: dict[int, Lanes] = {WARP: lanes}
        found = []
        for each in self.matrix.transfers if lanes.count else ():
            giving = parts.get(each.lanes)
            if giving is None:
                giving = parts[each.lanes] = lanes.where(lane_id < each.lanes)
            address = begin[:, None] + each.major * pitch[:, None] + each.minor * self.unit
            found.append((self.spaces[each.count], giving, address.reshape(-1), each))
        return lanes, found

    def _tell(self, giving: Lanes, address: Values, transfer: Transfer, values: Values) -> None:
        if self.op.accessed is not None:
            found = values.view(f"u{self.unit}").reshape(giving.count, transfer.count)
            self.op.accessed(giving, address, transfer.count * self.unit, found)

    def load(self, lanes: Lanes) -> Values:
        """Return the matrices' bits, (warps, rows, columns); zeros if they are unreachable."""
        rows, columns = self.tile.rows, self.tile.columns
        whole = np.zeros((lanes.count // WARP, rows * columns), f"u{self.unit}")
        reached, accesses = self._each(lanes)
        which = np.isin(lanes.numbers[::WARP], reached.numbers[::WARP])
        found = np.zeros((int(which.sum()), rows * columns), whole.dtype)
        for space, giving, address, transfer in accesses:
            values = np.ascontiguousarray(space.load_at(address, giving))
            self._tell(giving, address, transfer, values)
            places = transfer.places(self.matrix.width)
            found[:, places] = values.view(whole.dtype).reshape(len(found), -1)
        whole[which] = found
        if self.matrix.is_by_row:
            return whole.reshape(-1, rows, columns)
        return whole.reshape(-1, columns, rows).swapaxes(1, 2)

    def store(self, lanes: Lanes, matrices: Values) -> None:
        if not self.matrix.is_by_row:
            matrices = matrices.swapaxes(1, 2)
        whole = matrices.reshape(len(matrices), -1)
        reached, accesses = self._each(lanes)
        whole = whole[np.isin(lanes.numbers[::WARP], reached.numbers[::WARP])]
        for space, giving, address, transfer in accesses:
            values = np.ascontiguousarray(whole[:, transfer.places(self.matrix.width)])
            words = values.reshape(-1).view(space.dtype)
            space.store_at(
                address, giving, words.reshape(-1, space.count) if space.count > 1 else words
            )
            self._tell(giving, address, transfer, values)


def _load(machine: Machine, op: Op) -> None:
    target, address, *stride = op.instruction.operands
    if not isinstance(address, Address) or len(stride) > 1:
        raise op.unsupported("operands")
    memory = _Memory(machine, op, address, stride[0] if stride else None)
    type_ = memory.matrix.type
    writers, width = writers_of(machine, op, target, kind_of(type_)), width_of(type_)
    held_by_lane = memory.tile.count * memory.unit
    if len(writers) * width % held_by_lane:
        raise op.unsupported(f"{len(writers)} registers")

    def load(lanes: Lanes) -> None:
        found = registers.held(memory.tile, memory.load(lanes), len(writers), width)
        write_held(writers, found, type_, lanes)

    of_warps(machine, op, load)


def _store(machine: Machine, op: Op) -> None:
    address, source, *stride = op.instruction.operands
    if not isinstance(address, Address) or len(stride) > 1:
        raise op.unsupported("operands")
    memory = _Memory(machine, op, address, stride[0] if stride else None)
    type_ = memory.matrix.type
    readers = readers_of(machine, op, source, kind_of(type_))
    if len(readers) * width_of(type_) != memory.tile.count * memory.unit:
        raise op.unsupported(f"{len(readers)} registers")

    def store(lanes: Lanes) -> None:
        memory.store(lanes, registers.matrix(memory.tile, read_all(readers, lanes), memory.unit))

    of_warps(machine, op, store)


def _multiply(machine: Machine, op: Op) -> None:
    words = Words(op.instruction.opcode, op.instruction.modifiers)
    for word in ("mma", "popc", "rn"):
        words.flag(word)
    bitwise = words.one_of(("xor", "and"))
    is_whole = words.flag("sync") and words.flag("aligned")
    # A's and B's layouts in memory: what lanes hold does not depend on them.
    layouts = [words.one_of(("row", "col")) for _ in range(2)]
    shape = words.one_of(SHAPES)
    saturates = words.flag("satfinite")
    types = [words.one_of(TYPES) for _ in range(4)]
    if not types[2]:  # for products of half, only the sums' types are given
        types = [types[0], "f16", "f16", types[1]]
    d_type, a_type, b_type, c_type = types
    words.done(
        is_whole and all(layouts) and is_product(shape, a_type, d_type) and a_type == b_type
        and is_product(shape, a_type, c_type) and (a_type == "b1") == bool(bitwise)
    )  # fmt: skip
    m, n, k = sides(shape)
    Multiplication(
        tile("a", shape, plain(a_type)), tile("b", shape, plain(a_type)), tile("c", shape, d_type),
        (d_type, a_type, b_type, c_type), 2 * m * n * k, saturates, bitwise,
    ).build(machine, op)  # fmt: skip


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    "wmma.load": _load,
    "wmma.store": _store,
    "wmma.mma": _multiply,
}
