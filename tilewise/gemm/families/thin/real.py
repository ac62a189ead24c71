"""The thin kernels for float32 and float64: which products they take, their times, and launches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product as combinations
from operator import itemgetter

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused, splitk
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.thin.sides import Sides, sides_of
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import ALIGNMENT, REAL, WORKSPACE, A, B, D, Operand, Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Packed, Place

FOLDER = SOURCES / "gemm"
HEADER = FOLDER / "thin_real.cuh"  # declares Product, which the kernels take
WARPS = 8  # as in the kernels
ROWS = 4  # rows of a K-major matrix that a warp reads at once
DEEP = {1: 8, 2: 8, 4: 8, 8: 4}  # k of an MN-major matrix read at once, by the thin matrix's rows
MOST = 8  # the most rows of the thin matrix
LARGEST = 2**31 - 2**16  # the kernel counts by int, up to a step past the end
SPLITS = (1, 8)  # warps of a block that may divide k: 2 and 4 gain next to nothing
PARTS = tuple(1 << i for i in range(11))  # the most parts that blocks divide k into
MOST_WORKSPACE = 1 << 28  # bytes

# The blocks of a multiprocessor that the kernels' registers leave room for, by whether the large
# matrix is K-major, by dtype, and by the rows of the thin one.
RESIDENTS = {
    True: {"float32": {1: 4, 2: 3, 4: 3, 8: 2}, "float64": {1: 4, 2: 3, 4: 2, 8: 2}},
    False: {"float32": {1: 3, 2: 3, 4: 2, 8: 2}, "float64": {1: 4, 2: 3, 4: 2, 8: 2}},
}

# The costs on an H200: the seconds of a launch, and the share of the GPU's memory rate that is
# reached; the seconds of a block's start and end, and what each row of the thin matrix adds to
# them; and the bytes of a cache line, and the seconds that a step takes longer for each line that
# its lanes do not share.
START, RATE = 0.88e-6, 1.077
BLOCK, BLOCK_ROW = 0.61e-6, 0.057e-6
CACHE_LINE, EACH_CACHE_LINE = 128, 7e-9
# The seconds of a warp's step, by whether the large matrix is K-major, by dtype, by whether it is
# read by 16 bytes (else by elements), and by the rows of the thin one.
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
class View(Sides):
    """A product as the kernels compute it.

    Attributes
    ----------
    width, few_width : int
        The elements of the large and of the thin matrix that are read at once.
    """

    width: int
    few_width: int

    @property
    def count(self) -> int:
        """The rows of the thin matrix that the kernel is compiled for: a power of two."""
        return 1 << (self.few_rows - 1).bit_length()


def view_of(product: Product) -> View | None:
    """Return how the kernels would compute a product; None if they can't.

    They take a matrix with a contiguous dimension, times at most :data:`MOST` rows or columns of
    any strides.
    """
    if product.dtype not in REAL or product.alpha == 0 or not product.k:
        return None
    if not 0 < max(product.m, product.n, product.k, product.batch) <= LARGEST:
        return None
    found = sides_of(product)
    many, few, is_k_major = found.many, found.few, found.is_k_major
    if found.few_rows > MOST or not (is_k_major or many.row_stride == 1 or found.rows == 1):
        return None
    piece = ALIGNMENT // ITEM_SIZES[product.dtype]
    if -(-found.rows // (ROWS if is_k_major else 32 * piece)) > MAX_GRID[0]:
        return None

    def is_aligned(operand: Operand, *pitches: int) -> bool:
        return not operand.offset and not any(x % piece for x in (*pitches, operand.batch_stride))

    few_pitch = few.row_stride if found.few_rows > 1 else 0
    few_is_aligned = few.column_stride == 1 and is_aligned(few, few_pitch)
    if is_k_major:
        pitch = many.row_stride if found.rows > 1 else 0
        width = piece if many.column_stride == 1 and is_aligned(many, pitch) else 1
        few_is_aligned = few_is_aligned and width > 1
    else:
        width = piece if is_aligned(many, many.column_stride, found.rows) else 1
        few_is_aligned = few_is_aligned and width > 1  # to have one kernel less for a rare case
    return View(**vars(found), width=width, few_width=piece if few_is_aligned else 1)


@dataclass(frozen=True)
class Division:
    """A division of k.

    Attributes
    ----------
    split : int
        The number of warps of a block that divide k.
    parts : int
        The number of parts of k that different blocks take; they are added up afterwards.
    part_k : int
        The elements of k in each part.
    blocks : int
        The number of blocks that share the rows of the large matrix, for each product and part.
    seconds : float
        The seconds that the product should take with this division.
    """

    split: int
    parts: int
    part_k: int
    blocks: int
    seconds: float


def divisions(product: Product, view: View, chip: Chip) -> list[Division]:
    """Return every way to divide k, timed by a model of steps and of memory.

    Parameters
    ----------
    product : Product
    view : View
        The view of the product.
    chip : Chip
    """
    return [Division(*each) for each in _timed(product, view, chip)]


def fastest(product: Product, view: View, chip: Chip) -> Division:
    """Return the division of k that should be fastest."""
    return Division(*min(_timed(product, view, chip), key=_LAST))


_LAST = itemgetter(-1)


def _timed(product: Product, view: View, chip: Chip) -> list[tuple[int, int, int, int, float]]:
    """Return the fields of all :func:`divisions` as tuples, which are made more quickly."""
    dtype, k, batch, count = product.dtype, product.k, product.batch, view.count
    is_k_major = view.is_k_major
    item = ITEM_SIZES[dtype]
    slower_clock = H200.clock / chip.clock
    piece = ALIGNMENT // item
    # The elements of k of a warp's step, and its rows.
    deep, rows = (32 * piece, ROWS) if is_k_major else (DEEP[count], 32 * piece)
    read = batch * k * (view.rows + view.few_rows) * item / (RATE * chip.memory)
    steps = -(-k // deep)
    at_once = chip.multiprocessors * RESIDENTS[is_k_major][dtype][count]
    step = STEPS[is_k_major][dtype][view.width > 1][count]
    if is_k_major:
        step += count * piece * _cache_lines(view, item) * EACH_CACHE_LINE
    step, block = slower_clock * step, slower_clock * (BLOCK + BLOCK_ROW * count)
    lines = batch * view.rows * count
    arithmetic = lines * k / (chip.multiprocessors * chip.multiply_adds(dtype))
    of_part = batch * view.few_rows * -(-view.rows // piece)  # 16-byte pieces
    found = []
    for split in SPLITS:
        blocks = -(-view.rows // (rows * WARPS // split))
        last = 0
        for most in PARTS:
            of_warp = -(-steps // (split * most))  # k-steps
            if of_warp == last:
                continue
            last = of_warp
            part_k = of_warp * split * deep
            parts = -(-k // part_k)
            if parts > 1 and parts * of_part * ALIGNMENT > MOST_WORKSPACE:
                break
            computing = -(-batch * blocks * parts // at_once) * (block + of_warp * step)
            expected = START + math.hypot(max(computing, arithmetic), read)
            if parts > 1:
                expected += splitk.seconds(of_part, parts, dtype, chip.memory)
            found.append((split, parts, part_k, blocks, expected))
    return found


def _cache_lines(view: View, item: int) -> int:
    """Return in how many cache lines a warp finds the thin matrix's elements; 0 if shared."""
    apart = view.width * view.few.column_stride * item
    return min(32, 32 * apart // CACHE_LINE) if apart >= CACHE_LINE // 2 else 0


def plan(product: Product, view: View, division: Division, is_hopper: bool) -> Plan:
    """Return the launches for a product with a division of k.

    Parameters
    ----------
    product : Product
    view : View
        The view of the product.
    division : Division
    is_hopper : bool
        Whether the GPU is of compute capability 9.0.
    """
    split, parts = division.split, division.parts
    grid = (division.blocks, min(product.batch, MAX_GRID[1]), parts)
    kernel = _kernel(
        product.dtype, view.is_k_major, view.count, view.width, view.few_width, split, is_hopper
    )
    product = view.of_few_rows(product)
    packed = _packed(product, view, division)
    launch = Launch(grid, (32 * WARPS, 1, 1), (packed,), overlap=is_hopper)
    steps = [fused.step(kernel, launch, splitk.part_of(product) if parts > 1 else product)]
    rows = ROWS if view.is_k_major else 32 * ALIGNMENT // ITEM_SIZES[product.dtype]
    words, workspace = f"the thin kernel without tensor cores, {rows} x {view.count} a warp", 0
    if split > 1:
        words += f", k divided by {split}"
    if parts > 1:
        steps.append(splitk.step(product, parts, Place(WORKSPACE), is_hopper))
        workspace = splitk.workspace(product, parts)
        words += f", in {parts} parts that are added up afterwards"
    return Plan(tuple(steps), workspace, words, view.why(division.seconds))


def _packed(product: Product, view: View, division: Division) -> Packed:
    """Return the bytes of the kernels' argument, for a product whose A is the thin matrix."""
    few, is_divided = view.few, division.parts > 1
    out = splitk.part_of(product) if is_divided else product
    return layout(HEADER, "Product", real=REAL[product.dtype]).pack({
        **view.fields(out), "d": Place(WORKSPACE if is_divided else D),
        "few": Place(A if view.is_swapped else B),
        "few_pitch": few.row_stride, "few_along": few.column_stride, "few_step": few.batch_stride,
        "part_stride": splitk.elements(product), "stored": out.n, "part_k": division.part_k,
    })  # fmt: skip


def every_kernel(dtype: str, overlap: bool) -> Iterator[Kernel]:
    """Yield every kernel that a product with inputs of this dtype can need.

    Parameters
    ----------
    dtype : str
    overlap : bool
        Whether the kernels may begin before those ahead of them in the stream have ended.
    """
    piece = ALIGNMENT // ITEM_SIZES[dtype]
    widths = ((1, 1), (piece, 1), (piece, piece))
    for is_k_major, count, width, split in combinations((True, False), DEEP, widths, SPLITS):
        yield _kernel(dtype, is_k_major, count, *width, split, overlap)


@cache
def _kernel(
    dtype: str, is_k_major: bool, count: int, width: int, few_width: int, split: int, overlap: bool
) -> Kernel:
    file = "thin_real_k_major" if is_k_major else "thin_real_mn_major"
    defines = {
        "real": REAL[dtype], "FEW": count, "WIDTH": width, "FEW_WIDTH": few_width, "SPLIT": split,
        "DEEP": ALIGNMENT // ITEM_SIZES[dtype] // width if is_k_major else DEEP[count],
        "RESIDENTS": RESIDENTS[is_k_major][dtype][count], "OVERLAP": int(overlap),
    }  # fmt: skip
    if is_k_major:
        defines["ROWS"] = ROWS
    return Kernel(FOLDER / f"{file}.cu", file, defines)
