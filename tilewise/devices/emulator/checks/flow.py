"""Follow the undefined bits of registers through one instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.checks.propagation import Bits, full, rule
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Negated,
    Operand,
    Pair,
    Register,
    Vector,
    registers_of,
)
from tilewise.devices.emulator.ptx.types import DTYPES, TYPE_BYTES
from tilewise.devices.emulator.threads.lanes import WARP, Index, Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.errors import UnsupportedInstructionError

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

Origins = npt.NDArray[np.int32]
_TAKE_ALL = frozenset(("bra", "brx", "call", "red", "st", "bar", "barrier", "exit", "ret"))
"""The instructions without a destination."""


@dataclass(frozen=True)
class Shadow:
    """The undefined bits of one register.

    Attributes
    ----------
    bits : ndarray of uint64, shape (lanes,)
        The undefined bits of each lane; a predicate is bit 0.
    origin : ndarray of int32, shape (lanes,)
        The number of the read that the bits come from, counted from 1.
    """

    bits: Bits
    origin: npt.NDArray[np.int32]

    @classmethod
    def none(cls, count: int) -> Shadow:
        return cls(np.zeros(count, np.uint64), np.zeros(count, np.int32))

    def copy(self) -> Shadow:
        return Shadow(self.bits.copy(), self.origin.copy())

    def pick(self, lanes: Lanes) -> Shadow:
        """Return the bits and origins of some of the batch's lanes."""
        return Shadow(lanes.pick(self.bits), lanes.pick(self.origin))


Shadows = Mapping[int, Shadow]


@dataclass(frozen=True)
class Target:
    """A destination: its register, and the type that is written to it."""

    slot: int
    type: str
    width: int

    def fill(self, bits: Bits) -> Bits:
        """Return a register's undefined bits, if a narrower value is extended to fill it."""
        if self.type[0] == "s" and DTYPES[self.type].itemsize < self.width:
            narrow = bits.astype(f"u{DTYPES[self.type].itemsize}").view(DTYPES[self.type])
            wide: Bits = narrow.astype(np.int64).view(np.uint64) & full(f"b{8 * self.width}")
            return wide
        return bits


class Flow:
    """The way in which one instruction propagates the undefined bits of its registers.

    Attributes
    ----------
    slots : frozenset of int
        The slots of all registers that it reads or writes.
    guard : int or None
        The slot of its predicate.
    uses : list of (int, str)
        The registers whose values decide something, with what they decide.
    targets : list of Target
    taken : tuple of (Operand, str), or None
        The value that lanes take from each other in a shuffle, and its type.
    """

    def __init__(self, machine: Machine, op: Op) -> None:
        self.machine, self.op = machine, op
        self.function = machine.program.function_of(op.index)
        instruction = op.instruction
        self.uses: list[tuple[int, str]] = []
        self.targets: list[Target] = []
        self.taken: tuple[Operand, str] | None = None
        self.guard: int | None = None
        self._sources: list[tuple[Operand, str]] = []
        self.results: Callable[[Shadows, Lanes], list[tuple[int, Shadow]]] = lambda *_: []
        if instruction.predicate is not None:
            register, self._is_negated = instruction.predicate
            self.guard = self._slot(register)
            self._read_guard = machine.registers.reader(op, register, "pred", picked=True)
        self._describe()
        slots = [target.slot for target in self.targets] + [slot for slot, _ in self.uses]
        slots += [self._slot(r) for operand, _ in self._sources for r in registers_of(operand)]
        self.slots = frozenset(slots if self.guard is None else [*slots, self.guard])

    def _slot(self, register: Register) -> int:
        return self.machine.registers.slot(self.function, register)

    def holds(self, lanes: Lanes) -> npt.NDArray[np.bool_]:
        """Return for which lanes the guard lets the instruction run."""
        holds: npt.NDArray[np.bool_] = self._read_guard(lanes) != self._is_negated
        return holds

    def _describe(self) -> None:
        instruction = self.op.instruction
        operands = instruction.operands
        for operand in operands:
            if isinstance(operand, Address):
                self._use(operand, "takes it for an address")
        if instruction.opcode in ("ld", "ldu"):
            self._aim(operands[0], self._memory_type())
        elif instruction.opcode == "st":
            kind = self._memory_type()
            self._sources = [(part, kind) for part in _parts(operands[1])]
        elif instruction.opcode in ("mov", "cvta"):
            self._move()
        elif instruction.opcode == "shfl":
            self._shuffle()
        elif (meaning := self._arithmetic()) is not None:
            self._compute(meaning)
        else:
            first = instruction.opcode in _TAKE_ALL
            for place, operand in enumerate(operands):
                if not isinstance(operand, Address) and (place or first):
                    self._use(operand, "uses it")
            if not first and operands and isinstance(operands[0], (Register, Vector, Pair)):
                self._aim(operands[0], "")

    def _arithmetic(self) -> Semantics | None:
        try:
            return resolve(self.op.instruction.opcode, self.op.instruction.modifiers)
        except UnsupportedInstructionError:
            return None

    def _memory_type(self) -> str:
        return next(m for m in reversed(self.op.instruction.modifiers) if m in TYPE_BYTES)

    def _use(self, operand: Operand, verb: str) -> None:
        self.uses += [(self._slot(register), verb) for register in registers_of(operand)]

    def _aim(self, operand: Operand, type_: str) -> None:
        """Add destinations; a destination without a type only becomes defined."""
        for register in registers_of(operand):
            kind = type_ or register.type
            self.targets.append(Target(self._slot(register), kind, TYPE_BYTES[register.type]))

    # Memory

    def loaded(
        self, lanes: Index, lacks: npt.NDArray[np.uint8], origin: Origins
    ) -> Iterator[tuple[int, Lanes, Bits, Origins]]:
        """Yield a load's destinations, with the lanes that get undefined bits, and the bits.

        Parameters
        ----------
        lanes : ndarray of intp
        lacks : ndarray of uint8, shape (len(lanes), bytes)
            The undefined bits of the bytes that these lanes read.
        origin : ndarray of int32, shape (len(lanes),)
            The reads that the bits come from.
        """
        if self.op.spread is not None:
            yield from self._spread(self.op.spread, lanes, lacks, origin)
            return
        some = Lanes(self.machine.geometry, lanes, False)
        target, kind = self.op.instruction.operands[0], self._memory_type()
        size = TYPE_BYTES[kind]
        shifts = np.arange(size, dtype=np.uint64) * np.uint64(8)
        pieces = lacks.astype(np.uint64).reshape(len(lacks), -1, size) << shifts
        bits = pieces.sum(axis=2, dtype=np.uint64)
        for i, part in enumerate(_parts(target)):
            if isinstance(part, Register):
                aim = Target(self._slot(part), kind, TYPE_BYTES[part.type])
                yield aim.slot, some, aim.fill(bits[:, i]), origin

    def _spread(
        self, sources: npt.NDArray[np.intp], lanes: Index, lacks: npt.NDArray[np.uint8],
        origin: Origins,
    ) -> Iterator[tuple[int, Lanes, Bits, Origins]]:  # fmt: skip
        """Yield what each lane of a warp gets from what others read (:attr:`Op.spread`)."""
        geometry = self.machine.geometry
        first = np.unique(lanes - geometry.lane_id[lanes].astype(np.intp))
        everybody = (first[:, None] + np.arange(WARP)).reshape(-1)
        bytes_ = np.zeros((geometry.count, lacks.shape[1]), np.uint64)
        reads = np.zeros(geometry.count, np.int32)
        bytes_[lanes], reads[lanes] = lacks, origin
        some = Lanes(geometry, everybody, False)
        target = self.op.instruction.operands[0]
        for part, (lane, byte) in zip(_parts(target), sources, strict=True):
            giver = (first[:, None, None] + lane).reshape(len(everybody), -1)
            found = bytes_[giver, np.tile(byte, (len(first), 1))]
            given = np.where(found != 0, reads[giver], np.int32(0))
            shifts = np.arange(found.shape[1], dtype=np.uint64) * np.uint64(8)
            if isinstance(part, Register):
                bits = (found << shifts).sum(axis=1, dtype=np.uint64)
                yield self._slot(part), some, bits, self.machine.undefined.join(list(given.T))

    def stored(
        self, shadows: Shadows, lanes: Lanes
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """Return the undefined bits of a store's bytes, and the reads that they come from."""
        given = [self._shadow(operand, kind, shadows, lanes) for operand, kind in self._sources]
        bytes_ = [
            shadow.bits[:, None].view(np.uint8)[:, : TYPE_BYTES[kind]]
            for shadow, (_, kind) in zip(given, self._sources, strict=True)
        ]
        return np.concatenate(bytes_, axis=1), self._join(given)

    # Registers

    def _shadow(self, operand: Operand, kind: str, shadows: Shadows, lanes: Lanes) -> Shadow:
        """Return the undefined bits of an operand."""
        register = operand.register if isinstance(operand, Negated) else operand
        shadow = shadows.get(self._slot(register)) if isinstance(register, Register) else None
        if shadow is None:
            return Shadow.none(lanes.count)
        picked = shadow.pick(lanes)
        bits = picked.bits & full(kind)
        return Shadow(bits, np.where(bits != 0, picked.origin, 0).astype(np.int32))

    def _join(self, given: list[Shadow]) -> npt.NDArray[np.int32]:
        return self.machine.undefined.join([shadow.origin for shadow in given])

    def _move(self) -> None:
        target, source = self.op.instruction.operands[:2]
        whole = self._memory_type()
        parts, sources = _parts(target), _parts(source)
        width = TYPE_BYTES[whole] // max(len(parts), len(sources))
        piece = f"b{8 * width}" if len(parts) != len(sources) else whole
        self._sources = [(part, piece if len(sources) > 1 else whole) for part in sources]
        made = piece if len(parts) > 1 else whole
        self._aim(target, made)

        def results(shadows: Shadows, lanes: Lanes) -> list[tuple[int, Shadow]]:
            given = [self._shadow(part, kind, shadows, lanes) for part, kind in self._sources]
            bits = given[0].bits
            for i, shadow in enumerate(given[1:], 1):
                bits = bits | shadow.bits << np.uint64(8 * width * i)
            origin = self._join(given)
            return [
                (self._slot(part), Shadow(bits >> np.uint64(8 * width * i) & full(made), origin))
                for i, part in enumerate(parts)
                if isinstance(part, Register)
            ]

        self.results = results

    def _shuffle(self) -> None:
        target, value, *others = self.op.instruction.operands
        self.taken = value, self._memory_type()
        self._sources = [self.taken]
        for operand in others:  # the lane that gives the value, and the lanes that take part
            self._use(operand, "uses it")
        self._aim(target, "")

    def exchanged(
        self, shadows: Shadows, lanes: Lanes, give: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    ) -> Iterator[tuple[int, Shadow]]:
        """Yield what a shuffle's destinations get; ``give`` selects each lane's value."""
        assert self.taken is not None
        given = self._shadow(*self.taken, shadows, lanes)
        target = self.op.instruction.operands[0]
        value = target.first if isinstance(target, Pair) else target
        for each in self.targets:
            is_value = isinstance(value, Register) and each.slot == self._slot(value)
            yield (
                each.slot,
                (
                    Shadow(give(given.bits), give(given.origin))
                    if is_value
                    else Shadow.none(lanes.count)
                ),
            )

    def _compute(self, meaning: Semantics) -> None:
        instruction, registers = self.op.instruction, self.machine.registers
        first, *sources = instruction.operands
        pair = (first.first, first.second) if isinstance(first, Pair) else (first,)
        aims: list[Target | None] = [
            Target(self._slot(part), kind, TYPE_BYTES[part.type])
            if isinstance(part, Register)
            else None
            for part, kind in zip(pair, meaning.outputs, strict=False)
        ]
        self._sources = list(zip(sources, meaning.inputs, strict=False))
        carry = Register("carry", "u32")
        if meaning.carry_in:
            self._sources.append((carry, "u32"))
        if meaning.carry_out:
            aims.append(Target(self._slot(carry), "u32", 4))
        self.targets = [aim for aim in aims if aim is not None]
        readers = [
            registers.reader(self.op, part, kind, picked=True) for part, kind in self._sources
        ]
        compute = rule(instruction.opcode, instruction.modifiers, meaning)
        choose = _CHOICES.get(instruction.opcode)

        def results(shadows: Shadows, lanes: Lanes) -> list[tuple[int, Shadow]]:
            given = [self._shadow(part, kind, shadows, lanes) for part, kind in self._sources]
            values = [np.broadcast_to(read(lanes), lanes.count) for read in readers]
            made = compute([shadow.bits for shadow in given], values)
            if choose is not None:
                given = choose(given, values[2])
            origin = self._join(given)
            return [
                (aim.slot, Shadow(aim.fill(bits), origin))
                for aim, bits in zip(aims, made, strict=False)
                if aim is not None
            ]

        self.results = results


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _choice(
    is_first: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]],
) -> Callable[[list[Shadow], npt.NDArray[Any]], list[Shadow]]:
    """Return a function that drops the origins of the operand that a selection does not take."""

    def choose(given: list[Shadow], by: npt.NDArray[Any]) -> list[Shadow]:
        first, second, deciding = given
        takes_first, takes_second = is_first(by), ~is_first(by)
        is_open = deciding.bits != 0
        return [
            Shadow(first.bits, np.where(takes_first | is_open, first.origin, np.int32(0))),
            Shadow(second.bits, np.where(takes_second | is_open, second.origin, np.int32(0))),
            deciding,
        ]

    return choose


_CHOICES = {"selp": _choice(lambda by: by), "slct": _choice(lambda by: by >= 0)}
