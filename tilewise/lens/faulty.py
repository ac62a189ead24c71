"""The last step of a run that a fault ended: which thread, which access, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.memory.global_memory import GAP
from tilewise.devices.emulator.recording.events import NOWHERE, Event, Fault
from tilewise.errors import ADVICE
from tilewise.lens.sentences import Place, Scene, Shared
from tilewise.shown import element, index_of

KIND = "fault"
_FOUND_LATER = ("race", "uninitialised")
"""Kinds of faults that are found after the access: at a barrier, or where a value is used."""


def up_to(fault: Fault, events: Sequence[Event]) -> list[Event]:
    """Return the events up to the access that has the fault; later events are left out."""
    if fault.finding.kind not in _FOUND_LATER:
        return list(events)
    for end in range(len(events), 0, -1):
        if _is_faulty(events[end - 1], fault):
            return list(events[:end])
    return list(events)


def _is_faulty(event: Event, fault: Fault) -> bool:
    """Return whether an event is the faulty access of the fault's thread."""
    if event.op != fault.op:
        return False
    mine = np.flatnonzero(event.threads == fault.thread)
    if not len(mine) or not fault.space or event.address is None or event.space != fault.space:
        return bool(len(mine))
    first = event.address[mine]
    # Rows of ``ldmatrix`` are read by other lanes than those that give their addresses.
    inside = (first <= fault.address) & (fault.address < first + max(event.width, 1))
    return bool((inside | (first == NOWHERE)).any()) or event.is_by_rows


def say(scene: Scene, fault: Fault) -> tuple[str, str]:
    """Return a sentence on the fault, and sentences on the array's extent and on what to check."""
    finding = fault.finding
    sentence = f"{finding.kind[0].upper()}{finding.kind[1:]}: {finding.message}."
    why = [_extent(scene, fault), ADVICE.get(finding.kind, "")]
    return sentence, " ".join(filter(None, why))


def where(scene: Scene, fault: Fault) -> dict[str, Any]:
    """Return the fault as data: its kind, its thread, and where it reaches its array.

    Returns
    -------
    dict
        The member ``fault`` of docs/trace.md.
    """
    found: dict[str, Any] = {"kind": fault.finding.kind, "thread": fault.thread}
    attempt = fault.attempt
    access = "" if attempt is None else attempt.kind
    if access:
        found["access"] = access
    place = _of_global(scene, fault) if fault.space == "global" else _of_shared(scene, fault)
    if place is None:
        return found
    start = place.pointer if isinstance(place, Place) else place.offset
    own = (fault.address - start) // place.element
    found |= {"space": fault.space, "array": place.name, "at": own, "others": []}
    if attempt is not None and attempt.space == fault.space:
        others = _elements(attempt.address, start, place.element, attempt.width)
        found["others"] = [x for x in others if x != own]
    return found


def threads(fault: Fault) -> npt.NDArray[np.intp]:
    """Return the threads of the step: all that attempted the access, or the fault's thread."""
    if fault.attempt is not None:
        return fault.attempt.threads
    return np.array([fault.thread], np.intp)


def _elements(address: npt.NDArray[np.int64], start: int, element: int, width: int) -> list[int]:
    """Return the elements that threads reach, inside an array and outside it, each once."""
    first = (address[address != NOWHERE] - start) // element
    every = first[:, None] + np.arange(max(1, width // element))
    return [int(x) for x in np.unique(every)]


def _of_global(scene: Scene, fault: Fault) -> Place | None:
    """Return the argument that the fault is of, whose address may lie outside of it.

    None if it is another array, as a variable of the module.
    """
    at = fault.address

    def apart(place: Place) -> int:
        return max(place.pointer - at, at - place.pointer - place.element * place.count, 0)

    # Arrays are GAP bytes apart, so that no other one is within half of it.
    near = (each for each in scene.places if each.count and apart(each) < GAP // 2)
    return next(near, None)


def _of_shared(scene: Scene, fault: Fault) -> Shared | None:
    if fault.space != "shared":
        return None
    named = [each for each in scene.shared if each.name == fault.finding.array]
    return named[0] if named else None


def _extent(scene: Scene, fault: Fault) -> str:
    """Return a sentence on which elements the array has, and which one was reached."""
    if fault.finding.kind != "out of bounds":
        return ""
    if fault.space == "shared":
        array = _of_shared(scene, fault)
        if array is None or not array.bytes:
            return ""
        said, start, size = array.name, array.offset, array.element * array.components
        extents = widths = array.extents
    else:
        place = _of_global(scene, fault) if fault.space == "global" else None
        if place is None:
            return ""
        said, start, size = place.said, place.pointer, place.element
        extents, widths = place.extents, (place.rows, place.columns)
    if len(extents) == 1:
        return f"{said} has {_to(extents[0], 'element')}."
    index = index_of((fault.address - start) // size, extents)
    if len(extents) > 2:
        shape = " x ".join(f"{extent:,}" for extent in extents)
        return f"{said} has {shape} elements; by its address this is {element(said, index)}."
    row, column = index
    return (
        f"{said} has {_to(widths[0], 'row')} and {_to(widths[1], 'column')}; by its address this "
        f"is row {row:,}, column {column:,}."
    )


def _to(count: int, what: str) -> str:
    return f"one {what}, {what} 0" if count == 1 else f"{what}s 0 to {count - 1:,}"
