"""Products of a matrix and a few rows or columns: the matrix is read once, where it lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import pack
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.kernel import HALVES
from tilewise.gemm.families.thin.sides import Sides, sides
from tilewise.gemm.family import Offer
from tilewise.gemm.layouts import TYPES, layout
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ACCUMULATORS, WORKSPACE, A, B, C, D, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch, Packed, Place

SOURCE = SOURCES / "gemm" / "thin_half.cu"
WARPS = 8  # of thin_half.cu
SPLITS = (1, 2, 4, 8)  # warps of a block that may divide k
MOST_BY_K, MOST_BY_ROWS = 64, 24  # rows of the thin matrix; more sums do not fit a thread
ALIGNED_ROWS = 8  # up to as many, the kernel may beat the Hopper kernel where that can read
LARGEST = 2**31 - 2**16  # the kernel counts rows and k by int, up to a block past the end


@dataclass(frozen=True)
class Thin(Sides):
    """A product as the kernel computes it.

    Attributes
    ----------
    k_major : bool
        Whether k is the contiguous dimension of ``many``, or its rows'.
    is_readable : bool
        Whether the kernel can read ``few`` where it lies.
    """

    k_major: bool
    is_readable: bool


def thin(product: Product) -> Thin | None:
    """How the kernel would compute a product; None if it can't.

    It takes 16-bit inputs in which a matrix with a contiguous dimension meets at most
    :data:`MOST_BY_K` rows or columns, or :data:`MOST_BY_ROWS` where the contiguous dimension is
    not k.
    """
    if product.dtype not in HALVES or product.alpha == 0:
        return None
    if not 0 < max(product.m, product.n, product.k) <= LARGEST or not 0 < product.batch <= LARGEST:
        return None
    found = sides(product)
    many, few = found.many, found.few
    k_major = many.column_stride == 1 or product.k == 1
    if not k_major and many.row_stride != 1 and found.rows > 1:
        return None
    if not product.k or found.few_rows > (MOST_BY_K if k_major else MOST_BY_ROWS):
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
    return Thin(**vars(found), k_major=k_major, is_readable=is_readable)


@dataclass(frozen=True)
class Shape:
    """What a block computes.

    Attributes
    ----------
    k_major : bool
    tiles, groups : int
        Of 16 rows of the large matrix, and of 8 of the thin one, of a warp.
    split : int
        Warps that divide k.
    blocks : int
        Of a matrix.
    """

    k_major: bool
    tiles: int
    groups: int
    split: int
    blocks: int

    def kernel(self, dtype: str, out_dtype: str) -> Kernel:
        """Return the kernel."""
        defines = {
            "K_MAJOR": int(self.k_major),
            "TILES": self.tiles,
            "GROUPS": self.groups,
            "SPLIT": self.split,
            "BLOCKS": self.at_once,
            "INPUT": TYPES[dtype],
            "OUTPUT": TYPES[out_dtype],
            "OVERLAP": 1,
        }
        return Kernel(SOURCE, "thin_half", defines)

    @property
    def rows(self) -> int:
        """Of a warp."""
        return 16 * self.tiles

    @property
    def at_once(self) -> int:
        """Blocks of a multiprocessor."""
        return 2 if self.tiles * self.groups <= 2 else 1


@dataclass(frozen=True)
class Costs:
    """What the model is made of, in seconds. Fitted to measurements on an H200."""

    start: float = 1.6e-6  # of a launch
    pack: float = 1.3e-6  # of repacking the thin matrix
    tail: float = 1.0e-6  # of a last step that is not whole
    step: float = 1.1e-6  # of a step along k and a group of the thin matrix, at least
    one: float = 0.75e-6  # of a step of 16 rows in one block of a multiprocessor, and
    one_group: float = 0.25e-6  # of a group
    two: float = 2.7e-6  # of 32 rows
    two_group: float = 0.35e-6
    by_rows: float = 0.9e-6  # of 16 k, where rows are contiguous
    by_rows_group: float = 0.35e-6


COSTS = Costs()


def seconds(product: Product, view: Thin, multiprocessors: int) -> float:
    """How long a product should take, by a model of waves and steps."""
    return _shape(product, view, multiprocessors)[1]


def _shape(product: Product, view: Thin, multiprocessors: int) -> tuple[Shape, float]:
    """The fastest division of k, and the seconds with it."""
    steps = -(-product.k // (128 if view.k_major else 16))
    shapes = {
        shape: _seconds(shape, product.batch, -(-steps // shape.split), multiprocessors)
        for shape in _shapes(view.k_major, -(-view.few_rows // 8), view.rows)
    }
    best = min(shapes, key=shapes.__getitem__)
    expected = shapes[best] + (COSTS.tail if product.k % 128 else 0)
    return best, expected + (0 if view.is_readable else COSTS.pack)


def _shapes(k_major: bool, groups: int, rows: int) -> Iterator[Shape]:
    """Yield every way to compute so many rows of the large matrix, and groups of the thin one."""
    tiles = (1 if groups <= 2 else 2) if k_major else 8
    for split in SPLITS:
        yield Shape(k_major, tiles, groups, split, -(-rows // (16 * tiles * (WARPS // split))))


def _seconds(shape: Shape, batch: int, steps: int, multiprocessors: int) -> float:
    blocks = batch * shape.blocks
    waves = -(-blocks // (multiprocessors * shape.at_once))
    beside = min(shape.at_once, -(-blocks // multiprocessors))
    step = COSTS.one + COSTS.one_group * shape.groups
    if not shape.k_major:
        step = COSTS.by_rows + COSTS.by_rows_group * shape.groups
    elif shape.tiles == 2:
        step = COSTS.two + COSTS.two_group * shape.groups
    least = COSTS.step * min(shape.groups, 2) if shape.k_major else COSTS.step
    return COSTS.start + waves * steps * max(least, beside * step)


def plan(product: Product, view: Thin, multiprocessors: int) -> Plan:
    """The launches for a product.

    Parameters
    ----------
    product : Product
    view : Thin
        Of the product.
    multiprocessors : int
    """
    shape, expected = _shape(product, view, multiprocessors)
    many_at, few_at = (Place(B), Place(A)) if view.swapped else (Place(A), Place(B))
    steps, workspace, few = [], 0, view.few
    if not view.is_readable:
        packing = _by_k(few, view.few_rows, product.k, product.batch)
        workspace, few = -(-packing.bytes // 256) * 256, packing.operand
        steps.append(pack.step([(packing, few_at, Place(WORKSPACE))], overlap=True))
        few_at = Place(WORKSPACE)
    launch = Launch(
        grid=(shape.blocks, min(product.batch, MAX_GRID[1]), 1),
        block=(32 * WARPS, 1, 1),
        args=(_packed(product, view, few, many_at, few_at),),
        overlap=True,
    )
    steps.append(Step(shape.kernel(product.dtype, product.out_dtype), launch))
    thin_one = f"{'A' if view.swapped else 'B'} repacked; " if workspace else ""
    return Plan(
        steps=tuple(steps),
        workspace=workspace,
        chosen=f"{thin_one}the thin kernel, {shape.rows} x {8 * shape.groups} a warp"
        + (f", k divided by {shape.split}" if shape.split > 1 else ""),
        why=f"{'B' if view.swapped else 'A'} is read once, where it lies: "
        f"it should take {expected * 1e6:.1f} µs",
    )


class ThinHalf:
    """The family: a matrix of 16 bits and a few rows or columns, on Hopper GPUs."""

    name = "thin_half"

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the kernel can't take a product; empty if it can."""
        if chip is None or not chip.is_hopper:
            return "this is no Hopper GPU"
        view = thin(product)
        if view is None:
            return "neither A nor B has few rows or columns"
        if view.few_rows > ALIGNED_ROWS and not hopper.objection(product):
            return f"the Hopper kernel takes more than {ALIGNED_ROWS} rows or columns"
        return ""

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the one offer there is."""
        view = None if self.objection(product, chip) else thin(product)
        if view is None or chip is None:
            return None
        shape, expected = _shape(product, view, chip.multiprocessors)
        words = f"the thin kernel, {shape.rows} x {8 * shape.groups} a warp"
        make = partial(plan, product, view, chip.multiprocessors)
        return Offer(self.name, expected, make, words=words)

    def offers(self, product: Product, chip: Chip | None) -> Iterable[Offer]:
        """Return the one offer there is."""
        found = self.best(product, chip)
        return [] if found is None else [found]

    def offer(self, product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        """Return the one offer there is."""
        return self.best(product, chip)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterator[Kernel]:
        """Yield every kernel that :meth:`best` can ask for, and the one that packs."""
        if chip is None or not chip.is_hopper or dtype not in HALVES:
            return
        for k_major, most in ((True, MOST_BY_K), (False, MOST_BY_ROWS)):
            for groups in range(1, -(-most // 8) + 1):
                for shape in _shapes(k_major, groups, 1):
                    for out in dict.fromkeys((dtype, ACCUMULATORS[dtype])):
                        yield shape.kernel(dtype, out)
        yield pack.kernel(overlap=True)


def _by_k(few: Operand, rows: int, k: int, batch: int) -> Packing:
    """A copy whose rows are contiguous, which :func:`tilewise.gemm.pack.packed` need not choose."""
    batch = 1 if few.batch_stride == 0 else batch
    pitch = -(-k // pack.PITCH) * pack.PITCH
    step = rows * pitch if few.batch_stride else 0
    return Packing(Operand(pitch, 1, step), few, rows, k, batch, 2 * batch * rows * pitch)


def _packed(product: Product, view: Thin, few: Operand, many_at: Place, few_at: Place) -> Packed:
    many, d, c = view.many, product.d, product.c
    if view.swapped:
        c, d = c and c.transposed, d.transposed
    reads_c = c is not None and product.beta != 0
    c = c or d
    return layout(SOURCE, "Product").pack({
        "many": many_at, "few": few_at, "c": Place(C) if reads_c else None, "d": Place(D),
        "many_pitch": many.row_stride if view.k_major else many.column_stride,
        "many_step": many.batch_stride,
        "few_pitch": few.row_stride if view.few_rows > 1 else 0, "few_step": few.batch_stride,
        "c_many": c.row_stride, "c_few": c.column_stride, "c_step": c.batch_stride,
        "d_many": d.row_stride, "d_few": d.column_stride, "d_step": d.batch_stride,
        "rows": view.rows, "few_rows": view.few_rows, "k": product.k, "batch": product.batch,
        "alpha": product.alpha, "beta": product.beta,
    })  # fmt: skip
