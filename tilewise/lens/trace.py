"""A trace: what some blocks of a kernel did, step by step, as data that a player reads.

The format is documented in docs/trace.md. A step is one instruction that some threads of a block
ran at once; what only computes indices is joined, a line at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import DEFAULT_ARCH, Compiled
from tilewise.devices.emulator import MOST_EVENTS, Emulator
from tilewise.devices.emulator.parser import parse
from tilewise.devices.emulator.program import Program, plain_name
from tilewise.devices.emulator.recording import Event, Recording
from tilewise.kernel import Kernel
from tilewise.ladder import Rung
from tilewise.launch import Dim3, Launch
from tilewise.lens.sentences import Place, Scene, Shared, say
from tilewise.problem import Gemm, random_problem
from tilewise.run import prepare

FORMAT, VERSION = "tilewise trace", 1
MOST_VALUES = 64 * 64  # of a matrix that is kept whole


@dataclass(frozen=True)
class Trace:
    """A recorded launch: plain data, as docs/trace.md has it."""

    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.data)


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
        As :func:`tilewise.run` takes it.
    m, n, k : int
        At least 1.
    dtype, tile, alpha, beta, seed
        As :func:`tilewise.lens.profile.profile_product` takes them.
    blocks : sequence of (int, int, int)
        By default the first, and the last where it is another: it lies at the edges.
    arch : str
        To compile for.
    most : int
        Steps of a block that are kept; a longer run is cut, and the trace says so.

    Raises
    ------
    FileNotFoundError, CompileError, LaunchError, CheckError, ValueError, TypeError
    """
    for name, size in (("m", m), ("n", n), ("k", k)):
        if isinstance(size, int) and size < 1:
            raise ValueError(f"{name} is {size}; to be watched, a product has at least 1 of each")
    emulator = Emulator(arch)
    a, b, c = random_problem(m, n, k, dtype, seed)
    gemm = Gemm.of(a, b, c, alpha=alpha, beta=beta)
    kernel, edge, (grid, block) = prepare(target, gemm, tile)
    compiled = kernel.compile(arch)
    there = [emulator.array(a), emulator.array(b),
             emulator.array(c) if beta else emulator.empty(c.shape, c.dtype)]  # fmt: skip
    launch = Launch(
        grid, block,
        (m, n, k, gemm.alpha, there[0], gemm.lda, there[1], gemm.ldb, gemm.beta, there[2],
         gemm.ldc),
    )  # fmt: skip
    last = (grid[0] - 1, grid[1] - 1, grid[2] - 1)
    chosen = tuple(dict.fromkeys(blocks or ((0, 0, 0), last)))
    report, recordings = emulator.record(compiled, launch, chosen, most)
    places = tuple(
        Place(name, x.pointer, rows, columns, leading, x.dtype.itemsize)
        for name, x, (rows, columns), leading in (
            ("a", there[0], (m, k), gemm.lda), ("b", there[1], (k, n), gemm.ldb),
            ("c", there[2], (m, n), gemm.ldc),
        )
    )  # fmt: skip
    program = Program(parse(compiled.ptx), compiled.symbol)
    shared = _shared(program, compiled, gemm.dtype.itemsize, edge)
    writer = _Writer(program, Scene(block, places, shared))
    written = [
        writer.block(index, recording) for index, recording in zip(chosen, recordings, strict=True)
    ]
    data = {
        "format": FORMAT, "version": VERSION, "kernel": kernel.name,
        "file": Path(compiled.file).name, "source": compiled.source, "arch": arch,
        "grid": list(grid), "block": list(block),
        "problem": {
            "m": m, "n": n, "k": k, "dtype": gemm.dtype.name, "tile": edge,
            "alpha": float(alpha), "beta": float(beta),
        },
        "arrays": [
            {
                "name": place.name, "dtype": gemm.dtype.name, "rows": place.rows,
                "columns": place.columns, "leading": place.leading,
                "values": _numbers(x.reshape(-1)) if x.size <= MOST_VALUES and kept else None,
            }
            for place, x, kept in zip(places, (a, b, c), (True, True, bool(beta)), strict=True)
        ],
        "shared": [each.to_dict() for each in shared],
        "instructions": writer.instructions,
        "blocks": written,
        "output": report.output,
    }  # fmt: skip
    return Trace(data)


class _Writer:
    """Steps from events; what they refer to is kept once."""

    def __init__(self, program: Program, scene: Scene) -> None:
        self.program, self.scene = program, scene
        self.instructions: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}

    def block(self, index: Dim3, recording: Recording) -> dict[str, Any]:
        """One block's part of the trace."""
        events = recording.events
        threads = math.prod(self.scene.block)
        owners = None if recording.is_cut else {
            int(t) for e in events if (e.kind, e.space) == ("store", "global") for t in e.threads
        }  # fmt: skip
        arrivals = sum(len(event.threads) for event in events if event.kind == "barrier")
        steps: list[dict[str, Any]] = []
        arrived = loads = 0
        for event in events:
            loads += event.kind == "load" and event.space == "global"
            # Two barriers a phase: behind the loads, and behind their use.
            is_within = loads and 2 * threads <= arrivals and arrived < arrivals
            phase = arrived // (2 * threads) if is_within else None
            arrived += len(event.threads) if event.kind == "barrier" else 0
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
        if event.values is not None:
            step["values"] = _numbers(event.values)
        return step

    def _instruction(self, event: Event) -> int:
        if event.op not in self._numbers:
            self._numbers[event.op] = len(self.instructions)
            text = str(self.program.instructions[event.op])
            self.instructions.append({"line": event.line, "text": text})
        return self._numbers[event.op]


def _joins(step: dict[str, Any], event: Event) -> bool:
    """Whether an event says nothing that the step before it does not."""
    is_same = step["line"] == event.line and step["threads"] == _runs(event.threads)
    return bool(step["kind"] == "other" and is_same)


def _first(steps: Sequence[Mapping[str, Any]]) -> int:
    """The step to open on: the first that reads what was stored in shared memory, or loads."""
    for space in ("shared", "global"):
        for number, step in enumerate(steps):
            if step["kind"] == "load" and step.get("space") == space:
                return number
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
    if values.dtype.kind != "f":
        return [int(value) for value in values]
    return [
        float(f"{value:.6g}") if math.isfinite(value) else str(float(value)) for value in values
    ]


def _shared(
    program: Program, compiled: Compiled, element: int, tile: int | None
) -> tuple[Shared, ...]:
    """The shared arrays, with the rows and columns that their declarations have."""
    sizes = {v.name: v.size for v in program.module.variables.values() if v.space == "shared"}
    for function in program.functions:
        sizes |= {v.name: v.size for v in function.variables.values() if v.space == "shared"}
    found = []
    for name, offset in sorted(program.shared_offsets.items(), key=lambda item: item[1]):
        count = sizes.get(name, 0) // element
        columns = _columns(compiled.source, plain_name(name), count, tile)
        found.append(Shared(plain_name(name), offset, sizes.get(name, 0), element,
                            count // columns if columns else 0, columns))  # fmt: skip
    return tuple(found)


def _columns(source: str, name: str, count: int, tile: int | None) -> int:
    """Of a shared array: its last extent where the source says it plainly."""
    declared = re.search(rf"\b{re.escape(name)}((?:\s*\[[^\]]+\])+)\s*;", source)
    if declared:
        last = re.findall(r"\[([^\]]+)\]", declared[1])[-1].strip()
        last = last.replace("TILE", str(tile or ""))
        if re.fullmatch(r"\d+(\s*\+\s*\d+)?", last):
            columns = sum(int(part) for part in last.split("+"))
            if columns and count % columns == 0:
                return columns
    return min(count, 32) if count else 0
