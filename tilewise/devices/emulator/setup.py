"""What the emulator's machine is given for one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.devices.emulator.counting.rules import Rules
from tilewise.devices.emulator.memory.global_memory import GlobalMemory
from tilewise.devices.emulator.memory.shapes import SharedShapes
from tilewise.devices.emulator.ptx.sources import Sources
from tilewise.devices.emulator.threads.budget import Budget
from tilewise.devices.emulator.threads.faults import Faults
from tilewise.devices.emulator.threads.lanes import Geometry


@dataclass
class Setup:
    """The inputs of a machine for one launch."""

    memory: GlobalMemory
    parameters: bytes
    symbols: dict[str, int]
    dynamic_shared: int
    rules: Rules | None
    """The rules by which accesses are counted; None if they are not counted."""
    faults: Faults
    sources: Sources
    shapes: SharedShapes
    in_python: bool
    """Whether the kernel is written in Python."""
    is_checking: bool
    print: Callable[[str], None]
    is_mapping: bool = False
    whole: Geometry | None = None
    """The whole grid, where races in global memory are looked for."""
    budget: Budget | None = None
    workspace: int = 0
    """The address of a cooperative launch's workspace; 0 for any other launch."""
