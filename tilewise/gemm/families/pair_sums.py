"""Compute products of pairs by other families: plain products, then a launch of the function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused, splitk
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.family import Family, Offer
from tilewise.gemm.layouts import TYPES, batched_matrix, layout
from tilewise.gemm.product import ACCUMULATORS, ALIGNMENT, REAL, WORKSPACE, B, D, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place

SOURCE = SOURCES / "gemm" / "pair_sums.cu"
THREADS = 256  # as in pair_sums.cu
PAGE = 256  # bytes: parts of the workspace begin at multiples of it


class Sums(NamedTuple):
    """A plain product, whose sums go to the workspace.

    Attributes
    ----------
    product : Product
    b : Place
        The place of its B.
    """

    product: Product
    b: Place

    @property
    def bytes(self) -> int:
        """The bytes of the sums, rounded up to a whole page."""
        x = self.product
        size = x.batch * x.m * x.d.row_stride * ITEM_SIZES[x.out_dtype]
        return -(-size // PAGE) * PAGE


def sums_of(product: Product) -> list[Sums]:
    """Return the plain products of a product of pairs: one if an array holds B and U, else two."""
    pairing = product.pairing
    assert pairing is not None
    if pairing.whole is not None:
        return [_sums(product, pairing.whole, 2 * product.n, Place(B))]
    return [
        _sums(product, product.b, product.n, Place(B)),
        _sums(product, pairing.operand, product.n, product.up_at(Place(B))),
    ]


def _sums(product: Product, b: Operand, n: int, at: Place) -> Sums:
    sums = ACCUMULATORS[product.dtype]
    width = ALIGNMENT // ITEM_SIZES[sums]
    pitch = -(-n // width) * width
    d = Operand(pitch, 1, product.m * pitch)
    return Sums(
        product._replace(
            n=n, b=b, c=None, d=d, out_dtype=sums, beta=0.0, epilogue=None, pairing=None
        ),
        at,
    )


class PairSums(Family):
    """The family that computes products of pairs by the plain products of other families.

    Parameters
    ----------
    families : sequence of Family
        The families that compute the plain products.
    """

    name = "pair_sums"

    def __init__(self, families: Sequence[Family]) -> None:
        self.families = families

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return an empty objection, since the family takes every product of pairs."""
        return ""

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer with the plain products that should be fastest."""
        return self._offer(product, chip, lambda family, x: family.best(x, chip))

    def offers(self, product: Product, chip: Chip | None) -> Iterator[Offer]:
        """Yield for each family the offer with its plain products."""
        for family in self.families:
            found = self._offer(product, chip, _of(family, chip))
            if found is not None:
                yield found

    def kernels(self, chip: Chip | None, dtype: str) -> Iterable[Kernel]:
        """Return no kernels, because each kernel has a caller's function in it."""
        return ()

    def _offer(
        self,
        product: Product,
        chip: Chip | None,
        ask: Callable[[Family, Product], Offer | None],
    ) -> Offer | None:
        """Return the fastest offer that ``ask`` gets for the plain products; None without one."""
        found = sums_of(product)
        chosen = []
        for each in found:
            answers = (ask(family, each.product) for family in self.families)
            best = min((x for x in answers if x is not None), key=lambda x: x.rank, default=None)
            if best is None:
                return None
            chosen.append(best)
        memory = (chip or H200).memory
        stored = 2 * product.batch * product.m * product.n * ITEM_SIZES[found[0].product.out_dtype]
        seconds = splitk.START * len(found) + 2 * stored / memory + sum(x.seconds for x in chosen)
        of_sums = sum(x.rank for x in chosen) / sum(x.seconds for x in chosen)
        return Offer(
            self.name,
            seconds,
            partial(_plan, product, found, chosen, chip is not None and chip.is_hopper),
            choice={"of": [{"family": x.family, **x.choice} for x in chosen]},
            words=f"{' and '.join(x.words for x in chosen)}; then pair_sums",
            margin=of_sums,
            divides_k=any(x.divides_k for x in chosen),
        )


def _of(only: Family, chip: Chip | None) -> Callable[[Family, Product], Offer | None]:
    return lambda family, x: family.best(x, chip) if family is only else None


def _plan(product: Product, found: Sequence[Sums], chosen: Sequence[Offer], overlap: bool) -> Plan:
    """Return the plan: the plain products, one after another, and the launch of the function."""
    steps: list[Step] = []
    at, used, most = [], 0, 0
    for each in found:
        at.append(Place(WORKSPACE, used))
        used += each.bytes
    words = []
    for each, sums, offer in zip(found, at, chosen, strict=True):
        plan = offer.make()
        to = {D: sums, B: each.b, WORKSPACE: Place(WORKSPACE, used)}
        steps += (Step(step.kernel, step.launch.moved(to)) for step in plan.steps)
        most = max(most, plan.workspace)
        words.append(plan.chosen)
    steps.append(_step(product, found, at, overlap))
    chosen_words = f"{' and '.join(dict.fromkeys(words))}; then the pairs of their sums"
    return Plan(tuple(steps), used + most, chosen_words, "")


def _step(product: Product, found: Sequence[Sums], at: Sequence[Place], overlap: bool) -> Step:
    """Return the launch that computes D from the sums."""
    x, sums, item = product, found[0].product, ITEM_SIZES[found[0].product.out_dtype]
    up, column_step = at[-1], 1
    if len(found) == 1:
        # A B has the columns of the array of both, in their order.
        is_interleaved = x.order == "interleaved"
        column_step = 2 if is_interleaved else 1
        up = Place(WORKSPACE, at[0].offset + item * (1 if is_interleaved else x.n))
    types = {"real": REAL[sums.out_dtype], "OUTPUT": TYPES[x.out_dtype]}
    given = layout(SOURCE, "PairSums", **types).pack({
        "gate": at[0], "up": up, "pitch": sums.d.row_stride, "column_step": column_step,
        "m": x.m, "n": x.n, "batch": x.batch, "d": batched_matrix(x.d, Place(D)),
    })  # fmt: skip
    grid = (-(-x.n // THREADS), min(x.batch * x.m, MAX_GRID[1]), 1)
    launch = Launch(grid, (THREADS, 1, 1), (given,), overlap=overlap)
    return fused.step(_kernel(sums.out_dtype, x.out_dtype, overlap), launch, product)


@cache
def _kernel(sums: str, out_dtype: str, overlap: bool) -> Kernel:
    defines = {"real": REAL[sums], "OUTPUT": TYPES[out_dtype], "OVERLAP": int(overlap)}
    return Kernel(SOURCE, "pair_sums", defines)
