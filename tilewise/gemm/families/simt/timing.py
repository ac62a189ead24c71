"""How long products of float32 and float64 should take, by tiles of a size."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tilewise.gemm.product import ITEM_SIZES, Product

PHASES = Path(__file__).parent / "phases.json"
LAYOUTS = ("NN", "NT", "TN", "TT")  # A and B as they lie: by rows, or transposed
OFF = ("aligned", "B off", "A off", "both off")  # which of them are off 16 bytes
ALONE = ", alone"  # behind a while of the same kernel

# Seconds and bytes a second, of an H200.
START, RATE = 1.6e-6, 4.0e12
# Floating-point operations of a product whose clock, again and again, is the power limit's: set by
# what the kernel itself draws. Large tiles move less, and draw less.
LONG = 1e10


class Timed:
    """What sizes have in common: how many blocks compute D, and how long they should take."""

    block_m: int
    block_n: int
    block_k: int
    residents: int
    bulk: bool

    @cached_property
    def name(self) -> str:
        """As in records; kept, for the planner asks each for it again and again."""
        return str(self)

    def is_measured(self, dtype: str) -> bool:
        """Whether :meth:`timing` is known of them, with A's rows and B's contiguous."""
        return f"{dtype} {self.name}" in _measured()[kind(True, False)]

    def blocks(self, product: Product) -> int:
        """That compute D, where they do not divide k."""
        down, across = -(-product.m // self.block_m), -(-product.n // self.block_n)
        return down * across * product.batch

    def timing(
        self, product: Product, multiprocessors: int, lying: str, of: Product | None = None
    ) -> Timing:
        """How long a product should take.

        Parameters
        ----------
        product : Product
        multiprocessors : int
            Of the GPU.
        lying : str
            How A and B do: :func:`kind`.
        of : Product, optional
            Of which it is a piece, and whose clock it has.
        """
        item, dtype, name = ITEM_SIZES[product.dtype], product.dtype, self.name
        of_d = product.batch * product.m * product.n
        read = product.batch * product.k * (product.m + product.n)
        whole = of or product
        is_long = 2 * whole.batch * whole.m * whole.n * whole.k > LONG
        return Timing(
            phase=_phase(lying, dtype, name),
            of_block=_of_block(lying, dtype, name),
            slower=_slower_alone(lying, dtype, name) if is_long else 1.0,
            stored=self.block_m * self.block_n * multiprocessors * item / RATE,
            moved=(read + of_d) * item / RATE,
            k=product.k,
            block_k=self.block_k,
            blocks=self.blocks(product),
            multiprocessors=multiprocessors,
            residents=self.residents,
        )


@dataclass(frozen=True, eq=False)
class Timing:
    """What decides how long a product takes by tiles of one size.

    Attributes
    ----------
    phase : tuple of float
        Seconds of a phase, of 1, 2, ... blocks of each multiprocessor at once.
    of_block : float
        Of them, what a block takes at least.
    slower : float
        How much longer it takes at this product's clock.
    stored, moved : float
        Seconds that a wave of blocks stores D, and that memory takes for A, B and D.
    k, block_k, blocks, multiprocessors, residents : int
    """

    phase: tuple[float, ...]
    of_block: float
    slower: float
    stored: float
    moved: float
    k: int
    block_k: int
    blocks: int
    multiprocessors: int
    residents: int

    def seconds(self, parts: int) -> float:
        """That the product should take, k in so many parts; without their addition."""
        phases = -(-part_k(self.k, parts, self.block_k) // self.block_k)
        waiting = -(-self.blocks * parts // self.multiprocessors)  # of one multiprocessor
        waves, rest = divmod(waiting, self.residents)
        # Two that began together end together, and two of what is left may follow them on one
        # multiprocessor; more of them are spread by then.
        last = self.residents if waves and self.residents == 2 else rest
        of_phases = waves * self.phase[-1] + (self.phase[last - 1] if rest else 0.0)
        # Of each wave, one block stores while nobody computes.
        computing = phases * of_phases * self.slower + (waves + (rest > 0)) * self.stored
        # Either waits for the other a little where both take as long.
        return START + math.hypot(computing, self.moved)

    @property
    def least(self) -> float:
        """What :meth:`seconds` is never below."""
        phases = self.k / self.block_k * self.blocks / self.multiprocessors
        return START + math.hypot(phases * self.of_block * self.slower, self.moved)


def kind(a_along_k: bool, b_along_k: bool, a_is_off: bool = False, b_is_off: bool = False) -> str:
    """How A and B lie, and which are off 16 bytes: a phase takes as long as was measured so."""
    return f"{LAYOUTS[2 * (not a_along_k) + b_along_k]} {OFF[2 * a_is_off + b_is_off]}"


@cache
def _phase(lying: str, dtype: str, name: str) -> tuple[float, ...]:
    """Seconds of a phase, of 1, 2, ... blocks of each multiprocessor at once.

    Measured on an H200 by benchmarks/fma_tilings.py.
    """
    return tuple(1e-9 * float(each) for each in _measured()[lying][f"{dtype} {name}"].split())


@cache
def _of_block(lying: str, dtype: str, name: str) -> float:
    return min(seconds / count for count, seconds in enumerate(_phase(lying, dtype, name), 1))


@cache
def _slower_alone(lying: str, dtype: str, name: str) -> float:
    """How much longer a phase takes at the clock that is left to the same kernel all the time.

    Measured of what is aligned. Off 16 bytes it is taken to be no less than in turn with others.
    """
    aligned = f"{lying.split()[0]} {OFF[0]}"
    alone = _measured()[aligned + ALONE][f"{dtype} {name}"]
    slower = 1e-9 * float(alone) / _phase(aligned, dtype, name)[-1]
    return slower if lying == aligned else max(1.0, slower)


@cache
def _measured() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(PHASES.read_text(encoding="utf-8"))
    return found


def part_k(k: int, parts: int, block_k: int) -> int:
    """What each of the parts has of k, whole tiles."""
    return -(-k // (parts * block_k)) * block_k
