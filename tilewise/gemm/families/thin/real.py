"""Products of float32 and float64 with a few rows or columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product as combinations
from operator import attrgetter

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import splitk
from tilewise.gemm.families.thin.sides import Sides, sides
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

FOLDER = SOURCES / "gemm"
PRODUCT = FOLDER / "thin_real.cuh"
WARPS = 8  # of the kernels
ROWS = 4  # of a warp, where they lie along k
DEEP = {1: 8, 2: 8, 4: 8, 8: 4}  # of k at once, where they lie across, by the thin matrix's lines
MOST = 8  # lines of the thin matrix
LARGEST = 2**31 - 2**16  # the kernel counts by int, up to a step past the end
SPLITS = (1, 2, 4, 8)
PARTS = tuple(1 << i for i in range(11))  # that blocks divide k into, at most
MOST_WORKSPACE = 1 << 28  # bytes

# Of both kernels, by whether the lines of ``many`` lie along k, and by how many ``few`` has.
# Blocks of a multiprocessor: what their registers leave room for.
RESIDENTS = {
    True: {"float32": {1: 4, 2: 3, 4: 3, 8: 2}, "float64": {1: 4, 2: 3, 4: 2, 8: 2}},
    False: {"float32": {1: 3, 2: 3, 4: 2, 8: 2}, "float64": {1: 4, 2: 3, 4: 2, 8: 2}},
}

# Of an H200: `python benchmarks/fma_choices.py --suite thin` shows what they come to.
START, RATE = 0.88e-6, 4.6e12  # seconds, and bytes a second
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


def best(product: Product, view: Thin, multiprocessors: int) -> Division:
    """Of the :func:`divisions`, the one that should be fastest."""
    return min(divisions(product, view, multiprocessors), key=attrgetter("seconds"))


def divisions(product: Product, view: Thin, multiprocessors: int) -> Iterator[Division]:
    """Every way to divide k, timed by a model of steps and of memory.

    Parameters
    ----------
    product : Product
    view : Thin
        Of the product.
    multiprocessors : int
    """
    item = ITEM_SIZES[product.dtype]
    piece = ALIGNMENT // item
    # Of k, a warp's step; and its rows.
    deep, of_step = (32 * piece, ROWS) if view.along else (DEEP[view.count], 32 * piece)
    read = product.batch * product.k * (view.rows + view.few_rows) * item / RATE
    steps = -(-product.k // deep)
    stored = product if view.turned else product.transposed
    of_part = splitk.elements(stored) * item
    at_once = multiprocessors * RESIDENTS[view.along][product.dtype][view.count]
    step = STEPS[view.along][product.dtype][view.width > 1][view.count]
    if view.along:
        step += view.count * piece * _cache_lines(view, item) * EACH_CACHE_LINE
    for split, most in combinations(SPLITS, PARTS):
        of_warp = -(-steps // (split * most))  # steps
        part_k = of_warp * split * deep
        parts = -(-product.k // part_k)
        if parts > 1 and parts * of_part > MOST_WORKSPACE:
            continue
        blocks = -(-view.rows // (of_step * WARPS // split))
        waves = -(-product.batch * blocks * parts // at_once)
        computing = waves * (BLOCK + BLOCK_LINE * view.count + of_warp * step)
        expected = START + math.hypot(computing, read)
        if parts > 1:
            expected += splitk.seconds(stored, parts)
        yield Division(split, parts, part_k, blocks, expected)


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
    lying = product if view.turned else product.transposed
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
        why=f"{'B' if view.turned else 'A'} is read once, where it lies: "
        f"it should take {division.seconds * 1e6:.1f} µs",
    )


@cache
def _kernel(
    dtype: str, along: bool, count: int, width: int, few_width: int, split: int, overlap: bool
) -> Kernel:
    name = "thin_real_k_major" if along else "thin_real_mn_major"
    defines = {
        "real": REAL[dtype], "FEW": count, "WIDTH": width, "FEW_WIDTH": few_width, "SPLIT": split,
        "DEEP": ALIGNMENT // ITEM_SIZES[dtype] // width if along else DEEP[count],
        "RESIDENTS": RESIDENTS[along][dtype][count], "OVERLAP": int(overlap),
    }  # fmt: skip
    if along:
        defines["ROWS"] = ROWS
    return Kernel(FOLDER / f"{name}.cu", name, defines)


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
    many_at, few_at = (B, A) if view.turned else (A, B)
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
