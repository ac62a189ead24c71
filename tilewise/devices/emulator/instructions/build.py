"""Turn a program's instructions into runnable ops, each by the module that knows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.arithmetic.semantics import Semantics
from tilewise.devices.emulator.copies import bulk, cp_async, tensors
from tilewise.devices.emulator.instructions import (
    atomics,
    barriers,
    calls,
    clusters,
    control,
    data,
    mbarriers,
    tensormaps,
    warp,
)
from tilewise.devices.emulator.matrices import mma, wgmma, wmma
from tilewise.devices.emulator.ptx.syntax import Operand, Pair, Vector
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Op, Value
from tilewise.devices.emulator.threads.registers import is_of_registers
from tilewise.errors import UnsupportedInstructionError

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

_BUILDERS: dict[str, Callable[[Machine, Op], None]] = {
    **data.BUILDERS,
    **atomics.BUILDERS,
    **control.BUILDERS,
    **calls.BUILDERS,
    **warp.BUILDERS,
    **barriers.BUILDERS,
    **clusters.BUILDERS,
    **mbarriers.BUILDERS,
    **cp_async.BUILDERS,
    **bulk.BUILDERS,
    **tensors.BUILDERS,
    **tensormaps.BUILDERS,
    **mma.BUILDERS,
    **wgmma.BUILDERS,
    **wmma.BUILDERS,
}
"""The builders by opcode, or by an opcode and its first modifiers; the longest match is used."""


def build(machine: Machine, op: Op) -> None:
    """Make an op runnable.

    What takes registers to registers is made when it runs for the first time: it is most of a
    program, and many a launch never reaches it. What an earlier launch of the program made runs
    again. A function that calls itself saves the registers that are known, so there all of them
    have to be known from the beginning.
    """
    builder = _builder(op.instruction.opcode, op.instruction.modifiers)
    if builder in _OF_REGISTERS and not machine.program.recursive:
        made = machine.registers.made.get(op.index)
        if made is None or op.instruction.predicate is not None:
            op.run = _WhenReached(machine, op, builder)
        else:
            op.run, op.flops_a_lane = made
    else:
        _make(machine, op, builder)


class _WhenReached:
    """Run an instruction on registers, and build it the first time that it is reached.

    This is a class because a function that refers to itself is a cycle, which only the garbage
    collector frees.
    """

    def __init__(self, machine: Machine, op: Op, builder: Callable[[Machine, Op], None]) -> None:
        self.machine, self.op, self.builder = machine, op, builder
        self.made: Callable[[Lanes], None] | None = None

    def __call__(self, lanes: Lanes) -> None:
        if self.made is None:
            op = self.op
            called = op.run
            _make(self.machine, op, self.builder)
            self.made = op.run
            if called is not self:
                op.run = called  # The wrapper of ``op.run`` keeps calling this object.
        self.made(lanes)


def _make(machine: Machine, op: Op, builder: Callable[[Machine, Op], None]) -> None:
    instruction = op.instruction
    made = machine.registers.made
    try:
        if op.index in made:
            op.run, op.flops_a_lane = made[op.index]
        else:
            builder(machine, op)
            if builder in _OF_REGISTERS and is_of_registers(instruction):
                made[op.index] = op.run, op.flops_a_lane
    except UnsupportedInstructionError as error:
        # Only an instruction that is reached is an error.
        op.control, op.run = None, _raiser(op, error)
    # A branch reads its own guard.
    if instruction.predicate is not None and instruction.opcode not in ("bra", "brx"):
        _guard(machine, op)


@cache
def _builder(opcode: str, modifiers: tuple[str, ...]) -> Callable[[Machine, Op], None]:
    name = ".".join((opcode, *modifiers))
    while name:
        if name in _BUILDERS:
            return _BUILDERS[name]
        name = name.rpartition(".")[0]
    return _arithmetic


_OF_TEXTURES = ("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep")


def _raiser(op: Op, error: UnsupportedInstructionError) -> Callable[[Lanes], None]:
    message, where = str(error), f"source {op.where(op.machine.setup.sources.own)}"
    if where not in message:
        message += f" ({where})"
    if op.instruction.opcode in _OF_TEXTURES:
        message += ": it has no textures and surfaces; read and write the array itself"

    def run(lanes: Lanes) -> None:
        raise UnsupportedInstructionError(message)

    return run


def _guard(machine: Machine, op: Op) -> None:
    """Let an instruction run only for the lanes whose predicate holds."""
    assert op.instruction.predicate is not None
    register, is_negated = op.instruction.predicate
    read = machine.registers.reader(op, register, "pred", picked=True)
    run, jump = op.run, op.control

    def select(lanes: Lanes) -> tuple[Lanes | None, Lanes | None]:
        """Return the lanes that run it and those that do not."""
        holds = read(lanes)
        if is_negated:
            holds = ~holds
        if not holds.ndim or holds.all() or not holds.any():
            is_on = bool(holds) if not holds.ndim else bool(holds[0])
            return (lanes, None) if is_on else (None, lanes)
        return lanes.where(holds), lanes.where(~holds)

    def guarded(lanes: Lanes) -> None:
        chosen, rest = select(lanes)
        if rest is not None:
            op.lanes_off += rest.count
        if chosen is not None:
            run(chosen)

    def guarded_jump(lanes: Lanes) -> list[tuple[int, Lanes]]:
        assert jump is not None
        chosen, rest = select(lanes)
        went = [] if rest is None else [(op.index + 1, rest)]
        return went if chosen is None else [*went, *jump(chosen)]

    if jump is None:
        op.run = guarded
    else:
        op.control = guarded_jump


def _arithmetic(machine: Machine, op: Op) -> None:
    """Build every instruction that reads registers and writes registers."""
    instruction = op.instruction
    meaning = resolve(instruction.opcode, instruction.modifiers)
    operands = instruction.operands
    first = operands[0]
    if isinstance(first, Pair):
        targets: list[tuple[Operand | None, str]] = list(
            zip((first.first, first.second), meaning.outputs, strict=False)
        )
    else:
        targets = [(first, meaning.outputs[0])]
    writers = [
        None if target is None else machine.registers.writer(op, target, kind)
        for target, kind in targets
    ]
    sources = operands[1:]
    if len(sources) != len(meaning.inputs) or any(isinstance(s, Vector) for s in sources):
        raise op.unsupported("operands")
    readers = [
        machine.registers.reader(op, source, kind)
        for source, kind in zip(sources, meaning.inputs, strict=True)
    ]
    op.flops_a_lane = meaning.flops
    function = meaning.function
    if op.is_needless:
        op.run = lambda lanes: None
    elif meaning.carry_in or meaning.carry_out:
        op.run = _carrying(machine, op, meaning, readers, writers)
    elif len(meaning.outputs) > 1:

        def run_several(lanes: Lanes) -> None:
            results = function(*[read(lanes) for read in readers])
            for write, result in zip(writers, results, strict=False):
                if write is not None:
                    write(lanes, result)

        op.run = run_several
    else:
        write = writers[0]
        assert write is not None
        if len(readers) == 1:
            (a,) = readers
            op.run = lambda lanes: write(lanes, function(a(lanes)))
        elif len(readers) == 2:
            a, b = readers
            op.run = lambda lanes: write(lanes, function(a(lanes), b(lanes)))
        elif len(readers) == 3:
            a, b, c = readers
            op.run = lambda lanes: write(lanes, function(a(lanes), b(lanes), c(lanes)))
        else:
            op.run = lambda lanes: write(lanes, function(*[r(lanes) for r in readers]))


def _carrying(
    machine: Machine,
    op: Op,
    meaning: Semantics,
    readers: list[Callable[[Lanes], Value]],
    writers: list[Callable[[Lanes, Value], None] | None],
) -> Callable[[Lanes], None]:
    """Build extended-precision arithmetic: the carry flag is one more register of each function."""
    read_carry, write_carry = machine.registers.carry(op)
    write = writers[0]
    assert write is not None

    def run(lanes: Lanes) -> None:
        values = [read(lanes) for read in readers]
        if meaning.carry_in:
            values.append(read_carry(lanes))
        result = meaning.function(*values)
        if meaning.carry_out:
            result, carry = result
            write_carry(lanes, carry)
        write(lanes, result)

    return run


_OF_REGISTERS = frozenset((_arithmetic, *(_BUILDERS[each] for each in ("mov", "cvta", "isspacep"))))
"""The builders of what takes registers to registers."""
