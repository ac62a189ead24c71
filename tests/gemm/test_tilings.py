"""The Hopper kernel's tilings: what they cover, how they are divided, and which are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise, product
from timeit import repeat

import pytest
from hopper_reference import candidates
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import examples

from tilewise.devices.limits import max_shared
from tilewise.gemm.chip import H200 as H200_CHIP
from tilewise.gemm.chip import Chip
from tilewise.gemm.families.hopper import model
from tilewise.gemm.families.hopper.cover import Cover, cover
from tilewise.gemm.families.hopper.kernel import LARGEST
from tilewise.gemm.families.hopper.tiling import BLOCK_K, MOST_STAGES, Problem, Tiling

H200 = H200_CHIP.multiprocessors
GROUP_M = 16  # of hopper.cu


def chip(multiprocessors: int) -> Chip:
    """An H200 of so many multiprocessors."""
    return replace(H200_CHIP, multiprocessors=multiprocessors)


def chosen(problem: Problem, multiprocessors: int) -> tuple[Tiling, float]:
    """The tiling that should be fastest, and its seconds."""
    found = model.best([problem], [0.0], chip(multiprocessors))
    assert found is not None
    tiling, index, seconds = found
    assert index == 0
    return tiling, seconds


def possible(problem: Problem) -> list[Tiling]:
    """Every tiling that the kernel can take, sensible or not."""
    ways = ((1, False), (1, True), (2, False), (4, False))
    a, b = problem.a_unaligned, problem.b_unaligned
    every = (
        Tiling(block_m, block_n, *cluster, split, shared, swapped, *((b, a) if swapped else (a, b)))
        for block_m, block_n, cluster, (split, shared), swapped in product(
            (64, 128, 192, 256),
            range(16, 257, 16),
            ((1, 1), (2, 1), (1, 2), (2, 2)),
            ways,
            (False, True),
        )
    )
    return [t for t in every if not t.objection(problem.swapped if t.swapped else problem)]


POSSIBLE = [tiling for tiling in possible(Problem(1, 1, 4 * BLOCK_K)) if not tiling.swapped]


@dataclass(frozen=True)
class Part:
    """What one cluster computes of one tile, and the slot of the workspace that it goes to."""

    tile: int
    first: int
    last: int
    slot: int


def parts(at: Cover, unit: int) -> list[Part]:
    """As hopper.cu's Schedule goes from one to the next."""
    found = [
        Part(tile, 0, at.k_steps, -1) for tile in range(unit, at.data_parallel_tiles, at.clusters)
    ]
    if unit < at.tail_tiles * at.splits:
        part, tile = divmod(unit, at.tail_tiles)
        first, last = (first_k_step(at.k_steps, part + i, at.splits) for i in (0, 1))
        found.append(Part(at.data_parallel_tiles + tile, first, last, unit))
    return found


def first_k_step(k_steps: int, part: int, of: int) -> int:
    return k_steps * part // of


def summed(at: Cover, tile: int) -> list[int]:
    """The slots that hopper_sum adds up for a tile, in its order."""
    return [part * at.tail_tiles + tile - at.data_parallel_tiles for part in range(at.splits)]


def place(index: int, rows: int, columns: int) -> tuple[int, int, int]:
    """Row, column and batch of a tile, as hopper.cu's Tile has it."""
    batch, index = divmod(index, rows * columns)
    group, index = divmod(index, GROUP_M * columns)
    height = min(rows - group * GROUP_M, GROUP_M)
    return group * GROUP_M + index % height, index // height, batch


sizes = st.one_of(st.integers(1, 300), st.integers(1, 6000))
multiprocessors = st.one_of(st.just(H200), st.integers(2, 200))


@given(
    tiling=st.sampled_from(POSSIBLE), m=sizes, n=sizes, batch=st.integers(1, 3),
    count=multiprocessors,
)  # fmt: skip
def test_every_tile_is_computed_once(
    tiling: Tiling, m: int, n: int, batch: int, count: int
) -> None:
    at = cover(tiling, m, n, 64, batch, count)
    assert m <= at.m_tiles * tiling.block_m < m + tiling.block_m * tiling.cluster_m
    assert n <= at.n_tiles * tiling.block_n < n + tiling.block_n * tiling.cluster_n
    rows, columns = at.m_tiles // tiling.cluster_m, at.n_tiles // tiling.cluster_n
    assert rows * tiling.cluster_m == at.m_tiles
    assert columns * tiling.cluster_n == at.n_tiles
    found = {place(index, rows, columns) for index in range(at.tiles)}
    assert found == set(product(range(rows), range(columns), range(batch)))
    if tiling.split == 1:
        assert 1 <= at.clusters * tiling.tiles <= max(count, tiling.tiles)
    else:
        assert at.clusters == at.data_parallel_tiles == at.tiles  # a cluster for each


@examples(300)
@given(
    tiling=st.sampled_from(POSSIBLE), m=sizes, n=sizes, k=st.one_of(sizes, st.integers(1, 100000)),
    batch=st.integers(1, 3), count=multiprocessors,
)  # fmt: skip
def test_every_k_step_is_computed_once(
    tiling: Tiling, m: int, n: int, k: int, batch: int, count: int
) -> None:
    assume(not tiling.objection(Problem(m, n, k, batch)))
    at = cover(tiling, m, n, k, batch, count)
    assert at.k_steps == math.ceil(k / BLOCK_K)
    assert at.data_parallel_tiles + at.tail_tiles == at.tiles
    of_tile: dict[int, list[Part]] = {tile: [] for tile in range(at.tiles)}
    for unit in range(at.clusters):
        mine = parts(at, unit)
        assert mine
        for part in mine:
            of_tile[part.tile].append(part)
    for tile, all_parts in of_tile.items():
        all_parts.sort(key=lambda part: part.first)
        assert (all_parts[0].first, all_parts[-1].last) == (0, at.k_steps)
        assert all(one.last == other.first for one, other in pairwise(all_parts))
        assert all(part.first < part.last for part in all_parts)
        slots = [part.slot for part in all_parts]
        if tile < at.data_parallel_tiles:
            assert slots == [-1]
        else:
            assert slots == summed(at, tile)  # all that were written, in the order of k
    slots = [slot for tile in range(at.data_parallel_tiles, at.tiles) for slot in summed(at, tile)]
    assert sorted(slots) == list(range(at.tail_tiles * at.splits))  # no slot twice
    edges = [first_k_step(at.k_steps, rank, tiling.split) for rank in range(tiling.split + 1)]
    assert (edges[0], edges[-1]) == (0, at.k_steps)
    assert all(first < last for first, last in pairwise(edges))


def test_a_rest_with_few_k_steps() -> None:
    """One tile is left over, with fewer k-steps than there are clusters."""
    at = cover(Tiling(128, 128, stream_k=True), 133 * 128, 128, 512, 1, H200)
    assert (at.data_parallel_tiles, at.tail_tiles, at.splits, at.clusters) == (132, 1, 2, 132)
    assert [unit for unit in range(at.clusters) if len(parts(at, unit)) == 2] == [0, 1]


def test_the_rest_is_divided_where_that_leaves_fewer_idle() -> None:
    tiling = Tiling(128, 256, stream_k=True)
    at = cover(tiling, 128 * 17, 256 * 11, 4096, 1, H200)  # 187 tiles: one wave and 55
    assert (at.data_parallel_tiles, at.tail_tiles, at.splits, at.clusters) == (132, 55, 2, 132)
    at = cover(tiling, 128 * 20, 256 * 11, 4096, 1, H200)  # one wave and 88, of which none is idle
    assert (at.data_parallel_tiles, at.tail_tiles, at.splits, at.clusters) == (220, 0, 1, 132)
    at = cover(tiling, 128, 256, 4096, 1, H200)
    assert (at.data_parallel_tiles, at.tail_tiles, at.splits, at.clusters) == (0, 1, 16, 16)


large = st.one_of(st.integers(1, 300), st.integers(1, 30000), st.integers(1, LARGEST))
flag = st.booleans()
alignments = st.sampled_from([16, 32, 64, 128])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any that the kernel takes."""
    m, n, k = (draw(large) for _ in range(3))
    most = LARGEST // (math.ceil(m / 64) * math.ceil(n / 64))
    assume(most)
    batch = draw(st.one_of(st.just(1), st.integers(1, min(64, most)), st.integers(1, most)))
    a_unaligned, b_unaligned = draw(flag), draw(flag)
    return Problem(
        m, n, k, batch, draw(flag), draw(flag),
        16 if a_unaligned else draw(alignments), 16 if b_unaligned else draw(alignments),
        a_unaligned, b_unaligned,
        draw(flag), draw(flag),
    )  # fmt: skip


@examples(200)
@given(problem=problems(), count=multiprocessors)
def test_candidates(problem: Problem, count: int) -> None:
    found = list(candidates(problem, count))
    assert found
    assert len(set(found)) == len(found)
    for tiling in found:
        view = problem.swapped if tiling.swapped else problem
        assert tiling.objection(view) == ""
        assert 2 <= tiling.stages <= MOST_STAGES
        assert tiling.out_columns in (16, 32, 64)  # the widths of a swizzle
        assert tiling.block_n % tiling.out_columns == 0
        assert tiling.is_unaligned == (problem.a_unaligned or problem.b_unaligned)
        assert (tiling.a_unaligned, tiling.b_unaligned) == (view.a_unaligned, view.b_unaligned)
        raw_stages = tiling.raw_stages(view)
        if tiling.is_unaligned:  # a step and the one before, while another is on its way
            assert 3 <= raw_stages <= MOST_STAGES
        else:
            assert raw_stages == tiling.raw_bytes(view) == 0
        barriers = 2 * 8 * tiling.stages
        # Static shared memory comes first, and the ring begins at a multiple of 1024 bytes.
        shared_bytes = tiling.shared_bytes(view)
        assert shared_bytes + math.ceil(barriers / 1024) * 1024 <= max_shared("sm_90")
        assert tiling.tiles * tiling.split <= 8  # blocks of a portable cluster
        assert tiling.threads <= 1024
        a_rows = tiling.a_rows(view)
        assert a_rows >= min(view.m, tiling.block_m)
        assert a_rows // tiling.cluster_n % 8 == 0
        assert view.a_k_major or a_rows == tiling.block_m
        time = model.seconds_of(tiling, problem, chip(count))
        assert time > 0
        assert math.isfinite(time)
        at = cover(tiling, view.m, view.n, view.k, view.batch, count)
        assert at.tiles < 2**31
        assert (at.splits > 1) == tiling.stream_k
        if tiling.tiles > 2:
            assert at.clusters * tiling.tiles <= count * 10 / 11  # no more than run at a time


def test_clusters_of_four() -> None:
    """Not every multiprocessor has three others in its GPC, and some of 132 stay idle."""
    four = Tiling(128, 256, 2, 2)
    at = cover(four, 4096, 4096, 4096, 1, H200)  # 16 x 8 for clusters
    assert (at.clusters, at.data_parallel_tiles, at.tail_tiles) == (30, 128, 0)
    at = cover(four._replace(stream_k=True), 4096, 4096, 4096, 1, H200)
    assert (at.clusters, at.data_parallel_tiles, at.tail_tiles, at.splits) == (30, 120, 8, 3)
    found = [x for x in candidates(Problem(4096, 4096, 4096), H200) if x.tiles > 2]
    assert found
    assert {x.tiles for x in found} == {4, 8}
    assert [x for x in candidates(Problem(4096, 512, 4096), H200) if x.tiles > 2 and x.stream_k]
    # Not across the one row or column of tiles that there is, nor where tiles are realigned.
    for problem in (Problem(16, 4096, 4096), Problem(4096, 16, 4096)):
        for x in candidates(problem, H200):
            rows, columns = (4096, 16) if x.swapped == (problem.m == 16) else (16, 4096)
            assert x.cluster_m == 1 or 2 * rows > x.block_m * x.cluster_m
            assert x.cluster_n == 1 or 2 * columns > x.block_n * x.cluster_n
    unaligned = Problem(4096, 4096, 4096, a_unaligned=True)
    assert not [x for x in candidates(unaligned, H200) if x.tiles > 1]
    # With few k-steps, what is left over is not divided.
    found = candidates(Problem(4096, 512, 7 * BLOCK_K), H200)
    assert not [x for x in found if x.tiles > 2 and x.stream_k]
    # And not where the GPU has too few multiprocessors for one of them.
    assert not [x for x in candidates(Problem(4096, 4096, 4096), 4) if x.tiles > 2]


@given(problem=problems(), count=multiprocessors)
def test_chosen(problem: Problem, count: int) -> None:
    tiling, time = chosen(problem, count)
    found = candidates(problem, count)
    times = {one: model.seconds_of(one, problem, chip(count)) for one in found}
    assert time == pytest.approx(times[tiling], rel=1e-12)
    assert time == pytest.approx(min(times.values()), rel=1e-12)


def test_turned_twice_is_the_same() -> None:
    problem = Problem(1, 2, 3, 4, True, False, 16, 64, True, False, True, False)
    assert problem.swapped == Problem(2, 1, 3, 4, False, True, 64, 16, False, True, False, False)
    assert problem.swapped.swapped == problem


@pytest.mark.parametrize(
    "problem",
    [
        Problem(4494, 1041, 11529, a_k_major=False),
        Problem(8192, 8192, 8192),
        Problem(640, 700, 4096, 3),
        Problem(511, 513, 517, a_unaligned=True, b_unaligned=True),
        Problem(1, 1, 1),
        Problem(LARGEST, 64, LARGEST),
    ],
    ids=str,
)
def test_choosing_is_quick(problem: Problem) -> None:
    # The quickest of several: what else the machine does is none of its fault.
    assert min(repeat(lambda: chosen(problem, H200), number=1, repeat=7)) < 0.002


@pytest.mark.parametrize(
    ("tiling", "problem", "words"),
    [
        (Tiling(100, 64), Problem(1, 1, 1), "rows are one of 64, 128, 192, 256"),
        (Tiling(128, 264), Problem(1, 1, 1), "multiple of 16"),
        (Tiling(128, 24), Problem(1, 1, 1), "multiple of 16"),
        (Tiling(192, 256), Problem(1, 1, 1), "accumulators take 128 registers"),
        (Tiling(256, 256), Problem(1, 1, 1), "accumulators take 256 registers"),
        (Tiling(128, 80), Problem(1, 1, 1, b_k_major=False), "copied by TMA by 32"),
        (
            Tiling(64, 96, b_unaligned=True),
            Problem(1, 1, 1, b_k_major=False, b_unaligned=True),
            "realigned by 64",
        ),
        (Tiling(128, 128, 2, split=2), Problem(1, 1, 1), "by split-K or by stream-K"),
        (Tiling(128, 128, split=2, stream_k=True), Problem(1, 1, 1), "by split-K or by stream-K"),
        (Tiling(128, 128, split=2), Problem(1, 1, 64), "needs a k-step"),
        (Tiling(64, 64, split=4), Problem(1, 1, 192), "needs a k-step"),
        (Tiling(64, 64, split=2, ping_pong=True), Problem(1, 1, 128), "ping-pong excludes"),
        (
            Tiling(64, 64, a_unaligned=True, ping_pong=True),
            Problem(1, 1, 1, a_unaligned=True),
            "ping-pong excludes",
        ),
        (Tiling(128, 256, split=4), Problem(1, 1, 256), "into the pipeline's stages"),
        (Tiling(128, 128), Problem(1, 1, 1, a_unaligned=True), "differ in which"),
        (Tiling(128, 128, b_unaligned=True), Problem(1, 1, 1), "differ in which"),
        (Tiling(64, 64, b_unaligned=True), Problem(1, 1, 1, a_unaligned=True), "differ in which"),
        (
            Tiling(64, 64, 2, a_unaligned=True),
            Problem(1, 1, 1, a_unaligned=True),
            "cluster's blocks",
        ),
        (Tiling(128, 256, a_unaligned=True), Problem(1, 1, 1, a_unaligned=True), "128 registers"),
        (Tiling(192, 64, a_unaligned=True), Problem(1, 1, 1, a_unaligned=True), "32 registers"),
        (Tiling(64, 64, 2, 2, split=2), Problem(1, 1, 128), "by split-K or by stream-K"),
        (
            Tiling(128, 128, a_unaligned=True, b_unaligned=True),
            Problem(1, 1, 1, a_k_major=False, b_k_major=False, a_unaligned=True, b_unaligned=True),
            "too few stages fit into shared memory",
        ),
    ],
)
def test_objections(tiling: Tiling, problem: Problem, words: str) -> None:
    assert words in tiling.objection(problem)


def test_words() -> None:
    tiling = Tiling(128, 256, 2, stream_k=True)
    assert str(tiling) == ("tiles of 128 x 256, 4 stages, clusters of 2 x 1, stream-K tail")
    assert str(tiling._replace(cluster_m=1, split=2, stream_k=False, swapped=True)) == (
        "tiles of 128 x 256, 4 stages, split-K by 2, A and B swapped"
    )
    tiling = Tiling(64, 64, a_unaligned=True)
    assert str(tiling) == "tiles of 64 x 64, 4 stages, A realigned in shared memory"
    # With A and B swapped, what the kernel takes for A is B.
    assert str(tiling._replace(swapped=True)).endswith(
        "A and B swapped, B realigned in shared memory"
    )
    assert str(tiling._replace(b_unaligned=True)).endswith("A and B realigned in shared memory")


BOTH = {"a_unaligned": True, "b_unaligned": True}


@pytest.mark.parametrize(
    ("tiling", "k_major", "pieces"),
    [
        (Tiling(64, 64), (True, False), 0),
        # Along k, 128 bytes of each line: the next ones are the next k-step's.
        (Tiling(64, 64, a_unaligned=True), (True, True), 64),
        (Tiling(64, 128, b_unaligned=True), (False, True), 128),
        (Tiling(64, 80, b_unaligned=True), (True, True), 80),
        (Tiling(128, 64, **BOTH), (True, True), 128 + 64),
        # Across k, of 64 lines: those that hold the tile, and one more.
        (Tiling(64, 64, a_unaligned=True), (False, True), 64 * 2),
        (Tiling(64, 128, b_unaligned=True), (True, False), 64 * 3),
        (Tiling(256, 32, a_unaligned=True), (False, True), 64 * 5),
        (Tiling(64, 192, **BOTH), (False, False), 64 * (2 + 4)),
        (Tiling(128, 64, **BOTH), (False, True), 64 * 3 + 64),
    ],
    ids=str,
)
def test_the_ring_of_what_is_to_be_realigned(
    tiling: Tiling, k_major: tuple[bool, bool], pieces: int
) -> None:
    a_k_major, b_k_major = k_major
    view = Problem(
        1, 1, 1, a_k_major=a_k_major, b_k_major=b_k_major, a_unaligned=tiling.a_unaligned,
        b_unaligned=tiling.b_unaligned,
    )  # fmt: skip
    assert tiling.objection(view) == ""
    raw_bytes = tiling.raw_bytes(view)
    assert raw_bytes == 128 * pieces
    plain = tiling._replace(a_unaligned=False, b_unaligned=False)
    assert tiling.threads == plain.threads + (256 if pieces else 0)
    rest = max_shared("sm_90") - 1024 - tiling.stages * tiling.stage_bytes - tiling.out_bytes
    assert tiling.raw_stages(view) == (min(MOST_STAGES, rest // raw_bytes) if pieces else 0)
    assert max_shared("sm_90") - 1024 - tiling.shared_bytes(view) == (
        rest - tiling.raw_stages(view) * raw_bytes
    )


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (128, 50257, 768), (100, 200, 300)])
def test_realigning_is_thought_to_take_time(shape: tuple[int, int, int]) -> None:
    plain = Problem(*shape)
    _, time = chosen(plain, H200)
    for unaligned in (plain._replace(a_unaligned=True), plain._replace(b_unaligned=True)):
        tiling, longer = chosen(unaligned, H200)
        assert tiling.is_unaligned
        assert longer > time
