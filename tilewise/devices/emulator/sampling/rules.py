"""Apply each instruction to its result's dependence, and to the region of alike blocks."""

from __future__ import annotations

from collections.abc import Callable

from tilewise.devices.emulator.copies.cp_async import sizes_read
from tilewise.devices.emulator.counting.async_copies import LINE
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
)
from tilewise.devices.emulator.ptx.types import TYPE_BYTES
from tilewise.devices.emulator.sampling.affine import LOADED, ZERO, Dependence, combined, extremes
from tilewise.devices.emulator.sampling.arithmetic_rules import ArithmeticRules
from tilewise.devices.emulator.sampling.bulk_rules import BulkRules
from tilewise.devices.emulator.sampling.evaluation import Rule
from tilewise.devices.emulator.sampling.tracker import Tracker
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op
from tilewise.errors import UnsupportedInstructionError

QUIET = frozenset(
    ("bar", "barrier", "bra", "membar", "fence", "ret", "exit", "trap", "brkpt", "prefetch",
     "prefetchu", "nanosleep", "pmevent", "applypriority", "discard", "createpolicy", "setmaxnreg",
     "griddepcontrol")
)  # fmt: skip
"""The instructions that neither make a value nor are counted by one."""
VECTOR = 16
"""Bytes of the widest access: by multiples of these, addresses in shared memory may move without
that lanes meet in other banks."""
_IN_BULK = frozenset(("bulk", "mbarrier"))
_CARRYING = frozenset(("addc", "subc", "madc"))
_MIXING = frozenset(
    ("mov", "shfl", "vote", "match", "redux", "activemask", "elect", "isspacep", "mapa",
     "getctarank")
)  # fmt: skip


class Rules:
    """The rule of one instruction: from the dependences of its operands to that of its result.

    Parameters
    ----------
    tracker : Tracker
    op : Op
    """

    def __init__(self, tracker: Tracker, op: Op) -> None:
        self.tracker, self.machine, self.op = tracker, tracker.machine, op
        self.dependences = [tracker.dependence_of(op, x) for x in op.instruction.operands[1:]]
        self.modifiers = op.instruction.modifiers

    def rule(self) -> Rule | None:
        """Return the rule, or None if there is nothing to follow."""
        instruction = self.op.instruction
        opcode = instruction.opcode
        if opcode in _CARRYING or "cc" in instruction.modifiers:
            return self._carried()
        if opcode in ("bar", "barrier") and "red" in instruction.modifiers:
            return lambda lanes: LOADED
        if opcode in QUIET:
            return None
        if opcode == "brx":
            return self._jump()
        if opcode in ("ld", "ldu"):
            return self._load()
        if opcode == "st":
            return self._address(instruction.operands[0], ZERO)
        if opcode in ("atom", "red"):
            return self._address(instruction.operands[opcode == "atom"], LOADED)
        if opcode in ("ldmatrix", "stmatrix"):
            return self._address(instruction.operands[opcode == "ldmatrix"], LOADED)
        if opcode == "wmma" and instruction.modifiers[0] != "mma":
            return self._matrix()
        if opcode == "mbarrier" or (opcode == "cp" and not _IN_BULK.isdisjoint(self.modifiers)):
            return BulkRules(self.tracker, self.op).rule()
        if opcode == "cp":
            return self._copy()
        if opcode in ("mov", "cvta") and _is_plain(instruction):
            return self._same()
        if opcode in _MIXING:
            return lambda lanes: combined([dependence() for dependence in self.dependences])
        try:
            return ArithmeticRules(self.tracker, self.op).rule()
        except UnsupportedInstructionError:
            return lambda lanes: LOADED  # tensor cores: not followed

    def _carried(self) -> Rule:
        """Return the rule of instructions that add with a carry flag."""
        dependences, tracker, carrying = self.dependences, self.tracker, self.op.instruction.opcode
        takes, leaves = carrying in _CARRYING, "cc" in self.modifiers

        def rule(lanes: Lanes) -> Dependence:
            dependence = combined([*(g() for g in dependences), tracker.carry if takes else ZERO])
            if leaves:
                tracker.carry = combined([tracker.carry, dependence])
            return dependence

        return rule

    def _jump(self) -> Rule:
        """Return the rule of a branch to one of many places."""
        dependence = self.tracker.dependence_of(self.op, self.op.instruction.operands[0])

        def rule(lanes: Lanes) -> Dependence:
            self.tracker.decide(self.op, dependence())
            return ZERO

        return rule

    def _same(self) -> Rule:
        dependence = self.dependences[0]
        return lambda lanes: dependence()

    # Memory

    def _load(self) -> Rule:
        spaces = {word.partition("::")[0] for word in self.modifiers}
        address = self.op.instruction.operands[1]
        assert isinstance(address, Address)
        if spaces & {"param", "const"}:
            dependence = self.tracker.dependence_of(self.op, address.base)
            is_same = self._is_kernels_parameter(address) or "const" in spaces
            return lambda lanes: ZERO if is_same and dependence() == ZERO else LOADED
        return self._address(address, LOADED)

    def _matrix(self) -> Rule:
        """Return the rule of a warp's loads and stores of matrices, whose stride must not move."""
        op, tracker = self.op, self.tracker
        operands = op.instruction.operands
        is_load = op.instruction.modifiers[0] == "load"
        rule = self._address(operands[is_load], LOADED)
        stride = tracker.dependence_of(op, operands[2]) if len(operands) > 2 else None

        def both(lanes: Lanes) -> Dependence:
            if stride is not None:
                tracker.decide(op, stride())
            return rule(lanes)

        return both

    def _is_kernels_parameter(self, address: Address) -> bool:
        program = self.machine.program
        if program.function_of(self.op.index) != program.kernel.name:
            return False
        base = address.base
        if isinstance(base, Symbol):
            return base.name in program.parameter_offsets
        return isinstance(base, Register)

    def _address(self, operand: Operand | None, result: Dependence) -> Rule:
        assert isinstance(operand, Address)
        spaces = {word.partition("::")[0] for word in self.modifiers}
        if "local" in spaces:
            op, tracker = self.op, self.tracker
            dependence = tracker.dependence_of(op, operand.base)

            def local(lanes: Lanes) -> Dependence:
                if dependence() != ZERO:
                    tracker.reach(op, dependence(), 1)
                return result

            return local
        reach = self._reach(operand, "shared" in spaces)

        def rule(lanes: Lanes) -> Dependence:
            reach(lanes)
            return result

        return rule

    def _reach(self, address: Address, is_shared: bool) -> Callable[[Lanes], None]:
        """Check an access to shared memory, or else to global memory, before it happens."""
        op, tracker = self.op, self.tracker
        dependence, extent = tracker.dependence_of(op, address.base), self._extent(address)
        # The cost of cp.async depends on where in 128 bytes it reads and writes.
        step = LINE if op.instruction.opcode == "cp" else VECTOR if is_shared else SECTOR

        def reach(lanes: Lanes) -> None:
            found = dependence()
            if found == ZERO:
                tracker.affine = ZERO
                return
            low, high = extent(lanes)
            # All at one place reach one sector and one bank, wherever that is.
            is_one = high - low == op.width
            tracker.reach(op, found, op.width if is_one else step)
            tracker.keep_inside(found, low, high, *self._room(low, high, is_shared))

        return reach

    def _extent(self, address: Address) -> Callable[[Lanes], tuple[int, int]]:
        """Return a function for the addresses of the lanes' first byte and end."""
        op = self.op
        if not isinstance(address.base, Register):
            return lambda lanes: (0, 0)
        type_ = f"s{8 * TYPE_BYTES[address.base.type]}"
        read = self.machine.registers.reader(op, address.base, type_, picked=True)

        def extent(lanes: Lanes) -> tuple[int, int]:
            low, high = extremes(read(lanes))
            reached = op.width if op.reached is None else op.reached(lanes)
            return low + address.offset, high + address.offset + reached

        return extent

    def _room(self, low: int, high: int, is_shared: bool) -> tuple[int, int]:
        """Return the begin and the end of the allocation around these addresses; empty for none."""
        if is_shared:
            return 0, self.machine.shared.size
        owner = self.machine.memory.find(low, high)
        return (high, low) if owner is None else (owner.base, owner.base + owner.size)

    def _copy(self) -> Rule | None:
        """Return the rule of ``cp.async``, a copy from global to shared memory."""
        op, tracker = self.op, self.tracker
        addresses = [x for x in op.instruction.operands[:2] if isinstance(x, Address)]
        if len(addresses) != 2:
            return None
        target, source = addresses
        store, load = self._reach(target, True), self._reach(source, False)
        dependences = [tracker.dependence_of(op, x) for x in op.instruction.operands[2:]]
        sizes = sizes_read(self.machine, op)

        def rule(lanes: Lanes) -> Dependence:
            for dependence in dependences:
                if dependence() != ZERO:
                    tracker.decide(op, dependence())
            store(lanes)
            # A copy that reads nothing may be given any address.
            reading = lanes if sizes is None else lanes.where(sizes(lanes) > 0)
            if reading.count:
                load(reading)
            return ZERO

        return rule


def _is_plain(instruction: Instruction) -> bool:
    """Return whether a move takes one register to another, unchanged."""
    return not any(isinstance(operand, Vector) for operand in instruction.operands)
