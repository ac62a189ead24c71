"""What the GPU itself can do: its tensor cores, and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilewise.bench.timing import in_turn
from tilewise.devices.gpu import Gpu
from tilewise.gemm.layouts import TYPES
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.lens.ceilings import rate_of

PROBES = SOURCES / "probes"
SOURCE = PROBES / "tensor_core_peak.cu"
FLOAT64_SOURCE = PROBES / "tensor_core_float64.cu"
SHARED_BYTES = 4 * (2 * 64 + 256) * 64 * 2
# Of one sum: two warpgroups, each 64 x 256, and k = 4096.
FLOPS_A_SUM = 2 * 2 * 64 * 256 * 4096
# Of one round of a warp in float64: 8 products of 16 x 8, k = 8.
FLOAT64_FLOPS_A_ROUND = 8 * 2 * 16 * 8 * 8
FLOAT64_THREADS = 256
_SUMS = 2000  # some 80 ms
_FLOAT64_ROUNDS = 20_000  # some 40 ms
_COPIED_BYTES = 1 << 30
_ROUNDS = 5


@dataclass(frozen=True)
class Ceilings:
    """What no product on this GPU is faster than.

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
        """The time that a product takes at least, and what sets it.

        Parameters
        ----------
        flops : float
            Operations of the product.
        nbytes : float
            Of its inputs, read once, and its output, written once.

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
    """Both ceilings, each over ``seconds`` in all."""
    if dtype == "float32":
        flops: float | None = rate_of(gpu, dtype, seconds)
    else:
        flops = tensor_core_flops(gpu, dtype, seconds)
    return Ceilings(flops, copied_bytes(seconds))


def tensor_core_flops(gpu: Gpu, dtype: str, seconds: float) -> float | None:
    """Operations a second of the tensor cores on random normal data in shared memory.

    Parameters
    ----------
    gpu : Gpu
    dtype : str
        ``"bfloat16"``, ``"float16"`` or ``"float64"``, whose operands lie in registers.
    seconds : float
        How long it is measured, after as long a warm-up as a fifth of that.

    Returns
    -------
    float or None
        None where the GPU is not of compute capability 9.0.
    """
    if gpu.arch != "sm_90a":
        return None
    if dtype == "float64":
        compiled = Kernel(FLOAT64_SOURCE, "tensor_core_float64", {}).compile(gpu.arch)
        blocks = gpu.multiprocessors * gpu.blocks_per_multiprocessor(compiled, FLOAT64_THREADS)
        values = np.random.default_rng(0).standard_normal(32 * 6)
        launch = float64_probe(values, _FLOAT64_ROUNDS, blocks, gpu)
        once = gpu.measure(compiled, launch, rounds=_ROUNDS, minimum_seconds=seconds / _ROUNDS)
        rounds = blocks * FLOAT64_THREADS // 32 * _FLOAT64_ROUNDS
        return rounds * FLOAT64_FLOPS_A_ROUND / once
    kernel = Kernel(SOURCE, "tensor_core_peak", {"INPUT": TYPES[dtype]})
    drawn = np.random.default_rng(0).standard_normal(SHARED_BYTES // 2)
    launch = probe(drawn, dtype, _SUMS, gpu)
    once = gpu.measure(
        kernel.compile(gpu.arch), launch, rounds=_ROUNDS, minimum_seconds=seconds / _ROUNDS
    )
    return gpu.multiprocessors * _SUMS * FLOPS_A_SUM / once


def probe(values: Any, dtype: str, sums: int, gpu: Gpu) -> Launch:
    """The launch of the probe: ``values`` fill the shared memory of each block.

    Its last argument takes 256 floats a block.
    """
    if dtype == "float16":
        bits = values.astype(np.float16).view(np.uint16)
    else:  # a bfloat16 is the upper half of a float32
        bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    out = gpu.empty((gpu.multiprocessors, 256), np.float32)
    return Launch(
        (gpu.multiprocessors, 1, 1), (256, 1, 1), (sums, gpu.array(bits), out), SHARED_BYTES
    )


def float64_probe(values: Any, rounds: int, blocks: int, gpu: Gpu) -> Launch:
    """The launch of the probe for float64: ``values`` are a warp's operands, six a lane.

    Its last argument takes 256 doubles a block.
    """
    out = gpu.empty((blocks, FLOAT64_THREADS), np.float64)
    args = (rounds, gpu.array(values.astype(np.float64)), out)
    return Launch((blocks, 1, 1), (FLOAT64_THREADS, 1, 1), args)


def copied_bytes(seconds: float) -> float:
    """Bytes read and written a second by a copy of 1 GiB within PyTorch's current device."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    target.copy_(source)
    timed = in_turn({"copy": [lambda: target.copy_(source)]}, _ROUNDS, seconds / _ROUNDS)
    return 2 * _COPIED_BYTES / float(np.median(timed.seconds["copy"]))
