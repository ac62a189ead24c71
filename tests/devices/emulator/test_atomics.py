"""Every kind of atomic, in each space, on edge cases, with results of any order of the threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from reference import Array, assert_same

from tilewise.devices import Device
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

LANES = 256
SPACES = ("global", "shared", "generic to global", "generic to shared")
WORDS = {16: ("unsigned short", "h"), 32: ("unsigned", "r"), 64: ("unsigned long long", "l")}
ADDS = {
    "add.u32": "u4", "add.s32": "i4", "add.u64": "u8", "add.f32": "f4", "add.f64": "f8",
    "add.noftz.f16": "f2", "add.noftz.f16x2": "f2", "add.noftz.bf16": "bf16",
    "add.noftz.bf16x2": "bf16",
}  # fmt: skip
BITS = {f"{name}.b{bits}": f"u{bits // 8}" for name in ("and", "or", "xor") for bits in (32, 64)}
EXTREMES = {
    f"{name}.{kind}{bits}": f"{'u' if kind == 'u' else 'i'}{bits // 8}"
    for name in ("min", "max") for kind in "us" for bits in (32, 64)
}  # fmt: skip
ROUND = {"inc.u32": "u4", "dec.u32": "u4"}
SWAPS = {"exch.b32": "u4", "exch.b64": "u8", "cas.b16": "u2", "cas.b32": "u4", "cas.b64": "u8"}
ALL = {**ADDS, **BITS, **EXTREMES, **ROUND, **SWAPS}


def dtype_of(operation: str) -> Any:
    """The dtype of a value; bfloat16 as its bits."""
    return np.dtype("u2" if ALL[operation] == "bf16" else ALL[operation])


def width(operation: str) -> int:
    """Bits of what one atomic changes."""
    return 32 if operation.endswith("x2") else 8 * dtype_of(operation).itemsize


def source(opcode: str, operation: str, space: str) -> str:
    """A kernel in which each thread changes a place, its own or the first one, once.

    ``old`` gets what the atomics return, if they do, and ``out`` what is there behind them.
    """
    word, letter = WORDS[width(operation)]
    state = "" if space.startswith("generic") else f".{space}"
    address = f"cvta.to{state}.u64 p, %1;" if state else "mov.u64 p, %1;"
    has_two = operation.startswith("cas")
    target = "%0, " if opcode == "atom" else ""
    values = f'"{letter}"(b[i])' + (f', "{letter}"(c[i])' if has_two else "")
    places = "held" if space.endswith("shared") else "there"
    return f"""
    extern "C" __global__ void k(const {word}* a, const {word}* b, const {word}* c, int stride,
                                 {word}* there, {word}* old, {word}* out) {{
        __shared__ {word} held[{LANES}];
        int i = threadIdx.x;
        {places}[i] = a[i];
        __syncthreads();
        {word} got = 0, *place = {places} + i * stride;
        asm volatile("{{ .reg .u64 p; {address} "
                     "{opcode}{state}.{operation} {target}[p], %2{", %3" if has_two else ""}; }}"
                     : "+{letter}"(got) : "l"(place), {values} : "memory");
        __syncthreads();
        old[i] = got;
        out[i] = *place;
    }}"""


def launch(
    device: Device, opcode: str, operation: str, space: str, given: list[Array], stride: int
) -> tuple[Array, Array]:
    """What the atomics returned, and what is there behind them, as the operation's dtype."""
    dtype = given[0].dtype
    word = f"u{width(operation) // 8}"
    out, old, there = (np.zeros(LANES, word) for _ in range(3))
    arrays = [x.view(word) for x in given]
    kernel = Kernel(source(opcode, operation, space), "k")
    kernel.launch(1, LANES, (*arrays, stride, there, old, out), device=device)
    return old.view(dtype), out.view(dtype)


def floats(dtype: Any) -> Array:
    """Zeros, subnormal numbers, the least and the greatest, infinities and NaN."""
    info = np.finfo(dtype)
    least, small = info.smallest_normal, info.smallest_subnormal
    some = [0, small, 5 * small, least - small, least, 1.5 * least, 1, 1 + info.eps, info.max]
    return np.array([*some, *(-x for x in some), np.inf, -np.inf, np.nan], dtype)


def bfloats(values: Array) -> Array:
    """Float32 rounded to the nearest bfloat16, as bits."""
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def widened(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def edges(operation: str) -> Array:
    """Values at which an operation may go wrong."""
    kind = ALL[operation]
    if kind == "bf16":
        least = np.float32(2.0**-126)
        some = np.array([0, 2.0**-133, 5 * 2.0**-133, least, 1.5 * least, 1, 1.0078125, 3.3895e38])
        some = np.concatenate([some, -some, [np.inf, -np.inf, np.nan]]).astype(np.float32)
        return bfloats(some)
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        return floats(dtype)
    info = np.iinfo(dtype)
    most = [info.min, info.min + 1, 0, 1, 2, 5, 17, info.max // 2, info.max // 2 + 1, info.max]
    random = np.random.default_rng(dtype.itemsize).integers(info.min, info.max, 6, dtype)
    return np.array([*most, *random.tolist()], dtype)


def operands(operation: str) -> list[Array]:
    """What is there, and one operand or two: every pair of edges, and for ``cas`` some equal."""
    some = edges(operation)
    count = LANES * width(operation) // (8 * some.itemsize)
    first, second = (np.resize(x.ravel(), 4 * count) for x in np.meshgrid(some, some))
    chosen = np.random.default_rng(len(operation)).permutation(4 * count)[:count]
    a, b = first[chosen].copy(), second[chosen].copy()
    if operation.startswith("cas"):
        b[::3] = a[::3]
    return [a, b, np.roll(a, 1)]


def flushed(x: Array) -> Array:
    """Zeros, of the same sign, for subnormal numbers."""
    return np.where(
        np.abs(x) < np.finfo(x.dtype).smallest_normal, np.copysign(x.dtype.type(0), x), x
    )


def changed(operation: str, space: str, a: Array, b: Array, c: Array) -> Array:
    """What an operation makes of ``a`` (PTX ISA 9.7.13.5)."""
    name = operation.partition(".")[0]
    with np.errstate(all="ignore"):
        if ALL[operation] == "bf16":
            return bfloats(widened(a) + widened(b))
        if operation == "add.f32" and space.endswith("global"):
            return flushed(flushed(a) + flushed(b))
        if name == "inc":
            return np.where(a >= b, 0, a + np.uint32(1)).astype(a.dtype)
        if name == "dec":
            return np.where((a == 0) | (a > b), b, a - np.uint32(1))
    simple: dict[str, Callable[[], Array]] = {
        "add": lambda: a + b, "and": lambda: a & b, "or": lambda: a | b, "xor": lambda: a ^ b,
        "min": lambda: np.minimum(a, b), "max": lambda: np.maximum(a, b), "exch": lambda: b,
        "cas": lambda: np.where(a == b, c, a),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        return simple[name]()


def numbers(operation: str, x: Array) -> Array:
    """Values as they are compared: bfloat16 as float32, so that every NaN is one."""
    return widened(x) if ALL[operation] == "bf16" else x


def opcodes(operation: str) -> list[str]:
    return ["atom"] if operation.startswith(("exch", "cas")) else ["atom", "red"]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("operation", ALL)
def test_a_place_of_its_own(device: Device, operation: str, space: str) -> None:
    given = operands(operation)
    expected = changed(operation, space, *given)
    for opcode in opcodes(operation):
        old, new = launch(device, opcode, operation, space, given, 1)
        assert_same(numbers(operation, new), numbers(operation, expected))
        if opcode == "atom":
            assert_same(numbers(operation, old), numbers(operation, given[0]))


def exact(operation: str) -> list[Array]:
    """Operands whose sums are exact in any order, or that wrap around."""
    kind, random = ALL[operation], np.random.default_rng(len(operation))
    count = LANES * width(operation) // (8 * dtype_of(operation).itemsize)
    if kind not in ("bf16", "f2", "f4", "f8"):
        a, b, c = operands(operation)
        return [a, b, c]
    high = {"bf16": 2, "f2": 8}.get(kind, 1 << 12)
    least = 0 if kind == "bf16" else -high
    some = [random.integers(least, high, count).astype(np.float32) for _ in range(3)]
    if kind == "bf16":  # of 8 bits: at most 256 in all
        return [bfloats(np.where(np.arange(count) < 2 * 60, x, 0).astype(np.float32)) for x in some]
    return [x.astype(kind) for x in some]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("operation", [*ADDS, *BITS, *EXTREMES])
def test_one_place_for_all(device: Device, operation: str, space: str) -> None:
    given = exact(operation)
    a, b, _ = given
    pairs = 2 if operation.endswith("x2") else 1
    expected = []
    for half in range(pairs):
        place = a[half : half + 1]
        for i in range(half, len(b), pairs):
            place = changed(operation, space, place, b[i : i + 1], place)
        expected.append(place[0])
    for opcode in opcodes(operation):
        _, new = launch(device, opcode, operation, space, given, 0)
        want = np.resize(np.array(expected), len(b))
        assert_same(numbers(operation, new), numbers(operation, want))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("operation", ROUND)
@pytest.mark.parametrize("limit", [0, 6, 300, 2**32 - 1])
def test_tickets_of_all(device: Device, operation: str, space: str, limit: int) -> None:
    """Threads draw one number each: in any order, the same numbers are drawn as often."""
    a, b = np.full(LANES, 3, np.uint32), np.full(LANES, limit, np.uint32)
    place, drawn = a[:1], []
    for _ in range(LANES):
        drawn.append(int(place[0]))
        place = changed(operation, space, place, b[:1], place)
    old, new = launch(device, "atom", operation, space, [a, b, b], 0)
    assert Counter(old.tolist()) == Counter(drawn)
    assert (new == place[0]).all()
    _, new = launch(device, "red", operation, space, [a, b, b], 0)
    assert (new == place[0]).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("operation", SWAPS)
def test_swaps_of_all(device: Device, operation: str, space: str) -> None:
    """All values that were given are found once, by a thread or at the end; one thread's compare
    succeeds."""
    dtype = dtype_of(operation)
    high = np.iinfo(dtype).max
    mine = (high - np.arange(LANES, dtype=np.uint64)).astype(dtype)
    first = np.full(LANES, 7, dtype)
    if operation.startswith("exch"):
        old, new = launch(device, "atom", operation, space, [first, mine, mine], 0)
        assert Counter([*old.tolist(), int(new[0])]) == Counter([7, *mine.tolist()])
    else:
        old, new = launch(device, "atom", operation, space, [first, first, mine], 0)
        winner = np.flatnonzero(old == 7)
        assert len(winner) == 1
        assert (np.delete(old, winner) == mine[winner[0]]).all()
        assert (new == mine[winner[0]]).all()


VECTORS = [
    f"{form}.{name}" for name in ("add", "min", "max")
    for form in ("v2.f16", "v4.f16", "v8.f16", "v2.bf16", "v4.bf16", "v8.bf16",
                 "v2.f16x2", "v4.f16x2", "v2.bf16x2", "v4.bf16x2")
]  # fmt: skip


def picked(name: str, a: Array, b: Array) -> Array:
    """The lesser or the greater of float32 values: -0 is less than +0, a NaN gives way."""
    is_less = (a < b) | ((a == b) & np.signbit(a))
    chosen = np.where(is_less == (name == "min"), a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("vector", [*VECTORS, "v2.f32.add", "v4.f32.add"])
def test_vectors(device: Device, vector: str, opcode: str) -> None:
    """A thread changes a vector of global memory, each element by itself."""
    if not device.arch.startswith("sm_9"):
        pytest.skip("needs compute capability 9.0")
    count, type_, name = int(vector[1]), *vector.split(".")[1:]
    bits = 16 if type_ in ("f16", "bf16") else 32
    word, letter = WORDS[bits]
    noftz = "" if type_ == "f32" else ".noftz"
    targets, values = (
        "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}" for first in (0, count + 1)
    )
    target = f"{targets}, " if opcode == "atom" else ""
    got = ", ".join(f'"+{letter}"(got[{i}])' for i in range(count))
    mine = ", ".join(f'"{letter}"(b[i * {count} + {j}])' for j in range(count))
    kernel = Kernel(
        f"""
    extern "C" __global__ void k(const {word}* b, {word}* old, {word}* out) {{
        int i = threadIdx.x;
        {word} got[{count}] = {{}};
        asm volatile("{{ .reg .u64 p; cvta.to.global.u64 p, %{count}; "
            "{opcode}.global.{name}{noftz}.v{count}.{type_} {target}[p], {values}; }}"
             : {got} : "l"(out + i * {count}), {mine} : "memory");
        for (int j = 0; j < {count}; ++j) old[i * {count} + j] = got[j];
    }}""",
        "k",
    )
    kind = {"f": "f2", "b": "bf16"}[type_[0]] if bits == 16 or "x2" in type_ else "f4"
    operation = {"f2": "add.noftz.f16", "bf16": "add.noftz.bf16", "f4": "add.f32"}[kind]
    some = edges(operation)
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(some, some))
    whole = 32 * count * bits // (8 * some.itemsize)
    chosen = np.random.default_rng(count).permutation(np.resize(np.arange(len(a)), 4 * whole))[
        :whole
    ]
    a, b = a[chosen], b[chosen]
    old, out = np.zeros_like(a), a.copy()
    kernel.launch(1, 32, [x.view(f"u{bits // 8}") for x in (b, old, out)], device=device)
    if name == "add":
        expected = changed(operation, "global", a, b, b)
    else:
        wide = [numbers(operation, x).astype(np.float32) for x in (a, b)]
        found = picked(name, *wide)
        expected = bfloats(found) if kind == "bf16" else found.astype(a.dtype)
    assert_same(numbers(operation, out), numbers(operation, expected))
    if opcode == "atom":
        assert_same(numbers(operation, old), numbers(operation, a))
