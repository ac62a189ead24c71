"""A GPU, as far as it decides how a product is answered, and its rates, each in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewise.devices import names
from tilewise.devices.limits import RESERVED_SHARED, max_shared
from tilewise.precision import HALVES

OLDEST = 80
"""The compute capability from which on a GPU has other kernels than the general one."""

# Multiply-adds that a multiprocessor begins in a clock, by compute capability, and by 0 of all that
# are not named. Those of single instructions are the CUDA Programming Guide's ("Throughput of
# Native Arithmetic Instructions"); those of tensor cores follow from the data sheets: 19.5 TFLOP/s
# of an A100, 67 of an H100 and 37 of a B200. Others have no tensor cores for float64. Those of
# 16-bit numbers with float32 sums are of the slowest GPU where the data sheets differ (an RTX 3080,
# 4090 and 5090 have half of what an RTX A6000, 6000 Ada and PRO 6000 have), and from 9.0 on what
# ``mma.sync`` seems to reach, half of what ``wgmma`` does.
_FLOAT32 = {80: 64, 0: 128}
_FLOAT64 = {80: 32, 90: 64, 100: 64, 0: 2}
_TENSOR_FLOAT64 = {80: 64, 90: 128, 100: 64}
_TENSOR_HALF = {80: 1024, 87: 1024, 90: 1024, 100: 1024, 103: 1024, 0: 256}


@dataclass(frozen=True)
class Chip:
    """A GPU, as far as it decides which kernel and which tiles are fastest.

    Attributes
    ----------
    name : str
        As the driver has it.
    multiprocessors : int
    capability : int
        The compute capability that kernels are compiled for; 90 for 9.0.
    clock : float
        The highest clock of its multiprocessors, Hz.
    memory : float
        Bytes a second that a copy in its memory moves, read and written together.
    l2 : int
        Bytes of its L2 cache.
    """

    name: str
    multiprocessors: int
    capability: int = 90
    clock: float = 1.98e9
    memory: float = 4.27e12
    l2: int = 60 << 20

    @property
    def is_measured(self) -> bool:
        """Whether its rates were measured, and are not only those of its data sheet."""
        return self.name in MEASURED_MEMORY

    @property
    def is_hopper(self) -> bool:
        """Whether it has ``wgmma``, tensor maps, and launches that overlap."""
        return self.capability == 90

    @property
    def has_float64_tensor_cores(self) -> bool:
        """Whether tensor cores multiply float64."""
        return self.capability in _TENSOR_FLOAT64

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a multiprocessor, with what the driver takes of them."""
        return max_shared(f"sm_{self.capability}") + RESERVED_SHARED

    def multiply_adds(self, dtype: str, by_tensor_cores: bool = False) -> float:
        """Return the most multiply-adds a second of a multiprocessor.

        Parameters
        ----------
        dtype : str
            Of 16 bits, of which tensor cores sum the products in float32, ``"float32"`` or
            ``"float64"``.
        by_tensor_cores : bool, optional
            Whether tensor cores multiply float64.
        """
        if dtype in HALVES:
            return _TENSOR_HALF.get(self.capability, _TENSOR_HALF[0]) * self.clock
        if by_tensor_cores:
            return _TENSOR_FLOAT64[self.capability] * self.clock
        rates = _FLOAT64 if dtype == "float64" else _FLOAT32
        return rates.get(self.capability, rates[0]) * self.clock


H200 = Chip("NVIDIA H200", 132)

MEMORY_SHARE = 0.89
"""What a copy reaches of the datasheet's bandwidth, where nobody measured it: as on the H200."""

MEASURED_MEMORY = {"NVIDIA H200": H200.memory, "NVIDIA H100 80GB HBM3": 3.0e12}
"""Bytes a second that ``tilewise ceilings`` measured of a copy, by the GPU's name."""


def chip_by(
    name: str, multiprocessors: int, capability: int, clock: float, bandwidth: float, l2: int
) -> Chip:
    """Return the chip that the driver's figures describe.

    Parameters
    ----------
    name : str
    multiprocessors : int
    capability : int
        That kernels are compiled for; 90 for 9.0.
    clock : float
        Hz.
    bandwidth : float
        Bytes a second of its memory, by the clock and the width of its bus.
    l2 : int
        Bytes.
    """
    memory = MEASURED_MEMORY.get(name, MEMORY_SHARE * bandwidth)
    return Chip(name, multiprocessors, capability, clock or H200.clock, memory or H200.memory, l2)


_KNOWN = (
    chip_by("Tesla T4", 40, 75, 1.59e9, 0.32e12, 4 << 20),
    chip_by("NVIDIA A100-SXM4-80GB", 108, 80, 1.41e9, 2.039e12, 40 << 20),
    chip_by("NVIDIA GeForce RTX 3090", 82, 86, 1.695e9, 0.936e12, 6 << 20),
    chip_by("NVIDIA L4", 58, 89, 2.04e9, 0.3e12, 48 << 20),
    chip_by("NVIDIA GeForce RTX 4090", 128, 89, 2.52e9, 1.008e12, 72 << 20),
    chip_by("NVIDIA L40S", 142, 89, 2.52e9, 0.864e12, 96 << 20),
    chip_by("NVIDIA H100 80GB HBM3", 132, 90, 1.98e9, 3.35e12, 50 << 20),
    H200,
    chip_by("NVIDIA B200", 148, 100, 1.965e9, 8.0e12, 126 << 20),
    chip_by("NVIDIA GeForce RTX 5090", 170, 120, 2.407e9, 1.792e12, 96 << 20),
)
KNOWN = {chip.name: chip for chip in _KNOWN}
"""GPUs that products can be planned for where they are not, by their data sheets."""


def known(name: str, multiprocessors: int | None = None) -> Chip:
    """Return a GPU that products can be planned for where it is not.

    Parameters
    ----------
    name : str
        As :func:`tilewise.devices.names.find` takes it.
    multiprocessors : int, optional
        Of the GPU, where not all of them are to be had; at most as many as it has.

    Raises
    ------
    ValueError
        If it is none that is known, or does not have so many.
    """
    chip = KNOWN[names.find(name, KNOWN)]
    if multiprocessors is None:
        return chip
    if not 1 <= multiprocessors <= chip.multiprocessors:
        raise ValueError(
            f"{multiprocessors:,} multiprocessors of an {chip.name}, which has "
            f"{chip.multiprocessors}: it takes 1 to {chip.multiprocessors}"
        )
    return replace(chip, multiprocessors=multiprocessors)
