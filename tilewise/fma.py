"""Products of float32 and float64: ``tuned`` for any layout, and tensor cores for float64."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tilewise import pack, transpose
from tilewise.devices.limits import MAX_GRID
from tilewise.fma_tiles import EVERY, AnyTiles, Tiles, kind, part_k
from tilewise.hopper import LARGEST_STRIDE
from tilewise.kernel import Kernel
from tilewise.launch import Launch, Packed, Place, TensorMap
from tilewise.pack import Packing
from tilewise.product import ALIGNMENT, ITEM_SIZES, REAL, WORKSPACE, A, B, C, D, Operand, Product
from tilewise.steps import Plan, Step
from tilewise.transpose import Transposition, transposition

FOLDER = Path(__file__).parent / "kernels" / "gemm"
SOURCES = {"gemm_fma": FOLDER / "fma.cu", "gemm_dmma": FOLDER / "dmma.cu"}
SUM_SOURCE = FOLDER / "fma_sum.cu"
GROUP = 8  # rows of tiles whose blocks run together
SUM_THREADS = 256  # of fma_sum.cu
LARGEST = 2**31 - 2**16  # the kernel counts rows, columns and k by unsigned int, past the end too
MOST_PARTS = 256  # that k is divided into
MOST_WORKSPACE = 1 << 28  # bytes
LEAST_K = 64  # of a part
SHARED = 228 << 10  # bytes of a Hopper multiprocessor, of which each block takes 1 KB besides

# Seconds and bytes a second, of an H200.
COPY_START, COPY_RATE = 2.0e-6, 3.8e12
MARGIN, LARGE_MARGIN = 1.01, 1.04  # what copies gain at least, and those beyond MOST_WORKSPACE

Copy = Packing | Transposition


@dataclass(frozen=True)
class Lines:
    """A as rows, or B as columns, as the kernel reads it.

    Attributes
    ----------
    along_k : bool
        Whether the elements of a line are neighbours, or those of the lines at one k.
    pitch : int
        Elements from line to line, or from one k to the next.
    width : int
        Elements that are copied at once.
    count : int
        That may be read.
    is_aligned : bool
        Whether bulk copies can read them.
    """

    along_k: bool
    pitch: int
    width: int
    count: int
    is_aligned: bool

    @property
    def is_narrow(self) -> bool:
        """Whether wider copies would do as well, of a copy that is aligned."""
        return not self.along_k and self.width == 1

    @property
    def is_off(self) -> bool:
        """Whether it takes longer for being off 16 bytes."""
        return self.is_narrow or (self.along_k and not self.is_aligned and self.count > 1)


def lines(
    operand: Operand, count: int, k: int, batch: int, dtype: str, is_packed: bool = False
) -> Lines | None:
    """How the kernel reads ``count`` rows of k elements; None if it can't.

    Parameters
    ----------
    operand : Operand
        A, or B transposed.
    count, k, batch : int
    dtype : str
    is_packed : bool
        Whether whole pieces may be read behind its last row.
    """
    item = ITEM_SIZES[dtype]
    width = ALIGNMENT // item

    def is_aligned(pitch: int) -> bool:
        steps = (pitch, operand.batch_stride if batch > 1 else 0)
        return not operand.offset and not any(x * item % ALIGNMENT for x in steps)

    def has_map(pitch: int) -> bool:
        steps = (pitch, operand.batch_stride)
        return is_aligned(pitch) and pitch > 0 and max(steps) * item < LARGEST_STRIDE

    if operand.row_stride == 1 or count == 1:
        pitch = operand.column_stride if k > 1 else 0
        if is_packed:
            return Lines(False, pitch, width, -(-count // width) * width, has_map(pitch))
        by_pieces = is_aligned(pitch) and count % width == 0
        across = Lines(False, pitch, width if by_pieces else 1, count, has_map(pitch))
        if count > 1 or operand.column_stride != 1:
            return across
    if operand.column_stride == 1 or k == 1:
        pitch = operand.row_stride if count > 1 else 0
        return Lines(True, pitch, 1, count, has_map(pitch))
    return None


@dataclass(frozen=True)
class Reading:
    """Where the kernel finds a product's matrices.

    Attributes
    ----------
    product : Product
        A and B as they lie, or as their copies do.
    a, b : Lines
    copies : tuple of (int, Packing or Transposition)
        Of those that are copied before: A or B, and how.
    """

    product: Product
    a: Lines
    b: Lines
    copies: tuple[tuple[int, Copy], ...] = ()

    def kind(self, tiles: AnyTiles) -> str:
        """Which phases are to be expected of these tiles. Bulk copies are never off 16 bytes."""
        off = (False, False) if tiles.bulk else (self.a.is_off, self.b.is_off)
        return kind(self.a.along_k, self.b.along_k, *off)

    def fits(self, tiles: AnyTiles) -> bool:
        """Whether the kernel with these tiles can read them so, and gains by what is packed.

        Lines along k are copied element by element, packed or not, unless by bulk copies.
        """
        packed = {which for which, _ in self.copies}
        along_k = {which for which, x in ((A, self.a), (B, self.b)) if x.along_k}
        if packed & along_k and not tiles.bulk:
            return False
        are_aligned = self.a.is_aligned and self.b.is_aligned
        return tiles.takes(self.product.dtype, self.a.along_k, self.b.along_k, are_aligned)

    @property
    def seconds(self) -> float:
        """That the copies should take: packings in one launch, each transposition in its own."""
        packed = [copy for _, copy in self.copies if isinstance(copy, Packing)]
        launches = len(self.copies) - len(packed) + bool(packed)
        return launches * COPY_START + 2 * sum(copy.bytes for _, copy in self.copies) / COPY_RATE


def readings(product: Product) -> list[Reading]:
    """Every way to read a product; none if the kernel can't. The first copies nothing.

    A matrix that is aligned is copied by bulk copies, or by pieces of 16 bytes where its lines lie
    across k. Another can be copied element by element, or packed before; and one whose lines lie
    along k transposed.
    """
    sides = ((A, product.a, product.m), (B, product.b.transposed, product.n))
    of_a, of_b = (list(_ways(product, *side)) for side in sides)
    return [
        Reading(replace(product, a=a, b=b.transposed), lines_a, lines_b, (*copies_a, *copies_b))
        for a, lines_a, copies_a in of_a
        for b, lines_b, copies_b in of_b
    ]


def _ways(
    product: Product, which: int, operand: Operand, count: int
) -> Iterator[tuple[Operand, Lines, tuple[tuple[int, Copy], ...]]]:
    """Of ``operand``, of ``count`` rows and k columns: as it lies, and each copy of it."""
    k, batch, dtype = product.k, product.batch, product.dtype
    found = lines(operand, count, k, batch, dtype)
    if found is None:
        return
    yield operand, found, ()
    made: list[tuple[Copy, Operand]] = []
    packing = _packing(operand, count, k, batch, dtype, found.along_k) if found.is_off else None
    if packing is not None:
        half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
        pitch = packing.operand.row_stride // half
        row, column = (pitch, 1) if found.along_k else (1, pitch)
        made.append((packing, Operand(row, column, packing.operand.batch_stride // half)))
    if found.along_k and min(count, k) > 1:
        turning = transposition(operand, count, k, batch, dtype)
        if turning is not None:
            made.append((turning, turning.operand))
    for copy, new in made:
        padded = lines(new, count, k, batch, dtype, is_packed=True)
        assert padded is not None
        yield new, padded, ((which, copy),)


def _packing(
    operand: Operand, count: int, k: int, batch: int, dtype: str, along_k: bool
) -> Packing | None:
    """Of lines, as halves of their elements; None if they are too many."""
    half = ITEM_SIZES[dtype] // pack.ITEM_SIZE
    rows, columns = (count, half * k) if along_k else (k, half * count)
    if batch * max(rows, columns) > pack.LARGEST or min(count, k, batch) < 1:
        return None
    step = operand.row_stride if along_k else operand.column_stride
    view = Operand(step * half, 1, operand.batch_stride * half, operand.offset)
    return pack.packed(view, rows, columns, batch)


def objection(product: Product) -> str:
    """Why the kernel can't compute a product; empty if it can."""
    if product.dtype not in REAL:
        return f"the inputs are {product.dtype}"
    if max(product.m, product.n, product.k) > LARGEST:
        return "it counts to 2^31"
    for name, operand, count in (
        ("A", product.a, product.m), ("B", product.b.transposed, product.n),
    ):  # fmt: skip
        if lines(operand, count, product.k, product.batch, product.dtype) is None:
            return f"neither dimension of {name} is contiguous"
    if not any(True for _ in choices(product, 1, False)):
        return "it would take more blocks than a launch can have"
    return ""


def turned(product: Product) -> Product:
    """The same with A and B exchanged, where D's columns are contiguous and not its rows."""
    if product.d.column_stride == 1 or product.d.row_stride != 1:
        return product
    return replace(
        product, m=product.n, n=product.m, a=product.b.transposed, b=product.a.transposed,
        c=None if product.c is None else product.c.transposed, d=product.d.transposed,
    )  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A way to compute a product, and the seconds that it should take.

    The best is the least: of those that memory limits alike, what computes soonest. Copies of A or
    B take a workspace, so they have to gain more than what the seconds may be wrong by, and more
    yet where it is large.
    """

    seconds: float
    reading: Reading
    tiles: AnyTiles
    parts: int
    computing: float = 0.0

    def __lt__(self, other: Choice) -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[float, float]:
        workspace = sum(copy.bytes for _, copy in self.reading.copies)
        margin = LARGE_MARGIN if workspace > MOST_WORKSPACE else MARGIN
        return self.seconds * (margin if workspace else 1), self.computing


def choices(product: Product, multiprocessors: int, is_hopper: bool) -> Iterator[Choice]:
    """Every way to compute a product."""
    k = 0 if product.alpha == 0 else product.k
    elements = product.batch * product.m * _pitch(product)
    most = min(MOST_PARTS, k // LEAST_K, MOST_WORKSPACE // (elements * ITEM_SIZES[product.dtype]))
    every = readings(product)
    for tiles in EVERY[product.dtype]:
        if tiles.blocks(product) > MAX_GRID[0] or (tiles.bulk and not is_hopper):
            continue
        fitting = [each for each in every if each.fits(tiles)]
        for parts in _divisions(most):
            if parts > 1 and parts != -(-k // part_k(k, parts, tiles.block_k)):
                continue
            for reading in fitting:
                expected, computing = tiles.seconds(
                    product, multiprocessors, parts, reading.kind(tiles)
                )
                yield Choice(expected + reading.seconds, reading, tiles, parts, computing)


def _divisions(most: int) -> Iterator[int]:
    yield 1
    step = 1
    parts = 2
    while parts <= most:
        yield parts
        if parts >= 8 * step:
            step *= 2
        parts += step


def _pitch(product: Product) -> int:
    """Elements from row to row of the parts' sums."""
    width = ALIGNMENT // ITEM_SIZES[product.dtype]
    return -(-product.n // width) * width


def plan(product: Product, multiprocessors: int, is_hopper: bool) -> Plan:
    """How it computes a product to which it has no objection.

    Parameters
    ----------
    product : Product
    multiprocessors : int
    is_hopper : bool
        Whether the GPU is of compute capability 9.0.
    """
    view = turned(product)
    best = min(choices(view, multiprocessors, is_hopper))
    return planned(best, multiprocessors, is_hopper, is_turned=view is not product)


def planned(choice: Choice, multiprocessors: int, is_hopper: bool, is_turned: bool) -> Plan:
    """The plan of a choice, of a product or of that :func:`turned`."""
    product, tiles, parts = choice.reading.product, choice.tiles, choice.parts
    places = {A: Place(B if is_turned else A), B: Place(A if is_turned else B)}
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
    if sums is not None:
        steps.append(_sum(product, parts, sums, is_hopper))
        used += parts * product.batch * product.m * _pitch(product) * ITEM_SIZES[product.dtype]
    words = f"{tiles.words}, tiles of {tiles.block_m} x {tiles.block_n}"
    if tiles.bulk and isinstance(tiles, Tiles):
        words += ", copied by tensor maps"
    if is_turned:
        words += ", turned"
    if parts > 1:
        words += f", k in {parts} parts that are added up afterwards"
    for manner, done in (
        (Packing, "packed, as the rows are off 16 bytes"),
        (Transposition, "transposed"),
    ):
        made = [which for which, copy in choice.reading.copies if isinstance(copy, manner)]
        if made:
            names = " and ".join("BA"[x] if is_turned else "AB"[x] for x in made)
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
        columns = _pitch(product)
        alpha, beta, c, d = 1.0, 0.0, None, Operand(columns, 1, product.m * columns)
    data = _layout(product.dtype).product.pack(
        0, of_a.pitch, product.a.batch_stride, of_a.count,
        0, of_b.pitch, product.b.batch_stride, of_b.count,
        *_strides(c), *_strides(d), product.batch * product.m * columns,
        product.m, product.n, k, columns, part_k(k, parts, tiles.block_k), GROUP, alpha, beta,
    )  # fmt: skip
    found = [(0, places[A]), (32, places[B])]
    if c is not None:
        found.append((64, Place(C)))
    found.append((96, sums or Place(D)))
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
        (blocks, parts, 1), (tiles.threads, 1, 1), (Packed(data, tuple(found)), *maps), shared,
        overlap=is_hopper,
    )  # fmt: skip
    return Step(kernel, launch)


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


def _sum(product: Product, parts: int, sums: Place, overlap: bool) -> Step:
    pitch = _pitch(product)
    rows = product.batch * product.m
    data = _layout(product.dtype).sum.pack(
        0, rows * pitch, *_strides(product.c), *_strides(product.d),
        parts, product.batch, product.m, product.n, pitch, product.alpha, product.beta,
    )  # fmt: skip
    found = [(0, sums)]
    if product.c is not None:
        found.append((16, Place(C)))
    found.append((48, Place(D)))
    pieces = rows * pitch // (ALIGNMENT // ITEM_SIZES[product.dtype])
    blocks = min(-(-pieces // SUM_THREADS), MAX_GRID[0])
    launch = Launch((blocks, 1, 1), (SUM_THREADS, 1, 1), (Packed(data, tuple(found)),),
                    overlap=overlap)  # fmt: skip
    return Step(_sum_kernel(product.dtype, overlap), launch)


def _strides(x: Operand | None) -> tuple[int, int, int, int]:
    """A Batch of the kernels, its pointer to be filled in."""
    return (0, 0, 0, 0) if x is None else (0, x.row_stride, x.column_stride, x.batch_stride)


@dataclass(frozen=True)
class _Layout:
    """The kernels' structures."""

    product: struct.Struct
    sum: struct.Struct


@cache
def _layout(dtype: str) -> _Layout:
    scalars = {"float32": "2f4x", "float64": "4x2d"}[dtype]  # behind five 4-byte numbers
    return _Layout(
        struct.Struct("<Q2qI4xQ2qI4xQ3qQ3qq6I" + scalars.strip("4x")),
        struct.Struct("<QqQ3qQ3q5I" + scalars),
    )


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
        "A_ALONG_K": int(a_along_k), "A_WIDTH": a_width,
        "B_ALONG_K": int(b_along_k), "B_WIDTH": b_width,
        "BULK": int(tiles.bulk), "OVERLAP": int(overlap),
    }  # fmt: skip
    return Kernel(SOURCES[tiles.kernel], tiles.kernel, defines, tiles.options)


@cache
def _sum_kernel(dtype: str, overlap: bool) -> Kernel:
    return Kernel(SUM_SOURCE, "fma_sum", {"real": REAL[dtype], "OVERLAP": int(overlap)})
