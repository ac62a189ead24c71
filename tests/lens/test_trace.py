"""Traces: what is recorded is what ran."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import examples, held, thorough

from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.devices.emulator.recording import recorder as recording
from tilewise.kernel import Kernel
from tilewise.ladder.problem import random_problem
from tilewise.ladder.rungs import rung, rungs_of
from tilewise.launch import Launch
from tilewise.lens.trace import record
from tilewise.precision import dtype_of

TILED = [each.name for each in rungs_of("float32") if each.default_tile is not None]
HALF = ["tensor_core", "ldmatrix", "multistage"]
SIGNATURE = """(int m, int n, int k, real alpha, const real* a, int lda,
    const real* b, int ldb, real beta, real* c, int ldc)"""
# Two buffers, and one barrier a tile: the next tile is loaded while this one is used.
BUFFERED = (
    """
__device__ void copy(real* to, const real* from, bool is_there) {
#ifdef ASYNC
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
        :: "r"(at), "l"(from), "r"(is_there ? (int)sizeof(real) : 0), "n"(sizeof(real)) : "memory");
#else
    *to = is_there ? *from : 0;
#endif
}

__device__ void wait() {
#ifdef ASYNC
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
}

extern "C" __global__ void buffered"""
    + SIGNATURE
    + """ {
    __shared__ real sa[2][TILE][TILE], sb[2][TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    auto load = [&](int p, int at) {
        bool in_a = row < m && p + tx < k, in_b = p + ty < k && col < n;
        copy(&sa[at][ty][tx], a + (in_a ? row * lda + p + tx : 0), in_a);
        copy(&sb[at][ty][tx], b + (in_b ? (p + ty) * ldb + col : 0), in_b);
    };
    real sum = 0;
    int now = 0;
    load(0, now);
    for (int p = 0; p < k; p += TILE) {
        wait();
        if (p + TILE < k) load(p + TILE, now ^ 1);
        for (int i = 0; i < TILE; ++i) sum += sa[now][ty][i] * sb[now][i][tx];
        now ^= 1;
    }
    if (row < m && col < n) c[row * ldc + col] = alpha * sum;
}
"""
)


def own(body: str) -> Kernel:
    """A kernel with the ladder's signature."""
    return Kernel(f'extern "C" __global__ void own{SIGNATURE} {{ {body} }}', "own")


def threads(step: dict[str, Any]) -> list[int]:
    return [t for first, count in step["threads"] for t in range(first, first + count)]


def numbers(values: Any) -> Any:
    return np.array(values, np.float64)


@examples(40, quick=2)
@given(
    st.sampled_from([*TILED, *HALF]), *(st.integers(1, 9) for _ in "mnk"), st.integers(0, 2),
    st.integers(0, 1), st.sampled_from([0.0, 0.5]),
)  # fmt: skip
def test_the_blocks_parts_of_the_product(
    name: str, m: int, n: int, k: int, which: int, other: int, beta: float
) -> None:
    """Loads give what is in A and B, and stores what C becomes; shared memory gives it back."""
    dtype = held(rung(name).dtypes)[-other]
    few = (2, 3, 4) if isinstance(rung(name).tiles, range) else rung(name).tiles[:1]
    tile = few[which % len(few)]
    grid, _ = rung(name).geometry(m, n, tile)
    blocks = [(x, y, 0) for x in range(grid[0]) for y in range(grid[1])]
    trace = record(name, m, n, k, tile=tile, dtype=dtype, beta=beta, blocks=blocks).to_dict()
    a, b, c = random_problem(m, n, k, dtype, 0)
    matrices = {"a": a, "b": b, "c": c}
    result = np.full((m, n), np.nan)
    for block in trace["blocks"]:
        assert not block["cut"]
        shared: dict[int, float] = {}
        for step in block["steps"]:
            assert len(threads(step)) == len(set(threads(step)))
            if step["kind"] not in ("load", "store"):
                continue
            if "layout" in step:  # rows of 16 bytes, of what was stored
                assert {at + i for at in step["at"] for i in range(0, 16, 2)} <= set(shared)
                continue
            values = numbers(step["values"])
            assert len(values) == len(step["at"]) == len(threads(step))
            # Several elements a thread, side by side.
            wide = values.reshape(len(values), -1)
            beside = np.arange(wide.shape[1])
            if step["space"] == "shared":
                width = dtype_of(dtype).itemsize
                places = np.array(step["at"])[:, None] + width * beside
                found = dict(zip(places.ravel().tolist(), wide.ravel().tolist(), strict=True))
                if step["kind"] == "store":
                    shared.update(found)
                else:
                    assert {place: shared[place] for place in found} == found
                continue
            places = np.array(step["at"])[:, None] + beside
            if step["kind"] == "load":
                flat = matrices[step["array"]].reshape(-1)[places].astype(np.float64)
                assert wide == pytest.approx(flat, rel=1e-5)
            else:
                assert step["array"] == "c"
                result.reshape(-1)[places] = wide
    expected = a.astype(np.float64) @ b.astype(np.float64) + beta * c.astype(np.float64)
    near = 1e-4 if name in TILED else 2e-2
    assert result == pytest.approx(expected, rel=near, abs=near)


def test_counts_are_the_launchs(emulator: Device) -> None:
    """Of all blocks together, those of the report."""
    m, n, k, tile = 7, 6, 5, 4
    grid, block = rung("tiled").geometry(m, n, tile)
    blocks = [(x, y, 0) for x in range(grid[0]) for y in range(grid[1])]
    steps = [
        step
        for each in record("tiled", m, n, k, tile=tile, blocks=blocks).to_dict()["blocks"]
        for step in each["steps"]
    ]
    a, b, _ = random_problem(m, n, k)
    c = emulator.empty((m, n), np.float32)
    args = (m, n, k, 1.0, emulator.array(a), k, emulator.array(b), n, 0.0, c, n)
    counters = rung("tiled").kernel(tile=tile).launch(grid, block, args, device=emulator).counters
    assert counters is not None
    for kind in ("load", "store"):
        for space in ("global", "shared"):
            mine = [s for s in steps if (s["kind"], s.get("space")) == (kind, space)]
            requests = sum(step["requests"] for step in mine)
            assert requests == getattr(counters, f"{space}_{kind}_requests")
        mine = [s for s in steps if (s["kind"], s.get("space")) == (kind, "global")]
        assert sum(step["sectors"] for step in mine) == getattr(counters, f"global_{kind}_sectors")


def test_phases_and_the_step_to_open_on() -> None:
    trace = record("tiled", 4, 4, 6, tile=2).to_dict()
    (first, last) = trace["blocks"]
    assert (first["index"], last["index"]) == ([0, 0, 0], [1, 1, 0])
    steps = first["steps"]
    phases = [step["phase"] for step in steps if step["phase"] is not None]
    assert phases == sorted(phases)
    assert set(phases) == {0, 1, 2}
    opened = steps[first["first"]]
    assert (opened["kind"], opened["space"], opened["phase"]) == ("load", "shared", 0)
    assert trace["shared"][0] == {
        "name": "sa", "offset": 0, "bytes": 16, "element": 4, "rows": 2, "columns": 2,
        "extents": [2, 2],
    }  # fmt: skip
    assert (
        trace["source"].split("\n")[opened["line"] - 1].strip() == "sum += sa[ty][i] * sb[i][tx];"
    )
    assert json.loads(json.dumps(trace)) == trace


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("k", "tile"), [(3, 3), (7, 2), pytest.param(17, 8, marks=thorough)])
def test_two_buffers_have_a_phase_a_tile(k: int, tile: int, is_async: bool, dtype: str) -> None:
    """In phase p, tile p of A is read, and tile p + 1 is loaded."""
    defines = {"ASYNC": True} if is_async else {}
    trace = record(
        Kernel(BUFFERED, "buffered", defines), tile, tile + 1, k, tile=tile, dtype=dtype
    ).to_dict()
    tiles = -(-k // tile)
    a, b, _ = random_problem(tile, tile + 1, k, dtype, 0)
    padded = np.zeros((tile, tiles * tile))
    padded[:, :k] = a
    assert len(trace["blocks"]) == 2
    for block in trace["blocks"]:
        phases = [step["phase"] for step in block["steps"]]
        known = [phase for phase in phases if phase is not None]
        assert known == sorted(known)
        assert set(known) == set(range(tiles))
        shared: dict[int, float] = {}
        size = tile * tile * a.itemsize
        for phase in range(tiles):
            read: set[float] = set()
            for step in block["steps"]:
                if step["phase"] != phase or step.get("space") != "shared":
                    continue
                values = numbers(step["values"]).reshape(len(step["at"]), -1)
                for place, row in zip(step["at"], values.tolist(), strict=True):
                    for i, value in enumerate(row):
                        at = place + i * a.itemsize
                        if step["kind"] == "store":
                            shared[at] = value
                        else:
                            assert shared[at] == value
                            read |= {value} if at < 2 * size else set()  # sa, the first of two
            expected = padded[:, phase * tile : (phase + 1) * tile]
            assert sorted(read) == pytest.approx(np.unique(expected), rel=1e-5)
        loads = {(s["phase"], s["array"]) for s in block["steps"]
                 if (s["kind"], s.get("space")) == ("load", "global")}  # fmt: skip
        # The first two tiles are loaded in phase 0; in the last phase none is.
        assert loads == set(itertools.product(range(max(tiles - 1, 1)), "ab"))
        columns = range(tile) if block["index"][0] == 0 else range(tile, tile + 1)
        (store,) = (s for s in block["steps"] if (s["kind"], s.get("array")) == ("store", "c"))
        product = (a.astype(np.float64) @ b)[:, columns].reshape(-1)
        assert store["values"] == pytest.approx(product, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # No barrier; barriers, and nothing read from shared memory; no barrier between.
        ("c[0] = a[0];", [None]),
        ("__syncthreads(); c[0] = a[0]; __syncthreads();", [None]),
        ("s[t] = a[0]; c[t] = s[t];", [None]),
        # One warp's own barrier parts nothing.
        ("s[t] = a[0]; __syncwarp(); c[t] = s[3 - t];", [None]),
        # What comes before the first load belongs to none; what is behind the last read neither.
        ("s[t] = 1; __syncthreads(); real x = a[0] + s[0]; __syncthreads(); c[0] = x;",
         [None, 0, None]),
        # Filled once, and then read in every interval.
        ("s[t] = a[0]; for (int i = 0; i < k; ++i) { __syncthreads(); c[i] = s[0]; }",
         [None, 0, 1, 2, 3]),
        # Two intervals to load, one to use.
        ("for (int i = 0; i < k; ++i) { s[t] = a[i]; __syncthreads(); s[4 + t] = b[i];"
         "__syncthreads(); c[i] = s[0] + s[4]; __syncthreads(); }", [None, 0, 1, 2, 3, None]),
    ],
)  # fmt: skip
def test_phases_end_where_shared_memory_is_read(body: str, expected: list[int | None]) -> None:
    kernel = own(f"""
        __shared__ volatile real s[8];
        int t = threadIdx.y * TILE + threadIdx.x;
        {body}
    """)
    steps = record(kernel, 2, 4, 4, tile=2, beta=1.0).to_dict()["blocks"][0]["steps"]
    assert [phase for phase, _ in itertools.groupby(step["phase"] for step in steps)] == expected


def test_phases_never_go_back() -> None:
    """Warps that part, and named barriers of a part of the block, which one of them runs ahead
    of."""
    kernel = own("""
        __shared__ volatile real s[64];
        int t = threadIdx.y * TILE + threadIdx.x;
        real sum = 0;
        for (int i = 0; i < k; ++i) {
            s[t] = a[i];
            if (t >= 32) { asm volatile("bar.sync 1, 32;" ::: "memory"); sum += s[32]; }
            else for (int j = 0; j < t % 3; ++j) { __syncwarp(__activemask()); sum += b[j]; }
            __syncthreads();
            sum += s[63 - t];
            if (t < 32) asm volatile("bar.arrive 2, 64;" ::: "memory");
            else asm volatile("bar.sync 2, 64;" ::: "memory");
            __syncthreads();
        }
        if (t < n) c[t] = sum;
    """)
    block = record(kernel, 1, 8, 5, tile=8).to_dict()["blocks"][0]
    known = [step["phase"] for step in block["steps"] if step["phase"] is not None]
    assert known == sorted(known)
    assert set(known) == set(range(10))  # the halves of each turn both read
    said = {step["scope"]: step["say"] for step in block["steps"] if step["kind"] == "barrier"}
    assert set(said) == {"block", "part", "warp"}
    assert "a barrier of a part of the block" in said["part"]
    assert said["warp"].endswith("for the others of the warp.")


@pytest.mark.parametrize(("place", "space"), [("c + n - 1", "global"), ("s + 2", "shared")])
def test_atomics_find_and_leave(place: str, space: str) -> None:
    """Threads of one address take turns: each finds what the one before has left."""
    kernel = own(f"""
        __shared__ real s[4];
        if (threadIdx.x == 0) s[2] = c[n - 1];
        __syncthreads();
        int t = threadIdx.y * TILE + threadIdx.x;
        if (t != 1) c[t] = atomicAdd({place}, a[t]);
    """)
    trace = record(kernel, 1, 4, 4, tile=2, beta=1.0, blocks=[(0, 0, 0)]).to_dict()
    (step,) = (s for s in trace["blocks"][0]["steps"] if s["kind"] == "atomic")
    a, _, c = random_problem(1, 4, 4)
    standing, found = np.float32(c[0, 3]), []
    for thread in (0, 2, 3):
        found.append(standing)
        standing = np.float32(standing + a[0, thread])
    assert (step["space"], threads(step)) == (space, [0, 2, 3])
    assert step["values"] == pytest.approx(found, rel=1e-5)
    assert step["left"] == pytest.approx([standing] * 3, rel=1e-5)
    assert step["at"] == [3 if space == "global" else 8] * 3
    assert "each finds what the one before has left" in step["why"]


def test_atomics_at_places_of_their_own() -> None:
    """A reduction is not told what was there; bits in a matrix are its numbers."""
    kernel = own("""
        int t = threadIdx.y * TILE + threadIdx.x;
        asm volatile("red.global.add.f32 [%0], %1;" :: "l"(c + t), "f"(2.0f) : "memory");
        float old;
        asm volatile("atom.global.exch.b32 %0, [%1], %2;"
            : "=f"(old) : "l"(c + t), "f"(0.5f) : "memory");
    """)
    trace = record(kernel, 1, 4, 4, tile=2, beta=1.0, blocks=[(0, 0, 0)]).to_dict()
    added, exchanged = (s for s in trace["blocks"][0]["steps"] if s["kind"] == "atomic")
    c = random_problem(1, 4, 4)[2][0]
    assert "values" not in added
    assert added["left"] == exchanged["values"] == pytest.approx(c + 2, rel=1e-5)
    assert exchanged["left"] == [0.5] * 4
    assert "take turns" not in added.get("why", "")


def test_addresses_say_which_sectors() -> None:
    """A warp's elements lie in as many 32-byte pieces as the step made sectors."""
    trace = record("naive", 9, 10, 11, blocks=[(0, 0, 0)]).to_dict()
    arrays = {each["name"]: each for each in trace["arrays"]}
    seen = 0
    for step in trace["blocks"][0]["steps"]:
        if step.get("space") != "global":
            continue
        sectors = {
            (thread // 32, (arrays[step["array"]]["address"] + 4 * at) // 32)
            for thread, at in zip(threads(step), step["at"], strict=True)
        }
        assert step["sectors"] == len(sectors)
        seen += 1
    assert seen


def test_sentences() -> None:
    steps = record("tiled", 3, 3, 3, tile=2, blocks=[(1, 1, 0)]).to_dict()["blocks"][0]["steps"]
    loads = [step for step in steps if step["kind"] == "load" and step["space"] == "global"]
    assert loads[0]["say"] == (
        "2 of 4 threads load row 2, columns 0 to 1 of A: 1 sector, 25 % of it used."
    )
    assert loads[0]["why"].startswith("1 of these threads owns no element of C, and loads for")
    said = [step["say"] for step in steps]
    assert "All 4 threads read sb, row 0, columns 0 to 1: no bank conflict." in said
    assert "Thread 0 stores row 2, column 2 of C: 1 sector, 12.5 % of it used." in said
    barrier = next(step for step in steps if step["kind"] == "barrier")
    assert barrier["say"] == "All 4 threads wait at the barrier."
    assert "whole block" in barrier["why"]
    assert all(re.fullmatch(r"[A-Z0-9].*\.", step["say"]) for step in steps)


def test_conflicts_say_why() -> None:
    steps = record("tiled_conflicts", 32, 32, 32).to_dict()["blocks"][0]["steps"]
    worst = max(steps, key=lambda step: step.get("conflicts", 0))
    assert worst["conflicts"] > 0
    assert f"{worst['conflicts']} bank conflicts" in worst["say"]
    assert "served in turn" in worst["why"]
    joined = [
        step["say"] for step in steps if step.get("space") == "shared" and not step["requests"]
    ]
    assert joined
    assert all(said.endswith("served by the wider access of a step before.") for said in joined)


def test_a_long_run_is_cut() -> None:
    trace = record("tiled", 8, 8, 64, tile=8, most=50).to_dict()
    assert all(block["cut"] and len(block["steps"]) <= 50 for block in trace["blocks"])


def test_a_cut_run_ends_there() -> None:
    """One thread does 2^27 multiplications here, which nobody waits for."""
    trace = record("single_thread", 512, 512, 512, most=300).to_dict()
    assert trace["blocks"][0]["cut"]


def test_a_cut_block_leaves_the_next_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is cut where it has too many threads' events, too."""
    whole = record("tiled", 8, 8, 4, tile=4).to_dict()["blocks"]
    cut = record("tiled", 8, 8, 4, tile=4, most=60).to_dict()["blocks"]
    monkeypatch.setattr(recording, "MOST_LANES", 60 * 16)
    too_many = record("tiled", 8, 8, 4, tile=4).to_dict()["blocks"]
    assert cut == too_many
    for block, short in zip(whole, cut, strict=True):
        assert (block["cut"], short["cut"]) == (False, True)
        count = len(short["steps"])
        assert 0 < count < len(block["steps"])
        for step, other in zip(block["steps"], short["steps"], strict=False):
            for name in ("i", "threads", "at", "values", "sectors"):
                assert step.get(name) == other.get(name)


def test_not_a_number_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text("""
extern "C" __global__ void own(int m, int n, int k, real alpha, const real* a, int lda,
    const real* b, int ldb, real beta, real* c, int ldc) {
    c[0] = 0 * (1 / (alpha - 1));
}
""")
    steps = record(f"{path}:own", 1, 1, 1, tile=2).to_dict()["blocks"][0]["steps"]
    (store,) = (step for step in steps if step["kind"] == "store")
    assert set(store["values"]) == {"nan"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"m": 0}, "m is 0; it must be from 1 to 2,147,483,647"),
        ({"k": 2**31}, "k is 2,147,483,648; it must be from 1 to 2,147,483,647"),
        ({"alpha": float("nan")}, "alpha is nan; it must be finite"),
        ({"blocks": [(5, 0, 0)]}, r"there is no block \(5, 0, 0\): the grid is 1 x 1 x 1"),
        ({"tile": 40}, "tile is 40"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(**{"target": "tiled", "m": 2, "n": 2, "k": 2, "tile": 2, **arguments})


def test_nothing_is_wrapped_where_nobody_records() -> None:
    emulator = Emulator()
    kernel = rung("tiled").kernel(tile=2)
    c = emulator.empty((2, 2), np.float32)
    ones = emulator.array(np.ones((2, 2), np.float32))
    args = (2, 2, 2, 1.0, ones, 2, ones, 2, 0.0, c, 2)
    launch = Launch((1, 1, 1), (2, 2, 1), args)
    report, recordings = emulator.record(kernel.compile(emulator.arch), launch, [(0, 0, 0)])
    plain = emulator.launch(kernel.compile(emulator.arch), launch)
    assert report.counters == plain.counters
    assert recordings[0].events


def test_another_signature() -> None:
    kernel = Kernel('extern "C" __global__ void other(float* x) { x[0] = 1; }', "other")
    with pytest.raises(
        TypeError, match=r"has the signature other\(int m, int n, int k, real alpha"
    ):
        record(kernel, 2, 2, 2)


def test_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 256)
    with pytest.raises(MemoryError, match="the matrices, of numbers, and their copies take"):
        record("tiled", 100, 100, 100)
