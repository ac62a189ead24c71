"""Split-K: the parts of k, and the launch that adds up their sums, float32 or float64."""

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
THREADS = 256  # of splitk_sum.cu

Floats = npt.NDArray[np.float64]

# Seconds of the launch, and of each part that a thread adds; and the share of the GPU's memory rate
# at which the sums are written and read, for the L2 cache holds some of them.
START, STEP = 1.4e-6, 0.03e-6
RATE = {"float32": 1.04, "float64": 1.6}
# Threads that share pieces' parts: half of those that an H200 has at once, each with a few parts.
MOST_LANES, MOST_THREADS, LEAST_PARTS = 32, 1 << 17, 4


def part_k(k: int, parts: int, block_k: int) -> int:
    """Return the elements of k of each part, which are whole k-steps of ``block_k``."""
    return -(-k // (parts * block_k)) * block_k


def part_of(product: Product) -> Product:
    """Return the product whose D are one part's sums: the epilogue comes with the addition."""
    columns = pitch(product)
    d = Operand(columns, 1, product.m * columns)
    x = product  # not dataclasses.replace, which takes several times as long
    sums = ACCUMULATORS[x.dtype]
    return Product(x.m, columns, x.k, x.batch, x.dtype, sums, 1.0, 0.0, x.a, x.b, None, d)


def workspace(product: Product, parts: int) -> int:
    """Return the bytes of the parts' sums."""
    return parts * elements(product) * _item(product)


def pitch(product: Product) -> int:
    """Return the elements from one row of the parts' sums to the next."""
    width = ALIGNMENT // _item(product)
    return -(-product.n // width) * width


def elements(product: Product) -> int:
    """Return the elements of one part's sums: batch x m x :func:`pitch`."""
    return product.batch * product.m * pitch(product)


def pieces(product: Product) -> int:
    """Return the pieces of 16 bytes of one part's sums."""
    return elements(product) * _item(product) // ALIGNMENT


def _item(product: Product) -> int:
    """Return the bytes of a partial sum."""
    return ITEM_SIZES[ACCUMULATORS[product.dtype]]


def lanes(product: Product, parts: int) -> int:
    """Return how many threads share a piece's parts: a power of two."""
    # They decide the order of the sum.
    return most_lanes(parts) if product.parts else min(most_lanes(parts), _room(pieces(product)))


def _room(of_part: int) -> int:
    """Return how many threads there are for each of a part's pieces: a power of two."""
    return 1 << max(1, MOST_THREADS // max(1, of_part)).bit_length() - 1


def seconds(of_part: int, parts: int, dtype: str, memory: float = H200.memory) -> float:
    """Return how long the addition and the sums' way through memory should take.

    ``of_part`` is how many pieces of 16 bytes one part's sums have; ``dtype`` is theirs.
    """
    each = STEP * -(-parts // min(most_lanes(parts), _room(of_part)))
    return START + each + 2 * parts * of_part * ALIGNMENT / (RATE[dtype] * memory)


def most_lanes(parts: int) -> int:
    """Return how many threads may share a piece's parts: a power of two."""
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
    """Return the same for each of those numbers of parts, the first of which is 1: then 0.

    ``shared_by`` has the :func:`most_lanes` of each; ``dtype`` is that of the sums.
    """
    item = ITEM_SIZES[dtype]
    of_part = batch * m * -(-n * item // ALIGNMENT)  # pieces of 16 bytes
    found: Floats = np.ceil(parts / np.minimum(shared_by, float(_room(of_part))))
    found *= STEP
    found += parts * (2 * batch * m * n * item / (RATE[dtype] * memory)) + START
    found[0] = 0.0
    return found


def step(product: Product, parts: int, sums: Place, overlap: bool) -> Step:
    """Return the launch that adds the parts' sums up, and applies the epilogue."""
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
