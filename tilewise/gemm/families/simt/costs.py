"""The costs of the steps of the float32 and float64 kernels: the constants of their model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """The constants of the model for a dtype, fitted on an H200 by ``benchmarks/fit_simt.py``.

    Attributes
    ----------
    start : float
        The seconds of a launch that nothing hides.
    prologue : float
        The seconds until a multiprocessor's first blocks have their first tiles.
    another : float
        The seconds of a block's prologue and epilogue while another block computes.
    extra_steps : float
        The k-steps that a block takes beyond those of its k.
    memory : float
        The share of the GPU's memory rate at which A and B are read and D is written.
    store, store_unaligned, store_staged : float
        How many times longer a block's stores of D take than at the rate ``memory``: for aligned
        rows, for rows of D that are not 16-byte aligned, and for unaligned rows that go through
        shared memory.
    store_hidden : float
        The share of the stores' time that remains while another block computes.
    power : float
        The share of the steady state's slowdown, which the power limit causes, for each factor of
        ten in the number of operations.
    sector_bulk, sector_async : float
        The least seconds a byte of a tile whose rows are 16-byte but not 32-byte aligned, since
        each row then takes one more sector of the L2 cache: for bulk copies and for others.
    latency : float
        The seconds from the request of a tile to its arrival from memory: a k-step takes at least
        this time divided by the pipeline stages that are in flight.
    pack, transpose : float
        The seconds of the launch that packs one or two matrices, and of each launch that transposes
        one.
    copy : float
        The share of the memory rate at which the launches that pack and transpose read and write.
    """

    start: float
    prologue: float
    another: float
    extra_steps: float
    memory: float
    store: float
    store_unaligned: float
    store_staged: float
    store_hidden: float
    power: float
    sector_bulk: float
    sector_async: float
    latency: float
    pack: float
    transpose: float
    copy: float


COSTS = {
    "float32": Costs(
        start=1.48e-6,
        prologue=0.236e-6,
        another=0.125e-6,
        extra_steps=0.234,
        memory=1.13,
        store=2.25,
        store_unaligned=5.61,
        store_staged=2.91,
        store_hidden=0.227,
        power=0.191,
        sector_bulk=15e-12,
        sector_async=22e-12,
        latency=0.55e-6,
        pack=1.06e-6,
        transpose=2.89e-6,
        copy=1.1,
    ),
    "float64": Costs(
        start=1.2e-6,
        prologue=0.428e-6,
        another=0.0944e-6,
        extra_steps=0.284,
        memory=1.18,
        store=1.18,
        store_unaligned=1.89,
        store_staged=1.89,
        store_hidden=0.371,
        power=0.3,
        sector_bulk=15e-12,
        sector_async=22e-12,
        latency=0.55e-6,
        pack=0.685e-6,
        transpose=3.77e-6,
        copy=0.939,
    ),
}
# The factor by which a k-step of these tiles takes longer than in the loop that measured it.
FACTORS: dict[str, dict[str, float]] = {
    "float32": {
        "128x16x16 by 8x4": 1.013,
        "128x32x16 by 8x4": 0.974,
        "128x64x16 by 8x8": 0.985,
        "16x128x32 by 4x8 in 2 slices": 0.981,
        "16x64x32 by 4x4 in 2 slices": 0.97,
        "192x192x8 by 12x12": 0.987,
        "32x64x32 by 4x4": 0.945,
        "64x128x16 by 8x8": 0.978,
        "64x128x16 by 8x8 bulk": 0.986,
        "64x256x16 by 8x16 bulk": 0.995,
        "96x192x8 by 12x12": 1.002,
    },
    "float64": {
        "128x128 by tensor cores": 0.99,
        "128x32 by tensor cores, cp.async": 1.021,
        "128x64 by tensor cores": 0.957,
        "16x128 by tensor cores": 0.988,
        "192x128 by tensor cores": 0.997,
        "32x128 by tensor cores, cp.async": 0.983,
        "32x32 by tensor cores": 0.994,
        "32x32 by tensor cores, cp.async": 0.955,
        "32x64 by tensor cores": 0.976,
        "32x64 by tensor cores, cp.async": 0.952,
        "64x128 by tensor cores": 0.942,
        "64x32 by tensor cores": 0.982,
        "64x64 by tensor cores": 0.959,
        "64x64 by tensor cores, cp.async": 0.998,
    },
}
