"""Describe an address without running the kernel: its root, its constant and its alignment.

Two accesses are neighbours if their addresses are one and the same unknown (the root) plus two
constants. The alignment of the root follows from how it is computed. Both are limited to what ptxas
proves: if ptxas does not find a proof, it joins nothing in the machine code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)

_MOST = 32
_NO_RESULT = frozenset(
    ("st", "bra", "brx", "ret", "exit", "bar", "barrier", "red", "stmatrix", "nanosleep")
)
# Same sources, same result: ptxas finds such expressions equal wherever they stand.
_ARITHMETIC = ("add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "neg")
_PURE = frozenset((*_ARITHMETIC, "cvt", "cvta", "min", "max", "rem", "div", "bfe", "bfi"))
_NOTHING = 0  # the root of a constant, and of a plain address in the block's shared memory


@dataclass(frozen=True)
class Value:
    """An address value: a root plus a constant.

    Attributes
    ----------
    root : int
        Names an unknown: equal roots are equal numbers. 0 for a constant alone.
    offset : int
        The constant that is added to the root.
    zeros : int
        The number of the root's low bits that are known to be 0.
    """

    root: int
    offset: int
    zeros: int

    @property
    def alignment(self) -> int:
        """The number of low bits of the whole value that are known to be 0."""
        return min(self.zeros, trailing_zeros(self.offset))


def trailing_zeros(number: int) -> int:
    """Return the number of low bits of ``number`` that are 0; a very large one for 0 itself."""
    return min((number & -number).bit_length() - 1, _MOST) if number else _MOST


def results(instruction: Instruction) -> Iterator[str]:
    """Yield the names of the registers that an instruction writes."""
    if instruction.opcode in _NO_RESULT or not instruction.operands:
        return
    first = instruction.operands[0]
    parts: tuple[Operand | None, ...] = (first,)
    if isinstance(first, Vector):
        parts = first.elements
    elif isinstance(first, Pair):
        parts = (first.first, first.second)
    for part in parts:
        if isinstance(part, Register):
            yield part.name


class Writers:
    """The registers that a function's addresses depend on: who writes them, how aligned they are.

    Parameters
    ----------
    program : Program
    function : Function
    wanted : list of Address
        The addresses that will be asked for; only what they depend on is followed.

    Attributes
    ----------
    of : dict of str to list of Instruction
        The writers of each of these registers.
    zeros : dict of str to int
        The number of low bits of each register that are known to be 0.
    written : dict of int to tuple of str
        The registers among these that an instruction writes, by the instruction's index.
    """

    def __init__(self, program: Program, function: Function, wanted: list[Address]) -> None:
        self._program = program
        self.of = _slice(function, wanted)
        self.zeros = self._alignments()
        self.written = {
            writer.index: tuple(name for name in results(writer) if name in self.of)
            for writers in self.of.values()
            for writer in writers
        }

    def _alignments(self) -> dict[str, int]:
        """Return the known low zero bits of every register, the fewest over all of its writers.

        The search starts from the most and goes down until nothing changes, so that a loop's
        pointer is as aligned as its start and its step.
        """
        zeros = dict.fromkeys(self.of, _MOST)
        changed = True
        while changed:
            changed = False
            for name, writers in self.of.items():
                least = min((self._written_zeros(writer, zeros) for writer in writers), default=0)
                if least < zeros[name]:
                    zeros[name], changed = least, True
        return zeros

    def _written_zeros(self, instruction: Instruction, zeros: dict[str, int]) -> int:
        if not isinstance(instruction.operands[0], Register):
            return 0
        known = []
        for operand in instruction.operands[1:]:
            if isinstance(operand, Register):
                known.append(zeros.get(operand.name, 0))
            elif isinstance(operand, Immediate) and type(operand.value) is int:
                known.append(trailing_zeros(operand.value))
            elif isinstance(operand, Symbol):
                place = self._program.shared_offsets.get(operand.name, 1)
                known.append(trailing_zeros(place + operand.offset))
            else:
                known.append(0)
        return _zeros_of(instruction, known)


def _slice(function: Function, wanted: list[Address]) -> dict[str, list[Instruction]]:
    """Return the writers of every register that the wanted addresses depend on."""
    everywhere: dict[str, list[Instruction]] = {}
    for instruction in function.instructions:
        for name in results(instruction):
            everywhere.setdefault(name, []).append(instruction)
    needed: dict[str, list[Instruction]] = {}
    waiting = [a.base.name for a in wanted if isinstance(a.base, Register)]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed[name] = everywhere.get(name, [])
        for writer in needed[name]:
            waiting += [o.name for o in writer.operands[1:] if isinstance(o, Register)]
    return needed


class Values:
    """The values of one function's addresses, block by block.

    Parameters
    ----------
    program : Program
    writers : Writers
        The writers of the registers that those addresses depend on.
    is_plain : bool
        Whether an array's place is a plain number to ptxas, to which it adds an index as it
        adds any constant. Else it is a register's value, of which only the alignment is known:
        so from sm_90 on, where the block's memory begins where a register says, and in older
        versions of ptxas.
    """

    def __init__(self, program: Program, writers: Writers, is_plain: bool) -> None:
        self._is_plain = is_plain
        self._program = program
        self._numbers: dict[tuple[object, ...], int] = {}
        self._places: dict[int, int] = {}
        self._writers, self._zeros = writers.of, writers.zeros
        self._written = writers.written
        self._lasting: dict[str, Value | None] = {}
        self._local: dict[str, Value] = {}
        self._block = 0

    def enter(self, index: int) -> None:
        """Begin the basic block at ``index``."""
        self._local.clear()
        self._block = index

    def step(self, instruction: Instruction, is_certain: bool = True) -> None:
        """Go past an instruction; ``is_certain`` if it runs whenever its block does."""
        for name in self._written.get(instruction.index, ()):
            found = None
            if is_certain and instruction.predicate is None:
                found = self._compute(instruction)
            if found is None:
                root = self._number("written", name, instruction.index, self._block)
                found = Value(root, 0, self._zeros[name])
            self._local[name] = found

    def address(self, operand: Operand) -> Value | None:
        """Return the value of ``[base + offset]``, here."""
        if not isinstance(operand, Address):
            return None
        base = Value(_NOTHING, 0, _MOST) if operand.base is None else self._operand(operand.base)
        if base is None:
            return None
        offset = base.offset + operand.offset
        if base.root in self._places:  # an array's own address: its place is known
            return Value(_NOTHING, self._places[base.root] + offset, _MOST)
        return Value(base.root, offset, base.zeros)

    def _number(self, *what: object) -> int:
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def _operand(self, operand: Operand) -> Value | None:
        if isinstance(operand, Immediate):
            return Value(_NOTHING, operand.value, _MOST) if type(operand.value) is int else None
        if isinstance(operand, Symbol):
            place = self._program.shared_offsets.get(operand.name)
            if place is not None and self._is_plain:
                return Value(_NOTHING, place + operand.offset, _MOST)
            root = self._number("symbol", operand.name)
            if place is None:
                return Value(root, operand.offset, 0)
            self._places[root] = place
            return Value(root, operand.offset, trailing_zeros(place))
        if not isinstance(operand, Register):
            return None
        name = operand.name
        if name in self._local:
            return self._local[name]
        lasting = self._resolve(name)
        if lasting is not None:
            return lasting
        # Written once, it is the same number wherever it is read; else for this block alone.
        block = self._block if len(self._writers.get(name, ())) > 1 else -1
        return Value(self._number("register", name, block), 0, self._zeros.get(name, 0))

    def _resolve(self, name: str) -> Value | None:
        """Return the value of a register that is written once, from others written once."""
        if name in self._lasting:
            return self._lasting[name]
        self._lasting[name] = None  # ends a circle of registers
        writers = self._writers.get(name, [])
        if len(writers) == 1 and writers[0].predicate is None:
            sources = [o.name for o in writers[0].operands[1:] if isinstance(o, Register)]
            if all(len(self._writers.get(source, ())) <= 1 for source in sources):
                local, self._local = self._local, {}
                self._lasting[name] = self._compute(writers[0])
                self._local = local
        return self._lasting[name]

    def _compute(self, instruction: Instruction) -> Value | None:
        """Return the value that an instruction computes; None if that is a new unknown."""
        opcode, operands = instruction.opcode, instruction.operands
        if len(operands) < 2 or not isinstance(operands[0], Register):
            return None
        if opcode == "mov":
            return self._operand(operands[1])
        if opcode not in _PURE:
            return None
        known = [value for value in map(self._operand, operands[1:]) if value is not None]
        if len(known) < len(operands) - 1:
            return None
        first, last = known[0], known[-1]
        if opcode == "add":
            roots = sorted(value.root for value in known if value.root != _NOTHING)
            root = self._number("add", *roots) if len(roots) > 1 else sum(roots)
            return Value(root, first.offset + last.offset, min(first.zeros, last.zeros))
        if opcode == "sub" and last.root == _NOTHING:
            return Value(first.root, first.offset - last.offset, first.zeros)
        offset = 0
        alignments = [value.alignment for value in known]
        if opcode == "mad":  # the sum's constant is a neighbour's distance, as in add
            offset, alignments[-1] = last.offset, last.zeros
            known[-1] = Value(last.root, 0, last.zeros)
        parts = tuple((value.root, value.offset) for value in known)
        root = self._number(opcode, instruction.modifiers, parts)
        return Value(root, offset, _zeros_of(instruction, alignments))


def _zeros_of(instruction: Instruction, sources: list[int]) -> int:
    """Return the known low zero bits of a result, given those of its sources."""
    opcode, operands = instruction.opcode, instruction.operands
    if not sources or any(m in ("f16", "f32", "f64", "hi") for m in instruction.modifiers):
        return 0
    zeros = 0
    if opcode in ("mov", "neg", "cvt", "cvta"):
        zeros = sources[0]
    elif opcode in ("add", "sub", "or", "xor", "selp"):
        zeros = min(sources[:2])
    elif opcode == "and":
        zeros = max(sources[:2])
    elif opcode == "mul":
        zeros = sum(sources[:2])
    elif opcode == "mad":
        zeros = min(sources[0] + sources[1], sources[2])
    elif opcode in ("shl", "shr"):
        amount = operands[2]
        if isinstance(amount, Immediate) and type(amount.value) is int:
            zeros = sources[0] + (amount.value if opcode == "shl" else -amount.value)
        elif opcode == "shl":
            zeros = sources[0]
    return max(0, min(zeros, _MOST))
