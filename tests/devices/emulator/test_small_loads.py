"""Small bulk loads by many lanes: done at once, they are as if done one after another."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import pytest
from faults.cases import PRELUDE
from reference import thorough

from tilewise.devices import Device
from tilewise.devices.emulator.copies import small_loads
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

pytestmark = pytest.mark.usefixtures("no_machine_code")

THREADS, BLOCKS, BARRIERS = 64, 3, 20
KINDS = ("nothing", "out of bounds", "misaligned", "uninitialised", "race", "barrier")
FAULTS = (
    "a bulk copy with no barrier", "a bulk copy with no proxy fence", "after its initialisation",
    "after the write of a bulk copy", "reads global memory", "no multiple of 16",
    "which nobody initialised", "reads what nobody wrote",
)  # fmt: skip
TABLE = (
    PRELUDE
    + r"""
enum { INIT_SYNC = 1, WRITES = 2, READS = 4, FENCE = 8, SYNC = 16, EXPECT_FIRST = 32, WAIT = 64,
       TWICE = 128, CHANGES = 256, NO_INIT = 512 };
extern "C" __global__ void fill(int* a, int from, int to) {
    int i = threadIdx.x + 64 * blockIdx.x;
    if (i < from || i >= to) a[i] = i;
}

// For each thread: where to and where from, in bytes; how many bytes; which mbarrier, or -1.
extern "C" __global__ void k(int* a, const int* table, const int* expected, int* out, int flags) {
    __shared__ alignas(16) int s[1024];
    __shared__ unsigned long long b[20];
    int t = threadIdx.x, sum = 0;
    if (t == 0 && !(flags & NO_INIT)) for (int i = 0; i < 20; ++i) MB_INIT(b + i, 1);
    if (flags & INIT_SYNC) __syncthreads();
    if (flags & WRITES) for (int i = t; i < 1024; i += 64) s[i] = i;
    if (flags & WRITES && flags & READS) __syncthreads();
    if (flags & READS) for (int i = t; i < 512; i += 64) sum += s[i * 7 % 1024];
    if (flags & CHANGES && t < 4) a[t * 9] = t;
    if (flags & FENCE) PROXY_FENCE();
    if (flags & SYNC) __syncthreads();
    if (flags & EXPECT_FIRST && t < 20 && expected[t]) MB_EXPECT(b + t, expected[t]);
    if (flags & EXPECT_FIRST && flags & SYNC) __syncthreads();
    const int* mine = table + 4 * (t + 64 * blockIdx.x);
    #pragma unroll 1
    for (int round = 0; round < (flags & TWICE ? 2 : 1); ++round)
        if (mine[3] >= 0)
            BULK_LOAD((char*)s + mine[0], (const char*)a + mine[1], mine[2], b + mine[3]);
    if (!(flags & EXPECT_FIRST) && t < 20 && expected[t]) MB_EXPECT(b + t, expected[t]);
    if (flags & SYNC) __syncthreads();
    if (flags & WAIT) for (int i = 0; i < 20; ++i) if (expected[i]) MB_WAIT(b + i, 0);
    if (flags & WRITES) for (int i = t; i < 1024; i += 64) sum += s[i];
    out[t + 64 * blockIdx.x] = sum;
}
"""
)
INIT_SYNC, WRITES, READS, FENCE, SYNC, EXPECT_FIRST, WAIT, TWICE, CHANGES, NO_INIT = (
    1 << i for i in range(10)
)
HARMLESS = (WRITES, READS, EXPECT_FIRST)
RIGHT = INIT_SYNC | FENCE | SYNC | WAIT


@dataclass
class Drawn:
    """What one launch is given, drawn at random, maybe with faults."""

    table: np.ndarray[Any, Any]
    expected: np.ndarray[Any, Any]
    flags: int
    hole: bool


def draw(seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    table = np.zeros((BLOCKS, THREADS, 4), np.int32)
    table[..., 0] = np.arange(THREADS) * 64
    if rng.random() < 0.5:
        table[..., 0] = rng.permuted(table[..., 0], axis=1)
    table[..., 1] = rng.integers(0, 256, (BLOCKS, THREADS)) * 16
    table[..., 2] = 16 * rng.integers(1, 5)
    if rng.random() < 0.3:
        table[..., 2] = rng.choice([16, 32, 64], THREADS)
    table[..., 3] = rng.integers(0, rng.choice([1, 3, BARRIERS]), THREADS)
    if rng.random() < 0.3:
        table[:, rng.random(THREADS) < 0.3, 3] = -1
    is_right = rng.random() < 0.2

    def plant(share: float, column: int, change: Any) -> None:
        if rng.random() < share and not is_right:
            count = int(rng.integers(1, 5))
            at = rng.integers(0, BLOCKS, count), rng.integers(0, THREADS, count)
            table[(*at, column)] = change(table[(*at, column)])

    plant(0.15, 0, lambda old: rng.integers(0, 60, len(old)) * 16)  # maybe on another's
    plant(0.1, 0, lambda old: old + 4)
    plant(0.1, 0, lambda old: old + 4096)
    plant(0.1, 1, lambda old: old + 8)
    plant(0.1, 1, lambda old: old + (1 << 14))
    plant(0.1, 2, lambda old: old + 4)
    plant(0.05, 2, lambda old: 0 * old)
    plant(0.05, 2, lambda old: 0 * old + 1024)
    flags = RIGHT
    for flag, share in (
        (WRITES, 0.6), (READS, 0.6), (EXPECT_FIRST, 0.5), (TWICE, 0.15), (CHANGES, 0.2),
        (NO_INIT, 0.08), (INIT_SYNC, 0.3), (FENCE, 0.25), (SYNC, 0.25), (WAIT, 0.15),
    ):  # fmt: skip
        if rng.random() < share and (not is_right or flag in HARMLESS):
            flags ^= flag
    active = table[0][table[0, :, 3] >= 0]
    expected = np.bincount(active[:, 3], active[:, 2], BARRIERS).astype(np.int32)
    expected *= 2 if flags & TWICE else 1
    if rng.random() < 0.2 and not is_right:
        expected -= expected // 32 * 16  # a phase ends amid the copies
        flags |= EXPECT_FIRST
    return Drawn(table, expected, flags, not is_right and bool(rng.random() < 0.1))


def launch(drawn: Drawn, emulator: Device) -> tuple[LaunchReport, np.ndarray[Any, Any]]:
    a = emulator.array(np.arange(4096, dtype=np.int32))
    if drawn.hole:
        a = emulator.empty((4096,), "int32")
        Kernel(TABLE, "fill").launch(64, THREADS, (a, 512, 530), device=emulator)
    out = np.zeros(BLOCKS * THREADS, np.int32)
    report = Kernel(TABLE, "k").launch(
        BLOCKS, THREADS, (a, drawn.table.reshape(-1), drawn.expected, out, drawn.flags),
        device=emulator, checks="collect", global_races=True,
    )  # fmt: skip
    return report, out


# Each fault is drawn by at least one of a plain run's seeds.
@pytest.mark.parametrize(
    "seeds", [(54, 57, 58, 101, 111, 132), pytest.param(range(150), marks=thorough)]
)
def test_at_once_is_as_one_after_another(
    seeds: Sequence[int], emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings, notes, counters and memory are the same, whatever faults there are."""
    taken: list[int] = []
    take = small_loads.SmallLoads.take

    def counted(self: small_loads.SmallLoads, first: int) -> int:
        taken.append(take(self, first))
        return taken[-1]

    monkeypatch.setattr(small_loads.SmallLoads, "take", counted)
    found: Counter[str] = Counter()
    for seed in seeds:
        drawn = draw(seed)
        monkeypatch.setattr(small_loads, "_LEAST", 2)
        report, out = launch(drawn, emulator)
        monkeypatch.setattr(small_loads, "_LEAST", 1 << 30)
        total = sum(taken)
        other, expected = launch(drawn, emulator)
        assert sum(taken) == total, "the other launch is to be one after another"
        assert report.findings == other.findings, seed
        assert (report.notes, report.counters) == (other.notes, other.counters), seed
        np.testing.assert_array_equal(out, expected, str(seed))
        found += Counter({finding.kind for finding in report.findings} or {"nothing"})
        found += Counter(fault for f in report.findings for fault in FAULTS if fault in f.message)
    assert [x for x in (*KINDS, *FAULTS) if not found[x]] == []
    assert sum(taken) > 20 * len(seeds)


MANY = (
    PRELUDE
    + r"""
extern "C" __global__ void k(const int* a, int* out) {
    __shared__ alignas(16) int s[1024];
    __shared__ unsigned long long b;
    int t = threadIdx.x, sum = 0;
    if (t == 0) MB_INIT(&b, 1);
    for (int i = t; i < 1024; i += 64) s[i] = i;
    __syncthreads();
    for (int i = t; i < 1024; i += 64) sum += s[i * 7 % 1024];
    PROXY_FENCE();
    __syncthreads();
    const int* from = a + 4;
    int *to = s + 4, *at = MANY ? to + 4 * t : to;
    if (MANY || t == 0) BULK_LOAD(at, from + (at - to), MANY ? 16 : 1024, &b);
    if (t == 0) MB_EXPECT(&b, 1024);
    MB_WAIT(&b, 0);
    out[t] = sum + to[t * 4];
}
"""
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        ("", "", ""),
        ("    PROXY_FENCE();\n", "", "race"),
        ("    PROXY_FENCE();\n    __syncthreads();\n", "", "race"),
        ("    __syncthreads();\n    const", "    s[t * 5] = t;\n    const", "race"),
        ("    MB_WAIT(&b, 0);\n", "", "race"),
        ("MB_EXPECT(&b, 1024)", "MB_EXPECT(&b, 1040)", "barrier"),
        ("    if (t == 0) MB_INIT(&b, 1);\n", "", "barrier"),
        ("from = a + 4", "from = a + 4096 - 128", "out of bounds"),
        ("from = a + 4", "from = a + 5", "misaligned"),
        ("*to = s + 4", "*to = s + 900", "out of bounds"),
        ("*to = s + 4", "*to = s + 5", "misaligned"),
        ("const int* from = a", "const int* from = out", "uninitialised"),
    ],
)
def test_many_small_copies_are_as_one(right: str, wrong: str, kind: str, emulator: Device) -> None:
    """A fault is found in the copies of 16 bytes by 64 lanes where it is in one of 1,024."""
    assert right in MANY
    found, results = [], []
    for is_many in (0, 1):
        out = emulator.empty((1024,), "int32")
        kernel = Kernel(MANY.replace(right, wrong), "k", {"MANY": is_many})
        report = kernel.launch(
            1, 64, (np.arange(4096, dtype=np.int32), out), device=emulator, checks="collect"
        )
        found.append({(f.kind, f.line) for f in report.findings})
        results.append(out.to_numpy()[:64])
    assert found[0] == found[1]
    kinds = {one for one, _ in found[0]}
    if "*to" in right:
        kinds.discard("barrier")  # what is not copied is waited for in vain
    assert kinds == ({kind} if kind else set())
    if not found[0]:
        np.testing.assert_array_equal(results[0], results[1])


def test_the_time_hardly_depends_on_how_many_they_are(emulator: Device) -> None:
    """Calls of Python functions are counted, in launches of a block of 64 threads and of 1,024."""
    source = MANY.replace("s[1024]", "s[4100]").replace("1024; i += 64", "4100; i += blockDim.x")
    source = source.replace("1024)", "16 * blockDim.x)")
    kernel = Kernel(source, "k", {"MANY": 1})
    counts = []
    for threads in (64, 1024):
        a, out = np.arange(4100, dtype=np.int32), np.zeros(1024, np.int32)
        calls = 0

        def counted(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        kernel.launch(1, threads, (a, out), device=emulator)
        sys.setprofile(counted)
        try:
            report = kernel.launch(1, threads, (a, out), device=emulator)
        finally:
            sys.setprofile(None)
        assert not report.findings
        counts.append(calls)
    assert counts[1] < 2 * counts[0], counts
