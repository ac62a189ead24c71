"""A kernel and the functions it may call, linked into one list of instructions."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping

from tilewise.compiler.mangled import demangle, function_of, plain_name
from tilewise.devices.emulator.ptx.syntax import (
    Address,
    Function,
    Instruction,
    Module,
    Special,
    Symbol,
    Variable,
    Vector,
)

RESERVED_BYTES = 1024
"""The bytes of each block's shared memory that the system keeps (CUDA Programming Guide, "Compute
Capabilities": 1 KB a block from 8.0 on).
"""
FUNCTION_ADDRESS = 0x1000
"""The address of the first instruction; no function has the address 0."""


class Program:
    """The instructions and the memory layout of a launch of one kernel.

    Parameters
    ----------
    module : Module
    kernel : str
        The kernel's symbol.

    Attributes
    ----------
    instructions : list of Instruction
        The instructions of all functions, the kernel's last.
    labels : dict
        Function and label to place.
    entries : dict
        Function to address; ``FUNCTION_ADDRESS`` more than its place.
    shared_offsets : dict
        Variable to byte offset in the block's shared memory.
    shared_names : dict
        Variable to the name that messages and pages show, which is different for each variable.
    shared_sizes : dict
        Variable to bytes; of dynamic shared memory, which ends with the block's, none.
    static_shared : int
        Bytes of static shared memory.
    reserved_shared : dict
        What ``%reserved_smem_offset_...`` says: of shared memory that the system keeps for
        libraries, as cooperative groups, where it begins and ends, and two places in it.
    depots : dict
        Local variable to offset in its thread's frame.
    frame_bytes : int
        Local memory of one call depth.
    parameter_offsets : dict
        Kernel parameter to byte offset; ``parameter_bytes`` are all of them.
    recursive : set of str
        Functions that may be called again before they return.
    """

    def __init__(self, module: Module, kernel: str) -> None:
        self.module = module
        self.kernel = module.functions[kernel]
        self.functions = self._reachable()
        self.instructions: list[Instruction] = []
        self.labels: dict[tuple[str, str], int] = {}
        self.entries: dict[str, int] = {}
        self._starts: list[int] = []
        for function in self.functions:
            start = len(self.instructions)
            self._starts.append(start)
            self.entries[function.name] = start + FUNCTION_ADDRESS
            for label, place in function.labels.items():
                self.labels[function.name, label] = start + place
            self.instructions.extend(function.instructions)
        self.start = self._starts[-1]
        self.has_calls = any(i.opcode == "call" for i in self.instructions)
        self.recursive = self._recursive()
        self._lay_out()
        self._lay_out_parameters()

    def _reachable(self) -> list[Function]:
        """Return the functions that the kernel names, itself or by a variable's initial value."""
        variables, functions = self.module.variables, self.module.functions
        queue, found, seen = [self.kernel.name], {}, set()
        while queue:
            name = queue.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in variables:
                values = variables[name].values
                queue += sorted({value[1] for value in values if isinstance(value, tuple)})
            elif name in functions:
                found[name] = function = functions[name]
                for instruction in function.instructions:
                    queue += _symbols(instruction)
        del found[self.kernel.name]
        return [*found.values(), self.kernel]

    def _recursive(self) -> set[str]:
        """Return the functions that may be called again before they return."""
        names = {function.name for function in self.functions}
        pointed_at = {
            value[1]
            for variable in self.module.variables.values()
            for value in variable.values
            if isinstance(value, tuple)
        }
        callees: dict[str, set[str]] = {}
        for function in self.functions:
            callees[function.name] = set()
            for instruction in function.instructions:
                symbols = {o.name for o in instruction.operands if isinstance(o, Symbol)} & names
                if instruction.opcode != "call":
                    pointed_at |= symbols
                else:
                    callees[function.name] |= symbols or {"?"}
        for called in callees.values():
            if "?" in called:
                called.remove("?")
                called |= pointed_at & names
        return _on_cycles(callees)

    def _lay_out_parameters(self) -> None:
        self.parameter_offsets: dict[str, int] = {}
        offset = 0
        for parameter in self.kernel.parameters:
            offset = -(-offset // parameter.align) * parameter.align
            self.parameter_offsets[parameter.name] = offset
            offset += parameter.size
        self.parameter_bytes = offset

    def _lay_out(self) -> None:
        named = {
            symbol
            for function in self.functions
            for instruction in function.instructions
            for symbol in _symbols(instruction)
        }
        variables = [
            *(v for v in self.module.variables.values() if v.name in named),
            *(v for function in self.functions for v in function.variables.values()),
        ]
        variables = [v for v in variables if v.space == "shared"]
        self.shared_offsets: dict[str, int] = {}
        self.shared_sizes = {v.name: v.size for v in variables if not v.extern}
        offset = 0
        for variable in (v for v in variables if not v.extern):
            offset = -(-offset // variable.align) * variable.align
            self.shared_offsets[variable.name] = offset
            offset += variable.size
        self.reserved_shared: dict[str, int] = {}
        if self._names_reserved():
            offset = -(-offset // 16) * 16
            begin, offset = offset, offset + RESERVED_BYTES
            self.reserved_shared = {
                "begin": begin, "end": offset, "cap": RESERVED_BYTES, "0": begin,
                "1": begin + RESERVED_BYTES // 2,
            }  # fmt: skip
            self.shared_offsets["reserved shared memory"] = begin
            self.shared_sizes["reserved shared memory"] = RESERVED_BYTES
        dynamic = [v for v in variables if v.extern]
        if dynamic:
            align = max(16, *(v.align for v in dynamic))
            offset = -(-offset // align) * align
            self.shared_offsets |= {v.name: offset for v in dynamic}
        self.static_shared = offset
        self.shared_names = _unique_names(self.shared_offsets)
        self._shared_order = sorted((at, name) for name, at in self.shared_offsets.items())
        self.depots: dict[str, int] = {}
        offset = 0
        for function in self.functions:
            for variable in function.variables.values():
                if variable.space == "local":
                    offset = -(-offset // variable.align) * variable.align
                    self.depots[variable.name] = offset
                    offset += variable.size
        self.frame_bytes = -(-offset // 16) * 16

    def _names_reserved(self) -> bool:
        return any(
            isinstance(operand, Special) and operand.name.startswith("reserved_smem_offset")
            for instruction in self.instructions
            if instruction.opcode == "mov"
            for operand in instruction.operands
        )

    def function_of(self, index: int) -> str:
        """Return the function that an instruction belongs to."""
        return self.functions[bisect.bisect(self._starts, index) - 1].name

    def target(self, index: int, label: str) -> int:
        """Return the place of a label, seen from an instruction."""
        return self.labels[self.function_of(index), label]

    def shared_variable(self, offset: int) -> tuple[str, int]:
        """Return the symbol and the first byte of the last shared variable that begins at or before
        an offset; the symbol is empty if the program has no shared variable.
        """
        if not self._shared_order:
            return "", 0
        at = max(bisect.bisect(self._shared_order, (offset, "\x7f")) - 1, 0)
        start, name = self._shared_order[at]
        return name, start

    def variable(self, function: str, name: str) -> Variable | None:
        """Return a variable of a function or of the module."""
        owner = next(f for f in self.functions if f.name == function)
        return owner.variables.get(name) or self.module.variables.get(name)


def _on_cycles(graph: Mapping[str, set[str]]) -> set[str]:
    """Return the nodes on cycles, by the graph's strong components (Kosaraju)."""
    back: dict[str, list[str]] = {name: [] for name in graph}
    for name, following in graph.items():
        for each in following:
            back[each].append(name)
    found, seen = set(), set()
    for start in reversed(_behind_what_follows(graph)):
        component, queue = [], [start]
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                component.append(name)
                queue += back[name]
        if len(component) > 1 or start in graph[start]:
            found.update(component)
    return found


def _behind_what_follows(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes, each behind those that follow it, unless they lead back to it."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        queue = [(start, False)]
        while queue:
            name, is_done = queue.pop()
            if is_done:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                queue.append((name, True))
                queue += ((each, False) for each in graph[name])
    return order


def _symbols(instruction: Instruction) -> set[str]:
    """Return the names of variables and functions in the operands."""
    found = set()
    for operand in instruction.operands:
        for part in operand.elements if isinstance(operand, Vector) else (operand,):
            base = part.base if isinstance(part, Address) else part
            if isinstance(base, Symbol):
                found.add(base.name)
    return found


def _unique_names(symbols: Iterable[str]) -> dict[str, str]:
    """Return a name for each variable, such that no two variables have the same.

    It is the name in the source; of variables that share one, with the function's name; of those of
    one function, with a number.
    """
    found = {symbol: plain_name(symbol) for symbol in symbols}
    for symbol in _repeated(found):
        found[symbol] = _with_function(symbol)
    numbers: Counter[str] = Counter()
    for symbol in _repeated(found):
        name = found[symbol]
        numbers[name] += 1
        found[symbol] = f"{name} ({numbers[name]})"
    return found


def _repeated(names: Mapping[str, str]) -> list[str]:
    """Return the keys whose value occurs more than once."""
    counts = Counter(names.values())
    return [key for key, name in names.items() if counts[name] > 1]


def _with_function(symbol: str) -> str:
    """Return a variable's name after its function's: ``_ZZ1fILi4EEvvE1t`` is ``f<4>::t``."""
    name, function = plain_name(symbol), function_of(symbol)
    return f"{demangle(function)}::{name}" if function else name
