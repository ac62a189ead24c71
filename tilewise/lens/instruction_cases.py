"""Launches of a single kind of memory instruction each, in named patterns of addresses.

The kernels are in tilewise/kernels/counted: ``ldmatrix`` and ``stmatrix`` (matrix_rows),
``cp.async`` (async_copy), bulk and tensor copies (bulk_copy, tensor_copy), ``wgmma``
(warpgroup_product) and atomics in shared memory (shared_atomic). :mod:`hardware_cases` includes
their cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.lens.case_spec import KERNELS, LANES, Spec
from tilewise.lens.nsight_child import Case
from tilewise.tensor_map import SWIZZLES, tensor_map

BLOCKS = 4  # blocks of a launch, all with the same pattern, except random ones
RANDOM = 100  # blocks of a launch with random patterns, each with its own
ROWS = 288  # rows of 16 bytes in matrix_rows
ITEMS = 512  # items in async_copy and shared_atomic
ROW = 16  # bytes of a row of an 8 x 8 matrix
_WARPGROUP = 128
_TILES = 48 * 1024  # bytes of both operands of a warpgroup_product
_B_AT = 16 * 1024  # the byte at which B begins there

Places = npt.NDArray[np.int32]
_lane = np.arange(LANES, dtype=np.int32)
_matrix, _row = _lane // 8, _lane % 8

# The place of each lane's row. Eight neighbouring rows fill the 32 banks once.
ROW_PATTERNS: Mapping[str, Places] = {
    "side_by_side": _lane,
    "two_way": 16 * _matrix + 2 * _row,
    "four_way": 32 * _matrix + 4 * _row,
    "eight_way": 64 * _matrix + 8 * _row,
    "padded": 9 * _lane,
    "swizzled": 8 * _lane + (3 ^ _row),
    "one_of_four_conflicts": np.where(_lane < 8, 8 * _lane, 64 + _lane),
    "others_astray": np.where(_lane < 8, _lane, 8 * _lane),
    "backwards": _lane[::-1].copy(),
    "interleaved": 4 * _row + _matrix,
    # Rows that several lanes name.
    "one_row": 0 * _lane,
    "one_row_a_matrix": _matrix,
    "one_row_a_matrix_in_one_bank": 8 * _matrix,
    "pairs": _lane // 2,
    "pairs_apart": 8 * _matrix + _row % 4,
    "pairs_in_one_bank": 8 * (_lane // 2),
    "fours": _lane // 4,
    "fours_in_one_bank": 8 * (_lane // 4),
    "same_matrix": _row,
    "same_matrix_in_one_bank": 8 * _row,
    "two_matrices": 8 * (_matrix // 2) + _row,
    "two_matrices_in_turn": 8 * (_matrix % 2) + _row,
    "halves_of_two": 4 * (_matrix // 2) + _row // 2 + 4 * (_matrix % 2),
}
_SHARED_ROWS = (
    "one_row", "one_row_a_matrix", "one_row_a_matrix_in_one_bank", "pairs", "pairs_apart",
    "pairs_in_one_bank", "fours", "fours_in_one_bank", "same_matrix", "same_matrix_in_one_bank",
    "two_matrices", "two_matrices_in_turn", "halves_of_two",
)  # fmt: skip
_SINGLE_ROWS = tuple(name for name in ROW_PATTERNS if name not in _SHARED_ROWS)

# The place that each lane copies to and the one it copies from; -1 for none.
_even = np.where(_lane % 2 == 0, _lane, -1)
COPY_PATTERNS: Mapping[str, tuple[Places, Places]] = {
    "side_by_side": (_lane, _lane),
    "one_further": (_lane, _lane + 1),
    "two_way": (2 * _lane, _lane),
    "eight_way": (8 * _lane, _lane),
    "padded": (9 * _lane, _lane),
    "swizzled": (8 * _lane + (3 ^ _row), _lane),
    "from_apart": (_lane, 8 * _lane),
    "both_apart": (8 * _lane, 8 * _lane),
    "rows_of_eight": (8 * _row + _matrix, 32 * _row + _matrix),
    "backwards": (_lane[::-1].copy(), _lane),
    "from_one": (_lane, 0 * _lane),
    "every_other": (_even, _lane),
    "one_lane": (np.where(_lane == 5, _lane, -1), _lane),
    "partial": (_lane, _lane),
}

# The word that each lane adds to; -1 for none.
ATOMIC_PATTERNS: Mapping[str, Places] = {
    "side_by_side": _lane,
    "two_way": 2 * _lane,
    "eight_way": 8 * _lane,
    "one_bank": 32 * (_lane % 16),
    "one_word": 0 * _lane,
    "pairs": _lane // 2,
    "every_other": _even,
}

# The rows of the array, the bytes of one, rows and bytes of the box, and the steps from box to box;
# with a step that does not divide the array's side, boxes reach outside.
TENSOR_PATTERNS: Mapping[str, tuple[int, int, int, int, str]] = {
    "plain": (32, 256, 16, 128, "none"),
    "32B": (32, 64, 16, 32, "32B"),
    "64B": (32, 128, 16, 64, "64B"),
    "128B": (32, 256, 16, 128, "128B"),
    "narrow": (32, 32, 16, 16, "none"),
    "odd_pitch": (32, 208, 16, 112, "none"),
    "outside": (24, 176, 16, 128, "128B"),
    "large": (128, 256, 64, 128, "128B"),
}


def _descriptor(at: int, leading: int, stride: int, swizzle: int) -> int:
    """Return a matrix descriptor (PTX ISA 9.7.15.5.1.2.2); all arguments but swizzle are bytes."""
    return at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62


# The layouts of wgmma's operands: whether k is not the contiguous dimension, the bytes of the
# leading and the stride offset, and the descriptor's swizzle.
LAYOUTS: Mapping[str, tuple[int, int, int, int]] = {
    "128B": (0, 16, 1024, 1),
    "64B": (0, 16, 512, 2),
    "32B": (0, 16, 256, 3),
    "plain": (0, 128, 256, 0),
    "128B_turned": (1, 2048, 1024, 1),
}


def specs() -> Iterator[Spec]:
    """Yield the spec of each kernel's cases."""
    yield from _matrix_rows()
    for width, bypasses in ((4, 0), (8, 0), (16, 0), (16, 1)):
        narrow = ("side_by_side", "two_way", "eight_way", "from_apart", "partial")
        for pattern in COPY_PATTERNS if width == 16 else narrow:
            yield Spec("async_copy", "uint32", (width, bypasses), pattern=pattern)
        yield Spec("async_copy", "uint32", (width, bypasses), seed=width, pattern="random")
    for returns in (0, 1):
        for pattern in ATOMIC_PATTERNS:
            yield Spec("shared_atomic", "uint32", (returns,), pattern=pattern)
    for n, shared in ((8, 1), (16, 1), (64, 1), (128, 1), (256, 1), (8, 0), (64, 0), (256, 0)):
        yield Spec("warpgroup_product", "float16", (n, shared), pattern="128B")
    for pattern in LAYOUTS:
        if pattern != "128B":
            yield Spec("warpgroup_product", "float16", (64, 1), pattern=pattern)
            yield Spec("warpgroup_product", "float16", (64, 0), pattern=pattern)
    for size, copies, cluster in (
        (16, 1, 1), (32, 1, 1), (48, 1, 1), (112, 1, 1), (128, 1, 1), (4096, 1, 1), (16, 4, 1),
        (160, 3, 1), (128, 1, 2), (1024, 1, 4), (16, 2, 2),
    ):  # fmt: skip
        yield Spec("bulk_copy", "uint8", (size, copies, cluster))
    for pattern in TENSOR_PATTERNS:
        yield Spec("tensor_copy", "uint16", (0,), pattern=pattern)
    yield Spec("tensor_copy", "uint32", (1,), pattern="128B")


def _matrix_rows() -> Iterator[Spec]:
    few = ("side_by_side", "two_way", "eight_way", "padded", "others_astray", "one_row", "pairs",
           "pairs_in_one_bank", "two_matrices_in_turn")  # fmt: skip
    chosen: dict[tuple[int, int, int], tuple[str, ...]] = {
        # COUNT, TRANS, STORES
        (4, 0, 0): tuple(ROW_PATTERNS),
        (2, 0, 0): few,
        (1, 0, 0): few,
        (4, 1, 0): (*few, "four_way", "same_matrix"),
        (1, 1, 0): ("side_by_side", "eight_way"),
        (4, 0, 1): tuple(ROW_PATTERNS),
        (2, 0, 1): few,
        (1, 0, 1): few,
        (4, 1, 1): _SINGLE_ROWS[:6],
        (1, 1, 1): ("side_by_side", "eight_way"),
    }
    for shape, names in chosen.items():
        for pattern in names:
            yield Spec("matrix_rows", "uint32", shape, pattern=pattern)
        if not shape[1]:
            yield Spec("matrix_rows", "uint32", shape, seed=shape[0], pattern="random")


def make(spec: Spec) -> Case:
    """Return the launch of a spec; each call makes new arrays with the same numbers in them.

    Raises
    ------
    ValueError
        If there is no such kernel.
    """
    if spec.kernel not in KINDS:
        raise ValueError(f"there is no kernel {spec.kernel!r} here")
    return KINDS[spec.kernel][0](spec)


def is_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Return whether a kernel has correctly changed the arguments ``before`` to ``after``."""
    return KINDS[spec.kernel][1](spec, before, after)


def _case(
    spec: Spec, grid: tuple[int, ...], block: int, args: tuple[Any, ...],
    defines: Mapping[str, Any], shared: int,
) -> Case:  # fmt: skip
    return Case(KERNELS / f"{spec.kernel}.cu", spec.kernel, grid, (block,), args, defines, shared)


# ldmatrix and stmatrix


def row_places(spec: Spec) -> Places:
    """Return the place of each lane's row, a row for each warp."""
    if spec.pattern != "random":
        return np.tile(ROW_PATTERNS[spec.pattern], (BLOCKS, 1))
    rng, is_store = np.random.default_rng(spec.seed), spec.shape[2]
    places = np.empty((RANDOM, LANES), np.int32)
    for warp in places:
        rows = rng.permutation(ROWS)[: 8 * rng.integers(4, ROWS // 8)]  # with gaps between them
        if is_store:  # rows that two lanes name would be a race, unless both write the same
            warp[:] = rows[:LANES]
        else:
            warp[:] = rng.choice(rows[: rng.integers(1, len(rows))], LANES)
    return places


def _make_rows(spec: Spec) -> Case:
    count, turned, stores = spec.shape
    places = row_places(spec)
    out = np.zeros((len(places), 4 * ROWS if stores else count * LANES), np.uint32)
    defines = {"COUNT": count, "TRANS": turned, "STORES": stores}
    return _case(spec, (len(places),), LANES, (ROWS, places, out), defines, ROWS * ROW)


def _rows_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    count, turned, stores = spec.shape
    places = before[1][:, : 8 * count]
    words = 4 * places[..., None] + np.arange(4)  # of each row that is named
    if stores:
        expected = np.tile(np.arange(4 * ROWS, dtype=np.uint32), (len(places), 1))
        for warp, given in enumerate(words):
            expected[warp, given] = 0x00010001 if turned else 0x00010000 + given
        return bool(np.array_equal(after[2], expected))
    halves = words.astype(np.uint32).view(np.uint16).reshape(-1, count, 8, 8)
    tiles = halves.swapaxes(2, 3) if turned else halves
    expected = np.ascontiguousarray(tiles).view(np.uint32).reshape(len(places), -1)
    return bool(np.array_equal(after[2], expected))


# cp.async


def _copy_places(spec: Spec) -> tuple[Places, Places]:
    if spec.pattern != "random":
        to, source = COPY_PATTERNS[spec.pattern]
        return np.tile(to, (BLOCKS, 1)), np.tile(source, (BLOCKS, 1))
    rng = np.random.default_rng(spec.seed)
    to, source = (np.empty((RANDOM, LANES), np.int32) for _ in range(2))
    for i in range(RANDOM):
        to[i] = rng.permutation(rng.integers(LANES, ITEMS + 1))[:LANES]
        source[i] = rng.integers(0, rng.integers(1, ITEMS), LANES)
        if i % 3 == 0:
            to[i][rng.random(LANES) < rng.random()] = -1
    return to, source


def _make_copy(spec: Spec) -> Case:
    width, bypasses = spec.shape
    to, source = _copy_places(spec)
    is_partial = spec.pattern == "partial"
    taken = np.tile(np.array([0, 4, width], np.int32)[_lane % 3], (len(to), 1))
    args = (
        ITEMS, to, source, taken, np.arange(1, ITEMS * width // 4 + 1, dtype=np.uint32),
        np.zeros((len(to), ITEMS * width // 4), np.uint32),
    )  # fmt: skip
    defines = {"WIDTH": width, "CACHE": "cg" if bypasses else "ca", "PARTIAL": int(is_partial)}
    return _case(spec, (len(to),), LANES, args, defines, ITEMS * width)


def _copy_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    items, to, source, taken, values, _ = before
    given = values.reshape(items, -1)
    expected = np.zeros((len(to), *given.shape), np.uint32)
    for warp, lane in zip(*np.nonzero(to >= 0), strict=True):
        item = given[source[warp, lane]].copy()
        if spec.pattern == "partial":
            item[taken[warp, lane] // 4 :] = 0
        expected[warp, to[warp, lane]] = item
    return bool(np.array_equal(after[5].reshape(expected.shape), expected))


# Bulk and tensor copies


def _make_bulk(spec: Spec) -> Case:
    size, copies, cluster = spec.shape
    given = np.random.default_rng(size).integers(0, 256, (BLOCKS, copies * size), np.uint8)
    args = size, copies, given, np.zeros((BLOCKS, cluster * copies * size), np.uint8)
    defines = {"BLOCKS": cluster}
    return _case(spec, (BLOCKS,), LANES, args, defines, cluster * copies * size)


def _bulk_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    given, cluster = before[2], spec.shape[2]
    together = given.reshape(BLOCKS // cluster, -1).repeat(cluster, axis=0)
    return bool(np.array_equal(after[3], together))


def _make_tensor(spec: Spec) -> Case:
    rows, width, box_rows, box_width, swizzle = TENSOR_PATTERNS[spec.pattern]
    assert SWIZZLES[swizzle] in (0, box_width)
    item = np.dtype(spec.dtype).itemsize
    given = np.random.default_rng(rows).integers(0, 1000, (rows, width // item)).astype(spec.dtype)
    columns = box_width // item
    maps = [
        tensor_map(x, (box_rows, columns), swizzle=swizzle) for x in (given, np.ones_like(given))
    ]
    grid = (-(-width // box_width), -(-rows // box_rows))
    size = box_rows * box_width
    args = (*maps, size, columns, box_rows)
    return _case(spec, grid, LANES, args, {"ADDS": spec.shape[0]}, size)


def _tensor_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    (adds,) = spec.shape
    return bool(np.array_equal(after[1].array, before[0].array + before[0].array.dtype.type(adds)))


# wgmma


def _make_product(spec: Spec) -> Case:
    n, shared = spec.shape
    turned, *offsets = LAYOUTS[spec.pattern]
    defines = {"N": n, "A_SHARED": shared, "A_TURNED": turned, "B_TURNED": turned}
    args = (
        _TILES, _descriptor(0, *offsets), _descriptor(_B_AT, *offsets),
        np.zeros((BLOCKS, _WARPGROUP), np.float32),
    )  # fmt: skip
    return _case(spec, (BLOCKS,), _WARPGROUP, args, defines, _TILES)


def _product_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    return bool((after[3] == spec.shape[0] // 2 * 16).all())


# Atomics


def _make_atomic(spec: Spec) -> Case:
    at = np.tile(ATOMIC_PATTERNS[spec.pattern], (BLOCKS, 1))
    args = ITEMS, at, np.zeros((BLOCKS, ITEMS), np.uint32), np.zeros((BLOCKS, LANES), np.uint32)
    return _case(spec, (BLOCKS,), LANES, args, {"RETURNS": spec.shape[0]}, 4 * ITEMS)


def _atomic_right(spec: Spec, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    expected = np.zeros((BLOCKS, ITEMS), np.uint32)
    for warp, lane in zip(*np.nonzero(before[1] >= 0), strict=True):
        expected[warp, before[1][warp, lane]] += lane + 2
    return bool(np.array_equal(after[2], expected))


KINDS: Mapping[
    str,
    tuple[Callable[[Spec], Case], Callable[[Spec, tuple[Any, ...], tuple[Any, ...]], bool]],
] = {
    "matrix_rows": (_make_rows, _rows_right),
    "async_copy": (_make_copy, _copy_right),
    "bulk_copy": (_make_bulk, _bulk_right),
    "tensor_copy": (_make_tensor, _tensor_right),
    "warpgroup_product": (_make_product, _product_right),
    "shared_atomic": (_make_atomic, _atomic_right),
}
"""A function that makes a case, and one that checks its result, by kernel."""
