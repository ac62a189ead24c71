"""Split-K: the parts of k, and the launch that adds up their float32 or float64 sums."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused
from tilewise.gemm.chip import H200
from tilewise.gemm.layouts import TYPES, batched_matrix, layout
from tilewise.gemm.product import ACCUMULATORS, ALIGNMENT, REAL, C, D, Operand, Product
from tilewise.gemm.steps import Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import ITEM_SIZES, Place

SOURCE = SOURCES / "gemm" / "splitk_sum.cu"
THREADS = 256  # as in splitk_sum.cu

Floats = npt.NDArray[np.float64]

# The seconds of the launch, and of each part that a thread adds; and the share of the GPU's memory
# rate at which the sums are written and read, which is above 1 as the L2 cache holds some of them.
START, STEP = 1.4e-6, 0.03e-6
RATE = {"float32": 1.04, "float64": 1.6}
# The most lanes that share the parts of a piece; the threads that should be at work, half of those
# that an H200 runs at once; and the least parts for each of the lanes.
MOST_LANES, MOST_THREADS, LEAST_PARTS = 32, 1 << 17, 4


def part_k(k: int, parts: int, block_k: int) -> int:
    """Return the elements of k in each part, a whole number of k-steps of ``block_k``."""
    return -(-k // (parts * block_k)) * block_k


def part_of(product: Product) -> Product:
    """Return the product whose D is the sums of one part; the epilogue is left to the addition."""
    columns = pitch(product)
    d = Operand(columns, 1, product.m * columns)
    x = product  # not dataclasses.replace, which takes several times as long
    sums = ACCUMULATORS[x.dtype]
    return Product(x.m, columns, x.k, x.batch, x.dtype, sums, 1.0, 0.0, x.a, x.b, None, d)


def workspace(product: Product, parts: int) -> int:
    """Return the bytes of the sums of all parts."""
    return parts * elements(product) * _item(product)


def pitch(product: Product) -> int:
    """Return the elements from one row of a part's sums to the next."""
    width = ALIGNMENT // _item(product)
    return -(-product.n // width) * width


def elements(product: Product) -> int:
    """Return the number of elements of one part's sums: batch x m x :func:`pitch`."""
    return product.batch * product.m * pitch(product)


def pieces(product: Product) -> int:
    """Return the number of 16-byte pieces of one part's sums."""
    return elements(product) * _item(product) // ALIGNMENT


def _item(product: Product) -> int:
    """Return the bytes of a partial sum."""
    return ITEM_SIZES[ACCUMULATORS[product.dtype]]


def lanes(product: Product, parts: int) -> int:
    """Return the number of threads that share the parts of a piece, a power of two."""
    # This number decides the order of the sum.
    return most_lanes(parts) if product.parts else min(most_lanes(parts), _room(pieces(product)))


def _room(of_part: int) -> int:
    """Return the number of threads that are available for each piece of a part, a power of two."""
    return 1 << max(1, MOST_THREADS // max(1, of_part)).bit_length() - 1


def seconds(of_part: int, parts: int, dtype: str, memory: float = H200.memory) -> float:
    """Return the seconds that the addition and the sums' way through memory should take.

    ``of_part`` is the number of 16-byte pieces of one part's sums; ``dtype`` is the sums' dtype.
    """
    each = STEP * -(-parts // min(most_lanes(parts), _room(of_part)))
    return START + each + 2 * parts * of_part * ALIGNMENT / (RATE[dtype] * memory)


def most_lanes(parts: int) -> int:
    """Return the most threads that may share the parts of a piece, a power of two."""
    return 1 << max(1, min(MOST_LANES, parts // LEAST_PARTS)).bit_length() - 1


def every(
    m: int,
    n: int,
    batch: int,
    dtype: str,
    parts: Floats,
    shared_by: Floats,
    memory: float = H200.memory,
) -> Floats:
    """Return the :func:`seconds` for each of several numbers of parts; the first is 1 and takes 0.

    ``shared_by`` holds the :func:`most_lanes` of each number of parts; ``dtype`` is the sums'
    dtype.
    """
    item = ITEM_SIZES[dtype]
    of_part = batch * m * -(-n * item // ALIGNMENT)  # 16-byte pieces
    found: Floats = np.ceil(parts / np.minimum(shared_by, float(_room(of_part))))
    found *= STEP
    found += parts * (2 * batch * m * n * item / (RATE[dtype] * memory)) + START
    found[0] = 0.0
    return found


def step(product: Product, parts: int, sums: Place, overlap: bool) -> Step:
    """Return the launch that adds up the sums of the parts and applies the epilogue."""
    types = {"real": REAL[ACCUMULATORS[product.dtype]], "OUTPUT": TYPES[product.out_dtype]}
    given = layout(SOURCE, "Sum", **types).pack({
        "parts": sums, "part_stride": elements(product),
        "c": batched_matrix(product.c, Place(C)), "d": batched_matrix(product.d, Place(D)),
        "parts_count": parts, "batch": product.batch, "m": product.m, "n": product.n,
        "pitch": pitch(product), "alpha": product.alpha, "beta": product.beta,
    })  # fmt: skip
    shared_by = lanes(product, parts)
    blocks = min(-(-pieces(product) * shared_by // THREADS), MAX_GRID[0])
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (given,), overlap=overlap)
    return fused.step(
        _kernel(product.dtype, product.out_dtype, shared_by, overlap), launch, product
    )


def kernels(dtype: str, overlap: bool) -> list[Kernel]:
    """Return the kernels for any number of parts of products with inputs of a dtype."""
    outputs = dict.fromkeys((dtype, ACCUMULATORS[dtype]))
    lanes = [1 << i for i in range(MOST_LANES.bit_length())]
    return [_kernel(dtype, out, each, overlap) for out in outputs for each in lanes]


@cache
def _kernel(dtype: str, out_dtype: str, lanes: int, overlap: bool) -> Kernel:
    defines = {
        "real": REAL[ACCUMULATORS[dtype]], "OUTPUT": TYPES[out_dtype], "LANES": lanes,
        "OVERLAP": int(overlap),
    }  # fmt: skip
    return Kernel(SOURCE, "splitk_sum", defines)
