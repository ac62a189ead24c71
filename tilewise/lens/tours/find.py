"""Find the tour of a trace: the one written for its rung, or one that fits any launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewise.ladder.rungs import RUNGS, Rung
from tilewise.lens.tours import (
    copies,
    fault,
    fragments,
    hopper,
    own,
    registers,
    threads,
    tiles,
    wrong,
)
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, Tour
from tilewise.lens.tours.tiles import ratio

Guide = Callable[[Run], Iterator[Stop]]

GUIDES: Mapping[str, Guide] = {
    "single_thread": threads.single_thread, "single_block": threads.single_block,
    "naive": threads.naive, "coalesced": threads.coalesced, "tiled": tiles.tiled,
    "tiled_conflicts": tiles.tiled_conflicts, "tiled_branchless": tiles.tiled_branchless,
    "thread_tile_1d": registers.thread_tile_1d, "thread_tile_2d": registers.thread_tile_2d,
    "vectorized": registers.vectorized, "warp_tile": registers.warp_tile,
    "double_buffered": copies.double_buffered, "tuned": copies.tuned,
    "tensor_core": fragments.tensor_core, "ldmatrix": fragments.ldmatrix,
    "multistage": fragments.multistage, "warpgroup": hopper.warpgroup,
    "specialized": hopper.specialized, "persistent": hopper.persistent,
}  # fmt: skip
FEWEST = 2  # stops that make a tour
# The rungs whose tour shows the last block, because it lies across the edge of C.
LAST_BLOCK = ("tiled_branchless",)
QUESTIONS: Mapping[str, str] = {
    "single_thread": "A GPU has thousands of lanes. What does one of them do alone?",
    "single_block": "What happens when every element of C has a thread of its own?",
    "naive": "Why does memory move far more bytes than the threads ask for?",
    "coalesced": "Two indices are swapped. Why is that worth so much?",
    "tiled_conflicts": "The same loads, the same product. Why does it take so much longer?",
    "tiled_branchless": "What does it cost to have no branch at the edge?",
    "thread_tile_1d": "How can a thread multiply more and read less?",
    "thread_tile_2d": "Why is a square of elements better than a column?",
    "vectorized": "How can fewer instructions move the same bytes?",
    "warp_tile": "Which lane should compute which element?",
    "double_buffered": "Why should a thread wait for a load?",
    "tuned": "The ideas are all there. What is left to gain?",
    "tensor_core": "What changes when a warp multiplies whole matrices with one instruction?",
    "ldmatrix": "How do a warp's lanes get the fragments that the tensor cores need?",
    "multistage": "The tensor cores are fast. How does everything else keep out of their way?",
    "warpgroup": "What if no thread loads anything any more?",
    "specialized": "What if loading is a job of its own?",
    "persistent": "A block ends, and the next begins with an empty ring. Can that be avoided?",
}  # fmt: skip


def tour_of(trace: Mapping[str, Any]) -> Tour:
    """Return the tour of a trace: what its page opens with, and where the tour stops.

    Parameters
    ----------
    trace : mapping
        The trace, in the format of docs/trace.md.
    """
    rung, run = rung_of(trace), Run(trace)
    if rung is None or fault.is_there(run):
        return _tour(what(trace, run), run, tuple(own.automatic(run)), is_of_rung=False)
    problem = trace["problem"]
    number = len(trace["blocks"]) - 1 if rung.name in LAST_BLOCK else 0
    run = Run(trace, number, rung.macros(problem["tile"], problem["dtype"]))
    return _tour(question(rung.name, run), run, tuple(GUIDES[rung.name](run)), is_of_rung=True)


def rung_of(trace: Mapping[str, Any]) -> Rung | None:
    """Return the rung that was recorded; None for other kernels, even one with a rung's name."""
    name = trace.get("title") or trace.get("kernel")
    found = next((each for each in RUNGS if each.name == name), None)
    if found is None or not trace.get("problem"):
        return None
    return found if found.path.read_text(encoding="utf-8") == trace["source"] else None


def question(name: str, run: Run) -> str:
    """Return the question of a rung; for ``tiled`` with the ratio of this launch."""
    if name in QUESTIONS:
        return QUESTIONS[name]
    loads = run.loaded("a", "b")
    if not loads or loads >= run.untiled:
        return "How can fewer loads give the same product?"
    return f"How can {ratio(run.untiled, loads)} times fewer loads give the same product?"


def what(trace: Mapping[str, Any], run: Run) -> str:
    """Return the question for a kernel that is not on the ladder."""
    name = trace.get("title") or trace.get("kernel") or "this kernel"
    is_wrong = fault.is_there(run) or wrong.is_there(trace)
    return f"Where does {name} go wrong?" if is_wrong else f"What does {name} do?"


def _tour(asked: str, run: Run, stops: tuple[Stop, ...], is_of_rung: bool) -> Tour:
    # The stops are in the order of the steps, so that a tour never goes back.
    stops = tuple(sorted(stops, key=lambda each: each.step))
    ends = (*fault.stops(run), *wrong.stops(run.trace))
    said = own.launched(run), own.moved(run), fault.told(run), wrong.told(run.trace)
    stops = (*stops, *ends) if ends or len(stops) >= FEWEST else ()
    return Tour(asked, tuple(filter(None, said)), stops, is_of_rung, ends_at_fault=bool(ends))
