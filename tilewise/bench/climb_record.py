"""The whole of ``tilewise climb``: what is asked for, and the record that it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.devices.gpu import Gpu
from tilewise.ladder.rungs import RUNGS, Rung, rung
from tilewise.lens import roofline
from tilewise.lens.climbed import OURS
from tilewise.provenance import provenance

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
DTYPES = ("float32", "float64")
EDGE_SIZES = range(2000, 5001)  # of the sizes whose odd neighbour is measured too
EDGE_FROM = 8  # the first rung that is: those below it have one element a thread
CEILING_SECONDS = 0.5

Step = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What is timed, and for how long.

    Attributes
    ----------
    sizes : tuple of int
        Edges of square matrices; kept ascending, each once.
    kernels : tuple of str
        Rungs by name, and ``"matmul"``; empty for all. The vendor's product is timed always.
    dtypes : tuple of str
        Of ``"float32"`` and ``"float64"``.
    rounds : int
        At least 1; five or more for a figure to report.
    seconds : float
        How long each is timed in a round; half of that warms up before.

    Raises
    ------
    ValueError
        If one of them is not as it must be.
    """

    sizes: tuple[int, ...] = SIZES
    kernels: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    rounds: int = 5
    seconds: float = 0.05

    def __post_init__(self) -> None:
        if not self.sizes:
            raise ValueError("no size is given; 128,256 for example")
        for size in self.sizes:
            if size < 1:
                raise ValueError(f"a size is {size}; it must be at least 1")
        for name in self.kernels:
            if name != OURS:
                rung(name)
        for dtype in self.dtypes:
            if dtype not in DTYPES:
                raise ValueError(f"dtype is {dtype!r}; it takes {' or '.join(DTYPES)}")
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it takes at least one")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}; it takes a time above 0")
        object.__setattr__(self, "sizes", tuple(sorted(set(self.sizes))))
        object.__setattr__(self, "dtypes", tuple(dict.fromkeys(self.dtypes)))

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return tuple(each for each in RUNGS if not self.kernels or each.name in self.kernels)

    @property
    def has_ours(self) -> bool:
        return not self.kernels or OURS in self.kernels

    @property
    def edge_sizes(self) -> tuple[int, ...]:
        """Those whose odd neighbour is measured too."""
        has_any = self.has_ours or any(each.number >= EDGE_FROM for each in self.rungs)
        return tuple(size for size in self.sizes if has_any and size in EDGE_SIZES)

    @property
    def steps(self) -> int:
        """How many times :func:`run` calls its ``step``."""
        a_size = len(self.rungs) + self.has_ours + 1
        return len(self.dtypes) * ((a_size + 1) * len(self.sizes) + len(self.edge_sizes))


def run(
    settings: Settings,
    gpu: Gpu,
    step: Step = lambda _: None,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Check and time every rung at every size, beside the vendor's product.

    Parameters
    ----------
    settings : Settings
    gpu : Gpu
        That of :func:`tilewise.bench.record.find_gpu`.
    step : callable
        Called with what comes next, before it begins.
    command : sequence of str
        The command line, for the record.

    Returns
    -------
    dict
        Plain data for JSON: ``date``, ``command``, ``machine``, ``versions``, ``correct`` (of
        all), ``sizes``, ``dtypes``, ``method``, ``ceilings``, ``kernels`` (what each rung takes
        of a multiprocessor, a dtype each), ``rows`` (a kernel, size and dtype each: its figures,
        or why it has none) and ``edges``.
    """
    from tilewise.bench import rungs, timing
    from tilewise.bench.ladder import LONGEST

    ceilings = _ceilings(gpu)
    found: list[rungs.Measured] = []
    with rungs.place(gpu):
        for dtype in settings.dtypes:
            bench = rungs.Bench(gpu, dtype, settings, ceilings.flops(dtype), step)
            found.append(bench.run())
    rows = [row for measured in found for row in measured.rows]
    edges = [row for measured in found for row in measured.edges]
    return {
        **provenance(command),
        "correct": all(row["correct"] for row in (*rows, *edges) if "correct" in row),
        "sizes": list(settings.sizes),
        "dtypes": list(settings.dtypes),
        "method": {
            "rounds": settings.rounds,
            "seconds_a_round": settings.seconds,
            "warm_up_seconds": settings.seconds / 2,
            "data": "random normal",
            "order": "all in turn, one stream, results into arrays of before",
            "vendor": "PyTorch's matmul, TF32 off",
            "graph_below_seconds": timing.SHORT_SECONDS,
            "graph_launches": timing.GRAPH_LAUNCHES,
            "l2_bytes": gpu.l2_bytes,
            "operand_sets": "as many as take twice l2_bytes, or the most, used in turn",
            "apart_above_seconds": rungs.APART_SECONDS,
            "apart_above_seconds_beside_graphs": rungs.APART_FROM_GRAPHS_SECONDS,
            "apart_launches": rungs.APART_LAUNCHES,
            "longest_launch_seconds": LONGEST,
        },
        "ceilings": ceilings.to_dict(),
        "kernels": [row for measured in found for row in measured.kernels],
        "rows": rows,
        "edges": edges,
    }


def _ceilings(gpu: Gpu) -> roofline.Ceilings:
    """Those that are known of the GPU; of another they are measured now."""
    try:
        return roofline.for_gpu(gpu.description)
    except ValueError:
        from tilewise.lens.ceilings import measure

        return measure(gpu, CEILING_SECONDS)
