"""Bulk copies: boxes of matrices, and bytes, between global and shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import KERNELS

from tilewise.devices import Device, DeviceArray
from tilewise.devices.emulator.copies.tensor_maps import Tiled, decode, encode
from tilewise.errors import CheckError, MemoryAccessError, UninitializedReadError
from tilewise.gemm.steps import Plan, Step, execute
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.places import Place, TensorMap

Bytes = npt.NDArray[np.uint8]
SIZES = {"float16": 2, "bfloat16": 2, "float32": 4}
PIECE = 16
BOX = 8 * 128  # bytes of most boxes


def run(
    device: Device, name: str, arrays: Sequence[DeviceArray], *args: Any,
    grid: int = 1, shared: int = 0,
) -> None:  # fmt: skip
    """Launch a kernel of ``bulk.cu``; the arguments' places are in ``arrays``."""
    launch = Launch((grid, 1, 1), (64, 1, 1), args, shared=shared)
    plan = Plan((Step(Kernel(KERNELS / "bulk.cu", name), launch),), 0, "", "")
    execute(plan, device, 0, [array.pointer for array in arrays])


def tensor_map(shape: tuple[int, int, int], dtype: str, columns: int, **box: int) -> TensorMap:
    """Of the first array, a batch of matrices whose rows are so many bytes, and have so many
    columns."""
    batch, rows, pitch = shape
    width = box["width"] // SIZES[dtype]
    return TensorMap.of_matrices(
        Place(0), dtype, (columns, rows, batch), (pitch, rows * pitch), (width, box["rows"])
    )


def swizzled(box: Bytes, offset: int = 0) -> Bytes:
    """A box with its 16-byte pieces where the hardware has them.

    In rows of 32, 64 or 128 bytes, the number of each 128 bytes of shared memory changes the
    places of the pieces in them; those of any other stay where they are. Twice, it gives the box.
    """
    rows, width = box.shape
    pieces = width // PIECE
    if pieces not in (2, 4, 8):
        return box
    out = np.empty_like(box)
    for row in range(rows):
        line = offset // 128 + row // (8 // pieces)
        for piece in range(pieces):
            to = PIECE * (piece ^ line % pieces)
            out[row, to : to + PIECE] = box[row, PIECE * piece : PIECE * (piece + 1)]
    return out


@st.composite
def copies(draw: st.DrawFn, is_store: bool = False) -> dict[str, Any]:
    """A box anywhere in or near a batch of matrices, whose rows are of whole 16 bytes.

    It begins at whole 16 bytes of a row; that of a store, at no negative coordinate.
    """
    dtype = draw(st.sampled_from(sorted(SIZES)))
    width = draw(st.sampled_from([16, 32, 64, 128, 144]))
    rows = draw(st.sampled_from([1, 2, 4, 8, 10, 33]))
    pieces, height, batch = (draw(st.integers(1, n)) for n in (20, 40, 3))
    each = PIECE // SIZES[dtype]

    def coordinate(box: int, extent: int) -> int:
        return draw(st.integers(0 if is_store else -box - 1, extent + 1))

    return {
        "dtype": dtype,
        "columns": pieces * each,
        "shape": (batch, height, PIECE * (pieces + draw(st.integers(0, 2)))),
        "width": width,
        "rows": rows,
        "at": (
            each * coordinate(width // PIECE, pieces),
            coordinate(rows, height),
            coordinate(0, batch),
        ),
        "offset": 128 * draw(st.sampled_from([0, 1, 3, 6, 8])),
    }


def shared_places(copy: dict[str, Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of the bytes that the box and the matrices both have: where they are in each."""
    item = SIZES[copy["dtype"]]
    x, y, z = copy["at"]
    batch, height, pitch = copy["shape"]
    row, byte = np.mgrid[0 : copy["rows"], 0 : copy["width"]]
    along, down = byte + x * item, row + y
    both = (along >= 0) & (along < copy["columns"] * item)
    both &= (down >= 0) & (down < height) & (0 <= z < batch)
    return np.flatnonzero(both), ((z * height + down) * pitch + along)[both]


def map_of(copy: dict[str, Any]) -> TensorMap:
    return tensor_map(
        copy["shape"], copy["dtype"], copy["columns"], width=copy["width"], rows=copy["rows"]
    )


@given(copies())
def test_a_load_is_zero_outside(hopper: Device, copy: dict[str, Any]) -> None:
    matrix = np.random.default_rng(1).integers(1, 256, copy["shape"], np.uint8)
    box = np.zeros((copy["rows"], copy["width"]), np.uint8)
    there, here = shared_places(copy)
    box.reshape(-1)[there] = matrix.reshape(-1)[here]
    offset = copy["offset"]
    arrays = hopper.array(matrix), hopper.empty((box.size,), np.uint8)
    run(
        hopper, "load", arrays, map_of(copy), *copy["at"], box.size, offset, Place(1),
        shared=offset + box.size,
    )  # fmt: skip
    np.testing.assert_array_equal(arrays[1].to_numpy(), swizzled(box, offset).reshape(-1))


@given(copies(is_store=True))
def test_a_store_writes_nothing_outside(hopper: Device, copy: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    matrix = rng.integers(0, 256, copy["shape"], np.uint8)
    box = rng.integers(0, 256, (copy["rows"], copy["width"]), np.uint8)
    expected = matrix.copy()
    there, here = shared_places(copy)
    expected.reshape(-1)[here] = box.reshape(-1)[there]
    offset = copy["offset"]
    arrays = hopper.array(matrix), hopper.array(swizzled(box, offset).reshape(-1))
    run(
        hopper, "store", arrays, map_of(copy), *copy["at"], box.size, offset, Place(1),
        shared=offset + box.size,
    )  # fmt: skip
    np.testing.assert_array_equal(arrays[0].to_numpy(), expected)


@pytest.mark.parametrize(
    ("name", "far"), [("load", -(2**31)), ("load", 2**31 - 8), ("store", 2**31 - 8)]
)
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_boxes_far_away(hopper: Device, name: str, far: int, dimension: int) -> None:
    """Coordinates do not wrap around."""
    at = [0, 0, 0]
    at[dimension] = far
    matrix, box = np.full((2, 16, 128), 2, np.uint8), np.ones(BOX, np.uint8)
    arrays = hopper.array(matrix), hopper.array(box)
    told = tensor_map(matrix.shape, "float16", 64, width=128, rows=8)
    run(hopper, name, arrays, told, *at, BOX, 0, Place(1), shared=BOX)
    assert (arrays[0].to_numpy() == 2).all()
    assert (arrays[1].to_numpy() == (name == "store")).all()


@pytest.mark.parametrize("columns", [1, 13, 16, 27])
def test_a_store_writes_whole_16_bytes(hopper: Device, columns: int) -> None:
    """Where a row of the matrix ends within 16 bytes, the box's next bytes come behind it."""
    matrix, box = np.zeros((1, 8, 64), np.uint8), np.arange(1, 513).astype(np.uint8).reshape(8, 64)
    arrays = hopper.array(matrix), hopper.array(swizzled(box).reshape(-1))
    told = tensor_map(matrix.shape, "float16", columns, width=64, rows=8)
    run(hopper, "store", arrays, told, 0, 0, 0, box.size, 0, Place(1), shared=box.size)
    matrix[0, :, : -(-2 * columns // PIECE) * PIECE] = box[:, : -(-2 * columns // PIECE) * PIECE]
    np.testing.assert_array_equal(arrays[0].to_numpy(), matrix)


@pytest.mark.parametrize("to", [0x08040201, 0x0F0F0F0F, 0x01020408, 0x010C050F])
def test_a_load_for_several_blocks(hopper: Device, to: int) -> None:
    """It comes to the same place of each, and each block's barrier is told."""
    matrix = np.random.default_rng(3).integers(0, 255, (2, 32, 128), np.uint8)
    loads = [[loader for loader in range(4) if to >> 8 * loader + i & 1] for i in range(4)]
    expected = np.full((8, 4, 8, 128), 255, np.uint8)
    for block in range(8):
        for loader in loads[block % 4]:
            expected[block, loader] = swizzled(matrix[block // 4, 8 * loader : 8 * loader + 8])
    arrays = hopper.array(matrix), hopper.empty(expected.shape, np.uint8)
    told = tensor_map(matrix.shape, "float32", 32, width=128, rows=8)
    counts = sum(len(from_) << 8 * i for i, from_ in enumerate(loads))
    run(hopper, "share", arrays, told, to, counts, BOX, Place(1), grid=8, shared=4 * BOX)
    np.testing.assert_array_equal(arrays[1].to_numpy(), expected)


@pytest.mark.parametrize("size", [16, 48, 1024])
def test_bytes_through_another_block(hopper: Device, size: int) -> None:
    data = np.random.default_rng(4).integers(0, 256, (4, size), np.uint8)
    arrays = hopper.array(data), hopper.empty((4, size), np.uint8)
    run(hopper, "pass", arrays, Place(0), Place(1), size, grid=4, shared=2 * size)
    np.testing.assert_array_equal(arrays[1].to_numpy(), data[[1, 0, 3, 2]])


def faulty(
    emulator: Device, kind: type[CheckError], words: str, name: str,
    arrays: Sequence[DeviceArray], *args: Any, grid: int = 1, shared: int = 4 * BOX,
) -> None:  # fmt: skip
    """Launch a kernel in which thread 0 of block 0 does what no thread may."""
    with pytest.raises(kind, match=words) as raised:
        run(emulator, name, arrays, *args, grid=grid, shared=shared)
    (finding,) = raised.value.findings
    assert (finding.block, finding.thread) == ((0, 0, 0), (0, 0, 0))
    assert finding.line > 0


MATRIX = (2, 16, 128)
TOLD = tensor_map(MATRIX, "float32", 32, width=128, rows=8)


def of(emulator: Device, matrix: Bytes) -> tuple[DeviceArray, DeviceArray]:
    return emulator.array(matrix), emulator.array(np.zeros(BOX, np.uint8))


@pytest.mark.parametrize("name", ["load", "store"])
@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (64, r"reaches box\[64\] in shared memory, which is not aligned to 128 bytes"),
        (128, r"reaches 1,024 bytes at box\[128\], outside the block's [\d,]+ bytes of shared"),
    ],
)
def test_boxes_have_their_place(emulator: Device, name: str, offset: int, words: str) -> None:
    arrays = of(emulator, np.zeros(MATRIX, np.uint8))
    args = TOLD, 0, 0, 0, BOX - offset, offset, Place(1)
    faulty(emulator, MemoryAccessError, words, name, arrays, *args, shared=BOX + offset % 128)


@pytest.mark.parametrize(("name", "verb"), [("load", "reads"), ("store", "writes")])
def test_maps_reach_no_further_than_their_array(emulator: Device, name: str, verb: str) -> None:
    short = np.zeros((1, *MATRIX[1:]), np.uint8)
    gaps = np.zeros(MATRIX, np.uint8)[:, :, :100]
    for matrix, z, index in ((short, 1, r"\[1\]\[8\]\[0\]"), (gaps, 0, r"\[0\]\[8\]\[100\]")):
        words = rf"in a bulk copy {verb} global memory at array{index}, outside it"
        args = TOLD, 0, 8, z, BOX, 0, Place(1)
        faulty(emulator, MemoryAccessError, words, name, of(emulator, matrix), *args)


def test_whole_16_bytes_may_be_too_many(emulator: Device) -> None:
    """A matrix of 50 columns, that lies beside another: its rows end within 16 bytes."""
    arrays = of(emulator, np.zeros(MATRIX, np.uint8)[:, :, :100])
    told = tensor_map(MATRIX, "float16", 50, width=32, rows=8)
    for x, is_faulty in ((32, False), (40, True), (48, True), (56, False)):
        args = "store", arrays, told, x, 0, 0, BOX, 0, Place(1)
        if is_faulty:
            faulty(emulator, MemoryAccessError, r"writes .* array\[0\]\[0\]\[100\]", *args)
        else:
            run(emulator, *args, shared=BOX)


def test_a_box_of_another_width_is_not_swizzled(hopper: Device) -> None:
    matrix = np.random.default_rng(5).integers(0, 256, (1, 40, 160), np.uint8)
    arrays = hopper.array(matrix), hopper.array(np.zeros(8 * 144, np.uint8))
    told = tensor_map(matrix.shape, "bfloat16", 80, width=144, rows=8)
    args = told, 8, 3, 0, 8 * 144, 128, Place(1)
    run(hopper, "load", arrays, *args, shared=128 + 8 * 144)
    expected = matrix[0, 3:11, 16:].reshape(-1)
    np.testing.assert_array_equal(arrays[1].to_numpy(), expected)
    new = hopper.array(np.zeros_like(matrix)), arrays[1]
    run(hopper, "store", new, *args, shared=128 + 8 * 144)
    matrix[0, :3], matrix[0, 11:], matrix[0, :, :16] = 0, 0, 0
    np.testing.assert_array_equal(new[0].to_numpy(), matrix)


@pytest.mark.parametrize("name", ["load", "store"])
@pytest.mark.parametrize(("dtype", "x"), [("float32", 2), ("float16", 20), ("bfloat16", 2**31 - 1)])
@pytest.mark.parametrize("y", [0, 16])
def test_boxes_begin_at_whole_16_bytes_of_a_row(
    emulator: Device, name: str, dtype: str, x: int, y: int
) -> None:
    """Whether or not any of them is in the matrix."""
    told = tensor_map(MATRIX, dtype, 128 // SIZES[dtype], width=128, rows=8)
    into = f"{x * SIZES[dtype]:,} bytes"
    words = rf"begins at column {x:,} .*, {into} into the row, .* multiple of 16"
    args = told, x, y, 0, BOX, 0, Place(1)
    faulty(emulator, MemoryAccessError, words, name, of(emulator, np.ones(MATRIX, np.uint8)), *args)


@pytest.mark.parametrize("at", [(-4, 0, 0), (0, -1, 0), (0, 0, -1), (-32, -8, 2), (-1, 0, 0)])
def test_a_store_has_no_negative_coordinate(emulator: Device, at: tuple[int, int, int]) -> None:
    arrays = of(emulator, np.ones(MATRIX, np.uint8))
    words = rf"stores a box at \({', '.join(map(str, at))}\); .* must not be negative"
    args = TOLD, *at, BOX, 0, Place(1)
    faulty(emulator, MemoryAccessError, words, "store", arrays, *args)
    assert (arrays[0].to_numpy() == 1).all()


def test_what_nobody_wrote(emulator: Device) -> None:
    matrix, box = emulator.empty(MATRIX, np.uint8), emulator.array(np.zeros(BOX, np.uint8))
    faulty(
        emulator, UninitializedReadError, r"reads what nobody wrote at array\[1\]\[3\]\[0\]",
        "load", (matrix, box), TOLD, 0, 3, 1, BOX, 0, Place(1),
    )  # fmt: skip
    # Half of the box is written; its fifth row begins with the fifth piece of its 128 bytes.
    args = TOLD, 0, 12, 1, BOX // 2, 0, Place(1)
    run(emulator, "store", (matrix, box), *args, shared=BOX)
    faulty(
        emulator, UninitializedReadError, r"reads box\[576\] in shared memory, which nobody wrote",
        "store", (matrix, box), TOLD, 0, 11, 1, BOX // 2, 0, Place(1),
    )  # fmt: skip
    run(emulator, "load", (matrix, box), TOLD, 0, 12, 1, BOX, 0, Place(1), shared=BOX)


def test_what_is_no_tensor_map(emulator: Device) -> None:
    arrays = of(emulator, np.zeros(MATRIX, np.uint8))
    args = bytes(128), 0, 0, 0, BOX, 0, Place(1)
    faulty(emulator, MemoryAccessError, "finds no tensor map", "load", arrays, *args)


def test_blocks_that_a_cluster_lacks(emulator: Device) -> None:
    arrays = emulator.array(np.zeros((2, 32, 128), np.uint8)), emulator.empty((8, 4, BOX), np.uint8)
    words = "copies to block 5 of its cluster, which has no such block"
    args = TOLD, 0x08040221, 0x01010101, BOX, Place(1)
    faulty(emulator, MemoryAccessError, words, "share", arrays, *args, grid=8)


@pytest.mark.parametrize(
    ("size", "skip", "words"),
    [
        (24, 0, "moves 24 bytes, which is no multiple of 16"),
        (32, 8, "has an address in global memory that is not aligned to 16 bytes"),
        (160, 0, r"array\[128\], outside it \(128 bytes\)"),
    ],
)
def test_bytes_go_by_sixteen(emulator: Device, size: int, skip: int, words: str) -> None:
    arrays = emulator.array(np.zeros(128, np.uint8)), emulator.empty((640,), np.uint8)
    args = Place(0, skip), Place(1), size
    faulty(emulator, MemoryAccessError, words, "pass", arrays, *args, grid=2)


@pytest.mark.parametrize(
    ("size", "skip", "words"),
    [
        (24, 0, "prefetches 24 bytes, which is no multiple of 16"),
        (32, 8, "has an address in global memory that is not aligned to 16 bytes"),
        (160, 0, r"array\[128\], outside it \(128 bytes\)"),
    ],
)
def test_what_can_not_be_brought_near(emulator: Device, size: int, skip: int, words: str) -> None:
    arrays = (emulator.array(np.zeros(128, np.uint8)),)
    faulty(emulator, MemoryAccessError, words, "bring_near", arrays, Place(0, skip), size, shared=0)


def test_bringing_near_changes_nothing(hopper: Device) -> None:
    data = np.arange(128, dtype=np.uint8)
    arrays = (hopper.array(data),)
    run(hopper, "bring_near", arrays, Place(0, 16), 96, grid=1, shared=0)
    np.testing.assert_array_equal(arrays[0].to_numpy(), data)


def test_findings_are_collected(emulator: Device) -> None:
    """What can't be read is zero, and the barrier is told all the same."""
    compiled = Kernel(KERNELS / "bulk.cu", "load").compile(emulator.arch)
    for x, z, kind in ((0, 1, "out of bounds"), (1, 0, "misaligned")):
        matrix, box = of(emulator, np.ones((1, *MATRIX[1:]), np.uint8))
        launch = Launch(
            (1, 1, 1), (64, 1, 1), (TOLD, x, 0, z, BOX, 0, Place(1)), shared=BOX, checks="collect"
        )
        addresses = matrix.pointer, box.pointer
        report = emulator.launch(compiled, launch.filled(addresses, encode))
        assert [finding.kind for finding in report.findings] == [kind]
        assert not box.to_numpy().any()


@pytest.mark.parametrize(
    ("changes", "address", "words"),
    [
        ({"dtype": "int8"}, 0, "a dtype of"),
        ({"box": (19, 8, 1)}, 0, "contiguous side is a multiple of 16 bytes, not 76"),
        ({"box": (0, 8, 1)}, 0, "1 to 256 elements"),
        ({"box": (260, 8, 1)}, 0, "1 to 256 elements"),
        ({"box": (32, 257, 1)}, 0, "1 to 256 elements"),
        ({"box": (32, 8)}, 0, "as many dimensions as the array's 3"),
        ({"extents": (32, 0, 2)}, 0, "extents of"),
        ({"strides": (120, 2048)}, 0, "multiples of 16"),
        ({"strides": (128, 2**40)}, 0, "below"),
        ({"promotion": 32}, 0, "promotion"),
        ({}, 8, "an address"),
    ],
)
def test_tensor_maps_that_there_are_not(changes: dict[str, Any], address: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode(TOLD._replace(**changes), address)


def test_tensor_maps_are_128_bytes() -> None:
    data = encode(TOLD, 2**44)
    assert len(data) == 128
    assert decode(data) == Tiled(
        2**44, "float32", (32, 16, 2), (4, 128, 2048), (32, 8, 1), (1, 1, 1), "128B", "zeros"
    )
    assert decode(bytes(128)) is None
