"""The Hopper kernel: which products it takes, and its launches."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewise.devices.arguments import TENSOR_MAP_BYTES
from tilewise.gemm import fused
from tilewise.gemm.epilogue import Strided
from tilewise.gemm.families.hopper.cover import cover
from tilewise.gemm.families.hopper.matrices import Matrix, box_of, matrix_of
from tilewise.gemm.families.hopper.tiling import SUM_COLUMNS, Problem, Tiling
from tilewise.gemm.families.hopper.variants import (
    KERNELS,
    SOURCE,
    Variant,
    kernels_of,
    may_prefetch,
)
from tilewise.gemm.layouts import layout
from tilewise.gemm.product import FIRST_FUSED, WORKSPACE, A, B, C, D, Operand, Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Packed, Place

L2_PREFETCH = 4  # k-steps whose tiles are prefetched to L2 until the kernels ahead have ended
STAGED_ROWS = 64  # the rows of a box of a row-major staged operand
STORE = SOURCE.with_name("hopper_store.cuh")
LATELY = 64  # products whose properties are cached while a plan is made
HALVES = ("float16", "bfloat16")
_NO_MAP = bytes(TENSOR_MAP_BYTES)
LARGEST = 2**31 - 512  # the kernel counts sizes, and tiles, by int, up to a tile past the end


class Seen(NamedTuple):
    """A 16-bit product's matrices as the kernel sees them, and what follows from them.

    Attributes
    ----------
    a, b, d : Matrix
        A, the transpose of B, and D.
    by_rows : bool or None
        Whether D's rows are contiguous (True), its columns (False), or neither (None).
    by_tma : bool
        Whether TMA can store D; otherwise the threads store it.
    reads_c : bool
        Whether the kernel reads C.
    up : Matrix or None
        The transpose of the second matrix B of a product of pairs; None if ``b`` holds both, with
        alternating columns, or for other products.
    a_unaligned, b_unaligned : str
        Why ``a`` and ``b`` are not 16-byte aligned; empty if they are.
    """

    a: Matrix
    b: Matrix
    d: Matrix
    by_rows: bool | None
    by_tma: bool
    reads_c: bool
    up: Matrix | None
    a_unaligned: str
    b_unaligned: str


@lru_cache(maxsize=LATELY)
def objection(product: Product) -> str:
    """Return why the kernel can't take a product; empty if it can."""
    if product.dtype not in HALVES:
        return f"the inputs are {product.dtype}, not 16-bit"
    m, n, k, batch = product.m, _columns(product), product.k, product.batch
    if not (m and n and k and batch) or product.alpha == 0:
        return "there is nothing to multiply"
    if max(m, n, k, -(-m // 64) * -(-n // 64) * batch) > LARGEST:
        return "it is too large"
    seen = _seen(product)
    if seen.a_unaligned and (words := seen.a.unreadable()):
        return f"A {words}"
    if seen.b_unaligned and (words := seen.b.unreadable()):
        return f"B {words}"
    if seen.up is not None:
        if words := seen.b_unaligned or seen.up.unaligned():
            return f"of two matrices B, which TMA copies, one {words}"
        if seen.up.is_k_major is not seen.b.is_k_major:
            return "the two matrices B lie differently"
    if seen.by_rows is None:
        return "neither dimension of D is contiguous"
    if product.c is not None and seen.reads_c:
        step = product.c.column_stride if seen.by_rows else product.c.row_stride
        if step != 1 and (n if seen.by_rows else m) > 1:
            return "C does not lie as D does"
    return ""


def unaligned(product: Product, which: int) -> str:
    """Return why A or B is not 16-byte aligned; empty if it is."""
    seen = _seen(product)
    if which == A:
        return seen.a_unaligned
    return seen.b_unaligned or ("" if seen.up is None else seen.up.unaligned())


@lru_cache(maxsize=LATELY)
def problem(product: Product) -> Problem:
    """Return the properties of a product that decide how fast its tiles are."""
    a, b, _, by_rows, by_tma, reads_c, up, a_unaligned, b_unaligned = _seen(product)
    of_b = b.alignment if up is None else min(b.alignment, up.alignment)
    epilogue, sums = product.epilogue, 1 if product.pairing is None else 2
    fused, moved = (epilogue.instructions / sums, epilogue.bytes / sums) if epilogue else (0.0, 0.0)
    return Problem(
        product.m, _columns(product), product.k, product.batch, a.is_k_major, b.is_k_major,
        a.alignment, of_b, bool(a_unaligned), bool(b_unaligned), bool(by_rows), by_tma,
        ITEM_SIZES[product.out_dtype], reads_c, product.pairing is not None,
        product.pairing is not None and up is None, fused, moved,
    )  # fmt: skip


def _columns(product: Product) -> int:
    """Return the columns of A B, or for pairs the columns of both products."""
    return product.n if product.pairing is None else 2 * product.n


@lru_cache(maxsize=LATELY)
def _seen(product: Product) -> Seen:
    m, n, k, batch, of_d = product.m, product.n, product.k, product.batch, product.d
    item = ITEM_SIZES[product.out_dtype]
    d = matrix_of(of_d, m, n, batch, item)
    by_rows: bool | None = of_d.column_stride == 1 or n == 1
    if not by_rows and of_d.row_stride != 1 and m != 1:
        by_rows = None
    reads_c = product.c is not None and product.beta != 0
    by_tma = (
        not reads_c
        and (n if by_rows else m) * item % 16 == 0  # TMA writes whole 16 bytes
        and d.by_rows is by_rows
        and not d.unaligned()
    )
    a, b = matrix_of(product.a, m, k, batch), matrix_of(product.b.transposed, n, k, batch)
    up, pairing = None, product.pairing
    if pairing is not None:
        up = matrix_of(pairing.operand.transposed, n, k, batch)
        if product.order == "interleaved" and pairing.whole is not None:
            # If the columns alternate, K-major matrices can be read one by one; MN-major ones
            # can't.
            are_rows = b.is_k_major and up.is_k_major
            if not are_rows or b.unaligned() or up.unaligned():
                b, up = matrix_of(pairing.whole.transposed, 2 * n, k, batch), None
    return Seen(a, b, d, by_rows, by_tma, reads_c, up, a.unaligned(), b.unaligned())


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
    """Return the plan of a product's launches.

    Parameters
    ----------
    product : Product
    multiprocessors : int
        The number of the GPU's multiprocessors.
    tiling : Tiling
    a_at, b_at, d_at : Place
        The places of A, B and D.
    workspace : int
        The bytes at the workspace's beginning that are in use; a multiple of 256.

    Raises
    ------
    ValueError
        If the kernel has an objection to the product, or the tiling does not fit it.
    """
    if words := objection(product):
        raise ValueError(f"the Hopper kernel can't take this product: {words}")
    swapped, view = _as_computed(product, tiling)
    if words := tiling.objection(view):
        raise ValueError(f"{tiling}: {words}")
    at = cover(tiling, view.m, view.n, view.k, view.batch, multiprocessors)
    if tiling.swapped:
        a_at, b_at = b_at, a_at
    seen = _seen(swapped)
    a, b, d = seen.a, seen.b, seen.d
    a_rows, by_rows, by_tma = tiling.a_rows(view), view.d_row_major, view.d_by_tma
    staged = None if swapped.epilogue is None else _staged(swapped, tiling, view)
    is_divided = at.splits > 1
    template = _template_of(
        Variant(
            swapped.dtype, swapped.out_dtype, a.is_k_major, b.is_k_major, a_rows,
            seen.reads_c, by_rows, by_tma, view.pairs, view.interleaved,
            None if staged is None else staged.number,
        ),
        tiling,
        is_divided,
    )  # fmt: skip
    extra_operands = []
    if seen.up is not None:
        up_at = product.up_at(b_at)
        extra_operands.append(
            seen.up.operand(up_at, product.dtype, template.b_box, is_unaligned=False)
        )
    if staged is not None:
        place = Place(FIRST_FUSED + staged.number)
        extra_operands.append(
            staged.matrix.operand(place, staged.dtype, template.staged_box, is_unaligned=False)
        )
    # A matrix that an earlier kernel copies to the workspace is not there yet.
    is_prefetched = (
        template.may_prefetch and view.is_streamed and WORKSPACE not in (a_at.array, b_at.array)
    )
    out, sums = _out(swapped, by_rows, d_at), Place(WORKSPACE, workspace)
    main = Launch(
        (at.clusters * template.blocks, 1, 1),
        template.block,
        (
            a.operand(a_at, swapped.dtype, template.a_box, tiling.a_unaligned),
            b.operand(b_at, swapped.dtype, template.b_box, tiling.b_unaligned),
            *extra_operands,
            d.map(d_at, swapped.out_dtype, template.d_box) if by_tma else _NO_MAP,
            out, swapped.k, at.m_tiles, at.n_tiles, at.data_parallel_tiles, at.tail_tiles,
            at.splits, L2_PREFETCH if is_prefetched else 0, a_rows, sums if is_divided else 0,
        ),
        template.shared,
        overlap=True,
    )  # fmt: skip
    steps = [fused.step(template.kernels[0], main, swapped)]
    if is_divided:
        columns = tiling.block_n // (1 if seen.up is None else 2)  # of each matrix B
        summing = Launch(
            grid=(at.tail_tiles * tiling.tiles, columns // SUM_COLUMNS, 1),
            block=(128 * tiling.sharers, 1, 1),
            args=(
                out, tiling.block_n, tiling.cluster_m, tiling.cluster_n,
                at.m_tiles // tiling.cluster_m, at.n_tiles // tiling.cluster_n,
                at.data_parallel_tiles, at.tail_tiles, at.splits, sums,
            ),
            overlap=True,
        )  # fmt: skip
        steps.append(fused.step(template.kernels[1], summing, swapped))
        workspace += at.tail_tiles * at.splits * tiling.tiles * 4 * tiling.block_m * tiling.block_n
    return Plan(tuple(steps), workspace, template.words, "")


class _LaunchTemplate(NamedTuple):
    """The part of a launch that is kept for products of other sizes.

    It depends on the kernel and on the rows of A that each copy loads.

    Attributes
    ----------
    kernels : tuple of Kernel
        The kernel, and if there is a stream-K tail the kernel that reduces it.
    block : (int, int, int)
        The threads of a block.
    blocks : int
        The blocks of a cluster.
    shared : int
        The bytes of a block's dynamic shared memory.
    a_box, b_box, d_box, staged_box : (int, int)
        The extents of the TMA boxes of A, of each matrix B, of D and of a staged operand.
    may_prefetch : bool
        Whether the first tiles may be prefetched to L2.
    words : str
        The kernel and its tiles in words.
    """

    kernels: tuple[Kernel, ...]
    block: tuple[int, int, int]
    blocks: int
    shared: int
    a_box: tuple[int, int]
    b_box: tuple[int, int]
    d_box: tuple[int, int]
    staged_box: tuple[int, int]
    may_prefetch: bool
    words: str


@lru_cache(maxsize=KERNELS)
def _template_of(variant: Variant, tiling: Tiling, is_divided: bool) -> _LaunchTemplate:
    """Return what the launches of one kernel have in common."""
    pairs, is_staged = variant.pairs, variant.staged is not None
    b_columns = tiling.block_n // (2 if pairs and not variant.interleaved else 1)
    stored = tiling.stored_columns(pairs)
    d_columns = 2 * stored // ITEM_SIZES[variant.out_dtype]
    d_box = (d_columns, 16) if variant.d_row_major else (16, d_columns)
    view = Problem(1, 1, 1, a_k_major=variant.a_k_major, b_k_major=variant.b_k_major, pairs=pairs)
    return _LaunchTemplate(
        kernels_of(variant, tiling, is_divided),
        (tiling.threads, 1, 1),
        tiling.tiles * tiling.split,
        tiling.shared_bytes(view, is_staged),
        box_of(variant.a_k_major, variant.a_rows, tiling.cluster_n),
        box_of(variant.b_k_major, b_columns, tiling.cluster_m),
        d_box,
        (stored, STAGED_ROWS) if variant.d_row_major else d_box,
        may_prefetch(tiling, is_divided),
        _words(tiling, pairs, is_staged) + (", pairs of columns" if pairs else ""),
    )


def words_of(product: Product, tiling: Tiling) -> str:
    """Return the kernel and its tiles in words, as they compute a product."""
    if product.epilogue is None:
        return tiling.words
    seen, view = _as_computed(product, tiling)
    return _words(tiling, view.pairs, _staged(seen, tiling, view) is not None)


def _words(tiling: Tiling, pairs: bool, is_staged: bool) -> str:
    return tiling.staged_words(pairs) if is_staged else tiling.words


def _as_computed(product: Product, tiling: Tiling) -> tuple[Product, Problem]:
    """Return the product, or D's transpose if the tiling swaps A and B, and its problem."""
    if tiling.swapped:
        return product.transposed, problem(product).swapped
    return product, problem(product)


class Staged(NamedTuple):
    """An epilogue's array that the producer copies to shared memory.

    Attributes
    ----------
    number : int
        Its number among the arrays that the epilogue reads.
    dtype : str
    matrix : Matrix
        The batch of matrices that the kernel sees in it.
    """

    number: int
    dtype: str
    matrix: Matrix


def _staged(product: Product, tiling: Tiling, view: Problem) -> Staged | None:
    """Return the first array of an epilogue that can be staged (hopper_staged.cuh), or None.

    ``product`` is as the kernel sees it.
    """
    if product.epilogue is None or not view.d_by_tma or view.d_item != 2 or view.interleaved:
        return None
    if tiling.is_unaligned or tiling.split > 1:
        return None
    inputs = [x for x in product.epilogue.inputs if isinstance(x, Strided)]
    for i, x in enumerate(inputs):
        if not x.is_matrix or ITEM_SIZES[x.dtype] != 2:
            continue
        operand = Operand(x.row_stride, x.column_stride, x.batch_stride, x.offset)
        matrix = matrix_of(operand, product.m, product.n, product.batch)
        if matrix.by_rows is view.d_row_major and not matrix.unaligned():
            return Staged(i, x.dtype, matrix)
    return None


def _out(product: Product, by_rows: bool, d_at: Place) -> Packed:
    """Return the bytes of the kernel's Out, with C, or D in its place if there is no C, and D."""
    d, c, c_at = product.d, product.d, d_at
    if product.c is not None and product.beta != 0:
        c, c_at = product.c, Place(C)
    pitch_c, pitch_d = (x.row_stride if by_rows else x.column_stride for x in (c, d))
    return layout(STORE, "Out").pack({
        "m": product.m, "n": product.n, "alpha": product.alpha, "beta": product.beta,
        "c": c_at, "ldc": pitch_c, "c_step": c.batch_stride,
        "d": d_at, "ldd": pitch_d, "d_step": d.batch_stride,
    })  # fmt: skip
