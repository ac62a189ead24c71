"""Make the steps of a trace out of the events that the emulator recorded.

A step is one instruction that some threads of a block ran at once. Instructions that only compute
indices are joined to one step a line.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.ptx.program import Program
from tilewise.devices.emulator.recording.events import Event, Recording
from tilewise.lens.sentences import Scene, say
from tilewise.places import Dim3
from tilewise.precision import HALVES


class Writer:
    """Makes steps of events; each instruction that they refer to is kept once.

    Parameters
    ----------
    program : Program
    scene : Scene
    dtype : dtype or None
        The dtype of all arrays of the launch; None where they differ.
    is_product : bool
        Whether the launch computes a matrix product.

    Attributes
    ----------
    instructions : list of dict
        The instructions of the steps so far.
    """

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
                step[name] = plain_numbers(self._typed(event, values))
        return step

    def _typed(self, event: Event, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bits of an array as the numbers that they are: some instructions know no more."""
        place = self.scene.place(event)
        # Instructions on 16-bit elements know bits alone, and a product has them in shared memory.
        is_half = self.is_product and self.dtype is not None and self.dtype.name in HALVES
        in_shared = self.dtype if event.is_copy or is_half else None
        dtype = in_shared if place is None else place.dtype
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


def plain_numbers(values: npt.NDArray[Any]) -> list[Any]:
    """Numbers with six digits; NaN and infinity, which JSON lacks, by name."""
    if values.ndim > 1:
        return [plain_numbers(row) for row in values]
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind != "f":
        return [int(value) for value in values]
    return [
        float(f"{value:.6g}") if math.isfinite(value) else str(float(value)) for value in values
    ]
