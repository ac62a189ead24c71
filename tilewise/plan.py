"""How a product is answered: the kernels and their grids."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from tilewise import hopper, pack, thin, tilings, tuned, unpack
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.devices.limits import MAX_GRID
from tilewise.kernel import Kernel
from tilewise.launch import Launch, Packed, Place
from tilewise.pack import Packing
from tilewise.product import ACCUMULATORS, ITEM_SIZES, WORKSPACE, A, B, C, D, Product
from tilewise.steps import PREPARED, Plan, Step
from tilewise.tilings import Tiling
from tilewise.tuned import Chip

FOLDER = Path(__file__).parent / "kernels" / "gemm"
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
    """The Hopper GPU that a device is; None for any other device."""
    if isinstance(device, Gpu) and device.arch.startswith("sm_90"):
        return Chip(device.context.device.name, device.multiprocessors)
    return None


@lru_cache(maxsize=PREPARED)
def plan_on(product: Product, chip: Chip | None, tiling: Tiling | None = None) -> Plan:
    """How a Hopper GPU, or with None any other device, computes the product.

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
    if tiling is not None:
        return _by_hopper(product, chip, tiling)[1]()
    ways = []
    view = thin.thin(product)
    off = hopper.objection(product)
    if view is not None and (off or view.few_rows <= ALIGNED_ROWS):
        expected = thin.seconds(product, view, chip.multiprocessors)
        ways.append((expected, lambda: thin.plan(product, view, chip.multiprocessors)))
    why = hopper.objection(as_read(product))
    if not why:
        ways.append(_by_hopper(product, chip))
    if ways and off:
        expected = general_seconds(product, chip.multiprocessors)
        words = f"by the others it should take {min(ways, key=_first)[0] * 1e6:.1f} µs"
        ways.append((expected, lambda: _by_general(product, words)))
    return min(ways, key=_first)[1]() if ways else _by_general(product, why)


Way = tuple[float, Callable[[], Plan]]
"""The seconds that a plan should take, and what makes it."""


def _first(way: Way) -> float:
    return way[0]


def as_read(product: Product) -> Product:
    """The product as the Hopper kernel computes it: A, B and D as they lie in the workspace.

    Only those of them are there that bulk copies can't read, or that are stored faster so.
    """
    packings, unpacking = _packings(product), _unpacking(product)
    a, b = (packings[x].operand if x in packings else None for x in (A, B))
    d = product.d if unpacking is None else unpacking.operand
    return replace(product, a=a or product.a, b=b or product.b, d=d)


def _packings(product: Product) -> dict[int, Packing]:
    """Of those of A and B that bulk copies can't read; none of what can't be repacked.

    A pitch that is an odd multiple of 16 bytes is read, though at half the rate; where a product
    uses it often enough, repacking it could pay too.
    """
    found: dict[int, Packing] = {}
    if product.dtype not in hopper.HALVES or not product.batch:
        return found
    for array, x, rows, columns in (
        (A, product.a, product.m, product.k),
        (B, product.b, product.k, product.n),
    ):
        is_small = product.batch * max(rows, columns) <= pack.LARGEST
        if rows and columns and is_small and hopper.unreadable(x, rows, columns):
            found[array] = pack.packed(x, rows, columns, product.batch)
    return found


def _by_hopper(product: Product, chip: Chip, tiling: Tiling | None = None) -> Way:
    """The Hopper kernel, after repacking where it has to be."""
    view = as_read(product)
    problem, why = hopper.problem(view), "asked for"
    if tiling is not None:
        expected = tilings.seconds(tiling, problem, chip.multiprocessors)
    else:
        tiling, expected = tilings.choose(problem, chip.multiprocessors)
        why = f"of all tilings it should take least, {expected * 1e6:.1f} µs"
        if kept := tuned.tiling(product, chip):
            tiling, why = kept, "it was the fastest of those that were measured"
    packings = _packings(product)
    if packings:
        expected += pack_seconds(packings.values())
    unpacking = _unpacking(product)
    if unpacking is not None:
        expected += pack_seconds([unpacking])
    elif _is_scattered(product):
        expected += SCATTERED * product.batch * product.m * product.n
    return expected, lambda: _hopper_plan(product, packings, unpacking, chip, tiling, why)


def _is_scattered(product: Product) -> bool:
    """Whether the Hopper kernel would store D's elements one by one."""
    if hopper.stores_by_copies(product):
        return False
    d, item = product.d, ITEM_SIZES[product.out_dtype]
    by_rows = d.column_stride == 1 or product.n == 1
    return not by_rows or d.row_stride % 2 != 0 or d.offset % (2 * item) != 0


def _unpacking(product: Product) -> Packing | None:
    """Of D: as it is computed in the workspace, where copying it from there is worth while."""
    if product.out_dtype not in hopper.HALVES or product.beta != 0:
        return None
    extent = max(product.m, product.n)
    if not _is_scattered(product) or not 0 < product.batch * extent <= pack.LARGEST:
        return None
    packing = pack.packed(product.d, product.m, product.n, product.batch)
    has_lines = 1 in (product.d.row_stride, product.d.column_stride)
    saved = SCATTERED * product.batch * product.m * product.n
    return packing if not has_lines or saved > pack_seconds([packing]) else None


def _hopper_plan(
    product: Product,
    packings: Mapping[int, Packing],
    unpacking: Packing | None,
    chip: Chip,
    tiling: Tiling,
    why: str,
) -> Plan:
    places, used = {x: Place(x) for x in (A, B, D)}, 0
    at = {**packings, **({} if unpacking is None else {D: unpacking})}
    for array, packing in at.items():
        places[array] = Place(WORKSPACE, used)
        used += -(-packing.bytes // 256) * 256
    plan = hopper.plan(
        as_read(product),
        chip.multiprocessors,
        tiling,
        a_at=places[A],
        b_at=places[B],
        d_at=places[D],
        workspace=used,
    )
    steps, chosen = list(plan.steps), plan.chosen
    if packings:
        copies = [(packing, Place(x), places[x]) for x, packing in packings.items()]
        steps.insert(0, pack.step(copies, overlap=True))
        names = " and ".join("AB"[x] for x in packings)
        chosen = f"{names} repacked, as {hopper.objection(product)}; then {chosen}"
    if unpacking is not None:
        steps.append(unpack.step(unpacking, places[D], Place(D), overlap=True))
        chosen = f"{chosen}; then D copied from the workspace to where it belongs"
    return replace(plan, steps=tuple(steps), chosen=chosen, why=why)


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
SCATTERED = 3.0e-12  # of an element of D that is stored alone
GENERAL_START, GENERAL_PHASE, GENERAL_TILE = 1.0e-6, 2.4e-6, 1.06e-6  # any.cu's


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
