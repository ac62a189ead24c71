"""Products of float32 and float64 with a few rows or columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product as combinations
from operator import attrgetter, itemgetter
from typing import Any

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import splitk
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.simt.timing import H200_CLOCK, rates
from tilewise.gemm.families.thin.sides import Sides, sides
from tilewise.gemm.family import Offer
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import (
    ALIGNMENT,
    ITEM_SIZES,
    REAL,
    WORKSPACE,
    A,
    B,
    C,
    D,
    Operand,
    Product,
)
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch, Packed, Place

name = "thin_real"

FOLDER = SOURCES / "gemm"
PRODUCT = FOLDER / "thin_real.cuh"
WARPS = 8  # of the kernels
ROWS = 4  # of a warp, where they lie along k
DEEP = {1: 8, 2: 8, 4: 8, 8: 4}  # of k at once, where they lie across, by the thin matrix's lines
MOST = 8  # lines of the thin matrix
LARGEST = 2**31 - 2**16  # the kernel counts by int, up to a step past the end
SPLITS = (1, 8)  # of k, by the warps of a block: 2 and 4 gain next to nothing
PARTS = tuple(1 << i for i in range(11))  # that blocks divide k into, at most
MOST_WORKSPACE = 1 << 28  # bytes

# Of both kernels, by whether the lines of ``many`` lie along k, and by how many ``few`` has.
# Blocks of a multiprocessor: what their registers leave room for.
RESIDENTS = {
    True: {"float32": {1: 4, 2: 3, 4: 3, 8: 2}, "float64": {1: 4, 2: 3, 4: 2, 8: 2}},
    False: {"float32": {1: 3, 2: 3, 4: 2, 8: 2}, "float64": {1: 4, 2: 3, 4: 2, 8: 2}},
}

# Of an H200.
START, RATE = 0.88e-6, 1.077  # seconds, and the share of the GPU's memory rate
BLOCK, BLOCK_LINE = 0.61e-6, 0.057e-6  # a block's start and its end, and of those each line's
CACHE_LINE, EACH_CACHE_LINE = 128, 7e-9  # bytes, and seconds that one more takes a step
# Seconds of a warp's step, where ``many`` is read by 16 bytes or else by elements.
STEPS = {
    True: {
        "float32": {
            True: {1: 0.51e-6, 2: 0.57e-6, 4: 0.67e-6, 8: 0.88e-6},
            False: {1: 1.3e-6, 2: 1.2e-6, 4: 0.9e-6, 8: 1.1e-6},
        },
        "float64": {
            True: {1: 0.51e-6, 2: 0.55e-6, 4: 0.63e-6, 8: 0.80e-6},
            False: {1: 0.53e-6, 2: 0.52e-6, 4: 0.52e-6, 8: 1.7e-6},
        },
    },
    False: {
        "float32": {
            True: {1: 0.8e-6, 2: 0.8e-6, 4: 0.9e-6, 8: 1.1e-6},
            False: {1: 1.1e-6, 2: 1.1e-6, 4: 1.2e-6, 8: 1.4e-6},
        },
        "float64": {
            True: {1: 0.8e-6, 2: 0.8e-6, 4: 0.9e-6, 8: 1.1e-6},
            False: {1: 1.0e-6, 2: 1.0e-6, 4: 1.1e-6, 8: 1.3e-6},
        },
    },
}


@dataclass(frozen=True)
class Thin(Sides):
    """A product as the kernels compute it.

    Attributes
    ----------
    along : bool
        Whether the elements of a line of ``many`` are neighbours, or those of the lines at one k.
    width, few_width : int
        Elements of each that are read at once.
    """

    along: bool
    width: int
    few_width: int

    @property
    def count(self) -> int:
        """Lines of the thin matrix that the kernel is compiled for: a power of two."""
        return 1 << (self.few_rows - 1).bit_length()


def thin(product: Product) -> Thin | None:
    """How the kernels would compute a product; None if they can't.

    They take a matrix with a contiguous dimension, and at most :data:`MOST` rows or columns,
    wherever they lie.
    """
    if product.dtype not in REAL or product.alpha == 0 or not product.k:
        return None
    if not 0 < max(product.m, product.n, product.k, product.batch) <= LARGEST:
        return None
    found = sides(product)
    many, few = found.many, found.few
    along = many.column_stride == 1 or product.k == 1
    if found.few_rows > MOST or not (along or many.row_stride == 1 or found.rows == 1):
        return None
    piece = ALIGNMENT // ITEM_SIZES[product.dtype]
    if -(-found.rows // (ROWS if along else 32 * piece)) > MAX_GRID[0]:
        return None

    def is_aligned(operand: Operand, *pitches: int) -> bool:
        return not operand.offset and not any(x % piece for x in (*pitches, operand.batch_stride))

    few_pitch = few.row_stride if found.few_rows > 1 else 0
    few_is_aligned = few.column_stride == 1 and is_aligned(few, few_pitch)
    if along:
        pitch = many.row_stride if found.rows > 1 else 0
        width = piece if many.column_stride == 1 and is_aligned(many, pitch) else 1
        few_is_aligned = few_is_aligned and width > 1
    else:
        width = piece if is_aligned(many, many.column_stride, found.rows) else 1
        few_is_aligned = few_is_aligned and width > 1  # one kernel less for what is rare
    return Thin(**vars(found), along=along, width=width, few_width=piece if few_is_aligned else 1)


@dataclass(frozen=True)
class Division:
    """Of k: by ``split`` warps of a block, and by ``parts`` blocks of ``part_k`` each.

    ``blocks`` share the rows, of each matrix and part; ``seconds`` is how long the product should
    take so.
    """

    split: int
    parts: int
    part_k: int
    blocks: int
    seconds: float


def objection(product: Product, chip: Chip | None) -> str:
    """Return why the family can't compute a product; empty if it can."""
    if chip is None:
        return "this is no GPU of compute capability 8.0 or above"
    if product.dtype not in REAL:
        return f"the inputs are {product.dtype}"
    return "" if thin(product) else f"it has more than {MOST} rows and columns, or none contiguous"


def best(product: Product, chip: Chip | None) -> Offer | None:
    """Return the offer that should be fastest; None where there is an objection."""
    if chip is None or min(product.m, product.n) > MOST:
        return None
    view = thin(product)
    if view is None:
        return None
    return _offer(product, view, Division(*min(_timed(product, view, chip), key=_LAST)), chip)


def offers(product: Product, chip: Chip | None) -> Iterator[Offer]:
    """Return every offer worth measuring, the one that should be fastest first."""
    view = None if chip is None else thin(product)
    if chip is not None and view is not None:
        for each in sorted(divisions(product, view, chip), key=attrgetter("seconds")):
            yield _offer(product, view, each, chip)


def offer(product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
    """Return the offer with these choices; None where the product can't be computed so."""
    return next((each for each in offers(product, chip) if each.choice == choice), None)


def kernels(chip: Chip | None, dtype: str) -> Iterable[Kernel]:
    """Return every kernel that :func:`best` can ask for with these inputs on this GPU."""
    if chip is None or dtype not in REAL:
        return ()
    piece = ALIGNMENT // ITEM_SIZES[dtype]
    widths = ((1, 1), (piece, 1), (piece, piece))
    found = [
        _kernel(dtype, along, count, *width, split, chip.is_hopper)
        for along, count, width, split in combinations((True, False), DEEP, widths, SPLITS)
    ]
    return (*found, *splitk.kernels(dtype, chip.is_hopper))


def _offer(product: Product, view: Thin, division: Division, chip: Chip) -> Offer:
    words = f"{division.split} warps, {division.parts} parts"
    choice = {"split": division.split, "parts": division.parts}
    make = partial(planned, product, view, division, chip.is_hopper)
    return Offer(name, division.seconds, make, choice, words)


def divisions(product: Product, view: Thin, chip: Chip) -> list[Division]:
    """Return every way to divide k, timed by a model of steps and of memory.

    Parameters
    ----------
    product : Product
    view : Thin
        Of the product.
    chip : Chip
    """
    return [Division(*each) for each in _timed(product, view, chip)]


_LAST = itemgetter(-1)


def _timed(
    product: Product, view: Thin, chip: Chip
) -> list[tuple[int, int, int, int, float]]:  # fmt: skip
    """Return what the :func:`divisions` have."""
    dtype, k, batch, along, count = product.dtype, product.k, product.batch, view.along, view.count
    item = ITEM_SIZES[dtype]
    gpu = rates(chip)
    slow = H200_CLOCK / gpu.clock
    piece = ALIGNMENT // item
    # Of k, a warp's step; and its rows.
    deep, of_step = (32 * piece, ROWS) if along else (DEEP[count], 32 * piece)
    read = batch * k * (view.rows + view.few_rows) * item / (RATE * gpu.memory)
    steps = -(-k // deep)
    at_once = gpu.multiprocessors * RESIDENTS[along][dtype][count]
    step = STEPS[along][dtype][view.width > 1][count]
    if along:
        step += count * piece * _cache_lines(view, item) * EACH_CACHE_LINE
    step, block = slow * step, slow * (BLOCK + BLOCK_LINE * count)
    of_part = batch * view.few_rows * -(-view.rows // piece)  # pieces of 16 bytes
    found = []
    for split in SPLITS:
        blocks = -(-view.rows // (of_step * WARPS // split))
        last = 0
        for most in PARTS:
            of_warp = -(-steps // (split * most))  # steps
            if of_warp == last:
                continue
            last = of_warp
            part_k = of_warp * split * deep
            parts = -(-k // part_k)
            if parts > 1 and parts * of_part * ALIGNMENT > MOST_WORKSPACE:
                break
            computing = -(-batch * blocks * parts // at_once) * (block + of_warp * step)
            expected = START + math.hypot(computing, read)
            if parts > 1:
                expected += splitk.seconds(of_part, parts, dtype, gpu.memory)
            found.append((split, parts, part_k, blocks, expected))
    return found


def _cache_lines(view: Thin, item: int) -> int:
    """Of the cache: those in which a warp's lanes find ``few``'s elements; 0 if they share them."""
    apart = view.width * view.few.column_stride * item
    return min(32, 32 * apart // CACHE_LINE) if apart >= CACHE_LINE // 2 else 0


def planned(product: Product, view: Thin, division: Division, is_hopper: bool) -> Plan:
    """The plan of a division.

    Parameters
    ----------
    product : Product
    view : Thin
        Of the product.
    division : Division
    is_hopper : bool
        Whether the GPU is of compute capability 9.0.
    """
    split, parts = division.split, division.parts
    grid = (division.blocks, min(product.batch, MAX_GRID[1]), parts)
    kernel = _kernel(
        product.dtype, view.along, view.count, view.width, view.few_width, split, is_hopper
    )
    lying = product if view.swapped else product.transposed
    packed = _packed(lying, view, division)
    steps = [Step(kernel, Launch(grid, (32 * WARPS, 1, 1), (packed,), overlap=is_hopper))]
    rows = ROWS if view.along else 32 * ALIGNMENT // ITEM_SIZES[product.dtype]
    words, workspace = f"the thin kernel without tensor cores, {rows} x {view.count} a warp", 0
    if split > 1:
        words += f", k divided by {split}"
    if parts > 1:
        steps.append(splitk.step(lying, parts, Place(WORKSPACE), is_hopper))
        workspace = parts * splitk.elements(lying) * ITEM_SIZES[product.dtype]
        words += f", in {parts} parts that are added up afterwards"
    return Plan(
        steps=tuple(steps),
        workspace=workspace,
        chosen=words,
        why=f"{'B' if view.swapped else 'A'} is read once, where it lies: "
        f"it should take {division.seconds * 1e6:.1f} µs",
    )


@cache
def _kernel(
    dtype: str, along: bool, count: int, width: int, few_width: int, split: int, overlap: bool
) -> Kernel:
    file = "thin_real_k_major" if along else "thin_real_mn_major"
    defines = {
        "real": REAL[dtype], "FEW": count, "WIDTH": width, "FEW_WIDTH": few_width, "SPLIT": split,
        "DEEP": ALIGNMENT // ITEM_SIZES[dtype] // width if along else DEEP[count],
        "RESIDENTS": RESIDENTS[along][dtype][count], "OVERLAP": int(overlap),
    }  # fmt: skip
    if along:
        defines["ROWS"] = ROWS
    return Kernel(FOLDER / f"{file}.cu", file, defines)


def _packed(lying: Product, view: Thin, division: Division) -> Packed:
    """The kernel's Product, of one whose thin matrix is A."""
    alpha, beta, c, d, at = lying.alpha, lying.beta, lying.c, lying.d, Place(D)
    stored = lying.n
    if division.parts > 1:
        # The parts' sums are plain; alpha and beta come with the addition.
        stored = splitk.pitch(lying)
        alpha, beta, c, d = 1.0, 0.0, None, Operand(stored, 1, lying.m * stored)
        at = Place(WORKSPACE)
    many, few = view.many, view.few
    many_at, few_at = (B, A) if view.swapped else (A, B)
    reads_c = c is not None and beta != 0
    c = c or d
    return layout(PRODUCT, "Product", real=REAL[lying.dtype]).pack({
        "many": Place(many_at), "few": Place(few_at), "c": Place(C) if reads_c else None, "d": at,
        "many_pitch": many.row_stride if view.along else many.column_stride,
        "many_step": many.batch_stride,
        "few_pitch": few.row_stride, "few_along": few.column_stride, "few_step": few.batch_stride,
        "c_many": c.column_stride, "c_few": c.row_stride, "c_step": c.batch_stride,
        "d_many": d.column_stride, "d_few": d.row_stride, "d_step": d.batch_stride,
        "part_stride": splitk.elements(lying),
        "rows": view.rows, "few_rows": view.few_rows, "k": lying.k, "batch": lying.batch,
        "stored": stored, "part_k": division.part_k, "alpha": alpha, "beta": beta,
    })  # fmt: skip
