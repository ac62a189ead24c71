"""Copy 16-bit matrices with rows at multiples of 16 bytes from a workspace to any strides."""

from __future__ import annotations

from functools import cache

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm.layouts import layout
from tilewise.gemm.pack import ITEM_SIZE, LARGEST, Packing
from tilewise.gemm.steps import Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Place

SOURCE = SOURCES / "gemm" / "unpack.cu"
WIDTH, THREADS = 8, 256  # as in unpack.cu


def step(packing: Packing, source: Place, destination: Place, overlap: bool = False) -> Step:
    """Return the launch that undoes a packing: it copies the packed matrix to the source's place.

    Parameters
    ----------
    packing : Packing
        A packing of matrices in which no two elements share memory.
    source, destination : Place
        The place of the packed copy's first element, at a multiple of 16 bytes, and that of the
        matrix it was packed from.
    overlap : bool
        Whether the launch may begin before the kernel ahead of it in the stream has ended (it reads
        and writes nothing until then); that takes compute capability 9.0 or above.

    Raises
    ------
    ValueError
        If the copy is too large for one launch.
    """
    to, lines = packing.source, packing.batch * packing.rows
    words = -(-packing.columns // WIDTH) + 1
    lane_bits = 5
    while lane_bits and (-words % (1 << lane_bits)) * 4 > words:
        lane_bits -= 1
    blocks = -(-words // (1 << lane_bits)) * -(-lines // (THREADS >> lane_bits))
    if lines > LARGEST or blocks > MAX_GRID[0]:
        raise ValueError(f"{blocks:,} blocks are more than one launch can have")
    given = layout(SOURCE, "Copy").pack({
        "source": source, "destination": destination, "row_stride": to.row_stride,
        "column_stride": to.column_stride, "batch_stride": to.batch_stride,
        "pitch": packing.bytes // (ITEM_SIZE * lines), "rows": packing.rows,
        "columns": packing.columns, "batch": packing.batch, "lane_bits": lane_bits,
    })  # fmt: skip
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (given,), overlap=overlap)
    return Step(kernel(overlap), launch)


@cache
def kernel(overlap: bool) -> Kernel:
    """Return the kernel of :func:`step`."""
    return Kernel(SOURCE, "unpack", {"OVERLAP": int(overlap)})
