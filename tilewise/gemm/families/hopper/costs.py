"""The costs of the Hopper kernel's steps: its model's constants, fitted on an H200 and an H100."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from tilewise.gemm.chip import H200, Chip


@dataclass(frozen=True)
class Costs:
    """The model's constants, as for an H200; :func:`on` scales them. Times are in microseconds.

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
    throttle : float
        The share by which a k-step's arithmetic takes longer when all multiprocessors multiply,
        because of the power limit.
    l2 : float
        The TB/s from L2 to all multiprocessors.
    port, shared_port : float
        The GB/s from L2 to one multiprocessor, and how many times longer a copy takes where both
        multiprocessors of a TPC copy.
    k_major, mn_major : (float, float, float, float)
        The factors by which the copy of a K-major or MN-major tile takes longer than at the rate
        ``port``, for lines aligned to 16, 32, 64 and 128 bytes.
    narrow : float
        How many times as long B's copies take where its tiles, MN-major, are copied by 32 columns.
    l2_lines : float
        The exponent that turns the factor of ``k_major`` or ``mn_major`` into the factor on the
        tile's L2 traffic.
    multicast_a, multicast_b : float
        The GB/s that a multiprocessor receives of A and of B by its cluster's multicasts.
    k_step : float
        The least time of a k-step.
    cluster : float
        The time that the blocks of a cluster wait for each other in a k-step.
    few_stages : float
        How many times longer a k-step takes with at most three pipeline stages.
    issue : float
        The thread instructions of a caller's function that a multiprocessor issues in a nanosecond,
        from 4 warp instructions a clock. It is not fitted.
    operand : float
        The time for which a tile's epilogue waits for the first operands of a caller's function,
        and for its instructions. This is an estimate, neither fitted nor measured.
    store : float
        The elements of D that a multiprocessor stores by TMA in a nanosecond.
    store_widths : (float, float, float)
        The factors by which TMA stores of 16, 32 and 64 columns take longer than at the rate
        ``store``.
    store_columns : float
        The factor by which stores take longer if D's columns are contiguous.
    rows, columns : float
        The elements that threads store in a nanosecond, to contiguous rows and to contiguous
        columns.
    dram : float
        The TB/s at which A and B are read from memory.
    write : (float, float, float, float)
        The TB/s at which D is written to memory by TMA stores of 16, 32 and 64 columns, and where
        D's columns are contiguous.
    overlap : (float, float)
        How far arithmetic and memory overlap in one wave, and in several: 1 for not at all,
        infinity for fully.
    l2_bytes : float
        The MB of A and B that L2 keeps from one wave to the next.
    partial : float
        The partial sums of the stream-K tail that a multiprocessor stores in a nanosecond.
    sum_launch, sum_splits, sum_bytes : float
        The time of the launch that reduces the stream-K tail, the time of the splits that a thread
        reads at once, and the TB/s of the reduction.
    split, split_add : float
        The time of split-K's reduction in a cluster, and its elements in a nanosecond.
    realign, realign_wait, realign_latency : float
        The GB/s at which a multiprocessor realigns unaligned tiles in shared memory, the latency of
        a k-step's realignment, and that of the threads' copies.
    last_wave : float
        The time by which the next launch begins later if the last wave leaves it no multiprocessor
        to begin on; it is in proportion if the last wave leaves some.
    """

    launch: float = 1.09
    cluster_launch: float = 0.0173
    fill: float = 0.28
    latency: float = 1.12
    tile: float = 0.237
    tensor: float = 6.98
    throttle: float = 0.198
    l2: float = 15.8
    port: float = 152.0
    shared_port: float = 1.53
    k_major: tuple[float, ...] = (1.91, 1.49, 1.33, 1.21)
    mn_major: tuple[float, ...] = (2.03, 1.4, 1.39, 1.18)
    narrow: float = 1.49
    multicast_a: float = 126.0
    multicast_b: float = 164.0
    k_step: float = 0.0818
    cluster: float = 0.0177
    few_stages: float = 1.04
    issue: float = 4 * 32 * 1.755
    operand: float = 0.2
    store: float = 40.2
    store_widths: tuple[float, ...] = (1.99, 1.68, 1.56)
    store_columns: float = 1.37
    rows: float = 14.1
    columns: float = 4.7
    dram: float = 4.88
    write: tuple[float, ...] = (1.64, 2.32, 3.03, 2.03)
    l2_lines: float = 0.63
    overlap: tuple[float, ...] = (2.56, 2.62)
    l2_bytes: float = 24.7
    partial: float = 8.65
    sum_launch: float = 1.31
    sum_splits: float = 0.331
    sum_bytes: float = 4.85
    split: float = 0.34
    split_add: float = 11.4
    realign: float = 97.0
    realign_wait: float = 1.25
    realign_latency: float = 0.305
    last_wave: float = 0.631

    def on(self, chip: Chip) -> Costs:
        """Return the costs on another chip, with the rates scaled by its clock, memory and L2."""
        clock, memory = chip.clock / H200.clock, chip.memory / H200.memory
        whole = clock * chip.multiprocessors / H200.multiprocessors
        return replace(
            self,
            tensor=self.tensor * clock, port=self.port * clock, partial=self.partial * clock,
            multicast_a=self.multicast_a * clock, multicast_b=self.multicast_b * clock,
            store=self.store * clock, rows=self.rows * clock, columns=self.columns * clock,
            issue=self.issue * clock,
            split_add=self.split_add * clock, realign=self.realign * clock,
            l2=self.l2 * whole,
            dram=self.dram * memory, write=tuple(x * memory for x in self.write),
            sum_bytes=self.sum_bytes * memory, l2_bytes=self.l2_bytes * chip.l2 / H200.l2,
        )  # fmt: skip


COSTS = Costs()


@cache
def costs_on(chip: Chip) -> Costs:
    """Return :data:`COSTS` scaled to a chip."""
    return COSTS.on(chip)
