"""A plan for products that do not fit the GPU: strips of A's rows and B's columns, with all of k.

Some strips of one matrix stay while all strips of the other pass by, one after the other; then the
next strips take their place. Each pair is one product, so that k is not divided. The strip that
makes room for the next one is known beforehand: the one whose next use is the latest (L. A. Belady,
*A study of replacement algorithms for a virtual-storage computer*, IBM Systems Journal 5, 1966).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tilewise.gemm.blocking import Span, span_of
from tilewise.host.plan import (
    ONE,
    Compute,
    CopyIn,
    CopyOut,
    HostPlan,
    HostProblem,
    Region,
    Step,
    rounded,
)

RESULTS = 3
"""The number of pieces of D on the GPU: one is computed, one waits, one is on its way back."""
LEAST = 4
"""The least number of strips on the GPU: two are multiplied, and two are on their way."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class Strips:
    """A product's cut into strips.

    Attributes
    ----------
    problem : HostProblem
    height, width : int
        The rows of a strip of A, and the columns of a strip of B.
    slots : int
        The number of strips that the GPU's memory holds at once.
    held : int
        The number of those that stay while the strips of the other matrix pass by.
    holds_b : bool
        Whether the strips that stay are strips of B rather than A.
    """

    problem: HostProblem
    height: int
    width: int
    slots: int
    held: int
    holds_b: bool = False

    @property
    def counts(self) -> Pair:
        """The number of strips of A, and of B."""
        p = self.problem
        return -(-p.m // self.height), -(-p.n // self.width)

    @property
    def slot(self) -> int:
        """The bytes of a strip."""
        p = self.problem
        return max(
            rounded(p.a.size(self.height, p.k)), rounded(p.b.size(p.k, self.width))
        )  # fmt: skip

    @property
    def is_shared(self) -> bool:
        """Whether a strip of A is also one of B, because B is A transposed."""
        return self.problem.shared == "transposed" and self.height == self.width

    @property
    def result(self) -> int:
        """The bytes of a piece of D."""
        return rounded(self.problem.d.size(self.height, self.width))

    @property
    def memory(self) -> int:
        """The bytes of all strips and pieces of D on the GPU."""
        return self.slots * self.slot + RESULTS * self.result

    @property
    def passes(self) -> int:
        """The number of times that the strips of one matrix pass by."""
        return -(-self.counts[self.holds_b] // self.held)

    @property
    def copies(self) -> int:
        """The number of strips that are copied to the GPU."""
        outer, inner = self.counts if not self.holds_b else self.counts[::-1]
        stay = min(self.slots - self.held, inner)  # from one pass to the next
        return outer + self.passes * inner - (self.passes - 1) * stay

    def order(self) -> Iterator[Pair]:
        """Yield the strips of A and B that are multiplied, pair by pair."""
        outer, inner = self.counts if not self.holds_b else self.counts[::-1]
        stay = max(1, min(self.slots - self.held, inner))
        there: list[int] = []  # the passing strips that are on the GPU, the oldest first
        rest = list(range(inner))
        for begin in range(0, outer, self.held):
            held = list(range(begin, min(begin + self.held, outer)))
            visited: list[int] = []
            if there:
                pairs = [(x, y) for x in held for y in there]
                visited += there
            else:
                pairs = list(_arriving(held, rest[:stay]))
                visited, rest = rest[:stay], rest[stay:]
            for at, y in enumerate(rest):
                visited.append(y)
                pairs += [(x, y) for x in (held if at % 2 == 0 else held[::-1])]
            there, rest = visited[-stay:], visited[:-stay][::-1]
            yield from ((y, x) if self.holds_b else (x, y) for x, y in pairs)

    def plan(self) -> HostPlan:
        """Return the plan of the steps."""
        p = self.problem
        count_a, count_b = self.counts
        matrix = "B" if self.holds_b else "A"
        words = (
            f"strips of {self.height:,} rows of A ({count_a}) and {self.width:,} columns of B "
            f"({count_b}), {self.slots} at once, {self.held} of {matrix} staying"
        )
        bytes_in = sum(_bytes(p, step) for step in self._steps() if isinstance(step, CopyIn))
        return HostPlan(self.memory, bytes_in, p.bytes_out, words, self._steps)

    def _steps(self) -> Iterator[Step]:
        p = self.problem
        pairs = list(self.order())
        of_b = "A" if self.is_shared else "B"
        uses: dict[tuple[str, int], list[int]] = defaultdict(list)  # the last use first
        for at in range(len(pairs) - 1, -1, -1):
            uses["A", pairs[at][0]].append(at)
            uses[of_b, pairs[at][1]].append(at)
        slots: dict[tuple[str, int], int] = {}
        free = list(range(self.slots - 1, -1, -1))
        last_use: dict[tuple[str, int], int] = {}
        depth = Span(0, p.k)
        for at, pair in enumerate(pairs):
            wanted = ("A", pair[0]), (of_b, pair[1])
            rows = span_of(pair[0], self.height, p.m)
            columns = span_of(pair[1], self.width, p.n)
            for strip, lines in zip(wanted, (rows, columns), strict=True):
                if strip in slots:
                    continue
                if not free:
                    gone = max(
                        (x for x in slots if x not in wanted),
                        key=lambda x: (uses[x][-1] if uses[x] else len(pairs), -last_use[x]),
                    )
                    free.append(slots.pop(gone))
                slots[strip] = free.pop()
                region = self._strip(strip, slots[strip])
                if strip[0] == "A":
                    yield CopyIn("A", ONE, lines, depth, region)
                else:
                    yield CopyIn("B", ONE, depth, lines, region)
            for strip in wanted:
                while uses[strip] and uses[strip][-1] <= at:
                    uses[strip].pop()
                last_use[strip] = at
            offset = self.slots * self.slot + at % RESULTS * self.result
            pitch = p.d.pitch(self.height, self.width)
            result = Region((self.slots + at % RESULTS,), offset, pitch)
            if p.reads_c:
                yield CopyIn("C", ONE, rows, columns, result)
            a, b = (self._strip(strip, slots[strip]) for strip in wanted)
            yield Compute(1, rows.size, columns.size, p.k, a, b, result)
            yield CopyOut(ONE, rows, columns, result)

    def _strip(self, strip: tuple[str, int], slot: int) -> Region:
        p = self.problem
        pitch = p.a.pitch(self.height, p.k) if strip[0] == "A" else p.b.pitch(p.k, self.width)
        return Region((slot,), slot * self.slot, pitch)


def _arriving(held: list[int], passing: list[int]) -> Iterator[Pair]:
    """Yield the pairs of two lots of strips that arrive in turn, as soon as both are there."""
    there: tuple[list[int], list[int]] = ([], [])
    for at in range(max(len(held), len(passing))):
        if at < len(held):
            there[0].append(held[at])
            yield from ((held[at], y) for y in there[1])
        if at < len(passing):
            there[1].append(passing[at])
            yield from ((x, passing[at]) for x in there[0])


def _bytes(p: HostProblem, step: CopyIn) -> int:
    item = {"A": p.a, "B": p.b, "C": p.d}[step.matrix].item
    return step.batch.size * step.rows.size * step.columns.size * item
