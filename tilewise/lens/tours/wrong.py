"""The last stop of a run whose result is wrong: which elements, and what they should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, many
from tilewise.shown import element, index_of


def is_there(trace: Mapping[str, Any]) -> bool:
    """Return whether elements of the result are known to be wrong."""
    return bool(trace.get("wrong"))


def told(trace: Mapping[str, Any]) -> str:
    """Return a sentence on how many elements are wrong; empty if none is known to be."""
    if not is_there(trace):
        return ""
    count, array = len(trace["wrong"]["at"]), _array(trace)
    size = array.get("count", array["rows"] * array["columns"])
    name, are = _name(trace), "is" if count == 1 else "are"
    return f"{count:,} of {many(size, 'element')} of {name} {are} wrong."


def _array(trace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the array that is wrong."""
    name = trace["wrong"]["array"]
    return next(x for x in trace["arrays"] if x["name"] == name)


def _name(trace: Mapping[str, Any]) -> str:
    """Return the wrong array's name for sentences: ``C`` of a product's array ``c``."""
    name = str(trace["wrong"]["array"])
    return name if trace["problem"] is None else name.upper()


def stops(trace: Mapping[str, Any]) -> Iterator[Stop]:
    """Yield the end of the first recorded block that stores a wrong element, or of the first."""
    if not is_there(trace):
        return
    array, wrong, name = _array(trace), trace["wrong"], _name(trace)
    places = [i * array["leading"] + j for i, j in wrong["at"]]
    runs = [Run(trace, number) for number in range(len(trace["blocks"]))]
    run = next((each for each in runs if each.stored & set(places)), runs[0])
    own = [i for i, at in enumerate(places) if at in run.stored]
    first = own[0] if own else 0
    extents = () if array.get("flat") else (array["rows"], array["leading"])
    wrong_one = element(name, index_of(places[first], array.get("extents", extents)))
    value, right = wrong["computed"][first], wrong["right"][first]
    is_what = "was never written" if value is None else f"is {value}"
    text = f"{told(trace)} {wrong_one} {is_what}, and should be {right}."
    if len(wrong["at"]) > 1:
        which = "The first of this block's" if own else "The first"
        text = (
            f"{told(trace)} {which}, {wrong_one}, {is_what}, and should be {right}. Choose another "
            "to see what it should be."
        )
    yield Stop(
        len(run.steps) - 1, f"Wrong elements of {name}",
        text,
        (array["name"], "story", "source"), block=run.number,
        mark={"array": array["name"], "at": places[first]},
    )  # fmt: skip
