"""The properties and the rates of a GPU that decide how a product is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewise.devices import names
from tilewise.devices.limits import RESERVED_SHARED, max_shared
from tilewise.precision import HALVES

OLDEST = 80
"""The compute capability from which on a GPU has kernels besides the general one."""

# The multiply-adds that a multiprocessor issues in a clock, by compute capability; the key 0 is for
# all capabilities that are not named. The rates of scalar instructions are the CUDA Programming
# Guide's ("Throughput of Native Arithmetic Instructions"). The rates of tensor cores follow from
# the data sheets: 19.5 TFLOP/s for an A100, 67 for an H100 and 37 for a B200; GPUs of other
# capabilities have no tensor cores for float64. For 16-bit inputs with float32 accumulators, where
# the data sheets differ, the rate is that of the slowest GPU (an RTX 3080, 4090 and 5090 have half
# the rate of an RTX A6000, 6000 Ada and PRO 6000). From 9.0 on it is what ``mma.sync`` seems to
# reach, half of what ``wgmma`` does.
_FLOAT32 = {80: 64, 0: 128}
_FLOAT64 = {80: 32, 90: 64, 100: 64, 0: 2}
_TENSOR_FLOAT64 = {80: 64, 90: 128, 100: 64}
_TENSOR_HALF = {80: 1024, 87: 1024, 90: 1024, 100: 1024, 103: 1024, 0: 256}


@dataclass(frozen=True)
class Chip:
    """The properties of a GPU that decide which kernel and which tiles are fastest.

    Attributes
    ----------
    name : str
        The name that the driver reports.
    multiprocessors : int
    capability : int
        The compute capability that kernels are compiled for; 90 means 9.0.
    clock : float
        The highest clock of its multiprocessors, in Hz.
    memory : float
        The bytes a second that a copy within its memory moves, reads and writes together.
    l2 : int
        The bytes of its L2 cache.
    """

    name: str
    multiprocessors: int
    capability: int = 90
    clock: float = 1.98e9
    memory: float = 4.27e12
    l2: int = 60 << 20

    @property
    def is_measured(self) -> bool:
        """Whether its memory rate was measured, rather than taken from its data sheet."""
        return self.name in MEASURED_MEMORY

    @property
    def is_hopper(self) -> bool:
        """Whether it has ``wgmma``, tensor maps, and launches that overlap."""
        return self.capability == 90

    @property
    def has_float64_tensor_cores(self) -> bool:
        """Whether its tensor cores multiply float64."""
        return self.capability in _TENSOR_FLOAT64

    @property
    def shared(self) -> int:
        """The bytes of shared memory of a multiprocessor, with those that the driver reserves."""
        return max_shared(f"sm_{self.capability}") + RESERVED_SHARED

    def multiply_adds(self, dtype: str, by_tensor_cores: bool = False) -> float:
        """Return the most multiply-adds that a multiprocessor can do in a second.

        Parameters
        ----------
        dtype : str
            A 16-bit dtype, whose products tensor cores sum in float32, or ``"float32"`` or
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
"""The share of the data sheet's bandwidth that a copy is taken to reach, as on the H200."""

MEASURED_MEMORY = {"NVIDIA H200": H200.memory, "NVIDIA H100 80GB HBM3": 3.0e12}
"""The bytes a second of a copy as ``tilewise ceilings`` measured them, by the GPU's name."""


def chip_by(
    name: str, multiprocessors: int, capability: int, clock: float, bandwidth: float, l2: int
) -> Chip:
    """Return the chip that the driver's figures describe.

    Parameters
    ----------
    name : str
    multiprocessors : int
    capability : int
        The compute capability that kernels are compiled for; 90 means 9.0.
    clock : float
        The clock in Hz.
    bandwidth : float
        The memory's bytes a second, from its clock and the width of its bus.
    l2 : int
        The bytes of the L2 cache.
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
"""The GPUs that products can be planned for on any machine, from their data sheets, by name."""


def known(name: str, multiprocessors: int | None = None) -> Chip:
    """Return a GPU that products can be planned for on any machine.

    Parameters
    ----------
    name : str
        The GPU's name, in any form that :func:`tilewise.devices.names.find` takes.
    multiprocessors : int, optional
        The number of multiprocessors that may be used, at most as many as the GPU has; by default
        all.

    Raises
    ------
    TypeError
        If the name is no string.
    ValueError
        If the GPU is not known, or does not have so many multiprocessors.
    """
    if not isinstance(name, str):
        raise TypeError(f"gpu is {name!r}; it takes the name of a GPU, as 'h200'")
    chip = KNOWN[names.find(name, KNOWN)]
    if multiprocessors is None:
        return chip
    if not 1 <= multiprocessors <= chip.multiprocessors:
        raise ValueError(
            f"{multiprocessors:,} multiprocessors of an {chip.name}, which has "
            f"{chip.multiprocessors}: it takes 1 to {chip.multiprocessors}"
        )
    return replace(chip, multiprocessors=multiprocessors)
