"""The command line: right answers, wrong kernels, files in and out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SOURCE, Tilewise, matrix, save
from reference import thorough

from tilewise.cli.commands.options import command_line
from tilewise.cli.main import main
from tilewise.devices import Device
from tilewise.kernel import Kernel
from tilewise.ladder import matrix_files
from tilewise.ladder.run import run
from tilewise.ladder.rungs import RUNGS, rung

COUNTERS = {
    "global_load_requests",
    "global_load_sectors",
    "global_store_requests",
    "global_store_sectors",
    "shared_load_requests",
    "shared_store_requests",
    "shared_load_bank_conflicts",
    "shared_store_bank_conflicts",
    "barriers",
    "flops",
}


# ---- right results ----


def test_run_as_json(tilewise: Tilewise, device: Device) -> None:
    found = tilewise("run", "tiled", "-m", 40, "-n", 50, "-k", 33, "--tile", 16, "--json")
    assert found.code == 0
    assert found.err == ""
    result = found.json
    assert (result["m"], result["n"], result["k"], result["tile"]) == (40, 50, 33, 16)
    assert result["correct"] is True
    assert 0 < result["max_error"] <= result["bound"]
    assert result["device"] == device.name
    assert result["seconds"] > 0
    assert result["resources"]["registers"] > 0
    assert result["resources"]["shared_bytes"] == 2 * 16 * 16 * 4
    assert result["resources"]["spill_bytes"] == 0
    if device.name == "emulator":
        assert result["counters"].keys() >= COUNTERS
        # 3 x 4 blocks of 8 warps, each of which meets two barriers in each of 3 phases.
        assert result["counters"]["barriers"] == 12 * 8 * 3 * 2


def test_run_table_fits_80_columns(tilewise: Tilewise, device: Device) -> None:
    found = tilewise("run", "tiled", "-m", 33, "-n", 33, "-k", 33, "--tile", 8)
    assert found.code == 0
    assert "right" in found.out
    assert "registers a thread" in found.out
    assert max(map(len, found.out.splitlines())) <= 80
    if device.name == "emulator":
        assert "bank conflicts" in found.out


def test_same_seed_same_error(tilewise: Tilewise) -> None:
    words = ("run", "coalesced", "-m", 9, "-n", 9, "-k", 9, "--json", "--seed")
    errors = [tilewise(*words, seed).json["max_error"] for seed in (1, 1, 2)]
    assert errors[0] == errors[1] != errors[2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_matrices_in_and_out(
    tilewise: Tilewise, device: Device, tmp_path: Path, dtype: str
) -> None:
    a, b, c = matrix(7, 5, dtype), matrix(5, 9, dtype), matrix(7, 9, dtype)
    # As files may be: column by column, or of the other byte order.
    save(tmp_path, a=np.asfortranarray(a), b=b.astype(b.dtype.newbyteorder()), c=c)
    out = tmp_path / "out.npy"
    found = tilewise(
        "run", "tiled", "--tile", 4, "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy",
        "--c", tmp_path / "c.npy", "--alpha", 2, "--beta", -0.5, "--out", out, "--json",
    )  # fmt: skip
    assert found.code == 0
    result = found.json
    assert (result["correct"], result["dtype"], result["out"]) == (True, dtype, str(out))
    written = np.load(out)
    assert written.dtype == dtype
    expected = run("tiled", a, b, c, alpha=2, beta=-0.5, tile=4, device=device)
    assert np.array_equal(written, expected.result)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.npy", "b.npy", "c.npy", "out.npy",
    ]  # fmt: skip


def test_nothing_to_compute(tilewise: Tilewise) -> None:
    assert tilewise("run", "tiled", "-m", 0, "--json").json["correct"] is True
    found = tilewise("run", "tiled", "-m", 0)
    assert (found.code, "C has no elements" in found.out) == (0, True)


def test_an_infinite_error_is_null_in_json(
    tilewise: Tilewise, tmp_path: Path, source: Path
) -> None:
    a = np.zeros((3, 3), np.float32)
    a[0, 2] = np.inf  # what forgets_last forgets
    save(tmp_path, a=a, b=np.ones((3, 3), np.float32))
    files = ("--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy")
    found = tilewise("run", f"{source}:forgets_last", *files, "--json")
    assert (found.code, found.json["correct"], found.json["max_error"]) == (1, False, None)


# ---- the ladder and the demo ----


@thorough
def test_ladder_has_a_row_a_rung(tilewise: Tilewise, device: Device) -> None:
    found = tilewise("ladder", "-m", 40, "-n", 40, "-k", 24, "--tile", 8, "--json")
    assert found.code == 0
    document = found.json
    assert [row["kernel"] for row in document["rungs"]] == [each.name for each in RUNGS]
    assert document["correct"] is True
    rows = {row["kernel"]: row for row in document["rungs"]}
    assert (rows["single_block"]["m"], rows["single_block"]["n"]) == (32, 32)
    assert "1,024" in rows["single_block"]["size_note"]
    assert (rows["tiled"]["m"], rows["tiled"]["size_note"]) == (40, "")
    if device.name == "emulator":
        assert rows["single_thread"]["m"] == 32
        counters = {name: row["counters"] for name, row in rows.items()}
        assert counters["tiled"]["shared_load_bank_conflicts"] == 0
        assert counters["tiled_conflicts"]["shared_load_bank_conflicts"] > 0
        # 40 and 24 are multiples of 8: no load is left out at an edge, so exactly 1/TILE of them.
        ratio = (
            counters["coalesced"]["global_load_requests"]
            / counters["tiled"]["global_load_requests"]
        )
        assert ratio == 8


@thorough
def test_ladder_takes_the_tile_where_it_can(tilewise: Tilewise) -> None:
    found = tilewise("ladder", "-m", 20, "-n", 20, "-k", 9, "--tile", 16, "--json")
    assert found.code == 0
    for row in found.json["rungs"]:
        each = rung(row["kernel"])
        takes = 16 in each.tiles
        assert row["tile"] == (16 if takes else each.default_tile)
        assert bool(row["tile_note"]) == bool(each.tiles and not takes)
    shown = " ".join(tilewise("ladder", "-m", 20, "-n", 20, "-k", 9, "--tile", 16).out.split())
    assert "warp_tile ran with tiles of 128: it takes 32, 64 or 128" in shown


def test_kernels_lists_the_rungs(tilewise: Tilewise) -> None:
    listed = tilewise("kernels", "--json").json["kernels"]
    assert [row["kernel"] for row in listed] == [each.name for each in RUNGS]
    assert all(row["lesson"] and row["idea"] for row in listed)
    assert [row["tiles"] for row in listed] == [list(each.tiles) for each in RUNGS]
    found = tilewise("kernels")
    assert found.code == 0
    assert max(map(len, found.out.splitlines())) <= 80
    words = " ".join(found.out.split())
    for each in RUNGS:
        assert f"{each.number} {each.name}: " in words
        assert each.lesson in words


@thorough  # a plain run has it in test_readme.py
def test_ladder_table(tilewise: Tilewise, device: Device) -> None:
    found = tilewise("ladder", "-m", 33, "-n", 2, "-k", 3, "--tile", 4)
    assert found.code == 0
    assert max(map(len, found.out.splitlines())) <= 80
    for each in RUNGS:
        assert f"{each.number} {each.name}" in found.out
    assert ("conflicts" if device.name == "emulator" else "GFLOP/s") in found.out


@thorough
def test_ladder_reports_a_wrong_rung(
    tilewise: Tilewise, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Kernel(source, "forgets_last")
    real = run

    def one_is_wrong(target: Any, *args: Any, **options: Any) -> Any:
        return real(wrong if target.name == "coalesced" else target, *args, **options)

    monkeypatch.setattr("tilewise.ladder.climb.run", one_is_wrong)
    found = tilewise("ladder", "-m", 5, "-n", 5, "-k", 5, "--tile", 4)
    assert found.code == 1
    assert found.out.count("WRONG") == 1


def test_demo(tilewise: Tilewise, device: Device) -> None:
    found = tilewise("demo")
    assert found.code == 0
    assert max(map(len, found.out.splitlines())) <= 80
    assert "right" in found.out
    if device.name == "emulator":
        assert "What you see" in found.out
        assert "1/32" in found.out
    assert tilewise("demo", "--json").json["correct"] is True


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tilewise ")
    assert main(["run", "--help"]) == 0
    assert "--tile" in capsys.readouterr().out
    assert main([]) == 2
    assert "ladder" in capsys.readouterr().out


# ---- wrong results and faults: exit code 1 ----


def test_a_wrong_result_is_not_written(tilewise: Tilewise, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    words = ("run", f"{source}:forgets_last", "-m", 5, "-n", 4, "-k", 3, "--out", out)
    found = tilewise(*words)
    assert found.code == 1
    assert "WRONG" in found.out
    assert "worst at C[" in found.out
    assert not out.exists()
    result = tilewise(*words, "--json").json
    assert result["correct"] is False
    assert result["max_error"] > result["bound"]
    assert result["out"] is None


def test_a_fault_names_its_place(
    tilewise: Tilewise, source: Path, emulator: Device, tmp_path: Path
) -> None:
    words = ("run", f"{source}:no_guard", "-m", 5, "-n", 5, "-k", 5, "--tile", 4)
    line = 1 + SOURCE[: SOURCE.index("c[row * ldc + col] = 0;")].count("\n")
    found = tilewise(*words, "--out", tmp_path / "out.npy")
    assert found.code == 1
    assert f"own.cu:{line}: out of bounds" in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "out.npy").exists()
    document = tilewise(*words, "--json").json
    assert document["findings"][0]["kind"] == "out of bounds"
    assert document["findings"][0]["line"] == line
    assert document["kind"] == "MemoryAccessError"


def test_kernel_output_is_shown(tilewise: Tilewise, source: Path) -> None:
    found = tilewise("run", f"{source}:talks", "-m", 5, "-n", 5, "-k", 7)
    assert found.code == 0
    assert "k is 7" in found.out


def test_failed_assert(tilewise: Tilewise, source: Path, emulator: Device) -> None:
    found = tilewise("run", f"{source}:asserts", "-m", 2, "-n", 2, "-k", 2)
    assert found.code == 1
    assert "k < 0" in found.err


# ---- files, and the end of the process ----


def test_saving_keeps_the_mode_and_follows_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    real.write_bytes(b"")
    real.chmod(0o640)
    link.symlink_to(real)
    matrix_files.save_matrix(link, matrix(2, 3))
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert np.array_equal(np.load(real), matrix(2, 3))


def test_interrupted(tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewise.ladder.run.run", interrupted)
    assert tilewise("run", "tiled").code == 130


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(x, marks=thorough)  # a plain run has "kernels" in test_terminal.py
        for x in ("kernels", "doctor --json", "ladder --device emulator")
    ],
)
def test_a_reader_that_stops_early(words: str) -> None:
    script = f"{sys.executable} -m tilewise {words} | true; exit ${{PIPESTATUS[0]}}"
    found = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (141, "")


def test_a_record_has_the_command_line() -> None:
    """An option of no value is left out, and one of several values is repeated."""
    options = {"--dtype": ("float32", "float64"), "--plot": None, "--seconds": 0.1, "--rounds": 5}
    assert command_line("climb", options) == [
        "tilewise", "climb", "--dtype", "float32", "--dtype", "float64", "--seconds", "0.1",
        "--rounds", "5",
    ]  # fmt: skip


# ---- what the checks are asked for ----

LEAVES = """
extern "C" __global__ void mine(int m, int n, int k, real alpha, const real* a, int lda,
                                const real* b, int ldb, real beta, real* c, int ldc)
{
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || column >= n) return;
    __syncthreads();
    real sum = 0;
    for (int p = 0; p < k; ++p) sum += a[(size_t)row * lda + p] * b[(size_t)p * ldb + column];
    c[(size_t)row * ldc + column] = alpha * sum;
    PLANTED
}
"""


def test_strict_makes_findings_of_notes(
    tilewise: Tilewise, emulator: Device, tmp_path: Path
) -> None:
    file = tmp_path / "leaves.cu"
    file.write_text(LEAVES.replace("PLANTED", ""))
    words = ("run", f"{file}:mine", "-m", 20, "-n", 20, "-k", 3)
    found = tilewise(*words)
    assert found.code == 0
    assert "note:" in found.out
    found = tilewise(*words, "--strict")
    assert found.code == 1
    assert "ended before this barrier" in found.err


def test_races_in_global_memory(tilewise: Tilewise, emulator: Device, tmp_path: Path) -> None:
    file = tmp_path / "races.cu"
    plain = "if (row == 0 && c[column ^ 1] == 5) c[column] = 1;"
    file.write_text(LEAVES.replace("PLANTED", plain))
    words = ("run", f"{file}:mine", "-m", 20, "-n", 20, "-k", 3)
    assert tilewise(*words).code == 0
    found = tilewise(*words, "--global-races")
    assert found.code == 1
    assert "in global memory with nothing that orders it" in found.err
    sizes = ("-m", 40, "-n", 30, "-k", 20, "--tile", 16)
    assert tilewise("run", "tuned", *sizes, "--global-races").code == 0
