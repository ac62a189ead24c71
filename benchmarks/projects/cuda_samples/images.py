"""Launch the filters of images of 2_Concepts_and_Techniques, except for those with textures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, Draw
from projects.cuda_samples.shapes import rounded, sample, written

Drawn = tuple[Sequence[Any], Callable[[], str]]
FOLDER = "2_Concepts_and_Techniques"
WEIGHTS = ((np.arange(17) * 7 % 17 + 1) / 16).astype(np.float32)
"""The convolutions' weights: not symmetric, so that their direction matters."""
QUANTA = (np.arange(64) * 13 % 64 + 1).astype(np.int16)
"""The table of the quantization."""


def convolved(width: int, height: int, axis: int) -> Draw:
    """Make (sums, pixels, width, height, pitch); outside of the picture it is black."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array, int]:
        read = rng.random((height, width)).astype(np.float32)
        found = np.zeros_like(read)
        margin = [(8, 8) if each == axis else (0, 0) for each in range(2)]
        around = np.pad(read.astype(np.float64), margin)
        windows = np.lib.stride_tricks.sliding_window_view(around, 17, axis=axis)
        wanted = windows @ WEIGHTS[::-1].astype(np.float64)
        return (found, read, width, height, width), found, wanted, 2 * 17

    return rounded(make)


def means(x: Array, radius: int, axis: int) -> Array:
    """Average the pixels of a row or column about each; those outside are as the last inside."""
    margin = [(radius, radius) if each == axis else (0, 0) for each in range(x.ndim)]
    around = np.pad(x.astype(np.float64), margin, mode="edge")
    averaged: Array = np.lib.stride_tricks.sliding_window_view(
        around, 2 * radius + 1, axis=axis
    ).mean(axis=-1)
    return averaged


def boxed(axis: int, radius: int = 5) -> Draw:
    """Make (pixels, means, width, height, radius) of 64 x 64 pixels."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array, int]:
        read = rng.random((64, 64)).astype(np.float32)
        found = np.zeros_like(read)
        # A running sum: two roundings a pixel, of numbers no larger than the window's size.
        steps = 2 * (64 + radius) + 3
        return (read, found, 64, 64, radius), found, means(read, radius, axis), steps

    return rounded(make)


def boxed_colours(rng: np.random.Generator) -> Drawn:
    """Make (colours, means, width, height, radius); a colour is cut off to a whole number."""
    read = rng.integers(0, 256, (64, 64, 4), dtype=np.uint8)
    found = np.zeros((64, 64), np.uint32)

    def wrong() -> str:
        off = np.abs(found.view(np.uint8).reshape(read.shape) - means(read, 5, 0))
        return "" if off.max() <= 1.001 else f"a colour is off by {off.max()}"

    return (read.view(np.uint32), found, 64, 64, 5), wrong


def cosines() -> Array:
    """Return the orthonormal DCT-II of eight numbers, a row for each frequency."""
    k, x = np.mgrid[:8, :8]
    rows: Array = np.cos((2 * x + 1) * k * np.pi / 16) / 2
    rows[0] /= np.sqrt(2)
    return rows


def transformed(x: Array, matrix: Array) -> Array:
    """Transform each tile of 8 x 8."""
    rows, columns = (size // 8 for size in x.shape)
    tiles = x.astype(np.float64).reshape(rows, 8, columns, 8)
    result: Array = np.einsum("ki,ricj,lj->rkcl", matrix, tiles, matrix).reshape(x.shape)
    return result


def pixels(rng: np.random.Generator, height: int, width: int) -> Array:
    """Draw pixels from -128 to 127."""
    return rng.integers(-128, 128, (height, width)).astype(np.float64)


def floating(is_inverse: bool, width: int = 64, height: int = 48) -> Draw:
    """Make (result, pixels or coefficients, width)."""

    def make(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array, int]:
        image = pixels(rng, height, width)
        read = (transformed(image, cosines()) if is_inverse else image).astype(np.float32)
        found = np.zeros_like(read)
        wanted = transformed(read, cosines().T if is_inverse else cosines())
        # Two passes, each of eight roundings of products, sums and constants; what is summed on
        # the way is up to eight times as large as the largest of the result.
        return (found, read, width), found, wanted, 2 * 8 * 8

    return rounded(make)


def fixed_point(is_inverse: bool) -> Draw:
    """Make (pixels, or coefficients, transformed in place; width) of int16."""

    def draw(rng: np.random.Generator) -> Drawn:
        image = pixels(rng, 64, 64)
        found = np.rint(transformed(image, cosines()) if is_inverse else image).astype(np.int16)
        wanted = transformed(found, cosines().T if is_inverse else cosines())

        def wrong() -> str:
            # A pass of eight ends within 0.85 of the exact sums: half a unit, a rounding before
            # of an eighth of it, and constants of 16 bits. The second pass adds up the first's.
            bound = 0.85 * (1 + np.sqrt(8))
            off = np.abs(found - wanted).max()
            return "" if off <= bound else f"it is off by {off:.3g}, and may be by {bound:.3g}"

        return (found, 64), wrong

    return draw


def quantized(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (coefficients in place, width) of float32; halves are rounded away from zero."""
    found = (rng.standard_normal((24, 40)) * 100).astype(np.float32)
    quanta = np.tile(QUANTA.reshape(8, 8), (3, 5)).astype(np.float32)
    steps = found / quanta
    whole = np.copysign(np.floor(np.abs(steps.astype(np.float64)) + 0.5), steps)
    return (found, 40), found, (whole.astype(np.float32) * quanta)


def quantized_short(rng: np.random.Generator) -> tuple[Sequence[Any], Array, Array]:
    """Make (coefficients in place, width) of int16; halves are rounded away from zero."""
    found = rng.integers(-1000, 1000, (24, 40), dtype=np.int16)
    quanta = np.tile(QUANTA.reshape(8, 8), (3, 5))
    whole = (np.abs(found) + (quanta >> 1)) // quanta
    return (found, 40), found, np.sign(found) * whole * quanta


CONVOLUTION = f"{FOLDER}/convolutionSeparable/convolutionSeparable.cu"
BOX = f"{FOLDER}/boxFilter/boxFilter_kernel.cu"
DCT = f"{FOLDER}/dct8x8/dct8x8.cu"
IMAGES = (
    sample(CONVOLUTION, "convolutionRowsKernel", (2, 3), (16, 4), convolved(256, 12, 1),
           variables={"c_Kernel": WEIGHTS}),
    sample(CONVOLUTION, "convolutionColumnsKernel", (3, 2), (16, 8), convolved(48, 128, 0),
           variables={"c_Kernel": WEIGHTS}),
    sample(BOX, "d_boxfilter_x_global", 2, 32, boxed(1)),
    sample(BOX, "d_boxfilter_y_global", 2, 32, boxed(0)),
    sample(BOX, "d_boxfilter_rgba_y", 2, 32, boxed_colours),
    sample(DCT, "CUDAkernel2DCT", (2, 3), (8, 4, 2), floating(False)),
    sample(DCT, "CUDAkernel2IDCT", (2, 3), (8, 4, 2), floating(True)),
    sample(DCT, "CUDAkernelQuantizationFloat", (5, 3), (8, 8), written(quantized),
           variables={"Q": QUANTA}),
    sample(DCT, "CUDAkernelQuantizationShort", (5, 3), (8, 8), written(quantized_short),
           variables={"Q": QUANTA}),
    sample(DCT, "CUDAkernelShortDCT", (2, 2), (8, 4, 4), fixed_point(False)),
    sample(DCT, "CUDAkernelShortIDCT", (2, 2), (8, 4, 4), fixed_point(True)),
)  # fmt: skip
