"""The Hopper kernel: which products it takes, its tensor maps, and its launches."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

from tilewise.kernel import Kernel
from tilewise.launch import Launch, Packed, Place, TensorMap
from tilewise.product import WORKSPACE, A, B, C, D, Operand, Product
from tilewise.steps import Plan, Step
from tilewise.tilings import BLOCK_K, SUM_COLUMNS, Problem, Tiling, choose, cover

SOURCE = Path(__file__).parent / "kernels" / "gemm" / "hopper.cu"
HALVES = {"float16": "f16", "bfloat16": "bf16"}
NO_MAP = bytes(128)
SECTOR_BYTES = 32

LARGEST = 2**31 - 512  # the kernel counts sizes, and tiles, by int, up to a tile past the end
LARGEST_STRIDE = 2**40  # bytes, exclusive (CUDA driver API, cuTensorMapEncodeTiled)

_OUT = struct.Struct("<2i2fQ2QQ2Q")  # the kernel's Out


def oriented(product: Product, turned: bool) -> Product:
    """The product that the kernel computes: turned, D's transpose is B's times A's."""
    if not turned:
        return product
    return replace(
        product,
        m=product.n,
        n=product.m,
        a=product.b.transposed,
        b=product.a.transposed,
        c=None if product.c is None else product.c.transposed,
        d=product.d.transposed,
    )


def objection(product: Product) -> str:
    """Why the kernel can't take a product; empty if it can."""
    if product.dtype not in HALVES:
        return f"the inputs are {product.dtype}, not 16-bit"
    if not all((product.m, product.n, product.k, product.batch)) or product.alpha == 0:
        return "there is nothing to multiply"
    tiles = -(-product.m // 64) * -(-product.n // 64) * product.batch
    if max(product.m, product.n, product.k, tiles) > LARGEST:
        return "it is too large"
    for name, x, rows, columns in (
        ("A", product.a, product.m, product.k),
        ("B", product.b, product.k, product.n),
    ):
        if words := unreadable(x, rows, columns):
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


def stores_by_copies(product: Product) -> bool:
    """Whether D is stored by bulk copies, and not by every thread for itself."""
    by_rows = _out_by_rows(product)
    return (
        product.out_dtype in HALVES
        and not _reads_c(product)
        and (product.n if by_rows else product.m) % 8 == 0  # they write whole 16 bytes
        and is_by_rows(product.d, product.m, product.n) is by_rows
        and not unreadable(product.d, product.m, product.n)
    )


def is_by_rows(x: Operand, rows: int, columns: int) -> bool | None:
    """Whether rows are contiguous (True), columns (False), or neither (None).

    Where both are, as in a vector, the one whose other stride bulk copies can use.
    """
    by_rows = x.column_stride == 1 or columns == 1
    by_columns = x.row_stride == 1 or rows == 1
    if by_rows and by_columns:
        return rows == 1 or (columns > 1 and x.row_stride % 8 == 0)
    return by_rows if by_rows or by_columns else None


def unreadable(x: Operand, rows: int, columns: int) -> str:
    """Why bulk copies can't read a matrix; empty if they can."""
    by_rows = is_by_rows(x, rows, columns)
    if by_rows is None:
        return "has no contiguous dimension"
    if x.offset:
        return "does not begin at a multiple of 16 bytes"
    outer, stride = (rows, x.row_stride) if by_rows else (columns, x.column_stride)
    for step in (stride if outer > 1 else 0, x.batch_stride):
        if 2 * step % 16:
            return f"has a stride of {2 * step} bytes, no multiple of 16"
        if not 0 <= 2 * step < LARGEST_STRIDE:
            return f"has a stride of {2 * step} bytes"
    return ""


def problem(product: Product) -> Problem:
    """What of a product decides how fast its tiles are."""
    by_k = (
        is_by_rows(product.a, product.m, product.k),
        not is_by_rows(product.b, product.k, product.n),
    )
    pitches = (
        product.a.row_stride if by_k[0] else product.a.column_stride,
        product.b.column_stride if by_k[1] else product.b.row_stride,
    )
    return Problem(
        product.m,
        product.n,
        product.k,
        product.batch,
        a_by_k=bool(by_k[0]),
        b_by_k=bool(by_k[1]),
        a_aligned=2 * pitches[0] % SECTOR_BYTES == 0,
        b_aligned=2 * pitches[1] % SECTOR_BYTES == 0,
    )


@dataclass(frozen=True)
class _Matrix:
    """A matrix whose rows or columns are contiguous, and where its address comes from."""

    x: Operand
    place: Place
    rows: int
    columns: int
    by_rows: bool

    def map(self, dtype: str, batch: int, box: tuple[int, int]) -> TensorMap:
        x = self.x
        inner, outer = (self.columns, self.rows) if self.by_rows else (self.rows, self.columns)
        stride = x.row_stride if self.by_rows else x.column_stride
        # Of a single row, or a single batch, the stride is never used, but has to be one.
        pitch = max(stride, -(-inner // 8) * 8) if outer == 1 else stride
        batches = batch if x.batch_stride else 1
        step = x.batch_stride if batches > 1 else 8
        # A piece of 128 bytes that does not begin with a line would bring two lines whole.
        promotion = 128 if 2 * pitch % SECTOR_BYTES == 0 else 64
        return TensorMap(
            self.place, dtype, (inner, outer, batches), (2 * pitch, 2 * step), box, promotion
        )


def plan(
    product: Product,
    multiprocessors: int,
    tiling: Tiling | None = None,
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
    tiling : Tiling, optional
        By default the one that :func:`tilewise.tilings.choose` expects to be fastest.
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
    why = "asked for"
    if tiling is None:
        tiling, expected = choose(problem(product), multiprocessors)
        why = f"of all tilings it should take least, {expected * 1e6:.1f} µs"
    turned, view = oriented(product, tiling.turned), problem(product)
    if tiling.turned:
        view = view.turned
    if words := tiling.objection(view):
        raise ValueError(f"{tiling}: {words}")
    m, n, k, batch = turned.m, turned.n, turned.k, turned.batch
    at = cover(tiling, m, n, k, batch, multiprocessors)
    if tiling.turned:
        a_at, b_at = b_at, a_at
    a = _Matrix(turned.a, a_at, m, k, view.a_by_k)
    b = _Matrix(turned.b, b_at, k, n, not view.b_by_k)
    d = _Matrix(turned.d, d_at, m, n, bool(_out_by_rows(turned)))
    a_rows = tiling.a_rows(m) if a.by_rows else tiling.block_m
    a_box = a_rows // tiling.cluster_n if a.by_rows else BLOCK_K
    b_box = BLOCK_K if b.by_rows else tiling.block_n // tiling.cluster_m
    a_map = a.map(turned.dtype, batch, (BLOCK_K, a_box))
    b_map = b.map(turned.dtype, batch, (BLOCK_K, b_box))
    by_copies = stores_by_copies(turned)
    d_box = (tiling.out_columns, 16) if d.by_rows else (16, tiling.out_columns)
    d_map = d.map(turned.out_dtype, batch, d_box) if by_copies else NO_MAP
    is_shared = at.parts > 1
    defines = {
        "HALF": f'"{HALVES[turned.dtype]}"',
        "OF_HALF": f"of_{turned.dtype}",
        "BLOCK_M": tiling.block_m,
        "BLOCK_N": tiling.block_n,
        "CONSUMERS": tiling.consumers,
        "STAGES": tiling.stages,
        "CLUSTER_M": tiling.cluster_m,
        "CLUSTER_N": tiling.cluster_n,
        "SPLIT": tiling.split,
        "SHARED_TILES": int(is_shared),
        "A_BY_K": int(a.by_rows),
        "B_BY_K": int(not b.by_rows),
        "A_ROWS": a_rows,
        "READ_C": int(_reads_c(turned)),
        "OUT_FLOAT": int(turned.out_dtype not in HALVES),
        "OUT_BY_COLUMNS": int(not d.by_rows),
        "OUT_COLUMNS": tiling.out_columns,
        "TMA_OUT": int(by_copies),
    }
    out, sums = _out(turned, d.by_rows, d_at), Place(WORKSPACE, workspace)
    main = Launch(
        grid=(at.units * tiling.tiles * tiling.split, 1, 1),
        block=(tiling.threads, 1, 1),
        args=(
            a_map, b_map, d_map, out, k, batch, a_map.extents[2], b_map.extents[2],
            at.m_tiles, at.n_tiles, at.whole, at.rest, at.parts, sums if is_shared else 0,
        ),
        shared=tiling.shared_bytes,
        overlap=True,
    )  # fmt: skip
    steps = [Step(Kernel(SOURCE, "hopper", defines), main)]
    if is_shared:
        summing = Launch(
            grid=(at.rest * tiling.tiles, tiling.block_n // SUM_COLUMNS, 1),
            block=(128 * tiling.consumers, 1, 1),
            args=(out, at.m_tiles, at.n_tiles, at.whole, at.rest, at.parts, sums),
            overlap=True,
        )
        steps.append(Step(Kernel(SOURCE, "hopper_sum", defines), summing))
        workspace += at.rest * at.parts * tiling.tiles * 4 * tiling.block_m * tiling.block_n
    return Plan(
        steps=tuple(steps),
        workspace=workspace,
        chosen=f"the Hopper kernel, {tiling}",
        why=why,
    )


def _out(product: Product, by_rows: bool, d_at: Place) -> Packed:
    """The kernel's Out: C, which is D where there is none, and D."""
    d, c, c_at = product.d, product.d, d_at
    if product.c is not None and _reads_c(product):
        c, c_at = product.c, Place(C)
    pitch_c, pitch_d = (x.row_stride if by_rows else x.column_stride for x in (c, d))
    data = _OUT.pack(
        product.m, product.n, product.alpha, product.beta,
        0, pitch_c, c.batch_stride, 0, pitch_d, d.batch_stride,
    )  # fmt: skip
    return Packed(data, ((16, c_at), (40, d_at)))
