"""The ceilings of a GPU's tensor cores, measured by probes that only multiply.

Each probe is a file in ``kernels/probes/``, whose first comment says what it does. On Hopper,
16-bit products use ``wgmma``, which reads its operands from shared memory, and is the only
instruction to reach the tensor cores' full rate there. On Ampere, Ada and consumer Blackwell they
use ``mma`` between registers, and so do float64 products on an A100, Hopper and a B200. The tensor
cores of other GPUs have no probe.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewise.devices.gpu import Gpu
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch

FOLDER = SOURCES / "probes"
DTYPES = ("float16", "bfloat16", "float64")
"""The dtypes whose products a probe measures."""
ROUNDS = 5
BY_WGMMA = "sm_90a"
BY_FLOAT64 = ("sm_80", "sm_90", "sm_100")
BY_MMA = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_120", "sm_121")
# tensor_core_peak: each of two warpgroups has a sum of 64 x 256, with k = 4096.
SHARED_BYTES = 4 * (2 * 64 + 256) * 64 * 2
FLOPS_A_SUM = 2 * 2 * 64 * 256 * 4096
_SUMS = 2000  # some 80 ms on an H200
# tensor_core_mma and tensor_core_float64: a warp's round is 8 products of 16 x 8.
THREADS = 256
LANES = 32
MMA_FLOPS_A_ROUND = 8 * 2 * 16 * 8 * 16
FLOAT64_FLOPS_A_ROUND = 8 * 2 * 16 * 8 * 8
_MMA_ROUNDS = 40_000  # some 40 ms on an A100
_FLOAT64_ROUNDS = 20_000  # some 40 ms on an H200


def tensor_core_flops(gpu: Gpu, dtype: str, seconds: float) -> float | None:
    """Return the tensor cores' operations a second on random normal data, in the steady state.

    Parameters
    ----------
    gpu : Gpu
    dtype : str
        The dtype, one of :data:`DTYPES`; 16-bit products are summed in float32.
    seconds : float
        The seconds for which it is measured, after a warm-up of a fifth of that.

    Returns
    -------
    float or None
        The rate; None if no probe is for this GPU.
    """
    if dtype == "float64":
        has_them = gpu.arch.rstrip("af") in BY_FLOAT64
        return _float64_flops(gpu, seconds) if has_them else None
    if gpu.arch == BY_WGMMA:
        kernel = wgmma_kernel(dtype)
        launch = wgmma_launch(_drawn(SHARED_BYTES // 2), dtype, _SUMS, gpu)
        flops = gpu.multiprocessors * _SUMS * FLOPS_A_SUM
    elif gpu.arch.rstrip("af") in BY_MMA:
        kernel = mma_kernel(dtype)
        blocks = _resident(gpu, kernel)
        launch = mma_launch(_drawn(LANES * 12), dtype, _MMA_ROUNDS, blocks, gpu)
        flops = blocks * THREADS // LANES * _MMA_ROUNDS * MMA_FLOPS_A_ROUND
    else:
        return None
    return flops / _seconds(gpu, kernel, launch, seconds)


def _float64_flops(gpu: Gpu, seconds: float) -> float:
    kernel = float64_kernel()
    blocks = _resident(gpu, kernel)
    launch = float64_launch(_drawn(LANES * 6), _FLOAT64_ROUNDS, blocks, gpu)
    flops = blocks * THREADS // LANES * _FLOAT64_ROUNDS * FLOAT64_FLOPS_A_ROUND
    return flops / _seconds(gpu, kernel, launch, seconds)


def wgmma_kernel(dtype: str) -> Kernel:
    """Return the probe of 16 bits for Hopper."""
    return Kernel(FOLDER / "tensor_core_peak.cu", "tensor_core_peak", {"INPUT": dtype})


def mma_kernel(dtype: str) -> Kernel:
    """Return the probe of 16 bits for Ampere, Ada and consumer Blackwell."""
    macros = {"BFLOAT16": int(dtype == "bfloat16")}
    return Kernel(FOLDER / "tensor_core_mma.cu", "tensor_core_mma", macros)


def float64_kernel() -> Kernel:
    """Return the probe of float64."""
    return Kernel(FOLDER / "tensor_core_float64.cu", "tensor_core_float64", {})


def wgmma_launch(values: Any, dtype: str, sums: int, gpu: Gpu) -> Launch:
    """Return the launch of :func:`wgmma_kernel`; ``values`` fill each block's shared memory.

    Its last argument has 256 floats for each block.
    """
    out = gpu.empty((gpu.multiprocessors, 256), np.float32)
    args = (sums, gpu.array(bits(values, dtype)), out)
    return Launch((gpu.multiprocessors, 1, 1), (256, 1, 1), args, SHARED_BYTES)


def mma_launch(values: Any, dtype: str, rounds: int, blocks: int, gpu: Gpu) -> Launch:
    """Return the launch of :func:`mma_kernel`; ``values`` are a warp's operands, twelve a lane.

    Its last argument has 256 floats for each block.
    """
    out = gpu.empty((blocks, THREADS), np.float32)
    args = (rounds, gpu.array(bits(values, dtype)), out)
    return Launch((blocks, 1, 1), (THREADS, 1, 1), args)


def float64_launch(values: Any, rounds: int, blocks: int, gpu: Gpu) -> Launch:
    """Return the launch of :func:`float64_kernel`; ``values`` are a warp's operands, six a lane.

    Its last argument has 256 doubles for each block.
    """
    out = gpu.empty((blocks, THREADS), np.float64)
    args = (rounds, gpu.array(values.astype(np.float64)), out)
    return Launch((blocks, 1, 1), (THREADS, 1, 1), args)


def bits(values: Any, dtype: str) -> Any:
    """Return the bits of numbers in a 16-bit dtype; bfloat16's are the upper half of float32's."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _drawn(count: int) -> Any:
    return np.random.default_rng(0).standard_normal(count)


def _resident(gpu: Gpu, kernel: Kernel) -> int:
    """Return the most blocks that are resident at once, so that all begin and end together."""
    compiled = kernel.compile(gpu.arch)
    return gpu.multiprocessors * gpu.blocks_per_multiprocessor(compiled, THREADS)


def _seconds(gpu: Gpu, kernel: Kernel, launch: Launch, seconds: float) -> float:
    compiled = kernel.compile(gpu.arch)
    return gpu.measure(compiled, launch, rounds=ROUNDS, minimum_seconds=seconds / ROUNDS)
