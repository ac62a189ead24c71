"""What the steps of the Hopper kernel cost: the constants of its model, fitted on an H200."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from tilewise.gemm.chip import H200, Chip


@dataclass(frozen=True)
class Costs:
    """The constants of the model, of an H200. Times are in microseconds.

    Attributes
    ----------
    launch, cluster_launch : float
        Of a launch behind another, and how much more it takes each time that a cluster's blocks are
        doubled.
    fill, latency : float
        From a pipeline's first copy to its first k-step, and of a copy between others.
    tile : float
        Of a tile's end, besides its stores.
    tensor : float
        TFLOP/s of one multiprocessor.
    power, energy : float
        The power limit: TFLOP/s of the GPU if power went to arithmetic alone, and TB/s from L2 if
        it went to copies alone.
    l2 : float
        TB/s from L2 to all multiprocessors.
    port, shared_port : float
        GB/s from L2 to one multiprocessor, and how many times longer a copy takes where both
        multiprocessors of a TPC copy.
    k_major, mn_major : (float, float, float, float)
        How many times longer the copy of a tile takes whose lines begin at multiples of 16, 32, 64
        and 128 bytes.
    multicast : float
        GB/s that a multiprocessor gets from its cluster's copies.
    k_step : float
        The least time of a k-step.
    cluster : float
        What the blocks of a cluster wait for each other in a k-step.
    few_stages : float
        How many times longer a k-step takes with tiles that leave room for three stages.
    store : float
        Elements of D that a multiprocessor stores by bulk copies in a nanosecond.
    store_widths : (float, float, float)
        How many times longer by copies of 16, 32 and 64 columns.
    store_columns : float
        How many times longer where D's columns are contiguous.
    rows, columns : float
        Elements in a nanosecond that threads store, of rows and of columns.
    dram : float
        TB/s that are read from memory.
    write : (float, float, float, float)
        TB/s that are written to memory by copies of 16, 32 and 64 columns, and where D's columns
        are contiguous.
    l2_lines : float
        How far a tile whose lines are not 128-byte aligned takes longer from L2 too: the exponent
        of ``k_major`` or ``mn_major``.
    overlap : float
        How far arithmetic and memory overlap: 1 for not at all, more for more.
    l2_bytes : float
        MB of A and B that L2 keeps from one wave to the next.
    sum_launch, sum_splits, sum_bytes : float
        Of the launch that adds up stream-K's partial sums, of each 16 of a tile, and TB/s.
    split, split_add : float
        Of adding up in a cluster, and elements in a nanosecond.
    shift, shift_wait, shift_latency : float
        GB/s that a multiprocessor shifts in shared memory, the latency of a k-step's shifts, and
        that of the copies of threads.
    last_wave : float
        How much faster the last of several waves is where all clusters but few are idle.
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
    shift: float = 97.0
    shift_wait: float = 1.25
    shift_latency: float = 0.305
    last_wave: float = 0.248

    def on(self, chip: Chip) -> Costs:
        """Return the costs on another chip, whose rates go by its clock, its memory and its L2."""
        clock, memory = chip.clock / H200.clock, chip.memory / H200.memory
        whole = clock * chip.multiprocessors / H200.multiprocessors
        return replace(
            self,
            tensor=self.tensor * clock, port=self.port * clock, multicast=self.multicast * clock,
            store=self.store * clock, rows=self.rows * clock, columns=self.columns * clock,
            split_add=self.split_add * clock, shift=self.shift * clock,
            power=self.power * whole, energy=self.energy * whole, l2=self.l2 * whole,
            dram=self.dram * memory, write=tuple(x * memory for x in self.write),
            sum_bytes=self.sum_bytes * memory, l2_bytes=self.l2_bytes * chip.l2 / H200.l2,
        )  # fmt: skip


COSTS = Costs()


@cache
def costs_on(chip: Chip) -> Costs:
    """Return :data:`COSTS` on a chip."""
    return COSTS.on(chip)
