"""The grouped Hopper kernel: the products that it takes, and its launch."""

from __future__ import annotations

from functools import lru_cache

from tilewise.gemm import fused
from tilewise.gemm.families.hopper.matrices import Matrix, box_of, matrix_of
from tilewise.gemm.grouped.product import OFFSET_TYPES, OFFSETS, A, B, D, Grouped
from tilewise.gemm.grouped.tiles import FEW_GROUPS, MOST_GROUPS, MOST_OUT_BUFFERS, Tiles
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.steps import KERNELS, Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place
from tilewise.precision import HALVES

SOURCE = SOURCES / "gemm" / "hopper_grouped.cu"
STORE = SOURCE.with_name("hopper_out.cuh")
OUT_BUFFERS = {True: MOST_OUT_BUFFERS, False: 1}  # of a warp, for D, by whether it is stored by TMA
LARGEST = 2**31 - 512  # the kernel counts sizes, and tiles, by int, up to a tile past the end


def objection(product: Grouped) -> str:
    """Return why the kernel can't take a product, with A and B as they are; empty if it can."""
    p = product
    if p.dtype not in HALVES:
        return f"the inputs are {p.dtype}, not 16-bit"
    if not (p.m and p.n and p.k):
        return "there is nothing to multiply"
    if p.groups > MOST_GROUPS:
        return f"there are {p.groups:,} groups, more than {MOST_GROUPS:,}"
    if max(p.m, p.n, p.k) > LARGEST:
        return "it is too large"
    a, b, _ = matrices(p)
    for name, x, lines in (("A", a, "m"), ("B", b, "n")):
        if words := x.unaligned():
            return f"{name} {words}"
        if p.of == ("k" if x.is_k_major else lines):
            return f"{name} is contiguous along the dimension that is in groups"
    by_rows = _is_by_rows(p)
    if by_rows is None:
        return "neither dimension of D is contiguous"
    if p.of == ("n" if by_rows else "m"):
        return "D is contiguous along the dimension that is in groups"
    return ""


def matrices(product: Grouped) -> tuple[Matrix, Matrix, Matrix]:
    """Return A, the transpose of B, and D, as TMA sees them."""
    p = product
    of_a, of_b, of_d = p.batches
    return (
        matrix_of(p.a, p.m, p.k, of_a),
        matrix_of(p.b.transposed, p.n, p.k, of_b),
        matrix_of(p.d, p.m, p.n, of_d, ITEM_SIZES[p.out_dtype]),
    )


def _is_by_rows(p: Grouped) -> bool | None:
    """Return whether D's rows are contiguous (True), its columns (False), or neither (None).

    If both are, the dimension that is not in groups counts.
    """
    rows, columns = p.d.column_stride == 1 or p.n == 1, p.d.row_stride == 1 or p.m == 1
    if rows and columns:
        return p.of != "n"
    return True if rows else False if columns else None


def _is_by_tma(p: Grouped, d: Matrix, by_rows: bool) -> bool:
    """Return whether D is stored by TMA: lines of whole 16 bytes that no group shares."""
    whole = (p.n if by_rows else p.m) * ITEM_SIZES[p.out_dtype] % 16 == 0
    return p.of != "n" and whole and d.by_rows is by_rows and not d.unaligned()


def tile_count(product: Grouped, tiles: Tiles) -> int:
    """Return the most clusters' tiles that there can be."""
    p = product
    rows, columns = tiles.block_m * tiles.cluster_m, tiles.block_n * tiles.cluster_n
    if tiles.turning:
        rows = tiles.block_m
    if p.of == "k":
        return -(-p.m // rows) * -(-p.n // columns) * p.groups
    of_groups, across = (rows, -(-p.n // columns)) if p.of == "m" else (columns, -(-p.m // rows))
    return (p.total // of_groups + min(p.groups, p.total)) * across


def plan(product: Grouped, tiles: Tiles, multiprocessors: int) -> Plan:
    """Return the plan of a product's launch.

    Parameters
    ----------
    product : Grouped
        The product as it was asked for.
    tiles : Tiles
    multiprocessors : int
        The number of the GPU's multiprocessors.

    Raises
    ------
    ValueError
        If the kernel has an objection to the product, or the tiles do not fit it.
    """
    p = product.transposed if tiles.swapped else product
    if words := objection(p):
        raise ValueError(f"the grouped Hopper kernel can't take this product: {words}")
    a, b, d = matrices(p)
    if words := tiles.objection(p.of, b.is_k_major):
        raise ValueError(f"{tiles}: {words}")
    if tile_count(p, tiles) > LARGEST:
        raise ValueError(f"{tiles}: there are too many of them")
    by_rows = bool(_is_by_rows(p))
    a_at, b_at = (Place(B), Place(A)) if tiles.swapped else (Place(A), Place(B))
    most_groups = FEW_GROUPS if p.groups <= FEW_GROUPS else MOST_GROUPS
    by_tma = _is_by_tma(p, d, by_rows)
    width = 2 * tiles.out_columns // ITEM_SIZES[p.out_dtype]
    buffers = OUT_BUFFERS[by_tma]
    kernel = kernel_of(
        p.of, p.dtype, p.out_dtype, p.offset_dtype, tiles, most_groups, a.is_k_major, b.is_k_major,
        by_rows, not d.unaligned(), by_tma,
    )  # fmt: skip
    out = layout(STORE, "Out").pack({
        "m": p.m, "n": p.n, "alpha": 1.0, "beta": 0.0, "c": None, "ldc": 0, "c_step": 0,
        "d": Place(D), "ldd": p.d.row_stride if by_rows else p.d.column_stride,
        "d_step": p.d.batch_stride,
    })  # fmt: skip
    a_parts = 2 if tiles.turning else tiles.cluster_n
    d_box = (width, 16) if by_rows else (16, width)
    rows, columns = tiles.block_m * tiles.cluster_m, tiles.block_n * tiles.cluster_n
    launch = Launch(
        grid=(max(1, multiprocessors // tiles.cluster) * tiles.cluster, 1, 1),
        block=(tiles.threads, 1, 1),
        args=(
            a.operand(a_at, p.dtype, box_of(a.is_k_major, tiles.block_m, a_parts), False),
            b.operand(b_at, p.dtype, box_of(b.is_k_major, tiles.block_n, tiles.cluster_m), False),
            *((d.map(Place(D), p.out_dtype, d_box),) if by_tma else ()),
            out, Place(OFFSETS), p.groups, p.k,
            0 if p.of == "m" else -(-p.m // rows), 0 if p.of == "n" else -(-p.n // columns),
        ),
        shared=tiles.stages(most_groups, buffers) * tiles.stage_bytes + tiles.out_bytes(buffers),
        overlap=True,
    )  # fmt: skip
    step = fused.step(kernel, launch, p)
    return Plan((step,), 0, named(tiles), "")


@lru_cache(maxsize=KERNELS)
def named(tiles: Tiles) -> str:
    """Return the choice for people."""
    return f"the grouped Hopper kernel, {tiles}"


@lru_cache(maxsize=KERNELS)
def kernel_of(
    of: str, dtype: str, out_dtype: str, offset_dtype: str, tiles: Tiles, most_groups: int,
    a_k_major: bool, b_k_major: bool, by_rows: bool, is_aligned: bool, by_tma: bool,
) -> Kernel:  # fmt: skip
    """Return the kernel of these choices, and of how A, B and D lie."""
    buffers = OUT_BUFFERS[by_tma]
    return Kernel(SOURCE, "hopper_grouped", {
        "GROUPED": f"OF_{of.upper()}", "OFFSET": OFFSET_TYPES[offset_dtype],
        "MOST_GROUPS": most_groups, "INPUT": TYPES[dtype], "OUTPUT": TYPES[out_dtype],
        "BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "CONSUMERS": tiles.consumers,
        "PING_PONG": int(tiles.ping_pong), "STAGES": tiles.stages(most_groups, buffers),
        "CLUSTER_M": tiles.cluster_m, "CLUSTER_N": tiles.cluster_n,
        "A_K_MAJOR": int(a_k_major), "B_K_MAJOR": int(b_k_major),
        "OUT_COLUMN_MAJOR": int(not by_rows), "OUT_COLUMNS": tiles.out_columns,
        "STORE_PIECES": int(is_aligned), "TURNING": int(tiles.turning),
        **({} if of == "n" else {"TMA_OUT": int(by_tma), "OUT_BUFFERS": buffers}),
    })  # fmt: skip
