"""The Hopper kernel: which products it takes, its tensor maps, and its launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product as combinations
from typing import Any

from tilewise.devices.arguments import TENSOR_MAP_BYTES
from tilewise.gemm.families.hopper.tilings import (
    BLOCK_K,
    SUM_COLUMNS,
    Problem,
    Tiling,
    cover,
    fits,
    is_filled,
    tilings,
)
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.product import (
    ACCUMULATORS,
    ITEM_SIZES,
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
from tilewise.launch import Launch, Packed, Place, TensorMap

L2_PREFETCH = 4  # k-steps whose tiles are prefetched to L2 while the kernels ahead end
SOURCE = SOURCES / "gemm" / "hopper.cu"
SUM_SOURCE = SOURCE.with_name("hopper_sum.cu")
LOAD, STORE = SOURCE.with_name("hopper_load.cuh"), SOURCE.with_name("hopper_store.cuh")
LATELY = 64  # products of which is kept what is asked again on the way to a plan
HALVES = ("float16", "bfloat16")
SECTOR_BYTES = 32

LARGEST = 2**31 - 512  # the kernel counts sizes, and tiles, by int, up to a tile past the end
LARGEST_STRIDE = 2**40  # bytes, exclusive (CUDA driver API, cuTensorMapEncodeTiled)


@lru_cache(maxsize=LATELY)
def objection(product: Product) -> str:
    """Why the kernel can't take a product; empty if it can."""
    if product.dtype not in HALVES:
        return f"the inputs are {product.dtype}, not 16-bit"
    if not all((product.m, product.n, product.k, product.batch)) or product.alpha == 0:
        return "there is nothing to multiply"
    tiles = -(-product.m // 64) * -(-product.n // 64) * product.batch
    if max(product.m, product.n, product.k, tiles) > LARGEST:
        return "it is too large"
    for name, x in _inputs(product).items():
        if words := x.unreadable():
            return f"{name} {words}"
    by_rows = _out_by_rows(product)
    if by_rows is None:
        return "neither dimension of D is contiguous"
    if product.c is not None and _reads_c(product):
        step = product.c.column_stride if by_rows else product.c.row_stride
        if step != 1 and (product.n if by_rows else product.m) > 1:
            return "C does not lie as D does"
    return ""


def _out_by_rows(product: Product) -> bool | None:
    """Whether D's rows are contiguous (True), its columns (False), or neither (None)."""
    if product.d.column_stride == 1 or product.n == 1:
        return True
    return False if product.d.row_stride == 1 or product.m == 1 else None


def _reads_c(product: Product) -> bool:
    return product.c is not None and product.beta != 0


@lru_cache(maxsize=LATELY)
def stores_by_copies(product: Product) -> bool:
    """Whether D lies such that bulk copies can store it, and not only the threads themselves."""
    by_rows = _out_by_rows(product)
    item = ITEM_SIZES[product.out_dtype]
    d = _Matrix(product.d, product.m, product.n, product.batch, item)
    return (
        not _reads_c(product)
        and (product.n if by_rows else product.m) * item % 16 == 0  # they write whole 16 bytes
        and d.by_rows is by_rows
        and not d.unaligned()
    )


def unaligned(product: Product, which: int) -> str:
    """Why tiles of A or B have to be shifted, if it is not repacked; empty if they don't."""
    return _inputs(product)["AB"[which]].unaligned()


@lru_cache(maxsize=LATELY)
def problem(product: Product) -> Problem:
    """What of a product decides how fast its tiles are."""
    a, b = _inputs(product).values()
    return Problem(
        product.m,
        product.n,
        product.k,
        product.batch,
        a_k_major=a.is_k_major,
        b_k_major=b.is_k_major,
        a_alignment=a.alignment,
        b_alignment=b.alignment,
        a_shifted=bool(a.unaligned()),
        b_shifted=bool(b.unaligned()),
        d_row_major=bool(_out_by_rows(product)),
        d_copied=stores_by_copies(product),
    )


@dataclass(frozen=True)
class _Matrix:
    """A batch of matrices as bulk copies see them: A, D, and B's transpose, so that k runs along
    the rows of both inputs."""

    x: Operand
    rows: int
    columns: int
    batch: int
    item: int = 2

    @cached_property
    def by_rows(self) -> bool | None:
        """Whether rows are contiguous (True), columns (False), or neither (None).

        Where both are, as in a vector, the one whose other stride bulk copies can use.
        """
        by_rows = self.x.column_stride == 1 or self.columns == 1
        by_columns = self.x.row_stride == 1 or self.rows == 1
        if by_rows and by_columns:
            return self.rows == 1 or (self.columns > 1 and self.x.row_stride % 8 == 0)
        return by_rows if by_rows or by_columns else None

    @property
    def is_k_major(self) -> bool:
        """Of A, or of B's transpose, whether k is contiguous."""
        return bool(self.by_rows)

    @cached_property
    def lines(self) -> tuple[int, int, int]:
        """What is contiguous: its extent, how many of it there are, and their stride."""
        if self.by_rows:
            return self.columns, self.rows, self.x.row_stride
        return self.rows, self.columns, self.x.column_stride

    def unaligned(self) -> str:
        """Why not all lines begin at multiples of 16 bytes; empty if they do."""
        if self.by_rows is None:
            return "has no contiguous dimension"
        if self.x.offset:
            return "does not begin at a multiple of 16 bytes"
        return self._apart()

    def unreadable(self) -> str:
        """Why the kernel can't read it, copied or not; empty if it can."""
        if self.by_rows is None:
            return "has no contiguous dimension"
        if self.x.offset % self.item:
            return f"does not begin at a multiple of {self.item} bytes"
        _, count, stride = self.lines
        if (count > 1 and stride < 0) or (self.batch > 1 and self.x.batch_stride < 0):
            return "has a negative stride"
        if self.unaligned() and count > 1 and stride == 0:
            return "has one line for all, which does not begin at a multiple of 16 bytes"
        return ""

    def _apart(self) -> str:
        """Why bulk copies don't find all lines; empty if they do."""
        _, count, stride = self.lines
        for step in (stride if count > 1 else 0, self.x.batch_stride if self.batch > 1 else 0):
            if self.item * step % 16:
                return f"has a stride of {self.item * step} bytes, no multiple of 16"
            if not 0 <= self.item * step < LARGEST_STRIDE:
                return f"has a stride of {self.item * step} bytes"
        return ""

    @property
    def alignment(self) -> int:
        """Bytes of which the beginnings of all lines are multiples: at most 128, at least 16."""
        _, count, stride = self.lines
        step = self.item * stride if count > 1 else 0
        step |= self.item * self.x.batch_stride if self.batch > 1 else 0
        step |= self.x.offset
        return min(max(step & -step, 16), 128) if step else 128

    def map(self, place: Place, dtype: str, box: tuple[int, int]) -> TensorMap:
        """Of all of it, its first element at ``place``."""
        inner, count, stride = self.lines
        batches = self.batch if self.x.batch_stride else 1
        # Of a single line, or a single batch, the stride is never used, but has to be one.
        pitch = -(-inner // 8) * 8 if count == 1 else stride
        step = self.x.batch_stride if batches > 1 else 8
        # A piece of 128 bytes that does not begin with a line would bring two lines whole.
        promotion = 128 if self.alignment >= SECTOR_BYTES else 64
        extents, strides = (inner, count, batches), (self.item * pitch, self.item * step)
        return TensorMap(place, dtype, extents, strides, box, promotion)

    def operand(self, place: Place, dtype: str, lines: int, is_shifted: bool) -> Packed:
        """hopper_load.cuh's operand; a tile has so many lines."""
        inner, count, stride = self.lines
        if is_shifted:
            pitch = self.item * stride if count > 1 else 0
            step = self.item * self.x.batch_stride if self.batch > 1 else 0
            end = (self.batch - 1) * step + (count - 1) * pitch + self.item * inner
            return layout(LOAD, "UnalignedOperand").pack({
                "begin": place, "bytes": end, "pitch": pitch, "step": step, "lines": count,
                "length": inner,
            })  # fmt: skip
        return layout(LOAD, "MappedOperand").pack({
            "map": self.map(place, dtype, (BLOCK_K, lines)),
            "batches": self.batch if self.x.batch_stride else 1,
        })  # fmt: skip


@lru_cache(maxsize=LATELY)
def _inputs(product: Product) -> dict[str, _Matrix]:
    return {
        "A": _Matrix(product.a, product.m, product.k, product.batch),
        "B": _Matrix(product.b.transposed, product.n, product.k, product.batch),
    }


@dataclass(frozen=True)
class Variant:
    """What decides which kernel computes a product, beside its tiling.

    Attributes
    ----------
    dtype, out_dtype : str
    a_k_major, b_k_major : bool
        Of what the kernel takes for A and B, whether k is the contiguous dimension.
    a_rows : int
        Rows of a tile of A that are loaded. It makes a kernel of its own only where A is not
        16-byte aligned: the loops of the threads that load it are unrolled over its rows.
        Elsewhere it is an argument.
    reads_c : bool
    d_row_major : bool
        Whether D's rows are contiguous, as the kernel stores it, or its columns.
    by_copies : bool
        Whether bulk copies store D.
    """

    dtype: str
    out_dtype: str
    a_k_major: bool
    b_k_major: bool
    a_rows: int
    reads_c: bool
    d_row_major: bool
    by_copies: bool

    def kernels(self, tiling: Tiling, is_divided: bool) -> list[Kernel]:
        """Return the kernel, and where the last wave is divided the one that adds up its parts."""
        defines = self._defines(tiling, is_divided)
        found = [Kernel(SOURCE, "hopper", defines)]
        if is_divided:
            of_d = {name: defines[name] for name in ("OUTPUT", "READ_C", "OUT_COLUMN_MAJOR")}
            of_d["ROW_BLOCKS"] = tiling.block_m // (64 * tiling.sharers)
            found.append(Kernel(SUM_SOURCE, "hopper_sum", of_d))
        return found

    def _defines(self, tiling: Tiling, is_divided: bool) -> dict[str, Any]:
        view = Problem(1, 1, 1, a_k_major=self.a_k_major, b_k_major=self.b_k_major)
        return {
            "INPUT": TYPES[self.dtype],
            "OUTPUT": TYPES[self.out_dtype],
            "BLOCK_M": tiling.block_m,
            "BLOCK_N": tiling.block_n,
            "CONSUMERS": tiling.consumers,
            "PING_PONG": int(tiling.ping_pong),
            "STAGES": tiling.stages,
            "CLUSTER_M": tiling.cluster_m,
            "CLUSTER_N": tiling.cluster_n,
            "SPLIT": tiling.split,
            "STREAM_K": int(is_divided),
            "A_K_MAJOR": int(self.a_k_major),
            "B_K_MAJOR": int(self.b_k_major),
            "A_UNALIGNED": int(tiling.a_shifted),
            "B_UNALIGNED": int(tiling.b_shifted),
            **({"RAW_STAGES": tiling.raw_stages(view)} if tiling.shifted else {}),
            **({"A_ROWS": self.a_rows} if tiling.a_shifted else {}),
            "READ_C": int(self.reads_c),
            "OUT_COLUMN_MAJOR": int(not self.d_row_major),
            "OUT_COLUMNS": tiling.out_columns,
            "TMA_OUT": int(self.by_copies),
        }


def _may_prefetch(tiling: Tiling, is_divided: bool) -> bool:
    """Whether the first tiles may be brought to the L2 cache: behind hopper_sum it was no gain."""
    return not (tiling.shifted or is_divided)


def every_kernel(dtype: str, multiprocessors: int) -> Iterator[Kernel]:
    """Yield every kernel that a product can ask for, by the tilings that the planner chooses from.

    Parameters
    ----------
    dtype : str
        Of A and B, one of :data:`HALVES`.
    multiprocessors : int
        Of the GPU.
    """
    both = (False, True)
    found: dict[tuple[str, frozenset[tuple[str, Any]]], Kernel] = {}
    for a_shifted, b_shifted in combinations(both, both):
        for tiling in tilings(a_shifted, b_shifted):
            if fits(tiling, multiprocessors):
                for variant in _variants(tiling, dtype):
                    # The planner leaves out tilings of which nothing is divided.
                    for kernel in variant.kernels(tiling, tiling.shared):
                        found.setdefault((kernel.name, frozenset(kernel.defines.items())), kernel)
    yield from found.values()


def _variants(tiling: Tiling, dtype: str) -> Iterator[Variant]:
    """Yield every variant of products for which a tiling may be chosen."""
    both, large = (False, True), 1 << 20
    outputs = tuple(dict.fromkeys((dtype, ACCUMULATORS[dtype])))
    for a_k_major, b_k_major in combinations(both, both):
        views = [
            Problem(
                m, large, large, a_k_major=a_k_major, b_k_major=b_k_major,
                a_shifted=tiling.a_shifted, b_shifted=tiling.b_shifted,
            )
            for m in (8, 16, 32, 64, 128, large)
            if is_filled(tiling, m, large)
        ]  # fmt: skip
        if tiling.objection(views[-1]):
            continue
        loaded = {tiling.a_rows(view) for view in views}
        rows = sorted(loaded) if tiling.a_shifted else [tiling.block_m]
        for out, a_rows, reads_c, d_row_major, by_copies in combinations(
            outputs, rows, both, both, both
        ):
            if not (reads_c and by_copies):
                yield Variant(
                    dtype, out, a_k_major, b_k_major, a_rows, reads_c, d_row_major, by_copies
                )


def plan(
    product: Product,
    multiprocessors: int,
    tiling: Tiling,
    *,
    a_at: Place = Place(A),
    b_at: Place = Place(B),
    d_at: Place = Place(D),
    workspace: int = 0,
) -> Plan:
    """The launches for a product.

    Parameters
    ----------
    product : Product
    multiprocessors : int
        Of the GPU.
    tiling : Tiling
    a_at, b_at, d_at : Place
        Where A, B and D lie.
    workspace : int
        Bytes at the workspace's beginning that are in use; a multiple of 256.

    Raises
    ------
    ValueError
        If the kernel has an objection to the product, or the tiling does not fit it.
    """
    if words := objection(product):
        raise ValueError(f"the Hopper kernel can't take this product: {words}")
    # With A and B swapped, the kernel computes D's transpose.
    swapped, view = product.transposed if tiling.swapped else product, problem(product)
    if tiling.swapped:
        view = view.swapped
    if words := tiling.objection(view):
        raise ValueError(f"{tiling}: {words}")
    m, n, k, batch = swapped.m, swapped.n, swapped.k, swapped.batch
    at = cover(tiling, m, n, k, batch, multiprocessors)
    if tiling.swapped:
        a_at, b_at = b_at, a_at
    a, b = _inputs(swapped).values()
    d = _Matrix(swapped.d, m, n, batch, ITEM_SIZES[swapped.out_dtype])
    a_rows = tiling.a_rows(view)
    a_lines = _box_lines(a.is_k_major, a_rows, tiling.cluster_n)
    b_lines = _box_lines(b.is_k_major, tiling.block_n, tiling.cluster_m)
    by_rows = bool(_out_by_rows(swapped))
    by_copies = stores_by_copies(swapped)
    d_columns = 2 * tiling.out_columns // d.item
    d_box = (d_columns, 16) if by_rows else (16, d_columns)
    is_divided = at.parts > 1
    # What a kernel ahead copies is not there yet.
    is_prefetched = (
        view.is_streamed
        and _may_prefetch(tiling, is_divided)
        and WORKSPACE not in (a_at.array, b_at.array)
    )
    variant = Variant(
        swapped.dtype, swapped.out_dtype, a.is_k_major, b.is_k_major, a_rows,
        _reads_c(swapped), by_rows, by_copies,
    )  # fmt: skip
    kernels = variant.kernels(tiling, is_divided)
    out, sums = _out(swapped, by_rows, d_at), Place(WORKSPACE, workspace)
    main = Launch(
        grid=(at.units * tiling.tiles * tiling.split, 1, 1),
        block=(tiling.threads, 1, 1),
        args=(
            a.operand(a_at, swapped.dtype, a_lines, tiling.a_shifted),
            b.operand(b_at, swapped.dtype, b_lines, tiling.b_shifted),
            d.map(d_at, swapped.out_dtype, d_box) if by_copies else bytes(TENSOR_MAP_BYTES),
            out, k, at.m_tiles, at.n_tiles, at.whole, at.rest, at.parts,
            L2_PREFETCH if is_prefetched else 0, a_rows, sums if is_divided else 0,
        ),
        shared=tiling.shared_bytes(view),
        overlap=True,
    )  # fmt: skip
    steps = [Step(kernels[0], main)]
    if is_divided:
        summing = Launch(
            grid=(at.rest * tiling.tiles, tiling.block_n // SUM_COLUMNS, 1),
            block=(128 * tiling.sharers, 1, 1),
            args=(
                out, tiling.block_n, tiling.cluster_m, tiling.cluster_n,
                at.m_tiles // tiling.cluster_m, at.n_tiles // tiling.cluster_n,
                at.whole, at.rest, at.parts, sums,
            ),
            overlap=True,
        )  # fmt: skip
        steps.append(Step(kernels[1], summing))
        workspace += at.rest * at.parts * tiling.tiles * 4 * tiling.block_m * tiling.block_n
    return Plan(
        steps=tuple(steps),
        workspace=workspace,
        chosen=tiling.words,
        why="",
    )


def _box_lines(is_k_major: bool, extent: int, parts: int) -> int:
    """Return the lines of a box of a tensor map, as each_box of hopper_load.cuh divides a tile."""
    if is_k_major:
        return extent // parts
    divided = 1
    while extent // 64 * divided % parts:
        divided *= 2
    return BLOCK_K // divided


def _out(product: Product, by_rows: bool, d_at: Place) -> Packed:
    """The kernel's Out: C, which is D where there is none, and D."""
    d, c, c_at = product.d, product.d, d_at
    if product.c is not None and _reads_c(product):
        c, c_at = product.c, Place(C)
    pitch_c, pitch_d = (x.row_stride if by_rows else x.column_stride for x in (c, d))
    return layout(STORE, "Out").pack({
        "m": product.m, "n": product.n, "alpha": product.alpha, "beta": product.beta,
        "c": c_at, "ldc": pitch_c, "c_step": c.batch_stride,
        "d": d_at, "ldd": pitch_d, "d_step": d.batch_stride,
    })  # fmt: skip
