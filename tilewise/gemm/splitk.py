"""The addition of what blocks have that divide k: float32 and float64."""

from __future__ import annotations

from functools import cache

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm.layouts import batched_matrix, layout
from tilewise.gemm.product import ALIGNMENT, ITEM_SIZES, REAL, C, D, Product
from tilewise.gemm.steps import Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch, Place

SOURCE = SOURCES / "gemm" / "splitk_sum.cu"
THREADS = 256  # of splitk_sum.cu

# Seconds and bytes a second, of an H200; and seconds of each part that a thread adds.
START, RATE, ADDED = 1.4e-6, 3.0e12, 0.047e-6
# Threads that share pieces' parts: half of those that an H200 has at once, each with a few parts.
MOST_LANES, MOST_THREADS, LEAST_PARTS = 32, 1 << 17, 4


def pitch(product: Product) -> int:
    """Elements from row to row of the parts' sums."""
    width = ALIGNMENT // ITEM_SIZES[product.dtype]
    return -(-product.n // width) * width


def elements(product: Product) -> int:
    """Of one part's sums: batch x m x :func:`pitch`."""
    return product.batch * product.m * pitch(product)


def pieces(product: Product) -> int:
    """Of 16 bytes, of one part's sums."""
    return elements(product) * ITEM_SIZES[product.dtype] // ALIGNMENT


def lanes(product: Product, parts: int) -> int:
    """How many threads share a piece's parts: a power of two."""
    most = min(MOST_LANES, parts // LEAST_PARTS, MOST_THREADS // pieces(product))
    return 1 << max(most, 1).bit_length() - 1


def seconds(product: Product, parts: int) -> float:
    """That the addition should take, and the sums' way through memory."""
    of_d = product.batch * product.m * product.n
    adding = ADDED * -(-parts // lanes(product, parts))
    return START + adding + 2 * parts * of_d * ITEM_SIZES[product.dtype] / RATE


def step(product: Product, parts: int, sums: Place, overlap: bool) -> Step:
    """The launch that adds them up, to D = alpha (their sum) + beta C."""
    given = layout(SOURCE, "Sum", real=REAL[product.dtype]).pack({
        "parts": sums, "part_stride": elements(product),
        "c": batched_matrix(product.c, Place(C)), "d": batched_matrix(product.d, Place(D)),
        "parts_count": parts, "batch": product.batch, "m": product.m, "n": product.n,
        "pitch": pitch(product), "alpha": product.alpha, "beta": product.beta,
    })  # fmt: skip
    shared_by = lanes(product, parts)
    blocks = min(-(-pieces(product) * shared_by // THREADS), MAX_GRID[0])
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (given,), overlap=overlap)
    return Step(_kernel(product.dtype, shared_by, overlap), launch)


@cache
def _kernel(dtype: str, lanes: int, overlap: bool) -> Kernel:
    defines = {"real": REAL[dtype], "LANES": lanes, "OVERLAP": int(overlap)}
    return Kernel(SOURCE, "splitk_sum", defines)
