"""A kernel's module on the emulator: memory for ``__constant__`` and ``__device__`` variables."""

from __future__ import annotations

import math
import re
import weakref
from typing import Any

import numpy as np

from tilewise.compiler import Compiled
from tilewise.compiler import Variable as Declared
from tilewise.compiler.mangled import demangle
from tilewise.devices.emulator.memory.arrays import EmulatorArray
from tilewise.devices.emulator.memory.global_memory import UNWRITTEN, Allocation, GlobalMemory
from tilewise.devices.emulator.memory.storage import Bytes
from tilewise.devices.emulator.ptx.program import FUNCTION_ADDRESS, Program
from tilewise.devices.emulator.ptx.syntax import Variable
from tilewise.devices.emulator.ptx.types import DTYPES

_WIDTHS = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2,
    "__half": 2, "__nv_bfloat16": 2, "float": 4, "int": 4, "unsigned int": 4, "__half2": 4,
    "__nv_bfloat162": 4,
}  # fmt: skip
"""Bytes of an element; those of other types follow from the variable's size."""


class EmulatorModule:
    """The variables of one module, which keep what they hold from one launch to the next.

    Parameters
    ----------
    memory : GlobalMemory
    program : Program
    compiled : Compiled

    Attributes
    ----------
    symbols : dict
        Variable to address.
    """

    def __init__(self, memory: GlobalMemory, program: Program, compiled: Compiled) -> None:
        self._program, self._memory = program, memory
        self.symbols: dict[str, int] = {}
        self._allocations: dict[str, Allocation] = {}
        declared = {each.symbol: each for each in compiled.variables}
        variables = [v for v in program.module.variables.values() if v.space in ("global", "const")]
        for variable in variables:
            made = _allocation(memory, variable, declared.get(variable.name))
            self._allocations[variable.name] = made
            self.symbols[variable.name] = made.base
        for variable in variables:
            self._initialize(variable)
            if is_unset(variable, declared.get(variable.name), compiled.source):
                state = np.full(variable.size, UNWRITTEN, np.uint8)
                self._allocations[variable.name].leave_unset(state)
        allocations = list(self._allocations.values())
        for allocation in allocations:
            memory.add(allocation)
        finalizer = weakref.finalize(self, _release, memory, allocations)
        finalizer.atexit = False

    def read(self, symbol: str) -> bytes:
        """Return a variable's bytes."""
        found = self._allocations[symbol]
        return found.data[: found.size].tobytes()

    def write(self, symbol: str, data: bytes) -> None:
        """Set a variable, all of it."""
        found = self._allocations[symbol]
        found.data[: len(data)] = np.frombuffer(data, np.uint8)
        found.state = None

    def accept(self, value: Any) -> None:
        """Raise TypeError if an array does not lie in the memory of this module's emulator."""
        EmulatorArray.accept(value, self._memory)

    def kept(self) -> dict[str, tuple[Bytes, Bytes | None]]:
        """Return copies of the values of all variables, for :meth:`restore`."""
        return {
            symbol: (each.data.copy(), None if each.state is None else each.state.copy())
            for symbol, each in self._allocations.items()
        }

    def restore(self, kept: dict[str, tuple[Bytes, Bytes | None]]) -> None:
        """Have the variables hold what they held."""
        for symbol, (data, state) in kept.items():
            allocation = self._allocations[symbol]
            allocation.data[:] = data
            allocation.state = state

    def _initialize(self, variable: Variable) -> None:
        dtype = DTYPES[variable.type]
        raw = bytearray()
        for value in variable.values:
            if isinstance(value, tuple):
                raw += self._symbol_bytes(value, dtype.itemsize)
            elif isinstance(value, float):
                raw += dtype.type(value).tobytes()
            else:
                mask = (1 << 8 * dtype.itemsize) - 1
                raw += (int(value) & mask).to_bytes(dtype.itemsize, "little")
        self._allocations[variable.name].data[: len(raw)] = np.frombuffer(bytes(raw), np.uint8)

    def _symbol_bytes(self, value: tuple[int, str, int, bool], size: int) -> bytes:
        mask, name, offset, _ = value
        address = self.symbols.get(name)
        if address is None:
            address = self._program.entries.get(name, FUNCTION_ADDRESS)
        address += offset
        if mask != -1:
            address = (address & mask) >> ((mask & -mask).bit_length() - 1)
        return (address & (1 << 8 * size) - 1).to_bytes(size, "little")


def is_unset(variable: Variable, declared: Declared | None, source: str) -> bool:
    """Return whether a constant has no value but the zeros that C++ gives it, as far as known.

    The PTX has no initializer of zeros either, so the source decides: nothing but an initializer
    can stand behind a constant's name and an equals sign.
    """
    if variable.space != "const" or variable.values or declared is None:
        return False
    plain = re.sub(r"//[^\n]*|/\*.*?(?:\*/|\Z)", "", source, flags=re.S)
    name = re.escape(declared.name.rpartition("::")[2].partition("<")[0])
    return re.search(rf"\b{name}\s*(?:\[[^\]]*\]\s*)*(?:=(?!=)|[{{(])", plain) is None


def _allocation(memory: GlobalMemory, variable: Variable, declared: Declared | None) -> Allocation:
    """Allocate zeros whose places are named by the source's name and indices."""
    dtype = DTYPES[variable.type]
    shape: tuple[int, ...] = ()
    name = demangle(variable.name) if declared is None else declared.name
    size = max(variable.size, 1)
    if declared is not None and declared.shape:
        shape = declared.shape
        width = _WIDTHS.get(declared.declared, variable.size // max(math.prod(shape), 1))
        dtype = np.dtype(f"V{width}") if width else dtype
    pitches = tuple(dtype.itemsize * math.prod(shape[axis:]) for axis in range(1, len(shape)))
    return Allocation(memory.reserve(size), size, name, dtype, (*pitches, dtype.itemsize))


def _release(memory: GlobalMemory, allocations: list[Allocation]) -> None:
    for allocation in allocations:
        memory.release(allocation)
