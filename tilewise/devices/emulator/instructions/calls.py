"""Device functions, recursion, function pointers, and the functions of the system
(``printf`` and ``assert``): PTX ISA 7 and 9.7.12.5."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler.mangled import demangle
from tilewise.compiler.ptx.linking import is_system
from tilewise.devices.emulator.instructions.printf import (
    argument_places,
    count_arguments,
    format_printf,
)
from tilewise.devices.emulator.memory.storage import LOCAL_WINDOW, Storage
from tilewise.devices.emulator.ptx.program import FUNCTION_ADDRESS
from tilewise.devices.emulator.ptx.sources import SourceLine, readable
from tilewise.devices.emulator.ptx.syntax import Register, Symbol, Vector
from tilewise.devices.emulator.threads.lanes import Index, Lanes
from tilewise.devices.emulator.threads.op import Groups, Op
from tilewise.errors import (
    CompileError,
    KernelAssertError,
    LaunchError,
    UnsupportedInstructionError,
)

if TYPE_CHECKING:
    from tilewise.devices.emulator.machine import Machine

MOST_DEPTH = 1024
_MOST_PRINTED = 4096


class Calls:
    """The call stack of each lane of a batch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._sites: dict[int, tuple[list[str], list[str]]] = {}
        self.start()

    def start(self) -> None:
        """Start a new batch."""
        self._storages: dict[tuple[str, str], Storage] = {}
        self._return_to: list[Index] = []
        self._saved: list[dict[int, npt.NDArray[Any]]] = []
        self._saved_rows: list[dict[tuple[str, str], npt.NDArray[np.uint8]]] = []
        self.depth: Index | None = None
        if self.machine.program.has_calls and hasattr(self.machine, "geometry"):
            self.depth = np.zeros(self.machine.geometry.count, np.intp)

    def storage(self, function: str, name: str) -> Storage:
        """Return the rows of a parameter, an argument or a result of a device function."""
        key = (function, name)
        if key not in self._storages:
            variable = self.machine.program.variable(function, name)
            if variable is None:
                raise UnsupportedInstructionError(f"no parameter {name} in {function}")
            self._storages[key] = Storage(self.machine.geometry.count, variable.size, False)
        return self._storages[key]

    def site(self, op: Op, results: list[str], arguments: list[str]) -> None:
        """Record the arguments of a call, and where its results go."""
        self._sites[op.index] = (results, arguments)

    def _copy(self, lanes: Lanes, source: tuple[str, str], target: tuple[str, str]) -> None:
        data, to = self.storage(*source), self.storage(*target)
        size = min(data.pitch, to.pitch)
        rows, to_rows = data.data.reshape(-1, data.pitch), to.data.reshape(-1, to.pitch)
        to_rows[lanes.numbers, :size] = rows[lanes.numbers, :size]
        data.copy_origin(to, lanes.numbers, size)

    def enter(self, op: Op, lanes: Lanes, callee: str) -> Groups:
        """Return the groups of lanes after the lanes call a function."""
        machine, program = self.machine, self.machine.program
        function = next(f for f in program.functions if f.name == callee)
        caller = program.function_of(op.index)
        for formal, actual in zip(function.parameters, self._sites[op.index][1], strict=True):
            self._copy(lanes, (caller, actual), (callee, formal.name))
        assert self.depth is not None
        depths = self.depth[lanes.numbers]
        deepest = int(depths.max()) + 1
        if deepest > MOST_DEPTH:
            raise LaunchError(
                f"{op.file}:{op.line}: {MOST_DEPTH:,} calls deep: the stack overflows"
            )
        while len(self._return_to) < deepest:
            self._return_to.append(np.zeros(machine.geometry.count, np.intp))
            self._saved.append({})
            self._saved_rows.append({})
        bytes_a_lane = (deepest + 1) * program.frame_bytes
        if machine.setup.budget is not None:
            size = machine.local.rows * bytes_a_lane * (1 + machine.is_checking)
            machine.setup.budget.take(machine, size, op.index)
        machine.local.grow(bytes_a_lane)
        for depth in np.unique(depths):
            chosen = lanes.numbers[depths == depth]
            self._return_to[depth][chosen] = op.index + 1
            self._save(int(depth), caller, chosen)
        self.depth = self.depth.copy()
        self.depth[lanes.numbers] += 1
        return [(program.entries[callee] - FUNCTION_ADDRESS, lanes)]

    def _save(self, depth: int, caller: str, lanes: Index) -> None:
        """Save the registers of a function that may be called again before it returns."""
        machine = self.machine
        if caller not in machine.program.recursive:
            return
        for (function, _), slot in machine.registers.slots.items():
            if function == caller:
                value = np.broadcast_to(machine.registers.values[slot], machine.geometry.count)
                kept = self._saved[depth].get(slot)
                if kept is None:
                    self._saved[depth][slot] = value.copy()
                else:
                    kept.view(value.dtype)[lanes] = value[lanes]
        for key, storage in self._storages.items():
            if key[0] == caller:
                rows = storage.data.reshape(-1, storage.pitch)
                kept_rows = self._saved_rows[depth].setdefault(key, rows.copy())
                kept_rows[lanes] = rows[lanes]

    def _restore(self, depth: int, caller: str, lanes: Index, results: list[str]) -> None:
        machine = self.machine
        if caller not in machine.program.recursive:
            return
        for (function, _), slot in machine.registers.slots.items():
            if function == caller and slot in self._saved[depth]:
                saved = self._saved[depth][slot]
                value = np.broadcast_to(
                    machine.registers.values[slot], machine.geometry.count
                ).copy()
                value[lanes] = saved.view(value.dtype)[lanes]
                machine.registers.values[slot] = value
        for key, rows in self._saved_rows[depth].items():
            if key[0] == caller and key[1] not in results:
                storage = self._storages[key]
                storage.data.reshape(-1, storage.pitch)[lanes] = rows[lanes]

    def leave(self, op: Op, lanes: Lanes) -> Groups:
        """Return the groups of lanes after the lanes return, each to its caller."""
        program = self.machine.program
        name = program.function_of(op.index)
        function = next(f for f in program.functions if f.name == name)
        assert self.depth is not None
        depths = self.depth[lanes.numbers] - 1
        places = np.empty(lanes.count, np.intp)
        for depth in np.unique(depths):
            chosen = depths == depth
            places[chosen] = self._return_to[depth][lanes.numbers[chosen]]
        went: Groups = []
        for place in np.unique(places):
            mine = places == place
            back = lanes if mine.all() else lanes.where(mine)
            caller = program.function_of(int(place) - 1)
            results = self._sites[int(place) - 1][0]
            # Before the caller's own values come back: it may be the same function.
            for formal, actual in zip(function.results, results, strict=True):
                self._copy(back, (name, formal.name), (caller, actual))
            for depth in np.unique(depths[mine]):
                chosen = lanes.numbers[mine & (depths == depth)]
                self._restore(int(depth), caller, chosen, results)
            went.append((int(place), back))
        self.depth = self.depth.copy()
        self.depth[lanes.numbers] -= 1
        return went

    def seen_from(self, op: Op, lane: int) -> SourceLine:
        """Return the line of the instruction that a lane is at, with the calls around it."""
        if self.depth is None:
            return op.source
        sites = [int(self._return_to[d][lane]) - 1 for d in reversed(range(self.depth[lane]))]
        function = self.machine.program.function_of(op.index) if sites else ""
        callers = [self.machine.ops[site].source for site in sites]
        return op.source.called_from(callers, readable(function))

    # The functions of the system

    def argument(self, op: Op, number: int, dtype: str) -> npt.NDArray[Any]:
        """Return an argument of the call for every lane of the batch."""
        caller = self.machine.program.function_of(op.index)
        storage = self.storage(caller, self._sites[op.index][1][number])
        return storage.data.view(dtype)[:: storage.pitch // np.dtype(dtype).itemsize]

    def give_result(self, op: Op, lanes: Lanes, value: int) -> None:
        """Give a 32-bit result of a function of the system."""
        results = self._sites[op.index][0]
        if results:
            caller = self.machine.program.function_of(op.index)
            storage = self.storage(caller, results[0])
            rows = storage.data.view(np.uint32).reshape(-1, storage.pitch // 4)
            rows[lanes.numbers, 0] = value

    def read_string(self, address: int) -> bytes:
        """Return the bytes up to a zero at a generic address."""
        found = self.machine.memory.find(address, address + 1)
        if found is None:
            return b"(unreadable)"
        data = found.data[address - found.base : found.size].tobytes()
        return data.split(b"\0", 1)[0]

    def check_printed(self, op: Op, lane: int, address: int, fmt: bytes) -> None:
        """Report arguments of ``printf`` whose values come from memory that nobody wrote."""
        local, lanes = self.machine.local, np.array([lane])
        row = lane * local.pitch + address - LOCAL_WINDOW
        for start, end in argument_places(fmt):
            places = slice(row + start, row + end)
            self.machine.undefined.check_taken(op, lanes, local, places, "prints it")

    def read_local(self, lane: int, address: int) -> bytes:
        """Return the bytes that follow a generic address in the local memory of one lane."""
        offset = address - LOCAL_WINDOW
        local = self.machine.local
        if not 0 <= offset < local.size:
            return b""
        end = min(local.size, offset + _MOST_PRINTED)
        return local.data[lane * local.pitch + offset : lane * local.pitch + end].tobytes()


def _print(machine: Machine, op: Op, lanes: Lanes) -> None:
    """Build ``vprintf(format, arguments)``."""
    calls = machine.calls
    formats, arguments = calls.argument(op, 0, "uint64"), calls.argument(op, 1, "uint64")
    budget = machine.setup.budget
    for lane in lanes.numbers:
        fmt = calls.read_string(int(formats[lane]))
        if machine.local.origin is not None:
            calls.check_printed(op, int(lane), int(arguments[lane]), fmt)
        try:
            text = format_printf(
                fmt,
                calls.read_local(int(lane), int(arguments[lane])),
                calls.read_string,
                None if budget is None else budget.room(),
            )
        except ValueError as error:  # a GPU prints what lies behind the buffer
            op.fault("out of bounds", str(error), int(lane))
            continue
        except OverflowError:
            assert budget is not None
            budget.printed(machine, op.index, sys.maxsize)
            raise
        if budget is not None:
            budget.printed(machine, op.index, len(text))
        machine.setup.print(text)
    calls.give_result(op, lanes, count_arguments(calls.read_string(int(formats[lanes.numbers[0]]))))


def _assert_failed(machine: Machine, op: Op, lanes: Lanes) -> None:
    """Build ``__assertfail(message, file, line, function, size of a character)``."""
    calls, lane = machine.calls, int(lanes.numbers[0])
    message, file, function = (
        calls.read_string(int(calls.argument(op, i, "uint64")[lane])).decode(errors="replace")
        for i in (0, 1, 3)
    )
    line = int(calls.argument(op, 2, "uint32")[lane])
    geometry = machine.geometry
    raise KernelAssertError(
        f"{file}:{line}: {function}: block {geometry.block_index(lane)}, thread "
        f"{geometry.thread_index(lane)}: assertion `{message}` failed"
    )


def _not_here(function: str) -> str:
    """Say why a function that the driver brings can't be called."""
    if function in ("malloc", "free"):
        return f"{function} is called, and kernels have no heap here; pass an array in its place"
    if function.startswith(("cuda", "cnp")):
        return (
            f"{function} is of CUDA's device runtime, by which kernels launch kernels; launch them "
            "one after another"
        )
    return f"the function {function} is not in the source"


_SYSTEM: dict[str, Callable[[Machine, Op, Lanes], None]] = {
    "vprintf": _print,
    "__assertfail": _assert_failed,
}


def _names(operand: Any) -> list[str]:
    if not isinstance(operand, Vector):
        return []
    return [part.name for part in operand.elements if isinstance(part, Symbol)]


def _call(machine: Machine, op: Op) -> None:
    if set(op.instruction.modifiers) - {"uni"}:
        raise op.unsupported()
    operands = list(op.instruction.operands)
    results = _names(operands.pop(0)) if isinstance(operands[0], Vector) else []
    target = operands.pop(0)
    arguments = _names(operands[0]) if operands else []
    machine.calls.site(op, results, arguments)
    if isinstance(target, Symbol):
        if target.name in _SYSTEM:
            function = _SYSTEM[target.name]
            op.run = lambda lanes: function(machine, op, lanes)
        elif target.name in machine.program.entries:
            name = target.name
            op.control = lambda lanes: machine.calls.enter(op, lanes, name)
        elif not is_system(target.name):
            raise CompileError(
                f"{op.file}:{op.line}: {demangle(target.name)} is called, which is declared and "
                "defined nowhere: define it in the source, or in a header that it includes"
            )
        else:
            raise op.unsupported(_not_here(target.name))
        return
    assert isinstance(target, Register)
    read = machine.registers.reader(op, target, "u64", picked=True)
    by_address = {address: name for name, address in machine.program.entries.items()}

    def control(lanes: Lanes) -> Groups:
        where = np.broadcast_to(read(lanes), lanes.count)
        went: Groups = []
        for address in np.unique(where):
            if int(address) not in by_address:
                raise LaunchError(
                    f"{op.file}:{op.line}: a call to {int(address):#x}, where no function is"
                )
            chosen = where == address
            some = lanes if chosen.all() else lanes.where(chosen)
            went += machine.calls.enter(op, some, by_address[int(address)])
        return went

    op.control = control


BUILDERS: dict[str, Callable[[Machine, Op], None]] = {"call": _call}
