"""The thin kernel for 16-bit inputs: the products that it takes, its tilings, and its launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import fused, pack
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.families.hopper.kernel import HALVES
from tilewise.gemm.families.thin.sides import Sides, sides_of
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ACCUMULATORS, WORKSPACE, A, B, D, Operand, Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.places import Packed, Place

SOURCE = SOURCES / "gemm" / "thin_half.cu"
WARPS = 8  # as in thin_half.cu
SPLITS = (1, 2, 4, 8)  # warps of a block that may divide k
MOST_BY_K, MOST_BY_ROWS = 64, 24  # most rows of the thin matrix; more sums do not fit a thread
ALIGNED_ROWS = 8  # up to as many, it may be faster than the Hopper kernel if both take the product
LARGEST = 2**31 - 2**16  # the kernel counts rows and k by int, up to a block past the end


@dataclass(frozen=True)
class View(Sides):
    """A product as the kernel computes it.

    Attributes
    ----------
    is_readable : bool
        Whether the kernel can read the thin matrix in place: K-major and 16-byte aligned.
    """

    is_readable: bool


def view_of(product: Product) -> View | None:
    """Return how the kernel would compute a product; None if it can't.

    The kernel takes 16-bit inputs of which one matrix has a contiguous dimension and the other has
    at most :data:`MOST_BY_K` rows or columns, or :data:`MOST_BY_ROWS` if the contiguous dimension
    is not k.
    """
    if product.dtype not in HALVES or product.alpha == 0:
        return None
    if min(product.m, product.n) > MOST_BY_K:
        return None
    if not 0 < max(product.m, product.n, product.k) <= LARGEST or not 0 < product.batch <= LARGEST:
        return None
    found = sides_of(product)
    many, few = found.many, found.few
    if not found.is_k_major and many.row_stride != 1 and found.rows > 1:
        return None
    if not product.k or found.few_rows > (MOST_BY_K if found.is_k_major else MOST_BY_ROWS):
        return None
    strides = (few.row_stride if found.few_rows > 1 else 0, few.batch_stride)
    is_readable = (
        (few.column_stride == 1 or product.k == 1)
        and few.offset == 0
        and not any(stride % 8 for stride in strides)
    )
    copies = product.batch if few.batch_stride else 1
    if not is_readable and copies * max(found.few_rows, product.k) > pack.LARGEST:
        return None
    return View(**vars(found), is_readable=is_readable)


@dataclass(frozen=True)
class Tiling:
    """The work of a block.

    Attributes
    ----------
    is_k_major : bool
        Whether k is the contiguous dimension of the large matrix.
    tiles, groups : int
        The number of 16-row tiles of the large matrix, and of 8-row groups of the thin one, that a
        warp has.
    split : int
        The number of warps that divide k.
    blocks : int
        The number of blocks of one product of the batch.
    """

    is_k_major: bool
    tiles: int
    groups: int
    split: int
    blocks: int

    def kernel(self, dtype: str, out_dtype: str, overlap: bool) -> Kernel:
        """Return the kernel; with ``overlap`` it may begin before the one ahead of it has ended."""
        sizes = int(self.is_k_major), self.tiles, self.groups, self.split, self.residents
        return _kernel(*sizes, TYPES[dtype], TYPES[out_dtype], overlap)

    @property
    def rows(self) -> int:
        """The rows of the large matrix that a warp computes."""
        return 16 * self.tiles

    @property
    def residents(self) -> int:
        """The number of blocks that a multiprocessor holds at once."""
        return 2 if self.tiles * self.groups <= 2 else 1

    @property
    def words(self) -> str:
        """The kernel and its tiles in words."""
        return f"the thin kernel, {self.rows} x {8 * self.groups} a warp"


@cache
def _kernel(
    k_major: int, tiles: int, groups: int, split: int, blocks: int, real: str, out: str,
    overlap: bool,
) -> Kernel:  # fmt: skip
    defines = {
        "K_MAJOR": k_major, "TILES": tiles, "GROUPS": groups, "SPLIT": split, "BLOCKS": blocks,
        "INPUT": real, "OUTPUT": out, "OVERLAP": int(overlap),
    }  # fmt: skip
    return Kernel(SOURCE, "thin_half", defines)


@dataclass(frozen=True)
class Costs:
    """The constants of the model, in seconds, fitted to measurements on an H200.

    Attributes
    ----------
    start, pack : float
        The time of a launch, and of the launch that packs the thin matrix.
    tail : float
        The time of a last k-step that is not whole.
    step : float
        The least time of a k-step and a group of the thin matrix.
    one, one_group : float
        The time of a k-step of 16 rows by one block of a multiprocessor, and what each group adds.
    two, two_group : float
        The times ``one`` and ``one_group`` for 32 rows.
    by_rows, by_rows_group : float
        The times ``one`` and ``one_group`` for 128 rows of an MN-major matrix.
    """

    start: float = 1.6e-6
    pack: float = 1.3e-6
    tail: float = 1.0e-6
    step: float = 1.1e-6
    one: float = 0.75e-6
    one_group: float = 0.25e-6
    two: float = 2.7e-6
    two_group: float = 0.35e-6
    by_rows: float = 0.9e-6
    by_rows_group: float = 0.35e-6


COSTS = Costs()


def fastest(product: Product, view: View, chip: Chip) -> tuple[Tiling, float]:
    """Return the fastest tiling of a product, and the seconds that it should take."""
    steps = -(-product.k // (128 if view.is_k_major else 16))
    found = {
        tiling: _seconds(tiling, product.batch, -(-steps // tiling.split), chip)
        for tiling in _tilings(view.is_k_major, -(-view.few_rows // 8), view.rows)
    }
    best = min(found, key=found.__getitem__)
    seconds = found[best] + (COSTS.tail if product.k % 128 else 0)
    return best, seconds + (0 if view.is_readable else COSTS.pack)


def _tilings(is_k_major: bool, groups: int, rows: int) -> Iterator[Tiling]:
    """Yield every tiling for so many rows of the large matrix and 8-row groups of the thin one."""
    tiles = (1 if groups <= 2 else 2) if is_k_major else 8
    for split in SPLITS:
        yield Tiling(is_k_major, tiles, groups, split, -(-rows // (16 * tiles * (WARPS // split))))


def _seconds(tiling: Tiling, batch: int, steps: int, chip: Chip) -> float:
    multiprocessors = chip.multiprocessors
    blocks = batch * tiling.blocks
    waves = -(-blocks // (multiprocessors * tiling.residents))
    beside = min(tiling.residents, -(-blocks // multiprocessors))
    step = COSTS.one + COSTS.one_group * tiling.groups
    if not tiling.is_k_major:
        step = COSTS.by_rows + COSTS.by_rows_group * tiling.groups
    elif tiling.tiles == 2:
        step = COSTS.two + COSTS.two_group * tiling.groups
    least = COSTS.step * min(tiling.groups, 2) if tiling.is_k_major else COSTS.step
    # A k-step waits for memory.
    slower = H200.memory / H200.multiprocessors * multiprocessors / chip.memory
    return COSTS.start + waves * steps * max(least, beside * step) * max(1.0, slower)


def plan(product: Product, view: View, chip: Chip) -> Plan:
    """Return the launches for a product.

    Parameters
    ----------
    product : Product
    view : View
        The view of the product.
    chip : Chip
    """
    tiling, seconds = fastest(product, view, chip)
    few_at = Place(A if view.is_swapped else B)
    steps, workspace, few = [], 0, view.few
    if not view.is_readable:
        packing = _by_k(few, view.few_rows, product.k, product.batch)
        workspace, few = -(-packing.bytes // 256) * 256, packing.operand
        steps.append(pack.step([(packing, few_at, Place(WORKSPACE))], chip.is_hopper))
        few_at = Place(WORKSPACE)
    # It begins early only behind the kernel that packs. Behind other kernels an early start made a
    # captured decoding step slower (benchmarks/models.py), by more than it saves elsewhere.
    launch = Launch(
        grid=(tiling.blocks, min(product.batch, MAX_GRID[1]), 1),
        block=(32 * WARPS, 1, 1),
        args=(_packed(product, view, few, few_at),),
        overlap=chip.is_hopper and bool(steps),
    )
    kernel = tiling.kernel(product.dtype, product.out_dtype, chip.is_hopper)
    steps.append(fused.step(kernel, launch, view.of_few_rows(product)))
    words = f"{view.names[1]} repacked; {tiling.words}" if workspace else tiling.words
    if tiling.split > 1:
        words += f", k divided by {tiling.split}"
    return Plan(tuple(steps), workspace, words, view.why(seconds))


def every_kernel(dtype: str, overlap: bool) -> Iterator[Kernel]:
    """Yield every kernel that a product with inputs of this dtype can need."""
    for is_k_major, most in ((True, MOST_BY_K), (False, MOST_BY_ROWS)):
        for groups in range(1, -(-most // 8) + 1):
            for tiling in _tilings(is_k_major, groups, 1):
                for out in dict.fromkeys((dtype, ACCUMULATORS[dtype])):
                    yield tiling.kernel(dtype, out, overlap)


def _by_k(few: Operand, rows: int, k: int, batch: int) -> Packing:
    """Return a K-major copy; :func:`tilewise.gemm.pack.packed` might choose another layout."""
    batch = 1 if few.batch_stride == 0 else batch
    pitch = -(-k // pack.PITCH) * pack.PITCH
    step = rows * pitch if few.batch_stride else 0
    return Packing(Operand(pitch, 1, step), few, rows, k, batch, 2 * batch * rows * pitch)


def _packed(product: Product, view: View, few: Operand, few_at: Place) -> Packed:
    """Return the bytes of the kernel's argument, with the thin matrix or its copy."""
    return layout(SOURCE, "Product").pack({
        **view.fields(view.of_few_rows(product)), "d": Place(D), "few": few_at,
        "few_pitch": few.row_stride if view.few_rows > 1 else 0, "few_step": few.batch_stride,
    })  # fmt: skip
