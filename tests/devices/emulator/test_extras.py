"""What people write besides: structures with holes, hints, locks, tables of functions."""

from __future__ import annotations

import numpy as np
from reference import Array, Launcher, assert_same, is_thorough

from tilewise.devices import Device

PADDED = np.dtype([("tag", "i1"), ("value", "f8"), ("last", "i2")], align=True)


def padded(t: Array) -> Array:
    out = np.zeros(len(t), PADDED)
    out["tag"], out["value"], out["last"] = t, t * 0.5, -t
    return out


def assert_same_members(actual: Array, expected: Array) -> None:
    for name in ("tag", "value", "last"):
        assert_same(actual[name].copy(), expected[name].copy())


def test_structures_with_holes(launch: Launcher) -> None:
    """The bytes between the members are nobody's: reading them along is no fault."""
    pick = np.random.default_rng(1).integers(0, 9, 32).astype(np.int32)
    out = np.zeros(32, PADDED)
    launch("extras", "padded_copies", 1, 32, 32, pick, out.view(np.uint8))
    assert_same_members(out, padded((np.arange(32) + pick % 3) % 32))


def test_structures_with_holes_as_arguments(launch: Launcher) -> None:
    a, out = padded(np.arange(20)), np.zeros(20, PADDED)
    launch("extras", "padded_arguments", 1, 20, a.view(np.uint8), out.view(np.uint8))
    expected = a.copy()
    expected["tag"], expected["last"] = a["last"].astype(np.int8), a["tag"]
    assert_same_members(out, expected)


SLOT = np.dtype([("value", "f8"), ("key", "i4")], align=True)


def test_holes_in_new_arrays(launch: Launcher, device: Device) -> None:
    pick = np.random.default_rng(8).integers(0, 4, 32).astype(np.int32)
    out = np.zeros((3, 32), SLOT)
    between = device.empty((32 * SLOT.itemsize,), np.uint8)
    launch("extras", "holes", 1, 32, pick, between, out.view(np.uint8))
    t = np.arange(32, dtype=np.int32)
    value, key = (t + pick).astype(np.float64), t * pick
    other = t ^ 1
    for row in out[:2]:
        assert_same(row["value"].copy(), value[other])
        assert_same(row["key"].copy(), key[other])
    assert_same(out[2]["value"].copy(), value)
    assert_same(out[2]["key"].copy(), key)


def test_bit_fields(launch: Launcher) -> None:
    a = np.random.default_rng(2).integers(-(2**31), 2**31, 50).astype(np.int32)
    out = np.zeros_like(a)
    launch("extras", "bit_fields", 1, 50, a, out)
    x = a.astype(np.int64)
    low, high = x & 31, x * 7 & 0xFFFF
    middle = ((x >> 3 & 0x7FF) ^ 0x400) - 0x400
    assert_same(out, (low + middle * 3 - high).astype(np.int32))


def test_unions(launch: Launcher) -> None:
    a = np.random.default_rng(3).standard_normal(40).astype(np.float32)
    out = np.zeros(40, np.uint32)
    launch("extras", "unions", 1, 40, a, out)
    t = np.arange(40, dtype=np.uint32)
    assert_same(out, a.view(np.uint32) ^ (np.uint32(0x40) << 8 * (t % 4)))


def test_lambdas(launch: Launcher) -> None:
    a = np.arange(-20, 20, dtype=np.int32)
    out = np.zeros_like(a)
    launch("extras", "lambdas", 1, 40, a, out)
    assert_same(out, 10 * a + 5 * np.arange(40, dtype=np.int32))


def test_hints_change_nothing(launch: Launcher) -> None:
    a = np.random.default_rng(4).integers(-9, 9, (64, 4)).astype(np.float32)
    out, times = np.zeros_like(a), np.zeros(64, np.uint32)
    launch("extras", "hints", 1, 64, a, out, times)
    expected = a.copy()
    expected[:, 0] += a[:, 0] + a[:, 3]
    assert_same(out, expected)
    assert times.tolist() == list(range(64))


def test_memset_and_memcpy(launch: Launcher) -> None:
    a = np.random.default_rng(5).integers(0, 1000, 33).astype(np.int32)
    out = np.zeros((32, 16), np.int32)
    launch("extras", "block_copies", 1, 32, a, out)
    expected = np.full((32, 16), -1, np.int32)
    for t in range(32):
        at = a[t] & 7
        expected[t, at : at + 2] = a[t : t + 2]
    assert_same(out, expected)


def test_a_lock_that_a_warp_competes_for(launch: Launcher) -> None:
    lock, count, order = np.zeros(1, np.int32), np.zeros(1, np.int32), np.full(96, -1, np.int32)
    launch("extras", "spin_lock", 2, 48, lock, count, order)
    assert count[0] == 96
    assert sorted(order.tolist()) == list(range(96))
    assert lock[0] == 0


def test_a_lock_that_blocks_compete_for(launch: Launcher) -> None:
    """Blocks that wait at barriers between their attempts do not keep its holder from running."""
    blocks = 12 if is_thorough() else 4
    lock, count, order = np.zeros(1, np.int32), np.zeros(1, np.int32), np.full(blocks, -1, np.int32)
    launch("extras", "block_lock", blocks, 48, lock, count, order)
    assert count[0] == blocks
    assert sorted(order.tolist()) == list(range(blocks))
    assert lock[0] == 0


def test_waiting_for_another_warp(launch: Launcher) -> None:
    flag, out = np.zeros(1, np.int32), np.zeros(32, np.int32)
    launch("extras", "wait_for_flag", 1, 64, flag, out)
    assert out.tolist() == [7] * 32


def test_scopes_and_widths_of_atomics(launch: Launcher) -> None:
    a, b, c = np.zeros(3, np.int32), np.zeros(1, np.uint64), np.zeros(2, np.uint16)
    launch("extras", "scopes", 1, 64, a, b, c)
    assert a.tolist() == [64, 128, 63]
    assert c.tolist() == [192, 0]
    assert 1 <= b[0] <= 64  # as many as happened to come in turn


def test_pointers_to_functions_in_constant_memory(launch: Launcher) -> None:
    a = np.random.default_rng(6).integers(0, 100, 48).astype(np.int32)
    out = np.zeros_like(a)
    launch("extras", "constant_pointers", 1, 48, a, out)
    functions = [lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y]
    values = enumerate(a.tolist())
    assert out.tolist() == [functions[x % 3](x, t) + functions[t % 3](t, x) for t, x in values]


def test_frames_of_recursion(launch: Launcher) -> None:
    def walk(depth: int, seed: int, above: list[int] | None) -> int:
        here = [seed + i + (above[(seed + i) & 3] if above else 0) for i in range(4)]
        if depth == 0:
            return here[seed & 3]
        return walk(depth - 1, here[depth & 3] & 0xFF, here) + here[(seed + 1) & 3]

    out = np.zeros(40, np.int32)
    launch("extras", "frames", 1, 40, out)
    assert out.tolist() == [walk(t % 6, t, None) for t in range(40)]


def test_atomics_of_vectors(launch: Launcher) -> None:
    a, b = np.zeros(2, np.float32), np.zeros(4, np.float32)
    launch("extras", "vector_atomics", 2, 40, a, b)
    assert a.tolist() == [80, 160]
    assert b.tolist() == [80, 160, 240, 320]


def test_a_table_of_branches(launch: Launcher) -> None:
    def wrap(x: int) -> int:
        return (x + 2**31) % 2**32 - 2**31

    def divide(x: int, y: int) -> int:
        return abs(x) // y * (1 if x >= 0 else -1)

    def expect(t: int, x: int) -> int:
        r, kept = t, 1000 + t
        for i in range(40):
            steps = [
                (r + kept, kept), (r ^ 0x1234, r ^ 0x1234),
                (int(f"{r % 2**32:032b}"[::-1], 2), kept), (r * 17, kept), (r, r - 4),
                (divide(r, 3) + 5, kept), (r - kept * 2, kept),
                (r - divide(r, 1001) * 1001, kept), (r << 1, kept ^ wrap(r << 1)), (~r, kept),
                (abs(r), kept), (max(r, 77), kept), (min(r, 99999), kept), (r, i),
                (r + 14, kept), (r - 15, kept),
            ]  # fmt: skip
            r, kept = (wrap(v) for v in steps[(x + i) % 16])
        return r

    a = np.random.default_rng(7).integers(0, 50, 64).astype(np.int32)
    out = np.arange(1000, 1064, dtype=np.int32)
    launch("extras", "many_cases", 1, 64, 40, a, out)
    assert out.tolist() == [expect(t, x) for t, x in enumerate(a.tolist())]
