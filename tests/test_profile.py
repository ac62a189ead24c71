"""Profiles: their figures, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SOURCE, Tilewise

from tilewise.cli import main
from tilewise.devices import Device
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.ladder import RUNGS
from tilewise.lens.profile import Profile, profile_product
from tilewise.show.profile import short


class Printed:
    """One command line without ``--device``, carried out 80 columns wide."""

    def __init__(self, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
        self.code = main(words)
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err
        self.lines = self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


@pytest.fixture
def profile(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, emulator: Device
) -> Tilewise:
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *words: Printed(capsys, ["profile", *(str(word) for word in words)])  # type: ignore[return-value]


def figures(found: Profile) -> dict[str, Any]:
    return {f"{each.group}: {each.name}": each.value for each in found.figures()}


def test_what_nsight_compute_read(emulator: Device) -> None:
    """Of these launches, on an H200."""
    found = profile_product("tiled", 640, 352, 128)
    c = found.counters
    assert (c.global_load_requests, c.global_load_sectors) == (56_320, 225_280)
    assert found.blocks_run == 1
    found = profile_product("tiled_conflicts", 640, 352, 128)
    c = found.counters
    assert (c.shared_load_bank_conflicts, c.shared_store_bank_conflicts) == (6_307_840, 1_745_920)
    found = profile_product("coalesced", 600, 340, 100)
    c = found.counters
    assert (c.global_load_requests, c.global_load_sectors) == (1_320_000, 3_540_000)
    assert found.blocks_run == 4


def test_figures(emulator: Device) -> None:
    found = profile_product("tiled", 256, 256, 256, tile=16)
    rows = figures(found)
    loads = 2 * 256**3 // 16  # elements: 256 for each of C's, from each of 16 phases
    assert rows["global memory: load requests"] == loads // 32
    # A warp has two rows of 16 elements, 64 bytes each.
    assert rows["global memory: sectors a load request"] == 4
    assert rows["global memory: bytes of load sectors"] == 4 * loads
    assert rows["global memory: used of each sector, loads"] == 100
    assert rows["global memory: loaded, each sector once"] == 2 * 4 * 256**2
    assert rows["global memory: loaded, each sector once a block"] == 4 * loads
    assert rows["arithmetic: fused multiply-adds"] == 256**3
    assert rows["arithmetic: operations a byte of global memory"] == pytest.approx(
        found.counters.flops / (4 * loads + 4 * 256**2)
    )
    assert rows["control: mean active lanes"] == 32
    assert rows["resources: shared memory a block"] == 2 * 4 * 16**2
    assert rows["occupancy: blocks a multiprocessor"] == found.occupancy.blocks
    work = found.work
    assert work.flops == found.counters.flops
    assert work.dram_bytes == 3 * 4 * 256**2
    assert work.l2_bytes == 4 * loads + 4 * 256**2


def test_half_of_each_sector(emulator: Device) -> None:
    """Threads below one another read an element of each row."""
    rows = figures(profile_product("naive", 64, 64, 64))
    # Of B, a warp reads one element, the same for all: 4 bytes of a sector. Of A, 32.
    assert rows["global memory: sectors a load request"] == (32 + 1) / 2
    assert rows["global memory: used of each sector, loads"] == pytest.approx(100 * 4 / 32)


def test_doubles(emulator: Device) -> None:
    found = profile_product("tiled", 64, 64, 64, dtype="float64")
    c = found.counters
    assert (c.dfma, c.ffma) == (64**3, 0)
    assert found.work.dtype == "float64"


@pytest.mark.parametrize("name", [each.name for each in RUNGS])
def test_a_product_that_was_run_whole_is_checked(name: str, emulator: Device) -> None:
    found = profile_product(name, 16, 16, 16, alpha=2.0, beta=0.5)
    assert found.check is not None
    assert found.check.correct
    assert found.correct


def test_the_worst_line(emulator: Device) -> None:
    found = profile_product("tiled_conflicts", 64, 64, 64)
    assert found.worst_line is not None
    line, conflicts = found.worst_line
    assert "sb[tx][i]" in found.source.split("\n")[line - 1]
    assert conflicts == found.report.lines[line].shared_load_bank_conflicts > 0
    assert profile_product("tiled", 64, 64, 64).worst_line is None


def test_from_a_kernel(emulator: Device) -> None:
    source = """
extern "C" __global__ void copy(int n, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
"""
    kernel = Kernel(source, "copy")
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    found = kernel.profile(4, 250, (1000, x, y))
    assert found.counters.global_store_bytes == 4000
    assert not y.any()
    assert found.problem is None
    json.dumps(found.to_dict())
    with pytest.raises(MemoryAccessError):
        kernel.profile(4, 256, (1000, x, y))
    faulty = kernel.profile(4, 256, (1000, x, y), checks="collect")
    assert not faulty.correct
    with pytest.raises(ValueError, match="checks is 'on'"):
        kernel.profile(4, 250, (1000, x, y), checks="on")
    older = kernel.profile(4, 250, (1000, x, y), arch="sm_75")
    assert (older.arch, older.occupancy.max_warps) == ("sm_75", 32)


def test_table(profile: Tilewise) -> None:
    found = profile("tiled", "-m", 100, "-n", 70, "-k", 1000, "--tile", 16)
    assert found.code == 0
    assert "run: 4 blocks, the rest multiplied" in found.out
    assert "(0, 0) for 24, (4, 0) for 6, (0, 6) for 4, (4, 6) for 1" in " ".join(found.out.split())
    for group in ("global memory", "shared memory", "arithmetic", "control", "occupancy"):
        assert group in found.out
    assert max(map(len, found.out.splitlines())) <= 80


def test_two_side_by_side(profile: Tilewise) -> None:
    found = profile("naive", "coalesced", "-m", 64, "-n", 64, "-k", 64)
    assert found.code == 0
    (row,) = (line.split() for line in found.out.splitlines() if line.startswith("load sectors"))
    naive, coalesced, ratio = row[2:]
    # 128 warps, 64 of k: of A a sector each lane or one for all, of B one or four.
    assert (naive, coalesced) == (f"{128 * 64 * 33:,}", f"{128 * 64 * 5:,}")
    assert float(ratio) == pytest.approx(33 / 5, rel=5e-3)
    assert max(map(len, found.out.splitlines())) <= 80


def test_lines(profile: Tilewise) -> None:
    found = profile("tiled_conflicts", "-m", 512, "-n", 512, "-k", 512, "--lines")
    assert found.code == 0
    (row,) = (line for line in found.out.splitlines() if "sum += sa[i][ty]" in line)
    assert row.split()[1:4] == ["5.24M", "29.4M", "268M"]
    assert max(map(len, found.out.splitlines())) <= 80


def test_json(profile: Tilewise) -> None:
    found = profile("tiled", "-m", 100, "-n", 70, "-k", 1000, "--tile", 16, "--json")
    assert found.code == 0
    document = found.json
    assert (document["m"], document["n"], document["k"], document["tile"]) == (100, 70, 1000, 16)
    assert (document["blocks"], document["blocks_run"], document["checked"]) == (35, 4, False)
    assert sum(each["count"] for each in document["alike"]) == 35
    assert document["figures"]["global memory"]["load requests"] > 0
    assert document["lines"]
    two = profile("tiled", "naive", "-m", 8, "-n", 8, "-k", 8, "--tile", 4, "--json").json
    assert [each["kernel"] for each in two["kernels"]] == ["tiled", "naive"]


def test_whole_is_the_same(profile: Tilewise) -> None:
    words = ["tiled_branchless", "-m", 60, "-n", 50, "-k", 900, "--tile", 8, "--json"]
    some, whole = profile(*words).json, profile(*words, "--whole").json
    assert some["blocks_run"] < whole["blocks_run"] == some["blocks"]
    assert some["counters"] == whole["counters"]
    assert some["footprint"] == whole["footprint"]
    assert whole["checked"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.cu"
    path.write_text(SOURCE)
    return path


def test_a_wrong_result(profile: Tilewise, own: Path) -> None:
    found = profile(f"{own}:forgets_last", "-m", 20, "-n", 20, "-k", 20)
    assert found.code == 1
    assert "result: WRONG against float64" in found.out


def test_a_fault(profile: Tilewise, own: Path) -> None:
    found = profile(f"{own}:no_guard", "-m", 20, "-n", 20, "-k", 20)
    assert found.code == 1
    assert "found: " in found.out
    assert "out of bounds" in " ".join(found.out.split())


def test_what_was_loaded_decides(profile: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "sparse.cu"
    element = "a[row * lda + p]"
    path.write_text(SOURCE.replace(f"sum += {element}", f"if ({element} != 0) sum += {element}"))
    found = profile(f"{path}:talks", "-m", 300, "-n", 300, "-k", 30)
    assert found.code == 0
    assert "every block was run" in found.out
    assert "call is not followed" in " ".join(found.out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiled", "-m", "0"], "m is 0; to be profiled, a product has at least 1 of each"),
        (["tiled", "-k", "-1"], "k is -1"),
        (["tiled", "naive", "coalesced"], "3 kernels are named"),
        (["tield"], "no kernel called 'tield'"),
        (["tiled", "--tile", "33"], "tile is 33"),
        (["tiled", "--arch", "sm_12"], "sm_12"),
        (["nothing.cu:there"], "there is no file nothing.cu"),
    ],
)
def test_bad_input(profile: Tilewise, words: list[str], message: str) -> None:
    found = profile(*words)
    assert found.code == 2
    assert message in " ".join(found.err.split())
    assert not found.out


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (9999, "9999"), (10_000, "10.0k"), (123_456, "123k"), (6_307_840, "6.31M"),
     (999_999, "1.00M"), (12_345_678_901, "12.3G")],
)  # fmt: skip
def test_short(count: int, text: str) -> None:
    assert short(count) == text
