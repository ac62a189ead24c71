"""Products of float32 and float64: ``tuned`` for any layout, and tensor cores for float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import pack, splitk, transpose
from tilewise.gemm.families.simt.readings import Lines, Reading, lines
from tilewise.gemm.families.simt.tiles import EVERY, AnyTiles, Tiles
from tilewise.gemm.families.simt.timing import Lying, part_k
from tilewise.gemm.layouts import batched_matrix, layout
from tilewise.gemm.pack import Packing
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
from tilewise.gemm.transpose import Transposition
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch, Place, TensorMap

FOLDER = SOURCES / "gemm"
FILES = {"gemm_simt": FOLDER / "simt.cu", "gemm_dmma": FOLDER / "dmma.cu"}
PRODUCT = FOLDER / "product.cuh"
GROUP = 8  # rows of tiles whose blocks run together
LARGEST = 2**31 - 2**16  # the kernel counts rows, columns and k by unsigned int, past the end too
SHARED = 228 << 10  # bytes of a Hopper multiprocessor, of which each block takes 1 KB besides


def objection(product: Product) -> str:
    """Return why the kernel can't compute a product; empty if it can."""
    if product.dtype not in REAL:
        return f"the inputs are {product.dtype}"
    if max(product.m, product.n, product.k) > LARGEST:
        return "it counts to 2^31"
    for name, operand, count in (
        ("A", product.a, product.m), ("B", product.b.transposed, product.n),
    ):  # fmt: skip
        if lines(operand, count, product.k, product.batch, product.dtype) is None:
            return f"neither dimension of {name} is contiguous"
    seen = swapped(product)
    if all(tiles.blocks(seen) > MAX_GRID[0] for tiles in EVERY[product.dtype]):
        return "it would take more blocks than a launch can have"
    return ""


def is_swapped(product: Product) -> bool:
    """Whether A and B are exchanged: where D's columns are contiguous and not its rows."""
    return product.d.column_stride != 1 and product.d.row_stride == 1


def swapped(product: Product) -> Product:
    """Return the product as the kernel computes it: transposed where it :func:`is_swapped`."""
    return product.transposed if is_swapped(product) else product


@dataclass(frozen=True)
class Choice:
    """A way to compute a product, and the seconds that it should take."""

    seconds: float
    reading: Reading
    tiles: AnyTiles
    parts: int


def planned(choice: Choice, multiprocessors: int, is_hopper: bool, is_swapped: bool) -> Plan:
    """Return the plan of a choice, of a product or of that :func:`swapped`."""
    product, tiles, parts = choice.reading.product, choice.tiles, choice.parts
    places = {A: Place(B if is_swapped else A), B: Place(A if is_swapped else B)}
    packed, transposed, used = [], [], 0
    for which, copy in choice.reading.copies:
        if isinstance(copy, Packing):
            packed.append((copy, places[which], Place(WORKSPACE, used)))
        else:
            transposed.append((copy, places[which], Place(WORKSPACE, used)))
        places[which] = Place(WORKSPACE, used)
        used += copy.bytes
    steps = [transpose.step(*each, overlap=is_hopper) for each in transposed]
    if packed:
        steps.append(pack.step(packed, overlap=is_hopper))
    sums = Place(WORKSPACE, used) if parts > 1 else None
    steps.append(_multiply(choice, places, sums, multiprocessors, is_hopper))
    if transposed:
        # One that begins before a transposition has ended finds a multiprocessor's memory divided
        # as that had it, with next to no L1 cache, and it remains so.
        after = steps[len(transposed)]
        steps[len(transposed)] = replace(after, launch=replace(after.launch, overlap=False))
    if sums is not None:
        steps.append(splitk.step(product, parts, sums, is_hopper))
        used += parts * splitk.elements(product) * ITEM_SIZES[product.dtype]
    words = f"{tiles.words}, tiles of {tiles.block_m} x {tiles.block_n}"
    if tiles.bulk and isinstance(tiles, Tiles):
        words += ", copied by tensor maps"
    if is_swapped:
        words += ", swapped"
    if parts > 1:
        words += f", k in {parts} parts that are added up afterwards"
    for manner, done in (
        (Packing, "packed, as the rows are not 16-byte aligned"),
        (Transposition, "transposed"),
    ):
        made = [which for which, copy in choice.reading.copies if isinstance(copy, manner)]
        if made:
            names = " and ".join("BA"[x] if is_swapped else "AB"[x] for x in made)
            words = f"{names} {done}; then {words}"
    why = f"of its tiles these should take least, {choice.seconds * 1e6:.1f} µs"
    return Plan(tuple(steps), used, words, why)


def _multiply(
    choice: Choice, places: dict[int, Place], sums: Place | None, multiprocessors: int,
    is_hopper: bool,
) -> Step:  # fmt: skip
    reading, tiles, parts = choice.reading, choice.tiles, choice.parts
    product, of_a, of_b = reading.product, reading.a, reading.b
    k = 0 if product.alpha == 0 else product.k
    # The parts' sums are plain; alpha and beta come with the addition.
    alpha, beta, c, d = product.alpha, product.beta, product.c, product.d
    columns = product.n
    if sums is not None:
        columns = splitk.pitch(product)
        alpha, beta, c, d = 1.0, 0.0, None, Operand(columns, 1, product.m * columns)
    given = layout(PRODUCT, "Product", T=REAL[product.dtype]).pack({
        "a": _operand(places[A], product.a, of_a), "b": _operand(places[B], product.b, of_b),
        "c": batched_matrix(c, Place(C)), "d": batched_matrix(d, sums or Place(D)),
        "part_stride": product.batch * product.m * columns,
        "m": product.m, "n": product.n, "k": k, "columns": columns,
        "part_k": part_k(k, parts, tiles.block_k), "group": GROUP, "alpha": alpha, "beta": beta,
    })  # fmt: skip
    kernel = _kernel(product.dtype, tiles, of_a, of_b, is_hopper)
    maps: tuple[TensorMap, ...] = ()
    if tiles.bulk:
        maps = (
            _map(places[A], product.a, of_a, product.m, tiles.block_m, product, tiles),
            _map(places[B], product.b, of_b, product.n, tiles.block_n, product, tiles),
        )
    blocks = tiles.blocks(product)
    shared = 0
    if is_hopper:
        own = tiles.shared(product.dtype, of_a.along_k, of_b.along_k)
        shared = _unused(-(-blocks * parts // multiprocessors), tiles.residents, own)
    launch = Launch(
        (blocks, parts, 1), (tiles.threads, 1, 1), (given, *maps), shared,
        overlap=is_hopper,
    )  # fmt: skip
    return Step(kernel, launch)


def _operand(place: Place, x: Operand, found: Lines) -> dict[str, Any]:
    """The fields of product.cuh's Operand."""
    return {
        "pointer": place, "pitch": found.pitch, "batch_stride": x.batch_stride,
        "count": found.count,
    }  # fmt: skip


def _map(
    place: Place, x: Operand, found: Lines, count: int, edge: int, product: Product, tiles: AnyTiles
) -> TensorMap:
    """Of A or B, of whose lines a block's tile has ``edge``."""
    item = ITEM_SIZES[product.dtype]
    batches = product.batch if x.batch_stride else 1
    # Of a single matrix the step is never used, but has to be one.
    steps = (found.pitch * item, x.batch_stride * item if batches > 1 else ALIGNMENT)
    extents = (product.k, count) if found.along_k else (count, product.k)
    return TensorMap(
        place, product.dtype, (*extents, batches), steps, tiles.box(edge, found.along_k)
    )


def _unused(waiting: int, residents: int, own: int) -> int:
    """Shared memory that a block takes for nothing but to have no more neighbours than it must.

    Blocks that begin before others have ended are not spread evenly: where a multiprocessor is to
    have ``waiting`` of them, it might get as many as it can hold, and others none.
    """
    if waiting >= residents:  # the hardware holds no more
        return 0
    return max(0, (SHARED // (waiting + 1) - 1024 - own) // 128 * 128 + 128)


def of_lies(dtype: str, tiles: AnyTiles, a: Lying, b: Lying, overlap: bool) -> Kernel:
    """Return the kernel that reads A and B as they lie."""
    wide = ALIGNMENT // ITEM_SIZES[dtype]
    of_a, of_b = (
        Lines(x.is_k_major, 0, 1 if x.is_k_major or x.is_unaligned else wide, 0, tiles.bulk)
        for x in (a, b)
    )
    return _kernel(dtype, tiles, of_a, of_b, overlap)


def _kernel(dtype: str, tiles: AnyTiles, a: Lines, b: Lines, overlap: bool) -> Kernel:
    if tiles.bulk:  # which does not depend on how many elements another copy could take
        return _kernel_of(dtype, tiles, a.along_k, 1, b.along_k, 1, overlap)
    return _kernel_of(dtype, tiles, a.along_k, a.width, b.along_k, b.width, overlap)


@cache
def _kernel_of(
    dtype: str, tiles: AnyTiles, a_along_k: bool, a_width: int, b_along_k: bool, b_width: int,
    overlap: bool,
) -> Kernel:  # fmt: skip
    defines = {
        "real": REAL[dtype], **tiles.macros,
        "A_K_MAJOR": int(a_along_k), "A_WIDTH": a_width,
        "B_K_MAJOR": int(b_along_k), "B_WIDTH": b_width,
        "TMA": int(tiles.bulk), "OVERLAP": int(overlap),
    }  # fmt: skip
    return Kernel(FILES[tiles.kernel], tiles.kernel, defines, tiles.options)
