"""Grouped products by ``mma.sync``: 16 bits, on every GPU since compute capability 8.0."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from tilewise.gemm import fused
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.mma.kernel import (
    GROUP,
    HEADER,
    LARGEST,
    Matrix,
    macros_of,
    matrix_of,
    wide_reads,
)
from tilewise.gemm.families.mma.model import table_of
from tilewise.gemm.families.mma.tiles import ITEM, SHALLOW, Tiles
from tilewise.gemm.family import NO_RATES, FamilyOf, Offer
from tilewise.gemm.grouped.hopper_family import GroupedHopper
from tilewise.gemm.grouped.model import covered
from tilewise.gemm.grouped.product import OFFSET_TYPES, OFFSETS, A, B, D, Grouped
from tilewise.gemm.grouped.tiles import FEW_GROUPS, MOST_GROUPS
from tilewise.gemm.layouts import TYPES, batched_matrix, layout
from tilewise.gemm.product import ACCUMULATORS
from tilewise.gemm.steps import Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place
from tilewise.precision import HALVES
from tilewise.shown import expected_time

SOURCE = SOURCES / "gemm" / "grouped_mma.cu"
TABLES = 8  # bytes of shared memory for each group
SINGLE = tuple(x for x in SHALLOW if str(x) in ("128x64x32", "64x128x32", "64x64x64"))
NARROW = (*SINGLE, *(x for x in SHALLOW if str(x) in ("32x64x64", "64x32x64")))
"""The tiles for copies of single elements of both matrices, and those for matrices whose copies
take many registers (:func:`is_narrow`).
"""
NARROW_RESIDENTS = 2
"""The most blocks of such tiles on a multiprocessor: each thread then has up to 255 registers."""
COPY = 40
"""The number of multiply-adds that take as long as the copy of an element to shared memory."""


class GroupedMma(FamilyOf[Grouped]):
    """The family of the grouped ``mma.sync`` kernel."""

    name = "grouped_mma"

    def objection(self, product: Grouped, chip: Chip | None) -> str:
        """Return why the kernel can't take a product; empty if it can."""
        if chip is None:
            return NO_RATES
        if not _HOPPER.objection(product, chip):
            return "the Hopper kernel takes it"
        return objection(product)

    def best(self, product: Grouped, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest; None where there is an objection.

        It is the only offer, because the model knows the times of other tiles even less well.
        """
        if chip is None or self.objection(product, chip):
            return None
        tiles = best(product, chip)
        time = seconds(product, tiles, chip)
        why = (
            f"{_HOPPER.objection(product, chip)}; of its tiles these should be the fastest, "
            f"about {expected_time(time)}, as a batch of groups of one size"
        )

        def make() -> Plan:
            return plan(product, tiles, chip.multiprocessors, chip.capability >= 90).because(why)

        return Offer(self.name, time, make, {"tiles": str(tiles)}, _words(tiles))

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can ask for."""
        if chip is None or dtype not in HALVES:
            return
        reads = [*wide_reads(), *(Matrix(is_k_major, 0, 1) for is_k_major in (True, False))]
        outs = dict.fromkeys((dtype, ACCUMULATORS[dtype]))
        for of, out, offset, most in itertools.product(
            "mk", outs, OFFSET_TYPES, (FEW_GROUPS, MOST_GROUPS)
        ):
            # Groups of k begin anywhere, so that only MN-major matrices have wide copies; groups
            # of rows of A do, so that only a k-major A has.
            of_a = [x for x in reads if x.width == 1 or x.is_k_major == (of == "m")]
            of_b = [x for x in reads if x.width == 1 or of == "m" or not x.is_k_major]
            for a, b in itertools.product(of_a, of_b):
                for tiles in fitting(chip, most, a, b):
                    resident = with_registers(tiles, a, b)
                    overlap = chip.capability >= 90
                    yield _kernel(of, dtype, out, offset, resident, most, a, b, overlap)


_HOPPER = GroupedHopper()


def objection(product: Grouped) -> str:
    """Return why the kernel can't take a product; empty if it can."""
    p = product
    if p.dtype not in HALVES:
        return f"the inputs are {p.dtype}, not 16-bit"
    if p.groups > MOST_GROUPS:
        return f"there are {p.groups:,} groups, more than {MOST_GROUPS:,}"
    if max(p.m, p.n, p.k, *(tile_count(p, x) for x in SHALLOW)) > LARGEST:
        return "it is too large"
    for name, x in zip("AB", matrices(p), strict=True):
        if x is None:
            return f"neither dimension of {name} is contiguous"
    if p.a.offset % ITEM or p.b.offset % ITEM:
        return f"A or B does not begin at a multiple of {ITEM} bytes"
    return ""


def matrices(product: Grouped) -> tuple[Matrix | None, Matrix | None]:
    """Return how the kernel reads A and the transpose of B."""
    p = product
    of_a, of_b, _ = p.batches
    a, b = matrix_of(p.a, p.m, p.k, of_a), matrix_of(p.b.transposed, p.n, p.k, of_b)
    if a is not None and a.is_k_major is (p.of == "k"):
        a = a._replace(width=1, is_partial=False)  # groups begin anywhere
    if b is not None and b.is_k_major and p.of == "k":
        b = b._replace(width=1, is_partial=False)
    return a, b


def tile_count(product: Grouped, tiles: Tiles) -> int:
    """Return the most tiles that there can be."""
    p = product
    across = -(-p.n // tiles.block_n)
    if p.of == "k":
        return -(-p.m // tiles.block_m) * across * p.groups
    return (p.m // tiles.block_m + min(p.groups, p.m)) * across


def best(product: Grouped, chip: Chip) -> Tiles:
    """Return the tiles that should be fastest for groups of about the mean extent."""
    p = product
    active = max(1, min(p.groups, p.total))

    def cost(tiles: Tiles) -> float:
        across = -(-p.n // tiles.block_n)
        if p.of == "k":
            count: float = active * across * -(-p.m // tiles.block_m)
        else:
            rows = active * covered(p.total / active, tiles.block_m)
            count = rows / tiles.block_m * across
        m, n = tiles.block_m, tiles.block_n
        return max(1.0, count / chip.multiprocessors) * max(m * n, COPY * (m + n))

    a, b = matrices(p)
    assert a is not None
    assert b is not None
    most = FEW_GROUPS if p.groups <= FEW_GROUPS else MOST_GROUPS
    return min(fitting(chip, most, a, b), key=cost)


def is_narrow(a: Matrix, b: Matrix) -> bool:
    """Return whether copies are of so few elements that kernels of some tiles would spill.

    The addresses of copies of one or two elements take too many registers besides those that hold
    the bounds of a group. So do those of copies of four, if both matrices are copied so and the
    length of one of them is not a multiple of four. The kernel of :func:`.spills` has no groups.
    """
    fewest, most = sorted((a.width, b.width))
    return fewest <= 2 or (most == 4 and (a.is_partial or b.is_partial))


def fitting(chip: Chip, most_groups: int, a: Matrix, b: Matrix) -> list[Tiles]:
    """Return the tiles that a multiprocessor has the shared memory and the registers for."""
    tiles: Sequence[Tiles] = NARROW if is_narrow(a, b) else SHALLOW
    if a.width == b.width == 1:
        tiles = SINGLE
    return [x for x in tiles if x.shared + TABLES * most_groups + 1024 <= chip.shared]


def with_registers(tiles: Tiles, a: Matrix, b: Matrix) -> Tiles:
    """Return the tiles with at most as many blocks on a multiprocessor as registers allow."""
    if not is_narrow(a, b):
        return tiles
    return replace(tiles, residents=min(tiles.residents, NARROW_RESIDENTS))


def seconds(product: Grouped, tiles: Tiles, chip: Chip) -> float:
    """Return the time that a product should take: as long as a batch of groups of one extent.

    Nobody measured it: it is what the model of products by ``mma.sync`` says of that batch.
    """
    p, table = product, table_of(chip)
    a, b = matrices(p)
    assert a is not None
    assert b is not None
    step = tiles.block_k if p.of == "k" else tiles.block_m
    found = table.seconds(p.of_mean(covered(p.mean, step)), np.ones(1), [(a, b)])
    return float(found[0, table.tiles.index(tiles), 0])


def plan(product: Grouped, tiles: Tiles, multiprocessors: int, overlap: bool) -> Plan:
    """Return the plan of a product whose rows, or whose k, are in groups.

    Parameters
    ----------
    product : Grouped
    tiles : Tiles
    multiprocessors : int
        The number of the GPU's multiprocessors.
    overlap : bool
        Whether the kernel may begin before those ahead of it in the stream have ended.

    Raises
    ------
    ValueError
        If the kernel has an objection to the product.
    """
    p = product
    if words := objection(p):
        raise ValueError(f"the grouped kernel by mma.sync can't take this product: {words}")
    a, b = matrices(p)
    assert a is not None
    assert b is not None
    types = {"In": "u16", "Out": TYPES[p.out_dtype], "Real": "float"}
    given = layout(HEADER, "Product", **types).pack({
        "a": {"pointer": Place(A), "pitch": a.pitch, "batch_stride": 0, "count": p.m},
        "b": {
            "pointer": Place(B), "pitch": b.pitch, "count": p.n,
            "batch_stride": p.b.batch_stride if p.of == "m" else 0,
        },
        "c": None, "d": batched_matrix(p.d, Place(D)), "part_stride": 0, "m": p.m, "n": p.n,
        "k": p.k, "columns": p.n, "part_k": p.k, "group": GROUP, "alpha": 1.0, "beta": 0.0,
    })  # fmt: skip
    most = FEW_GROUPS if p.groups <= FEW_GROUPS else MOST_GROUPS
    read_a, read_b = (x._replace(pitch=0) for x in (a, b))
    tiles = with_registers(tiles, a, b)
    kernel = _kernel(
        p.of, p.dtype, p.out_dtype, p.offset_dtype, tiles, most, read_a, read_b, overlap
    )
    launch = Launch(
        (max(1, min(tile_count(p, tiles), multiprocessors * tiles.residents)), 1, 1),
        (tiles.threads, 1, 1), (given, Place(OFFSETS), p.groups), tiles.shared, overlap=overlap,
    )  # fmt: skip
    return Plan((fused.step(kernel, launch, p),), 0, _words(tiles), "")


def _words(tiles: Tiles) -> str:
    return f"the grouped kernel by mma.sync, tiles of {tiles.block_m} x {tiles.block_n}"


@cache
def _kernel(
    of: str, dtype: str, out_dtype: str, offset_dtype: str, tiles: Tiles, most_groups: int,
    a: Matrix, b: Matrix, overlap: bool,
) -> Kernel:  # fmt: skip
    return Kernel(SOURCE, "grouped_mma", {
        "K_IN_GROUPS": int(of == "k"), "OFFSET": OFFSET_TYPES[offset_dtype],
        "MOST_GROUPS": most_groups, "INPUT": TYPES[dtype], "OUTPUT": TYPES[out_dtype],
        **tiles.macros, **macros_of(a, b), "OVERLAP": int(overlap),
    })  # fmt: skip
