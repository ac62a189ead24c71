"""Right kernels that look like wrong ones: the right result on both devices, and no finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Array, Launcher, assert_same


def integers(seed: int, n: int) -> Array:
    return np.random.default_rng(seed).integers(-99, 99, n).astype(np.int32)


def run(launch: Launcher, name: str, *arguments: Any, grid: int = 1, block: int = 64) -> None:
    # "raise" is the default: a finding is an error.
    assert launch("clean", name, grid, block, *arguments).findings == ()


def test_warp_synchronous(launch: Launcher) -> None:
    a, out = integers(1, 64), np.zeros(2, np.int32)
    run(launch, "warp_synchronous", a, out)
    assert out.tolist() == a.reshape(2, 32).sum(1).tolist()


def test_half_warp(launch: Launcher) -> None:
    a, out = integers(2, 32), np.zeros(32, np.int32)
    run(launch, "half_warp", a, out, block=32)
    assert_same(out, np.concatenate([a[15::-1], a[16:]]))


@pytest.mark.parametrize("phases", [1, 2, 5])
def test_double_buffer(launch: Launcher, phases: int) -> None:
    a, out = integers(3, phases * 64), np.zeros(64, np.int32)
    run(launch, "double_buffer", phases, a, out)
    weights = np.arange(1, phases + 1)[:, None]
    assert_same(out, (a.reshape(phases, 64)[:, ::-1] * weights).sum(0).astype(np.int32))


def test_own_place(launch: Launcher) -> None:
    a, out = integers(4, 64), np.zeros(64, np.int32)
    run(launch, "own_place", 4, a, out)
    expected = a.copy()
    for r in range(4):
        expected = expected * np.int32(3) + np.int32(r)
    assert_same(out, expected)


def test_bytes_of_one_word(launch: Launcher) -> None:
    a = np.arange(200, 264).astype(np.uint8)
    out = np.zeros_like(a)
    run(launch, "bytes", a, out)
    assert_same(out, a + np.uint8(1))


@pytest.mark.parametrize("negative", [False, True])
def test_same_flag(launch: Launcher, negative: bool) -> None:
    a = np.abs(integers(5, 300)) * np.int32(-1 if negative else 1)
    out = np.full(64, 7, np.int32)
    run(launch, "same_flag", 300, a, out)
    assert out.tolist() == [int(negative)] * 64


@pytest.mark.parametrize("n", [1, 9])
@pytest.mark.parametrize("sign", [-1, 1])
def test_two_arrays(launch: Launcher, n: int, sign: int) -> None:
    a, out = integers(8, 32), np.zeros(32, np.int32)
    a[0] = sign
    run(launch, "two_arrays", n, a, out, block=32)
    left, right, t = a, a[np.arange(32) ^ 3], np.arange(32)
    sums = (left if n > 5 else right).sum() + np.where(t & 1, right.sum(), left.sum())
    sums += right if sign > 0 else left
    last = right + np.bincount(a & 31, minlength=32) if n > 5 else right
    assert_same(out, (sums + last).astype(np.int32))


@pytest.mark.parametrize("name", ["atomics_only", "shuffled_sum"])
def test_sums(launch: Launcher, name: str) -> None:
    a, out = integers(6, 500), np.zeros(1, np.int32)
    run(launch, name, 500, a, out, block=128)
    assert out[0] == a.sum()


def test_unrolled_tail(launch: Launcher) -> None:
    a, out = integers(7, 128), np.zeros(1, np.int32)
    run(launch, "unrolled_tail", a, out, block=128)
    assert out[0] == a.sum()


def test_halo(launch: Launcher) -> None:
    a, out = integers(8, 150), np.zeros(150, np.int32)
    run(launch, "halo", 150, a, out, grid=3)
    padded = np.pad(a, 2)
    assert_same(out, padded[:-4] + padded[4:])


@pytest.mark.parametrize("n", [1, 31, 70, 128])
def test_leave_early(launch: Launcher, n: int) -> None:
    a, out = integers(9, n), np.zeros(n, np.int32)
    run(launch, "leave_early", n, a, out, block=128)
    assert_same(out, a[::-1].copy())


def test_in_place(launch: Launcher) -> None:
    a = integers(10, 150)
    expected = a * np.int32(2) + np.int32(1)
    run(launch, "in_place", 150, a, grid=3)
    assert_same(a, expected)


def test_reused(launch: Launcher) -> None:
    a, out = np.random.default_rng(11).standard_normal(64), np.zeros(64, np.float32)
    run(launch, "reused", a, out)
    assert_same(out, a.astype(np.float32))


def test_partly_set(launch: Launcher) -> None:
    a, out = np.abs(integers(12, 64)), np.zeros(64, np.int32)
    run(launch, "partly_set", 64, a, out)
    expected = [sum((x + i) * (i + 1) for i in range((x & 7) + 1)) for x in a.tolist()]
    assert out.tolist() == expected


def test_hand_over(launch: Launcher) -> None:
    a, out = integers(13, 5 * 32), np.zeros(32, np.int32)
    run(launch, "hand_over", 5, a, out)
    assert_same(out, a.reshape(5, 32)[:, ::-1].sum(0).astype(np.int32))
