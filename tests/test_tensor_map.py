"""Tensor maps of arrays: boxes by them, on both devices, and what no map can be."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import KERNELS, Array, assert_same, examples

import tilewise
from tilewise.devices import Device
from tilewise.errors import MemoryAccessError, RaceError, UnsupportedInstructionError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport
from tilewise.places import Place, TensorMap
from tilewise.tensor_map import ITEM_SIZES, MappedArray, check, fits, tensor_map

pytestmark = pytest.mark.usefixtures("uncounted")

DTYPES = [name for name in ITEM_SIZES if name not in ("float32_ftz", "tfloat32", "tfloat32_ftz")]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of arrays that stand for those of a tensor map's."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def corner(at: tuple[int, ...]) -> bytes:
    """The kernel's argument for an index in an array: its last axis first."""
    return struct.pack("5i", *at[::-1], *[0] * (5 - len(at)))


def run(
    device: Device, name: str, mapped: MappedArray, at: tuple[int, ...], box: Array,
    checks: str = "raise", **defines: Any,
) -> LaunchReport:  # fmt: skip
    kernel = Kernel(KERNELS / "boxes.cu", name, {"RANK": len(at), **defines})
    args = mapped, corner(at), box.nbytes, box.reshape(-1).view(np.uint8)
    return kernel.launch(1, 64, args, shared=box.nbytes, device=device, checks=checks)


@dataclass
class Copy:
    """A box of an array, and where."""

    array: Array
    mapped: MappedArray
    at: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]

    def places(self) -> tuple[Array, tuple[Array, ...]]:
        """Which elements of the box lie in the array, and their indices there."""
        indices = np.meshgrid(
            *(
                first + np.arange(n) * step
                for first, n, step in zip(self.at, self.counts, self.steps, strict=True)
            ),
            indexing="ij",
        )
        inside = np.ones(self.counts, bool)
        for index, extent in zip(indices, self.array.shape, strict=True):
            inside &= (index >= 0) & (index < extent)
        return inside, tuple(index[inside] for index in indices)

    def swizzled(self, box: Array) -> Array:
        """The box as it lies in shared memory from a multiple of 1024 bytes on; or back."""
        span = {"32B": 32, "64B": 64, "128B": 128}.get(self.mapped.map.swizzle, 16)
        pieces = box.reshape(-1).view(np.uint8).reshape(-1, 16)
        piece = np.arange(len(pieces))
        out = np.empty_like(pieces)
        out[piece ^ (piece // 8 & span // 16 - 1)] = pieces
        return out.reshape(-1).view(box.dtype).reshape(box.shape)


@st.composite
def copies(draw: st.DrawFn, is_store: bool = False) -> Copy:
    """A box anywhere in or near an array of whole 16 bytes a row, perhaps a view of a larger one.

    It begins at whole 16 bytes of a row; that of a store, at no negative index.
    """
    dtype = draw(st.sampled_from(DTYPES))
    rank = draw(st.integers(1, 5))
    each = 16 // ITEM_SIZES[dtype]
    swizzle = draw(st.sampled_from(["none", "none", "32B", "64B", "128B"]))
    span = {"32B": 32, "64B": 64, "128B": 128}.get(swizzle, 0)
    width = span or 16 * draw(st.integers(1, 5))
    outer = tuple(draw(st.integers(1, 9)) for _ in range(rank - 1))
    pieces = draw(st.integers(1, 12))
    steps = (*(draw(st.sampled_from([1, 1, 1, 2, 3])) for _ in outer), 1)
    sides = tuple(draw(st.integers(1, 5)) for _ in outer)
    box = (*sides, width // ITEM_SIZES[dtype])
    shape = (*outer, pieces * each)
    low = 0 if is_store else -2
    at = (
        *(draw(st.integers(low, n + 1)) for n in outer),
        each * draw(st.integers(low, pieces + 1)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    whole = rng.integers(1, 100, (*outer[:-1], *(2 * n for n in outer[-1:]), shape[-1] + each))
    array = whole.astype(numpy_dtype(dtype))
    if rank > 1:
        array = array[..., ::2, : shape[-1]]
        if rank > 2 and draw(st.booleans()):
            array = array.swapaxes(0, 1)
            at = (at[1], at[0], *at[2:])
    else:
        array = array[: shape[-1]]
    mapped = tensor_map(array, box, swizzle=swizzle, dtype=dtype, element_strides=steps)
    counts = tuple(-(-n // step) for n, step in zip(box, steps, strict=True))
    return Copy(array, mapped, at, counts, steps)


@pytest.mark.parametrize("name", ["load", "load_at"])
@examples(120, quick=12)
@given(copy=copies())
def test_a_load(hopper: Device, name: str, copy: Copy) -> None:
    expected = np.zeros(copy.counts, copy.array.dtype)
    inside, there = copy.places()
    expected[inside] = copy.array[there]
    box = np.zeros_like(expected)
    run(hopper, name, copy.mapped, copy.at, box)
    assert_same(box, copy.swizzled(expected))


@examples(120, quick=25)
@given(copy=copies(is_store=True))
def test_a_store(hopper: Device, copy: Copy) -> None:
    box = np.random.default_rng(5).integers(1, 100, copy.counts).astype(copy.array.dtype)
    inside, there = copy.places()
    expected = copy.array.copy()
    expected[there] = box[inside]
    run(hopper, "store", copy.mapped, copy.at, copy.swizzled(box))
    assert_same(np.ascontiguousarray(copy.array), np.ascontiguousarray(expected))


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1),
}  # fmt: skip


@examples(120, quick=12)
@given(copy=copies(is_store=True), operation=st.sampled_from(sorted(OPERATIONS)))
def test_a_reduction(hopper: Device, copy: Copy, operation: str) -> None:
    dtype = copy.mapped.dtype
    assume(dtype not in ("uint8", "uint16", "bfloat16"))
    assume(operation not in ("and", "or", "xor") or dtype in ("int32", "uint32", "uint64"))
    assume(operation not in ("inc", "dec") or dtype == "uint32")
    assume(operation not in ("min", "max") or dtype not in ("float32", "float64"))
    assume(operation != "add" or dtype != "int64")
    box = np.random.default_rng(5).integers(1, 100, copy.counts).astype(copy.array.dtype)
    inside, there = copy.places()
    expected = copy.array.copy()
    expected[there] = OPERATIONS[operation](expected[there], box[inside]).astype(expected.dtype)
    run(
        hopper, "reduce", copy.mapped, copy.at, copy.swizzled(box), OPERATION=f'"{operation}"'
    )  # fmt: skip
    assert_same(np.ascontiguousarray(copy.array), np.ascontiguousarray(expected))


def test_a_reduction_of_bfloat16(hopper: Device) -> None:
    def bits(x: Array) -> Array:
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

    old, new = np.arange(64).reshape(4, 16) / 4, np.arange(64, 0, -1).reshape(4, 16) / 2
    array = bits(old)
    run(
        hopper, "reduce", tensor_map(array, (4, 16), dtype="bfloat16"), (0, 0), bits(new),
        OPERATION='"add"',
    )  # fmt: skip
    assert_same(array, bits(old + new))


def test_elements_that_are_not_reduced(emulator: Device) -> None:
    array = np.zeros((4, 16), np.uint8)
    with pytest.raises(UnsupportedInstructionError, match="its tensor map is of uint8"):
        run(emulator, "reduce", tensor_map(array, (4, 16)), (0, 0), array.copy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_outside(hopper: Device, dtype: str) -> None:
    array = np.ones((3, 16), numpy_dtype(dtype))
    box = np.zeros((4, 16), array.dtype)
    run(hopper, "load", tensor_map(array, (4, 16), dtype=dtype, fill="nan"), (1, 0), box)
    assert_same(box[:2], array[1:])
    wide = box.astype(np.uint32) << 16 if dtype == "bfloat16" else box
    assert np.isnan(wide.view(np.float32) if dtype == "bfloat16" else wide)[2:].all()


def test_one_array_as_a_map_and_as_itself(hopper: Device) -> None:
    """A kernel that writes by one sees it by the other, whichever argument comes first."""
    source = """
    typedef struct alignas(64) { unsigned long long opaque[16]; } CUtensorMap;
    extern "C" __global__ void twice(const __grid_constant__ CUtensorMap map, float* whole) {
        __shared__ alignas(128) float box[64];
        box[threadIdx.x] = whole[threadIdx.x] * 2;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x) return;
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                     :: "l"(&map), "r"(0), "r"(0), "r"((int)__cvta_generic_to_shared(box))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;" ::: "memory");
    }"""
    whole = np.arange(256, dtype=np.float32).reshape(16, 16)
    rows = whole[4:8]
    expected = whole.copy()
    expected[4:8] = 2 * whole.reshape(-1)[:64].reshape(4, 16)
    args = tensor_map(rows, (4, 16)), whole
    Kernel(source, "twice").launch(1, 64, args, device=hopper)
    assert_same(whole, expected)


def test_an_array_on_the_device(hopper: Device) -> None:
    host = np.arange(256, dtype=np.float32).reshape(16, 16)
    array, box = hopper.array(host), np.zeros((4, 16), np.float32)
    run(hopper, "load", tensor_map(array, (4, 16)), (2, 0), box)
    assert_same(box, host[2:6])


def test_a_map_in_a_process_of_its_own(hopper: Device) -> None:
    array, box = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((4, 16), np.float32)
    kernel = Kernel(KERNELS / "boxes.cu", "store", {"RANK": 2})
    args = tensor_map(array, (4, 16)), corner((8, 0)), box.nbytes, box.reshape(-1).view(np.uint8)
    kernel.launch(1, 64, args, shared=box.nbytes, device=hopper.name, isolated=True)
    assert not array[8:12].any()
    assert array[12:].all()


def test_arrays_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    array = torch.zeros((8, 4, 64), dtype=torch.bfloat16)[::2]
    found = tensor_map(array, (1, 2, 64)).map
    assert (found.dtype, found.extents, found.strides) == ("bfloat16", (64, 4, 4), (128, 1024))


# What is wrong


def test_a_missing_fence_is_found(emulator: Device) -> None:
    array, box = np.zeros((8, 16), np.float32), np.ones((8, 16), np.float32)
    with pytest.raises(RaceError, match=r"no proxy fence \(fence.proxy.async\) after the wr"):
        run(emulator, "store", tensor_map(array, (8, 16)), (0, 0), box, UNFENCED=True)


def test_coordinates_of_another_rank(emulator: Device) -> None:
    array, box = np.zeros((8, 16), np.float32), np.zeros((8, 16), np.float32)
    words = "has 3 coordinates and a tensor map of 2 dimensions"
    with pytest.raises(MemoryAccessError, match=words):
        run(emulator, "load", tensor_map(array, (8, 16)), (0, 0, 0), box)


def test_what_takes_no_map(device: Device) -> None:
    source = """
    struct Small { int x[4]; };
    extern "C" __global__ void none(float* x, int n, Small s, void* y) { if (y) x[n] = s.x[0]; }"""
    array = np.zeros((8, 16), np.float32)
    mapped = tensor_map(array, (8, 16))
    kernel = Kernel(source, "none")
    for args, words in (
        ((mapped, 1, bytes(16), None), r"argument 0 \(float\*\): takes float\*, not a tensor map"),
        ((array, mapped, bytes(16), None), r"argument 1 \(int\): takes int, not a tensor map"),
        ((array, 1, mapped, None), "argument 2 .* takes a struct of 16 bytes, not a tensor map"),
    ):
        with pytest.raises(TypeError, match=words):
            kernel.launch(1, 1, args, device=device)


def test_an_array_for_a_map(device: Device) -> None:
    box = np.zeros((8, 16), np.float32)
    words = r"takes a tensor map \(tilewise.tensor_map\(array, box=...\)\) or another struct of 128"
    with pytest.raises(TypeError, match=words):
        run(device, "load", box, (0, 0), box)  # type: ignore[arg-type]


def test_an_address_that_is_no_multiple_of_16(device: Device) -> None:
    whole = np.zeros(1024, np.float32)
    source = """
    typedef struct alignas(64) { unsigned long long opaque[16]; } CUtensorMap;
    extern "C" __global__ void two(const __grid_constant__ CUtensorMap map, float* whole) {}"""
    args = tensor_map(whole[1:65].reshape(4, 16), (4, 16)), whole
    with pytest.raises(ValueError, match="an address that is a multiple of 16 bytes"):
        Kernel(source, "two").launch(1, 1, args, device=device)


PLAIN = np.zeros((8, 4, 64), np.float16)


@pytest.mark.parametrize(
    ("array", "changes", "words"),
    [
        (PLAIN, {"box": (1, 4)}, "a box of as many dimensions as the array's 3"),
        (PLAIN, {"box": (0, 1, 64)}, "1 to 256 elements"),
        (PLAIN, {"box": (1, 257, 64)}, "1 to 256 elements"),
        (PLAIN, {"box": (1, 1, 12)}, "contiguous side is a multiple of 16 bytes, not 24"),
        (PLAIN, {"swizzle": "64B"}, "at most 64 bytes, not 128"),
        (PLAIN, {"swizzle": "256B"}, "a swizzle of none, 32B"),
        (PLAIN, {"interleave": "16B"}, "interleave is '16B'; tilewise has no interleaved layouts"),
        (PLAIN, {"element_strides": (1, 9, 1)}, "element strides of 1 to 8"),
        (PLAIN, {"element_strides": (1, 1, 2)}, "1 along the contiguous dimension"),
        (PLAIN, {"element_strides": (1, 1)}, "element_strides has 2 numbers for 3 dimensions"),
        (PLAIN, {"promotion": 32}, "a promotion of 0, 64, 128, 256 bytes"),
        (PLAIN, {"fill": "ones"}, "a fill of zeros, nan"),
        (PLAIN, {"dtype": "float32"}, "float32 has 4 bytes, the array's elements, of float16, h"),
        (PLAIN, {"dtype": "16U4_ALIGN8B"}, "no elements of 16U4_ALIGN8B; it takes uint8"),
        (PLAIN.view(np.uint16), {"fill": "nan"}, "a fill of zeros, for elements that are no fl"),
        (PLAIN.view(np.complex64), {}, "no elements of complex64; .* pass dtype="),
        (PLAIN[:, :, ::2], {"box": (1, 1, 32)}, "last axis steps by 4 bytes, .* pass array.T"),
        (PLAIN[:, ::-1], {}, "none below 0"),
        (PLAIN[:0], {}, "has no elements"),
        (np.zeros((4, 12), np.uint8), {"box": (1, 16)}, r"strides that are multiples of 16 bytes"),
        (np.zeros((1,) * 6, np.uint8), {"box": (1,) * 6}, "has 6 dimensions; a tensor map has 1 "),
        (np.zeros((), np.float16), {}, "has 0 dimensions"),
    ],
)
def test_maps_that_there_are_not(array: Array, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tensor_map(array, **{"box": (1, 4, 64), **changes})


@given(
    extents=st.lists(st.sampled_from((0, 1, 64, 2**32, 2**32 + 1)), min_size=2, max_size=4),
    strides=st.lists(st.sampled_from((-16, 0, 8, 16, 2**40 - 16, 2**40)), min_size=1, max_size=3),
    address=st.sampled_from((0, 8, 16)),
)
def test_the_brief_check_of_sizes_refuses_what_the_long_one_does(
    extents: list[int], strides: list[int], address: int
) -> None:
    x = TensorMap(Place(0), "float16", tuple(extents), tuple(strides), (64, 4, 1))
    try:
        check(x, address)
    except ValueError:
        assert not fits(x, address)
    else:
        assert fits(x, address)


def test_what_is_no_array() -> None:
    with pytest.raises(TypeError, match="made of an array, not of a list"):
        tensor_map([1.0], 1)
    with pytest.raises(TypeError, match=r"box is 1.5; 1.5 is no integer"):
        tensor_map(PLAIN, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"swizzle": "128B_ATOM_32B"}, "which needs compute capability 10.0"),
        ({"swizzle": "128B", "box": (1, 4, 32)}, "whose contiguous side is 64 bytes"),
    ],
)
def test_what_the_emulator_has_not(emulator: Device, changes: dict[str, Any], words: str) -> None:
    mapped = tensor_map(PLAIN, **{"box": (1, 4, 64), **changes})
    with pytest.raises(ValueError, match=words):
        run(emulator, "load", mapped, (0, 0, 0), np.zeros((1, 4, 64), np.float16))


def test_the_front_door() -> None:
    assert tilewise.tensor_map is tensor_map
    mapped = tensor_map(PLAIN, (1, 4, 64), swizzle="128B")
    assert (mapped.shape, mapped.dtype) == ((8, 4, 64), "float16")
