"""How each register depends on the block's index, followed while one block runs.

Beside every register stands what it gains from block to block
(:mod:`~tilewise.devices.emulator.gains`), by a rule for each instruction
(:mod:`~tilewise.devices.emulator.rules`). A comparison puts a condition on the blocks that do the
same (:class:`~tilewise.devices.emulator.regions.Region`), an address too. Where what was loaded
decides a branch or an address, no other block is known to do the same, and ``varies`` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewise.devices.emulator.ptx.syntax import (
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Vector,
)
from tilewise.devices.emulator.sampling.dependence import (
    LOADED,
    RANGES,
    Gain,
    both,
    combined,
    extremes,
)
from tilewise.devices.emulator.sampling.regions import PINNED, ZERO, Region, Shift
from tilewise.devices.emulator.sampling.rules import QUIET, Rules
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Value
from tilewise.launch import Dim3

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_AXES = ("ctaid.x", "ctaid.y", "ctaid.z")
_ALIKE = (
    "tid.", "ntid.", "nctaid.", "laneid", "warpid", "nwarpid", "gridid", "lanemask_", "WARP_SZ",
    "dynamic_smem_size", "total_smem_size", "aggr_smem_size", "nsmid",
)  # fmt: skip
_TIMERS = ("clock", "globaltimer", "smid")


class Blockwise:
    """The gains of all registers of a machine, and the region that follows from them.

    Parameters
    ----------
    machine : Machine
        Its ops are wrapped, so that each is followed before it runs.
    grid : (int, int, int)

    Attributes
    ----------
    region : Region
        The blocks that do the same as the one that runs.
    varies : str
        Why no block is known to do the same as another; empty where they are known.
    shift : Shift
        That of the address that the last access had.
    carry : Gain
        What the carry flag may gain, of all that was carried so far.
    settles : bool
        Set by a rule: of the result's value, nothing is known in other blocks, but in each lane
        it is negative, zero or positive there as it is here.
    """

    def __init__(self, machine: Machine, grid: Dim3) -> None:
        self.machine, self.grid = machine, grid
        self.gains: dict[int, Gain] = {}
        self.region = Region((0, 0, 0), grid)
        self.varies = ""
        self.shift: Shift = ZERO
        self.carry: Gain = ZERO
        self.settles = False
        self._settled: set[int] = set()
        for op in machine.ops:
            self._follow(op)

    def start(self, region: Region) -> None:
        """A block begins to run."""
        self.region, self.carry = region, ZERO
        self.gains.clear()
        self._settled.clear()

    # Wrapping

    def _follow(self, op: Op) -> None:
        before = self._step(op)
        if before is None:
            return
        run, control = op.run, op.control

        def followed(lanes: Lanes) -> None:
            before(lanes)
            run(lanes)

        op.run = followed
        if control is not None:
            jump = control

            def followed_jump(lanes: Lanes) -> list[tuple[int, Lanes]]:
                before(lanes)
                return jump(lanes)

            op.control = followed_jump

    def _step(self, op: Op) -> Callable[[Lanes], None] | None:
        """What is to be done before an op runs."""
        instruction = op.instruction
        guard = None
        if instruction.predicate is not None:
            guard = self.gain_of(op, instruction.predicate[0])
        if instruction.opcode == "call":
            return lambda lanes: self.lose(op, "a call is not followed")
        rule = Rules(self, op).rule()
        targets = [self._slot(op, register) for register in _targets(instruction)]
        if rule is None and guard is None and not targets:
            return None
        is_partial = guard is not None

        def step(lanes: Lanes) -> None:
            if guard is not None:
                self.decide(op, guard())
            self.settles = False
            gain = ZERO if rule is None else rule(lanes)
            for slot in targets:
                self._put(slot, gain, lanes, is_partial)

        return step

    def _put(self, slot: int, gain: Gain, lanes: Lanes, is_partial: bool) -> None:
        settles = self.settles
        if not lanes.whole or is_partial:
            old = self.gains.get(slot)
            if old is not None and old != gain:
                gain = both(old, gain)
            settles &= old is None or slot in self._settled
        self.gains[slot] = gain
        if settles:
            self._settled.add(slot)
        else:
            self._settled.discard(slot)

    def decide(self, op: Op, gain: Gain) -> None:
        """What the threads do depends on a value that gains so much: it has to stay."""
        if isinstance(gain, str):
            self.lose(op, "what was loaded decides it")
        else:
            self.region.limit(gain, 0, 0)

    def lose(self, op: Op, why: str) -> None:
        if not self.varies:
            self.varies = f"{op.file}:{op.line}: {why}"

    # Operands

    def _slot(self, op: Op, register: Register) -> int:
        return self.machine.registers.slot(self.machine.program.function_of(op.index), register)

    def gain_of(self, op: Op, operand: Operand | None) -> Callable[[], Gain]:
        """How to look an operand's gain up."""
        if isinstance(operand, Negated):
            operand = operand.register
        if isinstance(operand, Register):
            slot, gains = self._slot(op, operand), self.gains
            return lambda: gains.get(slot, ZERO)
        if isinstance(operand, Special):
            gain = self._special(operand.name)
            return lambda: gain
        if isinstance(operand, Vector):
            parts = [self.gain_of(op, element) for element in operand.elements]
            return lambda: combined([part() for part in parts])
        return lambda: ZERO

    def _special(self, name: str) -> Gain:
        if name in _AXES:
            axis = _AXES.index(name)
            x, y, z = (int(a == axis and self.grid[a] > 1) for a in range(3))
            return x, y, z
        if name.startswith(_TIMERS):
            return LOADED
        return ZERO if name.startswith(_ALIKE) else PINNED

    def is_settled(self, op: Op, operand: Operand) -> Callable[[], bool]:
        """Whether a register was written so that it ``settles``."""
        slot = self._slot(op, operand) if isinstance(operand, Register) else -1
        return lambda: slot in self._settled

    def reach(self, op: Op, gain: Gain, modulus: int) -> None:
        """An access to an address that gains so much."""
        if isinstance(gain, str):
            self.lose(op, "what was loaded is in an address")
            gain = PINNED
        self.shift = self.region.pin(gain)
        self.region.divide(self.shift, modulus)

    def keep_inside(self, gain: Gain, low: int, high: int, least: int, most: int) -> None:
        """What lies from ``low`` to ``high`` stays from ``least`` to ``most``."""
        if isinstance(gain, str) or gain == ZERO:
            return
        if low < least or high > most:
            gain = PINNED
        self.region.limit(gain, least - low, most - high)

    def stay_in_range(self, gain: Gain, values: Value, type_: str) -> None:
        """The values, as integers of a type, don't wrap around in any of the blocks."""
        self.keep_inside(gain, *extremes(values), *RANGES[type_])


def _targets(instruction: Instruction) -> list[Register]:
    """The registers that an instruction writes."""
    is_reduction = instruction.opcode in ("bar", "barrier") and "red" in instruction.modifiers
    if instruction.opcode in ("st", "brx", "red", *QUIET) and not is_reduction:
        return []
    found = []
    for operand in instruction.operands[:1]:
        parts: Sequence[Operand | None] = (operand,)
        if isinstance(operand, Vector):
            parts = operand.elements
        elif isinstance(operand, Pair):
            parts = (operand.first, operand.second)
        found += [part for part in parts if isinstance(part, Register)]
    return found
