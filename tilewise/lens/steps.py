"""Make the steps of a trace from the events that the emulator recorded.

A step is one instruction that some threads of a block ran at once. Instructions that only compute
indices are joined into one step for each line.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.recording.events import (
    NOWHERE,
    Event,
    Fault,
    Move,
    Recording,
    Sync,
)
from tilewise.lens import faulty
from tilewise.lens.piece_origins import Origins, needed
from tilewise.lens.sentences import Scene, say
from tilewise.lens.stages import Stages
from tilewise.lens.tables import NOTHING, Tables
from tilewise.lens.terms import Terms
from tilewise.precision import HALVES


class Writer:
    """A writer that makes steps from events, and keeps each instruction once.

    Parameters
    ----------
    program : Program
    scene : Scene
    dtype : dtype or None
        The dtype of all arrays of the launch; None if they differ.
    is_product : bool
        Whether the launch computes a matrix product.

    Attributes
    ----------
    instructions : list of dict
        The instructions of the steps so far.
    tables : Tables
        The layouts and patterns that they refer to.
    """

    def __init__(
        self, program: Program, scene: Scene, dtype: np.dtype[Any] | None, is_product: bool
    ) -> None:
        self.program, self.scene, self.dtype = program, scene, dtype
        self.is_product = is_product
        self.instructions: list[dict[str, Any]] = []
        self.tables = Tables()
        self._numbers: dict[int, int] = {}

    def block(self, recording: Recording) -> dict[str, Any]:
        """Return one block's part of the trace."""
        fault = recording.fault
        events = recording.events if fault is None else faulty.up_to(fault, recording.events)
        threads = math.prod(self.scene.block)
        owners = None if recording.is_cut or fault or not self.is_product else {
            int(t) for e in events if (e.kind, e.space) == ("store", "global") for t in e.threads
        }  # fmt: skip
        steps: list[dict[str, Any]] = []
        numbers = []
        origins = Origins() if needed(events) else None
        terms = Terms(self.program, threads)
        for event, phase in zip(events, phases(events, threads), strict=True):
            if event.kind != "other" or not steps or not _joins(steps[-1], event):
                steps.append(self._step(event, phase, owners))
            numbers.append(len(steps) - 1)
            source = None if origins is None else origins.see(event)
            if source is not None and (found := self._origin(source)):
                steps[-1]["origin"] = found
            if made_of := terms.see(event, numbers[-1]):
                steps[-1]["terms"] = made_of
        stages = Stages(events, numbers).to_list()
        first = _first(steps)
        if fault is not None:
            first = len(steps)
            steps.append(self._fault(fault, steps[-1]["phase"] if steps else None))
        return {
            "index": list(recording.block), "cut": recording.is_cut, "first": first, "steps": steps,
            **({"stages": stages} if stages else {}),
        }  # fmt: skip

    def _fault(self, fault: Fault, phase: int | None) -> dict[str, Any]:
        """Return the last step of a run that a fault ended."""
        sentence, why = faulty.say(self.scene, fault)
        return {
            "i": self._number(fault.op, fault.line), "line": fault.line, "kind": faulty.KIND,
            "threads": _runs(faulty.threads(fault)), "phase": phase, "say": sentence, "why": why,
            "fault": faulty.where(self.scene, fault),
        }  # fmt: skip

    def _step(self, event: Event, phase: int | None, owners: set[int] | None) -> dict[str, Any]:
        sentence, why = say(self.scene, event, owners)
        step: dict[str, Any] = {
            "i": self._number(event.op, event.line), "line": event.line, "kind": event.kind,
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
                "space": event.space, "width": event.width,
                "at": [None if x == NOWHERE else x for x in at.tolist()],
                "requests": event.requests, "sectors": event.sectors,
                "conflicts": event.conflicts,
            }  # fmt: skip
        if event.scope:
            step["scope"] = event.scope
        if event.held:
            instruction = self.program.instructions[event.op]
            step["layout"] = self.tables.layout(instruction, event.held)
        if event.is_by_rows:
            step["rows"] = True
        if event.pieces is not None:
            step["reads"] = {
                name: [self.tables.pattern(group) for group in groups]
                for name, groups in event.pieces.items()
            }
        if event.move is not None:
            step["copy"] = self._copy(event.move)
            step["sectors"] = event.sectors
        if event.sync is not None:
            step["sync"] = self._sync(event.sync)
        for name, values in (("values", event.values), ("left", event.left)):
            if values is not None:
                step[name] = plain_numbers(self._typed(event, values))
        return step

    def _origin(self, source: npt.NDArray[np.int64]) -> list[list[Any]]:
        """Return the elements at addresses: for each array, their pattern and the first of them."""
        found = []
        for place in self.scene.places:
            inside = np.array([place.holds(at) for at in source[:, None]], np.bool_)
            if inside.any():
                element = (source - place.pointer) // place.element
                number, first = self.tables.pattern(np.where(inside, element, NOTHING))
                found.append([place.name, number, first])
        return found

    def _copy(self, move: Move) -> dict[str, Any]:
        found: dict[str, Any] = {
            "at": move.offset, "bytes": move.size, "store": move.is_store,
            "outside": move.is_from_outside,
        }  # fmt: skip
        if move.barrier is not None:
            found["mbarrier"] = self.scene.mbarrier(move.barrier)
        if move.origin is not None:
            there = move.origin >= 0
            place = self.scene.place_at(move.origin[there]) if there.any() else None
            if place is not None:
                element = (move.origin - place.pointer) // place.element
                number, first = self.tables.pattern(np.where(there, element, NOTHING))
                found |= {"array": place.name, "from": first, "pattern": number}
        return found

    def _sync(self, sync: Sync) -> dict[str, Any]:
        found: dict[str, Any] = {"on": sync.on, "do": sync.action}
        if sync.on == "mbarrier":
            found |= {
                "names": [self.scene.mbarrier(at) for at in sync.at], "at": list(sync.at),
                "far": sync.is_remote,
            }  # fmt: skip
        if sync.allowed is not None:
            found["allowed"] = sync.allowed
        if sync.action == "wait":
            found["passes"] = sync.passes
        return found

    def _typed(self, event: Event, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an array's bits as numbers; some instructions know only bits."""
        place = self.scene.place(event)
        # Instructions on 16-bit elements know only bits, and a product has such elements in shared
        # memory.
        is_half = self.is_product and self.dtype is not None and self.dtype.name in HALVES
        in_shared = self.dtype if event.is_copy or is_half else None
        dtype = in_shared if place is None else place.dtype
        if dtype is None or dtype.kind == "c" or values.dtype.kind != "u":
            return values
        if values.dtype.itemsize < dtype.itemsize:
            return values
        rows = np.ascontiguousarray(values).reshape(len(values), -1).view(dtype)
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def _number(self, op: int, line: int | None) -> int:
        """Return an instruction's place among those that steps refer to."""
        if op not in self._numbers:
            self._numbers[op] = len(self.instructions)
            text = str(self.program.instructions[op])
            self.instructions.append({"line": line, "text": text})
        return self._numbers[op]


def phases(events: Sequence[Event], threads: int) -> list[int | None]:
    """Return each event's phase, which runs between barriers up to where shared memory is read.

    The barriers at which the whole block waits divide its run into intervals: no thread is in the
    next interval before all have finished this one. A phase ends with each interval in which shared
    memory is read. There is no phase before the first load from global memory, after the last
    phase, or in a kernel without such barriers.

    Parameters
    ----------
    events : sequence of Event
        The events of one block, in order.
    threads : int
        The number of threads of the block.
    """
    arrived = np.zeros(threads, np.intp)
    intervals: list[int] = []
    for event in events:
        # A copy that another block starts has no thread here.
        intervals.append(int(arrived[event.threads].max(initial=0)))
        if event.scope == "block":
            arrived[event.threads] += 1
    ends = sorted({
        interval for event, interval in zip(events, intervals, strict=True)
        if (event.kind, event.space) == ("load", "shared") or event.pieces is not None
    })  # fmt: skip
    loads = [
        i for i, event in enumerate(events)
        if (event.kind, event.space) == ("load", "global") or event.move is not None
    ]  # fmt: skip
    first = min(loads, default=0)
    if not arrived.any() or not ends:
        return [None] * len(events)
    return [
        bisect_left(ends, interval) if i >= first and interval <= ends[-1] else None
        for i, interval in enumerate(intervals)
    ]


def _joins(step: dict[str, Any], event: Event) -> bool:
    """Return whether an event adds nothing to the step before it."""
    is_same = step["line"] == event.line and step["threads"] == _runs(event.threads)
    return bool(step["kind"] == "other" and is_same)


def _first(steps: Sequence[Mapping[str, Any]]) -> int:
    """Return the step to open on: the first one that shows most of what memory costs.

    If tensor cores read shared memory, that is the first product; if threads read it, the read with
    the most conflicts a request; otherwise the load with the most sectors a request.
    """
    products = [number for number, step in enumerate(steps) if "reads" in step]
    if products:
        return products[0]
    for space, cost in (("shared", "conflicts"), ("global", "sectors")):
        loads = [
            (step[cost] / max(step["requests"], 1), -number) for number, step in enumerate(steps)
            if step["kind"] == "load" and step.get("space") == space
        ]  # fmt: skip
        if loads:
            return -max(loads)[1]
    return 0


def _runs(threads: npt.NDArray[np.intp]) -> list[list[int]]:
    """Return the runs of consecutive numbers, each as the first number and the count."""
    starts = np.flatnonzero(np.diff(threads, prepend=-2) != 1)
    lengths = np.diff(np.append(starts, len(threads)))
    return [[int(threads[start]), int(length)]
            for start, length in zip(starts, lengths, strict=True)]  # fmt: skip


def plain_numbers(values: npt.NDArray[Any]) -> list[Any]:
    """Return numbers with six digits; NaN and infinity, which JSON lacks, become names."""
    if values.ndim > 1:
        return [plain_numbers(row) for row in values]
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind != "f":
        return [int(value) for value in values]
    return [
        float(f"{value:.6g}") if math.isfinite(value) else str(float(value)) for value in values
    ]
