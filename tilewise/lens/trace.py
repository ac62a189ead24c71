"""Record a trace: what some blocks of a kernel did, step by step, as data for the player.

The format is documented in docs/trace.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import DEFAULT_ARCH, Compiled
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.recording.events import MOST_EVENTS, check_blocks
from tilewise.errors import CheckError
from tilewise.kernel import Kernel
from tilewise.ladder.prepared import kernel_of
from tilewise.ladder.rungs import Rung
from tilewise.launch import Launch
from tilewise.launchable import Launchable
from tilewise.lens.prepared_gemm import PreparedGemm
from tilewise.lens.sentences import Place, Scene
from tilewise.lens.steps import Writer
from tilewise.lens.traced_arrays import array_part, put, shared_arrays
from tilewise.places import Dim3
from tilewise.shown import Part, Shown, Table, plural
from tilewise.specs.run import Prepared
from tilewise.tracebacks import front_door

FORMAT, VERSION = "tilewise trace", 1


@dataclass(frozen=True, repr=False)
class Trace(Shown):
    """A recorded launch.

    Attributes
    ----------
    data : mapping
        The launch as plain data, in the format of docs/trace.md.
    fault : CheckError or None
        The error of the fault that ended the run, if it was to end with one; then the first of
        its blocks is the block with the fault.
    """

    data: Mapping[str, Any]
    fault: CheckError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
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
    dtype: str | None = None,
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    blocks: Sequence[Dim3] = (),
    seed: int = 0,
    arch: str = DEFAULT_ARCH,
    most: int = MOST_EVENTS,
    stops_at_fault: bool = False,
) -> Trace:
    """Run some blocks of C = alpha A B + beta C, and record what they do.

    Parameters
    ----------
    target : str, Rung or Kernel
        The target, as in :func:`tilewise.ladder.run`.
    m, n, k, dtype, tile, alpha, beta
        The arguments of :meth:`tilewise.lens.prepared_gemm.PreparedGemm.of`.
    seed : int
        The seed of the random matrices.
    blocks : sequence of (int, int, int)
        The blocks to record; by default the first one, and the last one, which lies at the edges.
    arch : str
        The architecture to compile for.
    most : int
        The most events of a block that are kept; a longer run ends there, and the trace says that
        it is cut. A run whose events have too many threads is cut too.
    stops_at_fault : bool
        Whether a fault of a recorded block ends the run and is its last step. If not, or if
        another block has the fault, the error is raised.

    Raises
    ------
    FileNotFoundError, CompileError, LaunchError, CheckError, MemoryError, ValueError, TypeError
    """
    target = kernel_of(target)
    product = PreparedGemm.of(target, m, n, k, dtype=dtype, tile=tile, alpha=alpha, beta=beta)
    grid, _ = product.geometry
    compiled = product.compile(arch)
    chosen = _chosen(grid, blocks)
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
        gemm.dtype, product.problem, _title(target), stops_at_fault,
    )  # fmt: skip


def record_launch(
    prepared: Prepared,
    *,
    blocks: Sequence[Dim3] = (),
    most: int = MOST_EVENTS,
    stops_at_fault: bool = False,
) -> Trace:
    """Run some blocks of any launch, and record what they do.

    Parameters
    ----------
    prepared : Prepared
        The launch, as :func:`tilewise.specs.run.prepare` returns it.
    blocks, most, stops_at_fault
        The arguments of :func:`record`.

    Raises
    ------
    LaunchError, CheckError, OSError, MemoryError, ValueError, TypeError
    """
    emulator, kernel = Emulator(prepared.compiled.arch), prepared.kernel
    launch = Launch(
        prepared.grid, prepared.block, prepared.values(emulator), prepared.shared,
        limits=kernel.limits, cooperative=prepared.cooperative,
    )  # fmt: skip
    names = [x.name for x in prepared.arguments.each]
    return record_args(
        emulator, kernel, prepared.compiled, launch, names, blocks, most, stops_at_fault
    )


def record_args(
    emulator: Emulator,
    kernel: Launchable,
    compiled: Compiled,
    launch: Launch,
    names: Sequence[str],
    blocks: Sequence[Dim3] = (),
    most: int = MOST_EVENTS,
    stops_at_fault: bool = False,
) -> Trace:
    """Run some blocks of a launch with any arguments, and record what they do.

    Parameters
    ----------
    emulator : Emulator
    kernel : Launchable
    compiled : Compiled
    launch : Launch
        The launch; its NumPy arrays are copied, and none changes.
    names : sequence of str
        The names of its arguments.
    blocks, most, stops_at_fault
        The arguments of :func:`record`.

    Raises
    ------
    LaunchError, CheckError, MemoryError, ValueError, TypeError
    """
    chosen = _chosen(launch.grid, blocks)
    args, arrays = put(emulator, launch.args, names)
    places = tuple(Place.of(name, there) for name, there, _ in arrays)
    dtypes = {place.dtype for place in places}
    return _traced(
        emulator, kernel, compiled, replace(launch, args=args), chosen, most, places,
        tuple(host for *_, host in arrays), dtypes.pop() if len(dtypes) == 1 else None, None,
        _title(kernel), stops_at_fault,
    )  # fmt: skip


def _chosen(grid: Dim3, blocks: Sequence[Dim3]) -> tuple[Dim3, ...]:
    """Return the blocks to record, each once: by default the first and the last.

    Raises
    ------
    ValueError
        If the grid has no such block, or a block is not an index of three numbers.
    """
    last = (grid[0] - 1, grid[1] - 1, grid[2] - 1)
    asked: list[Dim3] = []
    for block in blocks:
        is_index = isinstance(block, Sequence) and len(block) == 3
        if not is_index or not all(hasattr(each, "__index__") for each in block):
            raise ValueError(f"a block to show is {block!r}; it takes its index as (x, y, z)")
        x, y, z = map(index, block)
        asked.append((x, y, z))
    chosen = tuple(dict.fromkeys(asked or ((0, 0, 0), last)))
    check_blocks(grid, chosen)
    return chosen


def _traced(
    emulator: Emulator,
    kernel: Launchable,
    compiled: Compiled,
    launch: Launch,
    chosen: tuple[Dim3, ...],
    most: int,
    places: tuple[Place, ...],
    values: Sequence[npt.NDArray[Any] | None],
    dtype: np.dtype[Any] | None,
    problem: Mapping[str, Any] | None,
    title: str,
    stops_at_fault: bool,
) -> Trace:
    """Return the trace of a launch on the emulator.

    Parameters
    ----------
    emulator, kernel, compiled, launch, chosen, most
    places : tuple of Place
        The places of its arrays.
    values : sequence of ndarray or None
        The values of each array before the launch; None for an uninitialised array.
    dtype : dtype or None
        The dtype of all arrays; None if they differ.
    problem : mapping or None
        The problem, if it is a product.
    title : str
    stops_at_fault : bool
        The argument of :func:`record`.
    """
    report, recordings = emulator.record(
        compiled, launch, chosen, most, stops_at_fault=stops_at_fault
    )
    recordings = tuple(sorted(recordings, key=lambda each: each.fault is None))
    program = recordings[0].program
    shared = shared_arrays(program, compiled, dtype, launch.shared)
    writer = Writer(program, Scene(launch.block, places, shared), dtype, problem is not None)
    written = [writer.block(recording) for recording in recordings]
    data = {
        "format": FORMAT, "version": VERSION, "title": title, "kernel": kernel.name,
        "file": Path(compiled.file).name, "source": compiled.source, "arch": emulator.arch,
        "grid": list(launch.grid), "block": list(launch.block),
        "problem": problem,
        "arrays": [
            array_part(place, held) for place, held in zip(places, values, strict=True)
        ],
        "shared": [each.to_dict() for each in shared],
        "instructions": writer.instructions,
        "layouts": writer.tables.layouts,
        "patterns": writer.tables.patterns,
        "blocks": written,
        "output": report.output,
    }  # fmt: skip
    if compiled.source_doubt:
        data["source_note"] = compiled.source_doubt
    fault = recordings[0].fault
    return Trace(data, None if fault is None else fault.error)


def _title(target: Rung | Launchable) -> str:
    """Return the title of the run: a rung's name, or ``FILE.cu:NAME`` for a kernel of a file."""
    if isinstance(target, Rung) or target.path is None:
        return target.name
    return f"{target.path.name}:{target.name}"
