"""Find the arithmetic whose results decide nothing that is counted or checked.

A profile from one block of each kind counts, and of a large product it keeps no result. Sums that
only end in global memory then need not be computed. A value is needed where it comes to a branch,
a guard, an address, or an instruction other than arithmetic, loads and stores; and where it is
stored in a memory of which a load's value is needed. A ``cp.async`` is a load and a store, and so
is a bulk copy; an ``mbarrier`` reaches no memory that anything else reads. Products by tensor cores
are sums whose factors come from registers or, of ``wgmma``, from shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.devices.emulator.arithmetic.resolve import resolve
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import Address, Instruction, Operand, Vector, registers_of
from tilewise.errors import UnsupportedInstructionError

_MEMORIES = ("global", "shared", "local")
_CONSTANT = ("param", "const")
_FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"))
_SUMS = frozenset(
    ("add", "sub", "mul", "fma", "mad", "neg", "abs", "min", "max", "div", "rcp", "sqrt")
)
"""The arithmetic that may be left out, like products by tensor cores. It propagates undefined bits
whatever the values are.
"""
_QUIET = frozenset(
    ("bra", "brx", "ret", "exit", "bar", "barrier", "membar", "fence", "shfl", "vote", "redux",
     "match", "activemask", "mbarrier", "setmaxnreg", "mapa", "griddepcontrol", "elect")
)  # fmt: skip
"""The instructions that access no memory themselves."""
_Node = tuple[str, str]
"""A register, by its function and name; or all of a memory, by no function and its name."""


def needless(program: Program) -> frozenset[int]:
    """Return the places of floating-point arithmetic whose results are not needed."""
    flows: list[tuple[int, list[_Node], list[_Node]]] = []
    needed: set[_Node] = set()
    for index, instruction in enumerate(program.instructions):
        function = program.function_of(index)
        operands = instruction.operands
        if instruction.predicate is not None:
            needed.add((function, instruction.predicate[0].name))
        for operand in operands:
            if isinstance(operand, Address):
                needed.update(_nodes(function, operand))
        if instruction.opcode in ("ld", "ldu"):
            flows.append((index, list(_nodes(function, operands[0])), _memories(instruction)))
        elif instruction.opcode == "st":
            given = [*_nodes(function, operands[1])]
            flows.append((index, _memories(instruction), given))
            if set(_CONSTANT) & set(instruction.modifiers):
                needed.update(given)
        elif instruction.opcode in ("mov", "cvta", "cvt") or _is_sum(instruction):
            sources = [node for x in operands[1:] for node in _nodes(function, x)]
            flows.append((index, list(_nodes(function, operands[0])), sources))
        elif instruction.opcode == "ldmatrix":
            flows.append((index, list(_nodes(function, operands[0])), [("", "shared")]))
        elif _is_product(instruction):
            in_registers = [x for x in operands[1:4] if isinstance(x, Vector)]
            sources = [node for x in in_registers for node in _nodes(function, x)]
            if instruction.opcode == "wgmma":
                # Its sums are also added to; descriptors, and whether it adds, are no vectors.
                sources += [*_nodes(function, operands[0]), ("", "shared")]
                others = [x for x in operands[1:] if not isinstance(x, Vector)]
                needed.update(node for x in others for node in _nodes(function, x))
            flows.append((index, list(_nodes(function, operands[0])), sources))
        elif instruction.opcode == "cp":
            needed.update(node for x in operands for node in _nodes(function, x))
            flows.append((index, *_copied(instruction)))
        elif instruction.opcode == "wgmma":
            pass  # fences, and waits for products
        else:
            needed.update(node for x in operands for node in _nodes(function, x))
            if instruction.opcode not in _QUIET and not _is_arithmetic(instruction):
                needed.update(("", memory) for memory in _MEMORIES)
    _close(flows, needed)
    return frozenset(
        index
        for index, targets, _ in flows
        if _may_be_left_out(program.instructions[index]) and needed.isdisjoint(targets)
    )


def _close(flows: list[tuple[int, list[_Node], list[_Node]]], needed: set[_Node]) -> None:
    """Add what needed values are made of, till there is no more."""
    count = -1
    while count != len(needed):
        count = len(needed)
        for _, targets, sources in reversed(flows):
            if not needed.isdisjoint(targets):
                needed.update(sources)


def _nodes(function: str, operand: Operand) -> Iterator[_Node]:
    return ((function, register.name) for register in registers_of(operand))


def _memories(instruction: Instruction) -> list[_Node]:
    """Return the memories that a load or a store may access; all for a generic address."""
    named = {word.partition("::")[0] for word in instruction.modifiers}
    if named & set(_CONSTANT):
        return []
    return [("", memory) for memory in _MEMORIES if memory in named] or [
        ("", memory) for memory in _MEMORIES
    ]


def _copied(instruction: Instruction) -> tuple[list[_Node], list[_Node]]:
    """Return the memories that a copy writes, and those that it reads."""
    places = [word.partition("::")[0] for word in instruction.modifiers]
    places = [place for place in places if place in _MEMORIES]
    if len(places) == 2:
        (to, source), changes = places, "reduce" in instruction.modifiers
        return [("", to)], [("", each) for each in ([source, to] if changes else [source])]
    return [], []


def _is_product(instruction: Instruction) -> bool:
    """Return whether tensor cores multiply matrices that are in registers, or in shared memory."""
    return instruction.opcode == "mma" or (
        instruction.opcode == "wgmma" and "mma_async" in instruction.modifiers
    )


def _may_be_left_out(instruction: Instruction) -> bool:
    if _is_product(instruction):
        return instruction.predicate is None
    return _is_sum(instruction)


def _is_sum(instruction: Instruction) -> bool:
    if instruction.opcode not in _SUMS or not _is_arithmetic(instruction):
        return False
    meaning = resolve(instruction.opcode, instruction.modifiers)
    return {*meaning.inputs, *meaning.outputs} <= _FLOATS


def _is_arithmetic(instruction: Instruction) -> bool:
    try:
        resolve(instruction.opcode, instruction.modifiers)
    except UnsupportedInstructionError:
        return False
    return True
