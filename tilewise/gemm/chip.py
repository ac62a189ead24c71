"""A GPU, as far as it decides how a product is answered, and its rates, each in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """A GPU, as far as it decides which kernel and which tiles are fastest.

    Attributes
    ----------
    name : str
        As the driver has it.
    multiprocessors : int
    is_hopper : bool
        Whether it has what the tensor-core kernels ask for: compute capability 9.0.
    clock : float
        The highest clock of its multiprocessors, Hz.
    memory : float
        Bytes a second that a copy in its memory moves, read and written together.
    l2 : int
        Bytes of its L2 cache.
    """

    name: str
    multiprocessors: int
    is_hopper: bool = True
    clock: float = 1.98e9
    memory: float = 4.27e12
    l2: int = 60 << 20


H200 = Chip("NVIDIA H200", 132)

MEMORY_SHARE = 0.89
"""What a copy reaches of the datasheet's bandwidth, where nobody measured it: as on the H200."""

MEASURED_MEMORY = {"NVIDIA H200": H200.memory, "NVIDIA H100 80GB HBM3": 3.0e12}
"""Bytes a second that ``tilewise ceilings`` measured of a copy, by the GPU's name."""


def chip_by(
    name: str, multiprocessors: int, is_hopper: bool, clock: float, bandwidth: float, l2: int
) -> Chip:
    """Return the chip that the driver's figures describe.

    Parameters
    ----------
    name : str
    multiprocessors : int
    is_hopper : bool
    clock : float
        Hz.
    bandwidth : float
        Bytes a second of its memory, by the clock and the width of its bus.
    l2 : int
        Bytes.
    """
    memory = MEASURED_MEMORY.get(name, MEMORY_SHARE * bandwidth)
    return Chip(name, multiprocessors, is_hopper, clock or H200.clock, memory or H200.memory, l2)
