"""The costs of a trace's steps, and the share of the work that they do, for comparisons.

Kernels are compared at the same share of their work, which is counted in multiply-adds. Steps and
instructions can't be the measure, because kernels differ in them, and the emulator measures no
time. Within a phase a kernel has loaded a tile and not used all of it yet, so totals are compared
at the ends of phases.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

from tilewise.devices.occupancy import WARP

Step = Mapping[str, Any]
FOLDED = ("other", "branch")
"""The kinds of steps that only compute indices and addresses, or branch."""
COSTS = ("loads", "requests", "sectors", "wavefronts", "barriers")
"""The attributes of :class:`Costs` that are shown as totals."""
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_PIECE = 16  # bytes


@dataclass(frozen=True)
class Costs:
    """The work and the costs of each step of a block.

    Attributes
    ----------
    unit : str
        The unit of ``work``: ``"multiply-adds"``; for a kernel without any, floating-point
        ``"operations"``; for a kernel that has neither, ``"elements stored"`` to global memory.
    work : list of int
        The work of all threads together.
    loads : list of int
        The elements that threads load from global memory, counted for each thread, and the elements
        of bulk copies that the block starts.
    requests, sectors : list of int
        The requests and the sectors of loads from global memory.
    wavefronts : list of int
        The wavefronts of accesses to shared memory: one for each request and one for each bank
        conflict. The further wavefronts that an access of 8 or 16 bytes always takes are not
        counted.
    barriers : list of int
        The barriers of the whole block, counted for each warp.
    """

    unit: str
    work: list[int]
    loads: list[int]
    requests: list[int]
    sectors: list[int]
    wavefronts: list[int]
    barriers: list[int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "unit": self.unit,
            "work": self.work,
            **{each: getattr(self, each) for each in COSTS},
        }

    def at(self, cost: str, step: int) -> int:
        """Return the total of a cost up to and including a step."""
        return sum(getattr(self, cost)[: step + 1])


def costs(trace: Mapping[str, Any], block: int) -> Costs:
    """Return the costs of each step of a block.

    Parameters
    ----------
    trace : mapping
        The trace, in the format of docs/trace.md.
    block : int
        The block's number among those that were recorded.
    """
    steps: Sequence[Step] = trace["blocks"][block]["steps"]
    unit, work = _work(trace, steps)
    loads, requests, sectors, wavefronts, barriers = [], [], [], [], []
    for step in steps:
        kind, space = step["kind"], step.get("space")
        reads = space == "global" and kind in ("load", "atomic")
        copy = step.get("copy")
        starts = copy is not None and not copy["store"] and not copy["outside"]
        loads.append(_loaded(trace, step) if reads or starts else 0)
        requests.append(step["requests"] if reads else 0)
        sectors.append((step.get("sectors") or 0) if reads or starts else 0)
        shared = space == "shared" and kind in ("load", "store", "atomic")
        wavefronts.append(step["requests"] + step["conflicts"] if shared else 0)
        whole = kind == "barrier" and step.get("scope", "block") == "block"
        barriers.append(len(_warps(step)) if whole else 0)
    return Costs(unit, work, loads, requests, sectors, wavefronts, barriers)


def phase_ends(steps: Sequence[Step]) -> list[int]:
    """Return the last step of each phase; for a kernel without phases, the last step."""
    found = [
        i for i, step in enumerate(steps)
        if step.get("phase") is not None
        and (i + 1 == len(steps) or steps[i + 1].get("phase") != step["phase"])
    ]  # fmt: skip
    return found or [len(steps) - 1]


def is_folded(step: Step) -> bool:
    """Return whether a step only computes indices and addresses, or branches."""
    return step["kind"] in FOLDED


def together(
    one: Sequence[int], other: Sequence[int], a: Sequence[Step], b: Sequence[Step]
) -> list[list[int]]:
    """Pair the steps of two kernels by the share of their work that each has done.

    From one pair to the next, the kernel whose next step begins at the smaller share of its work
    advances, or both do if the shares are equal. Steps that only compute indices are left out.

    Parameters
    ----------
    one, other : sequence of int
        The work of each step.
    a, b : sequence of mapping
        The steps.

    Returns
    -------
    list of [int, int]
        Pairs of a step of the one kernel and a step of the other. Both ascend, and the last pair is
        the last step of each.
    """
    at = [_begins(one, a), _begins(other, b)]
    now = [0, 0]
    ticks = []
    while True:
        ticks.append([at[0][now[0]][0], at[1][now[1]][0]])
        ahead = [
            at[side][now[side] + 1][1] if now[side] + 1 < len(at[side]) else None
            for side in (0, 1)
        ]  # fmt: skip
        there = [share for share in ahead if share is not None]
        if not there:
            return ticks
        for side in (0, 1):
            if ahead[side] is not None and ahead[side] == min(there):
                now[side] += 1


def _begins(work: Sequence[int], steps: Sequence[Step]) -> list[tuple[int, float]]:
    """Return the steps that are shown, each with the share of the block's work before it."""
    before, total = [0, *accumulate(work)], sum(work) or 1
    shown = [i for i, step in enumerate(steps) if not is_folded(step)] or [len(steps) - 1]
    if shown[-1] != len(steps) - 1:
        shown.append(len(steps) - 1)
    return [(i, before[i] / total) for i in shown]


def fair(
    one: Costs, other: Costs, ends: Sequence[int], of_other: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the points at which two kernels may be compared: the ends of either's phases.

    Parameters
    ----------
    one, other : Costs
    ends, of_other : sequence of int
        The results of :func:`phase_ends`.

    Returns
    -------
    list of dict
        In the order of ``share``, the share of work that is done. ``steps`` has the first step of
        each kernel after which that share is done, and for a share of 1 the last step of each.
    """
    done = [list(accumulate(each.work)) for each in (one, other)]
    shares = {
        Fraction(each[i], each[-1] or 1)
        for each, places in zip(done, (ends, of_other), strict=True) for i in places
    }  # fmt: skip
    return [
        {"share": float(share), "steps": [
            # The next step may already load the next tile. At the end everything counts.
            len(each) - 1 if share == 1 else bisect_left(each, share * each[-1])
            for each in done
        ]}
        for share in sorted(shares | {Fraction(1)}) if share > 0
    ]  # fmt: skip


def _work(trace: Mapping[str, Any], steps: Sequence[Step]) -> tuple[str, list[int]]:
    texts = [each["text"] for each in trace["instructions"]]
    adds = [_multiply_adds(trace, step, texts[step["i"]]) for step in steps]
    if any(adds):
        return "multiply-adds", adds
    operations = [_threads(step) if step["kind"] == "compute" else 0 for step in steps]
    if any(operations):
        return "operations", operations
    stored = [
        _elements(trace, step)
        if step.get("space") == "global" and step["kind"] in ("store", "atomic") else 0
        for step in steps
    ]  # fmt: skip
    return "elements stored", stored


def _multiply_adds(trace: Mapping[str, Any], step: Step, text: str) -> int:
    if step["kind"] == "compute":
        return _threads(step) if text.startswith(("fma.", "mad.")) else 0
    if step["kind"] != "matrix":
        return 0
    layout = trace["layouts"][step["layout"]] if "layout" in step else None
    shape = _SHAPE.search(layout["what"] if layout else text)
    if shape is None:
        return 0
    threads = 4 * WARP if text.startswith("wgmma") else WARP  # that execute one instruction
    m, n, k = map(int, shape.groups())
    return m * n * k * _threads(step) // threads


def _loaded(trace: Mapping[str, Any], step: Step) -> int:
    copy = step.get("copy")
    if copy is None:
        return _elements(trace, step)
    if "pattern" not in copy:
        return 0
    pieces = sum(each is not None for each in trace["patterns"][copy["pattern"]])
    return pieces * _PIECE // _bytes_of(trace, copy["array"])


def _elements(trace: Mapping[str, Any], step: Step) -> int:
    places = sum(each is not None for each in step.get("at", ()))
    element = _bytes_of(trace, step.get("array")) or int(step["width"])
    width: int = step["width"]
    return places * max(1, width // element)


def _bytes_of(trace: Mapping[str, Any], name: str | None) -> int:
    """Return the bytes of an array's element; 0 if there is no such array."""
    dtype = next((x["dtype"] for x in trace["arrays"] if x["name"] == name), "")
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 0


def _threads(step: Step) -> int:
    return sum(int(count) for _, count in step["threads"])


def _warps(step: Step) -> set[int]:
    return {
        warp for first, count in step["threads"]
        for warp in range(first // WARP, (first + count - 1) // WARP + 1)
    }  # fmt: skip
