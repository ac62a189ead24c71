"""A launch's global memory: arguments, the module's variables, and what goes back."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled
from tilewise.devices.arguments import ArrayArgument, ScalarArgument
from tilewise.devices.emulator.memory.arrays import EmulatorArray, allocate
from tilewise.devices.emulator.memory.global_memory import (
    Allocation,
    GlobalMemory,
)
from tilewise.devices.emulator.memory.module import EmulatorModule
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.extents import extent


class Image:
    """What a launch sees in global memory; a context, after which it is gone.

    Attributes
    ----------
    parameters : bytes
        The kernel's parameter block.
    symbols : dict
        Variable or parameter to address.

    Parameters
    ----------
    module : EmulatorModule, optional
        Whose variables they are; unless :meth:`copy_back` is called they hold afterwards what they
        held before. By default a new one.
    """

    def __init__(
        self,
        memory: GlobalMemory,
        program: Program,
        compiled: Compiled,
        bound: tuple[ScalarArgument | ArrayArgument, ...],
        module: EmulatorModule | None = None,
    ) -> None:
        self._memory, self._program = memory, program
        self._added: list[Allocation] = []
        self._hosts: list[tuple[npt.NDArray[Any], Allocation]] = []
        self.module = module or EmulatorModule(memory, program, compiled)
        self._kept = {} if module is None else module.kept()
        self.symbols = dict(self.module.symbols)
        self._names = parameter_names(compiled)
        self._bound = bound
        self.parameters = b""

    def __enter__(self) -> Image:
        try:
            self.parameters = self._pack()
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
        self.module.restore(self._kept)

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

    def copy_back(self) -> None:
        """Give the caller's NumPy arrays what the kernel wrote; its variables keep it."""
        for host, allocation in self._hosts:
            if not allocation.is_written:
                continue
            if not host.flags.writeable:
                raise ValueError(f"{allocation.name} is written by the kernel but is read-only")
            data = allocation.data[: allocation.size]
            host[...] = np.ndarray(host.shape, host.dtype, data, 0, host.strides)
        self._kept = {}


def parameter_names(compiled: Compiled) -> list[str]:
    """The names that the source gives the kernel's parameters, as far as they can be read."""
    # A comment, or what looks like one, ends where the text does: no text is looked at twice.
    plain = re.sub(r"//[^\n]*|/\*.*?(?:\*/|\Z)", "", compiled.source, flags=re.S)
    base = re.split(r"[<(]", compiled.name)[0].split("::")[-1].strip()
    match = re.search(rf"\b{re.escape(base)}\s*\(([^)]{{,9999}})\)\s*\{{", plain)
    if match is None:
        return []
    names: list[str] = []
    for part in match.group(1).split(","):
        found = re.findall(r"[A-Za-z_]\w*", part.split("[")[0])
        names.append(found[-1] if len(found) > 1 else f"argument {len(names)}")
    return names if len(names) == len(compiled.parameters) else []
