"""A launch's global memory: arguments, the module's variables, and what goes back."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled
from tilewise.compiler.names import parameter_names
from tilewise.devices.arguments import ArrayArgument, ScalarArgument
from tilewise.devices.emulator.memory.arrays import EmulatorArray, allocate
from tilewise.devices.emulator.memory.global_memory import (
    Allocation,
    GlobalMemory,
)
from tilewise.devices.emulator.ptx.program import FUNCTION_ADDRESS, Program
from tilewise.devices.emulator.ptx.syntax import Variable
from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.devices.extents import extent


class Image:
    """What a launch sees in global memory; a context, after which it is gone.

    Attributes
    ----------
    parameters : bytes
        The kernel's parameter block.
    symbols : dict
        Variable or parameter to address.
    """

    def __init__(
        self,
        memory: GlobalMemory,
        program: Program,
        compiled: Compiled,
        bound: tuple[ScalarArgument | ArrayArgument, ...],
    ) -> None:
        self._memory, self._program = memory, program
        self._added: list[Allocation] = []
        self._hosts: list[tuple[npt.NDArray[Any], Allocation]] = []
        self.symbols: dict[str, int] = {}
        self._names = parameter_names(compiled)
        self._bound = bound
        self.parameters = b""

    def __enter__(self) -> Image:
        try:
            self.parameters = self._pack()
            self._add_variables()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        self._memory.remove(self._added)
        self._added.clear()

    def _add(self, allocation: Allocation) -> Allocation:
        self._memory.add(allocation)
        self._added.append(allocation)
        return allocation

    def _pack(self) -> bytes:
        block = bytearray(self._program.parameter_bytes)
        offsets = self._program.parameter_offsets
        for number, argument in enumerate(self._bound):
            data = (
                argument.data
                if isinstance(argument, ScalarArgument)
                else self._address(argument.value, number).to_bytes(8, "little")
            )
            at = offsets[argument.parameter.name]
            block[at : at + len(data)] = data
        host = np.frombuffer(bytes(block) or b"\0", np.uint8)
        allocation = self._add(allocate(host, self._memory, "the kernel's parameters"))
        for name, offset in offsets.items():
            self.symbols[name] = allocation.base + offset
        return bytes(block)

    def _address(self, value: Any, number: int) -> int:
        """The address of an array argument; arguments that are one array are one place."""
        name = self._names[number] if number < len(self._names) else f"argument {number}"
        if isinstance(value, EmulatorArray):
            value.allocation.name = name
            return value.allocation.base
        begin, end = extent(value)
        for host, allocation in self._hosts:
            other_begin, other_end = extent(host)
            if other_begin <= begin and end <= other_end and end > begin:
                return allocation.base + begin - other_begin
            if begin < other_end and other_begin < end:
                raise ValueError(
                    f"two arguments, one of them {name}, overlap in memory; pass the larger "
                    "array first, or copies"
                )
        allocation = self._add(allocate(value, self._memory, name))
        self._hosts.append((value, allocation))
        return allocation.base

    def _add_variables(self) -> None:
        """Memory for the module's ``__device__`` and ``__constant__`` variables."""
        variables = [
            v for v in self._program.module.variables.values() if v.space in ("global", "const")
        ]
        for variable in variables:
            host = np.zeros(max(variable.size, 1), np.uint8)
            allocation = self._add(allocate(host, self._memory, variable.name))
            allocation.dtype = DTYPES[variable.type]
            allocation.pitches = (allocation.dtype.itemsize,)
            self.symbols[variable.name] = allocation.base
        for variable in variables:
            self._initialize(variable)

    def _initialize(self, variable: Variable) -> None:
        dtype = DTYPES[variable.type]
        found = self._memory.find(self.symbols[variable.name], self.symbols[variable.name] + 1)
        assert found is not None
        raw = bytearray()
        for value in variable.values:
            if isinstance(value, tuple):
                raw += self._symbol_bytes(value, dtype.itemsize)
            elif isinstance(value, float):
                raw += dtype.type(value).tobytes()
            else:
                mask = (1 << 8 * dtype.itemsize) - 1
                raw += (int(value) & mask).to_bytes(dtype.itemsize, "little")
        found.data[: len(raw)] = np.frombuffer(bytes(raw), np.uint8)

    def _symbol_bytes(self, value: tuple[int, str, int, bool], size: int) -> bytes:
        mask, name, offset, _ = value
        address = self.symbols.get(name)
        if address is None:
            address = self._program.entries.get(name, FUNCTION_ADDRESS)
        address += offset
        if mask != -1:
            address = (address & mask) >> ((mask & -mask).bit_length() - 1)
        return (address & (1 << 8 * size) - 1).to_bytes(size, "little")

    def copy_back(self) -> None:
        """Give the caller's NumPy arrays what the kernel wrote."""
        for host, allocation in self._hosts:
            if not allocation.is_written:
                continue
            if not host.flags.writeable:
                raise ValueError(f"{allocation.name} is written by the kernel but is read-only")
            data = allocation.data[: allocation.size]
            host[...] = np.ndarray(host.shape, host.dtype, data, 0, host.strides)
