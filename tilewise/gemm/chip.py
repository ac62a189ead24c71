"""A GPU, as far as it decides how a product is answered."""

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
    """

    name: str
    multiprocessors: int
    is_hopper: bool = True


H200 = Chip("NVIDIA H200", 132)
