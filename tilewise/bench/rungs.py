"""The ladder beside the vendor's product: every rung timed at every size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from tilewise.bench import timing
from tilewise.bench.climb import (
    EDGE_FROM,
    MULTIPLY_ADDS,
    OURS,
    TENSOR_CORES,
    VENDOR,
    Settings,
    Step,
    source_of,
    unit_of,
)
from tilewise.bench.contenders import Call, Contenders, digest
from tilewise.bench.exact import Exact
from tilewise.bench.timing import SHORT_SECONDS, Work, in_turn, seconds_of
from tilewise.devices.gpu import Gpu
from tilewise.devices.occupancy import occupancy
from tilewise.errors import TilewiseError
from tilewise.ladder.rungs import Rung, rungs_of
from tilewise.lens import roofline
from tilewise.lens.tensor_cores import tensor_core_flops
from tilewise.precision import HALVES
from tilewise.provenance import provenance

LONGEST = 2.0  # seconds of one launch; a rung goes no further
CEILING_SECONDS = 0.5
# Seconds of a launch above which a kernel is not timed in turn with the others, but by itself; and
# where others are so short that all are launched many times over in a CUDA graph.
APART_SECONDS, APART_FROM_GRAPHS_SECONDS = 0.1, 2e-3
APART_LAUNCHES = 3
_LONG_ENOUGH = 1.0  # not launched again only for the median
_FIRST_SIZE = 64
_BEYOND_A_CACHE = 4  # times what the work alone would take
_QUICK = 0.01


@dataclass(frozen=True)
class Measured:
    """The measurements in one dtype; rows are plain data for JSON."""

    kernels: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    edges: list[dict[str, Any]]


def run(
    settings: Settings,
    gpu: Gpu,
    step: Step = lambda _: None,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Check and time every rung at every size, beside the vendor's product.

    It is called as :func:`tilewise.bench.record.run`, with the settings of
    :mod:`tilewise.bench.climb`, where the record that it returns is described.
    """
    ceilings = _ceilings(gpu)
    with place(gpu):
        arithmetic = {dtype: _arithmetic(gpu, dtype, ceilings) for dtype in settings.dtypes}
        found = [
            Bench(gpu, dtype, settings, rates, step).run() for dtype, rates in arithmetic.items()
        ]
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
            "apart_above_seconds": APART_SECONDS,
            "apart_above_seconds_beside_graphs": APART_FROM_GRAPHS_SECONDS,
            "apart_launches": APART_LAUNCHES,
            "longest_launch_seconds": LONGEST,
        },
        "ceilings": ceilings.to_dict(),
        "arithmetic": arithmetic,
        "kernels": [row for measured in found for row in measured.kernels],
        "rows": rows,
        "edges": edges,
    }


def _ceilings(gpu: Gpu) -> roofline.Ceilings:
    """Return the known ceilings of the GPU, or measure them if it is not known."""
    try:
        return roofline.for_gpu(gpu.description)
    except ValueError:
        from tilewise.lens.ceilings import measure

        return measure(gpu, CEILING_SECONDS)


def _arithmetic(gpu: Gpu, dtype: str, ceilings: roofline.Ceilings) -> dict[str, float | None]:
    """Return the operations a second in ``dtype`` by unit; the tensor cores' are measured now."""
    found: dict[str, float | None] = {}
    if dtype not in HALVES:
        found[MULTIPLY_ADDS] = ceilings.flops(dtype)
    if dtype != "float32":  # tensor cores have no products of float32 in all of its bits
        found[TENSOR_CORES] = tensor_core_flops(gpu, dtype, CEILING_SECONDS)
    return found


@contextmanager
def place(gpu: Gpu) -> Iterator[None]:
    """Use PyTorch on ``gpu``, in a stream of its own, with all of float32's bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # no TF32
    try:
        with torch.cuda.device(gpu.context.ordinal), torch.cuda.stream(torch.cuda.Stream()):
            yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"{error}; --sizes takes smaller ones") from error
    finally:
        torch.set_float32_matmul_precision(before)


class Bench:
    """Measure every rung, matmul and the vendor's product in one dtype.

    Parameters
    ----------
    gpu : Gpu
        PyTorch's current device.
    dtype : str
    settings : Settings
    arithmetic : mapping
        By unit, operations a second that the GPU can do in ``dtype``; None where that is not
        known.
    step : callable
        Called with what comes next, before it begins.
    """

    def __init__(
        self,
        gpu: Gpu,
        dtype: str,
        settings: Settings,
        arithmetic: Mapping[str, float | None],
        step: Step,
    ) -> None:
        self.gpu, self.dtype, self.settings = gpu, dtype, settings
        self.arithmetic, self.step = arithmetic, step
        self.contenders = Contenders(gpu, dtype, settings)
        self._seconds: dict[str, tuple[int, float]] = {}  # seconds of one launch, at the last size

    def run(self) -> Measured:
        """Measure all."""
        rows = [row for n in self.settings.sizes for row in self.size(n)]
        edges = [row for n in self.settings.edge_sizes(self.dtype) for row in self.edge(n)]
        rungs = [rung for rung in self.settings.rungs(self.dtype) if rung.runs_on(self.gpu.arch)]
        return Measured([self.resources(rung) for rung in rungs], rows, edges)

    def resources(self, rung: Rung) -> dict[str, Any]:
        """Return the resources that a rung takes of a multiprocessor."""
        # C of 32 x 32: one block holds it too.
        n = max(self.settings.sizes)
        tile = rung.tile_for(n, n, n, self.dtype)
        compiled = rung.kernel(self.dtype, tile).compile(self.gpu.arch)
        threads = math.prod(rung.geometry(32, 32, tile, self.dtype)[1])
        shared = compiled.resources.shared_bytes + rung.shared(tile, self.dtype)
        found = occupancy(self.gpu.arch, threads, compiled.resources.registers, shared)
        return {
            "kernel": rung.name,
            "dtype": self.dtype,
            "number": rung.number,
            "source": source_of(rung),
            "tile": tile,
            "threads": threads,
            **compiled.resources.to_dict(),
            "shared_bytes": shared,
            "blocks_a_multiprocessor": found.blocks,
            "limited_by": list(found.limits),
        }

    def size(self, n: int) -> list[dict[str, Any]]:
        """Return a row a kernel: its figures at one size, or why it has none."""
        self.contenders.forget()
        exact = Exact(*self.contenders.inputs(n))
        rows: dict[str, dict[str, Any]] = {}
        calls: dict[str, Call] = {}
        for name, rung in self.contenders:
            self.step(f"{name} {n:,} {self.dtype}")
            row: dict[str, Any] = {
                "kernel": name, "number": rung.number if rung else None,
                "dtype": self.dtype, "n": n,
                "tile": rung.tile_for(n, n, n, self.dtype) if rung else None,
                "unit": unit_of(name, self.dtype, self.arithmetic),
            }  # fmt: skip
            rows[name] = row
            if name == OURS:
                row["by"] = self.contenders.chosen(n)
            try:
                calls[name] = call = self.contenders.call(name, rung, n)
                why = self._too_long(rung, n) if rung else ""
            except (TilewiseError, ValueError) as objection:
                row["skipped"] = str(objection)
                continue
            if why:
                row["skipped"] = why
                continue
            try:
                row |= self._checked(name, call, n, exact)
            except torch.OutOfMemoryError:
                raise
            except (TilewiseError, RuntimeError, ValueError) as failure:
                row |= {"correct": False, "failure": f"{type(failure).__name__}: {failure}"}
        self.step(f"in turn {n:,} {self.dtype}")
        self._time(rows, calls, n)
        vendor = rows[VENDOR]
        for row in rows.values():
            row.pop("digest", None)
            if "seconds" not in row:
                continue
            row["tflops"] = 2e-12 * n**3 / row["seconds"]
            ceiling = self.arithmetic.get(row["unit"])
            row["share"] = 1e12 * row["tflops"] / ceiling if ceiling else None
            row["ratio"] = vendor["seconds"] / row["seconds"] if "seconds" in vendor else None
            row["error_ratio"] = row["error"] / vendor["error"] if vendor.get("error") else None
        return list(rows.values())

    def edge(self, n: int) -> list[dict[str, Any]]:
        """Return an odd size's cost beside the next multiple of the tile, a row a kernel.

        The tile is that of C; of matmul and the vendor's product, which choose theirs, the largest
        of the rungs'.
        """
        odd = n | 1
        self.step(f"edges {odd:,} {self.dtype}")
        self.contenders.forget()
        edges = {each.name: self._edge_of(each, odd) for each in rungs_of(self.dtype)}
        rows: list[dict[str, Any]] = []
        works: dict[str, list[Work]] = {}
        exact: dict[int, Exact] = {}
        for name, rung in self.contenders:
            if rung is not None and (rung.number < EDGE_FROM or not rung.runs_on(self.gpu.arch)):
                continue
            tile = edges.get(name, max(edges.values()))
            multiple = -(-odd // tile) * tile
            row: dict[str, Any] = {
                "kernel": name, "dtype": self.dtype, "n": odd, "tile": tile,
                "multiple": multiple, "correct": True,
            }  # fmt: skip
            rows.append(row)
            for size in (odd, multiple):
                if size not in exact:
                    exact[size] = Exact(*self.contenders.inputs(size))
                try:
                    call = self.contenders.call(name, rung, size)
                    found = self._checked(name, call, size, exact[size])
                except torch.OutOfMemoryError:
                    raise
                except (TilewiseError, RuntimeError, ValueError) as failure:
                    found = {"correct": False, "failure": f"{type(failure).__name__}: {failure}"}
                if not found["correct"]:
                    row |= {key: found[key] for key in ("correct", "failure") if key in found}
                    break
                works[f"{name} {size}"] = self.contenders.works(call, size)
        exact.clear()
        rights = [row for row in rows if row["correct"]]
        kept = {
            f"{row['kernel']} {row[size]}": works[f"{row['kernel']} {row[size]}"]
            for row in rights
            for size in ("n", "multiple")
        }
        timed = in_turn(kept, self.settings.rounds, self.settings.seconds) if kept else None
        for row in rights:
            assert timed is not None
            at_odd, at_multiple = (
                median(timed.seconds[f"{row['kernel']} {row[size]}"]) for size in ("n", "multiple")
            )
            row["seconds"] = {"odd": at_odd, "multiple": at_multiple}
            row["cost"] = (at_odd / row["n"] ** 3) / (at_multiple / row["multiple"] ** 3)
        return rows

    def _edge_of(self, rung: Rung, n: int) -> int:
        """Return the least number that both sides of a block's tile of C divide, at size ``n``."""
        defines = rung.macros(rung.tile_for(n, n, n, self.dtype), self.dtype)
        sides = [defines[name] for name in ("TILE", "BLOCK_M", "BLOCK_N") if name in defines]
        return math.lcm(*(int(side) for side in sides)) if sides else 1

    def _too_long(self, rung: Rung, n: int) -> str:
        """Return why a rung is not launched at a size; empty if it can be.

        A rung that was not launched before is launched at small sizes first, each twice the last;
        and so is one where much is expected from afar: beyond a cache more than the work grows.
        """
        size, seconds = self._seconds.get(rung.name, (min(n, _FIRST_SIZE), 0.0))
        while True:
            expected = seconds * (n / size) ** 3
            is_far = n > 2 * size and expected > LONGEST / _BEYOND_A_CACHE
            if seconds and expected <= LONGEST and not is_far:
                return ""
            if seconds:
                if seconds * 8 > LONGEST:  # at twice the size already
                    return (
                        f"a launch would take some {expected:,.0f} s, by {seconds:.2g} s at "
                        f"{size:,}: the most is {LONGEST:g} s"
                    )
                size *= 2
            # The first launch may have loaded the kernel.
            matrices = self.contenders.matrices(size)
            call = partial(self.contenders.call(rung.name, rung, size), matrices)
            seconds = seconds_of(call)
            if seconds < _QUICK:
                seconds = seconds_of(call)
            self._seconds[rung.name] = size, seconds

    def _checked(self, name: str, call: Call, n: int, exact: Exact) -> dict[str, Any]:
        """Launch twice; return the first result's error, and whether both are alike."""
        first = self.contenders.operands(n)[0]
        first.d.fill_(math.nan)
        call(first)
        distance = exact.distance(first.d)
        kept = first.d.clone()
        first.d.fill_(math.nan)
        seconds = seconds_of(lambda: call(first))
        self._seconds[name] = n, seconds
        same = bool(torch.equal(first.d, kept))
        row: dict[str, Any] = {
            "correct": distance.correct and (same or name == VENDOR),
            "error_share": distance.share if math.isfinite(distance.share) else None,
            "error": distance.norm if math.isfinite(distance.norm) else None,
            "same_bits": same,
            "digest": digest(first.d),
        }
        if distance.correct and not row["correct"]:
            row["failure"] = "two launches gave different bits"
        return row

    def _time(self, rows: dict[str, dict[str, Any]], calls: dict[str, Call], n: int) -> None:
        """Give each row that is right its seconds; and see that what was timed is what was
        checked."""
        right = [name for name, row in rows.items() if row.get("correct")]
        if not right:
            return
        first = self.contenders.operands(n)[0]
        in_graphs = min(self._seconds[name][1] for name in right) < SHORT_SECONDS
        most = APART_FROM_GRAPHS_SECONDS if in_graphs else APART_SECONDS
        apart = [name for name in right if self._seconds[name][1] > most]

        def after(name: str, index: int) -> None:
            row = rows[name]
            if index == self.settings.rounds - 1 and digest(first.d) != row["digest"]:
                row["same_bits"] = False
                if name != VENDOR:
                    row |= {"correct": False, "failure": "the result changed while it was timed"}

        works = {name: self.contenders.works(calls[name], n) for name in right if name not in apart}
        timed = (
            in_turn(works, self.settings.rounds, self.settings.seconds, after) if works else None
        )
        for name in right:
            row = rows[name]
            if timed is not None and name in works:
                seconds, launches = timed.seconds[name], timed.launches[name]
            else:
                seconds, launches = [self._seconds[name][1]], 1
                while len(seconds) < APART_LAUNCHES and seconds[0] < _LONG_ENOUGH:
                    seconds.append(seconds_of(partial(calls[name], first)))
            row |= {
                "seconds": median(seconds), "seconds_of_rounds": seconds,
                "launches_a_round": launches, "in_turn": name in works,
            }  # fmt: skip
