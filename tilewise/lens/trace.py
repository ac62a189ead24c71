"""A trace: what some blocks of a kernel did, step by step, as data that a player reads.

The format is documented in docs/trace.md. A step is one instruction that some threads of a block
ran at once; what only computes indices is joined, a line at a time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import DEFAULT_ARCH, Compiled
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.ptx.program import Program, plain_name
from tilewise.devices.emulator.recording.events import MOST_EVENTS, Event, Recording, check_blocks
from tilewise.kernel import Kernel
from tilewise.ladder.run import kernel_of
from tilewise.ladder.rungs import Rung
from tilewise.launch import Launch
from tilewise.lens.declarations import element_size, extents
from tilewise.lens.products import Product
from tilewise.lens.sentences import Place, Scene, Shared, say
from tilewise.places import Dim3
from tilewise.shown import Part, Shown, Table, plural
from tilewise.specs.run import Prepared
from tilewise.tracebacks import front_door

FORMAT, VERSION = "tilewise trace", 1
MOST_VALUES = 64 * 64  # of a matrix that is kept whole


@dataclass(frozen=True, repr=False)
class Trace(Shown):
    """A recorded launch: plain data, as docs/trace.md has it."""

    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.data)

    def _summary(self) -> str:
        blocks = self.data["blocks"]
        steps = sum(len(block["steps"]) for block in blocks)
        return f"{self.data['kernel']}, {plural(len(blocks), 'block')}, {plural(steps, 'step')}"

    def _parts(self) -> list[Part]:
        rows = [
            (str(tuple(block["index"])), f"{len(block['steps']):,}")
            for block in self.data["blocks"]
        ]
        return [self._summary(), Table(rows, ("block", "steps"))]


@front_door
def record(
    target: str | Rung | Kernel,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    blocks: Sequence[Dim3] = (),
    seed: int = 0,
    arch: str = DEFAULT_ARCH,
    most: int = MOST_EVENTS,
) -> Trace:
    """Run some blocks of C = alpha A B + beta C, and record what they do.

    Parameters
    ----------
    target : str, Rung or Kernel
        As :func:`tilewise.ladder.run` takes it.
    m, n, k, dtype, tile, alpha, beta
        As :meth:`tilewise.lens.products.Product.of` takes them.
    seed : int
        Of the random matrices.
    blocks : sequence of (int, int, int)
        By default the first, and the last where it is another: it lies at the edges.
    arch : str
        To compile for.
    most : int
        Events of a block that are kept; a longer run ends there, and the trace says that it is
        cut. So does one whose events have too many threads.

    Raises
    ------
    FileNotFoundError, CompileError, LaunchError, CheckError, MemoryError, ValueError, TypeError
    """
    target = kernel_of(target)
    product = Product.of(target, m, n, k, dtype=dtype, tile=tile, alpha=alpha, beta=beta)
    grid, _ = product.geometry
    last = (grid[0] - 1, grid[1] - 1, grid[2] - 1)
    chosen = tuple(dict.fromkeys(blocks or ((0, 0, 0), last)))
    compiled = product.compile(arch)
    check_blocks(grid, chosen)
    product, emulator = product.drawn(seed), Emulator(arch)
    placed, gemm = product.on(emulator), product.gemm
    places = tuple(
        Place.of_matrix(name, x, leading)
        for name, x, leading in (
            ("a", placed.a, gemm.lda), ("b", placed.b, gemm.ldb), ("c", placed.c, gemm.ldc),
        )
    )  # fmt: skip
    values = (gemm.a, gemm.b, gemm.c if gemm.beta else None)
    return _traced(
        emulator, product.kernel, compiled, placed.launch, chosen, most, places, values,
        gemm.dtype, product.problem, _title(target),
    )  # fmt: skip


def record_launch(
    prepared: Prepared, *, blocks: Sequence[Dim3] = (), most: int = MOST_EVENTS
) -> Trace:
    """Run some blocks of any launch, and record what they do.

    Parameters
    ----------
    prepared : Prepared
        The launch, as :func:`tilewise.specs.run.prepare` reads it.
    blocks, most
        As :func:`record` takes them.

    Raises
    ------
    LaunchError, CheckError, OSError, MemoryError, ValueError, TypeError
    """
    grid = prepared.grid
    chosen = tuple(
        dict.fromkeys(blocks or ((0, 0, 0), (grid[0] - 1, grid[1] - 1, grid[2] - 1)))
    )  # fmt: skip
    check_blocks(grid, chosen)
    emulator = Emulator(prepared.compiled.arch)
    made = prepared.values(emulator)
    args = tuple(emulator.array(x) if isinstance(x, np.ndarray) else x for x in made)
    arrays = [
        (x.name, there, host if isinstance(host, np.ndarray) else None)
        for x, there, host in zip(prepared.arguments.each, args, made, strict=True)
        if x.plan is not None
    ]
    places = tuple(Place.of(name, there) for name, there, _ in arrays)
    dtypes = {place.dtype for place in places}
    kernel = prepared.kernel
    launch = Launch(grid, prepared.block, args, prepared.shared, limits=kernel.limits)
    return _traced(
        emulator, kernel, prepared.compiled, launch, chosen, most, places,
        tuple(host for *_, host in arrays), dtypes.pop() if len(dtypes) == 1 else None, None,
        _title(kernel),
    )  # fmt: skip


def _traced(
    emulator: Emulator,
    kernel: Kernel,
    compiled: Compiled,
    launch: Launch,
    chosen: tuple[Dim3, ...],
    most: int,
    places: tuple[Place, ...],
    values: Sequence[npt.NDArray[Any] | None],
    dtype: np.dtype[Any] | None,
    problem: Mapping[str, Any] | None,
    title: str,
) -> Trace:
    """The trace of a launch on the emulator.

    Parameters
    ----------
    emulator, kernel, compiled, launch, chosen, most
    places : tuple of Place
        Its arrays.
    values : sequence of ndarray or None
        What is in each of them before the launch; None of what nobody wrote.
    dtype : dtype or None
        Of all arrays; None where they are not alike.
    problem : mapping or None
        Of a product.
    title : str
    """
    report, recordings = emulator.record(compiled, launch, chosen, most)
    program = recordings[0].program
    shared = _shared(program, compiled, dtype, kernel.defines, launch.shared)
    writer = _Writer(program, Scene(launch.block, places, shared), dtype, problem is not None)
    written = [
        writer.block(index, recording) for index, recording in zip(chosen, recordings, strict=True)
    ]
    data = {
        "format": FORMAT, "version": VERSION, "title": title, "kernel": kernel.name,
        "file": Path(compiled.file).name, "source": compiled.source, "arch": emulator.arch,
        "grid": list(launch.grid), "block": list(launch.block),
        "problem": problem,
        "arrays": [
            _array(place, held) for place, held in zip(places, values, strict=True)
        ],
        "shared": [each.to_dict() for each in shared],
        "instructions": writer.instructions,
        "blocks": written,
        "output": report.output,
    }  # fmt: skip
    if compiled.source_doubt:
        data["source_note"] = compiled.source_doubt
    return Trace(data)


def _title(target: Rung | Kernel) -> str:
    """What the run is called: a rung by its name, a file's kernel as ``FILE.cu:NAME``."""
    if isinstance(target, Rung) or target.path is None:
        return target.name
    return f"{target.path.name}:{target.name}"


def _array(place: Place, values: npt.NDArray[Any] | None) -> dict[str, Any]:
    """An array's part of the trace."""
    is_kept = values is not None and values.size <= MOST_VALUES and values.dtype.kind != "c"
    of_one_dimension = {"flat": True, "count": place.count} if place.is_flat else {}
    return {
        "name": place.name, "dtype": "uint8" if place.dtype == bool else place.dtype.name,
        "rows": place.rows, "columns": place.columns, "leading": place.leading,
        "address": place.pointer, **of_one_dimension,
        "values": _numbers(values.reshape(-1)) if values is not None and is_kept else None,
    }  # fmt: skip


class _Writer:
    """Steps from events; what they refer to is kept once."""

    def __init__(
        self, program: Program, scene: Scene, dtype: np.dtype[Any] | None, is_product: bool
    ) -> None:
        self.program, self.scene, self.dtype = program, scene, dtype
        self.is_product = is_product
        self.instructions: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}

    def block(self, index: Dim3, recording: Recording) -> dict[str, Any]:
        """One block's part of the trace."""
        events = recording.events
        threads = math.prod(self.scene.block)
        owners = None if recording.is_cut or not self.is_product else {
            int(t) for e in events if (e.kind, e.space) == ("store", "global") for t in e.threads
        }  # fmt: skip
        steps: list[dict[str, Any]] = []
        for event, phase in zip(events, phases(events, threads), strict=True):
            if event.kind == "other" and steps and _joins(steps[-1], event):
                continue
            steps.append(self._step(event, phase, owners))
        return {
            "index": list(index), "cut": recording.is_cut, "first": _first(steps), "steps": steps
        }  # fmt: skip

    def _step(self, event: Event, phase: int | None, owners: set[int] | None) -> dict[str, Any]:
        sentence, why = say(self.scene, event, owners)
        step: dict[str, Any] = {
            "i": self._instruction(event), "line": event.line, "kind": event.kind,
            "threads": _runs(event.threads), "phase": phase, "say": sentence,
        }  # fmt: skip
        if why:
            step["why"] = why
        if event.space and event.address is not None:
            place = self.scene.place(event)
            at = event.address
            if event.space == "global":
                at = at if place is None else (at - place.pointer) // place.element
                step["array"] = None if place is None else place.name
            step |= {
                "space": event.space, "at": at.tolist(), "width": event.width,
                "requests": event.requests, "sectors": event.sectors,
                "conflicts": event.conflicts,
            }  # fmt: skip
        if event.scope:
            step["scope"] = event.scope
        for name, values in (("values", event.values), ("left", event.left)):
            if values is not None:
                step[name] = _numbers(self._typed(event, values))
        return step

    def _typed(self, event: Event, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bits of an array as the numbers that they are: some instructions know no more."""
        place = self.scene.place(event)
        dtype = place.dtype if place is not None else self.dtype if event.is_copy else None
        if dtype is None or dtype.kind == "c" or values.dtype.kind != "u":
            return values
        if values.dtype.itemsize < dtype.itemsize:
            return values
        rows = np.ascontiguousarray(values).reshape(len(values), -1).view(dtype)
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def _instruction(self, event: Event) -> int:
        if event.op not in self._numbers:
            self._numbers[event.op] = len(self.instructions)
            text = str(self.program.instructions[event.op])
            self.instructions.append({"line": event.line, "text": text})
        return self._numbers[event.op]


def phases(events: Sequence[Event], threads: int) -> list[int | None]:
    """Each event's phase: what lies between barriers, up to where shared memory is read.

    The barriers that all of a block waits at part its run into intervals: nobody is in the next
    one before everybody is through with this one. A phase ends with each interval in which shared
    memory is read, and none is before the first load from global memory, behind the last phase,
    or in a kernel without such barriers.

    Parameters
    ----------
    events : sequence of Event
        One block's, in order.
    threads : int
        Of the block.
    """
    arrived = np.zeros(threads, np.intp)
    intervals: list[int] = []
    for event in events:
        intervals.append(int(arrived[event.threads].max()))
        if event.scope == "block":
            arrived[event.threads] += 1
    ends = sorted({
        interval for event, interval in zip(events, intervals, strict=True)
        if (event.kind, event.space) == ("load", "shared")
    })  # fmt: skip
    loads = [i for i, event in enumerate(events) if (event.kind, event.space) == ("load", "global")]
    first = min(loads, default=0)
    if not arrived.any() or not ends:
        return [None] * len(events)
    return [
        bisect_left(ends, interval) if i >= first and interval <= ends[-1] else None
        for i, interval in enumerate(intervals)
    ]


def _joins(step: dict[str, Any], event: Event) -> bool:
    """Whether an event says nothing that the step before it does not."""
    is_same = step["line"] == event.line and step["threads"] == _runs(event.threads)
    return bool(step["kind"] == "other" and is_same)


def _first(steps: Sequence[Mapping[str, Any]]) -> int:
    """The step to open on: the first that shows most of what memory costs.

    Where shared memory is read, that is the read with the most conflicts a request; elsewhere the
    load with the most sectors a request.
    """
    for space, cost in (("shared", "conflicts"), ("global", "sectors")):
        loads = [
            (step[cost] / max(step["requests"], 1), -number) for number, step in enumerate(steps)
            if step["kind"] == "load" and step.get("space") == space
        ]  # fmt: skip
        if loads:
            return -max(loads)[1]
    return 0


def _runs(threads: npt.NDArray[np.intp]) -> list[list[int]]:
    """Runs of consecutive numbers, each as the first and how many."""
    starts = np.flatnonzero(np.diff(threads, prepend=-2) != 1)
    lengths = np.diff(np.append(starts, len(threads)))
    return [[int(threads[start]), int(length)]
            for start, length in zip(starts, lengths, strict=True)]  # fmt: skip


def _numbers(values: npt.NDArray[Any]) -> list[Any]:
    """Numbers with six digits; NaN and infinity, which JSON lacks, by name."""
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind != "f":
        return [int(value) for value in values]
    return [
        float(f"{value:.6g}") if math.isfinite(value) else str(float(value)) for value in values
    ]


def _shared(
    program: Program,
    compiled: Compiled,
    dtype: np.dtype[Any] | None,
    defines: Mapping[str, Any],
    dynamic: int,
) -> tuple[Shared, ...]:
    """The shared arrays, with the rows and columns that their declarations have.

    An element is one of the launch's arrays' where those are alike, else as it is declared; an
    array without a size is the launch's dynamic shared memory.
    """
    sizes = {v.name: v.size for v in program.module.variables.values() if v.space == "shared"}
    for function in program.functions:
        sizes |= {v.name: v.size for v in function.variables.values() if v.space == "shared"}
    found = []
    for name, offset in sorted(program.shared_offsets.items(), key=lambda item: item[1]):
        plain = plain_name(name)
        element = dtype.itemsize if dtype is not None else element_size(compiled.source, plain)
        held = sizes.get(name, 0) or dynamic
        count = held // element
        columns = _columns(compiled.source, plain, count, defines)
        found.append(Shared(plain, offset, held, element,
                            count // columns if columns else 0, columns))  # fmt: skip
    return tuple(found)


def _columns(source: str, name: str, count: int, defines: Mapping[str, Any]) -> int:
    """Of a shared array of so many elements: its last extent, where the source says it plainly."""
    shape = extents(source, name, defines)
    if shape and math.prod(shape) == count:
        return shape[-1]
    return min(count, 32) if count else 0
