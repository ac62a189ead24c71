"""Threads together: shuffles, votes, barriers, atomics, and algorithms made of them."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Array, Launcher, assert_same

from tilewise.devices import Device
from tilewise.kernel import Kernel

pytestmark = pytest.mark.usefixtures("uncounted")

LANE = np.arange(32)


def whole(seed: int, n: int, low: int = -100, high: int = 100) -> Array:
    return np.random.default_rng(seed).integers(low, high, n).astype(np.int32)


def shuffled(x: Array, mode: str, by: Array | int, width: int = 32) -> Array:
    """What the CUDA C++ Programming Guide says of __shfl_*_sync; out of its part, a lane's own."""
    part = LANE // width * width
    if mode == "index":
        source = part + np.asarray(by) % width
    elif mode == "up":
        source = np.where(LANE - by >= part, LANE - by, LANE)
    elif mode == "down":
        source = np.where(LANE + by < part + width, LANE + by, LANE)
    else:
        # xor may reach into earlier parts of the warp, not into later ones.
        source = np.where(LANE ^ by < part + width, LANE ^ by, LANE)
    return np.asarray(x[source])


def test_shuffle_modes(launch: Launcher) -> None:
    a = whole(1, 32)
    out = np.zeros((32, 10), np.int32)
    launch("shuffle", "modes", 1, 32, a, out)
    columns = [
        shuffled(a, "index", 5), shuffled(a, "index", LANE * 3 + 1), shuffled(a, "up", 1),
        shuffled(a, "up", 7), shuffled(a, "down", 2), shuffled(a, "xor", 9),
        shuffled(a, "index", 11, 8), shuffled(a, "up", 3, 16), shuffled(a, "down", 3, 4),
        shuffled(a, "xor", 5, 8),
    ]  # fmt: skip
    assert_same(out, np.stack(columns, 1))


def test_shuffles_of_wide_values(launch: Launcher) -> None:
    rng = np.random.default_rng(2)
    a, c = rng.standard_normal(32), rng.standard_normal(32).astype(np.float32)
    b = rng.integers(-(2**62), 2**62, 32)
    outs = [np.zeros_like(x) for x in (a, b, c)]
    launch("shuffle", "wide", 1, 32, a, b, c, *outs)
    assert_same(outs[0], shuffled(a, "xor", 3))
    assert_same(outs[1], shuffled(b, "down", 1))
    assert_same(outs[2], shuffled(c, "up", 4))


def test_warp_sum(launch: Launcher) -> None:
    a = whole(3, 150).astype(np.float32)
    out = np.zeros(32, np.float32)
    launch("shuffle", "warp_sum", 1, 32, 150, a, out)
    assert out.tolist() == [a.sum()] * 32


def test_warp_scan(launch: Launcher) -> None:
    a = whole(4, 192)
    out = np.zeros_like(a)
    launch("shuffle", "warp_scan", 2, 96, a, out)
    assert_same(out, a.reshape(-1, 32).cumsum(1).reshape(-1).astype(np.int32))


def test_shuffles_of_a_part_of_the_warp(launch: Launcher) -> None:
    a = whole(5, 32)
    out = np.zeros_like(a)
    launch("shuffle", "partial", 1, 32, a, out)
    expected = [a[t ^ 4] if t < 8 else a[t] * 2 if t < 12 else a[20] for t in range(32)]
    assert out.tolist() == expected


def test_shuffle_says_whether_it_was_inside(launch: Launcher) -> None:
    a = whole(6, 32, 0, 100)
    out = np.zeros_like(a)
    launch("shuffle", "predicate", 1, 32, a, out)
    assert out.tolist() == [a[t + 9] if t + 9 < 32 else -1 for t in range(32)]


def mask_of(flags: Array) -> int:
    return sum(1 << i for i, flag in enumerate(flags.tolist()) if flag)


def test_votes(launch: Launcher) -> None:
    a = whole(7, 128)
    out = np.zeros((128, 5), np.uint32)
    launch("votes", "votes", 2, 64, a, out)
    for w, x in enumerate(a.reshape(4, 32)):
        odd = mask_of(x % 2)
        for lane in LANE.tolist():
            below = (odd & ((1 << lane) - 1)).bit_count()
            expected = [mask_of(x > 0), (x > 90).any(), (x > -90).all(), below, 0xFFFFFFFF]
            assert out[w * 32 + lane].tolist() == expected


def test_votes_in_branches(launch: Launcher) -> None:
    a = whole(8, 32)
    out = np.zeros(32, np.uint32)
    launch("votes", "divergent", 1, 32, a, out)
    ours = mask_of((LANE % 3 == 1) & (a > 0))
    assert out.tolist() == [ours if t % 3 == 1 else 1 for t in range(32)]


def test_matches(launch: Launcher) -> None:
    a = whole(9, 32, 0, 5)
    b = np.random.default_rng(9).integers(0, 3, 32) << 40
    out = np.zeros((32, 5), np.uint32)
    launch("votes", "matches", 1, 32, a, b, out)
    for t in range(32):
        same_a, same_b = mask_of(a == a[t]), mask_of(b == b[t])
        assert out[t].tolist() == [same_a, same_b, 0, 0, 0]  # all ones, and one more, wraps


def test_warp_reductions(launch: Launcher) -> None:
    a = whole(10, 32, -(2**31), 2**31)
    out = np.zeros((32, 8), np.int32)
    launch("votes", "reductions", 1, 32, a, out)
    u = a.view(np.uint32)
    values = [a.sum(dtype=np.int64), a.min(), a.max(), u.min(), u.max()]
    values += [np.bitwise_and.reduce(a), np.bitwise_or.reduce(a), np.bitwise_xor.reduce(a)]
    row = [int(np.int64(v).astype(np.int32)) for v in values]
    assert out.tolist() == [row] * 32


REDUCED = r"""
extern "C" __global__ void reduced(const int* x, int* sums) {
    int sum;
    asm volatile("redux.sync.add.s32 %0, %1, 0xff;" : "=r"(sum) : "r"(x[threadIdx.x]));
    sums[threadIdx.x] = sum;
}
"""


def test_a_reduction_whose_mask_lacks_lanes(emulator: Device) -> None:
    """The machine's instruction has no mask."""
    x, sums = whole(5, 64), np.zeros(64, np.int32)
    report = Kernel(REDUCED, "reduced").launch(1, 64, (x, sums), device=emulator, checks="collect")
    assert_same(sums, np.repeat(x.reshape(2, 32).sum(1), 32).astype(np.int32))
    (finding,) = report.findings
    assert "mask, 0x000000ff, that lacks its own lane (and 47 other threads" in str(finding)


@pytest.mark.parametrize("n", [40, 128])
def test_warp_aggregated_atomics(launch: Launcher, n: int) -> None:
    keys = whole(11, n, 0, 7)
    bins = np.zeros(7, np.int32)
    launch("votes", "aggregated", 2, 64, n, keys, bins)
    assert bins.tolist() == np.bincount(keys, minlength=7).tolist()


def test_counting_barriers(launch: Launcher) -> None:
    a = whole(12, 160)
    out = np.zeros((160, 3), np.int32)
    launch("barriers", "counting", 2, 80, a, out)
    for block in range(2):
        x = a[block * 80 : block * 80 + 80]
        row = [int((x > 0).sum()), int((x > -95).all()), int((x > 95).any())]
        assert out[block * 80 : block * 80 + 80].tolist() == [row] * 80


def test_named_barriers(launch: Launcher) -> None:
    a = whole(13, 128)
    out = np.zeros_like(a)
    launch("barriers", "named", 1, 128, a, out)
    t = np.arange(128)
    x = a[t // 64 * 64 + (t * 7 + 3) % 64]
    assert_same(out, x[::-1].copy())


def test_arriving_without_waiting(launch: Launcher) -> None:
    a = whole(14, 64)
    out = np.zeros_like(a)
    launch("barriers", "producer_consumer", 1, 128, a, out)
    assert_same(out, a[::-1] * np.int32(3))


def test_warp_barriers(launch: Launcher) -> None:
    a = whole(15, 64)
    out = np.zeros_like(a)
    launch("barriers", "warp_barrier", 1, 64, a, out)
    expected = np.roll(a.reshape(2, 32), -3, axis=1) * 2
    assert_same(out, expected.reshape(-1))


def test_fences(launch: Launcher) -> None:
    flag, data, out = np.zeros(1, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)
    launch("barriers", "fences", 1, 64, flag, data, out)
    assert out.tolist() == [(t ^ 1) * 5 + 1 for t in range(64)]


def wrap(value: int, bits: int, signed: bool) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def test_atomics(launch: Launcher) -> None:
    a = whole(16, 150, -(2**31), 2**31)
    start = np.array([5, 6, 100, -100, -1, 0, 77], np.int32)
    unsigned = np.array([2**32 - 1, 0, 0, 0, 3], np.uint32)
    out, uout = start.copy(), unsigned.copy()
    launch("atomics", "integers", 3, 64, 150, a, out, uout)
    values, positive = a.tolist(), a.view(np.uint32).tolist()
    expected = [
        wrap(5 + sum(values), 32, True), wrap(6 - sum(values), 32, True), min(100, *values),
        max(-100, *values), int(np.bitwise_and.reduce(a)), int(np.bitwise_or.reduce(a)),
        int(np.bitwise_xor.reduce(a)) ^ 77,
    ]  # fmt: skip
    assert out.tolist() == expected
    up = down = 0
    for _ in values:
        up = 0 if up >= 10 else up + 1
        down = 13 if down == 0 or down > 13 else down - 1
    assert uout.tolist() == [min(positive), max(positive), up, down, (3 + sum(positive)) % 2**32]


def test_atomic_sums_of_subnormal_numbers(launch: Launcher) -> None:
    """In global memory they are zeros that keep their sign; in shared memory they are not."""
    least, small = np.finfo(np.float32).tiny, np.float32(2.4e-43)
    edges = np.array(
        [0, -0.0, small, -small, least, -least, np.nextafter(least, 0, dtype=np.float32), 1,
         -np.nextafter(least, 1, dtype=np.float32), 1e-37],
        np.float32,
    )  # fmt: skip
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    n = len(a)

    def flushed(x: Array) -> Array:
        return np.where(np.abs(x) < least, np.copysign(np.float32(0), x), x)

    def add_flushed(x: Array, y: Array) -> Array:
        return flushed(flushed(x) + flushed(y))

    added, found, shared = (np.zeros(n, np.float32) for _ in range(3))
    generic, four = np.zeros((n, 2), np.float32), np.zeros((n, 4), np.float32)
    launch("atomics", "small_sums", 1, 128, n, a, b, added, found, generic, shared, four)
    assert_same(found, a)
    assert_same(added, add_flushed(a, b))
    assert_same(shared, a + b)
    odd = np.arange(n) % 2 == 1
    assert_same(generic[:, 0], np.where(odd, add_flushed(a, b), a))
    assert_same(generic[:, 1], np.where(odd, a, a + b))
    zero = np.zeros_like(b)
    columns = [add_flushed(a, x) for x in (b, zero, -b, -zero)]
    assert_same(four, np.stack(columns, axis=1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("type_", ["f32", "f64", "noftz.f16", "noftz.f16x2"])
def test_atomic_sums_of_each_type(device: Device, space: str, opcode: str, type_: str) -> None:
    """Those of float32 in global memory alone take subnormal numbers for zeros."""
    word, letter = {
        "f32": ("float", "f"), "f64": ("double", "d"), "noftz.f16": ("unsigned short", "h"),
        "noftz.f16x2": ("unsigned", "r"),
    }[type_]  # fmt: skip
    dtype = np.dtype({"f32": "f4", "f64": "f8"}.get(type_, "f2"))
    qualifier = "" if space == "generic" else f".{space}"
    convert = f"cvta.to{qualifier}.u64 p, %1;" if qualifier else "mov.u64 p, %1;"
    target = "" if opcode == "red" else "%0, "
    source = f"""
    extern "C" __global__ void k(int n, const {word}* a, const {word}* b, {word}* out) {{
        __shared__ {word} places[256];
        int i = threadIdx.x;
        if (i >= n) return;
        {word} old = 0, *place = {"places" if space == "shared" else "out"} + i;
        *place = a[i];
        asm volatile("{{ .reg .u64 p; {convert} {opcode}{qualifier}.add.{type_} {target}[p], %2; }}"
                     : "+{letter}"(old) : "l"(place), "{letter}"(b[i]) : "memory");
        out[i] = *place;
    }}"""
    least = np.finfo(dtype).tiny
    edges = np.array([0, -0.0, least / 8, -least / 4, least, -least, 1.5 * least, 1], dtype)
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(edges, edges))
    out = np.zeros_like(a)
    count = len(a) // 2 if type_.endswith("x2") else len(a)
    holder = f"u{dtype.itemsize * len(a) // count}" if dtype.itemsize == 2 else dtype
    arrays = [x.view(holder) for x in (a, b, out)]
    Kernel(source, "k").launch(1, 128, (count, *arrays), device=device)
    expected = a + b
    if type_ == "f32" and space != "shared":
        small = [np.where(np.abs(x) < least, np.copysign(dtype.type(0), x), x) for x in (a, b)]
        total = small[0] + small[1]
        expected = np.where(np.abs(total) < least, np.copysign(dtype.type(0), total), total)
    assert_same(out, expected)


def test_wide_atomics(launch: Launcher) -> None:
    a = np.random.default_rng(17).integers(-(2**63), 2**63, 100)
    out = np.array([1, 2**64 - 1, 0, 2**64 - 1, 0, 9], np.uint64)
    sout = np.array([2**62, -(2**62)], np.int64)
    f, d = np.zeros(1, np.float32), np.zeros(1)
    launch("atomics", "wide", 2, 64, 100, a, out, sout, f, d)
    u = a.view(np.uint64)
    expected = [(1 + sum(u.tolist())) % 2**64, u.min(), u.max(), np.bitwise_and.reduce(u)]
    expected += [np.bitwise_or.reduce(u), np.bitwise_xor.reduce(u) ^ np.uint64(9)]
    assert out.tolist() == [int(v) for v in expected]
    assert sout.tolist() == [min(2**62, a.min()), max(-(2**62), a.max())]
    assert f[0] == (a & 15).sum()
    assert d[0] == (a & 1023).sum()


def test_old_values(launch: Launcher) -> None:
    counter = np.zeros(1, np.int32)
    seen, exchanged = np.full(128, -1, np.int32), np.zeros(129, np.int32)
    launch("atomics", "tickets", 2, 64, counter, seen, exchanged)
    assert counter[0] == 128
    assert sorted(seen.tolist()) == list(range(128))
    # What went in came out, but for the last.
    came_out = [*exchanged[1:].tolist(), int(exchanged[0])]
    assert sorted(came_out) == list(range(129))


def test_compare_and_swap(launch: Launcher) -> None:
    a = whole(18, 96).astype(np.float32)
    lock, wins = np.array([-1], np.int32), np.zeros(1, np.int32)
    total = np.zeros(1, np.float32)
    launch("atomics", "compare_swap", 2, 48, lock, total, a, wins)
    assert 0 <= lock[0] < 96
    assert wins[0] == 1
    assert total[0] == a.sum()


def test_atomics_in_shared(launch: Launcher) -> None:
    a = np.random.default_rng(19).integers(0, 256, 500).astype(np.uint8)
    bins, total, most = np.zeros(16, np.int32), np.zeros(1, np.float32), np.zeros(1, np.uint64)
    launch("atomics", "in_shared", 1, 64, 500, a, bins, total, most)
    expected = np.bincount(a & 15, minlength=16)
    assert bins.tolist() == expected.tolist()
    assert total[0] == 250
    assert int(most[0]) == int(expected.max()) << 32


@pytest.mark.parametrize("n", [1, 64, 300])
def test_last_block(launch: Launcher, n: int) -> None:
    a = whole(20, n).astype(np.float32)
    blocks = -(-n // 64)
    out = np.zeros(1, np.float32)
    launch("atomics", "last_block", blocks, 64, n, a, np.zeros(blocks, np.float32), out)
    assert out[0] == a.sum()


def test_half_atomics(launch: Launcher) -> None:
    packed, one = np.zeros(2, np.float16), np.zeros(2, np.float16)
    old = np.zeros((40, 2), np.uint32)
    launch("atomics", "halves", 1, 40, packed.view(np.uint32), one, old)
    assert packed.tolist() == [40, 80]
    assert one.tolist() == [40, 0]
    before = old[:, 1].astype(np.uint16).view(np.float16)
    assert sorted(before.tolist()) == list(range(40))


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (33, 20, 17), (1, 40, 5), (7, 7, 0)])
def test_tiled(launch: Launcher, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(21)
    a, b = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    launch("algorithms", "tiled", (-(-n // 16), -(-m // 16)), (16, 16), m, n, k, a, b, c)
    assert_same(c, a @ b + np.float32(0))


@pytest.mark.parametrize("n", [1, 500, 512, 1000])
def test_block_reduce(launch: Launcher, n: int) -> None:
    a = whole(22, n)
    out = np.zeros(-(-n // 512), np.int32)
    launch("algorithms", "block_reduce", len(out), 256, n, a, out)
    assert out.sum() == a.sum()


def test_block_scan(launch: Launcher) -> None:
    a = whole(23, 256)
    out = np.zeros_like(a)
    launch("algorithms", "block_scan", 2, 128, a, out)
    assert_same(out, a.reshape(2, 128).cumsum(1).reshape(-1).astype(np.int32))


def test_bitonic_sort(launch: Launcher) -> None:
    a = whole(24, 128)
    expected = np.sort(a)
    launch("algorithms", "bitonic", 1, 128, a)
    assert_same(a, expected)


@pytest.mark.parametrize("n", [64, 100, 129])
def test_stencil(launch: Launcher, n: int) -> None:
    a = whole(25, n).astype(np.float32)
    out = np.zeros_like(a)
    launch("algorithms", "stencil", -(-n // 64), 64, n, a, out)
    p = np.pad(a, 1)
    assert_same(out, 0.25 * p[:-2] + 0.5 * p[1:-1] + np.float32(0.25) * p[2:])


def test_mandelbrot(launch: Launcher) -> None:
    out = np.zeros((12, 20), np.int32)
    launch("algorithms", "mandelbrot", (3, 2), (8, 8), 20, 12, 30, out)
    # Next to the border rounding decides, and the compiler may fuse; so the inside and the far.
    y, x = np.mgrid[:12, :20]
    c = -2 + x * 3 / 20 + 1j * (-1 + y * 2 / 12)
    assert (out[np.abs(c) > 1.9] <= 3).all()
    assert (out[np.abs(c) < 0.24] == 30).all()
    assert len(np.unique(out)) > 6
