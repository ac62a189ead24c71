"""How many blocks a multiprocessor holds at once, by the CUDA C++ programming guide's tables
("Compute Capabilities", technical specifications)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.devices.limits import compute_capability
from tilewise.launch import Resources

WARP = 32
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""
REGISTERS = 65536


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of one multiprocessor; shared memory in bytes."""

    threads: int
    blocks: int
    shared: int
    shared_unit: int
    reserved_shared: int


_TABLE = {
    75: Multiprocessor(1024, 16, 64 * 1024, 256, 0),
    80: Multiprocessor(2048, 32, 164 * 1024, 128, 1024),
    86: Multiprocessor(1536, 16, 100 * 1024, 128, 1024),
    87: Multiprocessor(1536, 16, 164 * 1024, 128, 1024),
    89: Multiprocessor(1536, 24, 100 * 1024, 128, 1024),
    90: Multiprocessor(2048, 32, 228 * 1024, 128, 1024),
    100: Multiprocessor(2048, 32, 228 * 1024, 128, 1024),
    103: Multiprocessor(2048, 32, 228 * 1024, 128, 1024),
    120: Multiprocessor(1536, 24, 100 * 1024, 128, 1024),
    121: Multiprocessor(1536, 24, 100 * 1024, 128, 1024),
}


def blocks_per_multiprocessor(arch: str, resources: Resources, threads: int, shared: int) -> int:
    """Resident blocks of a multiprocessor.

    Parameters
    ----------
    arch : str
    resources : Resources
    threads : int
        A block.
    shared : int
        Dynamic shared memory a block, bytes.

    Raises
    ------
    ValueError
        If the tables do not have ``arch``.
    """
    capability = compute_capability(arch)
    if capability not in _TABLE:
        raise ValueError(f"no occupancy table for {arch}; there are {sorted(_TABLE)}")
    limit = _TABLE[capability]
    warps = -(-threads // WARP)
    by_warps = limit.threads // WARP // warps
    registers = -(-resources.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    # Each of the four parts of a multiprocessor has its own registers.
    by_registers = REGISTERS // 4 // max(registers, 1) * 4 // warps
    total = resources.shared_bytes + shared + limit.reserved_shared
    total = -(-total // limit.shared_unit) * limit.shared_unit
    by_shared = limit.shared // total if total else limit.blocks
    return min(limit.blocks, by_warps, by_registers, by_shared)
