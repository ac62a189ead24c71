"""Occupancy: how many blocks a multiprocessor holds at once, and what limits them. Needs no GPU.

Threads, blocks, registers and shared memory are those of the CUDA Programming Guide 13, "Compute
Capabilities", tables "Device and Streaming Multiprocessor (SM) Information per Compute Capability"
and "Memory Information per Compute Capability". How they are given out (units, parts, named
barriers) is that of NVIDIA's own calculator, ``cuda_occupancy.h`` of CUDA 13.5; what is reserved
of shared memory, and 8.8, which the guide's tables leave out, of the same release's
``cuda/__device/arch_traits.h``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tilewise.counted import Resources
from tilewise.devices.limits import MAX_THREADS, compute_capability
from tilewise.shown import Shown, plural

WARP = 32
MAX_REGISTERS = 255
MAX_BARRIERS = 16


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; it must be an integer")
    return int(value)


@dataclass(frozen=True)
class Multiprocessor:
    """The resources of one multiprocessor, and how it allocates them.

    Attributes
    ----------
    threads, blocks : int
        The most threads and blocks that are resident at once.
    shared : int
        Bytes of shared memory for all of its blocks.
    shared_unit : int
        The allocation unit in bytes: a block's shared memory is a multiple of it.
    reserved_shared : int
        Bytes of shared memory that the driver takes for each block.
    registers : int
        The number of 32-bit registers for all of its threads.
    register_unit : int
        The allocation unit of registers: a warp's registers are a multiple of it.
    parts : int
        The number of parts among which its registers and its warps are split evenly.
    barriers : int
        The number of named barriers for all of its blocks; 0 if they are no limit.
    name : str
        The architecture's name.

    Raises
    ------
    ValueError
        If it has less than nothing of something, or nothing of what every block needs.
    """

    threads: int
    blocks: int
    shared: int
    shared_unit: int = 128
    reserved_shared: int = 0
    registers: int = 64 * 1024
    register_unit: int = 256
    parts: int = 4
    barriers: int = 0
    name: str = "own"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("shared", "reserved_shared", "barriers") else 1
            if field.name != "name" and _integer(value, field.name) < least:
                raise ValueError(f"{field.name} is {value:,}; it must be at least {least:,}")

    @property
    def warps(self) -> int:
        """The most warps that are resident at once."""
        return self.threads // WARP

    @property
    def max_shared(self) -> int:
        """The most shared memory a block, bytes."""
        return self.shared - self.reserved_shared

    def shared_of_a_block(self, shared: int) -> int:
        """Return the bytes that a block occupies if it asks for ``shared`` bytes."""
        return _rounded(shared + self.reserved_shared, self.shared_unit)


def _turing(threads: int, blocks: int, kilobytes: int) -> Multiprocessor:
    return Multiprocessor(threads, blocks, kilobytes * 1024, shared_unit=256)


def _ampere(threads: int, blocks: int, kilobytes: int, barriers: int = 0) -> Multiprocessor:
    """Return a multiprocessor of Ampere or later, whose driver takes 1 KB for each block."""
    return Multiprocessor(
        threads, blocks, kilobytes * 1024, reserved_shared=1024, barriers=barriers
    )


_TABLE = {
    75: _turing(1024, 16, 64),
    80: _ampere(2048, 32, 164),
    86: _ampere(1536, 16, 100),
    87: _ampere(1536, 16, 164),
    88: _ampere(1536, 16, 100),
    89: _ampere(1536, 24, 100),
    90: _ampere(2048, 32, 228, barriers=64),
    100: _ampere(2048, 32, 228, barriers=64),
    103: _ampere(2048, 32, 228, barriers=32),
    110: _ampere(1536, 24, 228, barriers=24),
    120: _ampere(1536, 24, 100, barriers=24),
    121: _ampere(1536, 24, 100, barriers=24),
}
# For each architecture, the GPU with the most multiprocessors, or one of those, and how many it has
# (NVIDIA's data sheets). No GPU of 8.8 is sold.
_GPUS = {
    75: ("Quadro RTX 6000", 72),
    80: ("A100", 108),
    86: ("RTX A6000", 84),
    87: ("Jetson AGX Orin", 16),
    89: ("L40S", 142),
    90: ("H200", 132),
    100: ("B200", 148),
    103: ("B300", 148),
    110: ("Jetson Thor", 20),
    120: ("RTX PRO 6000 Blackwell", 188),
    121: ("GB10", 48),
}
ARCHITECTURES = tuple(f"sm_{capability}" for capability in _TABLE)


def multiprocessor(arch: str) -> Multiprocessor:
    """Return the multiprocessor of ``arch``, as ``"sm_90"`` or ``"sm_90a"``.

    Raises
    ------
    ValueError
        If ``arch`` is no architecture, or the table does not have it.

    Examples
    --------
    >>> multiprocessor("sm_90a").max_shared // 1024
    227
    """
    capability = compute_capability(arch)
    if capability not in _TABLE:
        raise ValueError(
            f"what a multiprocessor of {arch} has is not known; there are "
            f"{', '.join(ARCHITECTURES)}"
        )
    return replace(_TABLE[capability], name=arch)


@dataclass(frozen=True, repr=False)
class Occupancy(Shown):
    """How many blocks of one kind a multiprocessor holds at once.

    Attributes
    ----------
    arch : str
        The multiprocessor's name.
    threads : int
        Threads a block.
    registers : int
        Registers a thread; 0 if they are left out.
    shared : int
        Bytes of shared memory a block, static and dynamic together.
    barriers : int
        Named barriers a block.
    blocks, warps : int
        Blocks and warps resident on a multiprocessor; 0 if the kernel can't be launched with such
        blocks.
    max_warps : int
        The most warps that a multiprocessor holds.
    by_blocks, by_warps : int
        Blocks that the multiprocessor's blocks, and its warps, alone would allow: Nsight Compute's
        ``launch__occupancy_limit_blocks`` and ``_warps``.
    by_registers, by_shared, by_barriers : int or None
        The same of registers, shared memory and named barriers, ``_registers``, ``_shared_mem``
        and ``_barriers``; None where they are no limit. ``by_shared`` holds where all of the
        shared memory is to be had, as it is when it is needed; Nsight Compute takes the part that
        the driver had set aside for that launch.
    """

    arch: str
    threads: int
    registers: int
    shared: int
    barriers: int
    blocks: int
    warps: int
    max_warps: int
    by_blocks: int
    by_warps: int
    by_registers: int | None
    by_shared: int | None
    by_barriers: int | None

    @property
    def limits(self) -> tuple[str, ...]:
        """The resources that allow no further block."""
        allowed = {
            "blocks": self.by_blocks,
            "warps": self.by_warps,
            "registers": self.by_registers,
            "shared memory": self.by_shared,
            "barriers": self.by_barriers,
        }
        return tuple(name for name, blocks in allowed.items() if blocks == self.blocks)

    @property
    def share(self) -> float:
        """The fraction of the warps that a multiprocessor holds which are resident."""
        return self.warps / self.max_warps

    @property
    def resident_threads(self) -> int:
        """The resident threads a multiprocessor."""
        return self.blocks * self.threads

    def to_dict(self) -> dict[str, Any]:
        """Return the occupancy as plain data for JSON."""
        return {**asdict(self), "limits": list(self.limits), "share": self.share}

    def _summary(self) -> str:
        return (
            f"{plural(self.blocks, 'block')} of {plural(self.threads, 'thread')} a multiprocessor "
            f"of {self.arch}, {self.warps:,} of {self.max_warps:,} warps, limited by "
            f"{', '.join(self.limits)}"
        )


def occupancy(
    arch: str | Multiprocessor,
    threads: int,
    registers: int,
    shared: int,
    *,
    barriers: int = 0,
) -> Occupancy:
    """Return how many blocks a multiprocessor holds at once, and what limits them.

    The limits of clusters and of tensor memory, which may allow fewer, are left out.

    Parameters
    ----------
    arch : str or Multiprocessor
        As ``"sm_90"``, or a multiprocessor of one's own.
    threads : int
        Threads a block, 1 to 1024.
    registers : int
        Registers a thread, up to 255; 0 leaves them out.
    shared : int
        Bytes of shared memory a block, static and dynamic together.
    barriers : int
        Named barriers a block, up to 16; 0 leaves them out.

    Raises
    ------
    TypeError
        If a number is no integer.
    ValueError
        If a block can't have so much of something, or the architecture is not known.

    Examples
    --------
    >>> found = occupancy("sm_75", threads=256, registers=40, shared=8192)
    >>> found.blocks, found.limits
    (4, ('warps',))
    """
    place = multiprocessor(arch) if isinstance(arch, str) else arch
    _check(threads, "threads", 1, MAX_THREADS, "a block has from 1 to 1,024")
    _check(registers, "registers", 0, MAX_REGISTERS, "a thread has from 0 to 255")
    room = f"a block of {place.name} has from 0 to {place.max_shared:,} bytes"
    _check(shared, "shared", 0, place.max_shared, room)
    _check(barriers, "barriers", 0, MAX_BARRIERS, "a block has from 0 to 16")
    warps = -(-threads // WARP)
    by_registers = by_shared = by_barriers = None
    if registers:
        by_registers = _warps_by_registers(place, registers) // warps
    if of_block := place.shared_of_a_block(shared):
        by_shared = place.shared // of_block
    if barriers and place.barriers:
        by_barriers = place.barriers // barriers
    by_warps = place.warps // warps
    allowed = (place.blocks, by_warps, by_registers, by_shared, by_barriers)
    blocks = min(limit for limit in allowed if limit is not None)
    return Occupancy(
        arch=place.name,
        threads=threads,
        registers=registers,
        shared=shared,
        barriers=barriers,
        blocks=blocks,
        warps=blocks * warps,
        max_warps=place.warps,
        by_blocks=place.blocks,
        by_warps=by_warps,
        by_registers=by_registers,
        by_shared=by_shared,
        by_barriers=by_barriers,
    )


def blocks_per_multiprocessor(arch: str, resources: Resources, threads: int, shared: int) -> int:
    """Return the resident blocks of a compiled kernel, as the driver would count them.

    Parameters
    ----------
    arch : str
    resources : Resources
    threads : int
        Threads a block.
    shared : int
        Dynamic shared memory a block, bytes.

    Returns
    -------
    int
        0 where such a block can't be launched at all.

    Raises
    ------
    ValueError
        If the table does not have ``arch``, ``threads`` is below 1 or ``shared`` negative, or it
        is not known what the kernel takes.
    """
    if resources.missing:
        raise ValueError(f"the kernel's registers are not known: {resources.missing}")
    if threads < 1 or shared < 0:
        raise ValueError(f"a block of {threads:,} threads with {shared:,} bytes is none")
    place = multiprocessor(arch)
    shared += resources.shared_bytes
    if threads > MAX_THREADS or shared > place.max_shared:
        return 0
    return occupancy(
        place, threads, resources.registers, shared, barriers=resources.barriers
    ).blocks


def largest_gpu(arch: str) -> tuple[str, int] | None:
    """Return the name and the multiprocessors of an architecture's largest GPU; None if not known.

    Raises
    ------
    ValueError
        If ``arch`` is not written as an architecture.

    Examples
    --------
    >>> largest_gpu("sm_90a")
    ('H200', 132)
    """
    return _GPUS.get(compute_capability(arch))


def most_threads(arch: str, registers: int) -> int:
    """Return the most threads that a block can have, as far as its registers allow.

    Parameters
    ----------
    arch : str
        The architecture; one that the table does not have counts as the newest that it has.
    registers : int
        Registers a thread; 0 leaves them out.

    Raises
    ------
    ValueError
        If ``arch`` is not written as an architecture.
    """
    if not registers:
        return MAX_THREADS
    place = _TABLE.get(compute_capability(arch), _TABLE[max(_TABLE)])
    return min(MAX_THREADS, WARP * _warps_by_registers(place, registers))


def _warps_by_registers(place: Multiprocessor, registers: int) -> int:
    of_warp = _rounded(registers * WARP, place.register_unit)
    # A warp lies in one part, and a part has only its own registers.
    return place.registers // place.parts // of_warp * place.parts


def _rounded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _check(value: Any, name: str, least: int, most: int, right: str) -> None:
    if not least <= _integer(value, name) <= most:
        raise ValueError(f"{name} is {value:,}; {right}")
