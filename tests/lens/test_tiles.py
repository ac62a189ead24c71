"""Tile sizes: the texts' own numbers, and every count against loads done one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.cli.main import main
from tilewise.devices import Device
from tilewise.devices.occupancy import Multiprocessor, multiprocessor, occupancy
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import run
from tilewise.ladder.rungs import rung
from tilewise.lens.tiles import SQUARES, THREAD_TILES, Shape, Tile, tiles

KB = 1024


def square(found: tuple[Tile, ...], tile: int) -> Tile:
    (one,) = (row for row in found if row.shape.name == f"TILE {tile}")
    return one


# ---- what the texts say ----


def test_a_phase_of_16_and_of_32() -> None:
    # University of Florence, "Tiled matrix multiplication", after Kirk and Hwu, ch. 4 to 6.
    found = tiles(1024, 1024, 1024)
    small, large = square(found, 16), square(found, 32)
    assert (small.shape.threads, large.shape.threads) == (256, 1024)
    assert (small.shape.loads, small.shape.operations) == (512, 8192)
    assert (large.shape.loads, large.shape.operations) == (2048, 65536)
    assert (small.shape.operations_a_load, large.shape.operations_a_load) == (16, 32)
    assert (small.shared_bytes, large.shared_bytes) == (2 * KB, 8 * KB)
    # "Traffic falls to 1/TILE."
    assert (small.traffic_ratio, large.traffic_ratio) == (1 / 16, 1 / 32)
    assert small.untiled_bytes == 1024**3 * 2 * 4


def test_blocks_of_a_multiprocessor_of_16_kilobytes() -> None:
    # The same: 16 KB of shared memory and 1,536 threads, as GPUs had then, and 8 blocks.
    place = Multiprocessor(threads=1536, blocks=8, shared=16 * KB, registers=32 * KB, name="then")
    found = tiles(1024, 1024, 1024, arch=place)
    small, large = square(found, 16).occupancy, square(found, 32).occupancy
    assert small is not None
    assert large is not None
    assert (small.by_shared, large.by_shared) == (8, 2)
    assert (small.by_warps, large.by_warps) == (1536 // 256, 1536 // 1024) == (6, 1)
    assert (small.blocks, small.limits, small.resident_threads) == (6, ("warps",), 1536)
    assert (large.blocks, large.limits, large.resident_threads) == (1, ("warps",), 1024)


def test_threads_by_registers_on_turing() -> None:
    # yuxiao, "CUDA Tiled Matrix Multiplication": 40 registers a thread, and 46 without branches.
    assert multiprocessor("sm_75").registers // 40 == 1638
    assert multiprocessor("sm_75").registers // 46 == 1424
    for registers in (40, 46):
        one = square(tiles(1024, 1024, 1024, arch="sm_75", registers=registers), 32)
        assert one.shared_bytes == 8192
        held = one.occupancy
        assert held is not None
        # By whole blocks of 1,024 threads, and in 1,024 threads, one.
        assert (held.by_registers, held.by_warps, held.by_shared) == (1, 1, 8)
        assert (held.blocks, held.resident_threads) == (1, 1024)
        assert held.limits == ("warps", "registers")
        assert held.share == 1
    # Registers are given out a warp, in units of 256, from four parts: 48 warps, and 40.
    assert occupancy("sm_75", 32, 40, 0).by_registers == 16384 // (40 * 32) * 4 == 48
    assert occupancy("sm_75", 32, 46, 0).by_registers == 16384 // 1536 * 4 == 40


def test_a_small_tile_beside_a_thread_that_computes_more() -> None:
    # A thread that computes 8 x 8 elements: 128 x 128 with as much shared memory as TILE 32.
    found = {row.shape.name: row for row in tiles(4096, 4096, 4096)}
    large, blocked = found["TILE 32"], found["128x128x8 of 8x8"]
    assert large.shared_bytes == blocked.shared_bytes == 8192
    assert (blocked.shape.threads, blocked.shape.accumulators) == (256, 64)
    assert blocked.traffic_bytes * 4 == large.traffic_bytes
    assert blocked.shape.operations_a_load == 2 * 128 * 128 / (128 + 128)
    assert (blocked.grid, blocked.blocks, blocked.phases) == ((32, 32, 1), 1024, 512)


# ---- counted one by one ----


def loads_of(shape: Shape, m: int, n: int, k: int) -> Iterator[list[bool]]:
    """Whether each element that a block may load in a phase is inside its matrix.

    In the order of the loading threads, 32 at a time: a warp's request each.
    """
    for top in range(0, m, shape.block_m):
        for left in range(0, n, shape.block_n):
            for p in range(0, k, shape.block_k):
                of_a = [
                    row < m and depth < k
                    for row in range(top, top + shape.block_m)
                    for depth in range(p, p + shape.block_k)
                ]
                of_b = [
                    depth < k and column < n
                    for depth in range(p, p + shape.block_k)
                    for column in range(left, left + shape.block_n)
                ]
                for inside in (of_a, of_b):
                    for first in range(0, len(inside), 32):
                        yield inside[first : first + 32]


SIZES = [(33, 17, 9), (5, 70, 40), (64, 64, 64), (1, 1, 1), (100, 37, 65)]


@pytest.mark.parametrize("tile", [2, 4, 8, 16, 32])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_traffic_of_square_tiles(tile: int, m: int, n: int, k: int, emulator: Device) -> None:
    found = square(tiles(m, n, k, "float32"), tile)
    requests = list(loads_of(found.shape, m, n, k))
    loaded = sum(map(sum, requests))
    assert found.loaded == loaded
    assert found.traffic_bytes == 4 * loaded
    a, b, _ = random_problem(m, n, k)
    report = run("tiled", a, b, tile=tile, device=emulator).report
    assert report is not None
    assert report.counters is not None
    assert report.launch.grid == found.grid
    assert report.resources.shared_bytes == found.shared_bytes
    # A request is a warp of which a thread at least is inside; and no thread asks for another's.
    assert report.counters.global_load_requests == sum(map(any, requests))
    assert report.counters.global_load_bytes == found.traffic_bytes
    # Each warp meets two barriers a phase.
    warps = -(-tile * tile // 32)
    assert report.counters.barriers == found.blocks * warps * found.phases * 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("tile", "dtype"), [(8, "float64"), (16, "float32"), (32, "float32")])
def test_full_tiles_are_full_requests(tile: int, dtype: str, emulator: Device) -> None:
    m, n, k = 2 * tile, 3 * tile, 4 * tile
    found = square(tiles(m, n, k, dtype), tile)
    a, b, _ = random_problem(m, n, k, dtype)
    report = run("tiled", a, b, tile=tile, device=emulator).report
    assert report is not None
    assert report.counters is not None
    assert report.counters.global_load_requests * 32 == found.loaded
    assert found.loaded == found.blocks * found.phases * found.shape.loads
    # And alpha once for each element of C.
    operations = found.blocks * found.phases * found.shape.operations
    assert report.counters.flops == operations + m * n
    untiled = run("coalesced", a, b, tile=tile, device=emulator).report
    assert untiled is not None
    assert untiled.counters is not None
    assert untiled.counters.global_load_requests * 32 == found.loaded_untiled
    assert found.loaded * tile == found.loaded_untiled


def test_what_nsight_compute_read() -> None:
    # On an H200, rung tiled, m = 640, n = 352, k = 128: full warps.
    assert square(tiles(640, 352, 128), 32).loaded == 56_320 * 32


SHAPES = st.sampled_from(SQUARES[1:4] + THREAD_TILES[:3] + (Shape(6, 4, 5, 3, 2),))


@given(SHAPES, st.integers(1, 70), st.integers(1, 70), st.integers(1, 20))
def test_any_shape(shape: Shape, m: int, n: int, k: int) -> None:
    (found,) = tiles(m, n, k, "float64", shapes=[shape])
    seen = list(loads_of(shape, m, n, k))
    assert found.loaded == sum(map(sum, seen))
    assert found.traffic_bytes == 8 * found.loaded
    # As many as there are, where nothing lies outside.
    assert found.blocks * found.phases * shape.loads == sum(map(len, seen))
    assert found.shared_bytes == 8 * shape.loads
    assert shape.operations == 2 * shape.threads * shape.accumulators * shape.block_k
    whole = 2 * found.blocks * found.phases * shape.multiply_adds
    assert whole >= 2 * m * n * k
    assert found.loaded_untiled == 2 * m * n * k
    # Every element is needed once at least; and none more often than with no tiles.
    assert m * k + k * n <= found.loaded <= found.loaded_untiled


def test_the_list_of_thread_tiles() -> None:
    for shape in THREAD_TILES:
        assert 64 <= shape.threads <= 512
        assert shape.loads % shape.threads == 0  # each thread loads as many
        assert shape.accumulators * 2 < 255  # also of doubles
    for dtype in ("float32", "float64"):
        for arch in ("sm_75", "sm_90", "sm_120"):
            for row in tiles(1000, 1000, 1000, dtype, arch):
                assert row.misfit == ""
                assert row.shared_bytes <= 48 * KB  # what a block has without asking
                assert row.occupancy is not None
                assert row.occupancy.blocks >= 1


def test_occupancy_of_each() -> None:
    for registers in (0, 100):
        for row in tiles(64, 64, 64, "float64", "sm_80", registers=registers):
            expected = occupancy("sm_80", row.shape.threads, registers, row.shared_bytes)
            assert row.occupancy == expected


# ---- what can't be launched ----


def test_tiles_that_no_block_can_have() -> None:
    small = Multiprocessor(threads=1536, blocks=8, shared=16 * KB, name="small")
    found = {row.shape.name: row for row in tiles(64, 64, 64, "float64", small)}
    deep = found["128x128x16 of 8x8"]
    assert deep.occupancy is None
    assert deep.misfit == (
        "128x128x16 of 8x8 takes 32,768 bytes of shared memory a block; a block of small has at "
        "most 16,384"
    )
    assert found["TILE 32"].occupancy is not None


def test_grids_that_are_too_large() -> None:
    tall = tiles(200_000, 5, 5)
    assert square(tall, 2).misfit == (
        "TILE 2 takes 100,000 blocks along y; a grid has at most 65,535"
    )
    assert square(tall, 2).occupancy is None
    assert square(tall, 2).loaded == 5 * (200_000 * 3 + 5 * 100_000)
    assert square(tall, 4).misfit == ""
    with pytest.raises(ValueError, match="100,000 blocks"):
        rung("tiled").geometry(200_000, 5, 2)


@pytest.mark.parametrize(
    ("extents", "words"),
    [
        ((0, 16, 16), "every extent must be at least 1"),
        ((64, 64, 8, 0, 4), "every extent must be at least 1"),
        ((64, 64, 8, 7, 4), r"64 x 64 can't be cut into threads' tiles of 7 x 4"),
        ((64, 64, 64), r"TILE 64 takes 4,096 threads; a block has at most 1,024"),
    ],
)
def test_shapes_that_are_none(extents: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Shape(*extents)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="k is 0; it must be from 1 to 2,147,483,647"):
        tiles(5, 5, 0)
    with pytest.raises(ValueError, match="m is 2,147,483,648"):
        tiles(2**31, 5, 5)
    with pytest.raises(TypeError, match=r"n is 5\.0; it must be an integer"):
        tiles(5, 5.0, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float16 is not supported; there are float32, float64"):
        tiles(5, 5, 5, "float16")
    with pytest.raises(ValueError, match="registers is 256; a thread has from 0 to 255"):
        tiles(5, 5, 5, registers=256, shapes=[])
    with pytest.raises(ValueError, match="sm_61 has is not known"):
        tiles(5, 5, 5, arch="sm_61")


# ---- the command ----


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def document(capsys: pytest.CaptureFixture[str], *words: Any) -> Any:
    assert main(["tiles", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "-m", 100, "-n", 90, "-k", 70, "--dtype", "float64", "--arch", "sm_86")
    sizes = {"m": 100, "n": 90, "k": 70, "dtype": "float64", "arch": "sm_86", "registers": 0}
    assert {name: found[name] for name in sizes} == sizes
    assert found["tiles"] == [row.to_dict() for row in tiles(100, 90, 70, "float64", "sm_86")]
    row = found["tiles"][3]
    assert (row["name"], row["loads"], row["operations"]) == ("TILE 16", 512, 8192)
    assert (row["grid"], row["blocks"], row["phases"]) == ([6, 7, 1], 42, 5)
    assert row["traffic_bytes"] == 8 * 70 * (100 * 6 + 90 * 7)
    assert row["occupancy"]["limits"] == ["warps"]


def test_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiles", "-m", "4096", "-n", "4096", "-k", "4096", "--dtype", "float64"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in out
    for row in tiles(4096, 4096, 4096, "float64"):
        mine = [line.removeprefix(row.shape.name).split() for line in lines
                if line.startswith(f"{row.shape.name} ")]  # fmt: skip
        phase, product, held = mine
        assert phase[3:6] == [f"{row.shape.loads:,}", f"{row.shape.multiply_adds:,}",
                              f"{row.shape.operations:,}"]  # fmt: skip
        assert product[2] == f"{row.traffic_bytes:,}"
        assert row.occupancy is not None
        assert held[:2] == [f"{row.occupancy.blocks:,}", f"{row.occupancy.resident_threads:,}"]
        assert " ".join(held[3:]) == ", ".join(row.occupancy.limits)
    assert "Registers, which may allow fewer blocks, are left out" in out


def test_registers_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tiles", "-m", "200000", "-n", "64", "-k", "64", "--registers", "40"]
    assert main([*words, "--arch", "sm_75"]) == 0
    out = capsys.readouterr().out
    assert "a multiprocessor (sm_75)" in out
    assert "Every tile is given 40 registers a thread." in out
    assert "no launch: TILE 2 takes 100,000 blocks along y" in " ".join(out.split())


def test_large_counts_are_rounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiles", "-m", "2000000000", "-n", "2000000000", "-k", "2000000000"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = [line.split() for line in out.splitlines() if line.startswith("TILE 2 ")]
    _, row, _ = rows  # a phase, the product, a multiprocessor
    # A quarter of C's elements, half of k, and half of what 2 m n k elements take.
    assert row[2:] == ["1.00E", "1.00G", "32.0R", "1/2"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["-m", "5", "-n", "5"], ["-k"]),
        (["-m", "0", "-n", "5", "-k", "5"], ["m is 0", "from 1"]),
        (["-m", "5", "-n", "5", "-k", "5", "--arch", "sm_70"], ["sm_70", "sm_75"]),
        (["-m", "5", "-n", "5", "-k", "5", "--registers", "300"], ["registers is 300", "255"]),
        (["-m", "5", "-n", "5", "-k", "5", "--dtype", "float16"], ["float16", "float64"]),
    ],
)
def test_bad_arguments(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tiles", *words]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in parts), told
    assert main(["tiles", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out).keys() == {"error", "kind"}
