"""Measure the limits of the GPU itself: its tensor cores, and its memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tilewise.bench.timing import in_turn
from tilewise.devices.gpu import Gpu
from tilewise.lens.ceilings import rate_of
from tilewise.lens.tensor_cores import tensor_core_flops

_COPIED_BYTES = 1 << 30
_ROUNDS = 5


@dataclass(frozen=True)
class Ceilings:
    """The limits that no product on this GPU exceeds.

    Attributes
    ----------
    flops : float or None
        Operations a second, steady: of tensor cores fed from shared memory alone, None for a GPU
        that the probe is not written for; of float64, tensor cores between registers; of float32,
        multiply-adds between registers.
    bytes : float
        A copy within the device's memory, bytes read and bytes written a second.
    """

    flops: float | None
    bytes: float

    def least_seconds(self, flops: float, nbytes: float) -> tuple[float | None, str]:
        """Return the least time that a product takes, and the limit that sets it.

        Parameters
        ----------
        flops : float
            The product's operations.
        nbytes : float
            The bytes of its inputs, read once, and of its output, written once.

        Returns
        -------
        (float, "compute" or "memory")
            Or (None, "") where ``flops`` of this GPU is not known.
        """
        if self.flops is None:
            return None, ""
        by_compute, by_memory = flops / self.flops, nbytes / self.bytes
        return max(by_compute, by_memory), "compute" if by_compute >= by_memory else "memory"


def measure(gpu: Gpu, dtype: str, seconds: float) -> Ceilings:
    """Measure both ceilings, each over ``seconds`` in all."""
    if dtype == "float32":
        flops: float | None = rate_of(gpu, dtype, seconds)
    else:
        flops = tensor_core_flops(gpu, dtype, seconds)
    return Ceilings(flops, copied_bytes(seconds))


def copied_bytes(seconds: float) -> float:
    """Return the bytes a second that a copy of 1 GiB within PyTorch's current device moves."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    target.copy_(source)
    timed = in_turn({"copy": [lambda: target.copy_(source)]}, _ROUNDS, seconds / _ROUNDS)
    return 2 * _COPIED_BYTES / float(np.median(timed.seconds["copy"]))
