"""The last stops of a run that a fault ended: the access that it is about, and the fault."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop

KIND = "fault"
TITLES = {
    "out of bounds": "Out of bounds", "misaligned": "Not aligned", "race": "A race",
    "uninitialised": "Nobody wrote it", "barrier": "Not everybody comes",
}  # fmt: skip


def is_there(run: Run) -> bool:
    """Return whether a fault ended the run."""
    return bool(run.steps[-1]["kind"] == KIND)


def stops(run: Run) -> Iterator[Stop]:
    """Yield the other access of a race, and the fault itself; nothing if there is no fault."""
    if not is_there(run):
        return
    last = len(run.steps) - 1
    step = run.steps[last]
    fault = step["fault"]
    space, array = fault.get("space", ""), fault.get("array")
    place = ("shared",) if space == "shared" else (array,) if array else ()
    other = _other(run) if fault["kind"] == "race" else None
    if other is not None:
        yield Stop(
            other, "The other access",
            f"{run.steps[other]['say']} Keep it in mind: another thread comes to one of these "
            "places, and nothing orders the two.",
            (*place, "source", "threads"), block=run.number,
        )  # fmt: skip
    look = place or (("arrivals",) if fault["kind"] == "barrier" else ())
    yield Stop(
        last, TITLES.get(fault["kind"], "A fault"), f"{_said(step['say'])} {step['why']}",
        (*look, "source", "threads"), block=run.number,
    )  # fmt: skip


def told(run: Run) -> str:
    """Return the fault as a sentence for the opening; empty if there is none."""
    return str(run.steps[-1]["say"]) if is_there(run) else ""


def _said(sentence: str) -> str:
    """Return the sentence without the kind of the fault, which is the stop's title."""
    words = sentence.partition(": ")[2] or sentence
    return words[0].upper() + words[1:]


def _other(run: Run) -> int | None:
    """Return the step of the last conflicting access of another thread, if it is known."""
    fault = run.steps[-1]["fault"]
    if fault.get("space") != "shared":
        return None
    array = next((x for x in run.trace["shared"] if x["name"] == fault["array"]), None)
    if array is None:
        return None
    byte = array["offset"] + fault["at"] * array["element"]

    def reaches(i: int) -> set[int]:
        """Return the threads that reach the place in a step."""
        width = run.steps[i]["width"]
        return {t for t, at in run.at(i).items() if at <= byte < at + width}

    accesses = [i for i in run.each(space="shared") if reaches(i)]
    mine = next((i for i in reversed(accesses) if fault["thread"] in reaches(i)), None)
    if mine is None:
        return None
    writes = run.steps[mine]["kind"] != "load"
    for i in reversed(accesses):
        others = reaches(i) - {fault["thread"]}
        if i <= mine and others and (writes or run.steps[i]["kind"] != "load"):
            return i
    return None
