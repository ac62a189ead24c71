"""Integer arithmetic, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import KERNELS, Array, Launcher, assert_same, examples

from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

N = 300
EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 256]


def operands(bits: int, seed: int) -> tuple[list[int], list[int]]:
    """Pairs of unsigned patterns: all the edge cases with one another, then random ones."""
    top = 1 << bits
    edges = [*EDGES, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1]
    edges = [e % top for e in edges]
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in edges for b in edges]
    for _ in range(N):
        size_a, size_b = rng.integers(1, bits + 1, 2)
        pairs.append(
            (int(rng.integers(0, 1 << 63)) * 3 % (1 << int(size_a)),
             int(rng.integers(0, 1 << 63)) * 5 % (1 << int(size_b)))
        )  # fmt: skip
    return [a for a, _ in pairs], [b for _, b in pairs]


def to_signed(x: int, bits: int) -> int:
    x %= 1 << bits
    return x - (1 << bits) if x >> (bits - 1) else x


def quotient(x: int, y: int) -> int:
    """C's division, towards zero; 0 by 0 as the kernels have it."""
    if y == 0:
        return 0
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(x: int, y: int) -> int:
    return x - quotient(x, y) * y if y else 0


def check(
    launch: Launcher,
    file: str,
    kernel: str,
    bits: int,
    signed: bool,
    expect: Callable[[int, int], list[int]],
) -> None:
    a, b = operands(bits, seed=len(kernel))
    if signed:
        a = [to_signed(x, bits) for x in a]
        b = [to_signed(x, bits) for x in b]
        # The most negative number by -1 is undefined in C++.
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if (x, y) != (-(1 << bits - 1), -1)]
        a, b = [x for x, _ in pairs], [y for _, y in pairs]
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    rows = [
        [(to_signed(v, bits) if signed else v % (1 << bits)) for v in expect(x, y)]
        for x, y in zip(a, b, strict=True)
    ]
    expected = np.array(rows, dtype)
    actual = np.zeros_like(expected)
    n = len(a)
    launch(file, kernel, -(-n // 128), 128, n, np.array(a, dtype), np.array(b, dtype), actual)
    assert_same(actual, expected)


def test_signed32(launch: Launcher) -> None:
    def expect(x: int, y: int) -> list[int]:
        return [
            x + y, x - y, x * y, quotient(x, y), remainder(x, y), x >> (y & 31), x << (y & 31),
            x & y, x | ~y, x ^ y, min(x, y), max(x, y), abs(x), x * y >> 32,
            -x if x < y else y,
            (x < y) + 2 * (x == y) + 4 * (x >= y) + 8 * (x == 0) + 16 * (x != 0 and y > 3),
        ]  # fmt: skip

    check(launch, "integer", "signed32", 32, True, expect)


def test_unsigned32(launch: Launcher) -> None:
    def expect(x: int, y: int) -> list[int]:
        sx, sy = to_signed(x, 32), to_signed(y, 32)
        low_x, low_y = to_signed(x, 24), to_signed(y, 24)
        return [
            quotient(x, y), remainder(x, y), x >> (y & 31), min(x, y), max(x, y), x * y >> 32,
            x < y, x // 7, x % 1000, (x & 0xFFFFFF) * (y & 0xFFFFFF), (x + y) >> 1,
            (x + y + 1) >> 1, abs(x - y) + 5, abs(sx - sy) + 5, low_x * low_y, (sx + sy) >> 1,
        ]  # fmt: skip

    check(launch, "integer", "unsigned32", 32, False, expect)


def byte_perm(x: int, y: int, selector: int) -> int:
    """PTX ISA, prmt, default mode: bit 3 of a selector spreads the byte's sign."""
    both = (y << 32 | x).to_bytes(8, "little")
    out = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = both[nibble & 7]
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        out |= byte << 8 * i
    return out


def test_bits32(launch: Launcher) -> None:
    mask = 0xFFFFFFFF

    def funnel_left(low: int, high: int, shift: int) -> int:
        return (high << 32 | low) << shift >> 32 & mask

    def funnel_right(low: int, high: int, shift: int) -> int:
        return (high << 32 | low) >> shift & mask

    def expect(x: int, y: int) -> list[int]:
        start, length = y & 0xFF, y >> 8 & 0xFF
        field = x >> start & ((1 << length) - 1)
        hole = ((1 << length) - 1) << start & mask
        third = x ^ y >> 3
        return [
            int(f"{x:032b}"[::-1], 2), 32 - x.bit_length(), x.bit_count(),
            (x & -x).bit_length(), byte_perm(x, y, 0x5140),
            byte_perm(x, y, y & 0x7777),  # __byte_perm takes three bits a selector
            funnel_left(x, y, y & 31), funnel_right(x, y, y & 31),
            funnel_left(x, y, min(y & 63, 32)), funnel_right(x, y, min(y & 63, 32)),
            x << 13 | x >> 19, x >> 5 & 0x3FF, to_signed(x << 7, 32) >> 20, field,
            (y & ~hole) | (x << start & hole), (x & y) | (~x & third),
        ]  # fmt: skip

    check(launch, "integer", "bits32", 32, False, expect)


def signed_field(x: int, start: int, length: int) -> int:
    """PTX ISA, bfe.s32: past bit 31 the field is filled with its sign, x's own beyond it."""
    if length == 0:
        return 0
    value = to_signed(x, 32)
    sign_at = min(start + length - 1, 31)
    sign = value >> sign_at & 1
    field = (x >> start if start < 32 else 0) & ((1 << length) - 1)
    taken = max(min(length, 32 - start), 0)
    field &= (1 << taken) - 1
    return field - (sign << taken) if taken < 32 else to_signed(field, 32)


def nth_set(mask: int, base: int, offset: int) -> int:
    """PTX ISA, fns.b32: the offset-th set bit from base on, up or down."""
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    step = 1 if offset > 0 else -1
    position, found = base, 0
    while 0 <= position < 32:
        found += mask >> position & 1
        if found == abs(offset):
            return position
        position += step
    return 0xFFFFFFFF


def test_bits_by_name(launch: Launcher) -> None:
    def highest(x: int) -> int:
        return x.bit_length() - 1 if x else 0xFFFFFFFF

    def expect(x: int, y: int) -> list[int]:
        signed = to_signed(x, 32)
        shift = min(y & 63, 32)
        return [
            signed_field(x, y & 0xFF, y >> 8 & 0xFF), highest(x),
            highest(~signed if signed < 0 else signed), 31 - highest(x) if x else 0xFFFFFFFF,
            x << shift, signed >> shift, x >> shift,
            nth_set(x, y & 31, (y >> 5 & 7) - 3),
        ]  # fmt: skip

    check(launch, "integer", "bits_asm", 32, False, expect)


def test_carries(launch: Launcher) -> None:
    def saturate(v: int) -> int:
        return max(-(2**31), min(2**31 - 1, v))

    def expect(x: int, y: int) -> list[int]:
        sx, sy = to_signed(x, 32), to_signed(y, 32)
        product = x * y
        low = (product & 0xFFFFFFFF) + x
        return [
            x + y, x + y + (x + y >> 32), x - y, y - x - (x < y),
            low, (product >> 32) + (low >> 32), saturate(sx + sy), saturate(sx - sy),
        ]  # fmt: skip

    check(launch, "integer", "carries", 32, False, expect)


def test_signed64(launch: Launcher) -> None:
    def expect(x: int, y: int) -> list[int]:
        mask = 0xFFFFFFFF
        return [
            x + y, x - y, x * y, quotient(x, y), remainder(x, y), x >> (y & 63), x << (y & 63),
            (x & y) ^ (x | ~y), min(x, y), max(x, y), abs(x), x * y >> 64,
            (x < y) + 2 * (x <= y) + 4 * (x == y), to_signed(x, 32) * to_signed(y, 32),
            (x & mask) * (y & mask), quotient(x, 10),
        ]  # fmt: skip

    check(launch, "integer", "signed64", 64, True, expect)


def test_unsigned64(launch: Launcher) -> None:
    def expect(x: int, y: int) -> list[int]:
        return [
            quotient(x, y), remainder(x, y), x >> (y & 63), x * y >> 64,
            int(f"{x:064b}"[::-1], 2), 64 - x.bit_length(), x.bit_count(), (x & -x).bit_length(),
            x // 1000000007, min(x, y), max(x, y), x << 17 | x >> 47,
        ]  # fmt: skip

    check(launch, "integer", "unsigned64", 64, False, expect)


def test_wide_integers(launch: Launcher) -> None:
    def expect(x: int, y: int) -> list[int]:
        top = 1 << 128
        product = x * y
        total = ((product << 3) + (x << 64 | y)) % top
        difference = (product - (y << 64 | x)) % top
        negative = to_signed(-product, 128) >> 5
        ratio = total // (y + 1) if y else 0
        return [
            product, product >> 64, total, total >> 64, difference, difference >> 64,
            negative, negative >> 64, product < total, ratio, ratio >> 64, total % (y + 1),
        ]  # fmt: skip

    check(launch, "wide_integers", "wide128", 64, False, expect)


WIDE_EDGES = [
    0, 1, 2, 3, 10, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1,
    2**64, 2**64 + 1, 2**65, 2**96, 2**127 - 1, 2**127, 2**127 + 1, -1, -2, -3, -10, -(2**31),
    -(2**63), -(2**63) - 1, -(2**63) + 1, -(2**64), -(2**64) + 1,
]  # fmt: skip
WIDE = st.one_of(
    st.sampled_from(WIDE_EDGES),
    st.integers(-(2**127), 2**127 - 1),
    st.builds(lambda bits, x: x % (1 << bits), st.integers(1, 127), st.integers(0, 2**127 - 1)),
    st.builds(
        lambda high, low, sign: sign * ((1 << high) - (1 << low)),
        st.integers(0, 127), st.integers(0, 127), st.sampled_from([-1, 1]),
    ),
)  # fmt: skip


def operators128(x: int, y: int) -> list[int]:
    """What the kernel of that name gives, as Python computes it."""
    sx, sy, shift = to_signed(x, 128), to_signed(y, 128), y & 127
    s, t = to_signed(x, 64), to_signed(y, 64)
    is_open = (sx, sy) == (-(2**127), -1)
    return [
        x + y, x - y, x * y, quotient(x, y), remainder(x, y), 0 if is_open else quotient(sx, sy),
        0 if is_open else remainder(sx, sy), x << shift, x >> shift, sx >> shift,
        (sx < sy) + 2 * (x < y) + 4 * (x == y) + 8 * (sx <= sy), quotient(sx, 2), x // 10,
        remainder(sx, 1000), s * t, (x % 2**64) * (y % 2**64), quotient(2 * s, t), s, -x,
        to_signed(x, 32) * t >> (shift & 63),
    ]  # fmt: skip


def rows_of(numbers: list[int]) -> Array:
    """128-bit integers as pairs of 64 bits, the lower first."""
    raw = b"".join((x % 2**128).to_bytes(16, "little") for x in numbers)
    return np.frombuffer(raw, np.uint64).reshape(-1, 2).copy()


def on(device: Device, arch: str) -> Device:
    """The device, or an emulator of the architecture."""
    return Emulator(arch) if device.name == "emulator" else device


ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@examples(40, quick=2)
@given(drawn=st.lists(st.tuples(WIDE, WIDE), min_size=64, max_size=64))
def test_128_bits(device: Device, arch: str, drawn: list[tuple[int, int]]) -> None:
    edges = [(x, y) for x in WIDE_EDGES for y in WIDE_EDGES]
    pairs = [(x % 2**128, y % 2**128) for x, y in (*edges, *drawn)]
    n = len(pairs)
    expected = rows_of([value for pair in pairs for value in operators128(*pair)])
    actual = np.zeros_like(expected)
    a, b = rows_of([x for x, _ in pairs]), rows_of([y for _, y in pairs])
    kernel = Kernel(KERNELS / "wide_integers.cu", "operators128")
    kernel.launch(-(-n // 128), 128, (n, a, b, actual), device=on(device, arch))
    assert_same(actual, expected)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("s", [-(2**63), 2**63 - 1, -1, 12345])
@pytest.mark.parametrize("t", [2, -2, 3, -(2**63)])
def test_128_bits_of_all_threads(device: Device, arch: str, s: int, t: int) -> None:
    out = np.zeros((4, 2), np.uint64)
    kernel = Kernel(KERNELS / "wide_integers.cu", "uniform128")
    kernel.launch(1, 1, (s, t, out), device=on(device, arch))
    assert_same(out, rows_of([s, quotient(2 * s, t), s, quotient(s * s, t)]))


def test_narrow(launch: Launcher) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(-128, 128, N).astype(np.int8)
    b = rng.integers(0, 256, N).astype(np.uint8)
    c = rng.integers(-(2**15), 2**15, N).astype(np.int16)
    d = rng.integers(0, 2**16, N).astype(np.uint16)
    out8, out16, out32 = (np.zeros((N, 4), t) for t in (np.int8, np.int16, np.int32))
    launch("integer", "narrow", 3, 128, N, a, b, c, d, out8, out16, out32)
    x, y, u, v = (array.astype(np.int64) for array in (a, b, c, d))
    assert_same(out8, np.stack([x + y, x * y, x >> 2, u ^ x], 1).astype(np.int8))
    signed_v = d.view(np.int16).astype(np.int64)
    assert_same(
        out16,
        np.stack([u + v, u * v, (v >> 3) - (u >> 3), np.minimum(u, signed_v)], 1).astype(np.int16),
    )
    pairs = zip(u.tolist(), v.tolist(), x.tolist(), y.tolist(), strict=True)
    divided = np.array([[quotient(p, q), remainder(r, s)] for p, q, r, s in pairs])
    flags = (x < 0) + 2 * (v > 40000) + 4 * (y == 255)
    assert_same(
        out32,
        np.stack([x * u + y * v, divided[:, 0], divided[:, 1], flags], 1).astype(np.int32),
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_dot_products_of_bytes(launch: Launcher, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-(2**31), 2**31, (2, N)).astype(np.int32)
    out = np.zeros((N, 3), np.int32)
    launch("integer", "dot4", 3, 128, N, a, b, out)

    def parts(x: Array, dtype: str) -> Array:
        return x.view(dtype).reshape(N, -1).astype(np.int64)

    expected = [
        (parts(a, "i1") * parts(b, "i1")).sum(1) + 7,
        (parts(a, "u1") * parts(b, "i1")).sum(1) + 7,
        (parts(a, "i2") * parts(b, "i1")[:, :2]).sum(1) + 7,
    ]
    assert_same(out, np.stack(expected, 1).astype(np.int32))
