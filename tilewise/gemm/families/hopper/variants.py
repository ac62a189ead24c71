"""The kernels that the source of the Hopper kernel is compiled to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product as combinations
from itertools import starmap
from typing import Any, NamedTuple

from tilewise.gemm.families.hopper.cover import fits, is_filled
from tilewise.gemm.families.hopper.tiling import Problem, Tiling
from tilewise.gemm.families.hopper.tilings import Kind, tilings
from tilewise.gemm.layouts import TYPES
from tilewise.gemm.product import ACCUMULATORS
from tilewise.kernel import SOURCES, Kernel

SOURCE = SOURCES / "gemm" / "hopper.cu"
SUM_SOURCE = SOURCE.with_name("hopper_sum.cu")
KERNELS = 1024  # the number of kernels that are kept ready


class Variant(NamedTuple):
    """The properties of a product, besides the tiling, that decide which kernel computes it.

    Attributes
    ----------
    dtype, out_dtype : str
    a_k_major, b_k_major : bool
        Whether k is the contiguous dimension of the kernel's A and B, which are swapped where the
        tiling swaps them.
    a_rows : int
        The rows of a tile of A that are loaded. Only if A is not 16-byte aligned does the number
        make a kernel of its own, because the loops of the threads that load A are unrolled over its
        rows; otherwise it is an argument.
    reads_c : bool
    d_row_major : bool
        Whether D's rows are contiguous as the kernel stores it; otherwise its columns are.
    by_tma : bool
        Whether TMA stores D.
    pairs, interleaved : bool
        The fields of :class:`tilewise.gemm.families.hopper.tiling.Problem`. The macro PAIRS comes
        with the epilogue (fused.py).
    staged : int or None
        The number, among the arrays that an epilogue reads, of the one that the producer copies to
        shared memory; None if it copies none.
    """

    dtype: str
    out_dtype: str
    a_k_major: bool
    b_k_major: bool
    a_rows: int
    reads_c: bool
    d_row_major: bool
    by_tma: bool
    pairs: bool = False
    interleaved: bool = False
    staged: int | None = None

    def defines(self, tiling: Tiling, is_divided: bool) -> dict[str, Any]:
        """Return the macros by which the kernel is compiled."""
        view = Problem(1, 1, 1, a_k_major=self.a_k_major, b_k_major=self.b_k_major)
        stages, of_staged = tiling.stages, {}
        if self.staged is not None:
            stages, is_apart = tiling.staged_stages(self.pairs)
            of_staged = {"STAGED": self.staged, "STAGED_APART": int(is_apart)}
        return {
            "INPUT": TYPES[self.dtype],
            "OUTPUT": TYPES[self.out_dtype],
            "BLOCK_M": tiling.block_m,
            "BLOCK_N": tiling.block_n,
            "CONSUMERS": tiling.consumers,
            "PING_PONG": int(tiling.ping_pong),
            "STAGES": stages,
            "CLUSTER_M": tiling.cluster_m,
            "CLUSTER_N": tiling.cluster_n,
            "SPLIT": tiling.split,
            "STREAM_K": int(is_divided),
            "A_K_MAJOR": int(self.a_k_major),
            "B_K_MAJOR": int(self.b_k_major),
            "A_UNALIGNED": int(tiling.a_unaligned),
            "B_UNALIGNED": int(tiling.b_unaligned),
            **({"RAW_STAGES": tiling.raw_stages(view)} if tiling.is_unaligned else {}),
            **({"A_ROWS": self.a_rows} if tiling.a_unaligned else {}),
            "READ_C": int(self.reads_c),
            "OUT_COLUMN_MAJOR": int(not self.d_row_major),
            "OUT_COLUMNS": tiling.stored_columns(self.pairs),
            "TMA_OUT": int(self.by_tma),
            **({"INTERLEAVED": 1} if self.interleaved else {}),
            **of_staged,
        }


@lru_cache(maxsize=KERNELS)
def kernels_of(variant: Variant, tiling: Tiling, is_divided: bool) -> tuple[Kernel, ...]:
    """Return the kernel, and if there is a stream-K tail the kernel that reduces it."""
    defines = variant.defines(tiling, is_divided)
    kernel = Kernel(SOURCE, "hopper", defines)
    if not is_divided:
        return (kernel,)
    names = ("OUTPUT", "READ_C", "OUT_COLUMN_MAJOR", "INTERLEAVED")
    of_d = {name: defines[name] for name in names if name in defines}
    of_d["ROW_BLOCKS"] = tiling.row_blocks
    return kernel, Kernel(SUM_SOURCE, "hopper_sum", of_d)


def may_prefetch(tiling: Tiling, is_divided: bool) -> bool:
    """Return whether to prefetch the first tiles to L2, which is no gain before hopper_sum."""
    return not (tiling.is_unaligned or is_divided)


def every_kernel(dtype: str, multiprocessors: int) -> Iterator[Kernel]:
    """Yield every kernel that a product can need, by the tilings that the planner chooses from.

    Parameters
    ----------
    dtype : str
        The dtype of A and B, ``"float16"`` or ``"bfloat16"``.
    multiprocessors : int
        The number of the GPU's multiprocessors.
    """
    both = (False, True)
    found: dict[tuple[str, frozenset[tuple[str, Any]]], Kernel] = {}
    for kind in starmap(Kind, combinations(both, repeat=5)):
        for tiling in tilings(kind):
            if fits(tiling, multiprocessors):
                for variant in _variants(kind, tiling, dtype):
                    # The planner takes a stream-K tiling only where there is a tail.
                    for kernel in kernels_of(variant, tiling, tiling.stream_k):
                        found.setdefault((kernel.name, frozenset(kernel.defines.items())), kernel)
    yield from found.values()


def _variants(kind: Kind, tiling: Tiling, dtype: str) -> Iterator[Variant]:
    """Yield every variant for products of a kind for which a tiling may be chosen."""
    both, large = (False, True), 1 << 20
    views = [
        Problem(
            m, large, large, a_k_major=kind.a_k_major, b_k_major=kind.b_k_major,
            a_unaligned=kind.a_unaligned, b_unaligned=kind.b_unaligned,
        )
        for m in (8, 16, 32, 64, 128, large)
        if is_filled(tiling, m, large)
    ]  # fmt: skip
    if tiling.objection(views[-1]):
        return
    loaded = {tiling.a_rows(view) for view in views}
    rows = sorted(loaded) if tiling.a_unaligned else [tiling.block_m]
    outputs = tuple(dict.fromkeys((dtype, ACCUMULATORS[dtype])))
    for out, a_rows, reads_c, by_tma in combinations(outputs, rows, both, both):
        if not (reads_c and by_tma):
            yield Variant(
                dtype, out, kind.a_k_major, kind.b_k_major, a_rows, reads_c, kind.d_row_major,
                by_tma,
            )  # fmt: skip
