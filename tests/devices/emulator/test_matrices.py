"""Products of small matrices: what the PTX ISA says that each thread holds, and the sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Array, Launcher, assert_same, examples

from tilewise.devices import Device
from tilewise.devices.emulator.matrices import registers as of_registers
from tilewise.errors import (
    BarrierError,
    MemoryAccessError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport
from tilewise.roundoff import unit_roundoff

pytestmark = pytest.mark.usefixtures("no_machine_code")

TYPES = ("f16", "bf16")


PACKED = {"tf32": np.float32, "s8": np.int8, "u8": np.uint8, "e4m3": np.uint8, "e5m2": np.uint8}
"""Types whose elements are not of 16 bits: what holds one, or its bits."""


def bits(x: Array, type_: str) -> Array:
    """Patterns of numbers that the type has, in pieces of 16 bits."""
    if type_ in ("e4m3", "e5m2"):
        of_patterns = of_registers.numbers(np.arange(256, dtype=np.uint8), type_)
        found = np.nanargmin(np.abs(of_patterns - x[..., None]), axis=-1)
        assert_same(of_patterns[found], np.asarray(x, np.float64))
        x = found
    if type_ in PACKED:
        return np.ascontiguousarray(x.astype(PACKED[type_])).view(np.uint16)
    if type_ == "f16":
        return x.astype(np.float16).view(np.uint16)
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def numbers(seed: int, *shape: int) -> Array:
    """Numbers of few digits, so that every sum of their products is exact in float."""
    return np.random.default_rng(seed).integers(-8, 9, shape) / 4.0


@pytest.mark.parametrize("type_", TYPES)
def test_product_of_a_warp(launch: Launcher, type_: str) -> None:
    a, b, c = numbers(1, 3, 16, 16), numbers(2, 3, 16, 8), numbers(3, 3, 16, 8)
    d = np.zeros((3, 16, 8), np.float32)
    inputs = bits(a, type_), bits(b, type_), c.astype(np.float32)
    launch("matrices", "warp_product", 1, 96, *inputs, d, defines={"TYPE": f'"{type_}"'})
    assert_same(d, (a @ b + c).astype(np.float32))


@pytest.mark.parametrize("type_", TYPES)
def test_product_of_half_as_many(launch: Launcher, type_: str) -> None:
    a, b, c = numbers(1, 16, 16), numbers(2, 16, 8), numbers(3, 16, 8)
    d = np.zeros((16, 8), np.float32)
    inputs = bits(a, type_), bits(b, type_), c.astype(np.float32)
    launch("matrices", "short_product", 1, 32, *inputs, d, defines={"TYPE": f'"{type_}"'})
    assert_same(d, (a[:, :8] @ b[:8] + c).astype(np.float32))


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"])
def test_product_of_double(launch: Launcher, shape: str) -> None:
    """Of small numbers, so that every sum is exact; and of any, by a bound."""
    rows, depth = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    defines = {"SHAPE": f'"{shape}"', "ROWS": rows, "DEPTH": depth}
    a, b, c = numbers(1, 3, rows, depth), numbers(2, 3, depth, 8), numbers(3, 3, rows, 8)
    d = np.zeros((3, rows, 8))
    launch("matrices", "double_product", 1, 96, a, b, c, d, defines=defines)
    assert_same(d, a @ b + c)
    rng = np.random.default_rng(4)
    a, b, c = (rng.standard_normal(x.shape) for x in (a, b, c))
    launch("matrices", "double_product", 1, 96, a, b, c, d, defines=defines)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble) + c
    bound = (depth + 1) * unit_roundoff("float64") * (np.abs(a) @ np.abs(b) + np.abs(c))
    assert (np.abs(d - exact) <= bound).all()


def elements(type_: str, seed: int, *shape: int) -> Array:
    """Numbers that a type has, so few that every sum of their products is exact."""
    found = numbers(seed, *shape)
    return np.abs(4 * found) if type_ == "u8" else 4 * found if type_ == "s8" else found


def test_sum_in_half(launch: Launcher) -> None:
    a, b, c = numbers(1, 16, 16), numbers(2, 16, 8), numbers(3, 16, 8)
    d = np.zeros((16, 8), np.uint16)
    launch("matrices", "half_product", 1, 32, *(bits(x, "f16") for x in (a, b, c)), d)
    assert_same(d.view(np.float16), (a @ b + c).astype(np.float16))


def test_infinities_and_what_is_not_a_number(launch: Launcher) -> None:
    a, b, c = np.ones((16, 16)), np.ones((16, 8)), np.zeros((16, 8))
    a[0, 0], a[1, 0], a[2, 0], a[2, 1] = np.inf, np.nan, np.inf, -np.inf
    b[0, 1], c[3, 3], c[4, 4] = 0, np.inf, np.nan
    c[5, :] = 2.0**100
    d = np.zeros((16, 8), np.float32)
    launch(
        "matrices", "warp_product", 1, 32,
        bits(a, "bf16"), bits(b, "bf16"), c.astype(np.float32), d, defines={"TYPE": '"bf16"'},
    )  # fmt: skip
    with np.errstate(invalid="ignore"):
        expected = np.einsum("ik,kj->ij", a, b) + c
    assert_same(d, expected.astype(np.float32))
    assert set(d.view(np.uint32)[np.isnan(d)].tolist()) == {0x7FFFFFFF}


def test_every_lane_of_the_warp_takes_part(emulator: Device, launch: Launcher) -> None:
    with pytest.raises(BarrierError, match="only 20 of the warp's 32 threads reach"):
        launch("matrices", "part_of_a_warp", 1, 32, np.zeros(32, np.float32))


def test_rows_to_registers_and_back(launch: Launcher) -> None:
    rng = np.random.default_rng(4)
    image = rng.integers(0, 2**16, (64, 8)).astype(np.uint16)
    rows = rng.permutation(64)[:32].astype(np.int32)
    one, two, four, turned = (np.zeros((32, n), np.uint32) for n in (1, 2, 4, 4))
    launch("matrices", "load_matrices", 1, 32, image.view(np.uint32), rows, one, two, four, turned)
    tiles = image[rows].reshape(4, 8, 8)
    # Lane l holds elements 2 (l % 4) and the next of row l / 4.
    held = tiles.reshape(4, 32, 2).swapaxes(0, 1)
    assert_same(four.view(np.uint16).reshape(32, 4, 2), held)
    assert_same(two.view(np.uint16).reshape(32, 2, 2), held[:, :2])
    assert_same(one.view(np.uint16).reshape(32, 1, 2), held[:, :1])
    across = tiles.swapaxes(1, 2).reshape(4, 32, 2).swapaxes(0, 1)
    assert_same(turned.view(np.uint16).reshape(32, 4, 2), across)
    plain, back = np.zeros((64, 8), np.uint16), np.zeros((64, 8), np.uint16)
    for registers, stored in ((four, plain), (turned, back)):
        outs = [np.zeros((64, 4), np.uint32) for _ in range(2)]
        launch("matrices", "store_matrices", 1, 32, registers, rows, *outs)
        stored[:] = outs[0 if registers is four else 1].view(np.uint16)
    expected = np.zeros_like(image)
    expected[rows] = image[rows]
    assert_same(plain, expected)
    assert_same(back, expected)


def test_rows_by_generic_addresses_and_turned_in_registers(launch: Launcher) -> None:
    image = np.random.default_rng(6).integers(0, 2**16, (8, 8)).astype(np.uint16)
    out, turned = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    launch("matrices", "turn_matrix", 1, 32, image.view(np.uint32), out, turned)
    assert_same(out.view(np.uint16).reshape(8, 8), image)
    assert_same(turned.view(np.uint16).reshape(8, 8), np.ascontiguousarray(image.T))


# Products of a warpgroup


@pytest.fixture
def hopper(device: Device) -> Device:
    """A device with the instructions of sm_90a."""
    if device.arch != "sm_90a":
        pytest.skip(f"{device.arch} has no wgmma")
    return device


@dataclass(frozen=True)
class Layout:
    """How a matrix lies in shared memory: rows of the swizzle's width, in groups of 8.

    Attributes
    ----------
    swizzle : int
        Bytes; 16 for none.
    by_k : bool
        Whether k is the contiguous dimension.
    leading, stride : int
        Of the descriptor, in bytes.
    """

    swizzle: int
    by_k: bool
    leading: int
    stride: int

    def place(self, x: Array, image: Array, start: int) -> None:
        """Write ``x``, of shape (rows, 16), as the descriptor says."""
        for row in range(len(x)):
            for k in range(16):
                image[self.at(row, k) + start : self.at(row, k) + start + 2] = np.frombuffer(
                    x[row, k].tobytes(), np.uint8
                )

    def at(self, row: int, k: int) -> int:
        """Bytes from the start, which is a multiple of 1024."""
        if self.swizzle == 16:
            if self.by_k:  # pieces of 8 rows by 16 bytes
                return row // 8 * self.stride + k // 8 * self.leading + row % 8 * 16 + k % 8 * 2
            return row // 8 * self.stride + k // 8 * self.leading + k % 8 * 16 + row % 8 * 2
        pieces = self.swizzle // 16
        if self.by_k:
            line, group, piece, element, beside = row % 8, row // 8, k // 8, k % 8, 0
        else:
            across = row // (8 * pieces)
            line, group, piece, element = k % 8, k // 8, row // 8 % pieces, row % 8
            beside = across * self.leading
        swapped = piece ^ (line // (8 // pieces) % pieces)
        return beside + group * self.stride + line * self.swizzle + 16 * swapped + 2 * element

    def descriptor(self, start: int) -> int:
        mode = {16: 0, 128: 1, 64: 2, 32: 3}[self.swizzle]
        return start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | mode << 62


def layout(swizzle: int, by_k: bool, rows: int) -> Layout:
    """With room for ``rows`` rows and 16 of k, and gaps that would show."""
    if swizzle == 16:
        return Layout(16, by_k, 128, 272) if by_k else Layout(16, by_k, 128 * rows // 8 + 64, 128)
    group = 8 * swizzle
    stride = group if swizzle == 128 else 2 * group
    return Layout(swizzle, by_k, 16 if by_k else 4 * group, stride)


SOURCE = """
typedef unsigned long long u64;
typedef unsigned int u32;
extern "C" __global__ void product(const uint4* image, int pieces, u64 a, u64 b, const u32* left,
                                   const WORD* c, WORD* d, int adds, int threads) {{
    extern __shared__ __align__(1024) uint4 there[];
    int thread = threadIdx.x, group = thread / 128;
    for (int i = thread; i < pieces; i += blockDim.x) there[i] = image[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (thread >= threads) return;
    u64 at = (u32)__cvta_generic_to_shared(there) >> 4;
    a += at, b += at;
    WORD x[{count}];
    u32 y[4];
    for (int i = 0; i < {count}; ++i) x[i] = c[thread * {count} + i];
    for (int i = 0; i < 4; ++i) y[i] = left[thread % 128 * 4 + i];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{accumulate}, 0;\\n"
                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{sum}.{type}.{type} "
                 "{{{registers}}}, {operands}; }}"
                 : {outputs}
                 : "l"(a), "l"(b), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(adds));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < {count}; ++i) asm volatile("" : "+{letter}"(x[i])::"memory");
    for (int i = 0; i < {count}; ++i) d[thread * {count} + i] = x[i];
}}
"""


@dataclass(frozen=True)
class Case:
    """A product of a warpgroup; ``left`` is A's swizzle, 0 for A in registers."""

    columns: int = 16
    type: str = "f16"
    left: int = 128
    right: int = 128
    a_by_k: bool = True
    b_by_k: bool = True
    signs: tuple[int, int] = (1, 1)
    sum: str = "f32"

    def kernel(self) -> Kernel:
        count = self.columns // (4 if self.sum == "f16" else 2)
        letter = "f" if self.sum == "f32" else "r"
        a, b, *y, accumulate = (f"%{count + i}" for i in range(7))
        transposes = [str(int(not x)) for x in (self.a_by_k, self.b_by_k)]
        if self.left == 0:
            a, transposes = "{" + ",".join(y) + "}", transposes[1:]
        if self.type in PACKED:
            transposes = []
        signs = () if self.sum == "s32" else self.signs
        source = SOURCE.format(
            count=count,
            columns=self.columns,
            type=self.type,
            depth=32 // np.dtype(PACKED.get(self.type, np.uint16)).itemsize,
            sum=self.sum,
            letter=letter,
            accumulate=accumulate[1:],
            registers=",".join(f"%{i}" for i in range(count)),
            outputs=",".join(f'"+{letter}"(x[{i}])' for i in range(count)),
            operands=", ".join([a, b, "p", *map(str, signs), *transposes]),
        )
        word = "float" if self.sum == "f32" else "u32"
        return Kernel(source, "product", {"WORD": word})

    def run(
        self, device: Device, a: Array, b: Array, c: Array, adds: bool = True, **changes: Any
    ) -> tuple[Array, LaunchReport]:
        """``c`` plus the product, each of shape (warpgroups, 64, columns); ``b`` is transposed."""
        image = np.zeros(64 * 1024, np.uint8)
        of_a = layout(self.left or 128, self.a_by_k, 64)
        of_b = layout(self.right, self.b_by_k, self.columns)
        starts = (32 * 1024, 0)
        left = np.zeros((64, 16), np.uint16)
        if self.left:
            of_a.place(bits(a, self.type), image, starts[0])
        else:
            left = bits(a, self.type)
        of_b.place(bits(b, self.type), image, starts[1])
        groups = len(c)
        # Element (j, h, e) of lane l of warp w: row 16 w + 8 h + l / 4, column 8 j + 2 (l % 4) + e.
        kind: Any = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[self.sum]
        c_held = held(c.astype(kind)).reshape(groups * 128, -1)
        d = np.zeros_like(c_held)
        words = np.float32 if self.sum == "f32" else np.uint32
        report = self.kernel().launch(
            1,
            changes.get("threads", 128 * groups),
            (
                image.view(np.uint32),
                changes.get("pieces", len(image) // 16),
                of_a.descriptor(starts[0]),
                of_b.descriptor(changes.get("b_at", starts[1])),
                held(left[None]).view(np.uint32),
                c_held.view(words),
                d.view(words),
                int(adds),
                changes.get("acting", 128 * groups),
            ),
            shared=len(image),
            device=device,
        )
        parts = d.reshape(groups, 4, 8, 4, self.columns // 8, 2, 2).transpose(0, 1, 5, 2, 4, 3, 6)
        return parts.reshape(groups, 64, self.columns), report


def held(x: Array) -> Array:
    """The elements that each of 128 threads holds, of shape (groups, 128, elements)."""
    groups, _, columns = x.shape
    parts = x.reshape(groups, 4, 2, 8, columns // 8, 4, 2).transpose(0, 1, 3, 5, 4, 2, 6)
    return np.ascontiguousarray(parts).reshape(groups, 128, -1)


def inputs(columns: int, groups: int = 1, seed: int = 5) -> tuple[Array, Array, Array]:
    return (
        numbers(seed, 64, 16),
        numbers(seed + 1, columns, 16),
        numbers(seed + 2, groups, 64, columns),
    )


@examples(25, quick=4)
@given(
    columns=st.sampled_from([8, 16, 24, 64, 96, 128, 200, 256]),
    left=st.sampled_from([0, 16, 32, 64, 128]),
    right=st.sampled_from([16, 32, 64, 128]),
    a_by_k=st.booleans(),
    b_by_k=st.booleans(),
    type_=st.sampled_from(TYPES),
    signs=st.tuples(*[st.sampled_from([1, -1])] * 2),
    adds=st.booleans(),
)
def test_product_of_a_warpgroup(
    hopper: Device, columns: int, left: int, right: int, a_by_k: bool, b_by_k: bool, type_: str,
    signs: tuple[int, int], adds: bool,
) -> None:  # fmt: skip
    if not b_by_k and columns * 2 % right:
        columns = 128
    case = Case(columns, type_, left, right, a_by_k or left == 0, b_by_k, signs)
    a, b, c = inputs(columns, groups=2)
    d, _ = case.run(hopper, a, b, c, adds)
    expected = signs[0] * signs[1] * (a @ b.T) + (c if adds else 0)
    np.testing.assert_array_equal(d, np.broadcast_to(expected, d.shape))


@pytest.mark.parametrize("left", [0, 128])
@pytest.mark.parametrize("type_", PACKED)
def test_product_of_a_warpgroup_of_other_elements(hopper: Device, type_: str, left: int) -> None:
    depth = 32 // np.dtype(PACKED[type_]).itemsize
    a, b = elements(type_, 5, 64, depth), elements(type_, 6, 24, depth)
    is_whole = type_ in ("s8", "u8")
    c = numbers(7, 1, 64, 24) * (4 if is_whole else 1)
    d, _ = Case(24, type_, left, sum="s32" if is_whole else "f32").run(hopper, a, b, c)
    np.testing.assert_array_equal(d, a @ b.T + c)


@pytest.mark.parametrize("columns", [8, 40])
def test_product_of_a_warpgroup_in_half(hopper: Device, columns: int) -> None:
    a, b, c = inputs(columns)
    d, _ = Case(columns, sum="f16").run(hopper, a, b, c)
    assert_same(d, (a @ b.T + c).astype(np.float16))


def test_is_as_accurate_as_a_tensor_core(hopper: Device) -> None:
    rng = np.random.default_rng(8)
    a, b, c = (rng.standard_normal(s) for s in ((64, 16), (64, 16), (1, 64, 64)))
    a, b = (x.astype(np.float16).astype(np.float64) for x in (a, b))
    c = c.astype(np.float32).astype(np.float64)
    d, _ = Case(64).run(hopper, a, b, c)
    bound = 17 * 4 * unit_roundoff("float32") * (np.abs(a) @ np.abs(b).T + np.abs(c))
    assert (np.abs(d - (a @ b.T + c)) <= bound).all()


def test_counts_its_operations(emulator: Device, hopper: Device) -> None:
    a, b, c = inputs(64)
    _, report = Case(64).run(hopper, a, b, c)
    assert report.counters is not None
    assert report.counters.flops == 2 * 64 * 64 * 16


def test_every_thread_of_the_warpgroup_takes_part(emulator: Device, hopper: Device) -> None:
    a, b, c = inputs(16)
    with pytest.raises(BarrierError, match="96 of the 128 threads of its warpgroup"):
        Case().run(hopper, a, b, c, acting=96)


def test_a_matrix_beyond_shared_memory(emulator: Device, hopper: Device) -> None:
    a, b, c = inputs(16)
    with pytest.raises(MemoryAccessError, match=r"matrix B that reaches .* outside the block's"):
        Case().run(hopper, a, b, c, b_at=63 * 1024)


def test_a_matrix_that_nobody_wrote(emulator: Device, hopper: Device) -> None:
    a, b, c = inputs(16)
    with pytest.raises(UninitializedReadError, match="matrix B in shared memory of which nobody"):
        Case().run(hopper, a, b, c, pieces=0)


HALF_OF_A = (32 * 1024 + 32 * 128) // 16  # pieces of the image: all of B, 32 rows of A


def test_rows_that_nobody_wrote_need_not_be_used(emulator: Device, hopper: Device) -> None:
    a, b, c = inputs(16)
    d, _ = Case().run(hopper, a, b, c, pieces=HALF_OF_A)
    assert_same(d[:, :32], (a @ b.T + c).astype(np.float32)[:, :32])
    assert np.isnan(d[:, 32:]).all()


def test_a_row_that_was_written_in_part(emulator: Device, hopper: Device) -> None:
    a, b, c = inputs(16)
    with pytest.raises(UninitializedReadError, match=r"matrix A .* nobody wrote 504 elements"):
        Case().run(hopper, a, b, c, pieces=HALF_OF_A + 1)


def test_says_what_it_does_not_know(emulator: Device) -> None:
    kernel = Kernel(
        """extern "C" __global__ void quads(float* d) {
            int a[2] = {};
            float x[8] = {};
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%8, %9}, "
                "{%0, %1, %2, %3, %4, %5, %6, %7};"
                : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]),
                  "+f"(x[6]), "+f"(x[7]) : "r"(a[0]), "r"(a[1]));
            d[threadIdx.x] = x[0];
        }""",
        "quads",
    )
    with pytest.raises(UnsupportedInstructionError, match=r"mma\.sync\.aligned\.m8n8k4"):
        kernel.launch(1, 32, (np.zeros(32, np.float32),), device=emulator)
