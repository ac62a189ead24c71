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
from tilewise.devices.emulator.memory.module import EmulatorModule
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.extents import extent
from tilewise.places import Encode

WORKSPACE_BYTES = 8
"""Of a cooperative launch: its size and a barrier, 32 bits each."""


class Image:
    """What a launch sees in global memory; a context, after which it is gone.

    Attributes
    ----------
    parameters : bytes
        The kernel's parameter block.
    symbols : dict
        Variable or parameter to address.
    workspace : int
        The address of a cooperative launch's workspace, to which ``%envreg1`` and ``%envreg2``
        point; 0 of another launch.

    Parameters
    ----------
    module : EmulatorModule, optional
        Whose variables they are; unless :meth:`copy_back` is called they hold afterwards what they
        held before. By default a new one.
    is_cooperative : bool
        Whether the launch is.
    """

    def __init__(
        self,
        memory: GlobalMemory,
        program: Program,
        compiled: Compiled,
        bound: tuple[ScalarArgument | ArrayArgument, ...],
        encode: Encode,
        module: EmulatorModule | None = None,
        is_cooperative: bool = False,
    ) -> None:
        self._memory, self._program, self._encode = memory, program, encode
        self._is_cooperative = is_cooperative
        self._added: list[Allocation] = []
        self._hosts: list[tuple[npt.NDArray[Any], Allocation]] = []
        self.module = module or EmulatorModule(memory, program, compiled)
        self._kept = {} if module is None else module.kept()
        self.symbols = dict(self.module.symbols)
        self._names = parameter_names(compiled)
        self._bound = bound
        self.parameters = b""
        self.workspace = 0

    def __enter__(self) -> Image:
        try:
            self.parameters = self._pack()
            if self._is_cooperative:
                # Its size and the grid's barrier, as CUDA's cooperative_groups expect them.
                host = np.array([WORKSPACE_BYTES, 0], np.uint32)
                self.workspace = self._add(
                    allocate(host, self._memory, "the grid's workspace")
                ).base
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
        addresses = self._addresses()
        for number, argument in enumerate(self._bound):
            if isinstance(argument, ScalarArgument):
                data = argument.data
            else:
                data = argument.data(addresses[number], self._encode, self._keep)
            at = offsets[argument.parameter.name]
            block[at : at + len(data)] = data
        host = np.frombuffer(bytes(block) or b"\0", np.uint8)
        base = self._memory.reserve_parameters()
        allocation = self._add(allocate(host, self._memory, "the kernel's parameters", base))
        for name, offset in offsets.items():
            self.symbols[name] = allocation.base + offset
        return bytes(block)

    def _keep(self, data: bytes) -> int:
        """Give bytes a place in global memory."""
        host = np.frombuffer(data, np.uint8)
        return self._add(allocate(host, self._memory, "a tensor map")).base

    def _addresses(self) -> dict[int, int]:
        """Place each array argument; where one lies within another, they are one place."""
        arrays = {
            number: argument.value
            for number, argument in enumerate(self._bound)
            if isinstance(argument, ArrayArgument)
        }
        found = {}
        # The larger ones first, so that views of them are found in them.
        for number in sorted(arrays, key=lambda number: _reach(arrays[number]), reverse=True):
            found[number] = self._address(arrays[number], number)
        return found

    def _address(self, value: Any, number: int) -> int:
        """The address of an array argument."""
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
                    f"two arguments, one of them {name}, overlap in memory, and neither lies "
                    "within the other; pass copies"
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


def _reach(value: Any) -> tuple[int, int]:
    """How many bytes lie between an array's ends, and how many of them are its own."""
    if isinstance(value, EmulatorArray):
        return 0, 0
    begin, end = extent(value)
    return end - begin, value.nbytes
