"""Read a ``wmma`` instruction, and the loads and stores that ptxas makes of it.

PTX has one instruction for a whole matrix (PTX ISA 9.7.14.4). What ptxas makes of it was read from
its machine code for compute capability 8.0 and 9.0 (``tests/devices/emulator/test_wmma.py`` holds
on to it):

- A and B of 16-bit elements in shared memory (``.shared``), and of bytes that are packed as they
  lie in memory, come by ``LDSM``: each lane gives the address of eight elements (of bytes: 16).
- Others come a register at a time as their elements are packed. Where those do not lie side by side
  in memory, 16-bit ones are read in pairs as they lie, and change places between lanes; bytes are
  read one by one.
- Sums of 4 and 8 bytes go in pairs where those lie side by side, else one by one.

A and B of 16 bits have more registers than ``LDSM`` fills; the others are copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewise.devices.emulator.ptx.modifiers import Words
from tilewise.devices.emulator.ptx.syntax import Instruction
from tilewise.devices.emulator.ptx.tiles import WARP, Index, Tile, left, right, total

_SHAPES = {
    "f16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "bf16": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "s8": ("m16n16k16", "m32n8k16", "m8n32k16"),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
    "s4": ("m8n8k32",),
    "b1": ("m8n8k128",),
}
"""The shapes by the type of A and B; ``u8`` has those of ``s8``, and ``u4`` those of ``s4``."""
_ALIKE = {"u8": "s8", "u4": "s4"}
BITS = {
    "b1": 1, "s4": 4, "s8": 8, "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "f32": 32, "s32": 32,
}  # fmt: skip
_SUMS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "s4": ("s32",),
    "b1": ("s32",), "f64": ("f64",),
}  # fmt: skip
SHAPES = tuple(dict.fromkeys(each for shapes in _SHAPES.values() for each in shapes))
TYPES = (*BITS, *_ALIKE)
SPACES = ("shared", "shared::cta", "global")
PIECE = 16  # bytes that a lane's address stands for in LDSM
_PAIR = 2


def plain(type_: str) -> str:
    """Return the signed type of the same size, for an unsigned one."""
    return _ALIKE.get(type_, type_)


def is_product(shape: str, type_: str, sum_: str) -> bool:
    """Return whether there are products of a shape, of A's type and of a sum's."""
    kind = plain(type_)
    return shape in _SHAPES.get(kind, ()) and sum_ in _SUMS[kind]


@cache
def tile(role: str, shape: str, type_: str) -> Tile:
    """Return the tile of a matrix, in units of its registers if its elements are below a byte.

    Parameters
    ----------
    role : str
        ``"a"``, ``"b"``, or ``"c"`` for a sum.
    shape : str
        As ``"m16n16k16"``.
    type_ : str
        The elements' type.
    """
    m, n, k = sides(shape)
    bits = BITS[plain(type_)]
    if bits < 8:
        k, bits = k * bits // 32, 32
    packed = max(1, 32 // bits)
    is_turned = m < n  # n takes m's place in the multiplication that is made of it
    if role == "c":
        return total(n, m).turned if is_turned else total(m, n)
    if role == "a":
        return left(m, k, packed)
    return left(n, k, packed).turned if is_turned else right(k, n, packed)


def sides(shape: str) -> tuple[int, int, int]:
    """Return m, n and k of a shape."""
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    return m, n, k


@dataclass(frozen=True, eq=False)
class Transfer:
    """One access to memory that each lane, or each of the first lanes, makes.

    Attributes
    ----------
    major, minor : ndarray of intp, shape (lanes,)
        The position of a lane's first element: ``major`` times the stride, plus ``minor``.
    count : int
        The number of neighbouring elements a lane.
    """

    major: Index
    minor: Index
    count: int

    @property
    def lanes(self) -> int:
        """The number of lanes that give an address."""
        return len(self.major)

    def places(self, width: int) -> Index:
        """Return the elements' numbers in a matrix with ``width`` elements a line."""
        first = self.major * width + self.minor
        places: Index = (first[:, None] + np.arange(self.count)).reshape(-1)
        return places


@dataclass(frozen=True)
class Matrix:
    """A ``wmma.load`` or ``wmma.store``.

    Attributes
    ----------
    role : str
        ``"a"``, ``"b"`` or ``"c"``; ``"c"`` for a store too.
    shape, type : str
    is_by_row : bool
        Whether the elements of a row lie side by side in memory.
    space : str
        ``"shared"``, ``"global"``, or empty for a generic address.
    """

    role: str
    shape: str
    type: str
    is_by_row: bool
    space: str

    @classmethod
    def of(cls, instruction: Instruction) -> Matrix:
        """Read the instruction.

        Raises
        ------
        UnsupportedInstructionError
            If PTX has no such.
        """
        words = Words(instruction.opcode, instruction.modifiers)
        is_load = words.flag("load")
        is_store = not is_load and words.flag("store")
        role = words.one_of(("a", "b", "c") if is_load else ("d",))
        is_whole = words.flag("sync") and words.flag("aligned")
        layout = words.one_of(("row", "col"))
        shape = words.one_of(SHAPES)
        space = words.one_of(SPACES).partition("::")[0]
        type_ = words.one_of(TYPES)
        role = "c" if role == "d" else role
        kinds = [kind for kind, shapes in _SHAPES.items() if shape in shapes]
        takes = {
            each for kind in kinds for each in ((kind,) if role != "c" else _SUMS[kind])
        }  # fmt: skip
        words.done(
            (is_load or is_store) and is_whole and bool(role and layout) and plain(type_) in takes
        )
        if BITS[plain(type_)] < 8:
            words.check(layout == ("row" if role == "a" else "col"))
        return cls(role, shape, type_, layout == "row", space)

    @property
    def tile(self) -> Tile:
        """The tile: the elements of the matrix that the lanes hold."""
        return tile(self.role, self.shape, plain(self.type))

    @property
    def unit(self) -> int:
        """Bytes of an element of :attr:`tile`."""
        bits = BITS[plain(self.type)]
        return 4 if bits < 8 else bits // 8

    @property
    def is_packed_so(self) -> bool:
        """Whether elements are packed in registers in the order in which they lie in memory."""
        return self.is_by_row == self.tile.is_by_row

    @property
    def width(self) -> int:
        """The number of elements that lie side by side in memory."""
        return self.tile.columns if self.is_by_row else self.tile.rows

    @property
    def is_by_rows(self) -> bool:
        """Whether it comes by ``LDSM``."""
        if self.role == "c" or self.space != "shared":
            return False
        return self.unit == _PAIR or (self.unit == 1 and self.is_packed_so)

    @property
    def alignment(self) -> int:
        """Bytes that lines of it have to be aligned to.

        As many as a lane holds, by PTX, but no more than 16 by the CUDA C++ Programming Guide
        ("Warp matrix functions"); and what loads it has to reach it.
        """
        return PIECE if self.is_by_rows else min(PIECE, self.tile.count * self.unit)

    @property
    def fragment(self) -> int:
        """Bytes that a lane holds, which PTX asks the lines to be aligned to."""
        is_copied = self.type == "f16" and self.role != "c"
        return 32 if is_copied else self.tile.count * self.unit

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The accesses that ptxas makes of it."""
        return _transfers(self)


@cache
def _transfers(x: Matrix) -> tuple[Transfer, ...]:
    tile, unit = x.tile, x.unit
    major, minor = (tile.row, tile.column) if x.is_by_row else (tile.column, tile.row)
    packed = tile.packed
    if x.is_by_rows:
        return tuple(_rows(x, major, minor))
    if x.is_packed_so:
        return tuple(
            Transfer(major[:, i], minor[:, i], packed) for i in range(0, tile.count, packed)
        )
    if unit == _PAIR:  # pairs as they lie in memory, from each 8 x 8 elements
        lane = np.arange(WARP)
        tops = [(major[0, i] // 8 * 8, minor[0, i] // 8 * 8) for i in range(0, tile.count, packed)]
        return tuple(Transfer(top + lane // 4, first + lane % 4 * 2, _PAIR) for top, first in tops)
    return tuple(Transfer(major[:, i], minor[:, i], 1) for i in range(tile.count))


def _rows(x: Matrix, major: Index, minor: Index) -> list[Transfer]:
    """Return rows of 16 bytes for all matrices that a load brings: 8 rows each."""
    each = PIECE // x.unit
    registers = x.tile.count // x.tile.packed
    at_once = min(registers, 4 if x.unit == _PAIR else 2)
    found = []
    for first in range(0, registers, at_once):
        tops, begins = [], []
        for register in range(first, first + at_once):
            i = register * x.tile.packed
            tops.append(major[0, i] // 8 * 8 + np.arange(8))
            begins.append(np.full(8, minor[0, i] // each * each))
        found.append(Transfer(np.concatenate(tops), np.concatenate(begins), each))
    return found
