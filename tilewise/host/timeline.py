"""When the steps of a plan end, if matrices are copied from and to pinned memory.

Copies in each direction follow one another, kernels too, and all three run at once.
"""

from __future__ import annotations

from tilewise.gemm.blocking import Span
from tilewise.host.plan import Compute, CopyIn, HostPlan, HostProblem

HOST = 30e-6
"""The seconds that the host takes to enqueue a step."""
KERNEL = 30e-6
"""The seconds that the product of a piece takes beyond its share of the whole product's time."""


def seconds_of(plan: HostPlan, p: HostProblem, computing: float, rate: float) -> float:
    """Return the seconds from the first step to the end of the last one.

    Parameters
    ----------
    plan : HostPlan
        The plan of a batch of one matrix, in which no step waits for its region to be free.
    p : HostProblem
    computing : float
        The seconds of the whole product, with its matrices on the GPU.
    rate : float
        The bytes a second that the link copies in each direction, both at once.
    """
    enqueued = arriving = computed = leaving = 0.0
    arrived: dict[int, float] = {}  # by cell
    done: dict[int, float] = {}  # by cell
    items = {"A": p.a.item, "B": p.b.item, "C": p.d.item}
    for step in plan.steps():
        enqueued += HOST
        if isinstance(step, CopyIn):
            size = _elements(step.rows, step.columns) * items[step.matrix]
            arriving = max(arriving, enqueued) + size / rate
            arrived.update(dict.fromkeys(step.to.cells, arriving))
        elif isinstance(step, Compute):
            reads = step.a.cells + step.b.cells + step.d.cells
            ready = max(arrived.get(cell, 0.0) for cell in reads)
            share = step.m * step.n * step.k / (p.m * p.n * p.k) if p.k else 0.0
            computed = max(computed, ready, enqueued) + KERNEL + share * computing
            done.update(dict.fromkeys(step.d.cells, computed))
        else:
            ready = max(done[cell] for cell in step.source.cells)
            size = _elements(step.rows, step.columns) * p.d.item
            leaving = max(leaving, ready, enqueued) + size / rate
    return leaving


def _elements(rows: Span, columns: Span) -> int:
    return rows.size * columns.size
