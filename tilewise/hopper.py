"""The Hopper kernel: which products it takes, its tiles, and its launch."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewise.devices import gpu as devices
from tilewise.devices.gpu import Gpu
from tilewise.kernel import Kernel
from tilewise.launch import Dim3, Launch
from tilewise.product import Operand, Product

SOURCE = Path(__file__).parent / "kernels" / "gemm" / "hopper.cu"
HALVES = {"float16": "f16", "bfloat16": "bf16"}

BLOCK_K = 64
BOX_COLUMNS = 64  # of 16 bits: 128 bytes, the widest swizzle
OUT_BYTES = 2 * 16 * 128  # a consumer warp's two buffers for D
LARGEST = 2**31 - 512  # the kernel counts sizes, and tiles, by int, up to a tile past the end
LARGEST_STRIDE = 2**40  # bytes, exclusive (CUDA driver API, cuTensorMapEncodeTiled)


@dataclass(frozen=True)
class Tiling:
    """The kernel's free choices.

    Attributes
    ----------
    block_m, block_n : int
        Of C's tile.
    stages : int
        Of the ring in shared memory.
    cluster : int
        Blocks, one below the other, that share each tile of B.
    """

    block_m: int
    block_n: int
    stages: int
    cluster: int = 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return 2 if self.block_m >= 128 else 1

    @property
    def threads(self) -> int:
        return 128 * (1 + self.consumers)

    @property
    def shared(self) -> int:
        """Dynamic shared memory of a block, bytes."""
        ring = self.stages * 2 * BLOCK_K * (self.block_m + self.block_n)
        return ring + 4 * self.consumers * OUT_BYTES


# What each costs, relative to the first, an element of C and a step of k. Set by hand, so that
# ``choose`` comes near the best: benchmarks/hopper_tilings.py shows how near.
TILINGS = {
    Tiling(128, 256, 4): 1.0,
    Tiling(256, 128, 4): 1.0,
    Tiling(128, 128, 5): 1.12,
    Tiling(64, 256, 4): 1.3,
    Tiling(64, 128, 7): 1.6,
    Tiling(64, 64, 10): 2.6,
}


@dataclass(frozen=True)
class TensorMap:
    """What a tensor map says of a matrix (CUDA driver API, cuTensorMapEncodeTiled).

    Attributes
    ----------
    pointer : int
    extents : (int, int, int)
        Elements along the contiguous dimension, the other, and batches.
    strides : (int, int)
        Bytes from one to the next along the other dimension, and from batch to batch.
    rows : int
        Of the box; its other side is 64.
    """

    pointer: int
    extents: tuple[int, int, int]
    strides: tuple[int, int]
    rows: int

    def encode(self, driver: Any, half: str) -> bytes:
        """The 128 bytes that the kernel takes."""
        kind = getattr(
            driver.CUtensorMapDataType,
            f"CU_TENSOR_MAP_DATA_TYPE_{'BFLOAT16' if half == 'bf16' else 'FLOAT16'}",
        )
        status, encoded = driver.cuTensorMapEncodeTiled(
            kind,
            3,
            self.pointer,
            [driver.cuuint64_t(extent) for extent in self.extents],
            [driver.cuuint64_t(stride) for stride in self.strides],
            [driver.cuuint32_t(side) for side in (BOX_COLUMNS, self.rows, 1)],
            [driver.cuuint32_t(1)] * 3,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"the driver takes no tensor map of {self}: {status.name}")
        return ctypes.string_at(int(encoded.getPtr()), 128)


@dataclass(frozen=True)
class Plan:
    """A launch of the kernel, ready but for its tensor maps.

    Attributes
    ----------
    maps : (TensorMap, TensorMap, TensorMap or None)
        Of A, B and, where it is written by bulk copies, D.
    arguments : tuple
        What follows the maps.
    """

    kernel: Kernel
    grid: Dim3
    block: Dim3
    shared: int
    maps: tuple[TensorMap, TensorMap, TensorMap | None]
    arguments: tuple[int | float, ...]


def by_rows(product: Product) -> Product:
    """The same product with D's rows contiguous: D's transpose is B's times A's."""
    d = product.d
    if d.column_stride == 1 or d.row_stride != 1:
        return product
    return replace(
        product,
        m=product.n,
        n=product.m,
        a=_transposed(product.b),
        b=_transposed(product.a),
        c=None if product.c is None else _transposed(product.c),
        d=_transposed(d),
    )


def _transposed(x: Operand) -> Operand:
    return replace(x, row_stride=x.column_stride, column_stride=x.row_stride)


def objection(product: Product) -> str:
    """Why the kernel can't take a product; empty if it can."""
    if product.dtype not in HALVES:
        return f"the inputs are {product.dtype}, not 16-bit"
    if not all((product.m, product.n, product.k, product.batch)) or product.alpha == 0:
        return "there is nothing to multiply"
    tiles = math.ceil(product.m / 64) * math.ceil(product.n / 64) * product.batch
    if max(product.m, product.n, product.k, tiles) > LARGEST:
        return "it is too large"
    turned = by_rows(product)
    for name, x, rows, columns in (
        ("A", turned.a, turned.m, turned.k),
        ("B", turned.b, turned.k, turned.n),
    ):
        if words := _unreadable(x, rows, columns):
            return f"{name} {words}"
    if turned.d.column_stride != 1 and turned.n > 1:
        return "neither dimension of D is contiguous"
    if turned.c is not None and turned.beta != 0 and turned.c.column_stride != 1 and turned.n > 1:
        return "C does not lie as D does"
    return ""


def _major(x: Operand, rows: int, columns: int) -> bool | None:
    """Whether rows are contiguous (True), columns (False), or neither (None).

    Where both are, as in a vector, the one whose other stride bulk copies can use.
    """
    by_rows = x.column_stride == 1 or columns == 1
    by_columns = x.row_stride == 1 or rows == 1
    if by_rows and by_columns:
        return rows == 1 or (columns > 1 and x.row_stride % 8 == 0)
    return by_rows if by_rows or by_columns else None


def _unreadable(x: Operand, rows: int, columns: int) -> str:
    """Why bulk copies can't read a matrix; empty if they can."""
    major = _major(x, rows, columns)
    if major is None:
        return "has no contiguous dimension"
    if x.pointer % 16:
        return "does not begin at a multiple of 16 bytes"
    outer, stride = (rows, x.row_stride) if major else (columns, x.column_stride)
    for step in (stride if outer > 1 else 0, x.batch_stride):
        if 2 * step % 16:
            return f"has a stride of {2 * step} bytes, no multiple of 16"
        if not 0 <= 2 * step < LARGEST_STRIDE:
            return f"has a stride of {2 * step} bytes"
    return ""


def _map(x: Operand, rows: int, columns: int, batch: int, box: int) -> TensorMap:
    by_row = _major(x, rows, columns)
    inner, outer = (columns, rows) if by_row else (rows, columns)
    stride = x.row_stride if by_row else x.column_stride
    # Of a single row, or a single batch, the stride is never used, but has to be one.
    pitch = max(stride, -(-inner // 8) * 8) if outer == 1 else stride
    batches = batch if x.batch_stride else 1
    step = x.batch_stride if batches > 1 else 8
    return TensorMap(x.pointer, (inner, outer, batches), (2 * pitch, 2 * step), box)


def choose(product: Product, multiprocessors: int) -> Tiling:
    """The tiling that should be fastest, by a rough model of waves.

    A wave is one tile on every multiprocessor. Its time is the tile's arithmetic, at the
    tiling's own cost, and a constant for filling the ring and storing D.
    """
    turned = by_rows(product)

    def cost(tiling: Tiling) -> float:
        tiles = (
            math.ceil(turned.m / tiling.block_m)
            * math.ceil(turned.n / tiling.block_n)
            * turned.batch
        )
        waves = math.ceil(tiles / multiprocessors)
        depth = math.ceil(turned.k / BLOCK_K) + 8
        return waves * depth * tiling.block_m * tiling.block_n * TILINGS[tiling]

    return min(TILINGS, key=cost)


def plan(product: Product, tiling: Tiling, multiprocessors: int) -> Plan:
    """The launch for a product that the kernel has no objection to."""
    turned = by_rows(product)
    m, n, k, batch = turned.m, turned.n, turned.k, turned.batch
    a_rows, b_rows = _major(turned.a, m, k), _major(turned.b, k, n)
    a_box = tiling.block_m if a_rows else 64
    b_box = 64 if b_rows else tiling.block_n // tiling.cluster
    a_map = _map(turned.a, m, k, batch, a_box)
    b_map = _map(turned.b, k, n, batch, b_box)
    is_half = turned.out_dtype in HALVES
    by_copies = is_half and turned.beta == 0 and not _unreadable(turned.d, m, n)
    d_map = _map(turned.d, m, n, batch, 16) if by_copies else None
    defines = {
        "HALF": f'"{HALVES[turned.dtype]}"',
        "OF_HALF": f"of_{turned.dtype}",
        "BLOCK_M": tiling.block_m,
        "BLOCK_N": tiling.block_n,
        "STAGES": tiling.stages,
        "CLUSTER": tiling.cluster,
        "A_BY_K": int(bool(a_rows)),
        "B_BY_K": int(not b_rows),
        "OUT_FLOAT": int(not is_half),
        "TMA_OUT": int(by_copies),
    }
    m_tiles = -(-m // (tiling.block_m * tiling.cluster)) * tiling.cluster
    n_tiles = -(-n // tiling.block_n)
    tiles = m_tiles * n_tiles * batch
    c = turned.c if turned.c is not None and turned.beta != 0 else turned.d
    return Plan(
        kernel=Kernel(SOURCE, "hopper", defines),
        grid=(min(multiprocessors // tiling.cluster * tiling.cluster, tiles), 1, 1),
        block=(tiling.threads, 1, 1),
        shared=tiling.shared,
        maps=(a_map, b_map, d_map),
        arguments=(
            m, n, k, batch, a_map.extents[2], b_map.extents[2], m_tiles, n_tiles,
            turned.alpha, turned.beta, c.pointer, c.row_stride, c.batch_stride,
            turned.d.pointer, turned.d.row_stride, turned.d.batch_stride,
        ),
    )  # fmt: skip


def enqueue(product: Product, gpu: Gpu, stream: int, tiling: Tiling | None = None) -> None:
    """Put a product that the kernel has no objection to on a stream, and return at once.

    Parameters
    ----------
    tiling : Tiling, optional
        By default :func:`choose`'s.

    Raises
    ------
    ValueError
        If the kernel has an objection, or the driver takes no tensor map of a matrix.
    """
    gpu.enqueue(_prepared(product, tiling, gpu), stream)


@lru_cache(maxsize=4096)
def _prepared(product: Product, tiling: Tiling | None, gpu: Gpu) -> devices.Prepared:
    if words := objection(product):
        raise ValueError(f"the Hopper kernel can't take this product: {words}")
    made = plan(product, tiling or choose(product, gpu.multiprocessors), gpu.multiprocessors)
    driver, half = gpu.context.driver, HALVES[product.dtype]
    maps = [bytes(128) if x is None else x.encode(driver, half) for x in made.maps]
    launch = Launch(made.grid, made.block, (*maps, *made.arguments), made.shared)
    return gpu.prepare(made.kernel.compile(gpu.arch), launch)
