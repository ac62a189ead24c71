"""A recorded block as tours query it: where something happens first, and what it cost.

Everything is read from the trace, so a tour's numbers are those of the launch that was recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilewise.devices.emulator.counting.transactions import BANKS, SECTOR
from tilewise.devices.occupancy import WARP

Step = Mapping[str, Any]
BYTES_OF_A_WORD = 4


class Run:
    """One block of a trace.

    Parameters
    ----------
    trace : mapping
        The trace, in the format of docs/trace.md.
    number : int
        The number of the block in the trace.
    macros : mapping of str to int
        The macros of the rung's tile, such as ``BLOCK_M``.

    Attributes
    ----------
    trace, number, macros
    block : mapping
    steps : sequence of mapping
    threads : int
        The number of threads of a block.
    """

    def __init__(
        self, trace: Mapping[str, Any], number: int = 0, macros: Mapping[str, Any] | None = None
    ) -> None:
        self.trace, self.number = trace, number
        self.macros: Mapping[str, Any] = macros or {}
        self.block: Mapping[str, Any] = trace["blocks"][number]
        self.steps: Sequence[Step] = self.block["steps"]
        x, y, z = trace["block"]
        self.threads: int = x * y * z

    # ---- the launch ----

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)

    @property
    def lanes(self) -> int:
        """The number of threads of warp 0."""
        return min(WARP, self.threads)

    @property
    def blocks(self) -> int:
        """The number of blocks of the grid."""
        x, y, z = self.trace["grid"]
        return int(x * y * z)

    def size(self, name: str) -> int:
        """Return the size ``m``, ``n`` or ``k``."""
        return int(self.trace["problem"][name])

    def macro(self, name: str) -> int:
        """Return a size of the rung's tile."""
        return int(self.macros[name])

    def element(self, array: str) -> int:
        """Return the bytes of an array's element."""
        found = next((x for x in self.trace["arrays"] if x["name"] == array), None)
        bits = re.search(r"\d+", found["dtype"]) if found is not None else None
        return int(bits[0]) // 8 if bits else 1

    @cached_property
    def has_edge(self) -> bool:
        """Whether some thread of the block has no element of C."""
        stores = self.each("store", "global", "c")
        return len({t for i in stores for t in self.who(i)}) < self.threads

    # ---- where ----

    def each(
        self,
        kind: str = "",
        space: str = "",
        array: str = "",
        *,
        phase: int | None = None,
        after: int = -1,
        before: int | None = None,
        where: Callable[[int], bool] | None = None,
    ) -> list[int]:
        """Return the steps for which all of these conditions hold, in order.

        Parameters
        ----------
        kind, space : str
            A step's ``kind`` and ``space``; empty for any.
        array : str
            The array that the step accesses, in global or in shared memory; empty for any.
        phase : int, optional
        after, before : int
            The steps between which to look.
        where : callable, optional
            A function of a step's number that says whether to take the step.
        """
        found = []
        for i in range(after + 1, len(self.steps) if before is None else before):
            step = self.steps[i]
            if (kind and step["kind"] != kind) or (space and step.get("space") != space):
                continue
            if phase is not None and step["phase"] != phase:
                continue
            if array and array not in (step.get("array"), self.shared(i)):
                continue
            if where is None or where(i):
                found.append(i)
        return found

    def first(self, kind: str = "", space: str = "", array: str = "", **more: Any) -> int | None:
        """Return the first of the steps that `each` finds; None if there is none."""
        found = self.each(kind, space, array, **more)
        return found[0] if found else None

    def is_asynchronous(self, i: int) -> bool:
        """Return whether a load is an asynchronous copy to shared memory."""
        text = str(self.trace["instructions"][self.steps[i]["i"]]["text"])
        return "cp.async" in text

    @property
    def loads_are_asynchronous(self) -> bool:
        load = self.first("load", "global")
        return load is not None and self.is_asynchronous(load)

    def barriers(self, **more: Any) -> list[int]:
        """Return the steps in which the whole block waits."""
        return self.each("barrier", where=lambda i: self.steps[i].get("scope") == "block", **more)

    def syncs(self, on: str, do: str, **more: Any) -> list[int]:
        """Return the steps whose ``sync`` has these ``on`` and ``do``, such as
        ``("mbarrier", "wait")``.
        """

        def is_meant(i: int) -> bool:
            sync = self.steps[i].get("sync")
            return sync is not None and (sync["on"], sync["do"]) == (on, do)

        return self.each("sync", where=is_meant, **more)

    def shared(self, i: int) -> str:
        """Return the shared array that a step accesses; empty if it accesses none, or several."""
        step = self.steps[i]
        if step.get("space") != "shared":
            return ""
        at = [x for x in step["at"] if x is not None]
        for one in self.trace["shared"]:
            if at and one["offset"] <= min(at) and max(at) < one["offset"] + one["bytes"]:
                return str(one["name"])
        return ""

    def at_line(self, part: str) -> int:
        """Return the first step of a source line that contains ``part``; 0 if there is none."""
        lines = self.trace["source"].split("\n")
        found = (
            i for i, step in enumerate(self.steps)
            if step["line"] is not None and part in lines[step["line"] - 1]
        )  # fmt: skip
        return next(found, 0)

    # ---- who ----

    def who(self, i: int) -> list[int]:
        """Return the threads that run a step."""
        return [t for first, n in self.steps[i]["threads"] for t in range(first, first + n)]

    def at(self, i: int, warp: int | None = None) -> dict[int, int]:
        """Return where each thread of one warp, or of all, accesses memory."""
        pairs = zip(self.who(i), self.steps[i]["at"], strict=True)
        return {t: x for t, x in pairs if x is not None and warp in (None, t // WARP)}

    def cut_across(self, before: int) -> int:
        """Return how often, before a step, a warp runs a step with only part of its threads."""
        found = 0
        for i in range(before):
            counts = Counter(t // WARP for t in self.who(i))
            found += sum(n < min(WARP, self.threads - WARP * warp) for warp, n in counts.items())
        return found

    # ---- what it costs ----

    def elements(self, i: int, warp: int | None = None) -> set[int]:
        """Return the elements of an array in global memory that a step accesses."""
        step = self.steps[i]
        each = max(1, step["width"] // self.element(step["array"] or ""))
        return {x + j for x in self.at(i, warp).values() for j in range(each)}

    def bytes(self, i: int, warp: int | None = None) -> int:
        """Return the number of distinct bytes of global memory that a step asks for."""
        return len(self.elements(i, warp)) * self.element(self.steps[i]["array"] or "")

    def sectors(self, i: int, warp: int = 0) -> int:
        """Return the number of sectors that a warp's access to global memory touches."""
        return len(self.sectors_of(i, warp))

    def sectors_of(self, i: int, warp: int = 0) -> set[int]:
        """Return the sectors of a warp's access to global memory, by their number in memory."""
        step = self.steps[i]
        size = self.element(step["array"] or "")
        base = next((x.get("address", 0) for x in self.trace["arrays"]
                     if x["name"] == step["array"]), 0)  # fmt: skip
        first = np.array(list(self.at(i, warp).values()), np.int64) * size + base
        last = first + step["width"] - 1
        ends = zip((first // SECTOR).tolist(), (last // SECTOR).tolist(), strict=True)
        return {sector for a, b in ends for sector in range(a, b + 1)}

    def turns(self, i: int, warp: int = 0) -> int | None:
        """Return the wavefronts of a warp's access to shared memory of at most 4 bytes a lane.

        Return None if the machine code joins the access to its neighbours, so that the trace counts
        other requests.
        """
        if self.steps[i]["width"] > BYTES_OF_A_WORD or self.steps[i].get("rows"):
            return None
        warps = {t // WARP for t in self.who(i)}
        each = {one: served(self.at(i, one).values()) for one in warps}
        counted = int(self.steps[i]["conflicts"])
        if self.steps[i]["requests"] != len(warps):
            return None
        return each.get(warp) if sum(n - 1 for n in each.values()) == counted else None

    def total(self, name: str, kind: str, space: str, **more: Any) -> int:
        """Return a counter's sum, such as that of ``sectors``, over the steps that `each` finds."""
        return sum(int(self.steps[i][name]) for i in self.each(kind, space, **more))

    def loaded(self, *arrays: str, **more: Any) -> int:
        """Return the number of values that the block loads from arrays in global memory.

        A value counts each time that a thread loads it, and once for each bulk copy.
        """
        found = 0
        for i in self.each(**more):
            step = self.steps[i]
            if step["kind"] == "load" and step.get("array") in arrays:
                found += self.values(i)
            copy = step.get("copy")
            if copy and not copy["store"] and not copy["outside"] and copy.get("array") in arrays:
                found += copy["bytes"] // self.element(copy["array"])
        return found

    def values(self, i: int) -> int:
        """Return the number of values that a step loads from, or stores to, global memory."""
        step = self.steps[i]
        each: int = step["width"] // self.element(step["array"] or "")
        return len(self.at(i)) * max(1, each)

    @cached_property
    def stored(self) -> set[int]:
        """The elements of C that the block stores."""
        return {x for i in self.each("store", "global", "c") for x in self.elements(i)}

    @property
    def untiled(self) -> int:
        """The values that are loaded if each element of C takes a row of A and a column of B."""
        return 2 * self.size("k") * len(self.stored)

    def of_c(self) -> str:
        """Return the extent of the block's part of C, as in ``8 x 8``."""
        columns = next(x["leading"] for x in self.trace["arrays"] if x["name"] == "c")
        down = {x // columns for x in self.stored}
        across = {x % columns for x in self.stored}
        return f"{len(down)} x {len(across)}"

    @property
    def phases(self) -> int:
        return 1 + max((x["phase"] for x in self.steps if x["phase"] is not None), default=-1)

    def shape(self, i: int) -> tuple[int, int, int] | None:
        """Return m, n and k of a product of matrices."""
        layout = self.steps[i].get("layout")
        if layout is None:
            return None
        found = re.search(r"\bm(\d+)n(\d+)k(\d+)", self.trace["layouts"][layout]["what"])
        return (int(found[1]), int(found[2]), int(found[3])) if found else None

    def zeros(self, i: int) -> int:
        """Return the number of threads of a store that store a zero."""
        return sum(x == 0 for x in self.steps[i]["values"])


def served(at: Any) -> int:
    """Return the words that the busiest bank serves, given the bytes that lanes access."""
    banks = Counter(word % BANKS for word in {x // BYTES_OF_A_WORD for x in at})
    return max(banks.values(), default=0)
