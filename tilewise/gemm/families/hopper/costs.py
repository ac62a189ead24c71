"""What the steps of the Hopper kernel cost: the constants of its model, fitted on an H200."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from tilewise.gemm.chip import H200, Chip


@dataclass(frozen=True)
class Costs:
    """The constants of the model, on an H200. Times are in microseconds.

    Attributes
    ----------
    launch, cluster_launch : float
        The time of a launch behind another, and what each doubling of the cluster adds.
    fill, latency : float
        The time from a pipeline's first copy to its first k-step, and the latency of later copies.
    tile : float
        The time of a tile's epilogue, besides its stores.
    tensor : float
        The TFLOP/s of one multiprocessor.
    power, energy : float
        The power limit: TFLOP/s of the GPU if power went to arithmetic alone, and TB/s from L2 if
        it went to copies alone.
    l2 : float
        The TB/s from L2 to all multiprocessors.
    port, shared_port : float
        The GB/s from L2 to one multiprocessor, and how many times longer a copy takes where both
        multiprocessors of a TPC copy.
    k_major, mn_major : (float, float, float, float)
        The factors by which the copy of a K-major or MN-major tile takes longer than at the rate
        ``port``, for lines aligned to 16, 32, 64 and 128 bytes.
    l2_lines : float
        The exponent of that factor, which gives the factor on the tile's L2 traffic.
    multicast : float
        The GB/s that a multiprocessor receives by its cluster's multicasts.
    k_step : float
        The least time of a k-step.
    cluster : float
        The time that the blocks of a cluster wait for each other in a k-step.
    few_stages : float
        How many times longer a k-step takes with at most three pipeline stages.
    store : float
        The elements of D that a multiprocessor stores by TMA in a nanosecond.
    store_widths : (float, float, float)
        The factors by which TMA stores of 16, 32 and 64 columns take longer than at that rate.
    store_columns : float
        How many times longer they take where D's columns are contiguous.
    rows, columns : float
        The elements in a nanosecond that threads store, to contiguous rows and to columns.
    dram : float
        The TB/s at which A and B are read from memory.
    write : (float, float, float, float)
        The TB/s at which D is written to memory by TMA stores of 16, 32 and 64 columns, and where
        D's columns are contiguous.
    overlap : float
        How far arithmetic and memory overlap: 1 for not at all, infinity for fully.
    l2_bytes : float
        The MB of A and B that L2 keeps from one wave to the next.
    sum_launch, sum_splits, sum_bytes : float
        The launch that reduces the stream-K tail: its time, that of the splits which a
        thread reads at once, and its TB/s.
    split, split_add : float
        The time of split-K's reduction in a cluster, and its elements in a nanosecond.
    realign, realign_wait, realign_latency : float
        The GB/s at which a multiprocessor realigns unaligned tiles in shared memory, the latency of
        a k-step's realignment, and that of the threads' copies.
    last_wave : float
        The share of a wave that the last of several saves where nearly all clusters idle.
    """

    launch: float = 0.0417
    cluster_launch: float = 0.0349
    fill: float = 1.29
    latency: float = 0.505
    tile: float = 0.106
    tensor: float = 6.06
    power: float = 1390.0
    energy: float = 69.7
    l2: float = 15.0
    port: float = 188.0
    shared_port: float = 1.41
    k_major: tuple[float, ...] = (2.24, 1.47, 1.49, 1.23)
    mn_major: tuple[float, ...] = (2.32, 1.59, 1.46, 1.19)
    multicast: float = 104.0
    k_step: float = 0.0969
    cluster: float = 0.0156
    few_stages: float = 1.06
    store: float = 49.3
    store_widths: tuple[float, ...] = (1.84, 1.55, 1.39)
    store_columns: float = 1.18
    rows: float = 14.1
    columns: float = 4.7
    dram: float = 4.93
    write: tuple[float, ...] = (1.87, 2.61, 3.15, 2.18)
    l2_lines: float = 0.765
    overlap: float = 1.68
    l2_bytes: float = 75.7
    sum_launch: float = 1.45
    sum_splits: float = 0.375
    sum_bytes: float = 4.5
    split: float = 0.506
    split_add: float = 9.23
    realign: float = 97.0
    realign_wait: float = 1.25
    realign_latency: float = 0.305
    last_wave: float = 0.248

    def on(self, chip: Chip) -> Costs:
        """Return the costs on another chip, with the rates scaled by its clock, memory and L2."""
        clock, memory = chip.clock / H200.clock, chip.memory / H200.memory
        whole = clock * chip.multiprocessors / H200.multiprocessors
        return replace(
            self,
            tensor=self.tensor * clock, port=self.port * clock, multicast=self.multicast * clock,
            store=self.store * clock, rows=self.rows * clock, columns=self.columns * clock,
            split_add=self.split_add * clock, realign=self.realign * clock,
            power=self.power * whole, energy=self.energy * whole, l2=self.l2 * whole,
            dram=self.dram * memory, write=tuple(x * memory for x in self.write),
            sum_bytes=self.sum_bytes * memory, l2_bytes=self.l2_bytes * chip.l2 / H200.l2,
        )  # fmt: skip


COSTS = Costs()


@cache
def costs_on(chip: Chip) -> Costs:
    """Return :data:`COSTS` on a chip."""
    return COSTS.on(chip)
