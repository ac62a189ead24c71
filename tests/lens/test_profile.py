"""Profiles: their figures, from Python and from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SOURCE, Tilewise
from reference import thorough

from tilewise.cli.main import main
from tilewise.cli.show.console import labels, short
from tilewise.devices import Device
from tilewise.devices.emulator import Emulator
from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import RUNGS
from tilewise.lens.profile import Profile
from tilewise.lens.profiling import profile as profile_product


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
    found = profile_product("tiled", 16, 16, 16, dtype="float64", tile=8)
    c = found.counters
    assert (c.dfma, c.ffma) == (16**3, 0)
    assert found.work.dtype == "float64"


@pytest.mark.sampled(19)
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
    again = kernel.profile(np.int64(4), np.int32(250), (1000, x, y))  # type: ignore[arg-type]
    assert again.counters == found.counters
    with pytest.raises(
        TypeError, match=r"is .*4\.0.*; it takes an integer, or up to three, x first"
    ):
        kernel.profile(4.0, 250, (1000, x, y))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"dynamic shared memory is 1\.5"):
        kernel.profile(4, 250, (1000, x, y), 1.5)  # type: ignore[arg-type]


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
    assert "check  WRONG against float64: max error " in found.out


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
        (["tiled", "-m", "0"], "m is 0; it must be from 1 to 2,147,483,647"),
        (["tiled", "-k", "-1"], "k is -1"),
        (["tiled", "-n", "2147483648"], "n is 2,147,483,648; it must be from 1"),
        (["tiled", "-m", "3000000", "-k", "1"], "m may be 2,097,120 at most"),
        (["tiled", "--arch", "sm_107"], "sm_107"),  # no table has its multiprocessors
        (["tiled", "tield"], "no kernel called 'tield'"),
        (["tiled", "single_block", "-m", "64", "-n", "64"], "at most 1,024; 64 x 64 is 4,096"),
        (["tiled", "--alpha", "nan"], "alpha is nan"),
        (["tiled", "naive", "coalesced"], "3 kernels are named"),
        (["tield"], "no kernel called 'tield'"),
        (["tiled", "--tile", "33"], "tile is 33"),
        (["tiled", "--arch", "sm_12"], "sm_12"),
        (["nothing.cu:there"], "there is no file nothing.cu"),
    ],
)
def test_bad_input(
    profile: Tilewise, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Emulator, "profile", lambda *_, **__: pytest.fail("it was run"))
    found = profile(*words)
    assert found.code == 2
    assert message in " ".join(found.err.split())
    assert not found.out


def printed(script: str) -> str:
    """What a program prints in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@thorough
def test_matrices_that_nothing_is_read_of_take_no_memory(emulator: Device) -> None:
    """C is 1.6 GB; a page of it is touched here and there."""
    script = """
from tilewise.lens.profiling import profile as profile_product
found = profile_product("tiled", 20_000, 20_000, 8)
# Of this program alone: ru_maxrss begins with what the test's own process had.
most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(found.blocks_run, most)
"""
    blocks, most = map(int, printed(script).split())
    assert blocks == 1
    assert most << 10 < 4 * 20_000**2


@pytest.mark.parametrize("k", [100, pytest.param(100_000, marks=thorough)])
def test_matrices_of_more_than_the_memory(emulator: Device, k: int) -> None:
    """C is 40 GB; what it takes is far below what its sectors would as a table of bytes."""
    script = f"""
import tilewise
from tilewise.lens.roofline import bound, find
found = tilewise.profile("tiled", 100_000, 100_000, {k})
bound(found.work, find("h200"))
footprint = found.report.footprint
print(found.blocks_run, footprint.loads, footprint.stores, found.check)
# Of this program alone: ru_maxrss begins with what the test's own process had.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    counted, most = printed(script).splitlines()
    sectors = 4 * 100_000 // 32
    assert counted == f"1 {2 * sectors * k} {sectors * 100_000} None"
    assert int(most) << 10 < 400 << 20


def test_the_command_line_at_such_a_size(profile: Tilewise) -> None:
    words = ["tiled", "-m", 100_001, "-n", 100_003, "-k", 64]
    found = profile(*words)
    assert found.code == 0
    assert "the rest multiplied" in found.out
    assert "C is not checked" in " ".join(found.out.split())
    document = profile(*words, "--json").json
    assert not document["checked"]
    assert document["blocks_run"] == 4


@thorough
def test_why_such_matrices_would_take_memory_after_all(profile: Tilewise) -> None:
    found = profile("tiled", "-m", 1_000_000, "-n", 1_000_000, "-k", 64)
    assert found.code == 2
    text = " ".join(found.err.split())
    assert "every block would be run (there are more than 268,435,456 blocks)" in text
    assert "the matrices, of numbers" in text


def test_many_blocks_of_little_work_are_not_all_run(emulator: Device) -> None:
    found = profile_product("tiled", 200_000, 1, 1)
    assert found.blocks_run == 1 < found.blocks


def test_a_product_of_zeros_is_not_checked(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is a kind of its own, and a kernel that only writes zeros would be right."""
    monkeypatch.setattr("tilewise.lens.profiling.SMALL", 0)
    assert profile_product("tiled", 40, 40, 8).check is not None
    monkeypatch.setattr("tilewise.lens.profiling.DRAWN", 0)
    found = profile_product("tiled", 40, 40, 8)
    assert found.blocks_run == found.blocks == 4
    assert found.check is None


def test_numbers_that_decide_are_drawn(
    emulator: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.lens.profiling.SMALL", 0)
    monkeypatch.setattr("tilewise.lens.profiling.DRAWN", 0)
    path = tmp_path / "sparse.cu"
    element = "a[row * lda + p]"
    path.write_text(
        SOURCE.replace(f"sum += {element}", f"if ({element} > 0) sum += {element}").replace(
            "if (row == 0 && col == 0) printf", "if (k < 0) printf"
        )
    )
    found = profile_product(f"{path}:talks", 40, 40, 8, tile=8)
    assert found.counters.flops > 40 * 40  # zeros would leave alpha's alone
    assert found.check is not None
    assert any("every block was run" in note for note in found.report.notes)


def test_more_memory_than_there_is(
    profile: Tilewise, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 256)
    found = profile(f"{own}:talks", "-m", 100, "-n", 100, "-k", 100)
    assert found.code == 2
    assert "too large for this machine: the matrices, of numbers, and their copies" in found.err
    assert not found.out


def test_what_the_kernel_prints(profile: Tilewise, own: Path) -> None:
    found = profile(f"{own}:talks", "-m", 20, "-n", 20, "-k", 20)
    assert found.code == 0
    assert found.out.endswith("talks printed:\nk is 20\n")


def test_two_of_one_name(profile: Tilewise, own: Path, tmp_path: Path) -> None:
    other = tmp_path / "faster.cu"
    other.write_text(SOURCE)
    found = profile(f"{own}:talks", f"{other}:talks", "-m", 8, "-n", 8, "-k", 8)
    assert found.code == 0
    assert "own.cu:talks: m = 8" in found.out
    assert "faster.cu:talks: m = 8" in found.out
    (heading,) = (line for line in found.out.splitlines() if line.endswith("ratio"))
    assert heading.split()[:2] == ["own.cu:talks", "faster.cu:talks"]


@pytest.mark.parametrize(
    ("kernels", "names"),
    [
        ([("f", "a.cu"), ("g", "a.cu")], ["f", "g"]),
        ([("f", "a.cu"), ("f", "a.cu")], ["f", "f"]),
        ([("f", "x/a.cu"), ("f", "x/b.cu"), ("g", "x/b.cu")], ["a.cu:f", "b.cu:f", "g"]),
        ([("f", "x/a.cu"), ("f", "y/a.cu"), ("f", "b.cu")], ["x/a.cu:f", "y/a.cu:f", "b.cu:f"]),
    ],
)
def test_labels(kernels: list[tuple[str, str]], names: list[str]) -> None:
    assert labels(kernels) == names


def test_a_narrow_terminal_gets_all_numbers(
    profile: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("tiled", "naive", "-m", 8, "-n", 8, "-k", 8)
    wide = profile(*words).out
    monkeypatch.setenv("COLUMNS", "40")
    narrow = profile(*words).out
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 40
    wide, narrow = (re.sub(r"\S+ (ms|µs)\b", "TIME", " ".join(x.split())) for x in (wide, narrow))
    assert set(re.findall(r"\d[\d.,]*", wide)) <= set(re.findall(r"\d[\d.,]*", narrow))


@thorough
def test_large_counts_side_by_side(profile: Tilewise) -> None:
    found = profile("naive", "tiled", "-m", 16000, "-n", 16000, "-k", 16000, "--tile", 32)
    rows = [line for line in found.out.splitlines() if line.startswith("load sectors")]
    assert rows[0].split()[2:] == ["4.22T", "32,000,000,000", "132"]
    assert max(map(len, found.out.splitlines())) <= 80


def test_a_file_that_begins_with_a_mark(profile: Tilewise, own: Path) -> None:
    own.write_text(SOURCE, encoding="utf-8-sig")
    assert profile(f"{own}:talks", "-m", 8, "-n", 8, "-k", 8).code == 0


def test_hardware_is_looked_for_first(
    profile: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Emulator, "profile", lambda *_, **__: pytest.fail("it was run"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = profile("tiled", "--hardware", "--json")
    assert (found.code, found.json["kind"]) == (2, "ProfilerError")
    assert "--device" not in found.err  # profile has no such option
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = profile("tiled", "--hardware")
    assert found.code == 2
    assert "no GPU can be used" in found.err
    assert not found.out


def test_a_slow_run_of_every_block_is_told(
    profile: Tilewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.cu"
    path.write_text("""extern "C" __global__ void last(int* x) { x[0] = blockIdx.x; }
    extern "C" __global__ void loaded(int* x) { if (x[blockIdx.x] == 0) x[blockIdx.x] = 1; }""")
    monkeypatch.setattr("tilewise.cli.commands.profile.PATIENCE", 0)
    few = profile(f"{path}:last", "--grid", 5000, "--block", 32, "--args", "zeros:1")
    assert (few.code, few.err) == (0, "")  # one block was run
    words = (f"{path}:loaded", "--grid", 5000, "--block", 32, "--args", "zeros:5000")
    found = profile(*words)
    assert found.code == 0
    assert re.fullmatch(
        rf"tilewise: profiling {re.escape(str(path))}:loaded: every block is run \(.+: what was "
        r"loaded .+\): 512 of 5,000 took 0 s, and all would take about \d+ s; a smaller --grid has "
        r"fewer blocks, and --limit seconds=MOST stops it \(now after 60 s\)\n",
        found.err,
    )
    assert not profile(*words, "--whole").err  # as asked
    assert profile(*words, "--no-limits").err.endswith("--limit seconds=MOST stops it\n")
    monkeypatch.setattr("tilewise.cli.commands.profile.PATIENCE", 60)
    assert not profile(*words).err


@thorough
def test_more_blocks_than_are_told_apart_are_told(profile: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text('extern "C" __global__ void one(int* x) { x[0] = 1; }')
    words = ("--grid", 2**28 + 1, "--block", 32, "--args", "zeros:1", "--limit", "seconds=4")
    found = profile(f"{path}:one", *words)
    assert found.code == 1
    assert "every block is run (there are more than 268,435,456 blocks)" in found.err
    assert "stopped: limit of 4 seconds" in found.err


def test_interrupted(profile: Tilewise, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Emulator, "profile", interrupted)
    found = profile("tiled")
    assert (found.code, found.out, found.err) == (130, "", "tilewise: interrupted\n")
    found = profile("tiled", "--json")
    assert (found.code, found.json["error"]) == (130, "interrupted")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (9999, "9999"), (10_000, "10.0k"), (123_456, "123k"), (6_307_840, "6.31M"),
     (999_999, "1.00M"), (12_345_678_901, "12.3G"), (10**29, "100R")],
)  # fmt: skip
def test_short(count: int, text: str) -> None:
    assert short(count) == text


def test_findings_alike_are_told_together(profile: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text(
        SOURCE.replace("if (row >= m || col >= n) return;\n    if (row == 0", "if (row == 0")
    )
    words = (f"{path}:talks", "-m", 40, "-n", 40, "-k", 33)
    found = profile(*words)
    every = profile(*words, "--json").json["findings"]
    groups = {(each["kind"], each["line"]) for each in every}
    assert found.code == 1
    assert len(every) > len(groups) > 1
    assert found.out.count("found: ") == len(groups)
    counts = re.findall(
        r"\(and (\d+) findings? more of this kind here\)", " ".join(found.out.split())
    )
    assert sum(map(int, counts)) == len(every) - len(groups)


def test_a_result_that_is_not_finite_is_told(profile: Tilewise, tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text(SOURCE.replace("alpha * sum", "1 / (alpha - alpha)"))
    found = profile(f"{path}:talks", "-m", 3, "-n", 3, "-k", 3)
    assert found.code == 1
    assert "C has 9 infinities, the first at C[0][0], where the inputs have none" in found.out
