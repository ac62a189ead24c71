"""How a product is answered: the kernels and their grids."""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import combinations

from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.devices.limits import MAX_GRID
from tilewise.gemm import kept as tuned
from tilewise.gemm import pack, unpack
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper import costs
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper.tilings import Problem, Tiling, candidates
from tilewise.gemm.families.simt import kernel as fma
from tilewise.gemm.families.simt import plan as fma_plan
from tilewise.gemm.families.thin import half as thin
from tilewise.gemm.families.thin import real as thin_fma
from tilewise.gemm.pack import Packing
from tilewise.gemm.product import ACCUMULATORS, ITEM_SIZES, REAL, WORKSPACE, A, B, C, D, Product
from tilewise.gemm.steps import PREPARED, Plan, Step
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch, Packed, Place

FOLDER = SOURCES / "gemm"
BLOCK, BLOCK_K, THREADS = 64, 16, 256  # of any.cu
ALIGNED_ROWS = 8  # up to as many, the thin kernel may beat the Hopper kernel where that can read

# any.cu's Product
_HEAD, _OPERAND = struct.Struct("<4q2d"), struct.Struct("<Q3q")
_LAYOUT = struct.Struct(_HEAD.format + 4 * _OPERAND.format[1:])
_TYPES = {
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "float32": "float",
    "float64": "double",
}


def plan_product(product: Product, device: Device) -> Plan:
    """How ``device`` computes the product.

    Parameters
    ----------
    product : Product
    device : Device
        Where its arrays lie.
    """
    if ITEM_SIZES[product.dtype] == 2 and not device.arch.startswith("sm_90"):
        _warn_general(device.description)
    return plan_on(product, chip_of(device))


def chip_of(device: Device) -> Chip | None:
    """The GPU that a device is; None for the emulator, and GPUs before compute capability 8.0."""
    if isinstance(device, Gpu) and int(device.arch.removeprefix("sm_").rstrip("af")) >= 80:
        is_hopper = device.arch.startswith("sm_90")
        return Chip(device.context.device.name, device.multiprocessors, is_hopper)
    return None


@lru_cache(maxsize=PREPARED)
def plan_on(product: Product, chip: Chip | None, tiling: Tiling | None = None) -> Plan:
    """How a GPU, or with None any other device, computes the product.

    Parameters
    ----------
    product : Product
    chip : Chip or None
    tiling : Tiling, optional
        Has the Hopper kernel compute it, with this tiling. By default the way that should be
        fastest; of the Hopper kernel's tilings, one that was measured and kept goes first.

    Raises
    ------
    ValueError
        If a tiling is given, and the Hopper kernel does not take the product with it.
    """
    if not (product.m and product.n and product.batch):
        return Plan((), 0, "nothing", "the result has no elements")
    if chip is None:
        return _by_general(product, "this is no Hopper GPU")
    if tiling is None and product.dtype in REAL:
        return _by_fma(product, chip)
    if not chip.is_hopper:
        return _by_general(product, "this is no Hopper GPU")
    if tiling is not None:
        # If none fits, the kernel's planner says why.
        asked = choice(product, chip, tiling)
        return _hopper_plan(product, chip, asked or Choice(0.0, Reading(product), tiling, ""))
    ways = []
    view = thin.thin(product)
    off = hopper.objection(product)
    if view is not None and (off or view.few_rows <= ALIGNED_ROWS):
        expected = thin.seconds(product, view, chip.multiprocessors)
        ways.append((expected, lambda: thin.plan(product, view, chip.multiprocessors)))
    if chosen := choice(product, chip):
        ways.append((chosen.seconds, lambda: _hopper_plan(product, chip, chosen)))
    if ways and off:
        expected = general_seconds(product, chip.multiprocessors)
        words = f"by the others it should take {min(ways, key=_first)[0] * 1e6:.1f} µs"
        ways.append((expected, lambda: _by_general(product, words)))
    return min(ways, key=_first)[1]() if ways else _by_general(product, off)


Way = tuple[float, Callable[[], Plan]]
"""The seconds that a plan should take, and what makes it."""


def _first(way: Way) -> float:
    return way[0]


@dataclass(frozen=True)
class Reading:
    """Where the Hopper kernel finds a product's matrices.

    Attributes
    ----------
    product : Product
        As the kernel computes it: A, B and D as they lie, or as copies of them lie in the
        workspace.
    packings : mapping of int to Packing
        Of those of A and B that are copied before.
    unpacking : Packing or None
        Of D, where that is copied afterwards.
    """

    product: Product
    packings: Mapping[int, Packing] = field(default_factory=dict)
    unpacking: Packing | None = None

    @property
    def problem(self) -> Problem:
        """What of it decides how fast the kernel's tiles are."""
        return replace(hopper.problem(self.product), repacked=bool(self.packings))


def readings(product: Product) -> list[Reading]:
    """Every way to read a product that the Hopper kernel takes; none if it takes none.

    A matrix whose rows begin at multiples of 16 bytes is read where it lies. Of others with a
    contiguous dimension the kernel can shift the tiles, which takes time for each; or one more pass
    through memory makes a copy whose rows begin so.
    """
    unpacking = _unpacking(product)
    found = []
    for copied in _subsets([x for x in (A, B) if _may_be_packed(product, x)]):
        packings = {x: _packing(product, x) for x in copied}
        a, b = (packings[x].operand if x in packings else None for x in (A, B))
        view = replace(product, a=a or product.a, b=b or product.b)
        if unpacking is not None:
            view = replace(view, d=unpacking.operand)
        found.append(Reading(view, packings, unpacking))
    return [reading for reading in found if not hopper.objection(reading.product)]


def _subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _may_be_packed(product: Product, which: int) -> bool:
    """Whether a copy could serve better than A or B itself.

    A pitch that is an odd multiple of 16 bytes is read, though at half the rate; where a product
    uses it often enough, repacking it could pay too.
    """
    rows, columns = (product.m, product.k) if which == A else (product.k, product.n)
    return (
        product.dtype in hopper.HALVES
        and product.batch * rows * columns > 0
        and product.batch * max(rows, columns) <= pack.LARGEST
        and bool(hopper.unaligned(product, which))
    )


def _packing(product: Product, which: int) -> Packing:
    if which == A:
        return pack.packed(product.a, product.m, product.k, product.batch)
    return pack.packed(product.b, product.k, product.n, product.batch)


@dataclass(frozen=True)
class Choice:
    """How the Hopper kernel computes a product.

    Attributes
    ----------
    seconds : float
        That it should take, repacking included.
    reading : Reading
    tiling : Tiling
    why : str
        Why this one, for people.
    """

    seconds: float
    reading: Reading
    tiling: Tiling
    why: str


def choice(product: Product, chip: Chip, tiling: Tiling | None = None) -> Choice | None:
    """The reading and the tiling that should be fastest; None if the kernel can't.

    Parameters
    ----------
    product : Product
    chip : Chip
    tiling : Tiling, optional
        This one. By default one that was measured and kept, or else any.
    """
    if tiling is not None:
        return _with_tiling(product, chip, tiling, "asked for")
    if kept := tuned.tiling(product, chip):
        why = "it was the fastest of those that were measured"
        if found := _with_tiling(product, chip, kept, why):
            return found
    every = ranked(product, chip)
    if not every:
        return None
    best, seconds = every[0]
    why = f"of all tilings it should take least, {seconds * 1e6:.1f} µs"
    return _with_tiling(product, chip, best, why)


def ranked(product: Product, chip: Chip) -> list[tuple[Tiling, float]]:
    """The Hopper kernel's tilings for a product, with the seconds that each should take.

    Best first; repacking, where the tiling needs it, included. Empty if the kernel can't.
    """
    best: dict[Tiling, float] = {}
    for reading in readings(product):
        problem, around = reading.problem, _seconds_around(reading)
        for tiling in candidates(problem, chip.multiprocessors):
            seconds = around + costs.seconds(tiling, problem, chip.multiprocessors)
            best[tiling] = min(seconds, best.get(tiling, math.inf))
    return sorted(best.items(), key=lambda x: x[1])


def _with_tiling(product: Product, chip: Chip, tiling: Tiling, why: str) -> Choice | None:
    """That tiling by the reading which should be fastest; None if it fits none."""
    found = []
    for reading in readings(product):
        problem = reading.problem
        if not tiling.objection(problem.turned if tiling.turned else problem):
            seconds = costs.seconds(tiling, problem, chip.multiprocessors)
            found.append(Choice(seconds + _seconds_around(reading), reading, tiling, why))
    return min(found, key=lambda choice: choice.seconds, default=None)


def _seconds_around(reading: Reading) -> float:
    """How long what is done before and after the Hopper kernel should take."""
    seconds = 0.0
    if reading.packings:
        seconds += pack_seconds(reading.packings.values())
    if reading.unpacking is not None:
        seconds += pack_seconds([reading.unpacking])
    return seconds


def _unpacking(product: Product) -> Packing | None:
    """Of D, where neither dimension is contiguous, so that the kernel can't store it."""
    lines = ((product.n, product.d.column_stride), (product.m, product.d.row_stride))
    if (
        any(stride == 1 or extent == 1 for extent, stride in lines)
        or product.out_dtype not in hopper.HALVES
        or product.beta != 0
        or not 0 < product.batch * max(product.m, product.n) <= pack.LARGEST
    ):
        return None
    return pack.packed(product.d, product.m, product.n, product.batch)


def _hopper_plan(product: Product, chip: Chip, chosen: Choice) -> Plan:
    reading = chosen.reading
    packings, unpacking = reading.packings, reading.unpacking
    places, used = {x: Place(x) for x in (A, B, D)}, 0
    at = {**packings, **({} if unpacking is None else {D: unpacking})}
    for array, packing in at.items():
        places[array] = Place(WORKSPACE, used)
        used += -(-packing.bytes // 256) * 256
    plan = hopper.plan(
        reading.product,
        chip.multiprocessors,
        chosen.tiling,
        a_at=places[A],
        b_at=places[B],
        d_at=places[D],
        workspace=used,
    )
    steps, words = list(plan.steps), plan.chosen
    if packings:
        copies = [(packing, Place(x), places[x]) for x, packing in packings.items()]
        steps.insert(0, pack.step(copies, overlap=True))
        names = " and ".join("AB"[x] for x in packings)
        first = min(packings)
        reason = f"{'AB'[first]} {hopper.unaligned(product, first)}"
        words = f"{names} repacked, as {reason}; then {words}"
    if unpacking is not None:
        steps.append(unpack.step(unpacking, places[D], Place(D), overlap=True))
        words = f"{words}; then D copied from the workspace to where it belongs"
    return replace(plan, steps=tuple(steps), chosen=words, why=chosen.why)


def pack_seconds(packings: Iterable[Packing]) -> float:
    """How long repacking should take: what is read and written, once through memory."""
    moved = 2 * sum(packing.bytes for packing in packings)
    return PACK_START + moved / PACK_RATE


def general_seconds(product: Product, multiprocessors: int) -> float:
    """How long the general kernel should take, by a model of phases."""
    tiles = -(-product.m // BLOCK) * -(-product.n // BLOCK) * product.batch
    phases = -(-product.k // BLOCK_K)
    phase = max(GENERAL_PHASE, GENERAL_TILE * tiles / multiprocessors)
    return GENERAL_START + phases * phase


# Seconds, and bytes a second: fitted to measurements on an H200.
PACK_START, PACK_RATE = 1.2e-6, 4.1e12
GENERAL_START, GENERAL_PHASE, GENERAL_TILE = 1.0e-6, 2.4e-6, 1.06e-6  # any.cu's


def _by_fma(product: Product, chip: Chip) -> Plan:
    found = [family.best(product, chip) for family in (fma_plan, thin_fma)]
    offer = min(filter(None, found), key=lambda offer: offer.rank, default=None)
    return _by_general(product, fma.objection(product)) if offer is None else offer.make()


def _by_general(product: Product, why: str) -> Plan:
    tiles = -(-product.m // BLOCK) * -(-product.n // BLOCK)
    grid = (min(tiles, MAX_GRID[0]), 1, min(product.batch, MAX_GRID[2]))
    launch = Launch(grid, (THREADS, 1, 1), (_packed(product),))
    step = Step(_general(product.dtype, product.out_dtype), launch)
    return Plan(
        (step,), 0, f"the general kernel, tiles of {BLOCK} x {BLOCK}", f"tensor cores: {why}"
    )


@cache
def _general(dtype: str, out_dtype: str) -> Kernel:
    defines = {
        "INPUT": _TYPES[dtype],
        "OUTPUT": _TYPES[out_dtype],
        "ACCUMULATE": _TYPES[ACCUMULATORS[dtype]],
        "LOAD_INPUT": f"of_{dtype}" if ITEM_SIZES[dtype] == 2 else "",
        "LOAD_OUTPUT": f"of_{out_dtype}" if ITEM_SIZES[out_dtype] == 2 else "",
        "STORE_OUTPUT": f"to_{out_dtype}" if ITEM_SIZES[out_dtype] == 2 else "",
    }
    return Kernel(FOLDER / "any.cu", "gemm_any", defines)


def _packed(product: Product) -> Packed:
    fields: list[int | float] = [product.m, product.n, product.k, product.batch]
    fields += [product.alpha, product.beta]
    places = []
    for array, x in ((A, product.a), (B, product.b), (C, product.c), (D, product.d)):
        if x is not None:
            places.append((_HEAD.size + array * _OPERAND.size, Place(array)))
        fields += [0, 0, 0, 0] if x is None else [0, x.row_stride, x.column_stride, x.batch_stride]
    return Packed(_LAYOUT.pack(*fields), tuple(places))


@cache
def _warn_general(description: str) -> None:
    warnings.warn(
        f"{description}: tilewise has tensor-core kernels for compute capability 9.0 only; "
        "16-bit products are right here, but slow, by the general kernel",
        RuntimeWarning,
        stacklevel=5,
    )
