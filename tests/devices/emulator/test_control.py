"""Where threads stand and which way they go: indices, branches, loops, calls."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Launcher, assert_same


@pytest.mark.parametrize(
    ("grid", "block"),
    [((3,), (5,)), ((2, 3), (4, 3)), ((2, 3, 2), (3, 2, 4)), ((1, 1, 3), (33, 2, 1))],
)
def test_positions(launch: Launcher, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    extents = [*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3]]
    out = np.full((np.prod(extents), 6), -1, np.int32)
    launch("indexing", "positions", grid, block, out)
    gx, gy, gz, bx, by, bz = extents
    expected = [
        (i, j, k, x, y, z)
        for k in range(gz) for j in range(gy) for i in range(gx)
        for z in range(bz) for y in range(by) for x in range(bx)
    ]  # fmt: skip
    assert out.tolist() == [list(row) for row in expected]


def test_extents(launch: Launcher) -> None:
    out = np.zeros(7, np.uint32)
    launch("indexing", "extents", (2, 3, 4), (8, 2, 3), out)
    assert out.tolist() == [2, 3, 4, 8, 2, 3, 32]


def test_lanes(launch: Launcher) -> None:
    out = np.zeros((80, 6), np.uint32)
    launch("indexing", "lanes", 1, (20, 4), out)
    for thread, row in enumerate(out.tolist()):
        lane = thread % 32
        bit, below = 1 << lane, (1 << lane) - 1
        above = 0xFFFFFFFF & ~(bit | below)
        assert row == [lane, bit, below, below | bit, above, above | bit]


def test_clocks_go_forward(launch: Launcher) -> None:
    out = np.zeros((64, 4), np.int64)
    launch("indexing", "clocks", 1, 64, out)
    assert (out[:, :2] > 0).all()
    assert (out[:, 2:] == 1).all()


@pytest.mark.parametrize("n", [0, 1, 100, 1000])
def test_grid_stride(launch: Launcher, n: int) -> None:
    rng = np.random.default_rng(n)
    # Small integers: exact, whether the compiler fuses or not.
    x, y = rng.integers(-100, 100, (2, n)).astype(np.float32)
    expected = 3 * x + y
    launch("indexing", "grid_stride", 3, 64, n, np.float32(3), x, y)
    assert_same(y, expected)


def test_switch(launch: Launcher) -> None:
    a = np.array([*range(-1, 11), 1000, 999] * 10, np.int32)

    def expect(i: int, x: int) -> int:
        r = 1
        for j in range(i % 5):
            r = r * 3 + j
        cases = {
            0: x * 3 + i, 1: i - 7, 2: (i ^ 0x55) + 11, 3: 12, 4: r, 5: i // 3, 6: -i, 7: i << 2,
            8: -77, 9: i * i, 1000: 1234,
        }  # fmt: skip
        return cases.get(x, -1)

    out = np.full(len(a), -77, np.int32)
    launch("control", "switching", 3, 64, len(a), a, out)
    assert out.tolist() == [expect(i, x) for i, x in enumerate(a.tolist())]


def test_loops_of_different_length(launch: Launcher) -> None:
    a = np.arange(1, 151, dtype=np.int32)

    def expect(x: int, limit: int) -> int:
        count = 0
        while x != 1:
            x = 3 * x + 1 if x % 2 else x // 2
            count += 1
            if count >= limit:
                break
        return count

    out = np.zeros(150, np.int32)
    launch("control", "collatz", 3, 64, 150, 100, a, out)
    assert out.tolist() == [expect(x, 100) for x in a.tolist()]


def test_nested_loops(launch: Launcher) -> None:
    def expect(i: int) -> int:
        total = 0
        for x in range(i % 9):
            if x == 3:
                continue
            y = x
            while y <= i % 7:
                if (x + y) % 2 == 0:
                    total += x * 10 + y
                    if total > 200:
                        return total
                y += 1
        return total + 1000

    out = np.zeros(100, np.int32)
    launch("control", "nested", 2, 64, 100, out)
    assert out.tolist() == [expect(i) for i in range(100)]


@pytest.mark.parametrize("n", [1, 33, 64, 65, 100, 127, 128])
def test_early_return_before_a_barrier(launch: Launcher, n: int) -> None:
    a = np.arange(1000, 1000 + n, dtype=np.int32)
    out = np.zeros(n, np.int32)
    launch("control", "early_return", 2, 64, n, a, out)
    assert out.tolist() == [1000 + (i ^ 1) if i ^ 1 < n else -1 for i in range(n)]


def test_do_while(launch: Launcher) -> None:
    def expect(i: int) -> int:
        state, rounds = i + 1, 0
        while True:
            state = (state * 1664525 + 1013904223) % 2**32
            rounds += 1
            if state >> 28 == 7 or rounds >= 40:
                return state ^ rounds

    out = np.zeros(70, np.uint32)
    launch("control", "do_while", 2, 64, 70, out)
    assert out.tolist() == [expect(i) for i in range(70)]


def test_barrier_in_a_loop(launch: Launcher) -> None:
    out = np.zeros((2, 100), np.int32)
    launch("control", "barrier_loop", 2, 100, 7, out)
    line = np.arange(100)
    for r in range(7):
        line = np.roll(line, -1) + np.where(np.arange(100) % 2, r, 0)
    assert out.tolist() == [line.tolist()] * 2


def test_ternaries(launch: Launcher) -> None:
    a = np.arange(-5, 30, dtype=np.int32)
    out = np.zeros_like(a)
    launch("control", "ternaries", 1, 64, len(a), a, out)
    p, q, r = a > 3, a < 20, a % 3 == 0
    expected = (p & q) + (p | r) * 2 + (p ^ q) * 4 + (~r & (q | ~p)) * 8
    assert_same(out, expected.astype(np.int32))


def test_calls(launch: Launcher) -> None:
    n = 70
    a = np.arange(-20, n - 20, dtype=np.int32)
    out, wide, sums = np.zeros(n, np.int32), np.zeros(n), np.ones(n, np.float32)
    launch("calls", "plain_calls", 2, 64, n, a, out, wide, sums)
    x, i = a.astype(np.int64), np.arange(n)
    assert_same(out, (x**2 + np.where(x % 2, x**3, 0)).astype(np.int32))
    assert_same(wide, (x + 1 + 1.0 * i + (i - 20) + i * 3 + 2**40).astype(np.float64))
    assert_same(sums, (1 + i + np.where(i % 2, 5, 2.5)).astype(np.float32))


def test_recursion(launch: Launcher) -> None:
    fibonacci = [0, 1]
    while len(fibonacci) < 9:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    out = np.zeros(40, np.int32)
    launch("calls", "recursion", 1, 64, 40, out)
    assert out.tolist() == [2 * fibonacci[i % 9] + (i % 13 % 2 == 0) for i in range(40)]


def test_function_pointers(launch: Launcher) -> None:
    a = np.arange(-10, 40, dtype=np.int32)
    out = np.zeros(50, np.int32)
    launch("calls", "pointers", 1, 64, 50, a, out)
    x = a.astype(np.int64)
    expected = np.choose(np.arange(50) % 3, [x**2, x**3, -x])
    assert out.tolist() == expected.tolist()


def test_virtual_calls(launch: Launcher) -> None:
    out = np.zeros(40, np.float32)
    launch("calls", "virtual_calls", 1, 64, 40, out)
    i = np.arange(40)
    expected = np.where(i % 2, i * 3 + ord("r"), i * 1.5 + ord("t"))
    assert_same(out, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "dtype", "width", "expect"),
    [
        ("fold<int, 4, Plus>", np.int32, 4, np.sum),
        ("fold<double, 3, Times>", np.float64, 3, np.prod),
        ("fold<float, 2, Plus>", np.float32, 2, np.sum),
    ],
)
def test_template_instances(
    launch: Launcher, name: str, dtype: type[np.generic], width: int, expect: np.ufunc
) -> None:
    a = np.random.default_rng(3).integers(-9, 10, (40, width)).astype(dtype)
    out = np.zeros(40, dtype)
    launch("templates", name, 2, 32, 40, a, out)
    assert_same(out, expect(a, axis=1).astype(dtype))


@pytest.mark.parametrize(("name", "change"), [("inner::step<true>", 1), ("inner::step<false>", -1)])
def test_qualified_names(launch: Launcher, name: str, change: int) -> None:
    x = np.arange(10, dtype=np.int32)
    launch("templates", name, 1, 10, x)
    assert x.tolist() == [i + change for i in range(10)]


def test_macros(launch: Launcher) -> None:
    x = np.zeros(4, np.int32)
    launch("templates", "with_macro", 1, 4, x, defines={"BIAS": "(3 * 7)"})
    assert x.tolist() == [21] * 4


def test_a_kernel_that_does_nothing(launch: Launcher) -> None:
    assert launch("parameters", "nothing", (2, 2), (8, 8)).findings == ()
