"""The kernels for float32 and float64: which products they take, and their launches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from tilewise.devices.limits import MAX_GRID, RESERVED_SHARED
from tilewise.gemm import fused, pack, splitk, transpose
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.simt.matrices import Access, Matrix, matrix_of
from tilewise.gemm.families.simt.readings import Reading
from tilewise.gemm.families.simt.table import Way
from tilewise.gemm.families.simt.tiles import EVERY, AnyTiles, Tiles
from tilewise.gemm.layouts import batched_matrix, layout
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ALIGNMENT, REAL, WORKSPACE, A, B, C, D, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.gemm.transpose import Transposition
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place, TensorMap
from tilewise.shown import expected_time

FOLDER = SOURCES / "gemm"
FILES = {"gemm_simt": FOLDER / "simt.cu", "gemm_dmma": FOLDER / "dmma.cu"}
HEADER = FOLDER / "product.cuh"  # declares Product, which the kernels take
GROUP = 8  # rows of tiles whose blocks run together, to share in L2
LARGEST = 2**31 - 2**16  # the kernels count rows, columns and k by unsigned int, past the end too


def objection(product: Product) -> str:
    """Return why the kernels can't compute a product; empty if they can."""
    if product.dtype not in REAL:
        return f"the inputs are {product.dtype}"
    if max(product.m, product.n, product.k) > LARGEST:
        return "it counts to 2^31"
    for name, operand, count in (
        ("A", product.a, product.m), ("B", product.b.transposed, product.n),
    ):  # fmt: skip
        if matrix_of(operand, count, product.k, product.batch, product.dtype) is None:
            return f"neither dimension of {name} is contiguous"
    seen = swapped(product)
    if all(tiles.blocks(seen) > MAX_GRID[0] for tiles in EVERY[product.dtype]):
        return "it would take more blocks than a launch can have"
    return ""


def is_swapped(product: Product) -> bool:
    """Return whether A and B are swapped: D's columns are contiguous and its rows are not."""
    return product.d.column_stride != 1 and product.d.row_stride == 1


def swapped(product: Product) -> Product:
    """Return the product as the kernels compute it: transposed if it :func:`is_swapped`."""
    return product.transposed if is_swapped(product) else product


class Choice(NamedTuple):
    """A way to compute a product, together with the product.

    Attributes
    ----------
    seconds : float
        The seconds that it should take.
    reading : Reading
    tiles : Tiles or TensorTiles
    parts : int
        The number of parts that k is divided into.
    """

    seconds: float
    reading: Reading
    tiles: AnyTiles
    parts: int


def plan(choice: Choice, chip: Chip, is_swapped: bool) -> Plan:
    """Return the plan of a choice's launches.

    Parameters
    ----------
    choice : Choice
    chip : Chip
    is_swapped : bool
        Whether the choice's product was :func:`swapped`.
    """
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
    overlap = chip.is_hopper
    steps = [transpose.step(*each, overlap=overlap) for each in transposed]
    if packed:
        steps.append(pack.step(packed, overlap=overlap))
    sums = Place(WORKSPACE, used) if parts > 1 else None
    steps.append(_multiply(choice, places, sums, chip))
    if transposed:
        # If a kernel began before a transposition has ended, it would run with the transposition's
        # division of a multiprocessor's memory, which leaves next to no L1 cache.
        after = steps[len(transposed)]
        steps[len(transposed)] = Step(after.kernel, replace(after.launch, overlap=False))
    if sums is not None:
        steps.append(splitk.step(product, parts, sums, overlap))
        used += splitk.workspace(product, parts)
    words = f"{tiles.words}, tiles of {tiles.block_m} x {tiles.block_n}"
    if tiles.bulk and isinstance(tiles, Tiles):
        words += ", copied by tensor maps"
    if is_swapped:
        words += ", swapped"
    if parts > 1:
        words += f", k in {parts} parts that are added up afterwards"
    for way, done in (
        (Packing, "packed, as the rows are not 16-byte aligned"),
        (Transposition, "transposed"),
    ):
        made = [which for which, each in choice.reading.copies if isinstance(each, way)]
        if made:
            names = " and ".join("BA"[x] if is_swapped else "AB"[x] for x in made)
            words = f"{names} {done}; then {words}"
    why = f"of its tiles these should be the fastest, {expected_time(choice.seconds)}"
    return Plan(tuple(steps), used, words, why)


def _multiply(choice: Choice, places: dict[int, Place], sums: Place | None, chip: Chip) -> Step:
    reading, tiles, parts = choice.reading, choice.tiles, choice.parts
    product, of_a, of_b = reading.product, reading.a, reading.b
    k = 0 if product.alpha == 0 else product.k
    out = product if sums is None else splitk.part_of(product)
    types = dict.fromkeys(("In", "Out", "Real"), REAL[product.dtype])
    given = layout(HEADER, "Product", **types).pack({
        "a": _operand(places[A], product.a, of_a), "b": _operand(places[B], product.b, of_b),
        "c": batched_matrix(out.c, Place(C)), "d": batched_matrix(out.d, sums or Place(D)),
        "part_stride": out.batch * out.m * out.n,
        "m": product.m, "n": product.n, "k": k, "columns": out.n,
        "part_k": splitk.part_k(k, parts, tiles.block_k), "group": GROUP,
        "alpha": out.alpha, "beta": out.beta,
    })  # fmt: skip
    a_width, b_width = (1, 1) if tiles.bulk else (of_a.width, of_b.width)
    read_a, read_b = (of_a.is_k_major, a_width), (of_b.is_k_major, b_width)
    kernel = _kernel(product.dtype, tiles, read_a, read_b, chip.is_hopper)
    maps: tuple[TensorMap, ...] = ()
    if tiles.bulk:
        maps = (
            _map(places[A], product.a, of_a, product.m, tiles.block_m, product, tiles),
            _map(places[B], product.b, of_b, product.n, tiles.block_n, product, tiles),
        )
    blocks = tiles.blocks(product)
    own = tiles.shared(product.dtype, of_a.is_k_major, of_b.is_k_major)
    # On other GPUs than Hopper, dmma.cu declares no shared memory itself.
    shared = own if tiles.by_tensor_cores else 0
    if chip.is_hopper:
        shared = _idle(-(-blocks * parts // chip.multiprocessors), tiles.residents, own)
    launch = Launch(
        (blocks, parts, 1), (tiles.threads, 1, 1), (given, *maps), shared,
        overlap=chip.is_hopper,
    )  # fmt: skip
    return fused.step(kernel, launch, out)


def _operand(place: Place, x: Operand, found: Matrix) -> dict[str, Any]:
    """Return the fields of product.cuh's Operand."""
    return {
        "pointer": place, "pitch": found.pitch, "batch_stride": x.batch_stride,
        "count": found.rows,
    }  # fmt: skip


def _map(
    place: Place, x: Operand, found: Matrix, rows: int, edge: int, product: Product, tiles: AnyTiles
) -> TensorMap:
    """Return the tensor map of A or B, of which a tile has ``edge`` rows."""
    item = ITEM_SIZES[product.dtype]
    batches = product.batch if x.batch_stride else 1
    # The stride of a single matrix is never used, but has to be valid.
    strides = (found.pitch * item, x.batch_stride * item if batches > 1 else ALIGNMENT)
    extents = (product.k, rows) if found.is_k_major else (rows, product.k)
    return TensorMap.of_matrices(
        place, product.dtype, (*extents, batches), strides, tiles.box(edge, found.is_k_major)
    )


def _idle(waiting: int, residents: int, own: int) -> int:
    """Return the unused shared memory that a block asks for to have few neighbours.

    Blocks that begin before others have ended are not spread evenly: if each multiprocessor should
    have ``waiting`` of them, some might get as many as they can hold, ``residents``, and others
    none.
    """
    if waiting >= residents:  # the hardware holds no more
        return 0
    return max(0, (H200.shared // (waiting + 1) - RESERVED_SHARED - own) // 128 * 128 + 128)


def kernel_of(dtype: str, way: Way, overlap: bool) -> Kernel:
    """Return the kernel that computes a product in this way.

    Parameters
    ----------
    dtype : str
    way : Way
    overlap : bool
        Whether the kernel may begin before the one ahead of it in the stream has ended.
    """
    read_a, read_b = (
        (x.is_k_major, 1 if way.tiles.bulk else _width(dtype, x)) for x in (way.a, way.b)
    )
    return _kernel(dtype, way.tiles, read_a, read_b, overlap)


def _width(dtype: str, x: Access) -> int:
    """Return the elements of one copy that is not a bulk copy."""
    return 1 if x.is_k_major or x.is_unaligned else ALIGNMENT // ITEM_SIZES[dtype]


@cache
def _kernel(
    dtype: str, tiles: AnyTiles, a: tuple[bool, int], b: tuple[bool, int], overlap: bool
) -> Kernel:
    """Return a kernel, by whether A and B are K-major and the elements of one copy of each.

    Bulk copies have no such width, and take 1.
    """
    defines = {
        "real": REAL[dtype], **tiles.macros,
        "A_K_MAJOR": int(a[0]), "A_WIDTH": a[1], "B_K_MAJOR": int(b[0]), "B_WIDTH": b[1],
        "TMA": int(tiles.bulk), "OVERLAP": int(overlap),
    }  # fmt: skip
    return Kernel(FILES[tiles.kernel], tiles.kernel, defines, tiles.options)
