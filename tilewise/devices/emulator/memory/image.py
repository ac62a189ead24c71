"""A launch's global memory: arguments, the module's variables, and what goes back."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled
from tilewise.compiler.names import parameter_names
from tilewise.devices.arguments import ArrayArgument, ScalarArgument
from tilewise.devices.emulator.memory.arrays import EmulatorArray, allocate, allocate_together
from tilewise.devices.emulator.memory.global_memory import (
    Allocation,
    GlobalMemory,
)
from tilewise.devices.emulator.memory.module import EmulatorModule
from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.extents import extent, span
from tilewise.places import Encode

WORKSPACE_BYTES = 8
"""Bytes of a cooperative launch's workspace: its own size and a barrier, 32 bits each."""


class Image:
    """The global memory that a launch sees; a context, after which the image is gone.

    Attributes
    ----------
    parameters : bytes
        The kernel's parameter block.
    symbols : dict
        The addresses by variable or parameter.
    workspace : int
        The address of a cooperative launch's workspace, whose halves are in ``%envreg1`` and
        ``%envreg2``; 0 for any other launch.

    Parameters
    ----------
    module : EmulatorModule, optional
        The module whose variables the launch uses. Unless :meth:`copy_back` is called, they get
        back the values that they had before. By default it is a new module.
    is_cooperative : bool
        Whether the launch is cooperative.
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
        self._hosts: list[tuple[npt.NDArray[Any], Allocation, int]] = []
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
        """Place each array argument in memory; arrays that overlap share one allocation."""
        found: dict[int, int] = {}
        hosts: dict[int, npt.NDArray[Any]] = {}
        for number, argument in enumerate(self._bound):
            if isinstance(argument, ScalarArgument):
                continue
            value = argument.value
            if isinstance(value, EmulatorArray):
                value.allocation.name = self._name(number)
                found[number] = value.allocation.base
            else:
                hosts[number] = value
        for together in _overlapping(hosts):
            begin = min(extent(hosts[number])[0] for number in together)
            allocation = self._together({number: hosts[number] for number in together})
            for number in together:
                offset = extent(hosts[number])[0] - begin
                self._hosts.append((hosts[number], allocation, offset))
                found[number] = allocation.base + offset
        return found

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else f"argument {number}"

    def _together(self, hosts: dict[int, npt.NDArray[Any]]) -> Allocation:
        """Allocate overlapping arrays, as one array if one of them holds all the others."""
        begin = min(extent(host)[0] for host in hosts.values())
        end = max(extent(host)[1] for host in hosts.values())
        whole = [number for number, host in hosts.items() if extent(host) == (begin, end)]
        if whole:
            largest = max(whole, key=lambda number: hosts[number].nbytes)
            return self._add(allocate(hosts[largest], self._memory, self._name(largest)))
        first = min(hosts, key=lambda number: extent(hosts[number]))
        return self._add(allocate_together(list(hosts.values()), self._memory, self._name(first)))

    def copy_back(self) -> None:
        """Give the caller's NumPy arrays what the kernel wrote; its variables keep it."""
        written = [each for each in self._hosts if each[1].is_written]
        for host, allocation, offset in written:
            if not host.flags.writeable and self._changes(host, allocation, offset):
                raise ValueError(f"{allocation.name} is written by the kernel but is read-only")
        for host, allocation, offset in written:
            if host.flags.writeable:
                data = allocation.data[: allocation.size]
                host[...] = np.ndarray(host.shape, host.dtype, data, offset, host.strides)
        self._kept = {}

    def _changes(self, host: npt.NDArray[Any], allocation: Allocation, offset: int) -> bool:
        """Return whether the kernel changed a read-only array that no writable array overlaps."""
        others = [
            (other, at)
            for other, memory, at in self._hosts
            if memory is allocation and other.flags.writeable
        ]
        if not others:
            return True
        before = span(host)
        changed = np.zeros(allocation.size, np.bool_)
        here = slice(offset, offset + len(before))
        changed[here] = allocation.data[here] != before
        for other, at in others:
            items = np.ndarray(
                (*other.shape, other.itemsize), np.bool_, changed.data, at, (*other.strides, 1)
            )
            items[...] = False
        return bool(changed.any())


def _overlapping(hosts: Mapping[int, npt.NDArray[Any]]) -> list[list[int]]:
    """Group arrays that overlap, in the order of the arguments; an empty one is alone."""
    extents = {number: extent(host) for number, host in hosts.items()}
    found: list[list[int]] = []
    last = -1
    for number in sorted(hosts, key=lambda number: extents[number]):
        begin, end = extents[number]
        if begin == end:
            found.insert(0, [number])
        elif begin < last:
            found[-1].append(number)
        else:
            found.append([number])
        last = max(last, end) if begin < end else last
    return sorted(found, key=min)
