"""The ``mma.sync`` kernel: which products it takes, how it reads them, and its launches."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused, pack, splitk
from tilewise.gemm.families.mma.tiles import DEEP, ITEM, TILES, Tiles
from tilewise.gemm.layouts import TYPES, batched_matrix, layout
from tilewise.gemm.product import WORKSPACE, A, B, C, D, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place
from tilewise.precision import HALVES
from tilewise.shown import expected_time

SOURCE = SOURCES / "gemm" / "mma.cu"
HEADER = SOURCES / "gemm" / "product.cuh"  # declares Product, which the kernel takes
GROUP = 8  # rows of tiles whose blocks run together, to share in L2
LARGEST = 2**31 - 2**16  # the kernel counts rows, columns and k by int, up to a tile past the end
DEEPEST = max(tiles.block_k for tiles in TILES)
PIECE = 4  # elements of D that a thread stores at once, where they are aligned
NO_PAIRS = 90  # the compute capability from which on any copy of two elements makes a kernel spill
WIDTHS = (8, 4, 2, 1)
"""The numbers of elements that one copy may have."""
COPIED, REALIGNED, PACKED = "copied", "realigned", "packed"
"""The ways to read A or B: by copies as wide as its rows allow, by 16-byte copies that are
realigned in shared memory, or after an earlier launch has repacked it.
"""


class Matrix(NamedTuple):
    """A, or B transposed, as the kernel reads it: lines of k elements.

    Attributes
    ----------
    is_k_major : bool
        Whether k is the contiguous dimension.
    pitch : int
        The elements from one line to the next; of an MN-major matrix from one k to the next.
    width : int
        The elements of one copy, one of :data:`WIDTHS`.
    is_partial : bool
        Whether they do not divide the contiguous dimension.
    is_unaligned : bool
        Whether it is :data:`REALIGNED`: then the width and ``is_partial`` don't matter.
    """

    is_k_major: bool
    pitch: int
    width: int
    is_partial: bool = False
    is_unaligned: bool = False

    @property
    def can_realign(self) -> bool:
        """Whether the matrix can be read as :data:`REALIGNED`.

        Only pieces of the first k-step may begin before the matrix, so k-steps must advance.
        """
        return self.is_k_major or self.pitch > 0

    @property
    def has_to_be_packed(self) -> bool:
        """Whether it can't be :data:`REALIGNED`, and copies of it would be of too few elements."""
        return self.width <= 2 and not self.can_realign

    @property
    def realigned(self) -> Matrix:
        """The same matrix, read as :data:`REALIGNED`."""
        return Matrix(self.is_k_major, self.pitch, WIDTHS[0], is_unaligned=True)


def wide_reads() -> list[Matrix]:
    """Return every way to read a matrix by copies of more than one element; pitches are left 0."""
    return [
        Matrix(is_k_major, 0, width, is_partial)
        for is_k_major in (True, False)
        for width in WIDTHS[:-1]
        for is_partial in (False, True)
    ]


def matrix_of(x: Operand, lines: int, k: int, batch: int) -> Matrix | None:
    """Return how the kernel reads lines of k elements; None where no dimension is contiguous.

    Parameters
    ----------
    x : Operand
        A, or B transposed.
    lines, k, batch : int
    """
    if x.column_stride == 1 or k <= 1:
        is_k_major, pitch = True, x.row_stride if lines > 1 else 0
    elif x.row_stride == 1 or lines == 1:
        is_k_major, pitch = False, x.column_stride
    else:
        return None
    steps = pitch | (x.batch_stride if batch > 1 else 0) | x.offset // ITEM
    width = next(width for width in WIDTHS if steps % width == 0)
    return Matrix(is_k_major, pitch, width, (k if is_k_major else lines) % width != 0)


def objection(product: Product) -> str:
    """Return why the kernel can't compute a product; empty if it can."""
    if product.dtype not in HALVES:
        return f"the inputs are {product.dtype}, not 16-bit"
    if max(product.m, product.n, product.k) > LARGEST:
        return "it counts to 2^31"
    if product.a.offset % ITEM or product.b.offset % ITEM:
        return f"A or B does not begin at a multiple of {ITEM} bytes"
    if min(blocks_of(tiles, product) for tiles in TILES) > MAX_GRID[0]:
        return "it would take more blocks than a launch can have"
    for name, x, lines in (("A", product.a, product.m), ("B", product.b.transposed, product.n)):
        matrix = matrix_of(x, lines, depth(product), product.batch)
        is_read = matrix is not None and not matrix.has_to_be_packed
        if not is_read and not can_pack(lines, depth(product), product.batch):
            why = "neither dimension is contiguous" if matrix is None else "it is not aligned"
            return f"{name} is too large to be repacked, which it has to be: {why}"
    return ""


def depth(product: Product) -> int:
    """Return the k that is multiplied: with alpha 0, A and B are not read."""
    return product.k if product.alpha else 0


def blocks_of(tiles: Tiles, product: Product) -> int:
    """Return the tiles of all matrices of the batch."""
    return -(-product.m // tiles.block_m) * -(-product.n // tiles.block_n) * product.batch


def is_swapped(product: Product) -> bool:
    """Return whether A and B are swapped: if D's columns are contiguous and its rows are not."""
    return product.d.column_stride != 1 and product.d.row_stride == 1


def swapped(product: Product) -> Product:
    """Return the product as the kernel computes it: transposed if it :func:`is_swapped`."""
    return product.transposed if is_swapped(product) else product


def can_pack(lines: int, k: int, batch: int) -> bool:
    """Return whether a matrix can be repacked."""
    return min(lines, k) > 0 and batch * max(lines, k) <= pack.LARGEST


def stores_pieces(p: Product) -> bool:
    """Return whether the kernel stores :data:`PIECE` elements of D at once, and not one."""
    item = ITEM_SIZES[p.out_dtype]
    steps = p.d.row_stride | (p.d.batch_stride if p.batch > 1 else 0)
    is_aligned = steps % PIECE == 0 and p.d.offset % (PIECE * item) == 0
    return p.d.column_stride == 1 and is_aligned


def stores_words(p: Product) -> bool:
    """Return whether the kernel stores 16 bytes at once of a D with rows that are not aligned."""
    is_plain = p.d.column_stride == 1 and p.beta == 0 and p.epilogue is None
    return is_plain and not stores_pieces(p)


def spills(a: Matrix, b: Matrix, capability: int) -> bool:
    """Return whether some tiles of matrices that are read like this lack registers.

    The addresses of copies of single elements take too many. So do those of copies of two elements,
    for compute capability 9.0 and later; before it, where both matrices are copied so and one of
    them ends in the midst of a copy.
    """
    narrow = [x for x in (a, b) if x.width == 2]
    if 1 in (a.width, b.width):
        return True
    if capability >= NO_PAIRS:
        return bool(narrow)
    return len(narrow) == 2 and any(x.is_partial for x in narrow)


def suits(tiles: Tiles, a: Matrix, b: Matrix) -> bool:
    """Return whether tiles are for matrices that are read like this.

    Those of :data:`~tilewise.gemm.families.mma.tiles.DEEP` are for 16-byte copies: the addresses of
    narrower ones would take too many registers.
    """
    return tiles not in DEEP or min(a.width, b.width) == WIDTHS[0]


def shared_of(tiles: Tiles, a: Matrix, b: Matrix) -> int:
    """Return the bytes of a block's shared memory."""
    extra = sum(
        (lines if x.is_k_major else tiles.block_k) * x.is_unaligned
        for x, lines in ((a, tiles.block_m), (b, tiles.block_n))
    )
    return tiles.shared + tiles.stages * 16 * extra


class Way(NamedTuple):
    """A way to compute a product.

    Attributes
    ----------
    tiles : Tiles
    parts : int
        The parts that k is divided into.
    a, b : str
        How A and B are read: :data:`COPIED`, :data:`REALIGNED` or :data:`PACKED`.
    """

    tiles: Tiles
    parts: int
    a: str = COPIED
    b: str = COPIED


def parts_of(product: Product, way: Way) -> int:
    """Return the number of parts that k is divided into, none of which is empty."""
    return max(1, -(-depth(product) // max(1, part_k(product, way))))


def part_k(product: Product, way: Way) -> int:
    """Return the elements of k of each part, the same for all tiles where the division is fixed."""
    block_k = DEEPEST if product.parts else way.tiles.block_k
    return splitk.part_k(depth(product), way.parts, block_k)


def plan(product: Product, way: Way, overlap: bool, seconds: float) -> Plan:
    """Return the launches.

    Parameters
    ----------
    product : Product
        The product that was asked for.
    way : Way
        The way of the product that is :func:`swapped`.
    overlap : bool
        Whether kernels may begin before those ahead of them in the stream have ended.
    seconds : float
        The seconds that it should take, for people.
    """
    turned = is_swapped(product)
    p = swapped(product)
    places = {A: Place(B if turned else A), B: Place(A if turned else B)}
    operands = {A: p.a, B: p.b.transposed}
    copies, used = [], 0
    for which, read, lines in ((A, way.a, p.m), (B, way.b, p.n)):
        if read == PACKED:
            packing = pack.packed(operands[which], lines, depth(p), p.batch)
            copies.append((packing, places[which], Place(WORKSPACE, used)))
            places[which], operands[which] = Place(WORKSPACE, used), packing.operand
            used += packing.bytes
    steps = [pack.step(copies, overlap=overlap)] if copies else []
    sums = Place(WORKSPACE, used) if way.parts > 1 else None
    steps.append(_multiply(p, way, places, operands, sums, overlap))
    if sums is not None:
        steps.append(splitk.step(p, way.parts, sums, overlap))
        used += splitk.workspace(p, way.parts)
    words = f"the kernel by mma.sync, tiles of {way.tiles.block_m} x {way.tiles.block_n}"
    if turned:
        words += ", swapped"
    if way.parts > 1:
        words += f", k in {way.parts} parts that are added up afterwards"
    packed, realigned = (
        " and ".join(
            "BA"[which] if turned else "AB"[which]
            for which, read in enumerate((way.a, way.b))
            if read == how
        )
        for how in (PACKED, REALIGNED)
    )
    if realigned:
        words += f", {realigned} realigned in shared memory"
    if packed:
        words = f"{packed} repacked, as the rows are not 16-byte aligned; then {words}"
    why = f"of its tiles these should be the fastest, {expected_time(seconds)}"
    return Plan(tuple(steps), used, words, why)


def _multiply(
    p: Product, way: Way, places: dict[int, Place], operands: dict[int, Operand],
    sums: Place | None, overlap: bool,
) -> Step:  # fmt: skip
    tiles, k = way.tiles, depth(p)
    out = p if sums is None else splitk.part_of(p)
    fields: dict[str, Any] = {}
    read: dict[int, Matrix] = {}
    for name, which, how, lines in (("a", A, way.a, p.m), ("b", B, way.b, p.n)):
        x = operands[which]
        matrix = matrix_of(x, lines, k, p.batch)
        assert matrix is not None
        read[which] = matrix.realigned if how == REALIGNED else matrix
        fields[name] = {
            "pointer": places[which], "pitch": matrix.pitch, "batch_stride": x.batch_stride,
            "count": lines,
        }  # fmt: skip
    types = {"In": "u16", "Out": TYPES[out.out_dtype], "Real": "float"}
    given = layout(HEADER, "Product", **types).pack({
        **fields,
        "c": batched_matrix(out.c, Place(C)), "d": batched_matrix(out.d, sums or Place(D)),
        "part_stride": splitk.elements(p), "m": p.m, "n": p.n, "k": k, "columns": out.n,
        "part_k": part_k(p, way), "group": GROUP,
        "alpha": out.alpha, "beta": out.beta,
    })  # fmt: skip
    a, b = read[A], read[B]
    kernel = kernel_of(p.dtype, out.out_dtype, tiles, a, b, overlap, stores_words(out))
    grid, shared = (blocks_of(tiles, p), way.parts, 1), shared_of(tiles, a, b)
    launch = Launch(grid, (tiles.threads, 1, 1), (given,), shared, overlap=overlap)
    return fused.step(kernel, launch, out)


def kernel_of(
    dtype: str, out_dtype: str, tiles: Tiles, a: Matrix, b: Matrix, overlap: bool,
    unaligned: bool = False,
) -> Kernel:  # fmt: skip
    """Return the kernel that reads A and B in these ways; ``unaligned`` is :func:`stores_words`."""
    read_a, read_b = (x._replace(pitch=0) for x in (a, b))
    return _kernel(dtype, out_dtype, tiles, read_a, read_b, overlap, unaligned)


def macros_of(a: Matrix, b: Matrix, unaligned: bool = False) -> dict[str, int]:
    """Return the macros for how A and B are read; ``unaligned`` is :func:`stores_words`."""
    return {
        "A_K_MAJOR": int(a.is_k_major), "A_WIDTH": a.width, "A_PARTIAL": int(a.is_partial),
        "A_UNALIGNED": int(a.is_unaligned),
        "B_K_MAJOR": int(b.is_k_major), "B_WIDTH": b.width, "B_PARTIAL": int(b.is_partial),
        "B_UNALIGNED": int(b.is_unaligned), "D_UNALIGNED": int(unaligned),
    }  # fmt: skip


@cache
def _kernel(
    dtype: str, out_dtype: str, tiles: Tiles, a: Matrix, b: Matrix, overlap: bool, unaligned: bool
) -> Kernel:
    defines = {
        "INPUT": TYPES[dtype], "OUTPUT": TYPES[out_dtype], **tiles.macros,
        **macros_of(a, b, unaligned), "OVERLAP": int(overlap),
    }  # fmt: skip
    return Kernel(SOURCE, "gemm_mma", defines)
