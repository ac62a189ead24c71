"""The last stop of a product that is wrong: which elements of C, and what they should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, many


def is_there(trace: Mapping[str, Any]) -> bool:
    """Return whether elements of C are known to be wrong."""
    return bool(trace.get("wrong"))


def told(trace: Mapping[str, Any]) -> str:
    """Return a sentence on how many elements are wrong; empty if none is known to be."""
    if not is_there(trace):
        return ""
    count, size = len(trace["wrong"]["at"]), trace["problem"]["m"] * trace["problem"]["n"]
    return f"{count:,} of {many(size, 'element')} of C {'is' if count == 1 else 'are'} wrong."


def stops(trace: Mapping[str, Any]) -> Iterator[Stop]:
    """Yield the end of the first recorded block that stores a wrong element, or of the first."""
    if not is_there(trace):
        return
    c = next(x for x in trace["arrays"] if x["name"] == trace["wrong"]["array"])
    wrong = trace["wrong"]
    places = [i * c["leading"] + j for i, j in wrong["at"]]
    runs = [Run(trace, number) for number in range(len(trace["blocks"]))]
    run = next((each for each in runs if each.stored & set(places)), runs[0])
    own = [i for i, at in enumerate(places) if at in run.stored]
    first = own[0] if own else 0
    i, j = wrong["at"][first]
    value, right = wrong["computed"][first], wrong["right"][first]
    is_what = "was never written" if value is None else f"is {value}"
    which = "The first of this block's" if own else "The first"
    yield Stop(
        len(run.steps) - 1, "Wrong elements of C",
        f"{told(trace)} {which}, C[{i}][{j}], {is_what}, and should be {right}. Choose another to "
        "see what it should be.",
        ("c", "story", "source"), block=run.number,
        mark={"array": "c", "at": places[first]},
    )  # fmt: skip
