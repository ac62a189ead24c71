"""``mma.sync`` of all types: what the PTX ISA says that each lane holds, and the sums."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Array, assert_same

from tilewise.devices import Device
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy's types of 8 and 16 bits need it")

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
        "u4": 4, "b1": 1}  # fmt: skip
SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "e4m3": ("m16n8k32",),
    "e5m2": ("m16n8k32",),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "u4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
FLOATS = ("f16", "bf16", "tf32", "e4m3", "e5m2")
MIXES = {"s8": "u8", "u8": "s8", "s4": "u4", "u4": "s4", "e4m3": "e5m2", "e5m2": "e4m3"}
"""The other type that B may have."""


def variants(type_: str) -> list[str]:
    """The forms of a product that PTX has for a type, the plain one first."""
    found = ["", *(["mixed"] if type_ in MIXES else []), *(["and"] if type_ == "b1" else [])]
    return found if type_ in FLOATS or type_ == "b1" else [*found, "satfinite"]


CASES = [
    (type_, shape, variant)
    for type_, shapes in SHAPES.items()
    for shape in shapes
    for variant in variants(type_)
]


def source(
    shape: str, types: str, registers: tuple[int, int, int], tail: str, is_float: bool
) -> str:
    a, b, c = registers
    letter, word = ("f", "float") if is_float else ("r", "unsigned")

    def vector(first: int, count: int) -> str:
        return "{" + ",".join(f"%{first + i}" for i in range(count)) + "}"

    outs = ",".join(f'"=" LETTER (d[{i}])' for i in range(c))
    ins = ",".join(
        [f'"r"(a[{i}])' for i in range(a)] + [f'"r"(b[{i}])' for i in range(b)]
        + [f"LETTER (c[{i}])" for i in range(c)]
    )  # fmt: skip
    return f"""
    #define LETTER "{letter}"
    extern "C" __global__ void product(const unsigned* a, const unsigned* b, const {word}* c,
                                       {word}* d) {{
        a += {a} * threadIdx.x, b += {b} * threadIdx.x;
        c += {c} * threadIdx.x, d += {c} * threadIdx.x;
        asm volatile("mma.sync.aligned.{shape}.row.col{tail.split("|")[0]}.{types}"
            "{tail.partition("|")[2]} {vector(0, c)}, {vector(c, a)}, {vector(c + a, b)}, "
            "{vector(c + a + b, c)};" : {outs} : {ins});
    }}"""


def places(m: int, k: int, bits: int) -> tuple[Array, Array]:
    """Row and column of each element of A (or of B's transpose, for 8) by the PTX ISA's formulas.

    Element i of a lane: groups of as many as a register holds take turns through rows and columns.
    """
    each = 32 // bits
    held = m * k // 32
    lane, i = np.mgrid[0:32, 0:held]
    group, number = lane >> 2, lane % 4
    turn = i // each
    if m == 8:
        return group, number * each + i % each + turn * 4 * each
    row = group + 8 * (turn % 2)
    column = number * each + i % each + turn // 2 * 4 * each
    return row, column


def packed(values: Array, bits: int) -> Array:
    """Patterns of ``bits`` bits, in 32-bit words: (lanes, elements) to (lanes, registers)."""
    each = 32 // bits
    shifts = np.arange(0, 32, bits).astype(np.uint64)
    words = values.astype(np.uint64).reshape(32, -1, each) << shifts
    found: Array = words.sum(axis=2).astype(np.uint32)
    return found


def drawn(rng: np.random.Generator, type_: str, *shape: int) -> tuple[Array, Array]:
    """Numbers that a type has, and their bits."""
    if type_ in FLOATS:
        x = rng.integers(-8, 9, shape) / 4.0
        if type_ == "e5m2":
            x = x / 2
            x[np.abs(x) % 0.25 != 0] = 0.5
        kinds = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
                 "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
        exact = x.astype(kinds[type_])
        return exact.astype(np.float64), exact.view(f"u{exact.itemsize}")
    bits = BITS[type_]
    patterns = rng.integers(0, 1 << bits, shape)
    numbers = patterns
    if type_[0] == "s":
        numbers = (patterns ^ (1 << bits - 1)) - (1 << bits - 1)
    return numbers, patterns


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("type_", "shape", "variant"), CASES)
def test_a_product(device: Device, type_: str, shape: str, variant: str) -> None:
    if type_ in ("e4m3", "e5m2") and device.arch in ("sm_80", "sm_86"):
        pytest.skip("needs compute capability 8.9")
    m, k = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    rng = np.random.default_rng(7)
    b_type = MIXES[type_] if variant == "mixed" else type_
    a, a_bits = drawn(rng, type_, m, k)
    b, b_bits = drawn(rng, b_type, 8, k)  # its transpose
    c = rng.integers(-99, 99, (m, 8))
    bits = BITS[type_]
    held_a, held_b = (
        packed(x[places(len(x), k, bits)], bits) for x in (a_bits, b_bits)
    )  # fmt: skip
    lane, i = np.mgrid[0:32, 0 : m * 8 // 32]
    sums = (lane >> 2) + 8 * (i >> 1), lane % 4 * 2 + i % 2
    is_float = type_ in FLOATS
    held_c = c[sums].astype(np.float32 if is_float else np.int32)
    d_type = "f32" if is_float else "s32"
    tail = ""
    if type_ == "b1":
        tail = f"|.{variant or 'xor'}.popc"
    elif variant == "satfinite":
        tail = ".satfinite"
        held_c[0, 0] = 2**31 - 1
        a[:], held_a[:] = 1, packed(np.ones((32, m * k // 32)), bits)
        b[:], held_b[:] = 1, packed(np.ones((32, 8 * k // 32)), bits)
    registers = held_a.shape[1], held_b.shape[1], held_c.shape[1]
    text = source(shape, f"{d_type}.{type_}.{b_type}.{d_type}", registers, tail, is_float)
    d = np.zeros_like(held_c)
    word = np.float32 if is_float else np.uint32
    Kernel(text, "product").launch(
        1, 32, (held_a, held_b, held_c.view(word), d.view(word)), device=device
    )
    whole = held_c.astype(np.int64)
    if type_ == "b1":
        ones = (a[:, None] & b[None]) if variant == "and" else (a[:, None] ^ b[None])
        whole = whole + ones.sum(axis=2)[sums]
    else:
        whole = whole + (a @ b.T)[sums]
    if variant == "satfinite":
        whole = np.minimum(whole, 2**31 - 1)
        assert d[0, 0] == 2**31 - 1
    assert_same(d, whole.astype(d.dtype))


def test_all_numbers_of_eight_bits(emulator: Device) -> None:
    """Each pattern of each type, times one."""
    for type_, kind in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        patterns = np.arange(256, dtype=np.uint8)
        expected = patterns.view(kind).astype(np.float32)
        for first in range(0, 256, 16):
            a = np.zeros((16, 32), np.uint8)
            a[:, 0] = patterns[first : first + 16]
            b = np.zeros((8, 32), np.uint8)
            b[:, 0] = np.ones(1, kind).view(np.uint8)
            held_a, held_b = (packed(x[places(len(x), 32, 8)], 8) for x in (a, b))
            text = source("m16n8k32", f"f32.{type_}.{type_}.f32", (4, 2, 4), "", True)
            d = np.zeros((32, 4), np.float32)
            Kernel(text, "product").launch(1, 32, (held_a, held_b, d.copy(), d), device=emulator)
            np.testing.assert_array_equal(d[::4, 0], expected[first : first + 8])
            np.testing.assert_array_equal(d[::4, 2], expected[first + 8 : first + 16])
